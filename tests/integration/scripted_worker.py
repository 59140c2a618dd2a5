"""A real worker whose measuring is a short sleep, and which kills itself once at a named point.

Run as `python scripted_worker.py POINT MARKER [SECONDS_A_CASE [DEVICE [QUEUE]]]`. The queue, the
claims, the saves and the heartbeat are the real ones; only the measuring processes are left out, so
that a fault test takes seconds.
"""

import os
import signal
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import structlog

from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell, Environment, LatencySummary, Measurement, RunRecord
from lossbench.service.contract.words import Outcome, Pass
from lossbench.service.settings import Settings
from lossbench.service.store import work
from lossbench.service.store.work import Work
from lossbench.worker import lots
from lossbench.worker.compare import Measured
from lossbench.worker.main import Worker, WorkerOptions
from lossbench.worker.order import CellResult

CASE_S = 0.15


def environment(name: str) -> Environment:
    """A made-up CPU."""
    return Environment(
        device_type="cpu",
        device_name="scripted CPU",
        device_uuid_hash=name,
        memory_bytes=2**34,
        facts={"gemm_tflops": 0.05},
        hardware_fingerprint="scripted",
        software_fingerprint="scripted",
    )


def record(contender: str, pass_: str, case: Any, worker_id: str) -> RunRecord:
    """A run of 20 samples of 1 ms."""
    moment = datetime.now(UTC)
    summary = LatencySummary(
        n=20, median_ms=1, mean_ms=1, minimum_ms=1, q1_ms=1, q3_ms=1, p95_ms=1, mad_ms=0, outliers=0
    )
    return RunRecord(
        cell=Cell(contender=Contender.parse(contender), case=case, pass_=Pass(pass_)),
        outcome=Outcome.OK,
        baseline=Contender(kernel="torch-naive"),
        environment=environment("x"),
        processes=1,
        seed=0,
        measurement=Measurement(latency=summary),
        worker_id=worker_id,
        started_at=moment,
        ended_at=moment,
    )


class Fault:
    """Kills this process with SIGKILL the first time that the named point is reached.

    Two points kill nobody: with `slow_save` every save takes a third of a second, for faults to hit
    it, and with `unhealthy` the device is said to compute wrongly. `drain` ends with the queue.
    """

    def __init__(self, point: str, marker: Path) -> None:
        self._point, self._marker = point, marker
        self.save_s = 0.3 if point == "slow_save" else 0.0

    def at(self, point: str) -> None:
        """Die here, if this is the point and nobody died yet."""
        if point == self._point and not self._marker.exists():
            self._marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)


def install(fault: Fault, case_s: float = CASE_S) -> None:
    """Replace measuring by a sleep and put the fault at its point."""
    insert_runs = work.insert_runs
    begin_lot, begin_case, save_case, finish_lot = (
        Work.begin_lot,
        Work.begin_case,
        Work.save_case,
        Work.finish_lot,
    )

    def faulty_begin_lot(self: Work, *args: Any) -> Any:
        fault.at("before_claim")
        cases = begin_lot(self, *args)
        fault.at("after_claim")
        return cases

    def faulty_begin_case(self: Work, *args: Any) -> Any:
        task = begin_case(self, *args)
        fault.at("case_begun")
        return task

    def faulty_save(self: Work, *args: Any) -> None:
        fault.at("before_save")
        save_case(self, *args)
        fault.at("between_save_and_checkpoint")

    def faulty_insert(*args: Any) -> Any:
        ids = insert_runs(*args)
        fault.at("in_save")
        time.sleep(fault.save_s)
        return ids

    def faulty_finish(self: Work, *args: Any) -> None:
        finish_lot(self, *args)
        fault.at("lot_finished")

    def measure(self: lots.LotWorker, task: Any) -> Measured:
        time.sleep(case_s / 2)
        fault.at("measuring")
        time.sleep(case_s / 2)
        results = [
            CellResult(
                cell.id,
                Outcome.OK,
                None,
                record(cell.contender, cell.pass_, task.work.case, "scripted"),
                "",
            )
            for cell in task.cells
        ]
        return Measured(results, ())

    work.insert_runs = faulty_insert
    Work.begin_lot = faulty_begin_lot  # type: ignore[method-assign]
    Work.begin_case = faulty_begin_case  # type: ignore[method-assign]
    Work.save_case = faulty_save  # type: ignore[method-assign]
    Work.finish_lot = faulty_finish  # type: ignore[method-assign]
    lots.LotWorker._measure = measure  # type: ignore[method-assign]


def main() -> None:
    """Work until killed or terminated."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    point, marker = sys.argv[1], Path(sys.argv[2])
    install(Fault(point, marker), float(sys.argv[3]) if len(sys.argv) > 3 else CASE_S)
    device = sys.argv[4] if len(sys.argv) > 4 else ""
    queues = tuple(sys.argv[5:6])
    options = WorkerOptions(queues=queues, drain=point == "drain")
    worker = Worker(Settings(), options, environment(device or f"device-{os.getpid()}"))
    worker._unhealthy = "a sum was wrong" if point == "unhealthy" else None
    signal.signal(signal.SIGTERM, lambda *_: worker.request_stop())
    worker.start()
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    worker.wait()
    worker.stop()


if __name__ == "__main__":
    main()
