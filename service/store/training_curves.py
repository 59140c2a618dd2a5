"""Reading curves: a run's steps, thinned to what a figure can show."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import sqlalchemy as sa
from sqlalchemy.orm import Session

from ..statistics.training_points import (
    BLOCK,
    BUCKET,
    Curve,
    points_of,
    thinned,
    unpack,
)
from .training_models import TrainingPointsRow

WHOLE_STEPS = 20 * BLOCK
"""Up to so many steps every one is read."""


def curve_of(session: Session, run_id: str, metric: str, max_points: int) -> Curve:
    """A metric of a run in at most `max_points` points, the first step and the last among them.

    A long run that is drawn in fewer points than its summaries keep is read from these, and of its
    first and last block. Raises ValueError for fewer than 4 points.
    """
    at = (TrainingPointsRow.run_id == run_id, TrainingPointsRow.metric == metric)
    blocks = sa.select(TrainingPointsRow.block, TrainingPointsRow.count).where(*at)
    counts = [(int(b), int(n)) for b, n in session.execute(blocks.order_by("block"))]
    steps = sum(count for _, count in counts)
    if not counts:
        return Curve(np.empty(0, np.int64), np.empty(0))
    if steps <= WHOLE_STEPS or max_points > 2 * math.ceil(steps / BUCKET) // 4:
        return thinned(_whole(session, at, counts), max_points)
    return thinned(_summarised(session, at, counts), max_points)


def _whole(
    session: Session, at: Sequence[sa.ColumnElement[bool]], counts: Sequence[tuple[int, int]]
) -> Curve:
    rows = session.execute(
        sa.select(TrainingPointsRow.block, TrainingPointsRow.data).where(*at).order_by("block")
    )
    values = [unpack(data) for _, data in rows]
    steps = [np.arange(1, count + 1) + block * BLOCK for block, count in counts]
    return Curve(np.concatenate(steps), np.concatenate(values).astype(np.float64))


def _summarised(
    session: Session, at: Sequence[sa.ColumnElement[bool]], counts: Sequence[tuple[int, int]]
) -> Curve:
    """What the summaries keep, with the first step and the last."""
    rows = session.execute(sa.select(TrainingPointsRow.block, TrainingPointsRow.summary).where(*at))
    curves = [points_of(summary, 1 + block * BLOCK) for block, summary in rows]
    curves += list(_ends(session, at, counts))
    steps = np.concatenate([curve.steps for curve in curves])
    values = np.concatenate([curve.values for curve in curves])
    steps, places = np.unique(steps, return_index=True)
    return Curve(steps, values[places])


def _ends(
    session: Session, at: Sequence[sa.ColumnElement[bool]], counts: Sequence[tuple[int, int]]
) -> Iterable[Curve]:
    first, (last, count) = counts[0][0], counts[-1]
    for block, place in ((first, 0), (last, count - 1)):
        data = session.scalar(
            sa.select(TrainingPointsRow.data).where(*at, TrainingPointsRow.block == block)
        )
        if data is not None:
            value = unpack(data)[place]
            yield Curve(np.array([1 + block * BLOCK + place]), np.array([float(value)]))
