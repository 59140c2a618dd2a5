"""On a CPU a Triton kernel runs interpreted: what cannot end within its timeout is refused."""

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.plan import PlannedCell, plan_job
from lossbench.service.contract.words import Outcome

CPU = Machine(
    device_type="cpu", device_name="a CPU", memory_bytes=2**45, gemm_tflops=0.06, queues=("cpu",)
)
GPU = Machine(
    device_type="cuda", device_name="a GPU", memory_bytes=2**45, gemm_tflops=700, queues=("gpu",)
)


def planned(tokens: int, vocab: int, machines: list[Machine]) -> dict[str, PlannedCell]:
    request = JobRequest.model_validate(
        {
            "contenders": ["torch-naive", "flce"],
            "shapes": [{"tokens": tokens, "hidden": 64, "vocab": vocab}],
            "dtypes": ["float32"],
        }
    )
    plan = plan_job(request, load_catalogue(), machines)
    return {cell.cell.contender.kernel: cell for cell in plan.cells}


def test_interpreted_cell_when_it_would_take_days_is_refused_with_the_time() -> None:
    cells = planned(32768, 128000, [CPU])
    assert cells["flce"].outcome is Outcome.UNSUPPORTED
    assert "Triton's interpreter would need about" in str(cells["flce"].reason)
    assert cells["torch-naive"].outcome is None


def test_interpreted_cell_when_small_or_on_a_gpu_is_kept() -> None:
    assert planned(64, 1000, [CPU])["flce"].outcome is None
    assert planned(32768, 128000, [CPU, GPU])["flce"].outcome is None
    assert planned(32768, 128000, [])["flce"].outcome is None
