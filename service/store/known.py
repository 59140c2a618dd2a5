"""A stored result that answers a cell of a new job."""

from dataclasses import dataclass


@dataclass(frozen=True)
class KnownRun:
    """The result's id, and how its cell ended."""

    run_id: str
    outcome: str
    reason: str | None = None
