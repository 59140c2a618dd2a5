"""Permalinks: a query as of a moment, and a session that sees only what was there then."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import ORMExecuteState, Session, with_loader_criteria

from ..contract.contender import Contender
from ..contract.errors import NotFoundError
from .events import now
from .kept_runs import INFO
from .models import ComparisonRow, PermalinkRow, RunRow
from .results import ResultFilter, filtered

MOST_COUNTED = 10_000
"""Results counted of one permalink; more are given as this many."""
MOST_NAMED = 100
"""Invalidated results that a permalink names."""
_SIGNS = "0123456789abcdefghjkmnpqrstvwxyz"
_LENGTH = 12

Query = Mapping[str, Sequence[str]]
"""Parameters by name, each with its values."""


def highest_result_id(session: Session) -> str | None:
    """Id of the newest stored result; None where there is none."""
    return session.scalar(sa.select(sa.func.max(RunRow.id)))


def permalink_hash(path: str, query: Query, highest: str | None) -> str:
    """Twelve signs (60 bits) that stand for a view; the same view has the same ones."""
    said = json.dumps([path, {name: list(query[name]) for name in sorted(query)}, highest])
    number = int.from_bytes(hashlib.sha256(said.encode()).digest())
    return "".join(_SIGNS[(number >> (5 * place)) & 31] for place in range(_LENGTH))


def save_permalink(session: Session, path: str, query: Query, results: int) -> PermalinkRow:
    """Store a view as of now; one that is stored already is returned as it is."""
    highest = highest_result_id(session)
    name = permalink_hash(path, query, highest)
    known = session.get(PermalinkRow, name)
    if known is not None:
        return known
    row = PermalinkRow(
        hash=name,
        path=path,
        query={key: list(values) for key, values in sorted(query.items())},
        highest_result_id=highest,
        results=results,
        created_at=now(),
    )
    try:
        with session.begin_nested():
            session.add(row)
    except IntegrityError:
        # somebody else stored the same view at this moment
        return get_permalink(session, name)
    return row


def get_permalink(session: Session, name: str) -> PermalinkRow:
    """A stored view. Raises NotFoundError."""
    row = session.get(PermalinkRow, name)
    if row is None:
        raise NotFoundError(f"there is no view {name[:40]!r}; POST /api/v1/views makes one")
    return row


@dataclass(frozen=True)
class Selected:
    """Which results a view is of: filters, and contenders where it names some."""

    wanted: ResultFilter
    contenders: tuple[Contender, ...] = ()

    def where(self, query: Any, invalid_too: bool) -> sa.Select[Any]:
        """Narrow a query over `RunRow` to them."""
        wanted = self.wanted
        if invalid_too:
            wanted = wanted.model_copy(update={"include_invalid": True})
        narrowed = filtered(query, wanted)
        if not self.contenders:
            return narrowed
        # a comparison leaves imported results out
        narrowed = narrowed.where(RunRow.imported.is_(False))
        return narrowed.where(sa.or_(*(_is(contender) for contender in self.contenders)))


def _is(contender: Contender) -> sa.ColumnElement[bool]:
    same = sa.and_(RunRow.kernel == contender.kernel, RunRow.params == contender.params_text)
    return same if contender.version is None else sa.and_(same, RunRow.version == contender.version)


def count_now(session: Session, selected: Selected) -> int:
    """Results that it selects now, counted up to `MOST_COUNTED`."""
    return _counted(session, selected.where(sa.select(RunRow.id), invalid_too=False))


def _counted(session: Session, query: sa.Select[Any]) -> int:
    inner = query.limit(MOST_COUNTED).subquery()
    return session.scalar(sa.select(sa.func.count()).select_from(inner)) or 0


@dataclass(frozen=True)
class Since:
    """What has become of a view's results: how many are newer, and which are invalidated."""

    newer: int
    came_late: int
    """Results stored later under an earlier id, by a worker whose clock is behind: shown too."""
    invalidated: tuple[tuple[str, str], ...]
    """(id, reason) of results shown, the newest first, at most `MOST_NAMED`."""
    invalidated_total: int


def what_changed(session: Session, row: PermalinkRow, selected: Selected) -> Since:
    """Compare a view with what its query gives now. For a session without `see_as_of`."""
    ids = sa.select(RunRow.id)
    newer = selected.where(ids, invalid_too=False)
    if row.highest_result_id is not None:
        newer = newer.where(RunRow.id > row.highest_result_id)
    shown = selected.where(ids, invalid_too=True).where(_seen(row))
    fallen = RunRow.invalidated_at > row.created_at
    reasons = sa.select(RunRow.id, RunRow.invalid_reason)
    listed = selected.where(reasons, invalid_too=True).where(_seen(row), fallen)
    # read once, unordered: they are few, and found by looking at all that is shown
    named = sorted(map(tuple, session.execute(listed.limit(MOST_COUNTED))), reverse=True)
    return Since(
        newer=_counted(session, newer),
        came_late=max(0, _counted(session, shown) - row.results),
        invalidated=tuple((run_id, reason or "") for run_id, reason in named[:MOST_NAMED]),
        invalidated_total=len(named),
    )


def _seen(row: PermalinkRow, run: Any = RunRow) -> sa.ColumnElement[bool]:
    """Whether a result was stored, and valid, when the view was made."""
    valid = sa.or_(run.invalidated_at.is_(None), run.invalidated_at > row.created_at)
    if row.highest_result_id is None:
        return sa.false()
    return sa.and_(run.id <= row.highest_result_id, valid)


def see_as_of(session: Session, row: PermalinkRow) -> None:
    """From here on this session sees results and comparisons as they were when the view was made.

    Its queries must ask for invalidated results too: those that were valid then are shown.
    """
    moment: datetime = row.created_at
    session.info.pop(INFO, None)
    fallen = sa.select(RunRow.__table__.c.id).where(RunRow.__table__.c.invalidated_at <= moment)
    stood = [
        sa.or_(side.is_(None), side.not_in(fallen))
        for side in (ComparisonRow.base_run_id, ComparisonRow.candidate_run_id)
    ]
    options = (
        with_loader_criteria(RunRow, _seen(row)),
        with_loader_criteria(ComparisonRow, sa.and_(ComparisonRow.measured_at <= moment, *stood)),
    )

    @event.listens_for(session, "do_orm_execute")
    def narrow(state: ORMExecuteState) -> None:
        if state.is_select:
            state.statement = state.statement.options(*options)


def invalidated_among(session: Session, run_ids: Sequence[str]) -> dict[str, str]:
    """Reasons of those of these results that are out of use now, by id."""
    found: dict[str, str] = {}
    for start in range(0, len(run_ids), 500):
        query = sa.select(RunRow.id, RunRow.invalid_reason).where(
            RunRow.id.in_(run_ids[start : start + 500]), RunRow.invalidated_at.is_not(None)
        )
        found |= {run_id: reason or "" for run_id, reason in session.execute(query)}
    return found
