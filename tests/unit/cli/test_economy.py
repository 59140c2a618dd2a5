"""The line on wall time counts each case once."""

from datetime import UTC, datetime

from lossbench.service.cli.economy import walls_of
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell, Environment, RunRecord
from lossbench.service.contract.words import Outcome, Pass

MOMENT = datetime(2026, 11, 30, tzinfo=UTC)
HERE = Environment(
    device_type="cpu",
    device_name="CPU",
    device_uuid_hash="x",
    memory_bytes=1,
    facts={},
    hardware_fingerprint="h",
    software_fingerprint="s",
)


def record(case: str, total_s: float | None) -> RunRecord:
    contender = Contender(kernel="torch-naive")
    return RunRecord(
        cell=Cell(contender=contender, case=Case.parse(case), pass_=Pass.FORWARD),
        outcome=Outcome.OK,
        baseline=contender,
        environment=HERE,
        processes=1,
        seed=0,
        details={} if total_s is None else {"wall_s": {"total": total_s}},
        started_at=MOMENT,
        ended_at=MOMENT,
    )


def test_cells_of_a_case_share_its_wall_time() -> None:
    one, other = "N64-H32-V128-float32", "N64-H32-V256-float32"
    records = [record(one, 5.0), record(one, 6.0), record(other, 2.0), record(other, None), None]
    assert walls_of(records) == [{"total": 6.0}, {"total": 2.0}]
