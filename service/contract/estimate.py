"""Predictions made before anything starts: peak bytes and seconds of a cell.

Memory comes from the catalogue's workspace formulas; time from the products a pass needs over the
matrix rate of the device, plus what warm-up, visits and errors cost. Honest to a factor of two.
"""

from collections.abc import Mapping

from .case import Case
from .catalogue import Catalogue, KernelRow, Term, is_older
from .contender import Contender, ParamValue
from .machine import Machine
from .words import Pass

VISITS = 6
VISIT_S = 0.4
"""One visit: 0.3 s of samples behind 0.1 s of lead-in."""
SAMPLES_PER_ARM = 20
COMPILE_S = {"cpu": 20.0, "cuda": 8.0}
CHILD_START_S = {"cpu": 5.0, "cuda": 14.0}
"""Seconds until a measuring process has torch, its context and the inputs."""
INTERPRETED_S_PER_LOGIT = 2e-6
"""Triton's interpreter on two cores, one forward and backward (2026-11-30)."""
FLCE_SINGLE_CHUNK_BYTES = 2 * 2**30
FLCE_LEAST_ROWS = 4096
FLCE_ROW_MULTIPLE = 128
"""Chunk rule of flce; a test holds it against the kernel's own."""
PRODUCTS = {Pass.FORWARD: 1, Pass.BACKWARD: 2, Pass.FORWARD_BACKWARD: 3}


def call_seconds(case: Case, pass_: Pass, machine: Machine) -> float:
    """Seconds of one call at the bare product rate of the machine."""
    flops = PRODUCTS[pass_] * 2.0 * case.max_tokens * case.hidden * case.vocab
    return flops / (machine.gemm_tflops * 1e12)


def cell_seconds(
    kernel: KernelRow, case: Case, pass_: Pass, processes: int, machine: Machine
) -> float:
    """Seconds that measuring one cell takes, baseline and floor beside it included."""
    device = machine.device_type
    call = call_seconds(case, pass_, machine)
    per_arm = max(VISITS * VISIT_S, (SAMPLES_PER_ARM + VISITS) * call)
    compile_s = COMPILE_S[device] if kernel.needs_compiler else 1.0
    reference_s = 30 * call
    if kernel.uses_triton and device == "cpu":
        # the interpreter runs one correctness call and no visits
        return CHILD_START_S[device] + INTERPRETED_S_PER_LOGIT * case.max_tokens * case.vocab
    return reference_s + compile_s + processes * (CHILD_START_S[device] / 2 + 1.6 * per_arm)


def _ceil(value: int, divisor: int) -> int:
    return -(-value // divisor)


def _power_of_two(value: int) -> int:
    return 1 << (value - 1).bit_length()


def _whole(value: ParamValue, otherwise: int) -> int:
    return value if isinstance(value, int) else otherwise


def chunk_rows(kernel: KernelRow, params: Mapping[str, ParamValue], case: Case) -> int:
    """Rows of one chunk under the kernel's own rule (`chunk_rule` of the catalogue)."""
    n, h, v = case.max_tokens, case.hidden, case.vocab
    rule, _, name = kernel.chunk_rule.partition(":")
    asked = params.get(name or "chunk_rows")
    if rule == "fixed":
        return int(asked) if isinstance(asked, int) and asked else n
    if rule == "liger":
        factor = params.get("chunk_mem_const")
        chunks = _ceil(v, h * (factor if isinstance(factor, int) else 1))
        return min(n, _power_of_two(_ceil(n, chunks)))
    if rule == "split":
        return min(n, _power_of_two(_ceil(n, min(_whole(asked, 1), _ceil(v, h)))))
    if rule == "aspect":
        if isinstance(asked, int):
            return max(1, min(asked, n))
        return max(1, _power_of_two(_ceil(n, _ceil(v, h))) // 2)
    if rule == "flce":
        if isinstance(asked, int):
            return max(1, min(asked, n))
        if case.dtype.bytes * n * v <= max(4 * v * h, FLCE_SINGLE_CHUNK_BYTES):
            return n
        balanced = _ceil(n, max(1, n // FLCE_LEAST_ROWS))
        return min(_ceil(balanced, FLCE_ROW_MULTIPLE) * FLCE_ROW_MULTIPLE, n)
    return n


def _applies(
    term: Term, params: Mapping[str, ParamValue], chunks: int, version: str | None
) -> bool:
    if any(params.get(name) != value for name, value in term.when.items()):
        return False
    if term.chunked is not None and term.chunked != (chunks > 1):
        return False
    if term.since and version and is_older(version, term.since):
        return False
    return not term.before or (version is not None and is_older(version, term.before))


def peak_bytes(catalogue: Catalogue, contender: Contender, case: Case) -> int:
    """Predicted peak of a forward and backward: inputs, outputs and workspace, in bytes."""
    kernel = catalogue.kernels[contender.kernel]
    params = {param.name: param.default for param in kernel.params} | contender.params
    n, h, v = case.max_tokens, case.hidden, case.vocab
    rows = chunk_rows(kernel, params, case)
    chunks = max(1, _ceil(n, rows))
    sizes = {"N": n, "V": v, "NV": n * v, "CV": rows * v, "VH": v * h, "NH": n * h}
    sizes |= {"K": chunks, "KVH": chunks * v * h}
    version = (contender.version or kernel.latest) if kernel.versions else None

    def total(terms: tuple[Term, ...]) -> float:
        return sum(
            max(0.0, term.elements * case.dtype.bytes + term.bytes) * sizes[term.symbol]
            for term in terms
            if _applies(term, params, chunks, version)
        )

    memory = kernel.memory
    workspace = max(total(memory.forward), total(memory.backward))
    # of NH and VH there are inputs and gradients
    gradients = case.dtype.bytes * (n * h + v * h)
    early = total(memory.before_outputs) - gradients
    return int(total(catalogue.inputs_and_outputs) + max(workspace, early))
