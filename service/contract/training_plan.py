"""A job of kind `train` into cells and lots, a lot for each seed; what it takes, roughly."""

from collections.abc import Sequence
from typing import NamedTuple

from .case import Case
from .catalogue import Catalogue
from .contender import Contender
from .errors import Fault, InvalidRequestError, JobTooLargeError
from .estimate import CHILD_START_S, peak_bytes
from .job import JobRequest
from .machine import ASSUMED, Machine
from .plan import Plan, PlannedCell, plan_job, refuse, resolve_contender
from .run import Lot, TrainingWork
from .training import TrainingArm, TrainingCase, TrainingCell, TrainingSpec, arms_of
from .words import Dtype, Outcome

SHARE_OF_PEAK = {"cpu": 0.5, "cuda": 0.35}
"""Of the machine's product rate, what the products of a small model reach."""
STEP_S = {"cpu": 0.004, "cuda": 0.012}
"""Of a step, for all that is no product."""
BYTES_A_PARAMETER = 16
"""Weight, gradient and two moments of AdamW in float32."""
ACTIVATIONS_A_LAYER = 40
"""Bytes kept for each token and hidden unit of a layer."""


class ModelSize(NamedTuple):
    """Layers, hidden H, heads, width of the MLP; the worker's own table must be equal."""

    layers: int
    hidden: int
    heads: int
    mlp: int

    def parameters(self, vocab: int, tied: bool) -> int:
        """Number of parameters, embedding and head included."""
        layer = 4 * self.hidden**2 + 3 * self.hidden * self.mlp + 2 * self.hidden
        return self.layers * layer + self.hidden + vocab * self.hidden * (1 if tied else 2)


MODEL_SIZES = {
    "1m": ModelSize(2, 192, 3, 512),
    "10m": ModelSize(6, 384, 6, 1024),
    "40m": ModelSize(8, 640, 10, 1728),
    "120m": ModelSize(12, 896, 14, 2432),
    "370m": ModelSize(24, 1024, 16, 2752),
}


def plan_any(
    request: JobRequest,
    catalogue: Catalogue,
    machines: Sequence[Machine] = (),
    max_cells: int = 20_000,
) -> Plan:
    """The plan of a job of any kind; raises as `plan_job` and `plan_training`."""
    plan = plan_training if request.is_training else plan_job
    return plan(request, catalogue, machines, max_cells)


def plan_training(
    request: JobRequest,
    catalogue: Catalogue,
    machines: Sequence[Machine] = (),
    max_cells: int = 20_000,
) -> Plan:
    """Check the contenders and lay out a cell for each of them and each seed.

    `machines` are the live ones; without any nothing is refused. Raises InvalidRequestError (all
    faults at once), UnknownNameError, JobTooLargeError.
    """
    training = request.training or TrainingSpec()
    contenders = _contenders(request, catalogue)
    request = request.model_copy(update={"contenders": contenders})
    arms = arms_of(contenders, training.control)
    count = len(arms) * training.seeds
    if count > max_cells:
        fault = Fault("", "too_many_cells", f"{count} runs; one job may have {max_cells}")
        raise JobTooLargeError([fault])
    serving = [machine for machine in machines if machine.serves(request.accelerator)]
    cells: list[PlannedCell] = []
    lots = []
    for seed in range(training.seeds):
        case = TrainingCase(training=training, seed=seed)
        rows = [_planned(arm, case, catalogue, serving, seed) for arm in arms]
        cells += rows
        work = TrainingWork(seed=seed, contenders=tuple(contenders))
        seconds = sum(row.estimated_s for row in rows if row.outcome is None)
        lots.append(Lot(index=seed, queue=request.accelerator, cases=(work,), estimated_s=seconds))
    if cells[0].outcome is not None:
        message = f"the reference cannot be trained: {cells[0].reason}"
        raise InvalidRequestError([Fault("/contenders/0", "does_not_fit", message)])
    return Plan(
        request=request,
        cells=tuple(cells),
        lots=tuple(lots),
        estimated_s=sum(lot.estimated_s for lot in lots),
        estimated_peak_bytes=max(cell.estimated_peak_bytes for cell in cells),
    )


def _contenders(request: JobRequest, catalogue: Catalogue) -> list[Contender]:
    """The exact contenders, in their order. Raises InvalidRequestError with every fault."""
    found: list[Contender] = []
    faults: list[Fault] = []
    for index, contender in enumerate(request.contenders):
        pointer = f"/contenders/{index}"
        exact, wrong = resolve_contender(contender, catalogue, pointer)
        faults += wrong
        if exact in found:
            faults.append(Fault(pointer, "twice", f"{exact} is given twice"))
        found.append(exact)
    refuse(faults)
    return found


def _planned(
    arm: TrainingArm,
    case: TrainingCase,
    catalogue: Catalogue,
    machines: Sequence[Machine],
    lot: int,
) -> PlannedCell:
    training = case.training
    machine = machines[0] if machines else ASSUMED
    row = catalogue.kernels[arm.contender.kernel]
    seconds = run_seconds(training, machine)
    predicted = run_bytes(training, arm.contender, catalogue, machine)
    dtype = dtype_on(training, machine)
    outcome, reason = None, None
    if late := row.too_new_param(arm.contender):
        outcome = Outcome.UNSUPPORTED
        reason = f"{arm} has no param {late.name}; it came with {late.since}"
    elif dtype not in row.dtypes:
        outcome, reason = Outcome.UNSUPPORTED, f"{row.name} does not take {dtype}"
    elif machines and all(predicted > m.memory_bytes for m in machines):
        room = max(m.memory_bytes for m in machines)
        outcome = Outcome.OUT_OF_MEMORY
        reason = f"predicted {predicted / 2**30:.1f} GiB, the device has {room / 2**30:.1f} GiB"
    return PlannedCell(
        cell=TrainingCell(contender=arm, case=case),
        lot=lot,
        case_index=0,
        estimated_s=seconds,
        estimated_peak_bytes=predicted,
        outcome=outcome,
        reason=reason,
    )


def dtype_on(training: TrainingSpec, machine: Machine) -> Dtype:
    """Element type that the loss sees there."""
    usual = "bfloat16" if machine.device_type == "cuda" else "float32"
    return Dtype(training.dtype or usual)


def run_seconds(training: TrainingSpec, machine: Machine) -> float:
    """Seconds of one run: three passes of products a step at a share of the machine's rate."""
    size, tokens = MODEL_SIZES[training.size], training.tokens_per_step
    used = size.parameters(training.vocab, tied=True)
    attention = size.layers * training.sequence * size.hidden * 2
    flops = 6.0 * tokens * (used + attention)
    rate = machine.gemm_tflops * 1e12 * SHARE_OF_PEAK[machine.device_type]
    step = STEP_S[machine.device_type] + flops / rate
    validation = training.validation_tokens / tokens * flops / rate / 3
    return CHILD_START_S[machine.device_type] + training.steps * step + validation


def run_bytes(
    training: TrainingSpec, contender: Contender, catalogue: Catalogue, machine: Machine
) -> int:
    """Predicted peak of one run: parameters with their optimiser, activations, and the loss."""
    size, tokens = MODEL_SIZES[training.size], training.tokens_per_step
    case = Case(
        tokens=tokens,
        hidden=size.hidden,
        vocab=training.vocab,
        dtype=dtype_on(training, machine),
    )
    fixed = BYTES_A_PARAMETER * size.parameters(training.vocab, training.tied)
    activations = ACTIVATIONS_A_LAYER * size.layers * tokens * size.hidden
    return fixed + activations + peak_bytes(catalogue, contender, case)
