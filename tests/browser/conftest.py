"""A real service on loopback with a filled database, and a real Chromium to look at it.

Every number that is stored here is made up: shaped like an H200's, measured by nobody.
"""

import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from lossbench.service.api.app import ServiceContext
from lossbench.service.api.security import AuthMode
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.plan import plan_job
from lossbench.service.contract.run import (
    CaseWork,
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
from lossbench.service.contract.words import Arm, Flag, Grade, JobState, Outcome, Pass
from lossbench.service.settings import Settings
from lossbench.service.store.jobs import get_job
from lossbench.service.store.work import CaseTask, CellAnswer, Work
from lossbench.service.store.workers import beat, register_worker
from lossbench.web.app import create_app

from ..integration.stored_training import store_training

CHROMIUM = "/usr/bin/chromium"
CHROMIUM_ARGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--no-first-run",
    "--disable-sync",
    "--disable-component-update",
]
MISSING = "Chromium is missing; get it with: apt-get install chromium"
GIB = 2**30

TIMES_MS = {  # (time, workspace GiB, dW ratio, grade) on the first shape
    "torch-naive": (42.1, 5.9, 1.0, Grade.EXACT),
    "torch-upcast": (49.3, 11.7, 1.0, Grade.EXACT),
    "torch-compile-chunked": (51.0, 2.2, 1.18, Grade.FAIR),
    "flce": (39.6, 3.0, 1.0, Grade.EXACT),
    "flce[chunk_rows=2048]": (43.4, 3.5, 1.0, Grade.EXACT),
    "liger@0.6.5": (151.0, 4.1, 1.21, Grade.FAIR),
    "liger@0.8.5": (56.2, 1.1, 1.21, Grade.FAIR),
    "liger@0.8.5[chunk_mem_const=4]": (53.8, 2.4, 2.15, Grade.COARSE),
}
MORE_MS = {  # of the jobs that ask for them
    "liger@0.6.0": (56.4, 1.2, 1.21, Grade.FAIR),
    "cce@25.1.1": (30.5, 0.01, 7.4, Grade.POOR),
    "flce[chunk_rows=1024]": (41.0, 2.0, 1.05, Grade.EXACT),
}
FLOOR_MS, BASELINE_MS, TORCH = 37.4, 42.1, "2.11.0"

ENVIRONMENT = Environment(
    device_type="cuda",
    device_name="NVIDIA H200",
    device_uuid_hash="0" * 8,
    memory_bytes=141 * GIB,
    facts={
        "driver": "580.95", "cuda": "13.0", "torch": TORCH, "triton": "3.6.0",
        "python": "3.11.9", "power_limit_w": 700, "gemm_tflops": 690.0,
    },
    hardware_fingerprint="h200aaaa",
    software_fingerprint="soft0001",
)  # fmt: skip


def summary(median_ms: float) -> LatencySummary:
    """A made-up summary around a median."""
    return LatencySummary(
        n=120, median_ms=median_ms, mean_ms=median_ms * 1.002, minimum_ms=median_ms * 0.99,
        q1_ms=median_ms * 0.995, q3_ms=median_ms * 1.012, p95_ms=median_ms * 1.03,
        mad_ms=median_ms * 0.004, outliers=2,
    )  # fmt: skip


def measurement(time_ms: float, scale: float) -> Measurement:
    """Made-up timing: contender, baseline and floor in three processes."""
    ratio = time_ms / (BASELINE_MS * scale)
    over = time_ms / (FLOOR_MS * scale)
    arms = {Arm.CONTENDER: time_ms, Arm.BASELINE: BASELINE_MS * scale, Arm.FLOOR: FLOOR_MS * scale}
    wave = [1 + 0.004 * ((7 * n) % 11 - 5) / 5 for n in range(40)]
    return Measurement(
        latency=summary(time_ms),
        baseline=summary(BASELINE_MS * scale),
        floor=summary(FLOOR_MS * scale),
        ratio_to_baseline=Interval(value=ratio, low=ratio * 0.994, high=ratio * 1.006, processes=3),
        floor_ratio=Interval(value=over, low=over * 0.995, high=over * 1.005, processes=3),
        compile_s=1.3,
        tokens_per_s=8192 / time_ms * 1000,
        samples=tuple(
            SampleBlock(
                arm=arm,
                process=process,
                latency_ms=tuple(median * factor for factor in wave),
                visit_sizes=(20, 20),
            )
            for arm, median in arms.items()
            for process in range(3)
        ),
    )


def errors(dw_ratio: float, grade: Grade) -> ErrorReport:
    """Made-up errors with torch's own beside them."""
    own = {"dw": (1.12e-3, dw_ratio), "dx": (1.67e-3, 1.0), "loss": (9.9e-6, 1.0)}
    return ErrorReport(
        outputs=tuple(
            OutputError(
                output=name,  # type: ignore[arg-type]
                relative_l2=value * ratio,
                yardstick_relative_l2=value,
                ratio=ratio,
                max_abs=value / 500,
                best_fit_scale=1.00002,
                bias=1e-9,
            )
            for name, (value, ratio) in own.items()
        ),
        grade=grade,
        worst_output="dw",
    )


def answer(cell_id: int, cell: Cell, scale: float) -> CellAnswer:
    """The made-up answer of one cell: two of them end without a number."""
    # the catalogue's newest version of our own kernel does not matter here
    text = cell.contender.text.replace(f"flce@{cell.contender.version}", "flce")
    now = datetime.now(UTC)
    record: dict[str, Any] = {
        "cell": cell, "version": cell.contender.version or TORCH, "outcome": Outcome.OK,
        "baseline": Contender(kernel="torch-naive"), "environment": ENVIRONMENT, "processes": 3,
        "seed": 7, "worker_id": "wrk-h200", "started_at": now - timedelta(seconds=9),
        "ended_at": now,
    }  # fmt: skip
    reason = None
    if text == "torch-upcast" and scale > 1:
        reason = "CUDA out of memory: tried to allocate 46.9 GiB, 21.3 GiB free"
        record |= {"outcome": Outcome.OUT_OF_MEMORY, "reason": reason}
    elif text == "flce[chunk_rows=2048]" and scale > 1:
        reason = "chunk_rows=2048 needs a vocabulary that is a multiple of 64"
        record |= {"outcome": Outcome.UNSUPPORTED, "reason": reason}
    else:
        time_ms, workspace, dw_ratio, grade = (TIMES_MS | MORE_MS)[text]
        peak = int(workspace * scale * GIB)
        flags = (Flag.POWER_CAPPED,) + ((Flag.GRADIENTS_IN_FORWARD,) if "torch" not in text else ())
        record |= {
            "measurement": measurement(time_ms * scale, scale),
            "errors": errors(dw_ratio, grade),
            "flags": flags,
            "memory": MemoryReport(
                base_bytes=GIB, peak_forward_bytes=peak + GIB, held_bytes=peak // 3,
                peak_backward_bytes=peak // 2, outputs_bytes=GIB, workspace_bytes=peak,
            ),
        }  # fmt: skip
    done = RunRecord(**record)
    return CellAnswer(cell_id, done.outcome, reason, done, log="compiled in 1.3 s\n")


@dataclass
class Filled:
    """The service under test, its filled database and the jobs in it."""

    address: str
    context: ServiceContext
    work: Work
    report_job: str = ""
    live_job: str = ""
    tasks: list[CaseTask] = field(default_factory=list)

    def submit(self, label: str, contenders: Iterable[str] = TIMES_MS) -> str:
        """A job of some contenders, usually 8, on 2 shapes."""
        request = JobRequest(
            contenders=[Contender.parse(text) for text in contenders],
            shapes=[
                {"model": "llama-3-8b", "tokens": 8192},  # type: ignore[list-item]
                {"tokens": 16384, "hidden": 5120, "vocab": 131072},  # type: ignore[list-item]
            ],
            reuse=False,
            labels={"branch": label},
        )
        plan = plan_job(request, self.context.catalogue, (), 1000)
        return self.context.jobs.submit(plan, {}, "h200")

    def begin(self, job_id: str, cases: int = 100) -> list[CaseTask]:
        """Take the job's lots as a worker would; returns its first cases."""
        with self.context.database.reading() as session:
            lots = [(lot.id, lot.attempt) for lot in get_job(session, job_id).lots]
        tasks: list[CaseTask] = []
        for lot_id, attempt in lots:
            for case in range(self.work.begin_lot(lot_id, attempt)):
                task = self.work.begin_case(lot_id, attempt, case) if len(tasks) < cases else None
                if task:
                    tasks.append(task)
        return tasks

    def save(self, task: CaseTask) -> None:
        """Store the answers of a case."""
        work: CaseWork = task.work
        scale = 1.0 if work.case.max_tokens == 8192 else 2.6
        by_text = {contender.text: contender for contender in work.contenders}
        self.work.save_case(
            task,
            [
                answer(
                    cell.id,
                    Cell(contender=by_text[cell.contender], case=work.case, pass_=Pass(cell.pass_)),
                    scale,
                )
                for cell in task.cells
            ],
        )

    def finish(self, job_id: str) -> None:
        """Answer all that is open."""
        for task in self.begin(job_id):
            self.save(task)
        with self.context.database.reading() as session:
            state = get_job(session, job_id).state
        if state != JobState.DONE:
            raise RuntimeError(f"job {job_id} is {state}")


def fill(filled: Filled) -> None:
    """One worker, one ended job, one that runs."""
    database = filled.context.database
    register_worker(database, "wrk-h200", "gpu-box-1", ["any", "h200"], ENVIRONMENT)
    beat(
        database, "wrk-h200", "busy", None, {"clock_mhz": 1515, "temperature_c": 61, "power_w": 694}
    )
    filled.report_job = filled.submit("main")
    filled.finish(filled.report_job)
    filled.context.alerts.tick()
    with database.transaction() as session:
        store_training(session)
    filled.live_job = filled.submit("faster-backward")
    filled.tasks = filled.begin(filled.live_job, 1)
    task = filled.tasks[0]
    filled.work.note(task, "warm: 694 W, 1515 MHz, 61 °C after 4.2 s")
    filled.work.report_visits(task, {cell.id: (2, 6) for cell in task.cells[:4]})


@pytest.fixture(scope="session")
def live_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """A service on a free port of loopback with a filled SQLite."""
    with serving(tmp_path_factory.mktemp("service")) as filled:
        yield filled


class serving:  # noqa: N801  used as a context manager, like `closing`
    """Start a filled service in a thread and stop it again."""

    def __init__(
        self,
        folder: Path,
        filled: Callable[[Filled], None] = fill,
        mode: AuthMode = AuthMode.OPEN,
    ) -> None:
        self._mode = mode
        self._settings = Settings(data_dir=folder, port=0, stale_after_s=3600)
        self._fill = filled

    def __enter__(self) -> Filled:
        context = self._context = ServiceContext.create(self._settings, self._mode)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        config = uvicorn.Config(
            create_app(context),
            "127.0.0.1",
            port,
            log_level="warning",
            proxy_headers=False,
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, daemon=True)
        self._thread.start()
        deadline = time.monotonic() + 10
        while not self._server.started and time.monotonic() < deadline:
            time.sleep(0.02)
        filled = Filled(f"http://127.0.0.1:{port}", context, Work(context.database, "wrk-h200"))
        self._fill(filled)
        return filled

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = True
        self._thread.join(10)
        self._context.close()


@pytest.fixture(scope="session")
def guarded_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    """The same, where writing needs a token."""
    folder = tmp_path_factory.mktemp("guarded")
    with serving(folder, fill, AuthMode.TOKENS) as filled:
        yield filled


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """A running Chromium. Missing it skips, or fails where LOSSBENCH_REQUIRE_BROWSER=1."""
    path = shutil.which("chromium") or (CHROMIUM if Path(CHROMIUM).exists() else None)
    if path is None:
        if os.environ.get("LOSSBENCH_REQUIRE_BROWSER") == "1":
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    playwright = pytest.importorskip("playwright.sync_api", reason="pip install playwright")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=path, args=CHROMIUM_ARGS)
        yield browser
        browser.close()
