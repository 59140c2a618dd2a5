"""What the browser tests share: every page by name, a watched browser page, axe. Not a test."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

Look = tuple[int, str]
MAIN = ("overview", "report", "compare", "shapes")
"""The four pages that `make test` looks at on a phone too."""
ALSO_OFTEN = ("pareto", "history", "kernel", "machine")
LOOKS: list[Look] = [(1400, "light"), (390, "dark"), (1400, "dark"), (390, "light")]


def ids_of(filled: Any, **query: str) -> list[str]:
    """Ids of results, newest first."""
    answer = httpx.get(f"{filled.address}/api/v1/results", params={"limit": "50", **query})
    return [item["id"] for item in answer.json()["items"]]


def _row(filled: Any) -> str:
    base, cand = (
        ids_of(filled, contender=name, tokens="8192")[0] for name in ("liger@0.6.5", "liger@0.8.5")
    )
    return f"/compare/row?base={base}&cand={cand}"


def _alert(filled: Any) -> str:
    (first, *_) = httpx.get(f"{filled.address}/api/v1/alerts").json()["items"]
    return f"/alerts/{first['id']}"


def _view(filled: Any) -> str:
    body = {"path": "/shapes", "query": {"pass": "forward_backward"}}
    return str(httpx.post(f"{filled.address}/api/v1/views", json=body).json()["address"])


PAGES: dict[str, Callable[[Any], str]] = {
    "overview": lambda filled: "/",
    "new": lambda filled: "/jobs/new",
    "live": lambda filled: f"/jobs/{filled.live_job}",
    "report": lambda filled: f"/jobs/{filled.report_job}",
    "choose": lambda filled: "/compare",
    "compare": lambda filled: f"/compare?job={filled.report_job}&base=liger@0.8.5&cand=flce",
    "compare-all": lambda filled: "/compare?base=torch-naive&cand=flce",
    "compare-three": lambda filled: "/compare?base=torch-naive&cand=flce&cand=liger@0.8.5",
    "errors": lambda filled: "/compare?base=torch-naive&cand=liger@0.8.5&tab=errors",
    "floor": lambda filled: "/compare?base=liger@0.6.5&cand=liger@0.8.5&tab=floor",
    "row": _row,
    "shapes": lambda filled: "/shapes?model=llama-3-8b&need_tokens=8192",
    "pareto": lambda filled: "/pareto",
    "history": lambda filled: "/history",
    "view": _view,
    "alerts": lambda filled: "/alerts",
    "alert": _alert,
    "trainings": lambda filled: "/training",
    "training": lambda filled: "/training/job-stored-training",
    "claims": lambda filled: "/claims",
    "claim": lambda filled: "/claims/the-floor-depends-on-the-data",
    "detector": lambda filled: "/alerts/detector",
    "machines": lambda filled: "/machines",
    "machine": lambda filled: "/machines/wrk-h200",
    "kernels": lambda filled: "/kernels",
    "kernel": lambda filled: "/kernels/liger",
    "version": lambda filled: "/kernels/liger@0.8.5",
    "result": lambda filled: f"/results/{ids_of(filled, contender='liger@0.8.5')[0]}",
    "search": lambda filled: "/search?q=gemma",
    "not-found": lambda filled: "/search?q=zzz",
    "empty": lambda filled: "/history?kernel=cce",
    "login": lambda filled: "/login",
}


def looks(often: bool) -> list[Any]:
    """Every page in every look; those not looked at often are slow."""
    return [
        pytest.param(name, *look, marks=[] if often and _often(name, look) else [pytest.mark.slow])
        for name in PAGES
        for look in LOOKS
    ]


def _often(name: str, look: Look) -> bool:
    return look in LOOKS[:2] if name in MAIN else name in ALSO_OFTEN and look == LOOKS[0]


class Watched:
    """A browser page with everything it said and everybody it asked."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self._address = page, address
        self.said: list[str] = []
        self.foreign: list[str] = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", self._asked)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self._address, "data:", "blob:")):
            self.foreign.append(request.url)

    def drawn(self) -> None:
        """Wait until every figure is drawn."""
        undrawn = "() => document.querySelectorAll('[data-figure]:not([data-drawn])').length === 0"
        self.page.wait_for_function(undrawn, timeout=20_000)

    def barriers(self, axe: str) -> list[str]:
        """What axe calls serious or critical, one line a rule."""
        self.page.evaluate(axe)
        found = self.page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
        return [
            f"{rule['id']}: {rule['nodes'][0]['target']} {rule['nodes'][0]['failureSummary']}"
            for rule in found["violations"]
            if rule["impact"] in ("serious", "critical")
        ]


@contextmanager
def opened(chromium: Any, filled: Any, path: str, width: int, scheme: str) -> Iterator[Watched]:
    """A fresh browser context with one page open."""
    size = {"width": width, "height": 900}
    context = chromium.new_context(viewport=size, color_scheme=scheme)
    try:
        watched = Watched(context.new_page(), filled.address)
        watched.page.goto(filled.address + path)
        yield watched
    finally:
        context.close()


def read(filled: Any, path: str) -> str:
    """The page as somebody without scripts gets it."""
    answer = httpx.get(filled.address + path)
    assert answer.status_code == 200, answer.text
    return answer.text


def axe_source() -> str:
    """The text of axe-core, which `make test-full` installs; skips where it is missing."""
    usual = Path(sys.prefix) / "axe" / "node_modules" / "axe-core" / "axe.min.js"
    path = Path(os.environ.get("LOSSBENCH_AXE", usual))
    if not path.exists():
        pytest.skip("axe-core is missing; make test-full installs it with npm")
    return path.read_text()
