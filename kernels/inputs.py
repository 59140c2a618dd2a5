"""Inputs by recipe, the same for the same seed on the same device. Never zeros.

Recipes: `normal` (W scaled by 1/sqrt(H): logits of standard deviation 1), `unit_normal` (W
unscaled: deviation sqrt(H), a one-hot softmax), `trained` (x leans towards its target's row:
median p(target) about 0.3), `zipf_labels` (normal, labels with frequency 1/rank), `large_logits`
(deviation 16, where bf16 steps are 1/8).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .problem import Inputs, Problem

# logit of the median probability that a trained model gives its target.
_TRAINED_PROBABILITY = 0.3
_LARGE_LOGIT_DEVIATION = 16.0
_BIAS_DEVIATION = 0.1


def trained_alignment(problem: Problem) -> float:
    """How much of its target's row x carries, so that the median p(target) is about 0.3.

    With x = noise + a W_y and |W_y| about 1, the scaled target logit has median s a and the others
    have deviation s sqrt(1 + a^2/H), so lse = ln V + s^2 (1 + a^2/H) / 2. Solve for a; where H is
    too small for the vocabulary, take the largest p that a can reach.
    """
    scale = abs(problem.logit_scale or 1.0)
    odds = math.log(_TRAINED_PROBABILITY / (1 - _TRAINED_PROBABILITY))
    needed = math.log(problem.vocab) + scale**2 / 2 + odds
    discriminant = max(0.0, 1 - 2 * needed / problem.hidden)
    return problem.hidden / scale * (1 - math.sqrt(discriminant))


def _targets(problem: Problem, device: torch.device, generator: torch.Generator) -> Tensor:
    if problem.recipe == "zipf_labels":
        uniform = torch.rand(problem.tokens, device=device, generator=generator)
        # The inverse of the cumulative sum of 1/rank, in its continuous form.
        ranks = torch.exp(uniform.double() * math.log(problem.vocab + 1)) - 1
        return ranks.long().clamp_(0, problem.vocab - 1)
    return torch.randint(
        0, problem.vocab, (problem.tokens,), device=device, generator=generator, dtype=torch.int64
    )


def _ignore_some(
    target: Tensor, problem: Problem, device: torch.device, generator: torch.Generator
) -> Tensor:
    ignored = round(problem.ignored_share * problem.tokens)
    if ignored:
        rows = torch.randperm(problem.tokens, device=device, generator=generator)[:ignored]
        target[rows] = problem.ignore_index
    return target


def _weight(problem: Problem, device: torch.device, generator: torch.Generator) -> Tensor:
    weight = torch.randn(
        problem.vocab, problem.hidden, device=device, generator=generator, dtype=torch.float32
    )
    if problem.recipe != "unit_normal":
        weight *= problem.hidden**-0.5
    return weight.to(problem.torch_dtype)


def _upstream(problem: Problem, device: torch.device, generator: torch.Generator) -> Tensor:
    dtype = torch.float64 if problem.dtype == "float64" else torch.float32
    size = (problem.tokens,) if problem.reduction == "none" else ()
    if problem.upstream == "one":
        return torch.ones(size, device=device, dtype=dtype)
    if problem.reduction == "none":
        return torch.randn(size, device=device, generator=generator, dtype=dtype)
    return torch.rand(size, device=device, generator=generator, dtype=dtype) + 0.5


def make_inputs(problem: Problem, device: torch.device | str, seed: int) -> Inputs:
    """Tensors of the case, detached. Cost: one float32 copy of the weight while it is made."""
    device = torch.device(device)
    generator = torch.Generator(device=device).manual_seed(seed)
    weight = _weight(problem, device, generator)
    x = torch.randn(
        problem.tokens, problem.hidden, device=device, generator=generator, dtype=torch.float32
    )
    target = _targets(problem, device, generator)
    if problem.recipe == "large_logits":
        x *= _LARGE_LOGIT_DEVIATION
    if problem.recipe == "trained":
        sign = -1.0 if (problem.logit_scale or 1.0) < 0 else 1.0
        x += sign * trained_alignment(problem) * weight[target].float()
    bias = class_weight = None
    if problem.bias:
        bias = torch.randn(problem.vocab, device=device, generator=generator) * _BIAS_DEVIATION
        bias = bias.to(problem.torch_dtype)
    if problem.class_weight:
        # Multiples of 1/64 in [0.5, 1.5] are exact in every dtype.
        steps = torch.randint(0, 65, (problem.vocab,), device=device, generator=generator)
        wide = torch.float64 if problem.dtype == "float64" else torch.float32
        class_weight = 0.5 + steps.to(wide) / 64
    return Inputs(
        problem,
        x.to(problem.torch_dtype),
        weight,
        _ignore_some(target, problem, device, generator),
        bias,
        class_weight,
        _upstream(problem, device, generator),
    )
