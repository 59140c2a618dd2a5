"""Bodies of trainings: the runs, what each contender came to, and thinned curves."""

import math
import statistics
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Literal

from ..contract.run import Record
from ..contract.training import TrainingSpec
from ..contract.words import JobState
from ..statistics.training_verdict import (
    CurveFinding,
    TrainingVerdict,
    compare_curves,
    decide_perplexity,
)
from ..store.training_models import TrainingRunRow

Role = Literal["reference", "control", "contender"]
TrainingMetric = Literal["loss", "gradient_norm", "nonfinite", "step_ms", "loss_ms"]


class TrainingRunView(Record):
    """One contender under one seed. `state` is `stopped` where its job ended before it did."""

    id: str
    contender: str
    role: Role
    seed: int
    state: Literal["running", "done", "stopped"]
    outcome: str | None
    reason: str | None
    steps_done: int
    steps_total: int
    resumed: int
    parameters: int | None
    tokens_per_s: float | None
    loss_share: float | None
    peak_bytes: int | None
    workspace_bytes: int | None
    nonfinite_steps: int | None
    validation_loss: float | None
    perplexity: float | None
    final_loss: float | None
    environment_id: str
    worker_id: str
    started_at: datetime
    ended_at: datetime | None


class TrainingCurve(Record):
    """Loss less the reference's, mean over seeds, by window of steps; half widths of the bands."""

    steps: tuple[int, ...]
    difference: tuple[float | None, ...]
    rounding: tuple[float | None, ...]
    seeds: tuple[float | None, ...]
    finding: CurveFinding


class TrainingContender(Record):
    """One contender over its seeds: medians of speed and memory, and the verdict.

    `ratio` is its perplexity over the reference's with the 95 % interval; the reference has none.
    A pair counts where both of its runs are of one environment.
    """

    contender: str
    role: Role
    seeds: int
    diverged: int
    tokens_per_s: float | None
    loss_share: float | None
    peak_bytes: int | None
    workspace_bytes: int | None
    validation_loss: float | None
    verdict: TrainingVerdict | None
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int
    seeds_needed: int | None
    reason: str | None
    curve: TrainingCurve | None


class TrainingView(Record):
    """A training: the job that asked for it, and its contenders, the reference first."""

    id: str
    state: JobState
    training: TrainingSpec
    accelerator: str
    labels: dict[str, str]
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    contenders: tuple[TrainingContender, ...]


class TrainingDetail(TrainingView):
    """A training with every run that has begun."""

    runs: tuple[TrainingRunView, ...]


class TrainingCurvePoints(Record):
    """One metric of one run: steps from 1, and a value each; null where it is not finite."""

    run_id: str
    contender: str
    seed: int
    steps: tuple[int, ...]
    values: tuple[float | None, ...]


class TrainingPoints(Record):
    """The curves of a training's runs."""

    id: str
    metric: TrainingMetric
    curves: tuple[TrainingCurvePoints, ...]


def role_of(run: TrainingRunRow) -> Role:
    """What a run is for."""
    if run.reordered:
        return "control"
    return "reference" if run.position == 0 else "contender"


def contenders_of(
    runs: Sequence[TrainingRunRow], with_curves: bool
) -> tuple[TrainingContender, ...]:
    """A row for each contender that has a run, the reference first."""
    of: dict[int, list[TrainingRunRow]] = {}
    for run in sorted(runs, key=lambda run: (run.position, run.seed)):
        of.setdefault(run.position, []).append(run)
    ended = {place: [run for run in found if _ended(run)] for place, found in of.items()}
    control = next((ended[p] for p, found in of.items() if found[0].reordered), [])
    return tuple(
        _contender(found[0], ended[place], ended.get(0, []), control, with_curves)
        for place, found in of.items()
    )


def _ended(run: TrainingRunRow) -> bool:
    return run.outcome in ("ok", "diverged")


def _pairs(
    runs: Sequence[TrainingRunRow], others: Sequence[TrainingRunRow]
) -> list[tuple[TrainingRunRow, TrainingRunRow]]:
    """Runs of the same seed and environment."""
    known = {(run.seed, run.environment_id): run for run in others}
    return [(r, known[r.seed, r.environment_id]) for r in runs if _key(r) in known]


def _key(run: TrainingRunRow) -> tuple[int, str]:
    return run.seed, run.environment_id


def _nan(value: float | None) -> float:
    return math.nan if value is None else value


def _contender(
    first: TrainingRunRow,
    runs: Sequence[TrainingRunRow],
    reference: Sequence[TrainingRunRow],
    control: Sequence[TrainingRunRow],
    with_curves: bool,
) -> TrainingContender:
    losses = [run.validation_loss for run in runs if run.validation_loss is not None]
    pairs = _pairs(runs, reference) if first.position else []
    decision = None
    if pairs:
        decision = decide_perplexity(
            [_nan(mine.validation_loss) for mine, _ in pairs],
            [_nan(base.validation_loss) for _, base in pairs],
        )
    return TrainingContender(
        contender=first.contender,
        role=role_of(first),
        seeds=len(runs),
        diverged=sum(run.outcome == "diverged" for run in runs),
        tokens_per_s=_median(run.tokens_per_s for run in runs),
        loss_share=_median(run.loss_share for run in runs),
        peak_bytes=_bytes(run.peak_bytes for run in runs),
        workspace_bytes=_bytes(run.workspace_bytes for run in runs),
        validation_loss=statistics.fmean(losses) if losses else None,
        verdict=decision.verdict if decision else None,
        ratio=decision.ratio if decision else None,
        low=decision.low if decision else None,
        high=decision.high if decision else None,
        pairs=decision.seeds if decision else 0,
        seeds_needed=decision.seeds_needed if decision else None,
        reason=decision.reason if decision else None,
        curve=_curve(pairs, [] if first.reordered else control) if with_curves else None,
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _bytes(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return statistics.median_high(known) if known else None


def _curve(
    pairs: Sequence[tuple[TrainingRunRow, TrainingRunRow]], control: Sequence[TrainingRunRow]
) -> TrainingCurve | None:
    """The difference by window, from the means that are stored with each run."""
    whole = [(mine, base) for mine, base in pairs if mine.windows and base.windows]
    again = {_key(run): run for run in control if run.windows}
    has_control = bool(again)
    if has_control:
        whole = [(mine, base) for mine, base in whole if _key(base) in again]
    if not whole:
        return None
    found = compare_curves(
        [_windows(mine) for mine, _ in whole],
        [_windows(base) for _, base in whole],
        [_windows(again[_key(base)]) for _, base in whole] if has_control else None,
        window=1,
    )
    total = whole[0][0].steps_total
    width = math.ceil(total / len(found.steps))
    return TrainingCurve(
        steps=tuple(min(number * width, total) for number in found.steps),
        difference=_finite(found.difference),
        rounding=_finite(found.rounding),
        seeds=_finite(found.seeds),
        finding=found.finding,
    )


def _windows(run: TrainingRunRow) -> list[float]:
    return [_nan(value) for value in run.windows or ()]


def _finite(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(value if math.isfinite(value) else None for value in values)
