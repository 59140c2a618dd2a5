"""Bodies of aggregates: series with their points, the shape map, memory against time."""

from datetime import datetime
from typing import Annotated

from pydantic import Field

from ..contract.run import Record
from ..contract.words import Flag, Grade, Outcome, Pass

PassField = Annotated[Pass, Field(alias="pass", serialization_alias="pass")]


class SeriesView(Record):
    """One kernel with params on one case, pass and device, over its versions and over time.

    `kernel` is its name of today; `id` stays the same when it is renamed.
    """

    id: str
    kernel: str
    params: str
    case: str
    pass_: PassField
    device_name: str
    points: int
    versions: int
    first_at: datetime
    last_at: datetime
    newest_result_id: str


class SeriesPage(Record):
    """Series, the latest measured first."""

    items: tuple[SeriesView, ...]
    next_cursor: str | None
    complete: bool
    """False where more results match than one list looks through: older ones were left out."""


class PointColumns(Record):
    """Points as columns of equal length, ordered by version and then by age.

    Null where a number was not taken or does not count; times in ms, `workspace_bytes` in bytes.
    """

    result_id: tuple[str, ...]
    kernel: tuple[str, ...]
    version: tuple[str | None, ...]
    started_at: tuple[datetime, ...]
    outcome: tuple[Outcome, ...]
    processes: tuple[int, ...]
    latency_ms: tuple[float | None, ...]
    latency_low_ms: tuple[float | None, ...]
    latency_high_ms: tuple[float | None, ...]
    baseline: tuple[str, ...]
    baseline_ms: tuple[float | None, ...]
    ratio_to_baseline: tuple[float | None, ...]
    ratio_low: tuple[float | None, ...]
    ratio_high: tuple[float | None, ...]
    floor_ratio: tuple[float | None, ...]
    workspace_bytes: tuple[int | None, ...]
    worst_error_ratio: tuple[float | None, ...]
    grade: tuple[Grade | None, ...]
    flags: tuple[tuple[Flag, ...], ...]
    environment_id: tuple[str, ...]
    protocol_version: tuple[int, ...]
    """Times of two versions of the measuring protocol are not of one kind."""
    invalidated: tuple[bool, ...]


class SeriesPoints(Record):
    """The newest points of a series; `next_cursor` leads to older ones."""

    id: str
    kernel: str
    params: str
    case: str
    pass_: PassField
    device_name: str
    points: PointColumns
    next_cursor: str | None


class Slice(Record):
    """What a map is of: everything about its results but their shape and contender."""

    device_name: str
    pass_: PassField
    settings: str
    """Dtype, options and recipe, as in a case's text."""
    results: int


class MapEntry(Record):
    """One contender on one shape: the newest result of its newest version measured there."""

    contender: str
    kernel: str
    result_id: str
    outcome: Outcome
    reason: str | None
    latency_ms: float | None
    ratio_to_baseline: float | None
    ratio_low: float | None
    ratio_high: float | None
    workspace_bytes: int | None
    grade: Grade | None
    flags: tuple[Flag, ...]
    may_win: bool
    """Its time counts: `ok`, not interpreted, not suspect, its error within `max_error_grade`."""


class MapCell(Record):
    """One shape with all its contenders, the fastest first."""

    tokens: int
    hidden: int
    vocab: int
    case: str
    baseline: str | None
    winner: str | None
    told_apart: bool | None
    """Whether the winner's interval lies below that of the next; null with one, or without."""
    entries: tuple[MapEntry, ...]


class ShapeMap(Record):
    """Who is fastest at which shape."""

    shown: Slice | None
    slices: tuple[Slice, ...]
    """Every slice that the filters leave, the largest first, at most 50; the first is shown."""
    contenders: tuple[str, ...]
    """All contenders on the map: one without an entry in a cell is not measured there."""
    cells: tuple[MapCell, ...]
    cells_total: int
    read: int
    complete: bool


class FrontPoint(MapEntry):
    """A contender as a point: time against memory."""

    params: str
    worst_output: str | None
    worst_error_ratio: float | None
    on_front: bool
    """No other one that may win is at most as slow and needs at most as much memory."""


class Front(Record):
    """Memory against time of all contenders on one case, pass and device."""

    case: str
    pass_: PassField
    device_name: str
    points: tuple[FrontPoint, ...]


class Fronts(Record):
    """One front a case."""

    items: tuple[Front, ...]
    items_total: int
    read: int
    complete: bool
