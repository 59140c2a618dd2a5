"""Faults on real processes, each once: the whole table is printed by `make reliability`."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))

from faults import all_faults, inflict
from found import ENGINES, Fault, Site
from long_job import killed_until_done
from servers import Server
from stage import Job, Stage

STALE_AFTER_S = 2.0


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """A server that may be stopped, apart from the one that other tests use."""
    made = Server()
    yield made
    made.close()


@pytest.fixture
def site(request: pytest.FixtureRequest) -> Callable[[str], Site]:
    """What the faults of one engine run on."""

    def make(engine: str) -> Site:
        server = request.getfixturevalue("server") if engine == "postgresql" else None
        return Site(engine, server, STALE_AFTER_S, cells=1000)

    return make


def assert_right(site: Site, fault: Fault) -> None:
    try:
        row = inflict(site, fault, 1)
    except PermissionError as error:
        pytest.skip(str(error))
    assert (row.lost, row.doubled, row.wrong) == (0, 0, [])


def test_long_job_whose_workers_are_killed_again_and_again_is_whole(
    site: Callable[[str], Site],
) -> None:
    assert_right(site("sqlite"), killed_until_done(100, 3.0))


def _names() -> list[str]:
    names = {
        fault.name: None
        for server in (None, object())
        for fault in all_faults(Site("any", server, STALE_AFTER_S, 1000))  # type: ignore[arg-type]
    }
    return list(names)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("name", _names())
def test_fault_loses_and_doubles_nothing(
    site: Callable[[str], Site], engine: str, name: str
) -> None:
    there = site(engine)
    for fault in all_faults(there):
        if fault.name == name:
            assert_right(there, fault)
            return
    pytest.skip(f"{engine} has no such fault")


def test_verdict_sees_what_is_lost_and_what_is_double(sqlite_stage: Stage) -> None:
    """The counts of the table have a mutant: a cell without result, and a result too many."""
    job = _measured(sqlite_stage)
    assert sqlite_stage.verdict(job)[1:] == (0, 0)
    with sqlite_stage.database.transaction() as session:
        from sqlalchemy import text

        session.execute(text("PRAGMA foreign_keys = OFF"))
        columns = [row[1] for row in session.execute(text("PRAGMA table_info(runs)"))]
        others = ", ".join(name for name in columns if name != "id")
        session.execute(
            text(f"INSERT INTO runs (id, {others}) SELECT 'run-extra', {others} FROM runs LIMIT 1")
        )
        session.execute(
            text(
                "UPDATE job_cells SET outcome = 'failed', reason = 'gone', run_id = NULL "
                "WHERE position = 1"
            )
        )
    # the result whose cell forgot it is one too many as well
    assert sqlite_stage.verdict(job)[1:] == (1, 2)


@pytest.fixture
def sqlite_stage(site: Callable[[str], Site]) -> Iterator[Stage]:
    with site("sqlite").stage() as stage:
        yield stage


def _measured(stage: Stage) -> Job:
    stage.service()
    worker = stage.worker(case_s=0.0)
    job = stage.submit(3)
    stage.wait_end(job)
    stage.end(worker)
    return job
