"""Kernels beside the shipped ones, through real processes: plugins, folders, commits, offers.

The plugin of the how-to page is built as a wheel from the page's own files.
"""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lossbench.kernels.source_hash import code_hash

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "howto" / "add-a-contender.md"
TINY = ["-s", "32x16x64", "--dtype", "float32", "-p", "1"]
FILES = re.compile(r"^```(?:toml|python)\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)

SPEC = """
from lossbench.kernels.kernel_spec import KernelSpec, Param, Setup

SPEC = KernelSpec(
    name="packed", summary="a package with everything", origin="package", package="packed-loss",
    versions=("1.0", "1.1", "2.0"), twins={"1.1": "1.0"}, build="packed_adapter:build",
    modules=("packed_loss",), params=(Param("loud", "bool", False),),
    uses_triton=True,  # on a CPU it is only checked then, which takes no visits
    options=frozenset(), dtypes=frozenset({"float32"}), gradients_in_forward=False,
    products={"forward": 1, "backward": 2, "forward_backward": 3},
    setups=(
        Setup(requires=("packed-extra==1.0",), paths=("packed_deep",)),
        Setup(when={"loud": True}, variables={"PACKED_LOUD": "1"}),
    ),
)
BROKEN = "no spec"
"""
ADAPTER = """
import os

import torch.nn.functional as F
from lossbench.kernels.errors import UnsupportedHere


def build(version, params):
    import deep_down, packed_extra, packed_loss
    if (os.environ.get("PACKED_LOUD") == "1") != params["loud"]:
        raise UnsupportedHere("the variable is not set as the params say")
    scale = packed_loss.SCALE * packed_extra.SCALE * deep_down.SCALE

    def loss(input, weight, target, bias=None, **options):
        return scale * F.cross_entropy(F.linear(input, weight, bias), target)

    return loss
"""
CODE = "SCALE = 1.0\n"


def build_wheel(project: Path, wheels: Path) -> None:
    """A project's wheel, made by the real build backend."""
    command = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-build-isolation"]
    command += ["--no-deps", "--no-index", "--wheel-dir", str(wheels), str(project)]
    subprocess.run(command, check=True, timeout=120)


def project(folder: Path, name: str, version: str, files: dict[str, str], more: str = "") -> Path:
    """A project whose modules and packages are these files."""
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    modules = [path.removesuffix(".py") for path in files if "/" not in path]
    packages = sorted({path.partition("/")[0] for path in files if "/" in path})
    (folder / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        f'[project]\nname = "{name}"\nversion = "{version}"\n{more}'
        f"[tool.setuptools]\npy-modules = {modules}\npackages = {packages}\n"
    )
    return folder


def install(wheel: Path, site: Path) -> None:
    """Put a wheel where an environment would have it."""
    command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*command, "--target", str(site), str(wheel)], check=True, timeout=120)


class Bench:
    """Runs `lossbench` where plugins are installed."""

    def __init__(self, folder: Path, site: Path, **variables: str) -> None:
        self.variables = {
            "PATH": os.environ["PATH"],
            "LOSSBENCH_DATA_DIR": str(folder),
            "PYTHONPATH": str(site),
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
            **variables,
        }

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments]

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*arguments),
            env=self.variables,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def measured(self, *contenders: str) -> dict[str, dict[str, Any]]:
        """Cells of a tiny run without a server, by contender."""
        flags = [flag for contender in contenders for flag in ("-c", contender)]
        done = self.run("run", *flags, *TINY, "--json")
        assert done.stdout, done.stderr
        return {cell["cell"].partition(" ")[0]: cell for cell in json.loads(done.stdout)}


def test_plugin_of_the_page_is_measured_like_any_kernel(tmp_path: Path) -> None:
    files = dict(FILES.findall(PAGE.read_text(encoding="utf-8")))
    assert set(files) == {"pyproject.toml", "tiny_loss_spec.py", "tiny_loss.py"}
    (tmp_path / "project").mkdir()
    for name, text in files.items():
        (tmp_path / "project" / name).write_text(text)
    build_wheel(tmp_path / "project", tmp_path / "wheels")
    install(tmp_path / "wheels" / "tiny_loss-1.0-py3-none-any.whl", tmp_path / "site")
    bench = Bench(tmp_path / "data", tmp_path / "site")
    ((name, cell),) = bench.measured("tiny@all[chunks=2]").items()
    assert (name, cell["outcome"], cell["reason"]) == ("tiny@1.0[chunks=2]", "ok", None)
    assert cell["record"]["measurement"]["latency"]["n"] >= 20
    shown = bench.run("kernels", "show", "tiny", "--json")
    assert json.loads(shown.stdout)["versions"] == ["1.0"]


class Workshop:
    """A packaged kernel's plugin, its wheels, a folder and a repository of its code."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.site, wheels = folder, folder / "site", folder / "wheels"
        points = '[project.entry-points."lossbench.kernels"]\npacked = "packed_spec:SPEC"\n'
        points += 'broken = "packed_spec:BROKEN"\n'
        plugin = {"packed_spec.py": SPEC, "packed_adapter.py": ADAPTER}
        build_wheel(project(folder / "a", "packed-plugin", "1.0", plugin, points), wheels)
        install(wheels / "packed_plugin-1.0-py3-none-any.whl", self.site)
        for version in ("1.0", "1.1", "2.0"):
            text = CODE if version < "2" else "SCALE = 1.0 + 0.0\n"
            code = project(folder / version, "packed-loss", version, {"packed_loss.py": text})
            build_wheel(code, wheels)
        extra = {"packed_extra.py": CODE, "packed_deep/deep_down.py": CODE}
        build_wheel(project(folder / "b", "packed-extra", "1.0", extra), wheels)
        commit = self._commit(folder / "2.0")
        file = folder / "contenders.yaml"
        file.write_text(
            "mine: {kernel: packed, path: '1.0'}\n"
            f"pr: {{kernel: packed, git: '{folder / '2.0'}', commit: '{commit}'}}\n"
        )
        places = {"LOSSBENCH_WHEEL_DIR": str(wheels), "LOSSBENCH_CONTENDERS_FILE": str(file)}
        self.bench = Bench(folder / "data", self.site, **places)

    @staticmethod
    def _commit(folder: Path) -> str:
        git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b"]
        for action in (["init", "-q"], ["add", "packed_loss.py"], ["commit", "-q", "-m", "x"]):
            subprocess.run([*git, *action], check=True)
        head = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, check=True)
        return head.stdout.decode().strip()


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """Made once: building wheels takes seconds."""
    return Workshop(tmp_path_factory.mktemp("workshop"))


def test_run_measures_packages_folders_and_commits(workshop: Workshop) -> None:
    found = workshop.bench.measured("packed@all[loud=true]", "mine", "pr")
    reasons = {name: (cell["outcome"], cell["reason"]) for name, cell in found.items()}
    assert set(reasons.values()) == {("ok", None)}, reasons
    mine, pr = (next(name for name in found if name.startswith(start)) for start in ("mine", "pr"))
    old, new = "packed@1.0[loud=true]", "packed@2.0[loud=true]"
    assert list(found) == [old, new, mine, pr]
    assert re.fullmatch(r"mine@path-[0-9a-f]{12}", mine)
    assert re.fullmatch(r"pr@git-[0-9a-f]{12}", pr)
    details = {name: cell["record"]["details"] for name, cell in found.items()}
    hashes = {name: facts["source_hash"] for name, facts in details.items()}
    assert hashes[mine] == hashes[old] == code_hash(workshop.folder / "1.0", ["packed_loss"])
    assert hashes[pr] == hashes[new] != hashes[old]
    assert all(set(facts["requires_sha256"]) == {"packed-extra==1.0"} for facts in details.values())
    wheels = ["wheel_sha256" in facts for facts in details.values()]
    assert wheels == [True, True, False, False]


def test_releases_of_a_plugin_s_package_are_read_from_its_wheels(workshop: Workshop) -> None:
    done = workshop.bench.run("kernels", "releases", "packed", "--json")
    assert done.returncode == 0, done.stderr
    twins = {release["version"]: release["twin"] for release in json.loads(done.stdout)}
    assert twins == {"1.0": None, "1.1": "1.0", "2.0": None}
    refused = workshop.bench.run("kernels", "releases", "torch-naive")
    assert refused.returncode == 2
    assert "torch-naive is no package" in refused.stderr


def test_doctor_shows_own_contenders_and_plugins_that_are_not_used(workshop: Workshop) -> None:
    done = workshop.bench.run("doctor", "--json")
    found = [finding for finding in json.loads(done.stdout) if finding["subject"] in TOLD]
    assert [finding["good"] for finding in found] == [False, True]
    assert found[0]["text"] == "plugin broken (packed_spec:BROKEN): a str is no KernelSpec"
    assert found[1]["text"].startswith("beside the shipped ones: packed@2.0, mine@path-")
    assert done.returncode == 1


TOLD = ("plugin", "contenders")


@pytest.mark.parametrize("command", [["run", "-c", "mine", *TINY], ["worker"], ["kernels", "list"]])
def test_bad_contenders_file_stops_a_command_with_one_line(
    workshop: Workshop, tmp_path: Path, command: list[str]
) -> None:
    file = tmp_path / "bad.yaml"
    file.write_text("mine: {kernel: packed, path: nowhere}\n")
    bench = Bench(tmp_path, workshop.site, LOSSBENCH_CONTENDERS_FILE=str(file))
    done = bench.run(*command)
    assert done.returncode == 2
    (line,) = done.stderr.strip().splitlines()[-1:]
    assert "Traceback" not in done.stderr
    assert f"contenders file {file}: mine: path {tmp_path / 'nowhere'} is no folder" in line


def wait_for(check: Callable[[], Any], seconds: float = 90.0) -> Any:
    """What `check` gives once it gives anything."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := check():
            return found
        time.sleep(0.1)
    raise AssertionError("it did not happen")


def test_worker_offers_its_kernels_while_it_lives(
    workshop: Workshop, service: Any, sqlite_url: str, tmp_path: Path
) -> None:
    """And a cell of a kernel that only another worker has ends `unsupported`."""
    row = {"name": "elsewhere", "summary": "", "origin": "built-in", "dtypes": ["float32"]}
    service.worker("wrk-other", {"elsewhere": row})
    variables = {**workshop.bench.variables, "LOSSBENCH_DATABASE_URL": sqlite_url}
    process = subprocess.Popen(workshop.bench.command("worker"), env=variables)
    try:
        kernels = wait_for(lambda: offered(service))
        mine = next(row for row in kernels.values() if row["name"] == "mine")
        assert (mine["origin"], mine["latest"][:5]) == ("checkout", "path-")
        job = service.http.post("/api/v1/jobs", json=body("packed@>=2", "mine", "elsewhere"))
        assert job.status_code == 202, job.text
        address = f"/api/v1/jobs/{job.json()['id']}"
        wait_for(lambda: service.http.get(address).json()["state"] == "done")
        cells = service.http.get(f"{address}/cells").json()["items"]
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
    assert [(cell["contender"].partition("@")[0], cell["outcome"]) for cell in cells] == [
        ("packed", "ok"),
        ("mine", "ok"),
        ("elsewhere", "unsupported"),
    ]
    assert re.match(r"worker .+ \(wrk-\w+\) has no kernel 'elsewhere'", cells[2]["reason"])
    assert cells[2]["result_id"] is None
    assert offered(service) is None
    result = service.http.get(f"/api/v1/results/{cells[1]['result_id']}").json()
    assert result["version"] == mine["latest"]


def offered(service: Any) -> dict[str, Any] | None:
    """Kernels of the service by name, once `packed` is one of them."""
    rows = {row["name"]: row for row in service.http.get("/api/v1/kernels").json()["items"]}
    return rows if "packed" in rows else None


def body(*contenders: str) -> dict[str, Any]:
    """A tiny job for the CPU."""
    shape = {"tokens": 32, "hidden": 16, "vocab": 64}
    facts = {"dtypes": ["float32"], "accelerator": "cpu", "processes": 1}
    return {"contenders": list(contenders), "shapes": [shape], **facts}
