"""The service, started: what it has imported, and what it answers to."""

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

BANNED = ("torch", "triton", "scipy", "pyarrow", "lossbench.kernels", "lossbench.worker")
PROGRAM = """
import json, sys
from pathlib import Path
from lossbench.service.api.context import ServiceContext
from lossbench.service.api.security import AuthMode
from lossbench.service.settings import Settings
from lossbench.web.app import create_app

context = ServiceContext.create(Settings(data_dir=Path(sys.argv[1])), AuthMode.OPEN)
app = create_app(context)
document = app.openapi()
routes = [f"{m.upper()} {p}" for p, methods in document["paths"].items() for m in methods]
print(json.dumps({"modules": sorted(sys.modules), "routes": routes}))
"""


def banned_modules(modules: Iterable[str]) -> list[str]:
    """Modules that a service must never load."""
    return [m for m in modules if any(m == ban or m.startswith(ban + ".") for ban in BANNED)]


@pytest.fixture(scope="module")
def service_process(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Modules and routes of an application made in a process of its own."""
    folder = tmp_path_factory.mktemp("service")
    variables = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    done = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(folder)],
        env=variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return facts


def headings(text: str) -> list[str]:
    """Headings of a Markdown text, without marks."""
    lines = [line for line in text.splitlines() if line.startswith("#")]
    return [line.lstrip("#").replace("`", "").strip() for line in lines]


def undocumented(routes: Iterable[str], text: str) -> list[str]:
    """Routes without a heading such as `POST /api/v1/jobs`, or without the prefix `/api/v1`."""
    known = headings(text)
    shorter = {route: route.replace("/api/v1", "") for route in routes}
    return [r for r, short in shorter.items() if not any(h in (r, short) for h in known)]


def test_service_process_loads_no_torch(service_process: dict[str, Any]) -> None:
    assert "lossbench.web.app" in service_process["modules"]
    assert not banned_modules(service_process["modules"])


def test_every_route_has_a_heading(service_process: dict[str, Any], root: Path) -> None:
    page = root / "docs" / "reference" / "api.md"
    assert page.exists(), "docs/reference/api.md is missing"
    assert service_process["routes"]
    assert not undocumented(service_process["routes"], page.read_text(encoding="utf-8"))


def test_torch_in_the_service_is_found() -> None:
    modules = ["torch", "torch.nn", "scipy.stats", "torchlike", "lossbench.worker.main"]
    assert banned_modules(modules) == ["torch", "torch.nn", "scipy.stats", "lossbench.worker.main"]


def test_route_without_heading_is_found() -> None:
    routes = ["GET /api/v1/jobs", "POST /api/v1/jobs", "GET /healthz"]
    text = "# API\n## `GET /jobs`\n## GET /healthz\n"
    assert undocumented(routes, text) == ["POST /api/v1/jobs"]
