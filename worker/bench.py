"""One case on one device inside a measuring process: inputs, arms, checks."""

import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import Tensor

from lossbench.kernels.catalogue import KernelSpec, Need, build, spec_of, why_unsupported
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.floor import Floor
from lossbench.kernels.inputs import make_inputs
from lossbench.kernels.problem import Inputs, Problem
from lossbench.kernels.protocol import LossFunction
from lossbench.kernels.reference import Reference, reference
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.words import Pass

from .accuracy import OutputComparison, checksum, compare_output, unwritten_rows
from .arms import ContenderArm, FloorArm, Leaves
from .guards import TimerGuard, is_own, kernels_of
from .memory import Step, measure_memory, memory_ran_out, tensor_bytes
from .timing import CpuStopwatch, CudaStopwatch, Stopwatch, Timed

READY_CALLS = 3
GUARD = TimerGuard()
_KERNELS_RUN: dict[tuple[str, str], list[str]] = {}
"""Kernels of one call by contender and case: dtype, options and sizes all choose paths."""
OUTPUTS = ("loss", "dx", "dw", "db")
NO_TRUTH = Reference(torch.empty(0), None, None, None)
YARDSTICKS = {"loss": "torch-upcast", "dx": "torch-naive", "dw": "torch-naive", "db": "torch-naive"}


def problem_of(case: Case) -> Problem:
    """The kernels' own description of a case. Raises UnsupportedHere for a stream."""
    if not isinstance(case.tokens, int):
        raise UnsupportedHere("streams of token counts cannot be measured by this version")
    options = case.options.model_dump(exclude={"accumulate"})
    return Problem(
        tokens=case.tokens,
        hidden=case.hidden,
        vocab=case.vocab,
        dtype=case.dtype.value,
        recipe=case.recipe.value,
        **options,
    )


@dataclass
class _Contender:
    text: str
    function: LossFunction
    version: str | None
    uses_triton: bool
    gradients_in_forward: bool
    kernel_names: tuple[str, ...]


class CaseBench:
    """Everything of one case in this process; `release` by dropping it."""

    def __init__(self, case: Case, seed: int, device: str, interpreted: bool) -> None:
        self.case, self.device, self.interpreted = case, device, interpreted
        self.problem = problem_of(case)
        self._inputs = make_inputs(self.problem, device, seed)
        self.leaves = Leaves(self._inputs, case.options.accumulate)
        self.stopwatch: Stopwatch = CudaStopwatch() if device == "cuda" else CpuStopwatch()
        self.arms: dict[str, Timed] = {}
        self._contenders: dict[str, _Contender] = {}
        self._checks: dict[str, dict[str, Any]] = {}
        self._floor: Floor | None = None
        self._truth: Reference | None = None
        self._yardstick: dict[str, OutputComparison] | None = None
        self._inputs_bits = self._input_checksum()

    def _input_checksum(self) -> str:
        return checksum(_tensors(self.leaves.inputs))

    def _restore_inputs(self) -> bool:
        """Whether a contender changed its inputs; they are right again for the next one."""
        if self._input_checksum() == self._inputs_bits:
            return False
        for held, own in zip(_tensors(self.leaves.inputs), _tensors(self._inputs), strict=True):
            if held is not None and own is not None:
                held.data.copy_(own)
        return True

    def add_contender(self, arm: str, contender: Contender, pass_: Pass) -> dict[str, Any]:
        """Build, compile and run a contender; facts about it. Raises UnsupportedHere."""
        found = self._contenders.get(contender.text) or self._build(contender)
        timed = ContenderArm(found.function, self.leaves, pass_)
        calls = [] if self.interpreted else self._first_calls(timed)
        self.arms[arm] = timed
        self._contenders[contender.text] = found
        self.leaves.clear()
        return {
            "version": found.version,
            "gradients_in_forward": found.gradients_in_forward,
            "interpreted": self.interpreted and found.uses_triton,
            "first_call_s": calls[0] / 1e3 if calls else 0.0,
            "compile_s": max(0.0, calls[0] - statistics.median(calls[1:])) / 1e3 if calls else 0.0,
        }

    def _build(self, contender: Contender) -> _Contender:
        spec = spec_of(contender.kernel)
        torch_version = torch.__version__.split("+")[0]
        version = contender.version if spec.versions else torch_version
        if not spec.versions and contender.version not in (None, torch_version):
            raise UnsupportedHere(
                f"{contender} asks for another torch; this one is {torch_version}"
            )
        reason = why_unsupported(spec, version, contender.params, self._need())
        if reason is not None:
            raise UnsupportedHere(reason)
        return _Contender(
            text=contender.text,
            kernel_names=names_to_prove(spec, self.problem.dtype),
            function=build(contender.kernel, version, contender.params),
            version=version,
            uses_triton=spec.uses_triton,
            gradients_in_forward=spec.makes_gradients_in_forward(self.problem.options_used),
        )

    def _need(self) -> Need:
        return need_here(self.problem, self.device, self.interpreted)

    def _first_calls(self, timed: Timed) -> list[float]:
        """Milliseconds of the first calls, the compiling one included."""
        taken = []
        for _ in range(READY_CALLS):
            began = time.perf_counter()
            self.stopwatch.time(timed)
            taken.append((time.perf_counter() - began) * 1e3)
        return taken

    def add_floor(self, arm: str, pass_: Pass) -> None:
        """Make ready the bare products; the true dZ is made once for all passes."""
        self._floor = self._floor or Floor(self._inputs)
        self.arms[arm] = FloorArm(self._floor, pass_)
        self._first_calls(self.arms[arm])

    def check(self, arm: str, only_bits: bool) -> dict[str, Any]:
        """Errors, bit checks and memory of an arm's contender, measured once for all passes."""
        timed = self.arms[arm]
        if not isinstance(timed, ContenderArm):
            raise TypeError(f"{arm} is no contender")
        key = f"{id(timed.function)} {only_bits}"
        if key not in self._checks:
            found = next(c for c in self._contenders.values() if c.function is timed.function)
            whole = ContenderArm(timed.function, self.leaves, Pass.FORWARD_BACKWARD)
            self._checks[key] = self._bits(whole) if only_bits else self._check(whole, found)
        return self._checks[key]

    def _bits(self, timed: ContenderArm) -> dict[str, Any]:
        self._restore_inputs()
        bits = checksum(list(self._timed_outputs(timed).values()))
        self.leaves.clear()
        return {"checksum": bits}

    def _check(self, timed: ContenderArm, contender: _Contender) -> dict[str, Any]:
        self._restore_inputs()
        outputs = self._timed_outputs(timed)
        bits = checksum(list(outputs.values()))
        truth = self._reference()
        compared = self._compare(outputs, truth)
        faults = self._exact_faults(outputs) + self._unwritten(outputs, truth)
        notes = ["no_reference"] if truth is NO_TRUTH else []
        if compared and not bool((self._inputs.target != self.problem.ignore_index).any()):
            compared, notes = _empty_batch(outputs, compared)
        outputs.clear()
        repeats = True
        if not self.interpreted:
            repeats = checksum(list(self._timed_outputs(timed).values())) == bits
        self.leaves.clear()
        if self._restore_inputs():
            faults.append("it changed its inputs")
        faults += GUARD.replaced()
        kernels = self._kernels_run(timed, contender)
        if kernels and contender.kernel_names and not is_own(contender.kernel_names, kernels):
            wanted = ", ".join(contender.kernel_names)
            faults.append(f"it fell back: none of its own kernels ran ({wanted})")
        yardstick = self._yardstick_errors(truth)
        return {
            "outputs": {name: asdict(value) for name, value in compared.items()},
            "yardstick": {name: value.relative_l2 for name, value in yardstick.items()},
            "faults": faults,
            "notes": notes,
            "checksum": bits,
            "deterministic": repeats,
            "memory": self._memory(timed),
            "kernels": kernels,
        }

    def _kernels_run(self, timed: ContenderArm, contender: _Contender) -> list[str]:
        """GPU kernels of one call, looked at once in a process for each contender and case."""
        if self.device != "cuda":
            return []
        key = (contender.text, self.case.text)
        if key not in _KERNELS_RUN:
            self.leaves.clear()
            _KERNELS_RUN[key] = kernels_of(timed.call)
            self.leaves.clear()
        return _KERNELS_RUN[key]

    def _timed_outputs(self, timed: ContenderArm) -> dict[str, Tensor | None]:
        """Loss and gradients of a call that went through the stopwatch like every other."""
        self.leaves.clear()
        losses: list[Tensor] = []
        catcher = _LossCatcher(timed, losses)
        self.stopwatch.time(catcher)
        outputs: dict[str, Tensor | None] = {"loss": losses[0].detach()}
        outputs |= self.leaves.gradients()
        for tensor in self.leaves.trained:
            tensor.grad = None
        return outputs

    def _reference(self) -> Reference:
        """The float64 truth; `NO_TRUTH` where it does not fit: that is no fault of a contender."""
        if self._truth is None:
            try:
                self._truth = reference(self._inputs, self.problem)
            except (RuntimeError, MemoryError) as error:
                if not memory_ran_out(error):
                    raise
                self._truth = NO_TRUTH
        return self._truth

    def _compare(
        self, outputs: dict[str, Tensor | None], truth: Reference
    ) -> dict[str, OutputComparison]:
        return {
            name: compare_output(outputs[name], expected)
            for name in OUTPUTS
            if truth is not NO_TRUTH and (expected := getattr(truth, name)) is not None
        }

    def _exact_faults(self, outputs: dict[str, Tensor | None]) -> list[str]:
        """Checks whose right value is known without rounding."""
        faults = []
        frozen = {"input": "dx", "weight": "dw"}.get(self.problem.frozen or "")
        if frozen and outputs[frozen] is not None:
            faults.append(f"{frozen} was made for a frozen tensor")
        dx = outputs["dx"]
        ignored = self._inputs.target == self.problem.ignore_index
        if dx is not None and bool(ignored.any()) and bool((dx[ignored] != 0).any()):
            faults.append("dx of an ignored row is not zero")
        return faults

    def _unwritten(self, outputs: dict[str, Tensor | None], truth: Reference) -> list[str]:
        """Rows of dx with a valid label, and of dW that are a label, that were never written."""
        target = self._inputs.target
        valid = target != self.problem.ignore_index
        labels = torch.zeros(self.problem.vocab, dtype=torch.bool, device=target.device)
        labels[target[valid]] = True
        faults = []
        for name, rows in (("dx", valid), ("dw", labels)):
            got, expected = outputs[name], getattr(truth, name)
            if got is None or expected is None:
                continue
            if count := unwritten_rows(got, expected, rows):
                faults.append(f"{count} rows of {name} are zero where the truth is not")
        return faults

    def _yardstick_errors(self, truth: Reference) -> dict[str, OutputComparison]:
        """Torch's own errors in this dtype: naive for gradients, upcast for the loss."""
        if self._yardstick is None:
            self._yardstick = {}
            for kernel in dict.fromkeys(YARDSTICKS.values()):
                try:
                    self._yardstick |= self._errors_of(kernel, truth)
                except UnsupportedHere:
                    continue
                except (RuntimeError, MemoryError) as error:
                    if not memory_ran_out(error):
                        raise
        return self._yardstick

    def _errors_of(self, kernel: str, truth: Reference) -> dict[str, OutputComparison]:
        arm = ContenderArm(build(kernel, None, {}), self.leaves, Pass.FORWARD_BACKWARD)
        compared = self._compare(self._timed_outputs(arm), truth)
        return {name: value for name, value in compared.items() if YARDSTICKS[name] == kernel}

    def _memory(self, timed: ContenderArm) -> dict[str, Any] | None:
        if self.interpreted:
            return None

        # gradients that are accumulated into were there before: they are no output of the step
        made = [] if self.case.options.accumulate else self.leaves.trained

        def outputs_bytes(loss: Tensor) -> int:
            return tensor_bytes(loss) + sum(tensor_bytes(t.grad) for t in made)

        step = Step(self.leaves.keep_or_drop, timed.forward, timed.backward, outputs_bytes)
        use, equal = measure_memory(step, self.device)
        self.leaves.clear()
        return {**asdict(use), "workspace_bytes": use.workspace_bytes, "repeats_equal": equal}


def _tensors(inputs: Inputs) -> list[Tensor | None]:
    held = inputs
    return [held.x, held.weight, held.target, held.bias, held.class_weight, held.upstream]


class _LossCatcher:
    """A forward_backward call that also keeps the loss."""

    def __init__(self, timed: ContenderArm, losses: list[Tensor]) -> None:
        self._timed, self._losses = timed, losses

    def before(self) -> None:
        """Gradients were cleared by the caller."""

    def call(self) -> None:
        """Forward and backward."""
        loss = self._timed.forward()
        self._timed.backward(loss)
        self._losses.append(loss)


def _empty_batch(
    outputs: dict[str, Tensor | None], compared: dict[str, OutputComparison]
) -> tuple[dict[str, OutputComparison], list[str]]:
    """No valid label: loss 0 and gradients 0 are right; a NaN loss with zero gradients is noted."""
    gradients = [g for name, g in outputs.items() if name != "loss" and g is not None]
    loss = outputs["loss"]
    if loss is None or not bool(torch.isnan(loss).all()):
        return compared, []
    if any(bool((gradient != 0).any()) for gradient in gradients):
        return compared, []
    return {**compared, "loss": replace(compared["loss"], relative_l2=0.0, not_finite=0)}, [
        "nan_on_empty"
    ]


def names_to_prove(spec: KernelSpec, dtype: str) -> tuple[str, ...]:
    """Names of which a GPU kernel must have run; none where the plain path is the declared one."""
    return () if spec.fallback and dtype == "float64" else spec.kernel_names


def need_here(problem: Problem, device: str, interpreted: bool) -> Need:
    """What the case asks of a contender on this machine."""
    capability: Callable[[], tuple[int, int]] = torch.cuda.get_device_capability
    return Need(
        dtype=problem.dtype,
        options=problem.options_used,
        device_type=device,
        torch_version=torch.__version__.split("+")[0],
        triton_version=_triton_version(),
        compute_capability=capability() if device == "cuda" else None,
        interpreted=interpreted,
        compiler=_has_compiler(),
        sizes={"N": problem.tokens, "H": problem.hidden, "V": problem.vocab},
    )


def _triton_version() -> str | None:
    try:
        import triton
    except ImportError:
        return None
    return str(triton.__version__)


def _has_compiler() -> bool:
    import shutil

    return any(shutil.which(name) for name in ("g++", "clang++", "c++"))
