"""Comparisons: looks, exact log ratios, when one goes on and when it ends, who gets no verdict."""

import math
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import create_autospec

import pytest

from lossbench.service.contract.case import Case
from lossbench.service.contract.comparison import ComparisonRecord
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Environment
from lossbench.service.contract.words import Outcome, Pass, Verdict
from lossbench.service.statistics.verdict import LOOKS
from lossbench.worker.assemble import Occasion
from lossbench.worker.compare import Measured, conclude, log_ratios, looks, pairs_of
from lossbench.worker.environments import ContenderEnvironment, Environments
from lossbench.worker.install import Installer
from lossbench.worker.measure import VISITS, CaseMeasurer
from lossbench.worker.messages import Command, Reply
from lossbench.worker.order import CaseOrder, CellFindings, CellOrder, Say, Versus, silence
from lossbench.worker.pool import ChildPool

BASE, CANDIDATE = Contender.parse("k@1"), Contender.parse("k@2")
HERE = Environment(
    device_type="cuda",
    device_name="GPU",
    device_uuid_hash="x",
    memory_bytes=2**30,
    facts={},
    hardware_fingerprint="h",
    software_fingerprint="s",
)
OUTPUT = {"relative_l2": 1e-7, "max_abs": 1e-7, "not_finite": 0}
CHECK: dict[str, Any] = {
    "outputs": {"loss": OUTPUT},
    "yardstick": {"loss": 1e-7},
    "faults": [],
    "notes": [],
    "deterministic": True,
    "checksum": "abc",
    "memory": None,
}
DATA: dict[str, dict[str, Any]] = {
    "arm": {
        "version": "1",
        "gradients_in_forward": False,
        "interpreted": False,
        "compile_s": 1.0,
        "first_call_s": 2.0,
    },
    "warm": {"steady": True},
    "vitals": {"flags": [], "clock_mhz": [], "power_w": [], "temperature_c": []},
}


@pytest.mark.parametrize(
    ("least", "most", "expected"),
    [
        (3, 24, LOOKS),
        (4, 24, (8, 12, 16, 20, 24)),
        (3, 3, (3,)),
        (3, 5, (3, 5)),
        (5, 6, (6,)),
        (24, 24, (24,)),
        (9, 14, (12, 14)),
    ],
)
def test_looks_of_a_comparison(least: int, most: int, expected: tuple[int, ...]) -> None:
    assert looks(least, most) == expected


def test_looks_are_never_more_than_those_of_the_verdict() -> None:
    for most in range(3, 25):
        assert len(looks(3, most)) <= len(LOOKS)
        assert looks(3, most)[-1] == most


def test_log_ratio_of_a_process_is_the_mean_over_pairs_of_its_visits() -> None:
    base = CellFindings(visits={0: [[1.0, 1.0, 9.0], [2.0]], 1: [[4.0]], 2: [[1.0]]})
    candidate = CellFindings(visits={0: [[2.0], [2.0]], 1: [[1.0, 4.0, 5.0]], 3: [[1.0]]})
    assert log_ratios(base, candidate) == [math.log(2.0) / 2, 0.0]


def test_log_ratio_leaves_out_visits_without_a_partner() -> None:
    base = CellFindings(visits={0: [[1.0], [], [1.0]], 1: [[]]})
    candidate = CellFindings(visits={0: [[3.0], [7.0], [3.0]], 1: [[1.0]]})
    assert log_ratios(base, candidate) == [pytest.approx(math.log(3.0))]


def test_pairs_are_those_passes_that_both_sides_have() -> None:
    cells = (
        CellOrder(0, BASE, Pass.FORWARD),
        CellOrder(1, CANDIDATE, Pass.FORWARD_BACKWARD),
        CellOrder(2, BASE, Pass.FORWARD_BACKWARD),
    )
    order = CaseOrder(
        Case(tokens=8, hidden=4, vocab=16), cells, BASE, 3, 60.0, versus=Versus(BASE, CANDIDATE, 24)
    )
    ((pass_, base, candidate),) = pairs_of(order)
    assert (pass_, base.number, candidate.number) == (Pass.FORWARD_BACKWARD, 2, 1)


class Script:
    """Time of a call in ms by contender and process, and faults by (contender, command)."""

    def __init__(self, ratio: Any, faults: dict[tuple[str, str], Any] | None = None) -> None:
        self._ratio, self._faults = ratio, faults or {}

    def reply(self, process: int, command: Command) -> Reply:
        """What a child in this process index answers."""
        contender = getattr(command, "arm", "").partition(" ")[0]
        fault = self._faults.get((contender, command.do))
        if isinstance(fault, Reply):
            return fault
        if command.do == "visit":
            time_ms = self._ratio(process) if contender == CANDIDATE.text else 1.0
            calm = {"compiled": 0, "alloc_retries": 0}
            return Reply(ok=True, data={"latency_ms": [time_ms] * 4, "host_ms": [0.1], **calm})
        if command.do == "check":
            return Reply(ok=True, data=fault or CHECK)
        data = fault or DATA.get(command.do, {})
        return Reply(ok=True, data=data)


class ScriptedEnvironments(Environments):
    """One environment for all, or one for every contender; `interpreted` those named."""

    def __init__(self, apart: bool) -> None:
        super().__init__(create_autospec(Installer, instance=True), "cuda")
        self._apart = apart

    def of(self, contender: Contender, say: Say = silence) -> ContenderEnvironment:
        """Nothing is installed."""
        return ContenderEnvironment(contender.text if self._apart else "one", Path("/x"))


class ScriptedPool(ChildPool):
    """Children that answer from the script."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.asked: list[tuple[int, Command]] = []
        self.started: set[tuple[str, int]] = set()
        self.limits: list[float] = []

    def child(self, environment: ContenderEnvironment, process: int) -> Any:
        """A stand-in for the child of this process index."""
        self.started.add((environment.key, process))
        pool = self

        class Child:
            """Replies at once."""

            def wait_ready(self) -> None:
                """It is."""

            def ask(self, command: Command, timeout_s: float) -> Reply:
                """From the script."""
                pool.limits.append(timeout_s)
                pool.asked.append((process, command))
                return pool.script.reply(process, command)

        return Child()

    def log(self, environment: ContenderEnvironment, process: int) -> str:
        """Nothing was printed."""
        return ""

    def discard(self, environment: ContenderEnvironment, process: int) -> None:
        """Nothing is held."""

    def end_of_process(self, process: int) -> None:
        """Nothing ends."""


class Trial:
    """One comparison with made-up children."""

    def __init__(
        self,
        script: Script,
        apart: bool = False,
        least: int = 3,
        most: int = 24,
        passes: tuple[Pass, ...] = (Pass.FORWARD_BACKWARD,),
    ) -> None:
        self.pool, self.lines = ScriptedPool(script), list[str]()
        self.progress: list[dict[int, tuple[int, int]]] = []
        cells = tuple(
            CellOrder(number, contender, pass_)
            for number, (contender, pass_) in enumerate(
                (contender, pass_) for contender in (BASE, CANDIDATE) for pass_ in passes
            )
        )
        order = CaseOrder(
            Case(tokens=8, hidden=4, vocab=16),
            cells,
            Contender(kernel="torch-naive"),
            least,
            60.0,
            versus=Versus(BASE, CANDIDATE, most),
        )
        measurer = CaseMeasurer(
            ScriptedEnvironments(apart), self.pool, self.progress.append, self.lines.append
        )
        self.findings, self.endings = measurer.measure(order)
        moment = datetime.now(UTC)
        occasion = Occasion(HERE, "wrk", moment, moment)
        self.measured: Measured = conclude(order, self.findings, self.endings, occasion)

    @property
    def comparison(self) -> ComparisonRecord:
        """The only one."""
        (found,) = self.measured.comparisons
        return found


def wobble(centre: float, size: float) -> Any:
    """A ratio that goes up and down from process to process."""
    return lambda process: centre * (1 + size * (-1) ** process)


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(
    ("ratio", "verdict", "processes", "looked"),
    [
        (lambda _: 2.0, Verdict.SLOWER, 3, 1),
        (lambda _: 0.5, Verdict.FASTER, 3, 1),
        (lambda _: 1.0, Verdict.NO_DIFFERENCE, 3, 1),
        (wobble(1.05, 0.01), Verdict.SLOWER, 8, 2),
        (wobble(1.0, 0.016), Verdict.NO_DIFFERENCE, 16, 4),
        (wobble(1.0, 0.2), Verdict.INCONCLUSIVE, 24, 6),
    ],
)
def test_comparison_goes_on_until_its_first_verdict(
    ratio: Any, verdict: Verdict, processes: int, looked: int, apart: bool
) -> None:
    trial = Trial(Script(ratio), apart)
    made = trial.comparison
    assert (made.verdict, made.processes, made.looks) == (verdict, processes, looked)
    assert made.log_ratios == pytest.approx([math.log(ratio(p)) for p in range(processes)])
    assert (made.reason is None) == (verdict is not Verdict.INCONCLUSIVE)
    assert made.minimum_detectable_effect is not None
    children = 2 if apart else 1
    assert len(trial.pool.started) == children * processes
    records = [result.record for result in trial.measured.results]
    assert [record.processes for record in records if record] == [processes] * 2
    visits = [command for _, command in trial.pool.asked if command.do == "visit"]
    # both sides, and baseline and floor in every child
    assert len(visits) == VISITS * processes * (2 + 2 * children)


def test_comparison_ends_at_its_most_processes() -> None:
    made = Trial(Script(wobble(1.0, 0.2)), most=5).comparison
    assert (made.verdict, made.processes, made.looks) == (Verdict.INCONCLUSIVE, 5, 2)


def test_comparison_begins_at_its_least_processes() -> None:
    made = Trial(Script(lambda _: 2.0), least=4).comparison
    assert (made.verdict, made.processes, made.looks) == (Verdict.SLOWER, 8, 1)


def test_looks_are_told_and_progress_counts_to_the_next_one() -> None:
    trial = Trial(Script(wobble(1.05, 0.01)))
    told = [line for line in trial.lines if "processes: " in line]
    assert told[0].startswith("k@2 against k@1 (forward_backward), 3 processes: 1.0")
    assert told[0].endswith("inconclusive; going on to 8 processes")
    assert told[1].endswith("slower")
    totals = [entry[0] for entry in trial.progress]
    assert totals[VISITS * 3 - 1 : VISITS * 3 + 1] == [(18, 18), (19, 48)]
    assert totals[-1] == (48, 48)


def test_pass_with_a_verdict_is_not_measured_again_for_the_other() -> None:
    class TwoPasses(Script):
        """The forward alone is noisy."""

        def reply(self, process: int, command: Command) -> Reply:
            """Twice as slow backward, and up and down forward."""
            arm = getattr(command, "arm", "")
            self._ratio = wobble(1.0, 0.2) if arm.endswith(" forward") else lambda _: 2.0
            return super().reply(process, command)

    trial = Trial(TwoPasses(None), most=8, passes=(Pass.FORWARD, Pass.FORWARD_BACKWARD))
    found = {each.pass_: (each.verdict, each.processes) for each in trial.measured.comparisons}
    assert found == {
        Pass.FORWARD: (Verdict.INCONCLUSIVE, 8),
        Pass.FORWARD_BACKWARD: (Verdict.SLOWER, 3),
    }


WRONG = {**CHECK, "faults": ["dw is all zero"]}


@pytest.mark.parametrize("side", [BASE.text, CANDIDATE.text])
@pytest.mark.parametrize(
    ("command", "fault", "reason"),
    [
        ("check", WRONG, "is wrong: dw is all zero"),
        ("arm", Reply(ok=False, outcome=Outcome.FAILED, reason="boom"), "is failed: boom"),
        ("visit", Reply(ok=False, outcome=Outcome.TIMED_OUT, reason="60 s"), "is timed out: 60 s"),
        ("arm", Reply(ok=False, outcome=Outcome.UNSUPPORTED, reason="no"), "is unsupported: no"),
        (
            "arm",
            Reply(ok=True, data={**DATA["arm"], "interpreted": True}),
            "is interpreted, which has no speed",
        ),
    ],
)
def test_side_that_is_not_ok_leaves_no_verdict_on_times(
    side: str, command: str, fault: Any, reason: str
) -> None:
    trial = Trial(Script(lambda _: 0.5, {(side, command): fault}))
    made = trial.comparison
    assert made.verdict is Verdict.INCONCLUSIVE
    assert made.reason == f"no verdict on times: {side} {reason}"
    assert (made.ratio, made.ratio_low, made.minimum_detectable_effect) == (None, None, None)
    # nothing more would be learnt from further processes
    assert max(process for process, _ in trial.pool.asked) == 2


def test_limit_of_a_cell_counts_anew_after_each_look(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(n) for n in range(100_000))
    monkeypatch.setattr("lossbench.worker.measure.time.monotonic", lambda: next(clock))
    trial = Trial(Script(wobble(1.05, 0.01)))
    assert trial.comparison.processes == 8
    # 9 commands of 1 s in each process: 27 s before the first look, then 45 s, never 72
    assert min(trial.pool.limits) == 60.0 - 44.0
