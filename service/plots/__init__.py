"""Figures: pure functions from results to plotly figures as JSON-able data.

plotly itself is never imported here: the figures are plain data that plotly.js draws, and tests
check them with `plotly.graph_objects`. Importing plotly would cost the service start half a second.
"""

from collections.abc import Callable, Sequence
from typing import Any

from ..contract.errors import Fault, UnknownNameError
from ..contract.plan import nearest
from ..contract.result import Result
from .error import error
from .floor import floor
from .history import history
from .latency import latency
from .memory import memory
from .panels import Gap, gaps_of
from .pareto import pareto
from .shape_map import shape_map

FIGURES: dict[str, Callable[[Sequence[Result]], dict[str, Any]]] = {
    "latency": latency,
    "memory": memory,
    "error": error,
    "floor": floor,
    "pareto": pareto,
    "shape-map": shape_map,
    "history": history,
}
"""Every figure by its name in URLs. Each also takes the gaps of a job as second argument."""

_WITH_GAPS: dict[str, Callable[[Sequence[Result], Sequence[Gap]], dict[str, Any]]] = {
    "latency": latency,
    "memory": memory,
    "error": error,
    "floor": floor,
    "pareto": pareto,
    "shape-map": shape_map,
    "history": history,
}


def figure(name: str, results: Sequence[Result], gaps: Sequence[Gap] = ()) -> dict[str, Any]:
    """The figure `name` of these results. Raises UnknownNameError, which lists the names."""
    if name not in _WITH_GAPS:
        message = f"there is no plot {name!r}{nearest(name, FIGURES)}. Known: {', '.join(FIGURES)}"
        raise UnknownNameError([Fault("/name", "unknown_plot", message)])
    return _WITH_GAPS[name](results, gaps)


__all__ = ["FIGURES", "Gap", "figure", "gaps_of"]
