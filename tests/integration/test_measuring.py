"""Real measuring processes on tiny CPU cases: what they report, and how they are lost.

Importing torch takes a child seconds, so tests share runs where they can, and where the number of
samples is not the point they make one or two visits in place of six.
"""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import ChildDiedError
from lossbench.service.contract.run import Environment, Measurement, RunRecord
from lossbench.service.contract.words import Flag, Grade, Outcome, Pass
from lossbench.worker import measure
from lossbench.worker.assemble import Occasion, assemble
from lossbench.worker.children import LOG_BYTES, Child, Spawner, child_variables
from lossbench.worker.environments import ContenderEnvironment, Environments
from lossbench.worker.install import Installer
from lossbench.worker.measure import CaseMeasurer
from lossbench.worker.messages import Command, MakeVisit, Prepare, Release, Reply
from lossbench.worker.order import CaseOrder, CellOrder, CellResult, Say, silence
from lossbench.worker.pool import ChildPool

CASE = Case.parse("N64-H32-V128-float32")
HERE = Environment(
    device_type="cpu",
    device_name="CPU",
    device_uuid_hash="x",
    memory_bytes=2**30,
    facts={},
    hardware_fingerprint="h",
    software_fingerprint="s",
)
Interfere = Callable[[Child, Command], None]


class Watch(Protocol):
    """What the fixture `watch` gives."""

    def __call__(self, interfere: Interfere, visits: int = 1) -> None: ...


class ApartEnvironments(Environments):
    """Every contender in a built-in environment of its own."""

    def of(self, contender: Contender, say: Say = silence) -> ContenderEnvironment:
        """Named after the kernel; nothing is interpreted."""
        return ContenderEnvironment(contender.kernel)


class WatchedChild(Child):
    """A real child; `interfere` sees every command just before it is sent."""

    interfere: Interfere

    def ask(self, command: Command, timeout_s: float) -> Reply:
        """As ever."""
        WatchedChild.interfere(self, command)
        return super().ask(command, timeout_s)


class Lab:
    """Children of one lot, and results of one case at a time."""

    def __init__(self, folder: Path, apart: bool = False) -> None:
        (folder / "wheels").mkdir()
        kind = ApartEnvironments if apart else Environments
        self._environments = kind(Installer(folder, folder / "wheels"), "cpu")
        self._spawner = Spawner()
        self.pool = ChildPool(self._spawner, None, 16)

    def measure(self, *contenders: str, timeout_s: float = 60.0) -> dict[str, CellResult]:
        """One process; results by contender."""
        cells = tuple(
            CellOrder(number, Contender.parse(text), Pass.FORWARD_BACKWARD)
            for number, text in enumerate(contenders)
        )
        order = CaseOrder(CASE, cells, Contender(kernel="torch-naive"), 1, timeout_s)
        started = datetime.now(UTC)
        measurer = CaseMeasurer(self._environments, self.pool, lambda _: None)
        findings, endings = measurer.measure(order)
        occasion = Occasion(HERE, "wrk", started, datetime.now(UTC))
        return {
            cell.contender.text: assemble(
                order, cell, findings[cell.number], endings.get(cell.number), occasion
            )
            for cell in cells
        }

    def close(self) -> None:
        """End the children."""
        self.pool.close()
        self._spawner.close()


@pytest.fixture(autouse=True)
def _one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spinning threads of several children slow each other down on two cores."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    made = Lab(tmp_path)
    yield made
    made.close()


@pytest.fixture
def watch(monkeypatch: pytest.MonkeyPatch) -> Watch:
    """Makes the pool's children watched ones, and their measuring short."""

    def use(interfere: Interfere, visits: int = 1) -> None:
        monkeypatch.setattr(WatchedChild, "interfere", staticmethod(interfere), raising=False)
        monkeypatch.setattr("lossbench.worker.pool.Child", WatchedChild)
        monkeypatch.setattr(measure, "VISITS", visits)
        monkeypatch.setattr(measure, "WARM_UP_S", {"cpu": 0.0})

    return use


def signal_during_visit(arm: str, number: int, times: int = 1000) -> Interfere:
    """Sends a signal to the child a moment after a visit of this arm began, at most so often."""
    left = [times]

    def interfere(child: Child, command: Command) -> None:
        if isinstance(command, MakeVisit) and command.arm.startswith(arm) and left[0]:
            left[0] -= 1
            # a visit takes 0.4 s
            threading.Timer(0.1, os.kill, (child.pid, number)).start()

    return interfere


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, CellResult]]:
    """Results of four contenders, six visits each; no wheel of liger lies in the folder."""
    lab = Lab(tmp_path_factory.mktemp("whole"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OMP_NUM_THREADS", "1")
        yield lab.measure("torch-naive", "torch-upcast", "flce@1", "liger@0.8.5")
    lab.close()


def stored(result: CellResult) -> RunRecord:
    assert result.record is not None
    return result.record


def timing_of(result: CellResult) -> Measurement:
    timing = stored(result).measurement
    assert timing is not None
    return timing


def test_case_measured_end_to_end_has_times_of_all_arms(whole: dict[str, CellResult]) -> None:
    assert whole["torch-upcast"].outcome is Outcome.OK
    timing = timing_of(whole["torch-upcast"])
    assert timing.latency.n >= 20
    assert all(len(block.visit_sizes) == measure.VISITS for block in timing.samples)
    assert {block.arm.value for block in timing.samples} == {"contender", "baseline", "floor"}
    assert timing.ratio_to_baseline is not None
    assert 0.2 < timing.ratio_to_baseline.value < 5
    assert timing.floor_ratio is not None


def test_case_measured_end_to_end_has_memory_errors_and_flags(
    whole: dict[str, CellResult],
) -> None:
    record = stored(whole["torch-upcast"])
    assert record.memory is not None
    assert record.memory.workspace_bytes >= 64 * 128 * 4
    assert record.errors is not None
    assert record.errors.grade is Grade.EXACT
    assert Flag.CPU in record.flags


def test_baseline_measured_as_contender_is_timed_once(whole: dict[str, CellResult]) -> None:
    ratio = timing_of(whole["torch-naive"]).ratio_to_baseline
    assert ratio is not None
    assert ratio.value == 1.0


def test_interpreted_contender_is_checked_but_gets_no_speed(whole: dict[str, CellResult]) -> None:
    record = stored(whole["flce@1"])
    assert (record.outcome, record.measurement, record.memory) == (Outcome.OK, None, None)
    assert record.errors is not None
    assert {Flag.INTERPRETED, Flag.CPU} <= set(record.flags)


def test_package_that_is_nowhere_fails_its_cell_only(whole: dict[str, CellResult]) -> None:
    liger = whole["liger@0.8.5"]
    assert (liger.outcome, liger.record) == (Outcome.FAILED, None)
    assert "liger-kernel==0.8.5" in str(liger.reason)
    assert [result.outcome for result in whole.values()].count(Outcome.OK) == 3


def test_child_killed_once_in_a_visit_costs_nothing(lab: Lab, watch: Watch) -> None:
    watch(signal_during_visit("torch-upcast", signal.SIGKILL, times=1))
    results = lab.measure("torch-naive", "torch-upcast")
    assert [result.outcome for result in results.values()] == [Outcome.OK] * 2


def test_child_killed_at_every_attempt_fails_its_cell_only(lab: Lab, watch: Watch) -> None:
    watch(signal_during_visit("torch-upcast", signal.SIGKILL))
    results = lab.measure("torch-naive", "torch-upcast")
    assert results["torch-naive"].outcome is Outcome.OK
    lost = results["torch-upcast"]
    assert (lost.outcome, lost.record) == (Outcome.FAILED, None)
    assert "signal SIGKILL" in str(lost.reason)


LONG_ENOUGH_S = 8.0
"""For two honest visits on a machine with other work too."""


def test_contender_that_hangs_times_out_soon_and_alone(lab: Lab, watch: Watch) -> None:
    began: list[float] = []
    stop = signal_during_visit("torch-upcast", signal.SIGSTOP)

    def interfere(child: Child, command: Command) -> None:
        if isinstance(command, MakeVisit) and command.arm.startswith("torch-upcast"):
            began.append(time.monotonic())
        if began and isinstance(command, Prepare):
            began.append(time.monotonic())
        stop(child, command)

    watch(interfere)
    results = lab.measure("torch-naive", "torch-upcast", timeout_s=LONG_ENOUGH_S)
    assert results["torch-naive"].outcome is Outcome.OK
    assert results["torch-upcast"].outcome is Outcome.TIMED_OUT
    assert results["torch-upcast"].reason == f"took longer than {LONG_ENOUGH_S:g} s"
    # from the visit that hung to the prepare of a fresh child, which imports torch in between
    assert began[1] - began[0] < LONG_ENOUGH_S + 6.0


def test_children_of_three_environments_take_turns_two_by_two(tmp_path: Path, watch: Watch) -> None:
    names: dict[int, str] = {}
    visits: list[tuple[str, str]] = []
    holding: list[set[int]] = [set()]

    def interfere(child: Child, command: Command) -> None:
        if isinstance(command, Prepare | Release):
            change = {child.pid}
            held = holding[-1] | change if isinstance(command, Prepare) else holding[-1] - change
            holding.append(held)
        if isinstance(command, MakeVisit):
            name = names.setdefault(child.pid, f"child {len(names)}")
            visits.append((name, command.arm.split()[0]))

    watch(interfere, visits=2)
    lab = Lab(tmp_path, apart=True)
    results = lab.measure("flce@1", "torch-naive", "torch-upcast")
    lab.close()
    assert {result.outcome for result in results.values()} == {Outcome.OK}
    first = [("child 0", arm) for arm in ("flce@1", "torch-naive", "floor")]
    second = [("child 1", arm) for arm in ("torch-naive", "floor")]
    third = [("child 2", arm) for arm in ("torch-upcast", "torch-naive", "floor")]
    pair = first + second
    assert visits == pair + pair[::-1] + third + third[::-1]
    assert max(len(held) for held in holding) == 2
    assert holding[-1] == set()


WORKER_SCRIPT = """
import sys, threading, time
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass
from lossbench.worker.children import Child, Spawner, child_variables
from lossbench.worker.messages import AddArm, Prepare, Warm

child = Child(Spawner(), child_variables(None, False), None, lambda: None)
case = Case.parse("N64-H32-V128-float32")
arm = AddArm(arm="a", contender=Contender(kernel="torch-naive"), pass_=Pass.FORWARD)
for command in (Prepare(case=case, seed=0), arm):
    assert child.ask(command, 60.0).ok
# busy for ten seconds: the end of its standard input would go unseen
threading.Thread(target=child.ask, args=(Warm(arm="a", least_s=60.0), 60.0)).start()
time.sleep(0.3)
print(child.pid, flush=True)
"""


def is_gone(pid: int) -> bool:
    """No such process, or only its exit code is left for a parent that does not ask."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_child_of_a_worker_that_is_killed_is_gone_within_two_seconds() -> None:
    command = [sys.executable, "-P", "-c", WORKER_SCRIPT]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as worker:
        assert worker.stdout is not None
        pid = int(worker.stdout.readline())
        assert not is_gone(pid)
        worker.kill()
        worker.wait()
        deadline = time.monotonic() + 2.0
        while not is_gone(pid) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert is_gone(pid)


def resident_bytes() -> int:
    """Memory of this process now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


FLOOD = """
import os
line = b"the kernel prints and prints and prints and prints and prints!!\\n"
for _ in range(1600):
    os.write(1, line * 1024)
os.write(1, b"the end of it\\n")
os._exit(3)
"""


def test_flood_of_output_leaves_its_end_in_the_log_and_no_memory_behind(tmp_path: Path) -> None:
    # Python imports this module by itself, before anything of ours runs
    (tmp_path / "sitecustomize.py").write_text(FLOOD)
    spawner = Spawner()
    before = resident_bytes()
    child = Child(spawner, child_variables(tmp_path, False), None, lambda: None)
    with pytest.raises(ChildDiedError, match="exit code 3: the end of it"):
        child.wait_ready()
    log = child.log()
    child.close()
    spawner.close()
    assert LOG_BYTES - 100 <= len(log) <= LOG_BYTES
    assert log.endswith("prints!!\nthe end of it\n")
    assert resident_bytes() - before < 16 * 2**20


def test_child_asked_of_what_it_cannot_do_replies_in_one_line(lab: Lab) -> None:
    child = lab.pool.child(ContenderEnvironment("built-in"), 0)
    replies: list[Any] = [child.ask(MakeVisit(arm="none"), 60.0)]
    assert child.ask(Prepare(case=CASE, seed=0), 60.0).ok
    replies.append(child.ask(MakeVisit(arm="none"), 60.0))
    assert [(reply.ok, reply.outcome) for reply in replies] == [(False, Outcome.FAILED)] * 2
    assert replies[0].reason == "RuntimeError: no case is prepared"
    assert replies[1].reason == "KeyError: 'none'"
    assert child.alive
    assert "Traceback" in child.log()
