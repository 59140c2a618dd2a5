"""What a scan hands over to be stored: changes of one kernel between two versions, and notes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..contract.alert import AlertDirection, AlertKind, AlertMetric


@dataclass(frozen=True)
class FoundCase:
    """A metric that changed on one case; fields as of `AlertCase`."""

    kernel: str
    metric: AlertMetric
    direction: AlertDirection
    params: str
    case: str
    pass_: str
    device_name: str
    before_version: str
    after_version: str
    before: str
    after: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    p_value: float | None = None
    adjusted_p_value: float | None = None
    before_result_id: str | None = None
    after_result_id: str | None = None
    environments_differ: bool = False
    inputs: Mapping[str, Any] = field(default_factory=dict)
    """What the decision rests on, enough to make it again."""

    @property
    def is_exact(self) -> bool:
        """Memory and error grades do not vary from run to run in one environment."""
        return self.metric is not AlertMetric.TIME and not self.environments_differ

    @property
    def place(self) -> tuple[str, str, str, str, str]:
        """What it is a case of."""
        return self.metric.value, self.params, self.case, self.pass_, self.device_name


@dataclass(frozen=True)
class FoundNote:
    """Something to be told once that is no change of a kernel. `key` makes it once."""

    kind: AlertKind
    key: str
    title: str
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Found:
    """What a scan found."""

    cases: Sequence[FoundCase] = ()
    notes: Sequence[FoundNote] = ()
    tests: Sequence[float] = ()
    """P-values of every step that was tested, the batch of the adjusted ones."""
    histories: int = 0
    not_enough_data: int = 0


_VERBS = {
    (AlertMetric.TIME, AlertDirection.WORSE): "slower",
    (AlertMetric.TIME, AlertDirection.BETTER): "faster",
    (AlertMetric.MEMORY, AlertDirection.WORSE): "more workspace",
    (AlertMetric.MEMORY, AlertDirection.BETTER): "less workspace",
    (AlertMetric.ERROR, AlertDirection.WORSE): "less exact",
    (AlertMetric.ERROR, AlertDirection.BETTER): "more exact",
}


@dataclass(frozen=True)
class Told:
    """What a title says of one case."""

    metric: AlertMetric
    direction: AlertDirection
    ratio: float | None


def title_of(kernel: str, before: str, after: str, cases: Sequence[Told]) -> str:
    """`liger 0.6.2 -> 0.6.5: slower by 7.9 % to 12 % on 3 cases; more workspace on 2 cases`."""
    parts = []
    for (metric, direction), verb in _VERBS.items():
        some = [case for case in cases if (case.metric, case.direction) == (metric, direction)]
        if some:
            ratios = sorted(case.ratio for case in some if case.ratio is not None)
            size = _span(ratios) if metric is not AlertMetric.ERROR else ""
            count = f"{len(some)} case" if len(some) == 1 else f"{len(some)} cases"
            parts.append(f"{verb}{size} on {count}")
    return f"{kernel} {before} -> {after}: {'; '.join(parts) or 'no change is left'}"


def _span(ratios: Sequence[float]) -> str:
    """` by 7.9 % to 12 %` of the changes' sizes."""
    sizes = sorted(abs(ratio - 1.0) * 100 for ratio in ratios)
    if not sizes:
        return ""
    first, last = (f"{size:.2g}" if size < 99 else f"{size:.0f}" for size in (sizes[0], sizes[-1]))
    return f" by {first} %" if first == last else f" by {first} % to {last} %"
