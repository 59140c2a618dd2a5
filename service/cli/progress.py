"""Progress bars of long commands: visits made, cells done, time left."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from ..contract.plan import Plan
from .output import errors


class CellProgress:
    """One bar: a cell counts for its share of visits, and for one when it is done."""

    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task
        self._shares: dict[int, float] = {}

    def visits(self, counts: dict[int, tuple[int, int]]) -> None:
        """{cell number: (visits done, visits in all)}."""
        for number, (done, total) in counts.items():
            self._shares[number] = max(self._shares.get(number, 0.0), 0.95 * done / max(total, 1))
        self._draw()

    def say(self, line: str) -> None:
        """What takes long now."""
        self._bar.update(self._task, last=line)

    def done(self, number: int, what: str) -> None:
        """A cell has ended."""
        self._shares[number] = 1.0
        self._bar.update(self._task, last=f"last: {what}")
        self._draw()

    def _draw(self) -> None:
        ended = sum(1 for share in self._shares.values() if share >= 1.0)
        self._bar.update(self._task, completed=sum(self._shares.values()), ended=ended)


@contextmanager
def progress_bar(cells: int, title: str = "measuring") -> Iterator[CellProgress]:
    """A bar on standard error for a job of so many cells."""
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TextColumn("{task.fields[ended]} of {task.total:.0f} cells"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[last]}", markup=False),
        console=errors,
        transient=False,
    )
    with bar:
        task = bar.add_task(title, total=cells, ended=0, last="")
        yield CellProgress(bar, task)


@contextmanager
def cell_progress(plan: Plan) -> Iterator[CellProgress]:
    """A bar for a planned job."""
    with progress_bar(len(plan.cells)) as progress:
        yield progress
