"""What `/history` reads: series of measured results, and apart from them imported ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from lossbench.service.contract.alert import AlertDirection
from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.lineage import current_name, names_of
from lossbench.service.contract.words import Outcome, Pass
from lossbench.service.plots.imported_times import Imported
from lossbench.service.plots.lineages import Change, Lineage, LineagePoint
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.plots.steps import step_sentences
from lossbench.service.store.aggregates import MOST_READ, newest_keys
from lossbench.service.store.alerts import alert_cases_at
from lossbench.service.store.models import EnvironmentRow, RunRow
from lossbench.service.store.results import ResultFilter, filtered
from lossbench.service.store.series import SeriesKey, series_points

MOST_LINES = 12
"""Lineages read for one page."""
MOST_POINTS = 200
"""Results read of one lineage, the newest."""
MOST_IMPORTED = 1000
MOST_PANELS = 8

Place = tuple[str, str, str]
"""Device, case, pass."""


Line = tuple[str, str]
"""Kernel by its name of today, and params."""


@dataclass(frozen=True)
class Places:
    """Where measured results are, the places with most to follow first."""

    lines: Mapping[Place, Mapping[Line, int]]
    """Versions of each lineage, by place."""
    order: Sequence[Place]
    complete: bool

    @property
    def kernels(self) -> list[str]:
        """All kernels, by name."""
        return sorted({kernel for lines in self.lines.values() for kernel, _ in lines})


def places_of(
    session: Session, catalogue: Catalogue, wanted: ResultFilter, most: int = MOST_READ
) -> Places:
    """Places and lineages among the newest results that match, at most so many of them."""
    found = newest_keys(session, wanted, most)
    versions: dict[Place, dict[Line, set[str | None]]] = {}
    for key in found.keys:
        head, _, params = key.contender.partition("[")
        line = (current_name(head.partition("@")[0], catalogue), params.removesuffix("]"))
        place = versions.setdefault((key.device_name, key.case, key.pass_), {})
        place.setdefault(line, set()).add(key.version)
    lines = {
        place: {line: len(seen) for line, seen in members.items()}
        for place, members in versions.items()
    }
    order = sorted(lines, key=lambda place: (*_emptiness(lines[place]), place))
    return Places(lines, order, found.complete)


def _emptiness(lines: Mapping[Line, int]) -> tuple[int, int]:
    """Sorts places with many versions behind a first one before others, then full ones."""
    return -sum(versions - 1 for versions in lines.values()), -len(lines)


def lineages_of(session: Session, catalogue: Catalogue, places: Places) -> list[Lineage]:
    """The lineages of the first place, those with most versions first, at most `MOST_LINES`."""
    if not places.order:
        return []
    device, case, pass_ = place = places.order[0]
    lines = places.lines[place]
    chosen = sorted(lines, key=lambda line: (-lines[line], line))[:MOST_LINES]
    keys = [SeriesKey(kernel, params, case, pass_, device) for kernel, params in chosen]
    return [lineage_of(session, catalogue, key) for key in keys]


def lineage_of(session: Session, catalogue: Catalogue, key: SeriesKey) -> Lineage:
    """A lineage on one case, pass and device, its newest `MOST_POINTS` results."""
    names = names_of(key.kernel, catalogue)
    columns, _ = series_points(session, key, names, ResultFilter(), (None, MOST_POINTS))
    taken = (
        "result_id", "version", "started_at", "outcome", "latency_ms", "ratio_to_baseline",
        "ratio_low", "ratio_high", "workspace_bytes", "worst_error_ratio", "grade", "flags",
        "baseline", "environment_id",
    )  # fmt: skip
    rows = zip(*(columns[name] for name in taken), strict=True)
    return Lineage(key.kernel, key.params, [_point(key, row) for row in rows])


def told_of(lineages: Sequence[Lineage], catalogue: Catalogue) -> list[str]:
    """Where lineages got slower, faster, repaired: one sentence each."""
    return [
        line for each in lineages for line in step_sentences(each, _own_versions(catalogue, each))
    ]


def changes_at(session: Session, place: Place, lineages: Sequence[Lineage]) -> list[Change]:
    """Alerts about these lineages on one case, pass and device, whatever became of them."""
    kernels = sorted({lineage.kernel for lineage in lineages})
    return [
        Change(
            row.alert.kernel or "",
            row.params,
            row.metric,
            row.after_version,
            row.direction == AlertDirection.WORSE.value,
            row.alert.state,
        )
        for row in alert_cases_at(session, kernels, place)
    ]


def _own_versions(catalogue: Catalogue, lineage: Lineage) -> list[str]:
    """Versions of a lineage's kernel in order: those with code of their own, and those measured."""
    row = catalogue.kernels.get(lineage.kernel)
    known = row.versions if row else ()
    twins = row.twins if row else {}
    return [each for each in known if each not in twins or each in lineage.versions]


def _point(key: SeriesKey, row: Sequence[Any]) -> LineagePoint:
    point = LineagePoint(*row)._replace(flags=tuple(row[11]))
    # the baseline's own ratio is 1, and stored as none
    if key.kernel == point.baseline and not key.params and point.latency_ms is not None:
        return point._replace(ratio=1.0, ratio_low=1.0, ratio_high=1.0)
    return point


def imported_of(session: Session, wanted: ResultFilter) -> list[Imported]:
    """Imported times by device, case and pass; at most `MOST_IMPORTED` results."""
    columns: Sequence[Any] = (
        RunRow.id, RunRow.kernel, RunRow.version, RunRow.params, RunRow.case_text, RunRow.pass_,
        EnvironmentRow.device_name, RunRow.latency_ms, RunRow.started_at,
    )  # fmt: skip
    query = (
        filtered(sa.select(*columns), wanted.model_copy(update={"imported": True}))
        .join(EnvironmentRow, EnvironmentRow.id == RunRow.environment_id)
        .where(RunRow.latency_ms.is_not(None))
        .order_by(RunRow.id.desc())
        .limit(MOST_IMPORTED)
    )
    groups: dict[Place, dict[tuple[str, str], list[LineagePoint]]] = {}
    for run_id, kernel, version, params, case, pass_, device, latency_ms, moment in session.execute(
        query
    ):
        point = LineagePoint(run_id, version, moment, Outcome.OK.value, latency_ms)
        group = groups.setdefault((device, case, pass_), {})
        group.setdefault((kernel, params), []).append(point)
    order = sorted(groups, key=lambda place: (-sum(map(len, groups[place].values())), place))
    return [
        Imported(
            case,
            PASS_WORDS[Pass(pass_)],
            device,
            [
                Lineage(*name, points)
                for name, points in sorted(groups[device, case, pass_].items())
            ],
        )
        for device, case, pass_ in order[:MOST_PANELS]
    ]
