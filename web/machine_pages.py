"""`/machines` and `/machines/{id}`: environment, drift of the same code, what it can tell apart."""

from typing import Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.plots.drift import detectable_by_case, drift_figure, drift_sentence
from lossbench.service.plots.markdown import markdown_table
from lossbench.service.store.models import DeviceProofRow
from lossbench.service.store.permalinks import highest_result_id
from lossbench.service.store.workers import list_workers

from .exports import exports_of
from .machine_queries import MachinePage, machine_page, measured_on
from .rendering import page

MOST_LISTED = 15
"""Newest results in the table of a machine."""
SHOWN_PROCESSES = ("3", "8", "16", "24")


def machine_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/machines`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/machines")
    def show_machines(request: Request) -> Response:
        with context.database.reading() as session:
            workers, devices = list_workers(session), measured_on(session)
            return page(request, "machines.html", workers=workers, devices=devices)

    @router.get("/machines/{machine_id}")
    def show_machine(request: Request, machine_id: str) -> Response:
        with context.database.reading() as session:
            found = machine_page(session, machine_id[:128])
            return _drawn(request, machine_id, found, highest_result_id(session))

    return router


def _drawn(request: Request, machine_id: str, found: MachinePage, newest: str | None) -> Response:
    lines = found.drift
    filters = {"gpu": [found.device_name]} if found.environments else {}
    results = ("/results", urlencode(filters, doseq=True))
    api = (f"/machines/{machine_id}", "") if found.worker else results
    return page(
        request,
        "machine.html",
        machine_id=machine_id,
        newest=newest,
        found=found,
        environment=found.environments[0] if found.environments else None,
        listed=list(reversed(found.runs))[:MOST_LISTED],
        drift=lines,
        drift_words=drift_sentence(lines),
        figure_data=drift_figure(lines, found.device_name) if lines else None,
        classes=_classes(found.proof),
        processes=SHOWN_PROCESSES,
        sights=detectable_by_case(found.seen),
        exports=exports_of(request, api, filters, _markdown(machine_id, found)),
    )


def _classes(proof: DeviceProofRow | None) -> list[dict[str, Any]]:
    """Durations of a call with the slowdown that each number of processes finds."""
    classes = proof.record.get("classes", []) if proof else []
    return [made for made in classes if isinstance(made, dict) and made.get("detectable")]


def _markdown(machine_id: str, found: MachinePage) -> str:
    facts: dict[str, Any] = found.environments[0].facts if found.environments else {}
    rows = [["device", found.device_name], *([name, str(v)] for name, v in facts.items())]
    rows += [["flag " + flag, f"{n} of {len(found.runs)}"] for flag, n in found.flags]
    rows += [
        [f"smallest slowdown, {case}", f"{effect:.2%}"]
        for case, _, effect in detectable_by_case(found.seen)
    ]
    head = f"**Machine `{machine_id}`**: {drift_sentence(found.drift)}"
    return f"{head}\n\n{markdown_table(['fact', 'value'], rows)}" if rows else f"{head}\n"
