"""The queue of lots, on DBOS: submit, claim, finish, take back. Nothing else knows DBOS.

A lot is a workflow with id `<lot id>:<attempt>`, each of its cases a step. Attempts are counted in
our own table: resuming a workflow would reset DBOS's count. Arguments are plain JSON, never pickle.
"""

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import structlog
from dbos import DBOS, DBOSClient
from dbos import Serializer as DbosSerializer
from sqlalchemy.orm import Session

from ..contract.errors import LotLostError
from .database import IDLE_TRANSACTION_S, KEEPALIVE, Database

APPLICATION_VERSION = "lossbench-1"
"""Fixed: DBOS's default is a hash of the workflow's code, so an upgrade would orphan old lots."""
WORKFLOW = "measure_lot"
QUEUE_SCHEMA = "dbos"
"""Where the queue's own tables are on PostgreSQL."""
POLLING_S = 0.1
PRIORITY_STEP = 100_000_000
"""Between two priorities of jobs; a lot's turn is added. DBOS takes up to 2**31 - 1."""
ALIVE = ("ENQUEUED", "DELAYED", "PENDING")
"""States of a workflow that waits or runs."""

log = structlog.get_logger("lossbench.queue")

MeasureCase = Callable[[str, int, int], None]
"""(lot id, attempt, case index): measures one case and stores its cells. Raises LotLostError."""


class JsonSerializer(DbosSerializer):
    """JSON in place of pickle: whoever can write the database must not run code in a worker."""

    def serialize(self, data: Any) -> str:
        """Text of the data; an exception is stored as its type and message."""
        return json.dumps(data, default=lambda value: f"{type(value).__name__}: {value}")

    def deserialize(self, serialized_data: str) -> Any:
        """The data; an error text comes back as an Exception where DBOS expects one."""
        return json.loads(serialized_data)

    def name(self) -> str:
        """Stored with each workflow."""
        return "lossbench_json"


def _quiet_logs() -> None:
    """Cancelling is ordinary here; DBOS logs each cancel as an ERROR with a traceback."""
    logger = logging.getLogger("dbos")
    logger.setLevel(logging.ERROR)
    if not any(isinstance(kept, _CancelFilter) for kept in logger.filters):
        logger.addFilter(_CancelFilter())


class _CancelFilter(logging.Filter):
    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage() + str(record.exc_info[1] if record.exc_info else "")
        return not any(word in text for word in ("ancelled", "LotLost", "no longer owned"))


def _dbos_url(database: Database) -> str:
    url = database.engine.url
    if not database.is_sqlite:
        # a server that vanished without a word is noticed, as on our own connections
        url = url.update_query_dict({name: str(value) for name, value in KEEPALIVE.items()})
    return url.render_as_string(hide_password=False)


def workflow_id(lot_id: str, attempt: int) -> str:
    """DBOS's id of one attempt at a lot."""
    return f"{lot_id}:{attempt}"


def lot_and_attempt(workflow: str) -> tuple[str, int]:
    """Inverse of `workflow_id`."""
    lot_id, _, attempt = workflow.rpartition(":")
    return lot_id, int(attempt)


def migrate_queue(database: Database) -> None:
    """Make or update the queue's own tables. Safe to call again."""
    _quiet_logs()
    DBOS.migrate(_dbos_url(database))


class LotQueue:
    """The service's side: put lots in, take them out, see which executors hold one."""

    def __init__(self, database: Database) -> None:
        _quiet_logs()
        self._client = DBOSClient(
            system_database_url=_dbos_url(database),
            serializer=JsonSerializer(),
            lazy=True,
            sys_db_idle_transaction_timeout_sec=IDLE_TRANSACTION_S,
            retry_connection_errors=False,
        )
        self._known: set[str] = set()

    def ensure(self, queue: str) -> None:
        """Register a queue once; one lot at a time on each worker."""
        if queue not in self._known:
            if self._client.retrieve_queue(queue) is None:
                self._client.register_queue(
                    queue, worker_concurrency=1, polling_interval_sec=POLLING_S
                )
            self._known.add(queue)

    def enqueue(self, session: Session, lot_id: str, attempt: int, place: tuple[str, int]) -> None:
        """Put one attempt at a lot into a queue, in the caller's transaction.

        `place` = (queue, priority). The queue must have been named to `ensure` before the
        transaction began: SQLite has one writer.
        """
        queue, priority = place
        self._client.enqueue_in_transaction(
            session,
            {
                "workflow_name": WORKFLOW,
                "queue_name": queue,
                "workflow_id": workflow_id(lot_id, attempt),
                "app_version": APPLICATION_VERSION,
                "priority": priority,
            },
            lot_id,
            attempt,
        )

    def withdraw(self, lots: Iterable[tuple[str, int]]) -> None:
        """Take attempts out of the queue; a running one ends at its next step."""
        ids = [workflow_id(lot_id, attempt) for lot_id, attempt in lots]
        if ids:
            self._client.cancel_workflows(ids)

    def held(self) -> list[tuple[str, int, str]]:
        """(lot id, attempt, executor id) of every lot that some executor has taken."""
        rows = self._client.list_workflows(
            status="PENDING", name=WORKFLOW, load_input=False, load_output=False
        )
        return [(*lot_and_attempt(row.workflow_id), row.executor_id or "") for row in rows]

    def ended(self, lots: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of the attempts that the queue will never deliver (again)."""
        ids = [workflow_id(lot_id, attempt) for lot_id, attempt in lots]
        if not ids:
            return []
        waiting = {
            row.workflow_id
            for row in self._client.list_workflows(
                workflow_ids=ids, status=list(ALIVE), load_input=False, load_output=False
            )
        }
        return [lot for lot, name in zip(lots, ids, strict=True) if name not in waiting]

    def depth(self) -> dict[str, int]:
        """Lots waiting, by queue."""
        counts: dict[str, int] = {}
        for row in self._client.list_workflows(
            status="ENQUEUED", name=WORKFLOW, load_input=False, load_output=False
        ):
            counts[str(row.queue_name)] = counts.get(str(row.queue_name), 0) + 1
        return counts

    def close(self) -> None:
        """Give back the connections."""
        self._client.destroy()


class LotConsumer:
    """The worker's side: takes one lot at a time and measures its cases in order."""

    def __init__(
        self,
        database: Database,
        worker_id: str,
        begin: Callable[[str, int], int],
        measure_case: MeasureCase,
        finish: Callable[[str, int], None],
        drop: Callable[[str, int], None],
    ) -> None:
        """`begin` claims a lot and returns its number of cases; `finish` closes it; `drop` comes
        last, however the work on the lot ended.
        """
        self._database = database
        self._worker_id = worker_id
        self._begin, self._measure_case, self._finish = begin, measure_case, finish
        self._drop = drop

    def start(self, queues: Iterable[str]) -> None:
        """Begin to take lots from these queues, in threads of DBOS."""
        _quiet_logs()
        DBOS(
            config={
                "name": "lossbench",
                "system_database_url": _dbos_url(self._database),
                "application_version": APPLICATION_VERSION,
                "executor_id": self._worker_id,
                "serializer": JsonSerializer(),
                "run_migrations": False,
                "use_listen_notify": False,
                "log_level": "ERROR",
                "max_executor_threads": 4,
                "sys_db_idle_transaction_timeout_sec": IDLE_TRANSACTION_S,
            }
        )
        begin, measure_case, finish = self._steps()

        @DBOS.workflow(name=WORKFLOW)
        def measure_lot(lot_id: str, attempt: int) -> str:
            try:
                for case_index in range(begin(lot_id, attempt)):
                    measure_case(lot_id, attempt, case_index)
                finish(lot_id, attempt)
            except LotLostError as lost:
                log.warning("lot let go", lot=lot_id, attempt=attempt, reason=lost.message)
                return lost.message
            finally:
                # DBOS itself may raise, as when it cannot store that a case is done
                self._drop(lot_id, attempt)
            return "done"

        DBOS.listen_queues(list(queues))
        DBOS.launch()

    def _steps(self) -> tuple[Callable[..., int], MeasureCase, Callable[[str, int], None]]:
        # DBOS steps are plain functions: it would take `self` for a configured instance of its own
        @DBOS.step(name="begin")
        def begin(lot_id: str, attempt: int) -> int:
            return self._begin(lot_id, attempt)

        @DBOS.step(name="measure_case")
        def measure_case(lot_id: str, attempt: int, case_index: int) -> None:
            self._measure_case(lot_id, attempt, case_index)

        @DBOS.step(name="finish")
        def finish(lot_id: str, attempt: int) -> None:
            self._finish(lot_id, attempt)

        return begin, measure_case, finish

    def stop(self) -> None:
        """Stop taking lots; a running workflow is left to the reaper."""
        DBOS.destroy()
