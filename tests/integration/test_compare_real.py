"""`lossbench compare` on this CPU for real: a contender that calls the loss 20 times, and A/A.

The contender is a plugin with a param for the number of calls, and one that gives it a measuring
process of its own: so the same code is compared with itself in two children that take turns.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ENTRY_POINTS = "[lossbench.kernels]\nrepeated = repeated_spec:SPEC\n"
METADATA = "Metadata-Version: 2.1\nName: repeated\nVersion: 1.0\n"
SPEC = """
from lossbench.kernels.kernel_spec import KernelSpec, Param, Setup

SPEC = KernelSpec(
    name="repeated", summary="calls torch's loss over and over", origin="built-in",
    build="repeated_loss:build",
    params=(Param("calls", "int", 1, minimum=1, maximum=99), Param("apart", "bool", False)),
    uses_triton=False, options=frozenset(), dtypes=frozenset({"float32"}),
    gradients_in_forward=False,
    products={"forward": 1, "backward": 2, "forward_backward": 3},
    setups=(Setup(when={"apart": True}, variables={"REPEATED_APART": "1"}),),
)
"""
LOSS = """
import torch.nn.functional as F


def build(version, params):
    def loss(input, weight, target, bias=None, **options):
        made = [F.cross_entropy(F.linear(input, weight, bias), target)
                for _ in range(params["calls"])]
        return sum(made) / len(made)

    return loss
"""


class Bench:
    """Runs `lossbench compare --local` where the plugin is installed."""

    def __init__(self, folder: Path) -> None:
        site = folder / "site"
        (site / "repeated-1.0.dist-info").mkdir(parents=True)
        (site / "repeated-1.0.dist-info" / "entry_points.txt").write_text(ENTRY_POINTS)
        (site / "repeated-1.0.dist-info" / "METADATA").write_text(METADATA)
        (site / "repeated_spec.py").write_text(SPEC)
        (site / "repeated_loss.py").write_text(LOSS)
        self.variables = {
            "PATH": os.environ["PATH"],
            "LOSSBENCH_DATA_DIR": str(folder),
            "PYTHONPATH": str(site),
            "PYTHONSAFEPATH": "1",
            "OMP_NUM_THREADS": "1",
            "COLUMNS": "200",
        }

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-P", "-m", "lossbench.service.cli.main", *arguments]
        return subprocess.run(
            command, env=self.variables, capture_output=True, text=True, timeout=280, check=False
        )

    def compare(self, *arguments: str) -> tuple[int, dict[str, Any]]:
        """Exit code and the only row of a comparison on a tiny case."""
        shape = ["-s", "256x128x2048", "--dtype", "float32", "--pass", "forward"]
        done = self.run("compare", *arguments, *shape, "--local", "--json")
        assert done.stdout, done.stderr
        (row,) = json.loads(done.stdout)
        return done.returncode, row


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_contender_that_does_twenty_times_the_work_ends_slower(bench: Bench) -> None:
    limits = ["--max-processes", "8", "--fail-on", "slower"]
    code, row = bench.compare("repeated", "repeated[calls=20]", *limits)
    made = row["comparison"]
    assert (code, row["verdict"], row["reason"]) == (1, "slower", None), row["comparison"]
    assert 3.0 < made["ratio_low"] < made["ratio"] < made["ratio_high"]
    assert len(made["log_ratios"]) == made["processes"] >= 3
    assert (row["base"]["outcome"], row["candidate"]["outcome"]) == ("ok", "ok")
    assert row["candidate"]["result"]["processes"] == made["processes"]
    assert row["candidate"]["result"]["workspace_bytes"] is not None


@pytest.mark.slow
def test_same_code_in_two_children_is_neither_slower_nor_faster(bench: Bench) -> None:
    limits = ["--max-processes", "3", "--fail-on", "slower,wrong,failed"]
    code, row = bench.compare("repeated", "repeated[apart=true]", *limits)
    assert code == 0
    assert row["verdict"] in ("no_difference", "inconclusive"), row["comparison"]
    made = row["comparison"]
    assert made["processes"] == len(made["log_ratios"]) == 3
    assert 0.3 < made["ratio"] < 3.0


def test_refused_comparison_says_why_and_measures_nothing(bench: Bench) -> None:
    arguments = ["compare", "repeated", "torch-naive", "-s", "8x4x16", "--dtype", "float32"]
    done = bench.run(*arguments, "-o", "softcap=3", "--local", "--fail-on", "unsupported")
    assert done.returncode == 1
    assert "no baseline" in done.stdout
    assert "repeated has no option softcap" in " ".join(done.stdout.split())
    undecided = bench.run(*arguments, "-o", "softcap=3", "--local", "--fail-on", "slower")
    assert undecided.returncode == 2
    assert "no baseline: repeated has no result on any case" in undecided.stderr


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["flce", "flce@1"], "takes two different contenders"),
        (
            ["flce", "liger", "--fail-on", "slowr"],
            "--fail-on has no 'slowr' (did you mean 'slower'",
        ),
        (["flce", "liger", "--format", "yaml"], "format 'yaml' is not table, markdown or json"),
        (["flce", "liger", "-p", "9", "--max-processes", "8"], "max_processes is 8, less than"),
    ],
)
def test_comparison_that_cannot_be_is_refused_in_one_line(
    bench: Bench, arguments: list[str], line: str
) -> None:
    done = bench.run("compare", *arguments, "-s", "8x4x16", "--local")
    assert done.returncode == 2
    (said,) = done.stderr.strip().splitlines()
    assert line in said
