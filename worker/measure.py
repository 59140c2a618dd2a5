"""Measure one case: all its contenders in turns, over P processes, on one device.

Contenders of one environment share a child. Children take turns two by two: only the one that holds
a command works, so two releases of one package are timed within the same second of the same device.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from lossbench.kernels.errors import UnsupportedHere
from lossbench.service.contract.errors import ChildDiedError, ChildTimeoutError, InstallError
from lossbench.service.contract.words import Outcome, Pass

from .compare import is_settled, judge_pair, look_line, looks_of, pairs_of
from .environments import Environments
from .messages import (
    AddArm,
    AddFloor,
    Check,
    Command,
    MakeVisit,
    Prepare,
    ReadVitals,
    Release,
    Reply,
    Warm,
)
from .order import CaseOrder, CellFindings, CellOrder, Ending, Progress, Say, silence
from .pool import ChildPool
from .seats import Seat, arm_of, baseline_arm, floor_arm, floor_pass
from .wall_time import WallTime

VISITS = 6
WARM_UP_S = {"cuda": 1.0, "cpu": 0.3}
HOUSEKEEPING_S = 120.0
MOST_CRASHES = 2
SIDE_BY_SIDE = 2
"""Children that hold tensors of a case at a time."""


class _ProcessLostError(Exception):
    """A cell's process is gone: begin its group again without or with it."""


class CaseMeasurer:
    """Measures cases with the children of one pool; a comparison until there is a verdict."""

    def __init__(
        self,
        environments: Environments,
        pool: ChildPool,
        progress: Progress,
        say: Say = silence,
    ) -> None:
        self._environments, self._pool = environments, pool
        self._progress, self._say = progress, say
        self._device = environments.device_type
        self._wall = WallTime()

    def measure(self, order: CaseOrder) -> tuple[dict[int, CellFindings], dict[int, Ending]]:
        """Findings of every cell, and the endings of those that did not get through."""
        self._order = order
        self.findings = {cell.number: CellFindings() for cell in order.cells}
        self.endings: dict[int, Ending] = {}
        self._decided: set[int] = set()
        # baselines and floors that cannot run beside the contenders of an environment
        self._unfit: set[tuple[str, str]] = set()
        seats = self._seats()
        groups = [seats[i : i + SIDE_BY_SIDE] for i in range(0, len(seats), SIDE_BY_SIDE)]
        reached = 0
        for most in looks_of(order):
            self._order = replace(order, processes=most)
            self._run_processes(groups, range(reached, most))
            reached = most
            if order.versus is not None and not self._goes_on():
                break
        return self.findings, self.endings

    def _goes_on(self) -> bool:
        """Judge a comparison, of which what has a verdict is not measured again: is any left?"""
        pairs = pairs_of(self._order)
        for pair in [pair for pair in pairs if pair.base.number not in self._decided]:
            decision = judge_pair(self._order, pair, self.findings, self.endings)
            self._say(look_line(self._order, pair, decision))
            if is_settled(decision, self._order):
                self._decided |= {pair.base.number, pair.candidate.number}
        for found in self.findings.values():
            # the limit is for what one look asks of a cell
            found.spent_s = 0.0
        return any(pair.base.number not in self._decided for pair in pairs)

    def _run_processes(self, groups: Sequence[Sequence[Seat]], processes: range) -> None:
        """Measure every group in each of these process indices."""
        rounds = [(process, group) for process in processes for group in groups]
        for (process, group), following in zip(rounds, [*rounds[1:], None], strict=True):
            if following is not None and self._device == "cuda":
                # importing torch takes ten seconds and does not touch the device
                self._start_children(following[1], following[0])
            self._run_group(group, process)
            if following is None or following[0] != process:
                self._pool.end_of_process(process)

    def _seats(self) -> list[Seat]:
        """Cells by environment; what is not offered or not installable ends its cells only."""
        by_key: dict[str, Seat] = {}
        for cell in self._order.cells:
            try:
                environment = self._environments.of(cell.contender, self._say)
            except InstallError as error:
                self.endings[cell.number] = Ending(Outcome.FAILED, error.message)
                continue
            except UnsupportedHere as error:
                self.endings[cell.number] = Ending(Outcome.UNSUPPORTED, error.reason)
                self.findings[cell.number].offered = False
                continue
            self.findings[cell.number].provenance = dict(environment.provenance)
            by_key.setdefault(environment.key, Seat(environment, [])).cells.append(cell)
        # releases of one package next to each other, so that they are measured in turns
        return [by_key[key] for key in sorted(by_key)]

    def _open_cells(self, seat: Seat) -> list[CellOrder]:
        ended = self.endings.keys() | self._decided
        return [cell for cell in seat.cells if cell.number not in ended]

    def _run_group(self, group: Sequence[Seat], process: int) -> None:
        """Measure a group in one process index; again from its start when a child was lost."""
        while True:
            # interpreted contenders are only checked, once
            live = [
                seat
                for seat in group
                if self._open_cells(seat) and not (process and seat.environment.interpreted)
            ]
            if not live:
                return
            self._start_children(live, process)
            try:
                for seat in live:
                    self._prepare(seat, process)
                self._take_turns(live, process)
                for seat in live:
                    self._finish(seat, process)
            except _ProcessLostError:
                for seat in live:
                    if not self._open_cells(seat):
                        # nobody asks it again: its child would keep the tensors of the case
                        self._pool.discard(seat.environment, process)
                continue
            return

    def _start_children(self, seats: Sequence[Seat], process: int) -> None:
        """Start the children of a group side by side, without waiting for them."""
        for seat in seats:
            if self._open_cells(seat) and not (process and seat.environment.interpreted):
                self._pool.child(seat.environment, process)

    def _ask(
        self, seat: Seat, process: int, command: Command, cell: CellOrder | None = None
    ) -> Reply:
        """Ask a seat's child; a lost child is charged to the cell that was at work."""
        child = self._pool.child(seat.environment, process)
        found = self.findings[cell.number] if cell else None
        allowed = self._order.timeout_s if found else max(HOUSEKEEPING_S, self._order.timeout_s)
        timeout = allowed - found.spent_s if found else allowed
        began = time.monotonic()
        try:
            with self._wall.part("child_start"):
                child.wait_ready()
            with self._wall.part(self._wall.command(command.do)):
                reply = child.ask(command, max(timeout, 0.1))
        except ChildTimeoutError as error:
            self._lose_shared(seat, process, command, cell)
            reason = f"took longer than {allowed:g} s"
            self._lose(seat, process, cell, Ending(Outcome.TIMED_OUT, reason))
            raise _ProcessLostError from error
        except ChildDiedError as error:
            self._lose_shared(seat, process, command, cell)
            self._crash(seat, process, cell, error.message)
            raise _ProcessLostError from error
        finally:
            if found:
                found.spent_s += time.monotonic() - began
        if reply.fatal:
            self._lose_shared(seat, process, command, cell)
        if reply.fatal and reply.outcome is Outcome.OUT_OF_MEMORY:
            self._lose(seat, process, cell, Ending(reply.outcome, reply.reason or "no reason"))
            raise _ProcessLostError
        if reply.fatal:
            self._crash(seat, process, cell, reply.reason or "the device context was lost")
            raise _ProcessLostError
        return reply

    def _lose_shared(
        self, seat: Seat, process: int, command: Command, cell: CellOrder | None
    ) -> None:
        """Where a baseline or floor was at work its fault is no contender's: go on without it."""
        arm = arm_of(command)
        if cell is None and arm is not None:
            self._leave_out(seat, process, [arm])

    def _leave_out(self, seat: Seat, process: int, arms: Sequence[str]) -> None:
        """Begin the group again without these arms. Raises _ProcessLostError."""
        for arm in arms:
            self._say(f"{arm} does not run beside the contenders here; it is left out")
            self._unfit.add((seat.environment.key, arm))
        self._pool.discard(seat.environment, process)
        raise _ProcessLostError

    def _crash(self, seat: Seat, process: int, cell: CellOrder | None, reason: str) -> None:
        victims = [cell] if cell else self._open_cells(seat)
        for victim in victims:
            self.findings[victim.number].crashes += 1
        ending = Ending(Outcome.FAILED, reason)
        self._lose(seat, process, cell, ending, only_after=MOST_CRASHES)

    def _lose(
        self,
        seat: Seat,
        process: int,
        cell: CellOrder | None,
        ending: Ending,
        only_after: int = 0,
    ) -> None:
        log = self._pool.log(seat.environment, process)
        victims = [cell] if cell else self._open_cells(seat)
        for victim in victims:
            found = self.findings[victim.number]
            found.log = log
            if found.crashes >= only_after:
                self.endings[victim.number] = ending
        self._pool.discard(seat.environment, process)

    def _prepare(self, seat: Seat, process: int) -> None:
        """Inputs, then every arm of the seat: contenders, baseline, floors."""
        seat.clear()
        # one seed for all processes: the bits of the outputs are compared across them
        command = Prepare(case=self._order.case, seed=self._order.seed)
        reply = self._ask(seat, process, command)
        if not reply.ok:
            for cell in self._open_cells(seat):
                self._end(cell, reply)
            return
        for cell in self._open_cells(seat):
            self._add_contender(seat, process, cell)
        if not seat.environment.interpreted and self._open_cells(seat):
            self._add_yardarms(seat, process)

    def _end(self, cell: CellOrder, reply: Reply) -> None:
        reason = reply.reason or "no reason given"
        self.endings[cell.number] = Ending(reply.outcome or Outcome.FAILED, reason)

    def _add_contender(self, seat: Seat, process: int, cell: CellOrder) -> None:
        if process == 0:
            self._say(f"preparing {cell.contender} ({cell.pass_})")
        command = AddArm(arm=cell.arm, contender=cell.contender, pass_=cell.pass_)
        reply = self._ask(seat, process, command, cell)
        if not reply.ok:
            self._end(cell, reply)
            return
        found, data = self.findings[cell.number], reply.data
        found.version = data["version"]
        found.gradients_in_forward = data["gradients_in_forward"]
        found.interpreted = data["interpreted"]
        if process == 0:
            found.compile_s, found.first_call_s = data["compile_s"], data["first_call_s"]
        seat.owner[cell.arm] = cell
        if not seat.environment.interpreted:
            seat.ready.append(cell.arm)

    def _add_yardarms(self, seat: Seat, process: int) -> None:
        """Baseline and floor arms that this seat's cells are compared with."""
        for pass_ in dict.fromkeys(cell.pass_ for cell in self._open_cells(seat)):
            arm = baseline_arm(self._order.baseline, pass_)
            if self._is_wanted(seat, arm):
                command = AddArm(arm=arm, contender=self._order.baseline, pass_=pass_)
                if self._ask(seat, process, command).ok:
                    seat.ready.append(arm)
        for cell in self._open_cells(seat):
            floor = self._floor_of(cell)
            if floor and self._is_wanted(seat, floor_arm(floor)):
                command_floor = AddFloor(arm=floor_arm(floor), pass_=floor)
                if self._ask(seat, process, command_floor).ok:
                    seat.ready.append(floor_arm(floor))

    def _is_wanted(self, seat: Seat, arm: str) -> bool:
        return arm not in seat.ready and (seat.environment.key, arm) not in self._unfit

    def _floor_of(self, cell: CellOrder) -> Pass | None:
        return floor_pass(cell.pass_, self.findings[cell.number].gradients_in_forward)

    def _take_turns(self, seats: list[Seat], process: int) -> None:
        """Warm up, then visits in balanced order: each round is the mirror of the one before."""
        timed = [seat for seat in seats if seat.ready]
        if not timed:
            return
        names = " and ".join(seat.environment.key for seat in timed)
        self._say(f"timing {names}, process {process + 1} of {self._order.processes}")
        for seat in timed:
            least = WARM_UP_S[self._device]
            for arm in list(seat.ready):
                reply = self._ask(seat, process, Warm(arm=arm, least_s=least), seat.owner.get(arm))
                least = 0.0
                self._note_steady(seat, process, arm, reply)
            self._ask(seat, process, ReadVitals())
        for visit in range(VISITS):
            # over processes too: in a fixed order the first arm of each pair has its own bias
            forward = (visit + process) % 2 == 0
            for seat in timed if forward else reversed(timed):
                for arm in list(seat.ready) if forward else list(reversed(seat.ready)):
                    self._visit(seat, process, arm)
            self._report(timed, process * VISITS + visit + 1)

    def _note_steady(self, seat: Seat, process: int, arm: str, reply: Reply) -> None:
        cell = seat.owner.get(arm)
        if not reply.ok:
            self._drop_arm(seat, process, arm, reply)
        elif cell is not None and not reply.data["steady"]:
            self.findings[cell.number].steady = False

    def _drop_arm(self, seat: Seat, process: int, arm: str, reply: Reply) -> None:
        shared = [name for name in seat.ready if name not in seat.owner]
        cell = seat.owner.get(arm)
        if cell is not None and reply.outcome is Outcome.OUT_OF_MEMORY and shared:
            # it ran when it was added: the memory is that of the baseline and the floor beside it
            self._leave_out(seat, process, shared)
        seat.ready.remove(arm)
        if cell is not None:
            del seat.owner[arm]
            self._end(cell, reply)

    def _visit(self, seat: Seat, process: int, arm: str) -> None:
        reply = self._ask(seat, process, MakeVisit(arm=arm), seat.owner.get(arm))
        if not reply.ok:
            self._drop_arm(seat, process, arm, reply)
            return
        seat.note(arm, reply.data)
        self._wall.timed(reply.data["latency_ms"])

    def _report(self, seats: Sequence[Seat], done: int) -> None:
        total = VISITS * self._order.processes
        cells = [cell.number for seat in seats for cell in self._open_cells(seat)]
        self._progress(dict.fromkeys(cells, (done, total)))

    def _finish(self, seat: Seat, process: int) -> None:
        """Store samples, then check errors and memory, then free the case."""
        vitals = self._ask(seat, process, ReadVitals()).data
        for arm, cell in list(seat.owner.items()):
            found = self.findings[cell.number]
            if arm in seat.samples:
                floor = self._floor_of(cell)
                baseline = baseline_arm(self._order.baseline, cell.pass_)
                beside = (baseline, floor_arm(floor) if floor else None)
                seat.store(found, process, arm, beside, vitals)
            if process == 0:
                self._say(f"checking {cell.contender} against float64")
            reply = self._ask(seat, process, Check(arm=arm, only_bits=process > 0), cell)
            if not reply.ok:
                self._drop_checked(seat, arm, cell, reply)
                continue
            if found.interpreted:
                self._progress({cell.number: (1, 1)})
            found.bits[process] = reply.data["checksum"]
            if process == 0:
                found.check = reply.data
        self._ask(seat, process, Release())
        log = self._pool.log(seat.environment, process)
        for cell in seat.cells:
            self.findings[cell.number].log = log
            self.findings[cell.number].wall_s = self._wall.so_far()

    def _drop_checked(self, seat: Seat, arm: str, cell: CellOrder, reply: Reply) -> None:
        del seat.owner[arm]
        self._end(cell, reply)
