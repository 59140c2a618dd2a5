"""`/kernels` and `/kernels/{name}@{version}`: facts, results, known failures."""

from collections import Counter
from typing import Any

from fastapi import APIRouter, Depends, Request, Response

from lossbench.service.api.context import ServiceContext
from lossbench.service.api.dependencies import may_read
from lossbench.service.contract.words import Pass
from lossbench.service.plots import text
from lossbench.service.plots.diverging import PASS_SIGNS, Bar, diverging
from lossbench.service.plots.markdown import markdown_table
from lossbench.service.plots.panels import PASS_WORDS
from lossbench.service.plots.report import COUNTED
from lossbench.service.store.aggregates import Brief
from lossbench.service.store.permalinks import highest_result_id

from .exports import exports_of
from .kernel_queries import KernelPage, kernel_page
from .rendering import page

MOST_ROWS = 100
HEADINGS = (
    "contender", "case", "pass", "device", "outcome", "time, ms", "time / baseline (95 %)",
    "workspace", "error", "flags",
)  # fmt: skip


def kernel_pages(context: ServiceContext) -> APIRouter:
    """Routes of `/kernels`."""
    router = APIRouter(include_in_schema=False, dependencies=[Depends(may_read)])

    @router.get("/kernels")
    def show_kernels(request: Request, q: str = "") -> Response:
        wanted = q.strip().lower()
        catalogue = context.catalogue
        rows = [
            row
            for name, row in sorted(catalogue.kernels.items())
            if wanted in f"{name} {row.package or ''} {row.summary}".lower()
        ]
        presets = [row for name, row in sorted(catalogue.presets.items()) if wanted in name.lower()]
        return page(request, "kernels.html", kernels=rows, presets=presets, wanted=wanted)

    @router.get("/kernels/{contender}")
    def show_kernel(request: Request, contender: str) -> Response:
        name, _, version = contender.partition("@")
        with context.database.reading() as session:
            found = kernel_page(session, context.catalogue, name, version or None)
            return _drawn(request, found, highest_result_id(session))

    return router


def _drawn(request: Request, found: KernelPage, newest: str | None) -> Response:
    row, version = found.row, found.version
    filters = {"kernel": [row.name]} | ({"version": [version]} if version else {})
    api = f"/kernels/{row.name}" + (f"/versions/{version}" if version else "")
    return page(
        request,
        "kernel.html",
        newest=newest,
        found=found,
        row=row,
        version=version,
        name=f"{row.name}@{version}" if version else row.name,
        rows=found.results[:MOST_ROWS],
        measured={each.version: each for each in found.measured},
        bounds=text.interval,
        figure_data=_figure(found),
        exports=exports_of(request, (api, ""), filters, _markdown(found)),
    )


def _figure(found: KernelPage) -> dict[str, Any] | None:
    """Bars over the baseline of the contender and device with most results; None with only one."""
    timed = [row for row in found.results if row.over_baseline and row.contender != row.baseline]
    if not timed:
        return None
    # of equally many, the first: results come newest first
    chosen = Counter((row.label, row.device_name) for row in timed).most_common(1)[0][0]
    rows = [row for row in timed if (row.label, row.device_name) == chosen]
    without = sum((row.label, row.device_name) == chosen for row in found.results) - len(rows)
    bars = [bar for row in rows if (bar := _bar(row)) is not None]
    label, device = chosen
    return diverging(bars, "its baseline", label, without, device) if len(bars) > 1 else None


def _bar(row: Brief) -> Bar | None:
    ratio = row.over_baseline
    if ratio is None:
        return None
    way = ""
    if ratio.low is not None and ratio.high is not None:
        way = "faster" if ratio.high < 1 else "slower" if ratio.low > 1 else ""
    label = f"{row.case} {PASS_SIGNS[Pass(row.pass_)]}"
    return Bar(label, ratio.value, ratio.low, ratio.high, way, row.grade in COUNTED)


def _markdown(found: KernelPage) -> str:
    rows = []
    for row in found.results[:MOST_ROWS]:
        ratio = row.over_baseline
        bounds = f" ({text.interval(ratio.low, ratio.high)})" if ratio and ratio.low else ""
        rows.append(
            [
                f"`{row.label}`",
                f"`{row.case}`",
                PASS_WORDS[Pass(row.pass_)],
                row.device_name,
                row.outcome.replace("_", " "),
                text.digits(row.latency_ms),
                f"{text.ratio(ratio.value if ratio else None)}{bounds}",
                text.in_bytes(row.workspace_bytes),
                row.grade or text.NONE,
                ", ".join(row.flags),
            ]
        )
    return markdown_table(HEADINGS, rows)
