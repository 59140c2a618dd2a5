"""The correctness grid for many contenders: children side by side, since nothing is timed."""

import contextlib
import itertools
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from lossbench.kernels.catalogue import spec_of
from lossbench.kernels.checks.cases import CheckCase
from lossbench.kernels.checks.grid import GRID, OWN_KERNEL
from lossbench.kernels.errors import UnsupportedHere
from lossbench.service.contract.check import CaseCheck, CheckRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import ChildDiedError, ChildTimeoutError, InstallError
from lossbench.service.contract.words import FAILURES, Grade, Outcome
from lossbench.service.settings import Settings

from .checks import blank
from .children import Child, Spawner
from .device import probe_device
from .environments import ContenderEnvironment, Environments
from .install import Installer
from .known_contenders import register_known
from .locks import take_device_lock
from .messages import CheckGridCase, Reply
from .pool import ChildPool

CASE_TIMEOUT_S = 300.0
"""Some peers tune a kernel for a minute or more, and their neighbours do the same."""
SHARD = 24
"""Cases of one contender that a child is given at a time, so that a long grid is shared out."""

Progress = Callable[[str, int, int], None]
"""Called with contender, cases done, cases in all."""


@dataclass
class _Seat:
    """A thread's place in the pool: one child at a time, kept while its environment is asked."""

    number: int
    environment: ContenderEnvironment | None = None


@dataclass
class _Running:
    """What is known of one contender so far."""

    contender: Contender
    started_at: datetime
    cases: list[CaseCheck] = field(default_factory=list)
    details: dict[str, Any] = field(default_factory=dict)
    interpreted: bool = False
    left: int = 0


class GridRunner:
    """Runs the grid in this process's own children; use as a context manager."""

    def __init__(self, settings: Settings, gpu: int | None = None, jobs: int = 1) -> None:
        data_dir = settings.prepared_data_dir()
        self.environment, self.device_fault = probe_device(gpu)
        lock_fd = take_device_lock(data_dir, self.environment.device_uuid_hash)
        self._spawner = Spawner()
        self._pool = ChildPool(self._spawner, lock_fd, most=10**6)
        installer = Installer(data_dir, settings.wheel_dir)
        known = register_known(settings)
        self._environments = Environments(installer, self.environment.device_type, known)
        self._install = threading.Lock()
        self._one_large = threading.Lock()
        self._threads = ThreadPoolExecutor(jobs, thread_name_prefix="grid")
        self._seats: dict[threading.Thread, _Seat] = {}
        self._seat_numbers = itertools.count()

    def __enter__(self) -> "GridRunner":
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._pool.close()
        self._spawner.close()

    def run(
        self,
        contenders: Sequence[Contender],
        cases: Sequence[CheckCase] = GRID,
        progress: Progress = lambda *_: None,
    ) -> Iterator[CheckRecord]:
        """The record of each contender, as it gets done."""
        running: dict[str, _Running] = {}
        futures: dict[Future[list[CaseCheck]], str] = {}
        for contender in contenders:
            state = running[contender.text] = _Running(contender, datetime.now(UTC))
            for environment, shard in self._shards(contender, cases, state):
                future = self._threads.submit(self._ask_shard, contender, environment, shard)
                futures[future] = contender.text
                state.left += 1
            if not state.left:
                yield self._record(state, cases)
        for future in as_completed(futures):
            state = running[futures[future]]
            state.cases += future.result()
            state.left -= 1
            progress(state.contender.text, len(state.cases), len(cases))
            if not state.left:
                yield self._record(state, cases)

    def _shards(
        self, contender: Contender, cases: Sequence[CheckCase], state: _Running
    ) -> list[tuple[ContenderEnvironment, Sequence[CheckCase]]]:
        """Parts of the grid with the environment each runs in; empty if it cannot be installed."""
        if spec_of(contender.kernel).needs_gpu and self.environment.device_type != "cuda":
            reason = f"{contender} needs an NVIDIA GPU"
            state.cases = [blank(case, Outcome.UNSUPPORTED, reason) for case in cases]
            return []
        try:
            with self._install:
                environment = self._environments.of(contender)
        except InstallError as error:
            state.cases = [blank(case, Outcome.FAILED, error.message) for case in cases]
            return []
        except UnsupportedHere as unsupported:
            reason = unsupported.reason
            state.cases = [blank(case, Outcome.UNSUPPORTED, reason) for case in cases]
            return []
        state.interpreted = environment.interpreted
        state.details = dict(environment.provenance)
        groups: dict[bool, list[CheckCase]] = defaultdict(list)
        for case in cases:
            groups[self._is_interpreted(contender, case, environment)].append(case)
        plain = ContenderEnvironment("built-in")
        return [
            (environment if interpreted == environment.interpreted else plain, group[i : i + SHARD])
            for interpreted, group in groups.items()
            for i in range(0, len(group), SHARD)
        ]

    @staticmethod
    def _is_interpreted(
        contender: Contender, case: CheckCase, environment: ContenderEnvironment
    ) -> bool:
        """A contender with a plain torch path takes it where the interpreter would be wrong."""
        if not environment.interpreted:
            return False
        return not spec_of(contender.kernel).fallback or case.problem.dtype == "float32"

    def _ask_shard(
        self, contender: Contender, environment: ContenderEnvironment, shard: Sequence[CheckCase]
    ) -> list[CaseCheck]:
        thread = threading.current_thread()
        if thread not in self._seats:
            # a counter, not the number of seats: two threads may come at once
            self._seats[thread] = _Seat(next(self._seat_numbers))
        seat = self._seats[thread]
        if seat.environment is not None and seat.environment.key != environment.key:
            self._pool.discard(seat.environment, seat.number)
        seat.environment = environment
        found = []
        for case in shard:
            # gigabytes: one at a time on the device
            with self._one_large if case.large else contextlib.nullcontext():
                found.append(self._ask(contender, environment, case, seat.number))
        return found

    def _ask(
        self, contender: Contender, environment: ContenderEnvironment, case: CheckCase, seat: int
    ) -> CaseCheck:
        child: Child = self._pool.child(environment, seat)
        command = CheckGridCase(contender=contender, grid_case=case.id)
        try:
            reply = child.ask(command, CASE_TIMEOUT_S)
        except ChildTimeoutError:
            self._pool.discard(environment, seat)
            reason = f"took longer than {CASE_TIMEOUT_S:g} s"
            return blank(case, Outcome.TIMED_OUT, reason)
        except ChildDiedError as error:
            self._pool.discard(environment, seat)
            return _after_death(case, error.message)
        if reply.fatal:
            self._pool.discard(environment, seat)
            return _after_death(case, reply.reason or "the device context was lost")
        found = _answer(case, reply)
        # there a failure may be the interpreter's own, never stored as a defect
        if environment.interpreted and found.outcome in FAILURES:
            return blank(case, Outcome.UNSUPPORTED, f"in Triton's interpreter: {found.reason}")
        return found

    def _record(self, state: _Running, cases: Sequence[CheckCase]) -> CheckRecord:
        place = {case.id: number for number, case in enumerate(cases)}
        found = sorted(state.cases, key=lambda result: place[result.case])
        spec = spec_of(state.contender.kernel)
        torch_version = str(self.environment.facts.get("torch") or "") or None
        own = next((case for case in found if case.case == OWN_KERNEL), None)
        own_version = state.contender.version if spec.versions else torch_version
        version = None if spec.origin == "checkout" and not spec.versions else own_version
        return CheckRecord(
            contender=state.contender,
            version=version,
            environment=self.environment,
            interpreted=state.interpreted,
            kernels_run=own.notes if own else (),
            details=state.details,
            cases=tuple(found),
            started_at=state.started_at,
            ended_at=datetime.now(UTC),
        )


def _answer(case: CheckCase, reply: Reply) -> CaseCheck:
    if reply.ok:
        return CaseCheck.model_validate(reply.data)
    reason = reply.reason or "no reason given"
    return blank(case, reply.outcome or Outcome.FAILED, reason)


def _after_death(case: CheckCase, reason: str) -> CaseCheck:
    """A process that ends on a label out of range has refused it, in the hardest way there is."""
    if case.call == "label_out_of_range" and "assert" in reason:
        answer = blank(case, Outcome.OK, reason)
        made = {"reason": None, "grade": Grade.EXACT, "notes": ("device-side assert",)}
        return answer.model_copy(update=made)
    return blank(case, Outcome.FAILED, reason)
