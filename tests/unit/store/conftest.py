"""A fresh SQLite database for every test, copied from one that was migrated once."""

import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import (
    Cell,
    Environment,
    ErrorReport,
    Interval,
    LatencySummary,
    Measurement,
    MemoryReport,
    OutputError,
    RunRecord,
    SampleBlock,
)
from lossbench.service.contract.words import Arm, Flag, Grade, Outcome, Pass
from lossbench.service.store.database import Database, upgrade_schema

RecordMaker = Callable[..., RunRecord]


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with the current schema."""
    path = tmp_path_factory.mktemp("template") / "lossbench.db"
    database = Database(f"sqlite:///{path}")
    upgrade_schema(database)
    # the copy must hold everything that the write-ahead log still has
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    database.close()
    return path


@pytest.fixture
def database(template: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty database with the current schema."""
    shutil.copy(template, tmp_path / "lossbench.db")
    database = Database(f"sqlite:///{tmp_path / 'lossbench.db'}")
    yield database
    database.close()


def environment(name: str = "here", device_name: str = "NVIDIA H200") -> Environment:
    """A made-up GPU; `name` is both fingerprints."""
    return Environment(
        device_type="cuda",
        device_name=device_name,
        device_uuid_hash="abc",
        memory_bytes=2**37,
        facts={"gemm_tflops": 700.0, "driver": "580"},
        hardware_fingerprint=name,
        software_fingerprint=name,
    )


def measurement(median_ms: float = 2.0) -> Measurement:
    """Three samples of an arm."""
    summary = LatencySummary(
        n=3,
        median_ms=median_ms,
        mean_ms=median_ms,
        minimum_ms=1.0,
        q1_ms=1.5,
        q3_ms=2.5,
        p95_ms=3.0,
        mad_ms=0.5,
        outliers=0,
    )
    block = SampleBlock(
        arm=Arm.CONTENDER, process=0, latency_ms=(1.0, median_ms, 3.0), visit_sizes=(2, 1)
    )
    return Measurement(
        latency=summary,
        baseline=summary,
        ratio_to_baseline=Interval(value=1.25, low=1.2, high=1.3, processes=3),
        tokens_per_s=4000.0,
        samples=(block,),
    )


MEMORY = MemoryReport(
    base_bytes=1,
    peak_forward_bytes=2,
    held_bytes=3,
    peak_backward_bytes=4,
    outputs_bytes=5,
    workspace_bytes=6,
)
ERRORS = ErrorReport(
    outputs=(
        OutputError(output="loss", relative_l2=1e-6, ratio=1.0, max_abs=1e-6),
        OutputError(output="dx", relative_l2=2e-3, ratio=1.2, max_abs=1e-3, ulp_p50=0.5),
    ),
    grade=Grade.FAIR,
    worst_output="dx",
)


@pytest.fixture
def make_record() -> RecordMaker:
    """Makes a whole `ok` record; keywords change its fields."""

    def make(
        contender: str = "flce@1",
        case: str = "N8-H4-V16-bfloat16",
        pass_: str = "forward_backward",
        where: Environment | None = None,
        **changes: Any,
    ) -> RunRecord:
        moment = datetime(2026, 11, 30, 12, tzinfo=UTC)
        chosen = Contender.parse(contender)
        fields = {
            "cell": Cell(contender=chosen, case=Case.parse(case), pass_=Pass(pass_)),
            "version": chosen.version,
            "outcome": Outcome.OK,
            "baseline": Contender(kernel="torch-naive"),
            "environment": where or environment(),
            "processes": 3,
            "seed": 0,
            "measurement": measurement(),
            "memory": MEMORY,
            "errors": ERRORS,
            "flags": (Flag.NOISY,),
            "worker_id": "wrk-1",
            "started_at": moment,
            "ended_at": moment,
        }
        return RunRecord.model_validate({**fields, **changes})

    return make


@pytest.fixture
def make_environment() -> Callable[..., Environment]:
    """Makes a made-up GPU; `name` is both fingerprints."""
    return environment


@pytest.fixture
def make_measurement() -> Callable[..., Measurement]:
    """Makes three samples with this median."""
    return measurement
