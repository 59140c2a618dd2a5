"""What this device is and can do, printed as one JSON line by a process of its own.

Run as `python -P -m lossbench.worker.probe [--quick] [--self-test FOLDER]`. The worker's own
process never touches the device: a poisoned CUDA context must cost a child, not the worker.
"""

import contextlib
import hashlib
import json
import os
import platform
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from lossbench.service.contract.errors import SetupError

from .locks import take_device_lock
from .self_test import controls, overheads, self_test
from .vitals import handle_of_device

GEMM_SIZE = {"cuda": 8192, "cpu": 1024}
COPY_BYTES = {"cuda": 2**31, "cpu": 2**27}
RELATIVE_LIMIT = {"cuda": 0.02, "cpu": 1e-4}
VARIABLES = (
    "CUBLAS_",
    "CUDA_",
    "KMP_",
    "MKL_",
    "NVIDIA_TF32_OVERRIDE",
    "OMP_",
    "PYTORCH_",
    "TORCH",
    "TRITON_",
)
SOFTWARE = (
    "torch", "torch_git", "triton", "python", "cuda", "driver", "cublas", "cudnn", "tf32",
    "float32_matmul_precision", "threads",
)  # fmt: skip
"""Facts that a software environment is told by: with another one, times do not compare."""
NO_SPEED = re.compile(r"(_DIR|_PATH|_HOME|_ROOT|_VERSION|_VISIBLE_DEVICES|_DEVICE_ORDER|_LOGS?)$")
"""Variables that say where things are or which device it is: no two machines have them alike."""
SECRET = re.compile("PASSWORD|SECRET|TOKEN|CREDENTIAL|KEY")


def digest(text: str) -> str:
    """First 12 hex digits of SHA-256: enough to tell machines apart, nothing to read back."""
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _seconds(call: Callable[[], Any], repeats: int) -> float:
    call()
    _synchronise()
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    _synchronise()
    return (time.perf_counter() - start) / repeats


def _synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def _rates(device: str, repeats: int) -> dict[str, float]:
    """Matrix product rate in TFLOP/s and copy rate in GB/s, read plus written."""
    n = GEMM_SIZE[device]
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a = torch.randn(n, n, device=device, dtype=dtype)
    b = torch.randn(n, n, device=device, dtype=dtype)
    product_s = _seconds(lambda: torch.mm(a, b), repeats)
    source = torch.empty(COPY_BYTES[device] // 4, device=device, dtype=torch.int32).random_()
    target = torch.empty_like(source)
    copy_s = _seconds(lambda: target.copy_(source), repeats)
    return {
        "gemm_tflops": 2.0 * n**3 / product_s / 1e12,
        "copy_gb_per_s": 2.0 * COPY_BYTES[device] / copy_s / 1e9,
    }


def _device_check(device: str) -> str | None:
    """None, or what is wrong with the device's arithmetic."""
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    a = torch.randn(512, 384, device=device, dtype=dtype)
    b = torch.randn(384, 256, device=device, dtype=dtype)
    got = torch.mm(a, b).double().cpu()
    truth = a.double().cpu() @ b.double().cpu()
    error = float((got - truth).norm() / truth.norm())
    # written so that NaN fails
    if not error < RELATIVE_LIMIT[device]:
        return f"a matrix product has relative error {error:.3g}"
    return None


def _cuda_facts() -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(0)
    cuda_major = (torch.version.cuda or "12").split(".")[0]
    facts: dict[str, Any] = {
        "compute_capability": f"{properties.major}.{properties.minor}",
        "sm_count": properties.multi_processor_count,
        "l2_bytes": getattr(properties, "L2_cache_size", None),
        "cuda": torch.version.cuda,
        "cublas": _version("nvidia-cublas") or _version(f"nvidia-cublas-cu{cuda_major}"),
        "cudnn": torch.backends.cudnn.version(),  # type: ignore[no-untyped-call]
        "allocator_conf": os.environ.get("PYTORCH_CUDA_ALLOC_CONF"),
        "tf32": torch.backends.cuda.matmul.allow_tf32,
    }
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = handle_of_device(pynvml)
    except Exception as error:  # NVML raises many types; each only costs these facts
        return facts | {"nvml": f"not readable: {type(error).__name__}"}
    readings: dict[str, Callable[[], Any]] = {
        "driver": pynvml.nvmlSystemGetDriverVersion,
        "power_limit_w": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "max_sm_clock_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
        "ecc": lambda: bool(pynvml.nvmlDeviceGetEccMode(handle)[0]),
        "mig": lambda: bool(pynvml.nvmlDeviceGetMigMode(handle)[0]),
        "persistence": lambda: bool(pynvml.nvmlDeviceGetPersistenceMode(handle)),
    }
    for name, read in readings.items():
        # not every card has every reading
        with contextlib.suppress(Exception):
            facts[name] = read()
    return facts


def variables_that_matter() -> str:
    """Environment variables that change how kernels run, as JSON: part of what was measured."""
    chosen = {
        name: value[:200]
        for name, value in sorted(os.environ.items())
        if name.startswith(VARIABLES) and not SECRET.search(name)
    }
    return json.dumps(chosen)


def variables_of_speed(variables: Mapping[str, str]) -> dict[str, str]:
    """Those of the variables that matter whose change may change a time."""
    return {name: value for name, value in variables.items() if not NO_SPEED.search(name)}


def _cpu_name() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:
            for line in lines:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def describe(quick: bool = False) -> dict[str, Any]:
    """An `Environment` as plain data, plus `device_check`: null or what is wrong."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cuda":
        properties = torch.cuda.get_device_properties(0)
        name, memory = properties.name, properties.total_memory
        uuid = str(getattr(properties, "uuid", properties.name))
        facts = _cuda_facts()
    else:
        pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        name, memory, uuid = _cpu_name(), pages * page_bytes, socket.gethostname()
        facts = {"threads": torch.get_num_threads()}
    facts |= {
        "torch": torch.__version__,
        "torch_git": torch.version.git_version,
        "triton": _version("triton"),
        "python": platform.python_version(),
        "os": platform.platform(),
        "cpu": _cpu_name(),
        "cpu_count": os.cpu_count(),
        "hostname_hash": digest(socket.gethostname()),
        "lossbench": _version("lossbench"),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "container": os.environ.get("LOSSBENCH_IMAGE_DIGEST"),
        "variables": variables_that_matter(),
    }
    software = [facts.get(key) for key in SOFTWARE]
    software.append(variables_of_speed(json.loads(facts["variables"])))
    facts |= _rates(device, 3 if quick else 20) | overheads(device) | controls(device)
    return {
        "device_type": device,
        "device_name": name,
        "device_uuid_hash": digest(uuid),
        "memory_bytes": memory,
        "facts": facts,
        "hardware_fingerprint": digest(f"{name} {memory} {uuid} {facts.get('power_limit_w')}"),
        "software_fingerprint": digest(json.dumps(software)),
        "device_check": _device_check(device),
    }


def main(arguments: Sequence[str]) -> None:
    """Print the description; with `--self-test FOLDER` the A/A test's result beside it.

    FOLDER holds the locks of devices: the test must not disturb a worker that measures on this one.
    """
    quick = "--quick" in arguments
    found = describe(quick)
    if "--self-test" in arguments:
        folder = Path(arguments[arguments.index("--self-test") + 1])
        # the worker itself will say that another one is there
        with contextlib.suppress(SetupError):
            take_device_lock(folder, found["device_uuid_hash"])
            found["self_test"] = self_test(found["device_type"], quick)
            found["facts"]["self_test_passed"] = found["self_test"]["passed"]
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
