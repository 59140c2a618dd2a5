"""`lossbench doctor --measure`: proving processes one after the other on this device."""

import os
from collections.abc import Callable, Generator, Sequence
from typing import Any

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import SetupError
from lossbench.service.contract.run import Environment
from lossbench.service.settings import Settings

from .device import probe_device
from .locks import take_device_lock
from .measure import VISITS
from .proof_figures import figures
from .proof_task import ProofProcess, ProofTask

GPU_CASES = (
    "N8192-H4096-V32000-bfloat16",
    "N8192-H2048-V128256-bfloat16",
    "N8192-H4096-V128256-bfloat16",
    "N32768-H2048-V128000-bfloat16",
)
"""About 9, 20, 40 and 90 ms a call on an H200."""
CPU_CASES = (
    "N128-H64-V1024-float32",
    "N256-H128-V2048-float32",
    "N512-H128-V4096-float32",
)
"""About 1, 5 and 30 ms a call on two cores."""
MEMORY_SHARE = 0.5
"""Of the device's memory, for the tensors of a case: both copies of inputs and all gradients."""
PROCESSES = {True: 3, False: 8}
"""By `quick`: three give a verdict, eight a deviation that can be believed."""


def contender_of(device_type: str) -> Contender:
    """What is timed: our fused kernel on a GPU, torch's own chain on a CPU."""
    return Contender(kernel="flce" if device_type == "cuda" else "torch-upcast")


def cases_for(environment: Environment, quick: bool) -> tuple[Case, ...]:
    """Duration classes that fit this device; the two middle ones when quick."""
    gpu = environment.device_type == "cuda"
    texts = GPU_CASES if gpu else CPU_CASES
    cases = [Case.parse(text) for text in texts]
    fitting = [c for c in cases if _bytes_of(c) < MEMORY_SHARE * environment.memory_bytes]
    return tuple(fitting[:3][-2:] if quick and gpu else fitting[:2] if quick else fitting)


def _bytes_of(case: Case) -> int:
    """Inputs twice, gradients once, and a block of logits in the reference's place."""
    width = case.dtype.bytes
    return 4 * width * case.hidden * (case.max_tokens + case.vocab) + width * case.vocab * 4096


def prove(
    cases: Sequence[Case],
    contender: Contender,
    processes: Sequence[int],
    quick: bool = False,
    start_ahead: bool = False,
    visits: int = VISITS,
) -> Generator[dict[str, Any]]:
    """Lines of every process and shape. `start_ahead`: the next one imports while one measures.

    Importing takes ten seconds and does not touch a GPU; on a CPU it would disturb the timing.
    """
    waiting: ProofProcess | None = None
    try:
        for index, number in enumerate(processes):
            with waiting or ProofProcess() as running:
                waiting = ProofProcess() if start_ahead and index + 1 < len(processes) else None
                task = ProofTask(
                    process=number,
                    cases=tuple(cases),
                    contender=contender,
                    quick=quick,
                    visits=visits,
                )
                yield from running.lines(task)
    finally:
        if waiting is not None:
            waiting.close()


def prove_device(
    settings: Settings, quick: bool, say: Callable[[str], None]
) -> tuple[Environment, dict[str, Any]]:
    """Environment and figures of this machine. Raises SetupError if it can measure nothing."""
    environment, fault = probe_device(quick=True)
    if fault is not None:
        raise SetupError(f"the device is not right: {fault}")
    # held while measuring: a worker beside it would disturb both
    lock_fd = take_device_lock(settings.prepared_data_dir(), environment.device_uuid_hash)
    cases = cases_for(environment, quick)
    gpu = environment.device_type == "cuda"
    lines = []
    contender, processes = contender_of(environment.device_type), range(PROCESSES[quick])
    try:
        for line in prove(cases, contender, processes, quick, start_ahead=gpu):
            lines.append(line)
            say(f"process {line['process'] + 1} of {len(processes)}: {line['case']}")
    finally:
        os.close(lock_fd)
    found = figures(lines)
    if not found["classes"]:
        reasons = "; ".join(sorted({line["failed"] for line in found["failed"]}))
        raise SetupError(f"nothing could be measured here: {reasons or 'no case fits'}")
    return environment, {**found, "quick": quick}
