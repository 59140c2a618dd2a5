"""Bodies of permalinks."""

from datetime import datetime

from ..contract.run import Record


class InvalidatedResult(Record):
    """A result that a view shows and that was taken out of use after the view was made."""

    result_id: str
    reason: str


class ViewStatus(Record):
    """A view, and what has become of its results since. Counts end at 10,000."""

    hash: str
    address: str
    path: str
    query: dict[str, list[str]]
    highest_result_id: str | None
    results: int
    created_at: datetime
    newer: int
    """Results that match now and were stored since; the view does not show them."""
    came_late: int
    """Results stored since under an earlier id; the view shows them."""
    invalidated_total: int
    invalidated: tuple[InvalidatedResult, ...]
