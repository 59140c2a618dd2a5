"""A process that freezes inside a transaction does not hold a job's lock for ever."""

import time

import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.store.database import Database
from lossbench.service.store.jobs import Jobs, get_job
from lossbench.service.store.models import JobRow
from lossbench.service.store.queue import LotQueue


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_job_lock_of_a_frozen_process_is_freed_by_postgresql(database: Database) -> None:
    queue = LotQueue(database)
    request = JobRequest.model_validate(
        {"contenders": ["torch-naive"], "shapes": [{"tokens": 8, "hidden": 8, "vocab": 16}]}
    )
    job_id = Jobs(database, queue).submit(plan_job(request, load_catalogue()), {}, "cpu")
    queue.close()
    frozen = Database(database.url, idle_transaction_s=0.5)
    with frozen.engine.connect() as connection:
        connection.execute(sa.select(JobRow.id).where(JobRow.id == job_id).with_for_update())
        began = time.monotonic()
        with database.transaction() as session:
            assert get_job(session, job_id, lock=True).id == job_id
        assert 0.3 < time.monotonic() - began < 10.0
        with pytest.raises(sa.exc.DBAPIError):
            connection.execute(sa.text("SELECT 1"))
    frozen.close()
