"""Where a fault plays: one database, a real service, workers as processes, and what came of it."""

import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import sqlalchemy as sa
from servers import Server

from lossbench.service.store.database import Database
from lossbench.service.store.models import CellRow, EventRow, JobRow, LotRow, RunRow

TESTS = Path(__file__).parents[1]
sys.path.append(str(TESTS / "integration"))
from service_process import free_port  # noqa: E402

WORKER = TESTS / "integration" / "scripted_worker.py"
SERVICE = Path(__file__).with_name("scripted_service.py")
POLL_S = 0.05


class Job(NamedTuple):
    """A submitted job: its id, its cells, and the hidden size that no other job has."""

    id: str
    cells: int
    hidden: int


class Verdict(NamedTuple):
    """What became of a job's cells."""

    state: str
    lost: int
    """Cells without exactly one `ok` result."""
    doubled: int
    """Stored results that no cell points at, and cells that share one."""


class Stage:
    """Processes on one database; `close` ends what still runs."""

    def __init__(self, engine: str, url: str, folder: Path, stale_after_s: float) -> None:
        self.engine, self.url, self.folder = engine, url, folder
        self.port = free_port()
        self.variables = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "LOSSBENCH_DATA_DIR": str(folder),
            "LOSSBENCH_DATABASE_URL": url,
            "LOSSBENCH_STALE_AFTER_S": str(stale_after_s),
            "LOSSBENCH_WRITES_PER_MINUTE": "100000",
            "OMP_NUM_THREADS": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
        }
        self.started: list[subprocess.Popen[bytes]] = []
        self.database = Database(url)
        self._hidden = 8
        self._read_from: dict[Path, int] = {}

    # ---- processes

    def _start(
        self, name: str, arguments: list[str], ready: str, variables: dict[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start a process and wait until its output says that it is ready."""
        log = self.folder / f"{name}-{len(self.started)}.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-P", *arguments],
                env=self.variables | variables,
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        self.started.append(process)
        until(
            lambda: (
                bool(re.search(ready, log.read_text(errors="replace"), re.MULTILINE))
                or process.poll() is not None
            ),
            f"{name} is ready",
            120,
        )
        if process.poll() not in (None, -signal.SIGKILL):
            raise RuntimeError(f"{name} ended: {log.read_text(errors='replace')[-2000:]}")
        return process

    def service(self, point: str | None = None, **variables: str) -> subprocess.Popen[bytes]:
        """A service, the real one; with a point, one that kills itself there once."""
        where = ["--port", str(self.port), "--no-auth"]
        if point is None:
            command = ["-m", "lossbench.service.cli.main", "serve", *where]
        else:
            command = [str(SERVICE), point, str(self.marker(point)), *where]
        return self._start("service", command, "lossbench serves", variables)

    def worker(
        self, point: str = "never", case_s: float = 0.3, device: str = "", **variables: str
    ) -> subprocess.Popen[bytes]:
        """A worker whose measuring is a sleep, and which kills itself at a point, once."""
        command = [str(WORKER), point, str(self.marker(point)), str(case_s), device]
        return self._start("worker", command, "^ready$", variables)

    def measuring_worker(self, **variables: str) -> subprocess.Popen[bytes]:
        """The real worker, with real measuring processes on the CPU."""
        command = ["-m", "lossbench.service.cli.main", "worker", "--queue", "cpu"]
        return self._start("worker", command, "takes lots", variables)

    def marker(self, point: str) -> Path:
        """The file that whoever kills itself at a point leaves there."""
        return self.folder / f"died-{point}"

    def end(self, *processes: subprocess.Popen[bytes], number: int = signal.SIGTERM) -> None:
        """Stop processes and collect them."""
        for process in processes:
            process.send_signal(signal.SIGCONT)
            process.send_signal(number)
        for process in processes:
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    # ---- jobs

    @property
    def http(self) -> httpx.Client:
        """A client of the service."""
        return httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1", trust_env=False, timeout=30
        )

    def body(self, cases: int, **changes: Any) -> dict[str, Any]:
        """A job of one contender on so many cases that no job before had."""
        self._hidden += 8
        return {
            "contenders": ["torch-upcast"],
            "shapes": [
                {"tokens": n, "hidden": self._hidden, "vocab": 32} for n in range(1, cases + 1)
            ],
            "dtypes": ["float32"],
            "processes": 1,
            "accelerator": "cpu",
            **changes,
        }

    def submit(self, cases: int, **changes: Any) -> Job:
        """Submit such a job."""
        body = self.body(cases, **changes)
        with self.http as http:
            answer = http.post("/jobs", json=body)
        if answer.status_code != 202:
            raise RuntimeError(answer.text)
        found = answer.json()
        return Job(found["id"], found["cells_total"], body["shapes"][0]["hidden"])

    def done(self, job: Job) -> int:
        """Cells of the job that have an answer."""
        query = sa.select(sa.func.count()).where(CellRow.job_id == job.id, CellRow.state == "done")
        with self.database.reading() as session:
            return session.scalar(query) or 0

    def state(self, job: Job) -> str:
        """State of the job."""
        with self.database.reading() as session:
            return str(session.scalar(sa.select(JobRow.state).where(JobRow.id == job.id)))

    def lot(self, job: Job) -> LotRow:
        """The job's first lot."""
        with self.database.reading() as session:
            query = sa.select(LotRow).where(LotRow.job_id == job.id).order_by(LotRow.position)
            return session.scalars(query.limit(1)).one()

    def wait_done(self, job: Job, cells: int, timeout_s: float = 120) -> None:
        """Wait until so many cells of the job have an answer."""
        until(lambda: self.done(job) >= cells, f"{cells} cells of {job.id}", timeout_s)

    def wait_end(self, job: Job, timeout_s: float = 180) -> None:
        """Wait until the job has ended."""
        until(lambda: self.state(job) not in ("queued", "running"), f"end of {job.id}", timeout_s)

    def verdict(self, job: Job) -> Verdict:
        """Count what is lost and what is double."""
        with self.database.reading() as session:
            cells = list(session.scalars(sa.select(CellRow).where(CellRow.job_id == job.id)))
            stored = session.scalar(
                sa.select(sa.func.count()).select_from(RunRow).where(RunRow.hidden == job.hidden)
            )
        right = sum(cell.outcome == "ok" and cell.run_id is not None for cell in cells)
        named = [cell.run_id for cell in cells if cell.run_id]
        doubled = (stored or 0) + len(named) - 2 * len(set(named))
        return Verdict(self.state(job), job.cells - right, doubled)

    def shares(self, job: Job) -> list[int]:
        """Cells of the job by the worker that took their lots, the most first."""
        query = (
            sa.select(sa.func.count())
            .select_from(CellRow)
            .join(LotRow, LotRow.id == CellRow.lot_id)
            .where(CellRow.job_id == job.id)
            .group_by(LotRow.worker_id)
        )
        with self.database.reading() as session:
            return sorted(session.scalars(query), reverse=True)

    # ---- what the log says

    def mark_logs(self) -> None:
        """What is written from now on is what `said` looks through."""
        for path in self.folder.glob("*.log"):
            self._read_from[path] = path.stat().st_size

    def said(self, pattern: str, job: Job | None = None) -> str:
        """The first line since `mark_logs` that matches: of any process, or of the job's log."""
        lines = []
        for path in sorted(self.folder.glob("*.log")):
            text = path.read_bytes()[self._read_from.get(path, 0) :].decode(errors="replace")
            lines += [(path.name.partition("-")[0], line) for line in text.splitlines()]
        if job is not None:
            with self.database.reading() as session:
                query = sa.select(EventRow.data).where(
                    EventRow.job_id == job.id, EventRow.kind == "log"
                )
                lines += [("job", str(data["line"])) for data in session.scalars(query)]
                reasons = sa.select(CellRow.reason).where(
                    CellRow.job_id == job.id, CellRow.reason.is_not(None)
                )
                lines += [("cell", reason) for reason in session.scalars(reasons)]
        return next(
            (f"{who}: {plain(line)}" for who, line in lines if re.search(pattern, line)), ""
        )

    def close(self) -> None:
        """Kill and collect everything."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.wait()
        self.database.close()


def plain(line: str) -> str:
    """A log line without its time, and with short names in place of ids."""
    line = re.sub(r"^(job|cell|worker|service): ", "", line.strip())
    line = re.sub(r"^\d{4}\S+( [\d:]+)? \[\w+ *\] ", "", line)
    line = re.sub(r"\b(wrk|lot|job)-[0-9a-z]{10,}", r"\1", line)
    return re.sub(r"\s+", " ", line)[:140]


def until(condition: Callable[[], bool], what: str, timeout_s: float) -> None:
    """Wait for a condition; while the database is away it does not hold."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            if condition():
                return
        except sa.exc.SQLAlchemyError:
            pass
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(POLL_S)


def make_stage(engine: str, server: Server | None, stale_after_s: float) -> Stage:
    """A stage on a fresh database of this engine."""
    folder = Path(tempfile.mkdtemp(prefix="lbrel"))
    url = server.fresh_url() if server else f"sqlite:///{folder / 'lossbench.db'}"
    return Stage(engine, url, folder, stale_after_s)


def remove(stage: Stage) -> None:
    """Close a stage and remove its folder."""
    stage.close()
    shutil.rmtree(stage.folder, ignore_errors=True)
