"""`/training` and `/training/{id}`: does it train as well? Verdicts, curves, speed and memory."""

from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.api.training_records import TrainingDetail
from lossbench.service.api.training_routes import (
    TrainingPointsQuery,
    TrainingQuery,
    list_trainings,
    read_points,
    read_training,
)
from lossbench.service.plots.training import (
    CURVE_POINTS,
    bounds_of,
    training_figure,
    training_markdown,
    verdict_sentence,
)

from .address import checked, given_of, query_with
from .exports import exports_of
from .rendering import page

WAYS = {"same": "", "better": "faster", "worse": "slower", "inconclusive": ""}
"""Classes of the style sheet for verdicts."""


def training_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/training`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/training")
    def show_all(request: Request) -> Response:
        given = given_of(request)
        with context.database.reading() as session:
            found, following = list_trainings(session, checked(TrainingQuery, given))
        return page(
            request,
            "trainings.html",
            trainings=found,
            following=query_with(given, cursor=following) if following else None,
            ways=WAYS,
            bounds=bounds_of,
        )

    @router.get("/training/{training_id}")
    def show(request: Request, training_id: str) -> Response:
        query = TrainingPointsQuery(max_points=CURVE_POINTS)
        with context.database.reading() as session:
            found = read_training(session, training_id)
            curves = read_points(session, training_id, query).curves
        drawn = [curve for curve in curves if curve.steps]
        title = title_of(found)
        return page(
            request,
            "training.html",
            training=found,
            title=title,
            told=_told(found),
            figure_data=training_figure(found.contenders, drawn, title) if drawn else None,
            ways=WAYS,
            bounds=bounds_of,
            exports=exports_of(
                request,
                (f"/training/{training_id}", ""),
                {},
                training_markdown(title, found.contenders),
            ),
        )

    return router


def title_of(found: TrainingDetail) -> str:
    """Model, text and extent in one line."""
    spec = found.training
    return f"{spec.size}, {', '.join(spec.text)}, vocabulary {spec.vocab}, {spec.steps:,} steps"


def _told(found: TrainingDetail) -> list[str]:
    if not found.contenders:
        return []
    reference: Any = found.contenders[0]
    compared = [each for each in found.contenders if each.role == "contender"]
    return [verdict_sentence(each, reference.contender) for each in compared]
