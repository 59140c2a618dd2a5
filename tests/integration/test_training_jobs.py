"""A job of kind train on a real worker: kept step by step, gone on with after a kill, served."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.training_plan import plan_any
from lossbench.service.statistics.training_points import BLOCK
from lossbench.service.store.database import Database
from lossbench.service.store.events import last_log_lines
from lossbench.service.store.jobs import Jobs
from lossbench.service.store.models import CellRow, EnvironmentRow, JobRow
from lossbench.service.store.training_curves import curve_of
from lossbench.service.store.training_models import TrainingPointsRow, TrainingRunRow
from lossbench.service.store.training_runs import put_block

from . import engines
from .conftest import ApiService
from .test_worker_kills import Machine, until

database_url = engines.database_url
SMALL = {"size": "1m", "batch": 1, "sequence": 8, "validation_tokens": 256, "threads": 1}


@pytest.fixture
def machine(database: Database, tmp_path: Path) -> Iterator[Machine]:
    made = Machine(database, tmp_path)
    yield made
    made.close()


def submit(machine: Machine, **training: Any) -> str:
    body = {
        "kind": "train",
        "contenders": ["torch-naive", "torch-upcast"],
        "accelerator": "cpu",
        "training": {**SMALL, **training},
    }
    plan = plan_any(JobRequest.model_validate(body), load_catalogue())
    return Jobs(machine.database, machine.queue).submit(plan, {}, "cpu")


def ended(machine: Machine, job_id: str) -> Callable[[], bool]:
    query = sa.select(sa.func.count()).where(
        JobRow.id == job_id, JobRow.state.in_(["done", "failed", "cancelled"])
    )
    return lambda: machine.ask(query) == 1


def most_steps(machine: Machine) -> int:
    return machine.ask(sa.select(sa.func.max(TrainingRunRow.steps_done)))


def test_killed_worker_s_training_goes_on_at_its_checkpoint(
    machine: Machine, tmp_path: Path
) -> None:
    first = machine.start_worker()
    job_id = submit(machine, steps=1500, seeds=1, checkpoint_every=20, control=False)
    until(lambda: most_steps(machine) >= 40, "first steps stored")
    first.kill()
    first.wait()
    stopped_at = most_steps(machine)
    machine.start_worker()
    until(ended(machine, job_id), "end of the training", 300)
    with machine.database.reading() as session:
        runs = list(session.scalars(sa.select(TrainingRunRow).order_by(TrainingRunRow.position)))
        cells = list(session.scalars(sa.select(CellRow).order_by(CellRow.position)))
        lines = last_log_lines(session, job_id, 50)
        curve = curve_of(session, runs[0].id, "loss", 20_000)
    assert [(run.outcome, run.steps_done) for run in runs] == [("ok", 1500)] * 2, lines
    assert [(cell.outcome, cell.training_run_id) for cell in cells] == [
        ("ok", run.id) for run in runs
    ]
    assert runs[0].resumed >= 20
    assert any("goes on at step" in line for line in lines)
    assert stopped_at < 1500
    assert curve.steps.tolist() == list(range(1, 1501))
    assert np.isfinite(curve.values).all()
    assert runs[0].windows is not None
    assert len(runs[0].windows) == 20
    # what is stored needs no checkpoint any more
    assert not list((tmp_path / "training").rglob("checkpoint.pt"))


def test_cancelled_training_ends_its_processes_and_keeps_its_steps(machine: Machine) -> None:
    machine.start_worker()
    job_id = submit(machine, steps=1_000_000, seeds=1, control=False)
    until(lambda: most_steps(machine) >= 20, "first steps stored")
    Jobs(machine.database, machine.queue).cancel(job_id)
    query = sa.text("SELECT count(*) FROM workers WHERE state = 'idle'")

    def idle() -> bool:
        with machine.database.reading() as session:
            return session.scalar(query) == 1

    until(idle, "the worker is free again", 20)
    with machine.database.reading() as session:
        assert {cell.outcome for cell in session.scalars(sa.select(CellRow))} == {"cancelled"}
    assert most_steps(machine) >= 20


@pytest.fixture
def long_run(database: Database) -> str:
    """A run of 1,000,000 stored steps with one spike."""
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    rng = np.random.default_rng(0)
    with database.transaction() as session:
        session.add(
            JobRow(
                id="job-long", kind="train", state="done", labels={}, accelerator="cpu",
                request={"kind": "train", "contenders": ["flce"]}, priority=5, processes=3,
                timeout_s=600.0, cells_total=1, estimated_s=1.0, created_at=moment,
            )
        )  # fmt: skip
        session.add(
            EnvironmentRow(
                id="e", device_type="cpu", device_name="cpu", hardware_fingerprint="h",
                software_fingerprint="s", memory_bytes=1, facts={}, first_seen_at=moment,
            )
        )  # fmt: skip
        session.flush()
        session.add(
            TrainingRunRow(
                id="trn-long", job_id="job-long", position=0, contender="flce@1", kernel="flce",
                reordered=False, seed=0, state="done", outcome="ok", steps_done=1_000_000,
                steps_total=1_000_000, resumed=0, settings={}, environment_id="e", worker_id="w",
                started_at=moment, updated_at=moment,
            )
        )  # fmt: skip
        session.flush()
        for block in range(100):
            rows = rng.normal(3.0, 0.2, (BLOCK, 5)).astype(np.float32)
            if block == 57:
                rows[4321, 0] = 99.0
            put_block(session, "trn-long", block, rows)
    return "trn-long"


def test_million_steps_are_thinned_and_keep_their_spike(database: Database, long_run: str) -> None:
    with database.reading() as session:
        curve = curve_of(session, long_run, "loss", 1000)
    assert len(curve.steps) <= 1000
    assert (curve.steps[0], curve.steps[-1]) == (1, 1_000_000)
    assert curve.steps[int(curve.values.argmax())] == 57 * BLOCK + 4321 + 1
    with database.reading() as session:
        stored = session.scalar(sa.select(sa.func.sum(sa.func.length(TrainingPointsRow.data))))
        whole = curve_of(session, long_run, "loss", 20_000)
    assert stored is not None
    assert len(whole.steps) <= 20_000
    assert whole.values.max() == 99.0


def test_training_is_served_with_its_runs_verdicts_and_curves(
    any_service: ApiService, database: Database, long_run: str
) -> None:
    http = any_service.http
    listed = http.get("/api/v1/training").json()
    assert [(each["id"], each["state"]) for each in listed["items"]] == [("job-long", "done")]
    assert listed["next_cursor"] is None
    assert http.get("/api/v1/training?contender=liger").json()["items"] == []
    detail = http.get("/api/v1/training/job-long").json()
    assert [run["id"] for run in detail["runs"]] == [long_run]
    (reference,) = detail["contenders"]
    assert (reference["role"], reference["verdict"], reference["seeds"]) == ("reference", None, 1)
    (curve,) = http.get("/api/v1/training/job-long/points?max_points=100").json()["curves"]
    assert len(curve["steps"]) == len(curve["values"]) <= 100
    assert max(curve["values"]) == 99.0
    for path, status in (
        ("/training/nothing", 404),
        ("/training/job-long/points?max_points=3", 422),
        ("/training/job-long/points?metric=speed", 422),
        ("/training?cursor=x", 422),
    ):
        assert http.get(f"/api/v1{path}").status_code == status, path
