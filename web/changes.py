"""What changed lately: a kernel's newest version against the one before it, and the verdicts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from lossbench.service.contract.alert import AlertKind, AlertMetric, AlertState
from lossbench.service.contract.comparison import ComparisonView
from lossbench.service.contract.words import Outcome, Verdict
from lossbench.service.plots import text
from lossbench.service.plots.sparkline import Spark, SparkPoint, spark
from lossbench.service.plots.versions import NO_VERSION, version_order
from lossbench.service.store.aggregates import Brief, NewestKey, briefs_of, newest_keys
from lossbench.service.store.alert_models import AlertRow
from lossbench.service.store.alerts import AlertFilter, alerts_page
from lossbench.service.store.comparisons import ComparisonFilter, comparisons_page
from lossbench.service.store.results import ResultFilter

MOST_LOOKED_AT = 1500
"""Newest results that are searched for a kernel's two versions."""
MOST_SHOWN = 8
MOST_SPARKED = 12
"""Versions of one sparkline, the newest."""
MOST_COMPARISONS = 200
DAYS = 7
_OPEN = AlertState.CANDIDATE.value
NEAR = 0.01
"""Workspaces that differ by a smaller share are the same."""


@dataclass(frozen=True)
class Change:
    """One lineage on one case: what its newest version changed against the one before."""

    kernel: str
    params: str
    case: str
    pass_: str
    device_name: str
    before: str
    after: str
    before_id: str
    after_id: str
    time: str
    way: str
    memory: str
    error: str
    moment: datetime
    spark: Spark | None = None
    """Time over the baseline by version."""
    versions: Sequence[str] = ()
    """Versions that the line goes over."""


@dataclass(frozen=True)
class Lately:
    """The sentence of the overview and the changes below it."""

    sentence: str
    changes: Sequence[Change]
    waiting: int
    """Alerts that were not measured again."""


def lately(session: Session) -> Lately:
    """The verdicts of the last days in words, and what changed among the newest results."""
    since = datetime.now(UTC) - timedelta(days=DAYS)
    made = comparisons_page(session, ComparisonFilter(), None, MOST_COMPARISONS)
    changes = _changes(session)
    recent = [each for each in made if each.measured_at >= since]
    alerts = alerts_page(session, AlertFilter(kind=[AlertKind.CHANGE.value], since=since))
    told = " ".join(part for part in (_alerts(alerts), _sentence(recent, changes)) if part)
    return Lately(told, changes, sum(alert.state == _OPEN for alert in alerts))


def _alerts(rows: Sequence[AlertRow]) -> str:
    """`2 confirmed slowdowns, 1 memory, 0 error in the last 7 days.`; empty without alerts."""
    if not rows:
        return ""
    sure = [row for row in rows if row.state == AlertState.CONFIRMED.value]
    counts = {metric: sum(metric.value in row.worse for row in sure) for metric in AlertMetric}
    better = sum(bool(row.better) for row in sure)
    fixed = sum(row.state == AlertState.FIXED.value for row in rows)
    waiting = sum(row.state == _OPEN for row in rows)
    return (
        f"{text.plural(counts[AlertMetric.TIME], 'confirmed slowdown')}, "
        f"{counts[AlertMetric.MEMORY]} memory, {counts[AlertMetric.ERROR]} error, "
        f"{text.plural(better, 'improvement')} in the last {DAYS} days; {fixed} fixed, "
        f"{waiting} not yet measured again."
    )


def _sentence(made: Sequence[ComparisonView], changes: Sequence[Change]) -> str:
    parts = []
    if made:
        found = Counter(each.verdict for each in made)
        words = {
            Verdict.SLOWER: "slower", Verdict.FASTER: "faster",
            Verdict.NO_DIFFERENCE: "without a difference", Verdict.INCONCLUSIVE: "inconclusive",
        }  # fmt: skip
        counted = [f"{found[verdict]} {word}" for verdict, word in words.items() if found[verdict]]
        more = " or more" if len(made) == MOST_COMPARISONS else ""
        parts.append(
            f"{text.plural(len(made), 'comparison')}{more} in the last {DAYS} days: "
            f"{', '.join(counted)}."
        )
    if changes:
        ways = Counter(change.way for change in changes)
        memory = sum(change.memory != "" for change in changes)
        error = sum(change.error != "" for change in changes)
        parts.append(
            f"From version to version: {ways['slower']} slower, {ways['faster']} faster, "
            f"{memory} with other memory, {error} with another error grade."
        )
    return " ".join(parts)


def _changes(session: Session) -> list[Change]:
    """The newest changes between the two newest versions of a lineage, at most `MOST_SHOWN`."""
    lines = _lines(session)
    pairs = [ids[-2:] for ids in lines if len(ids) > 1]
    rows = {
        row.id: row for row in briefs_of(session, [run_id for pair in pairs for run_id in pair])
    }
    found = [
        (change, ids)
        for ids, (before, after) in zip((ids for ids in lines if len(ids) > 1), pairs, strict=True)
        if before in rows and after in rows
        if (change := change_between(rows[before], rows[after])) is not None
    ]
    shown = sorted(found, key=lambda each: each[0].moment, reverse=True)[:MOST_SHOWN]
    more = [run_id for _, ids in shown for run_id in ids[-MOST_SPARKED:] if run_id not in rows]
    rows |= {row.id: row for row in briefs_of(session, more)}
    return [_with_spark(change, [rows[i] for i in ids if i in rows]) for change, ids in shown]


def _lines(session: Session) -> list[list[str]]:
    """Newest results of each version of a lineage on a case, pass and device, versions in order."""
    keys = newest_keys(session, ResultFilter(outcome=[Outcome.OK.value]), MOST_LOOKED_AT).keys
    lines: dict[tuple[str, ...], list[NewestKey]] = {}
    for key in keys:
        head, bracket, params = key.contender.partition("[")
        line = (head.partition("@")[0], bracket + params, key.case, key.pass_, key.device_name)
        lines.setdefault(line, []).append(key)
    ordered = []
    for found in lines.values():
        by_version = {key.version or NO_VERSION: key.id for key in reversed(found)}
        order = version_order((key.version, key.id) for key in found)
        ordered.append([by_version[name] for name in order])
    return ordered


def _with_spark(change: Change, rows: Sequence[Brief]) -> Change:
    """The change with its line over the versions that share the newest one's baseline."""
    same = [row for row in rows if row.baseline == rows[-1].baseline and row.over_baseline]
    points = [SparkPoint(*row.over_baseline) for row in same if row.over_baseline]
    versions = [row.version or NO_VERSION for row in same]
    return replace(change, spark=spark(points), versions=versions)


def change_between(one: Brief, other: Brief) -> Change | None:
    """What the later version of the two changed; None where nothing did, or it cannot be told."""
    order = version_order([(one.version, one.started_at), (other.version, other.started_at)])
    after, before = (one, other) if order[-1] == (one.version or NO_VERSION) else (other, one)
    same_baseline = before.baseline == after.baseline
    old, new = before.over_baseline, after.over_baseline
    way, time = "", ""
    if same_baseline and old is not None and new is not None:
        way = "faster" if new.is_below(old) else "slower" if old.is_below(new) else ""
        time = f"{text.ratio(old.value)} → {text.ratio(new.value)}"
    memory, error = _memory(before, after), ""
    if before.grade != after.grade:
        error = f"{before.grade or 'not graded'} → {after.grade or 'not graded'}"
    if not (way or memory or error):
        return None
    return Change(
        after.kernel,
        after.params,
        after.case,
        after.pass_,
        after.device_name,
        before.version or text.NONE,
        after.version or text.NONE,
        before.id,
        after.id,
        time,
        way,
        memory,
        error,
        after.started_at,
    )


def _memory(before: Brief, after: Brief) -> str:
    old, new = before.workspace_bytes, after.workspace_bytes
    if old is None or new is None or abs(new - old) <= NEAR * max(old, new):
        return ""
    return f"{text.in_bytes(old)} → {text.in_bytes(new)}"
