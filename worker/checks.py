"""One contender through the cases of the correctness grid, inside a measuring process."""

import sys
import warnings
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lossbench.kernels.catalogue import build, spec_of, why_unsupported
from lossbench.kernels.checks.calls import WITHOUT_TRUTH, Observed, observe, part_with_truth
from lossbench.kernels.checks.cases import CheckCase, inputs_of, widened
from lossbench.kernels.checks.grid import OWN_KERNEL
from lossbench.kernels.checks.truth import exact_loss
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.problem import Inputs
from lossbench.kernels.protocol import LossFunction
from lossbench.service.contract.check import NEEDS_GPU, CaseCheck
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import OutputError
from lossbench.service.contract.words import Dtype, Grade, Outcome
from lossbench.service.statistics.grade import error_ratio, grade_of, judge

from .accuracy import compare_output
from .bench import YARDSTICKS, need_here
from .guards import TimerGuard, is_own, kernels_of

EXTRA_OPTIONS = {"micro_batches": "reduction_sum"}
"""Options that a way of calling needs beside those of its problem."""


class _Compared(NamedTuple):
    name: str
    error: OutputError


def blank(case: CheckCase, outcome: Outcome, reason: str | None = None) -> CaseCheck:
    """A case without a comparison."""
    return CaseCheck(
        case=case.id,
        group=case.group,
        what=case.what,
        options=tuple(sorted(case.problem.options_used)),
        dtype=Dtype(case.problem.dtype),
        source=case.source,
        outcome=outcome,
        reason=reason,
    )


def _output_name(name: str) -> str:
    """ "dx_second" and "dw_rest" are errors of dx and dw."""
    return name.partition("_")[0]


def _errors(
    got: Observed, truth: Observed, yardsticks: dict[str, Observed], dtype: Dtype
) -> list[_Compared]:
    compared = []
    for name, expected in truth.outputs.items():
        if expected is None:
            continue
        output = _output_name(name)
        own = compare_output(got.outputs.get(name), expected)
        yardstick = _yardstick(name, expected, yardsticks)
        ratio = None
        if own.relative_l2 is not None and yardstick is not None:
            ratio = error_ratio(output, own.relative_l2, yardstick, dtype)
        error = OutputError.model_validate(
            {
                **_finite(vars(own)),
                "output": output,
                "ratio": ratio,
                "yardstick_relative_l2": yardstick,
            }
        )
        compared.append(_Compared(name, error))
    return compared


def _finite(numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        name: None if isinstance(value, float) and not abs(value) < float("inf") else value
        for name, value in numbers.items()
    }


def _yardstick(name: str, expected: Tensor, yardsticks: dict[str, Observed]) -> float | None:
    kernel = YARDSTICKS[_output_name(name)]
    if kernel not in yardsticks:
        return None
    error = compare_output(yardsticks[kernel].outputs.get(name), expected).relative_l2
    return error if error is not None and error < float("inf") else None


def judged(case: CheckCase, got: Observed, compared: list[_Compared]) -> CaseCheck:
    """The verdict of a case: exact faults first, then the worst of its outputs."""
    base = blank(case, Outcome.OK).model_copy(update={"notes": tuple(got.notes)})
    if compared:
        worst = max(compared, key=lambda item: _badness(item.error))
        base = base.model_copy(
            update={
                "worst_output": worst.name,
                "relative_l2": worst.error.relative_l2,
                "ratio": worst.error.ratio,
            }
        )
    if got.faults:
        return base.model_copy(update={"outcome": Outcome.WRONG, "reason": "; ".join(got.faults)})
    for name, error in sorted(compared, key=lambda item: -_badness(item.error)):
        judgement = judge([error])
        if judgement.outcome is Outcome.WRONG:
            reason = (judgement.reason or "").replace(error.output, name, 1)
            return base.model_copy(update={"outcome": Outcome.WRONG, "reason": reason})
    grade = grade_of(base.ratio) if base.ratio is not None else None
    if not compared:
        grade = Grade.EXACT
    return base.model_copy(update={"grade": grade})


def _badness(error: OutputError) -> float:
    if error.not_finite or error.relative_l2 is None:
        return float("inf")
    return error.ratio if error.ratio is not None else error.relative_l2


def check_function(function: LossFunction, case: CheckCase, device: str) -> CaseCheck:
    """Ask a function one case. Raises whatever the function raises."""
    inputs = inputs_of(case, device)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        got = observe(function, case, _copy(inputs))
    got.notes += sorted({_first_line(str(w.message)) for w in caught if _is_telling(w)})
    if case.call in WITHOUT_TRUTH:
        return judged(case, got, [])
    part = part_with_truth(case, inputs)
    truth = observe(exact_loss, case, widened(_copy(part)))
    yardsticks = {}
    for kernel in dict.fromkeys(YARDSTICKS.values()):
        yardsticks[kernel] = observe(build(kernel, None, {}), case, _copy(part))
    return judged(case, got, _errors(got, truth, yardsticks, Dtype(case.problem.dtype)))


def _is_telling(warning: warnings.WarningMessage) -> bool:
    """A fall back to another path is told; the rest is noise."""
    return any(word in str(warning.message).lower() for word in ("fall", "not fused", "unfused"))


def _first_line(text: str) -> str:
    return next(iter(text.splitlines()), "")[:200]


def _copy(inputs: Inputs) -> Inputs:
    """Inputs whose storage nobody else has, with the same strides.

    What a contender writes into them reaches neither the truth nor the yardsticks.
    """

    def own(tensor: Tensor) -> Tensor:
        if 0 in tensor.stride():
            # many places of an expanded tensor are one in memory: that one is copied
            once = tuple(slice(None) if stride else slice(0, 1) for stride in tensor.stride())
            return tensor[once].clone().expand(tensor.shape)
        # a column slice keeps its row stride: its whole storage is copied
        storage = torch.empty_strided(
            tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device
        )
        return storage.copy_(tensor)

    return replace(
        inputs,
        x=own(inputs.x),
        weight=own(inputs.weight),
        target=own(inputs.target),
        bias=None if inputs.bias is None else own(inputs.bias),
        class_weight=None if inputs.class_weight is None else own(inputs.class_weight),
        upstream=own(inputs.upstream),
    )


def _forget_compiled() -> None:
    """Every case compiles as a fresh process would: torch.compile gives up after 8 shapes."""
    if (dynamo := sys.modules.get("torch._dynamo")) is not None:
        dynamo.reset()


class GridChecker:
    """One contender in this process, built once."""

    def __init__(self, contender: Contender, device: str, interpreted: bool) -> None:
        self._contender, self._device, self._interpreted = contender, device, interpreted
        self._guard = TimerGuard()
        self._function: LossFunction | None = None

    def why_not(self, case: CheckCase) -> str | None:
        """Why this contender cannot be asked this case here, or None."""
        if case.needs_gpu and self._device != "cuda":
            return NEEDS_GPU
        spec = spec_of(self._contender.kernel)
        need = need_here(case.problem, self._device, self._interpreted and spec.uses_triton)
        extra = EXTRA_OPTIONS.get(case.call)
        need = replace(need, options=need.options | ({extra} if extra else set()))
        return why_unsupported(spec, self._contender.version, self._contender.params, need)

    def check(self, case: CheckCase) -> CaseCheck:
        """The verdict of one case. Raises what the contender raises."""
        if reason := self.why_not(case):
            return blank(case, Outcome.UNSUPPORTED, reason)
        try:
            if self._function is None:
                contender = self._contender
                self._function = build(contender.kernel, contender.version, contender.params)
            if case.id == OWN_KERNEL:
                return self._own_kernel(self._function, case)
            found = check_function(self._function, case, self._device)
        except UnsupportedHere as unsupported:
            return blank(case, Outcome.UNSUPPORTED, unsupported.reason)
        finally:
            _forget_compiled()
        if faults := self._guard.replaced():
            found = found.model_copy(
                update={"outcome": Outcome.WRONG, "grade": None, "reason": "; ".join(faults)}
            )
        return found

    def _own_kernel(self, function: LossFunction, case: CheckCase) -> CaseCheck:
        """Whether a GPU kernel of its own ran in a call; the names of all are its notes."""
        inputs = inputs_of(case, self._device)
        observe(function, case, inputs)
        names = kernels_of(lambda: observe(function, case, inputs))
        wanted = spec_of(self._contender.kernel).kernel_names
        base = blank(case, Outcome.OK).model_copy(update={"notes": tuple(names)})
        if wanted and not is_own(wanted, names):
            reason = f"none of its own kernels ran ({', '.join(wanted)})"
            return base.model_copy(update={"outcome": Outcome.WRONG, "reason": reason})
        return base.model_copy(update={"grade": Grade.EXACT})
