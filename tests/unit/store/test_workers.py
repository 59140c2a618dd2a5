"""What workers register: their device, and the kernels that they offer beside the shipped ones."""

from collections.abc import Callable

from lossbench.service.contract.run import Environment
from lossbench.service.store.database import Database
from lossbench.service.store.workers import (
    beat,
    get_worker,
    offered_kernels,
    register_worker,
    set_worker_state,
)


def test_offered_kernels_are_those_of_live_workers_the_last_started_last(
    database: Database, make_environment: Callable[..., Environment]
) -> None:
    offers = {"wrk-1": {"a": {"name": "a"}}, "wrk-2": None, "wrk-3": {"b": {"name": "b"}}}
    for worker_id, kernels in offers.items():
        register_worker(database, worker_id, worker_id, ["q"], make_environment(), kernels)
    with database.reading() as session:
        assert offered_kernels(session) == [offers["wrk-1"], offers["wrk-3"]]
        assert get_worker(session, "wrk-3").kernels == offers["wrk-3"]
    beat(database, "wrk-1", "unhealthy")
    with database.transaction() as session:
        set_worker_state(session, "wrk-3", "gone", "stopped")
    with database.reading() as session:
        assert offered_kernels(session) == []
