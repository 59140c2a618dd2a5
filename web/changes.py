"""What changed lately: a kernel's newest version against the one before it, and the verdicts."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sqlalchemy.orm import Session

from lossbench.service.contract.comparison import ComparisonView
from lossbench.service.contract.words import Outcome, Verdict
from lossbench.service.plots import text
from lossbench.service.plots.versions import NO_VERSION, version_order
from lossbench.service.store.aggregates import Brief, briefs_of, newest_keys
from lossbench.service.store.comparisons import ComparisonFilter, comparisons_page
from lossbench.service.store.results import ResultFilter

MOST_LOOKED_AT = 1500
"""Newest results that are searched for a kernel's two versions."""
MOST_SHOWN = 8
MOST_COMPARISONS = 200
DAYS = 7
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


@dataclass(frozen=True)
class Lately:
    """The sentence of the overview and the changes below it."""

    sentence: str
    changes: Sequence[Change]


def lately(session: Session) -> Lately:
    """The verdicts of the last days in words, and what changed among the newest results."""
    since = datetime.now(UTC) - timedelta(days=DAYS)
    made = comparisons_page(session, ComparisonFilter(), None, MOST_COMPARISONS)
    changes = _changes(session)
    return Lately(_sentence([each for each in made if each.measured_at >= since], changes), changes)


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
    keys = newest_keys(session, ResultFilter(outcome=[Outcome.OK.value]), MOST_LOOKED_AT).keys
    lines: dict[tuple[str, ...], list[str]] = {}
    for key in keys:
        head, bracket, params = key.contender.partition("[")
        line = (head.partition("@")[0], bracket + params, key.case, key.pass_, key.device_name)
        lines.setdefault(line, []).append(key.id)
    pairs = [ids[:2] for ids in lines.values() if len(ids) > 1]
    rows = {
        row.id: row for row in briefs_of(session, [run_id for pair in pairs for run_id in pair])
    }
    found = [
        change
        for after, before in pairs
        if after in rows and before in rows
        if (change := change_between(rows[before], rows[after])) is not None
    ]
    return sorted(found, key=lambda change: change.moment, reverse=True)[:MOST_SHOWN]


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
