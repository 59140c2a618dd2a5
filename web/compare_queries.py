"""What comparisons read beside their rows: samples and history of one, bits, chunk settings."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.orm import Session

from lossbench.service.api.records import Comparison
from lossbench.service.contract.catalogue import Catalogue
from lossbench.service.contract.lineage import current_name
from lossbench.service.contract.result import Result
from lossbench.service.contract.words import Outcome
from lossbench.service.plots.chunk_errors import ChunkError, chunks_of
from lossbench.service.plots.lineages import Lineage
from lossbench.service.plots.strips import Box, boxes
from lossbench.service.plots.versions import version_order
from lossbench.service.store.aggregates import briefs_of, newest_keys, worst_errors
from lossbench.service.store.models import RunRow
from lossbench.service.store.results import ResultFilter, get_run, get_samples
from lossbench.service.store.series import SeriesKey
from lossbench.service.store.views import result_view

from .history_queries import lineage_of

MOST_CHUNK_CASES = 4
MOST_CHUNK_KEYS = 500
MOST_LOOKED_AT = 1000
"""Newest results that are searched for contenders."""


@dataclass(frozen=True)
class OpenRow:
    """One row of a comparison, opened: its results with samples, and how each came to be."""

    results: Sequence[Result]
    boxes: Sequence[Box]
    lineages: Sequence[Lineage]


def open_row(session: Session, catalogue: Catalogue, run_ids: Sequence[str]) -> OpenRow:
    """The results of a row, one or two. Raises NotFoundError."""
    results = [result_view(get_run(session, run_id)) for run_id in run_ids]
    lineages: dict[SeriesKey, Lineage] = {}
    for result in results:
        name = current_name(result.kernel, catalogue)
        key = SeriesKey(name, result.params, result.case, result.pass_.value, result.device_name)
        if key not in lineages and not result.imported:
            lineages[key] = lineage_of(session, catalogue, key)
    sides = [(result.label, get_samples(session, result.id)) for result in results]
    return OpenRow(results, boxes(sides), list(lineages.values()))


class Bits(NamedTuple):
    """Whether a result's outputs had the same bits again; None where nobody looked."""

    in_process: bool | None
    across: bool | None


def same_bits(session: Session, run_ids: Iterable[str]) -> dict[str, Bits]:
    """Determinism of these results, by id."""
    errors = RunRow.record["errors"]
    columns = (
        RunRow.id,
        errors["deterministic_in_process"].as_boolean(),
        errors["deterministic_across"].as_boolean(),
    )
    ids = list(dict.fromkeys(run_ids))
    found: dict[str, Bits] = {}
    for start in range(0, len(ids), 500):
        query = sa.select(*columns).where(RunRow.id.in_(ids[start : start + 500]))
        found |= {
            run_id: Bits(in_process, across)
            for run_id, in_process, across in session.execute(query)
        }
    return found


@dataclass(frozen=True)
class ErrorsBeside:
    """What the tab of errors shows beside the errors."""

    bits: Mapping[str, Bits] = field(default_factory=dict)
    chunks: Sequence[ChunkError] = ()


NOTHING_BESIDE = ErrorsBeside()
"""Of every other tab."""


def errors_beside(session: Session, found: Comparison) -> ErrorsBeside:
    """Determinism of all results of a comparison, and chunk settings of its kernels."""
    sides = [
        side
        for row in found.items
        for side in (row.base, *(cell.side for cell in row.candidates))
        if side is not None
    ]
    kernels = sorted({side.label.partition("@")[0].partition("[")[0] for side in sides})
    places = [(row.case, row.pass_.value, row.device_name) for row in found.items]
    return ErrorsBeside(
        same_bits(session, [side.result_id for side in sides]),
        chunk_points(session, kernels, places),
    )


def measured_contenders(session: Session) -> list[str]:
    """Contenders among the newest results, by name: what a comparison can be of."""
    keys = newest_keys(session, ResultFilter(outcome=[Outcome.OK.value]), MOST_LOOKED_AT).keys
    return sorted({key.contender for key in keys})


def neighbours(contenders: Sequence[str]) -> list[tuple[str, str]]:
    """The two newest versions of each kernel that was measured in several, without params."""
    versions: dict[str, list[str]] = {}
    for name in contenders:
        kernel, at, version = name.partition("@")
        if at and "[" not in name:
            versions.setdefault(kernel, []).append(version)
    pairs = []
    for kernel, found in versions.items():
        order = version_order((version, place) for place, version in enumerate(found))
        if len(order) > 1:
            pairs.append((f"{kernel}@{order[-2]}", f"{kernel}@{order[-1]}"))
    return pairs


def chunk_points(
    session: Session, kernels: Sequence[str], places: Iterable[tuple[str, str, str]]
) -> list[ChunkError]:
    """Worst errors of these kernels on the first places, where their params say chunks.

    `places`: case, pass, device.
    """
    points = []
    for case, pass_, device in list(dict.fromkeys(places))[:MOST_CHUNK_CASES]:
        # neither device nor outcome: both would lead away from the index of the case
        wanted = ResultFilter(kernel=list(kernels), case=[case], pass_=[pass_])
        keys = newest_keys(session, wanted, MOST_CHUNK_KEYS).keys
        ids = [
            key.id
            for key in keys
            if key.device_name == device and "chunk" in key.contender.partition("[")[2]
        ]
        worst = worst_errors(session, ids)
        for row in briefs_of(session, ids):
            chunks = chunks_of(row.params, row.tokens)
            if chunks is not None and row.id in worst:
                points.append(
                    ChunkError(
                        row.label,
                        row.kernel,
                        row.version,
                        case,
                        chunks,
                        worst[row.id][1],
                        row.grade,
                    )
                )
    return points
