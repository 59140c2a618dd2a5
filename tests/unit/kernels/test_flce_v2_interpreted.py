"""flce version 2's Triton kernels in Triton's interpreter: float32, small shapes.

TRITON_INTERPRET must be set before Triton is imported, so the checks run in a process of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys

SCRIPT = """
import json, sys
import torch
from lossbench.kernels.flce.rows import RowOptions, RowTensors
from lossbench.kernels.flce.v2 import run, triton_launch
from lossbench.kernels.flce.v2.loss import linear_cross_entropy
from lossbench.kernels.flce.v2.op import Tuning
from lossbench.kernels.flce.v2.results import RowResults
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

triton_launch.LARGEST_BLOCK = 64   # 131 columns: two full tiles and a ragged one
triton_launch.PARTS = 2            # of 128 columns and 3
assert run.uses_triton(torch.zeros(1))
assert not run.uses_triton(torch.zeros(1, dtype=torch.bfloat16))
every = {"bias": True, "class_weight": True, "label_smoothing": 0.2, "softcap": 2.0,
         "logit_scale": 0.5, "lse_square_scale": 0.02, "ignored_share": 0.3}
cases = {"plain": {"recipe": "large_logits"}, "smoothing": {"label_smoothing": 0.1},
         "all": every,
         "all_none": every | {"reduction": "none"}, "all_ignored": {"ignored_share": 1.0}}
plans = {"rows": (Tuning(), 1), "parts": (Tuning(chunk_rows=9), 512),
         "sweeps": (Tuning(chunk_rows=9, block=50), 512), "sweeps of rows": (Tuning(block=70), 1)}
found = {}
for plan, (tuning, few) in plans.items():
    triton_launch.FEW_ROWS = few
    for name, options in cases.items():
        problem = Problem(12, 16, 131, "float32", upstream="random", **options)
        inputs = make_inputs(problem, "cpu", 0)
        outputs = forward_backward(
            lambda *args, **keywords: linear_cross_entropy(*args, tuning=tuning, **keywords), inputs
        )
        errors = relative_errors(outputs, reference(inputs, problem))
        found[f"{plan}, {name}"] = max(errors.values())

x, w = torch.randn(4, 16), torch.randn(131, 16)
y = torch.tensor([1, 131, 2, -100])
for few in (1, 512):
    triton_launch.FEW_ROWS = few
    results = RowResults.empty(4, torch.float32, x.device)
    logits = (x @ w.t()).contiguous()
    right = logits.argmax(1)
    triton_launch.write_loss(logits, torch.where(y == 1, right, y), results, RowOptions(),
                             RowTensors(), True)
    found[f"poisoned loss, {few}"] = torch.isnan(results.loss).tolist()
    found[f"poisoned rows, {few}"] = torch.isnan(logits).all(1).tolist()
    found[f"hits, {few}"] = results.hit.tolist()[0::3]
masked = torch.zeros(131)
masked[:129] = -torch.inf                    # all of the first part is masked, and whole tiles
leaf = x.clone().requires_grad_()
out = linear_cross_entropy(leaf, w, torch.full((4,), 130), masked)
out.backward()
found["masked"] = [bool(torch.isfinite(out)), bool(torch.isfinite(leaf.grad).all())]
print(json.dumps(found))
"""


def test_kernels_agree_with_the_reference_in_the_interpreter() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],
        env=dict(os.environ, TRITON_INTERPRET="1"),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    for few in (1, 512):
        assert found.pop(f"poisoned loss, {few}") == [False, True, False, False]
        assert found.pop(f"poisoned rows, {few}") == [False, True, False, False]
        assert found.pop(f"hits, {few}") == [1.0, 0.0]
    assert found.pop("masked") == [True, True]
    assert len(found) == 20
    wrong = {name: error for name, error in found.items() if not error < 5e-6}
    assert not wrong, wrong
