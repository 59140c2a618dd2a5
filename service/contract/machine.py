"""What the service knows of a machine: enough to route, estimate and refuse."""

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field


class Machine(BaseModel):
    """The device of a worker, as it registered itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    device_type: Literal["cpu", "cuda"]
    device_name: str
    memory_bytes: Annotated[int, Field(gt=0)]
    gemm_tflops: Annotated[float, Field(gt=0)]
    hardware_fingerprint: str = ""
    software_fingerprint: str = ""
    queues: tuple[str, ...] = ()

    def serves(self, accelerator: str) -> bool:
        """Whether jobs for this accelerator may run here."""
        return accelerator == "any" or accelerator in self.queues


ASSUMED = Machine(
    device_type="cuda", device_name="assumed GPU", memory_bytes=2**60, gemm_tflops=400.0
)
"""Stands in for estimates while no worker has registered; it refuses nothing."""


def accelerator_name(device_name: str) -> str:
    """Queue name of a device: `NVIDIA H200` -> `h200`, any CPU -> `cpu`."""
    words = [w for w in device_name.lower().replace("_", "-").split() if w not in _VENDOR_WORDS]
    return words[0] if words else "gpu"


_VENDOR_WORDS = frozenset({"nvidia", "geforce", "tesla", "rtx", "quadro", "amd", "instinct"})
