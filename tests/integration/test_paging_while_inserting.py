"""Lists read page by page while rows are inserted: no row is lost, none comes twice.

Hypothesis draws the rows, the filters, the order, the page size and what is inserted between two
pages; a list in Python says what must come.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Cell
from lossbench.service.contract.words import Outcome, Pass
from lossbench.service.store.database import Database
from lossbench.service.store.results import insert_run

from . import engines
from .conftest import make_environment, make_record

EXAMPLES = 25
DEVICES = ("NVIDIA H100", "NVIDIA H200")
KERNELS = ("flce", "liger")
OUTCOMES = ("ok", "wrong", "failed")
SORTS = (None, "created_at", "latency_ms", "-latency_ms", "tokens", "-tokens", "-ratio_to_baseline")
QUICK = settings(
    max_examples=EXAMPLES,
    deadline=None,
    database=None,
    derandomize=True,
    # to shrink would take minutes: each try is a walk through a database that keeps its rows
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
_hidden = itertools.count(16)

database_url = engines.database_url


@dataclass(frozen=True)
class Row:
    """A result to store."""

    kernel: str
    tokens: int
    outcome: str
    latency_ms: float | None
    device: str


ROWS = st.builds(
    Row,
    kernel=st.sampled_from(KERNELS),
    tokens=st.integers(1, 4),
    outcome=st.sampled_from(OUTCOMES),
    # few values, so that many rows are equal in the order's column
    latency_ms=st.sampled_from([None, 10.0, 20.0]),
    device=st.sampled_from(DEVICES),
)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "kernel": st.lists(st.sampled_from(KERNELS), min_size=1, max_size=2),
        "outcome": st.lists(st.sampled_from(OUTCOMES), min_size=1, max_size=3),
        "gpu": st.sampled_from(DEVICES),
        "tokens": st.lists(st.integers(1, 5), min_size=1, max_size=3),
        "tokens_gte": st.integers(1, 5),
        "tokens_lte": st.integers(0, 4),
    },
)


def keep(row: Row, wanted: dict[str, Any]) -> bool:
    """Whether a row matches: the filters, once more and as plainly as can be."""
    return (
        row.kernel in wanted.get("kernel", KERNELS)
        and row.outcome in wanted.get("outcome", OUTCOMES)
        and row.device == wanted.get("gpu", row.device)
        and row.tokens in wanted.get("tokens", [row.tokens])
        and row.tokens >= wanted.get("tokens_gte", row.tokens)
        and row.tokens <= wanted.get("tokens_lte", row.tokens)
    )


class Shelf:
    """Results of one example, apart from the others by their hidden size."""

    def __init__(self, database: Database) -> None:
        self._database, self.hidden = database, next(_hidden)
        self.stored: dict[str, Row] = {}

    def put(self, rows: list[Row]) -> None:
        """Store rows."""
        with self._database.transaction() as session:
            for row in rows:
                self.stored[insert_run(session, self._record(row))] = row

    def _record(self, row: Row) -> Any:
        case = Case.parse(f"N{row.tokens}-H{self.hidden}-V4096-bfloat16")
        version = "@0.8.5" if row.kernel == "liger" else ""
        contender = Contender.parse(row.kernel + version)
        cell = Cell(contender=contender, case=case, pass_=Pass.FORWARD)
        record = make_record(cell, "worker-1", row.latency_ms or 20.0)
        moment = datetime(2026, 11, 30, tzinfo=UTC)
        changes: dict[str, Any] = {"started_at": moment, "ended_at": moment}
        changes["environment"] = make_environment(row.device, row.device[-4:])
        if row.outcome != "ok":
            changes |= {"outcome": Outcome(row.outcome), "reason": "made up"}
        if row.latency_ms is None:
            changes["measurement"] = None
        return record.model_copy(update=changes)

    def matching(self, wanted: dict[str, Any]) -> set[str]:
        """Ids of what is stored and matches."""
        return {run_id for run_id, row in self.stored.items() if keep(row, wanted)}


def walk(
    get: Callable[..., Any], query: dict[str, Any], between: Callable[[], None]
) -> list[dict[str, Any]]:
    """All items of a list, page by page; `between` is called after each page."""
    seen: list[dict[str, Any]] = []
    cursors: set[str] = set()
    while True:
        answer = get(params=query)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        assert len(page["items"]) <= query["limit"]
        seen += page["items"]
        if page["next_cursor"] is None:
            return seen
        assert page["items"], "an empty page says that more follows"
        assert page["next_cursor"] not in cursors, "the list goes round in circles"
        cursors.add(page["next_cursor"])
        query = {**query, "cursor": page["next_cursor"]}
        between()


def test_results_by_any_filter_and_order_come_once_while_rows_are_inserted(
    any_service: Any,
) -> None:
    def get(**query: Any) -> Any:
        return any_service.http.get("/api/v1/results", **query)

    @QUICK
    @given(
        rows=st.lists(ROWS, min_size=4, max_size=12),
        wanted=st.one_of(st.just({}), FILTERS),
        sort=st.sampled_from(SORTS),
        limit=st.integers(1, 4),
        later=st.lists(st.lists(ROWS, max_size=2), max_size=6),
    )
    def check(
        rows: list[Row],
        wanted: dict[str, Any],
        sort: str | None,
        limit: int,
        later: list[list[Row]],
    ) -> None:
        shelf = Shelf(any_service.context.database)
        shelf.put(rows)
        before, waiting = shelf.matching(wanted), iter(later)
        query = {**wanted, "hidden": shelf.hidden, "limit": limit}
        if sort:
            query["sort"] = sort
        seen = [item["id"] for item in walk(get, query, lambda: shelf.put(next(waiting, [])))]
        assert len(seen) == len(set(seen)), "a row came twice"
        assert before <= set(seen), "a row was lost"
        assert set(seen) <= shelf.matching(wanted), "a row came that does not match"

    check()


@pytest.mark.slow
def test_comparison_by_case_comes_once_while_rows_are_inserted(any_service: Any) -> None:
    def get(**query: Any) -> Any:
        return any_service.http.get("/api/v1/compare", **query)

    @QUICK
    @given(
        rows=st.lists(ROWS, min_size=1, max_size=12),
        limit=st.integers(1, 3),
        later=st.lists(st.lists(ROWS, max_size=2), max_size=6),
    )
    def check(rows: list[Row], limit: int, later: list[list[Row]]) -> None:
        shelf = Shelf(any_service.context.database)
        shelf.put(rows)
        before = {(row.device, f"N{row.tokens}-H{shelf.hidden}-V4096-bfloat16") for row in rows}
        waiting = iter(later)
        query = {"base": "liger@0.8.5", "cand": "flce", "hidden": shelf.hidden, "limit": limit}
        found = walk(get, query, lambda: shelf.put(next(waiting, [])))
        seen = [(item["device_name"], item["case"]) for item in found]
        assert len(seen) == len(set(seen)), "a case came twice"
        assert before <= set(seen), "a case was lost"

    check()


@pytest.mark.parametrize("path", ["/api/v1/jobs", "/api/v1/jobs/{job}/cells"])
def test_jobs_and_cells_come_once_while_jobs_are_submitted(service: Any, path: str) -> None:
    body = {"contenders": ["flce"], "shapes": [{"tokens": 8, "hidden": 8, "vocab": 32}]}

    def submit(cells: int) -> str:
        sweep = {"tokens": list(range(1, cells + 1))}
        posted = service.http.post("/api/v1/jobs", json={**body, "sweep": sweep})
        return str(posted.json()["id"])

    @settings(QUICK, max_examples=8)
    @given(cells=st.integers(1, 7), limit=st.integers(1, 3), later=st.integers(0, 3))
    def check(cells: int, limit: int, later: int) -> None:
        first = submit(cells)
        address = path.format(job=first)
        key = "position" if "cells" in path else "id"
        before = service.http.get(address, params={"limit": 1000}).json()["items"]
        coming = iter(range(later))

        def between() -> None:
            if next(coming, None) is not None:
                submit(1)

        found = walk(lambda **q: service.http.get(address, **q), {"limit": limit}, between)
        seen = [item[key] for item in found]
        assert len(seen) == len(set(seen))
        assert [item[key] for item in before] == [
            place for place in seen if place in {item[key] for item in before}
        ]

    check()
