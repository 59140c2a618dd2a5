"""flce's Triton kernels in Triton's interpreter: float32, small shapes.

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
from lossbench.kernels.flce.v1 import chunks, triton_cross_entropy
from lossbench.kernels.flce.v1.op import linear_cross_entropy
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem, forward_backward
from lossbench.kernels.reference import reference, relative_errors

triton_cross_entropy._LARGEST_BLOCK = 64   # 131 columns: two full tiles and a ragged one
assert chunks.uses_triton(torch.zeros(1))
assert not chunks.uses_triton(torch.zeros(1, dtype=torch.bfloat16))
cases = {
    "plain": {},
    "ignored": {"ignored_share": 0.3, "bias": True},
    "class_weight": {"class_weight": True},
    "smoothing": {"label_smoothing": 0.1},
    "softcap": {"softcap": 0.5},
    "logit_scale": {"logit_scale": 0.25},
    "z_loss": {"lse_square_scale": 0.01},
    "sum": {"reduction": "sum"},
    "none": {"reduction": "none", "ignored_share": 0.2},
    "large": {"recipe": "large_logits"},
    "all": {"bias": True, "class_weight": True, "label_smoothing": 0.2, "softcap": 2.0,
            "logit_scale": 0.5, "lse_square_scale": 0.02, "ignored_share": 0.3},
    "all_ignored": {"ignored_share": 1.0},
}
found = {}
for name, options in cases.items():
    problem = Problem(20, 16, 131, "float32", upstream="random", **options)
    inputs = make_inputs(problem, "cpu", 0)
    outputs = forward_backward(
        lambda *args, **keywords: linear_cross_entropy(*args, chunk_rows=9, **keywords), inputs
    )
    found[name] = max(relative_errors(outputs, reference(inputs, problem)).values())

x, w = torch.randn(4, 16, requires_grad=True), torch.randn(131, 16, requires_grad=True)
y = torch.tensor([1, 131, 2, -100])
loss = torch.empty(4)
logits = (x @ w.t()).detach().contiguous()
triton_cross_entropy.cross_entropy_in_place(
    logits, y, loss, chunks.RowOptions(), chunks.RowTensors(), True
)
found["poisoned_loss"] = torch.isnan(loss).tolist()
found["poisoned_rows"] = torch.isnan(logits).all(1).tolist()
masked = torch.zeros(131)
masked[:70] = -torch.inf                    # the whole first tile is masked
out = linear_cross_entropy(x, w, torch.full((4,), 100), masked)
out.backward()
found["masked"] = [bool(torch.isfinite(out)), bool(w.grad[:70].any()), bool(w.grad[70:].any())]
print(json.dumps(found))
"""


def test_flce_interpreted_kernels_match_the_reference() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-c", SCRIPT],
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)

    assert found.pop("poisoned_loss") == [False, True, False, False]
    assert found.pop("poisoned_rows") == [False, True, False, False]
    assert found.pop("masked") == [True, False, True]
    assert found.pop("all_ignored") == 0
    assert len(found) == 11
    assert max(found.values()) <= 1e-6
