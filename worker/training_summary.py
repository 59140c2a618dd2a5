"""What a training came to: a row for each contender, with its verdict against the first."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.kernels.training.record import RunRecord, TrainingSettings, plain
from lossbench.service.statistics.training_verdict import (
    CurveComparison,
    PerplexityDecision,
    TrainingVerdict,
    compare_curves,
    decide_perplexity,
)

from .training import TrainedArm, TrainingOutcome, TrainingPlan
from .training_files import read_steps, run_folder

Curves = list[list[float]]
COLUMNS = (
    "contender",
    "tokens/s",
    "loss share",
    "peak",
    "workspace",
    "val loss",
    "perplexity",
    "verdict",
)
REFERENCE, CONTROL = "reference", "control"
NOT_SENSITIVE = (
    "the reference reordered is not shown to be the same as itself: rounding alone may move the "
    "perplexity by more than 0.5 % here, so small differences of contenders say nothing"
)


@dataclass(frozen=True)
class ArmSummary:
    """One contender over its seeds.

    Speeds, shares and memory are medians over seeds; `validation_loss` in nats a token is the mean
    over seeds without a diverged one, None where all diverged; `perplexity` is its exponential.
    `decision` and `curve` are None for the reference, and where nothing was trained; `lost` says
    why then.
    """

    name: str
    role: str
    seeds: int
    diverged: int
    tokens_per_s: float | None
    loss_share: float | None
    peak_bytes: int | None
    workspace_bytes: int | None
    validation_loss: float | None
    perplexity: float | None
    decision: PerplexityDecision | None
    curve: CurveComparison | None
    lost: str | None

    @property
    def verdict(self) -> str:
        """The verdict in a word, or why there is none."""
        if self.lost is not None:
            return self.lost
        return self.role if self.decision is None else self.decision.verdict.value

    @property
    def is_worse(self) -> bool:
        """Whether the verdict is `worse`."""
        return self.decision is not None and self.decision.verdict is TrainingVerdict.WORSE

    def as_json(self) -> dict[str, Any]:
        """JSON form: NaN and infinity are None."""
        row = dict(vars(self)) | {"verdict": self.verdict}
        for key in ("decision", "curve"):
            row[key] = None if row[key] is None else row[key]._asdict()
        found: dict[str, Any] = plain(row)
        return found


def summarise(plan: TrainingPlan, outcome: TrainingOutcome) -> list[ArmSummary]:
    """A row for each arm, the reference first."""
    curves = _Curves(plan, outcome.records)
    return [_summary(arm, plan, outcome, curves) for arm in plan.arms]


def _summary(
    arm: TrainedArm, plan: TrainingPlan, outcome: TrainingOutcome, curves: "_Curves"
) -> ArmSummary:
    runs = [run for (name, _), run in sorted(outcome.records.items()) if name == arm.name]
    lost = outcome.lost.get(arm.name)
    losses = [run.validation_loss for run in runs if run.validation_loss is not None]
    mean = statistics.fmean(losses) if losses else None
    is_reference = arm == plan.arms[0]
    compared = bool(runs) and not is_reference
    return ArmSummary(
        name=arm.name,
        role=REFERENCE if is_reference else CONTROL if arm.reordered else "",
        seeds=len(runs),
        diverged=sum(1 for run in runs if run.outcome == "diverged"),
        tokens_per_s=_median(run.tokens_per_s for run in runs),
        loss_share=_median(run.loss_share for run in runs),
        peak_bytes=_bytes(run.peak_bytes for run in runs),
        workspace_bytes=_bytes(run.workspace_bytes for run in runs),
        validation_loss=mean,
        perplexity=None if mean is None else math.exp(min(mean, 700.0)),
        decision=curves.decide(arm) if compared else None,
        curve=curves.compare(arm) if compared else None,
        lost=None if lost is None else f"{lost.outcome}: {lost.reason}",
    )


class _Curves:
    """Losses of the runs on disk, paired by seed."""

    def __init__(self, plan: TrainingPlan, records: Mapping[tuple[str, int], RunRecord]) -> None:
        self._plan, self._records = plan, records
        self._reference = plan.arms[0]
        self._control = next((arm for arm in plan.arms if arm.reordered), None)

    def _seeds(self, *arms: TrainedArm) -> list[int]:
        """Seeds that all of the arms have ended."""
        return [
            seed
            for seed in self._plan.seeds
            if all((arm.name, seed) in self._records for arm in arms)
        ]

    def _validation(self, arm: TrainedArm, seeds: Sequence[int]) -> list[float]:
        losses = (self._records[arm.name, seed].validation_loss for seed in seeds)
        return [math.nan if loss is None else loss for loss in losses]

    def _training(self, arm: TrainedArm, seeds: Sequence[int]) -> Curves:
        curves = []
        for seed in seeds:
            steps = read_steps(run_folder(self._plan.out, arm.name, seed))
            losses = [step.loss for step in steps]
            curves.append(losses + [math.nan] * (self._plan.settings.steps - len(losses)))
        return curves

    def decide(self, arm: TrainedArm) -> PerplexityDecision:
        """Verdict on perplexity against the reference."""
        seeds = self._seeds(arm, self._reference)
        return decide_perplexity(
            self._validation(arm, seeds), self._validation(self._reference, seeds)
        )

    def compare(self, arm: TrainedArm) -> CurveComparison:
        """The curve beside the reference's, with what bands there are."""
        control = None if arm.reordered else self._control
        seeds = self._seeds(arm, self._reference, *([] if control is None else [control]))
        return compare_curves(
            self._training(arm, seeds),
            self._training(self._reference, seeds),
            None if control is None else self._training(control, seeds),
        )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _bytes(values: Iterable[int | None]) -> int | None:
    """The median that is one of the values."""
    known = [value for value in values if value is not None]
    return statistics.median_high(known) if known else None


def cells(row: ArmSummary) -> tuple[str, ...]:
    """A row of the table, under COLUMNS."""
    return (
        row.name,
        _number(row.tokens_per_s, ",.0f"),
        _number(row.loss_share, ".0%"),
        _gibibytes(row.peak_bytes),
        _gibibytes(row.workspace_bytes),
        _number(row.validation_loss, ".4f"),
        _number(row.perplexity, ".3f"),
        row.verdict,
    )


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def _gibibytes(value: int | None) -> str:
    return "–" if value is None else f"{value / 2**30:.2f} GiB"


def remarks(rows: Sequence[ArmSummary]) -> list[str]:
    """What stands below the table: intervals, what would decide, curves, runs that diverged."""
    found = []
    for row in rows:
        if row.diverged:
            found.append(f"{row.name}: {row.diverged} of {row.seeds} runs diverged")
        if row.decision is not None:
            found.append(f"{row.name}: {_decision_words(row.decision)}")
            if row.role == CONTROL and row.seeds > 1 and row.verdict != TrainingVerdict.SAME:
                found.append(NOT_SENSITIVE)
        if row.curve is not None and row.role != CONTROL:
            found.append(f"{row.name}: {_curve_words(row.curve)}")
    return found


def _decision_words(decision: PerplexityDecision) -> str:
    words = f"perplexity {decision.verdict}"
    if decision.ratio is not None:
        words += f", × {decision.ratio:.5f} of the reference's"
    if decision.low is not None and decision.high is not None:
        words += f", 95 % interval {decision.low:.5f} to {decision.high:.5f}"
    if decision.reason:
        return f"{words}; {decision.reason}"
    return f"{words}, {decision.seeds} seeds"


def _curve_words(curve: CurveComparison) -> str:
    words = f"loss curve {curve.finding}"
    if curve.first_beyond_seeds is not None:
        return f"{words}, from step {curve.first_beyond_seeds} on at the latest"
    if curve.first_beyond_rounding is not None:
        return f"{words}, from step {curve.first_beyond_rounding} on at the latest"
    return words


def low_share(rows: Sequence[ArmSummary]) -> str | None:
    """A warning where the loss is a small part of the reference's step; None where it is not."""
    share = rows[0].loss_share
    if share is None or share >= 0.25:
        return None
    return (
        f"the loss is only {share:.0%} of a step here: tokens/s says little about it; "
        "a larger --vocab or a smaller --size gives it more"
    )


def markdown(settings: TrainingSettings, rows: Sequence[ArmSummary], facts: str) -> str:
    """The report as Markdown."""
    lines = [
        "# Training runs",
        "",
        f"{settings.size}, V = {settings.vocab}, {settings.steps} steps of {settings.batch} x "
        f"{settings.sequence} tokens, {settings.dtype}, "
        f"{'tied' if settings.tied else 'untied'} head, text {', '.join(settings.text)}; {facts}.",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
        *("| " + " | ".join(c.replace("|", "\\|") for c in cells(row)) + " |" for row in rows),
        "",
        *(f"- {line}" for line in remarks(rows)),
    ]
    warning = low_share(rows)
    return "\n".join([*lines, *([f"- {warning}"] if warning else [])]) + "\n"


def result_lines(out: Path, outcome: TrainingOutcome) -> str:
    """Every run as a line of JSON, with where its steps are."""
    found = []
    for (arm, seed), run in sorted(outcome.records.items()):
        folder = run_folder(out, arm, seed).relative_to(out)
        found.append(json.dumps({**run.as_json(), "folder": folder.as_posix()}) + "\n")
    return "".join(found)
