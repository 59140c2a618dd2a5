"""The order of a case's measuring, with children that are made up: turns, losses, endings."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from lossbench.kernels.errors import UnsupportedHere
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import ChildDiedError, ChildTimeoutError, InstallError
from lossbench.service.contract.words import Outcome, Pass
from lossbench.worker.environments import ContenderEnvironment, Environments
from lossbench.worker.install import Installer
from lossbench.worker.measure import VISITS, CaseMeasurer
from lossbench.worker.messages import AddArm, AddFloor, Command, MakeVisit, Reply
from lossbench.worker.order import CaseOrder, CellOrder, Progress, Say, silence
from lossbench.worker.pool import ChildPool
from lossbench.worker.seats import floor_pass

Fault = Callable[[str, Command], Reply | None]
"""What happens to (environment, command): a reply, an exception, or None for the usual."""
DATA: dict[str, dict[str, Any]] = {
    "arm": {
        "version": "1",
        "gradients_in_forward": False,
        "interpreted": False,
        "compile_s": 1.0,
        "first_call_s": 2.0,
    },
    "warm": {"steady": True},
    "visit": {
        "latency_ms": [1.0, 1.0],
        "host_ms": [0.1, 0.1],
        "compiled": 0,
        "alloc_retries": 0,
    },
    "check": {"checksum": "abc"},
    "vitals": {"flags": []},
}


class OwnEnvironments(Environments):
    """Gives every version of a kernel an environment of its own, without installing anything."""

    def __init__(self) -> None:
        super().__init__(create_autospec(Installer, instance=True), "cuda")

    def of(self, contender: Contender, say: Say = silence) -> ContenderEnvironment:
        """Named after the contender; `broken` cannot be installed, `elsewhere` is not offered."""
        if contender.kernel == "broken":
            raise InstallError("no such wheel")
        if contender.kernel == "elsewhere":
            raise UnsupportedHere("this worker has no kernel 'elsewhere'")
        key = f"{contender.kernel}@{contender.version}"
        return ContenderEnvironment(key, Path("/x"), provenance={"source_hash": f"hash of {key}"})


class ScriptedChild:
    """Replies at once, as told."""

    def __init__(self, pool: "ScriptedPool", name: str) -> None:
        self._pool, self._name = pool, name

    def wait_ready(self) -> None:
        """It is."""

    def ask(self, command: Command, timeout_s: float) -> Reply:
        """The scripted fault, or the usual reply."""
        pool = self._pool
        pool.asked.append((self._name, command, timeout_s))
        if command.do in ("prepare", "release"):
            pool.holding.discard(self._name)
        if command.do == "prepare":
            pool.holding.add(self._name)
            pool.most_holding = max(pool.most_holding, len(pool.holding))
        reply = pool.fault(self._name, command)
        return reply or Reply(ok=True, data=DATA.get(command.do, {}))


class ScriptedPool(ChildPool):
    """Makes scripted children and remembers everything they were asked."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault
        self.asked: list[tuple[str, Command, float]] = []
        self.discarded: list[str] = []
        self.holding: set[str] = set()
        self.most_holding = 0

    def child(self, environment: ContenderEnvironment, process: int) -> Any:
        """A fresh stand-in for the same process."""
        return ScriptedChild(self, f"{environment.key} {process}")

    def log(self, environment: ContenderEnvironment, process: int) -> str:
        """Names the process."""
        return f"log of {environment.key}"

    def discard(self, environment: ContenderEnvironment, process: int) -> None:
        """Frees what it held."""
        self.discarded.append(environment.key)
        self.holding.discard(f"{environment.key} {process}")

    def end_of_process(self, process: int) -> None:
        """Nothing."""


class Trial:
    """One measured case."""

    def __init__(
        self,
        *contenders: str,
        fault: Fault = lambda name, command: None,
        processes: int = 1,
        timeout_s: float = 600.0,
    ) -> None:
        self.pool = ScriptedPool(fault)
        self.progress: list[dict[int, tuple[int, int]]] = []
        cells = tuple(
            CellOrder(number, Contender.parse(text), Pass.FORWARD_BACKWARD)
            for number, text in enumerate(contenders)
        )
        order = CaseOrder(
            Case(tokens=8, hidden=4, vocab=16),
            cells,
            Contender(kernel="base"),
            processes,
            timeout_s,
        )
        report: Progress = self.progress.append
        measurer = CaseMeasurer(OwnEnvironments(), self.pool, report)
        self.findings, self.endings = measurer.measure(order)

    def visits(self, process: int = 0) -> list[tuple[str, str]]:
        """(environment, arm) in the order measured."""
        return [
            (name.removesuffix(f" {process}"), command.arm.removesuffix(" forward_backward"))
            for name, command, _ in self.pool.asked
            if isinstance(command, MakeVisit) and name.endswith(f" {process}")
        ]


def test_visits_of_two_children_take_turns_in_mirror_order() -> None:
    made = Trial("k@1", "k@2", processes=2)
    round_ = [(env, arm) for env in ("k@1", "k@2") for arm in (env, "base", "floor")]
    for process in (0, 1):
        visits = made.visits(process)
        rounds = [visits[i : i + 6] for i in range(0, len(visits), 6)]
        first, second = (round_, round_[::-1]) if process == 0 else (round_[::-1], round_)
        assert rounds == [first, second] * (VISITS // 2)
    assert made.endings == {}
    assert made.findings[0].visits == {0: [[1.0, 1.0]] * 6, 1: [[1.0, 1.0]] * 6}
    assert made.findings[1].baseline_visits[1] == [[1.0, 1.0]] * 6


def test_arm_that_goes_first_alternates_over_processes_too() -> None:
    """In a fixed order 76 of 10,000 simulated comparisons of the same code were judged, not 1."""
    made = Trial("k@1", "k@2", processes=4)
    firsts = [made.visits(process)[0] for process in range(4)]
    assert firsts == [("k@1", "k@1"), ("k@2", "floor")] * 2


def test_findings_hold_the_clock_of_every_visit_and_where_the_time_went() -> None:
    def fault(name: str, command: Command) -> Reply | None:
        if not isinstance(command, MakeVisit):
            return None
        times = {"latency_ms": [500.0], "host_ms": [0.1], "clock_mhz": 1455.0}
        data = {**DATA["visit"], **times}
        return Reply(ok=True, data=data)

    made = Trial("k@1", fault=fault)
    assert made.findings[0].vitals[0]["visit_clock_mhz"] == [1455.0] * VISITS
    wall = made.findings[0].wall_s
    # contender, baseline and floor: half a second in each visit
    assert wall["timed"] == 3 * VISITS * 0.5
    assert wall["total"] >= wall["visits"] > 0.0


@pytest.mark.parametrize("environments", [1, 2, 3, 5])
def test_children_that_hold_a_case_are_never_more_than_two(environments: int) -> None:
    made = Trial(*(f"k@{i}" for i in range(environments)), processes=2)
    assert made.pool.most_holding == min(environments, 2)
    assert made.pool.holding == set()


def test_progress_counts_visits_up_to_all() -> None:
    made = Trial("k@1", processes=2)
    assert [entry[0] for entry in made.progress] == [(done, 12) for done in range(1, 13)]


def test_package_that_cannot_be_installed_fails_its_cell_only() -> None:
    made = Trial("broken@1", "k@1")
    assert made.endings == {0: (Outcome.FAILED, "no such wheel")}
    assert made.findings[1].visits[0]


def test_contender_that_this_worker_does_not_offer_ends_its_cell_only() -> None:
    made = Trial("elsewhere@1", "k@1")
    assert made.endings == {0: (Outcome.UNSUPPORTED, "this worker has no kernel 'elsewhere'")}
    assert (made.findings[0].offered, made.findings[1].offered) == (False, True)
    assert made.findings[1].provenance == {"source_hash": "hash of k@1"}


@pytest.mark.parametrize("do", ["arm", "warm", "visit", "check"])
@pytest.mark.parametrize("outcome", [Outcome.OUT_OF_MEMORY, Outcome.UNSUPPORTED])
def test_cell_that_is_refused_at_any_command_ends_alone(do: str, outcome: Outcome) -> None:
    def fault(name: str, command: Command) -> Reply | None:
        hit = command.do == do and getattr(command, "arm", "").startswith("k@1 ")
        return Reply(ok=False, outcome=outcome, reason="because") if hit else None

    made = Trial("k@1", "k@2", fault=fault)
    assert made.endings == {0: (outcome, "because")}
    assert made.findings[1].check == {"checksum": "abc"}
    assert made.pool.holding == set()


class Crashes:
    """Kills the child of `k@1` the first few times that it is asked for this command."""

    def __init__(self, do: str, times: int, fatal: bool = False) -> None:
        self._do, self._left, self._fatal = do, times, fatal

    def __call__(self, name: str, command: Command) -> Reply | None:
        """A fault in reply to the command."""
        if command.do != self._do or not name.startswith("k@1 ") or not self._left:
            return None
        self._left -= 1
        if self._fatal:
            return Reply(ok=False, outcome=Outcome.FAILED, reason="CUDA error", fatal=True)
        raise ChildDiedError("the measuring process ended with signal SIGKILL")


@pytest.mark.parametrize("fatal", [False, True])
@pytest.mark.parametrize("do", ["prepare", "arm", "warm", "visit", "vitals", "check", "release"])
def test_child_that_is_lost_once_is_asked_again(do: str, fatal: bool) -> None:
    made = Trial("k@1", "k@2", fault=Crashes(do, 1, fatal))
    assert made.endings == {}
    assert made.pool.discarded == ["k@1"]
    assert [len(made.findings[n].visits[0]) for n in (0, 1)] == [6, 6]
    assert [len(made.findings[n].host_ms[0]) for n in (0, 1)] == [12, 12]
    assert [len(made.findings[n].vitals) for n in (0, 1)] == [1, 1]


@pytest.mark.parametrize("do", ["prepare", "arm", "visit", "check"])
def test_child_that_is_lost_at_every_attempt_fails_its_cell_only(do: str) -> None:
    made = Trial("k@1", "k@2", "k@3", fault=Crashes(do, 100))
    assert made.endings == {0: (Outcome.FAILED, "the measuring process ended with signal SIGKILL")}
    assert made.findings[0].crashes == 2
    assert made.findings[0].log == "log of k@1"
    assert [made.findings[n].check for n in (1, 2)] == [{"checksum": "abc"}] * 2


def test_cell_that_hangs_times_out_alone() -> None:
    def fault(name: str, command: Command) -> Reply | None:
        if isinstance(command, AddArm) and command.arm.startswith("k@1 "):
            raise ChildTimeoutError
        return None

    made = Trial("k@1", "k@2", fault=fault, timeout_s=7.5)
    assert made.endings == {0: (Outcome.TIMED_OUT, "took longer than 7.5 s")}
    assert made.findings[1].check is not None


@pytest.mark.parametrize("shared", ["base", "floor"])
@pytest.mark.parametrize("stage", [AddArm | AddFloor, MakeVisit])
@pytest.mark.parametrize("fate", ["hangs", "dies", "eats the memory", "breaks the device"])
def test_fault_of_a_baseline_or_floor_costs_only_what_is_compared_with_it(
    shared: str, stage: Any, fate: str
) -> None:
    def fault(name: str, command: Command) -> Reply | None:
        if not (isinstance(command, stage) and command.arm.startswith(shared)):
            return None
        if fate == "hangs":
            raise ChildTimeoutError
        if fate == "dies":
            raise ChildDiedError("gone")
        outcome = Outcome.OUT_OF_MEMORY if fate == "eats the memory" else Outcome.FAILED
        return Reply(ok=False, outcome=outcome, reason="too much", fatal=True)

    made = Trial("k@1", processes=3, fault=fault)
    found = made.findings[0]
    assert made.endings == {}
    assert found.crashes == 0
    assert sorted(found.visits) == [0, 1, 2]
    kept, lost = found.floor_visits, found.baseline_visits
    if shared == "floor":
        kept, lost = lost, kept
    assert (sorted(kept), sorted(lost)) == ([0, 1, 2], [])
    # it is tried once, not in every process
    tried = [c for _, c, _ in made.pool.asked if isinstance(c, stage) and c.arm.startswith(shared)]
    assert len(tried) == 1


def test_contender_that_fits_alone_is_measured_without_what_does_not_fit_beside_it() -> None:
    holds_floor: set[str] = set()

    def fault(name: str, command: Command) -> Reply | None:
        if command.do == "prepare":
            holds_floor.discard(name)
        if isinstance(command, AddFloor):
            holds_floor.add(name)
        own = isinstance(command, MakeVisit) and command.arm.startswith("k@1")
        if own and name in holds_floor:
            return Reply(ok=False, outcome=Outcome.OUT_OF_MEMORY, reason="too big")
        return None

    made = Trial("k@1", processes=2, fault=fault)
    assert made.endings == {}
    assert sorted(made.findings[0].visits) == [0, 1]
    assert made.findings[0].floor_visits == {}


def test_contender_that_does_not_fit_alone_either_is_out_of_memory() -> None:
    def fault(name: str, command: Command) -> Reply | None:
        own = isinstance(command, MakeVisit) and command.arm.startswith("k@1")
        return Reply(ok=False, outcome=Outcome.OUT_OF_MEMORY, reason="too big") if own else None

    made = Trial("k@1", fault=fault)
    assert made.endings == {0: (Outcome.OUT_OF_MEMORY, "too big")}


def test_what_happens_within_the_visits_of_an_arm_is_that_arms() -> None:
    """k@1 compiles while it is timed, the baseline of k@2's environment makes the device retry."""

    def fault(name: str, command: Command) -> Reply | None:
        if not isinstance(command, MakeVisit):
            return None
        compiled = command.arm.startswith("k@1")
        retried = name.startswith("k@2") and command.arm.startswith("base")
        happened = {"compiled": int(compiled), "alloc_retries": int(retried)}
        return Reply(ok=True, data={**DATA["visit"], **happened})

    made = Trial("k@1", "k@2", fault=fault)
    first, second = (made.findings[number].vitals[0] for number in (0, 1))
    assert (first["compiled"], first["compiled_beside"]) == (VISITS, 0)
    assert (second["compiled"], second["compiled_beside"]) == (0, 0)
    assert (first["flags"], second["flags"]) == ([], ["alloc_retry"])


def test_baseline_that_does_not_fit_costs_only_the_ratio() -> None:
    def fault(name: str, command: Command) -> Reply | None:
        hit = isinstance(command, AddArm) and command.arm.startswith("base")
        return Reply(ok=False, outcome=Outcome.OUT_OF_MEMORY, reason="too big") if hit else None

    made = Trial("k@1", fault=fault)
    assert made.endings == {}
    assert made.findings[0].baseline_visits == {}
    assert made.findings[0].floor_visits[0]


def test_child_whose_cells_have_ended_keeps_no_case_while_others_are_measured() -> None:
    """k@1 runs out of memory in a visit, then k@2's child dies: k@1 must not stay resident."""
    crash = Crashes("visit", 1)

    def fault(name: str, command: Command) -> Reply | None:
        if not isinstance(command, MakeVisit):
            return None
        if name.startswith("k@1"):
            return Reply(ok=False, outcome=Outcome.OUT_OF_MEMORY, reason="too big")
        return crash(name.replace("k@2", "k@1"), command)

    made = Trial("k@1", "k@2", "k@3", "k@4", fault=fault)
    assert made.endings == {0: (Outcome.OUT_OF_MEMORY, "too big")}
    assert made.pool.most_holding == 2
    assert made.pool.holding == set()


def test_time_that_a_cell_has_spent_is_taken_from_its_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = iter(float(n) for n in range(10_000))
    monkeypatch.setattr("lossbench.worker.measure.time.monotonic", lambda: next(clock))
    made = Trial("k@1", timeout_s=100.0)
    limits = [
        limit
        for _, command, limit in made.pool.asked
        if getattr(command, "arm", "").startswith("k@1 ")
    ]
    assert limits == [100.0 - n for n in range(len(limits))]
    assert len(limits) == 2 + VISITS + 1


@pytest.mark.parametrize(
    ("pass_", "in_forward", "floor"),
    [
        (Pass.FORWARD, False, Pass.FORWARD),
        (Pass.BACKWARD, False, Pass.BACKWARD),
        (Pass.FORWARD_BACKWARD, False, Pass.FORWARD_BACKWARD),
        (Pass.FORWARD, True, Pass.FORWARD_BACKWARD),
        (Pass.BACKWARD, True, None),
        (Pass.FORWARD_BACKWARD, True, Pass.FORWARD_BACKWARD),
    ],
)
def test_floor_of_a_pass_has_the_products_it_cannot_do_without(
    pass_: Pass, in_forward: bool, floor: Pass | None
) -> None:
    assert floor_pass(pass_, in_forward) is floor
