"""Which pass makes the gradients, as a kernel's entry says it and as counted.

A contender that cannot run here is skipped. With its package on the path, and TRITON_INTERPRET=1
for a Triton kernel, it is counted, too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from lossbench.kernels.catalogue import CATALOGUE, build, spec_of, why_unsupported
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Problem
from lossbench.worker.bench import need_here

SIZES = (64, 32, 256)
PARAMS: dict[str, dict[str, Any]] = {"torch-compile-chunked": {"chunk_rows": 16}}
"""Where the default pads these sizes to many times their rows."""
COUNTED = ["torch-naive", *sorted(n for n, s in CATALOGUE.items() if s.gradients_in_forward)]
FIRST_OPERAND = {"aten::mm": 0, "aten::addmm": 1, "aten::addmm_": 1}


def products_of(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call gives, and its matrix products; x W^T of the whole case is one."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as seen:
        result = call()
    sizes = 0
    for event in seen.events() or ():
        if (first := FIRST_OPERAND.get(event.name)) is not None:
            left, right = event.input_shapes[first : first + 2]
            sizes += left[0] * left[1] * right[1]
    return result, sizes / math.prod(SIZES)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name", COUNTED)
def test_pass_that_makes_the_gradients_is_the_one_that_the_entry_names(
    name: str, reduction: Any
) -> None:
    spec = spec_of(name)
    problem = Problem(*SIZES, dtype="float32", reduction=reduction)
    interpreted = spec.uses_triton and os.environ.get("TRITON_INTERPRET") == "1"
    version = spec.versions[-1] if spec.versions else None
    need = need_here(problem, "cpu", interpreted)
    if reason := why_unsupported(spec, version, {}, need):
        pytest.skip(reason)
    try:
        function = build(name, version, PARAMS.get(name, {}))
    except UnsupportedHere as missing:
        pytest.skip(missing.reason)
    inputs = make_inputs(problem, "cpu", 0).fresh()
    inputs.loss(function)  # what is compiled is compiled

    loss, forward = products_of(lambda: inputs.loss(function))
    upstream = inputs.upstream.to(loss.dtype)
    _, backward = products_of(lambda: torch.autograd.backward(loss, upstream))

    if spec.makes_gradients_in_forward(problem.options_used):
        assert (forward >= 2, backward) == (True, 0)
    else:
        assert (forward, backward >= 2) == (1, True)
