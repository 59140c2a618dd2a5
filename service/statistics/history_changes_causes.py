"""What explains a movement but the code: the baseline, the environment, or that no code changed.

Rules, in this order:

1. The baseline's own time stepped. Where the floor's did not go along (where none was timed: the
   contender's), the baseline alone moved, else everything did: a note. Ratios that moved at that
   time by the same, the other way round, are part of it.
2. Points on both sides of a movement run the same code, within the error of its place: a note.
3. Most histories of an accelerator, of at least two kernels, moved at one time by about the same: a
   note.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from .history_changes_records import HistoryKey, HistoryPoint, Metric, Note, NoteKind
from .history_changes_series import EXACT, NUMBERS, PLACE_ERROR, Movement, having

MOST = 0.8
"""Share of the histories that were measured on both sides of a moment."""
ALIKE = 0.4
"""Share of their median within which movements are about the same."""
ALIKE_LEAST = math.log(1.01)
GONE_ALONG = 0.5
"""What moved by this share of what the baseline did has gone along."""
Points = Mapping[HistoryKey, Sequence[HistoryPoint]]


class Causes:
    """Notes for movements that no code explains."""

    def __init__(self, points: Points, own_times: Iterable[Movement]) -> None:
        """`own_times` are movements of the baseline's own time."""
        self._points = points
        self._measured: dict[Metric, dict[HistoryKey, tuple[datetime, datetime]]] = {}
        self._groups: list[tuple[NoteKind, list[Movement], float]] = []
        for group in _at_one_time(own_times):
            alone = [each for each in group if not _all_went_along(each)]
            along = [each for each in group if _all_went_along(each)]
            for kind, members in ((NoteKind.BASELINE, alone), (NoteKind.ENVIRONMENT, along)):
                if members:
                    self._groups.append((kind, members, _middle(members)))

    def explain(self, movements: Sequence[Movement]) -> list[Movement]:
        """Those that nothing here explains."""
        left = [each for each in map(self._at_new_code, movements) if each is not None]
        left = [each for each in left if not self._is_of_baseline(each)]
        return self._without_common(left)

    def notes(self) -> tuple[Note, ...]:
        """One for each group, in the order of time."""
        notes = [_note(*group) for group in self._groups]
        return tuple(sorted(notes, key=lambda note: (note.until, note.kind, note.metric)))

    def _is_of_baseline(self, movement: Movement) -> bool:
        """A ratio that moved because the baseline did; added to the note, or to a new one."""
        if movement.metric is not Metric.TIME:
            return False
        for kind, members, change in self._groups:
            together = any(movement.overlaps(each) for each in members)
            opposite = _alike(movement.change, -change) or _own_is_opposite(movement)
            if kind is NoteKind.BASELINE and together and opposite:
                members.append(replace(movement, change=-movement.change))
                return True
        if _own_is_opposite(movement) and not _all_went_along(movement):
            turned = replace(movement, change=-movement.change)
            self._groups.append((NoteKind.BASELINE, [turned], turned.change))
            return True
        return False

    def _at_new_code(self, movement: Movement) -> Movement | None:
        """The movement at the nearest change of code; None, with a note, where there is none."""
        points = having(self._points[movement.key], NUMBERS[movement.metric])
        hashes = [point.code_hash for point in points]
        if movement.gradual:
            span = set(hashes[movement.before : movement.after + 1])
            same = len(span) == 1 and None not in span
            return self._of_same_code(movement) if same else movement
        error = 0 if movement.metric in EXACT else PLACE_ERROR
        places = range(
            max(movement.after - error, 1), min(movement.after + error, len(points) - 1) + 1
        )
        new = [i for i in places if hashes[i] is None or hashes[i] != hashes[i - 1]]
        if not new:
            return self._of_same_code(movement)
        nearest = min(new, key=lambda i: abs(i - movement.after))
        return replace(movement, before=nearest - 1, after=nearest)

    def _of_same_code(self, movement: Movement) -> Movement | None:
        """Left for the other rules: these may know why."""
        if self._is_of_baseline(movement):
            return None
        self._groups.append((NoteKind.SAME_CODE, [movement], movement.change))
        return None

    def _without_common(self, movements: Sequence[Movement]) -> list[Movement]:
        """Those that are not part of a movement of most histories."""
        same_code = [group for group in self._groups if group[0] is NoteKind.SAME_CODE]
        pool = [*movements, *(group[1][0] for group in same_code)]
        common: list[Movement] = []
        for group in _at_one_time(pool):
            if self._is_most(group):
                common += group
                self._groups.append((NoteKind.ENVIRONMENT, group, _middle(group)))
        self._groups = [
            group for group in self._groups if group not in same_code or group[1][0] not in common
        ]
        return [each for each in movements if each not in common]

    def _is_most(self, group: Sequence[Movement]) -> bool:
        """Of the histories with points on both sides."""
        first, keys = group[0], {each.key for each in group}
        able = {
            key
            for key, (begin, end) in self._spans(first.metric).items()
            if key.accelerator == first.key.accelerator
            and begin < first.since
            and end > first.until
        }
        kernels = {key.kernel for key in keys}
        return len(kernels) > 1 and len(keys) >= MOST * len(able | keys)

    def _spans(self, metric: Metric) -> Mapping[HistoryKey, tuple[datetime, datetime]]:
        """When each history was first and last measured."""
        if metric not in self._measured:
            times = {
                key: [point.measured_at for point in having(points, NUMBERS[metric])]
                for key, points in self._points.items()
            }
            self._measured[metric] = {key: (min(t), max(t)) for key, t in times.items() if t}
        return self._measured[metric]


def _at_one_time(movements: Iterable[Movement]) -> list[list[Movement]]:
    """Groups of about the same change at about one time, around the surest of each."""
    waiting = sorted(movements, key=lambda each: (each.p_value, each.until, each.key))
    groups = []
    while waiting:
        first = waiting[0]
        group = [
            each
            for each in waiting
            if each.metric is first.metric
            and each.overlaps(first)
            and _alike(each.change, first.change)
        ]
        groups.append(group)
        waiting = [each for each in waiting if each not in group]
    return groups


def _alike(one: float, other: float) -> bool:
    least = ALIKE_LEAST if abs(other) < 1.0 else 0.0
    return one * other > 0.0 and abs(one - other) <= max(ALIKE * abs(other), least)


def _all_went_along(movement: Movement) -> bool:
    """Whether the floor did; where none was timed, whether the contender did."""
    baseline, control = movement.baseline_change, movement.floor_change
    if baseline is None:
        return True
    if control is None:
        control = baseline + (movement.ratio_change or 0.0)
    return control * baseline > 0.0 and abs(control) >= GONE_ALONG * abs(baseline)


def _own_is_opposite(movement: Movement) -> bool:
    """Whether the baseline's own time moved by the same as the ratio, the other way round."""
    own = movement.baseline_change
    return own is not None and _alike(-own, movement.change)


def _middle(group: Sequence[Movement]) -> float:
    return float(np.median([each.change for each in group]))


def _note(kind: NoteKind, group: Sequence[Movement], change: float) -> Note:
    surest = min(group, key=lambda each: each.p_value)
    return Note(
        kind=kind,
        metric=surest.metric,
        accelerator=surest.key.accelerator,
        since=surest.since,
        until=surest.until,
        change=change,
        keys=tuple(sorted({each.key for each in group})),
        new_environment=any(each.new_environment for each in group),
    )
