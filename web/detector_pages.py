"""`/alerts/detector`: how well changes are found, beside other detectors on the same series."""

import json
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.dependencies import may_read
from lossbench.service.plots.detector_score import Score, detector_figure, scores_of

from .rendering import page

OURS = "lossbench"
"""The detector as it comes, as the table names it."""


@cache
def measured() -> dict[str, Any]:
    """The tables that `make compare-detectors` measured, as the package ships them."""
    text = Path(__file__).with_name("detector_score.json").read_text("utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def detector_pages() -> APIRouter:
    """Route of the page; it has to be known before that of one alert."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/alerts/detector")
    def show(request: Request) -> Response:
        found = measured()
        scores = scores_of(found["score"]["columns"], found["score"]["rows"])
        return page(
            request,
            "detector.html",
            found=found,
            sentence=sentence(scores),
            figure_data=detector_figure(scores),
            tables=(
                ("Found, and false alarms", found["score"]),
                ("How soon a step is found", found["delay"]),
                ("Time for 1,000 points", found["time"]),
            ),
            ours=OURS,
        )

    return router


def sentence(scores: list[Score]) -> str:
    """What our detector does in the worst kind of noise of the table."""
    ours = [score for score in scores if score.detector == OURS]
    worst = max(score.false_alarms for score in ours)
    least = {step: min(score.hits[step] for score in ours) for step in ours[0].hits}
    hits = ", ".join(f"{share:g} % of {step} steps" for step, share in least.items())
    return (
        f"In every kind of noise: at most {worst:g} false alarms in 1,000 series in which nothing "
        f"changed, and at least {hits} are found within three points."
    )
