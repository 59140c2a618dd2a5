"""Views that a permalink can be of: their queries checked, contenders written with versions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import ConfigDict, Field, ValidationError
from sqlalchemy.orm import Session

from ..contract.catalogue import Catalogue
from ..contract.contender import Contender
from ..contract.errors import Fault, InvalidRequestError, UnknownNameError
from ..contract.plan import nearest, refuse, resolve_contender
from ..store.permalinks import Selected, count_now
from ..store.results import ResultFilter
from .compare_routes import MOST_CANDIDATES
from .faults import faults_of
from .maps import with_all_names
from .result_routes import Filters, Text
from .series_routes import MapQuery

COMPARE, RESULTS = "/compare", "/results"
SHAPES, PARETO, HISTORY = "/shapes", "/pareto", "/history"
PATHS = (COMPARE, RESULTS, SHAPES, PARETO, HISTORY)
"""Pages that a permalink can be of."""


class ResultsView(Filters):
    """Filters of a list of results, and of the history over versions."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ShapesView(MapQuery):
    """Filters of the map, the settings shown, and the fields of the question what to use."""

    settings: Text | None = None
    model: Text | None = None
    need_tokens: Text | None = None
    max_workspace: Annotated[str | None, Field(max_length=40)] = None


class CompareView(Filters):
    """A comparison: base, candidates, and the filters of results."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    base: Text
    cand: Annotated[list[Text], Field(min_length=1, max_length=MOST_CANDIDATES)]


_MODELS: Mapping[str, type[Filters]] = {
    COMPARE: CompareView,
    RESULTS: ResultsView,
    SHAPES: ShapesView,
    PARETO: MapQuery,
    HISTORY: ResultsView,
}


@dataclass(frozen=True)
class SavedView:
    """A checked view: what it is of, and its query with every contender's version written out."""

    path: str
    query: dict[str, list[str]]
    selected: Selected
    contenders: tuple[str, ...] = ()
    """Of a comparison: the base, then the candidates."""
    asked: Filters | None = None
    """The parameters as the page reads them."""
    doubts: tuple[tuple[Fault, ...], ...] = ()
    """What the catalogue has against each of them; it counts only where nothing is stored."""


def read_view(path: str, query: Mapping[str, Sequence[str]], catalogue: Catalogue) -> SavedView:
    """The view that a path and its parameters ask for. Raises InvalidRequestError."""
    if path not in PATHS:
        message = (
            f"there is no view of {path[:60]!r}{nearest(path, PATHS)}. Known: {', '.join(PATHS)}"
        )
        raise UnknownNameError([Fault("/path", "unknown_view", message)])
    given = {name: list(values) for name, values in query.items()}
    filters = _validated(_MODELS[path], given)
    wanted = filters.wanted()
    if path in (SHAPES, PARETO):
        # neither draws what was imported
        wanted = wanted.model_copy(update={"imported": False})
    if path in (SHAPES, PARETO, HISTORY):
        wanted = with_all_names(wanted, catalogue)
    if not isinstance(filters, CompareView):
        return SavedView(path, given, Selected(wanted), asked=filters)
    places = ["/query/base", *(f"/query/cand/{index}" for index in range(len(filters.cand)))]
    asked = zip([filters.base, *filters.cand], places, strict=True)
    resolved = [_resolved(text, catalogue, place) for text, place in asked]
    sides = tuple(used for used, _ in resolved)
    texts = tuple(side.text for side in sides)
    given |= {"base": list(texts[:1]), "cand": list(texts[1:])}
    doubts = tuple(faults for _, faults in resolved)
    return SavedView(path, given, Selected(wanted, sides), texts, filters, doubts)


def _validated(model: type[Filters], given: Mapping[str, Sequence[str]]) -> Filters:
    """The filters; a parameter that takes one value is given as one. Raises with every fault."""
    many = {
        field.alias or name
        for name, field in model.model_fields.items()
        if "list" in str(field.annotation)
    }
    data: dict[str, Any] = {}
    for name, values in given.items():
        if name not in many and len(values) != 1:
            fault = Fault(f"/query/{name[:60]}", "one_value", f"{name[:60]} takes one value")
            raise InvalidRequestError([fault])
        data[name] = list(values) if name in many else values[0]
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = faults_of(error.errors(include_url=False), model, "/query")
        raise InvalidRequestError(faults) from error


def refuse_unknown(session: Session, view: SavedView) -> None:
    """Raises UnknownNameError for a contender that neither catalogue nor results know."""
    for contender, faults in zip(view.selected.contenders, view.doubts, strict=True):
        anything = ResultFilter(include_invalid=True)
        if faults and not count_now(session, Selected(anything, (contender,))):
            refuse(faults)


def _resolved(text: str, catalogue: Catalogue, where: str) -> tuple[Contender, tuple[Fault, ...]]:
    """The contender with the version that it stands for now, and what the catalogue says."""
    try:
        asked = Contender.parse(text)
    except ValueError as error:
        message = f"{text[:200]!r} is not a contender such as flce or liger@0.8.5"
        raise InvalidRequestError([Fault(where, "bad_contender", message)]) from error
    used, faults = resolve_contender(asked, catalogue, where)
    refuse([fault for fault in faults if fault.code == "several_versions"])
    return used, tuple(faults)
