"""A worker: one device, one lot at a time, until it is told to stop."""

import os
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import sqlalchemy as sa
import structlog

from lossbench.service.contract.errors import LossbenchError, SetupError
from lossbench.service.contract.ids import new_id
from lossbench.service.contract.machine import accelerator_name
from lossbench.service.contract.run import Environment
from lossbench.service.contract.words import LotState
from lossbench.service.settings import Settings
from lossbench.service.store.database import Database
from lossbench.service.store.models import LotRow
from lossbench.service.store.persistence import first_line, passes_by_itself
from lossbench.service.store.proofs import ProofKind, insert_proof
from lossbench.service.store.queue import LotConsumer
from lossbench.service.store.schema_fit import require_current_schema
from lossbench.service.store.training_runs import TrainingRuns
from lossbench.service.store.work import Work
from lossbench.service.store.workers import STOPPED, beat, register_worker, set_worker_state

from .children import Spawner
from .device import probe_worker
from .environments import Environments
from .install import Installer
from .known_contenders import register_known
from .locks import take_device_lock
from .lots import LotWorker
from .pool import ChildPool
from .self_test_words import why_failed
from .training_job import Trainer, TrainingStore

BEATS_A_LOOK = 10
"""Heartbeats from one look at the database's schema to the next."""

log = structlog.get_logger("lossbench.worker")


@dataclass(frozen=True)
class WorkerOptions:
    """How one worker runs: which GPU, which queues, and whether it ends when they are empty."""

    gpu: int | None = None
    queues: tuple[str, ...] = ()
    drain: bool = False
    quick_probe: bool = False


class Worker:
    """Owns the device lock, the heartbeat and the queue consumer of one process."""

    def __init__(
        self,
        settings: Settings,
        options: WorkerOptions = WorkerOptions(),
        environment: Environment | None = None,
    ) -> None:
        """`environment` stands in for the probe of the device."""
        self._settings, self._options = settings, options
        self._environment = environment
        self.id = new_id("wrk")
        self._stopping = threading.Event()
        self._unhealthy: str | None = None

    def start(self) -> None:
        """Describe the device, register, begin to take lots. Raises SetupError."""
        settings, options = self._settings, self._options
        data_dir = settings.prepared_data_dir()
        known = register_known(settings)
        for fault in known.faults:
            log.warning("plugin not used", reason=fault)
        self._database = Database.from_settings(settings)
        require_current_schema(self._database)
        if options.gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = str(options.gpu)
            # NVML counts like this; CUDA alone would put the fastest card first
            os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        environment, tested = self._look_at_device(data_dir)
        self._lock_fd = take_device_lock(data_dir, environment.device_uuid_hash)
        self.queues = options.queues or (default_queue(environment),)
        name = f"{socket.gethostname()}:{environment.device_name}"
        offered = known.rows()
        register_worker(self._database, self.id, name, self.queues, environment, offered)
        self._tell(environment, tested)
        self._spawner = Spawner()
        work = Work(self._database, self.id)
        environments = Environments(
            Installer(data_dir, settings.wheel_dir),
            environment.device_type,
            known,
            f"worker {name} ({self.id})",
        )
        runs = TrainingRuns(self._database, work, self.id)
        kept = TrainingStore(work, runs, environment)
        trainer = Trainer(kept, environments, data_dir, options.gpu)
        self._lots = LotWorker(work, environments, environment, self._make_pool, self.id, trainer)
        threading.Thread(target=self._beat_forever, daemon=True, name="heartbeat").start()
        if self._unhealthy:
            log.error("this device takes no lots", reason=self._unhealthy)
            return
        self._consumer = LotConsumer(
            self._database,
            self.id,
            self._lots.begin,
            self._lots.measure_case,
            self._lots.finish,
            self._lots.drop,
        )
        self._consumer.start(self.queues)
        log.info("worker ready", worker=self.id, device=environment.device_name, queues=self.queues)

    def _look_at_device(self, data_dir: Path) -> tuple[Environment, dict[str, Any] | None]:
        """The device and its self-test; sets why it takes no lots."""
        if self._environment is not None:
            return self._environment, None
        options = self._options
        environment, fault, tested = probe_worker(data_dir, options.gpu, options.quick_probe)
        failed = tested is not None and not tested["passed"]
        if fault is None and tested is not None and failed and environment.device_type == "cuda":
            fault = why_failed(tested)
        self._unhealthy = fault
        return environment, tested

    @property
    def fault(self) -> str | None:
        """Why it takes no lots; None where it does."""
        return self._unhealthy

    def _tell(self, environment: Environment, tested: dict[str, Any] | None) -> None:
        """Store how the self-test went, and why this worker takes no lots if it does not."""
        with self._database.transaction() as session:
            if tested is not None:
                insert_proof(session, ProofKind.SELF_TEST, environment, tested["passed"], tested)
            if self._unhealthy:
                set_worker_state(session, self.id, "unhealthy", self._unhealthy)
        if tested is not None and not tested["passed"]:
            log.warning("self-test", reason=why_failed(tested))

    def _make_pool(self, still_wanted: Callable[[], None]) -> ChildPool:
        most = self._settings.max_children
        return ChildPool(self._spawner, self._lock_fd, most, still_wanted)

    def _beat_forever(self) -> None:
        away = False
        beats = 0
        while not self._stopping.wait(self._settings.heartbeat_s):
            lot_id = self._lots.lot_id
            state = "unhealthy" if self._unhealthy else "busy" if lot_id else "idle"
            try:
                beat(self._database, self.id, state, lot_id)
                if beats % BEATS_A_LOOK == 0:
                    require_current_schema(self._database)
            except SetupError as error:
                if isinstance(error.__cause__, sa.exc.DBAPIError):
                    continue
                log.error("this worker ends", reason=error.message)
                self._stopping.set()
            except (sa.exc.SQLAlchemyError, LossbenchError) as error:
                if not away:
                    log.warning("heartbeat not stored", error=first_line(error))
                away = True
            else:
                if away:
                    log.info("heartbeat stored again")
                away, beats = False, beats + 1

    def wait(self) -> None:
        """Block until `request_stop`, or until the queues are empty when draining."""
        empty_since: float | None = None
        while not self._stopping.wait(0.5):
            if not self._options.drain:
                continue
            if self._lots.lot_id or self._has_waiting_lots():
                empty_since = None
            elif empty_since is None:
                empty_since = time.monotonic()
            elif time.monotonic() - empty_since > 2.0:
                return

    def _has_waiting_lots(self) -> bool:
        waiting = sa.select(LotRow.id).where(
            LotRow.state == LotState.QUEUED.value, LotRow.queue.in_(list(self.queues))
        )
        try:
            with self._database.reading() as session:
                return session.scalar(waiting.limit(1)) is not None
        except sa.exc.SQLAlchemyError as error:
            if passes_by_itself(error):
                return True  # nobody knows yet
            raise

    def request_stop(self) -> None:
        """Make `wait` return; safe from a signal handler."""
        self._stopping.set()

    def stop(self) -> None:
        """Leave: end the children, say goodbye so that a held lot goes to another worker."""
        self._stopping.set()
        self._lots.abort()
        self._spawner.close()
        if self._unhealthy is None:
            self._consumer.stop()
        try:
            with self._database.transaction() as session:
                set_worker_state(session, self.id, "gone", STOPPED)
        except sa.exc.SQLAlchemyError as error:
            log.warning("left without saying so", error=first_line(error))
        self._database.close()
        os.close(self._lock_fd)


def default_queue(environment: Environment) -> str:
    """Name of the queue of this kind of device."""
    if environment.device_type == "cpu":
        return "cpu"
    return accelerator_name(environment.device_name)
