"""Memory on the CPU, to the byte, of steps whose allocations are known."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from lossbench.worker import memory
from lossbench.worker.memory import Step, measure_memory, tensor_bytes

MIB = 2**20
X = torch.ones(256, 1024)  # 1 MiB


def step(
    forward: Callable[[], Tensor],
    backward: Callable[[Tensor], None] = lambda loss: None,
    outputs: int = 0,
) -> Step:
    return Step(lambda: None, forward, backward, lambda loss: outputs)


def megabyte() -> Tensor:
    return torch.empty(MIB, dtype=torch.uint8)


def test_memory_of_known_allocations_is_exact() -> None:
    def forward() -> Tensor:
        """3 MiB at the peak, of which 1 MiB stays."""
        kept, temporary = megabyte(), torch.empty(2 * MIB, dtype=torch.uint8)
        del temporary
        return kept

    def backward(loss: Tensor) -> None:
        """5 MiB beside the 1 that is held, and none of it stays."""
        torch.empty(5 * MIB, dtype=torch.uint8)

    use, equal = measure_memory(step(forward, backward, outputs=MIB), "cpu")
    assert use.peak_forward_bytes == 3 * MIB
    assert use.held_bytes == MIB
    assert use.peak_backward_bytes == 6 * MIB
    assert (use.outputs_bytes, use.workspace_bytes) == (MIB, 5 * MIB)
    assert equal


def test_memory_sees_planted_leaks_of_one_mebibyte() -> None:
    kept: list[Tensor] = []
    loss = torch.zeros(())

    def leak() -> Tensor:
        kept.append(megabyte())
        return loss

    def leak_again(_: Tensor) -> None:
        leak()

    forward_only, _ = measure_memory(step(leak), "cpu")
    both, equal = measure_memory(step(leak, leak_again), "cpu")
    assert (forward_only.held_bytes, forward_only.workspace_bytes) == (MIB, MIB)
    assert (both.held_bytes, both.workspace_bytes) == (MIB, 2 * MIB)
    assert equal, "a leak of the same size each time is no difference between repeats"


@pytest.mark.parametrize(("last", "equal"), [(1024, True), (1025, False)])
def test_memory_repeats_must_agree_to_the_byte(
    monkeypatch: pytest.MonkeyPatch, last: int, equal: bool
) -> None:
    numbers = iter([(1024, 0), (0, 0), (1024, 0), (0, 0), (last, 0), (0, 0)])

    def allocations(call: Callable[[], None]) -> tuple[int, int]:
        call()
        return next(numbers)

    monkeypatch.setattr(memory, "_cpu_allocations", allocations)
    use, agreed = measure_memory(step(lambda: torch.zeros(())), "cpu")
    assert (use.peak_forward_bytes, agreed) == (last, equal)


def test_memory_clears_before_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def forward() -> Tensor:
        done.append("forward")
        return torch.zeros(())

    def allocations(call: Callable[[], None]) -> tuple[int, int]:
        call()
        return 0, 0

    monkeypatch.setattr(memory, "_cpu_allocations", allocations)
    clear, backward = (lambda: done.append("clear")), (lambda _: done.append("backward"))
    measure_memory(Step(clear, forward, backward, tensor_bytes), "cpu")
    assert done == ["clear", "forward", "backward"] * 4 + ["clear"]


def test_tensor_bytes_counts_the_tensor_s_own_part_of_its_storage() -> None:
    assert tensor_bytes(None) == 0
    assert tensor_bytes(X) == MIB
    assert tensor_bytes(X[:1]) == 4096


def test_scratch_in_the_buffer_of_a_gradient_is_workspace() -> None:
    """Same work and peak, once with tensors of their own and once as views of one buffer."""

    def used(one_buffer: bool) -> int:
        def forward() -> Tensor:
            if one_buffer:
                buffer = torch.empty(5 * MIB, dtype=torch.uint8)
                gradients[:] = [buffer[:MIB], buffer[MIB : 2 * MIB]]
            else:
                gradients[:] = [megabyte(), megabyte()]
                torch.empty(3 * MIB, dtype=torch.uint8)
            return loss

        gradients: list[Tensor] = []
        loss = torch.zeros(())

        def outputs(_: Tensor) -> int:
            return sum(tensor_bytes(gradient) for gradient in gradients)

        step_ = Step(gradients.clear, forward, lambda _: None, outputs)
        use, equal = measure_memory(step_, "cpu")
        assert equal
        assert use.outputs_bytes == 2 * MIB
        return use.workspace_bytes

    assert used(one_buffer=True) == used(one_buffer=False) == 3 * MIB


def test_gradient_that_is_expanded_counts_what_it_holds() -> None:
    assert tensor_bytes(torch.ones(1).expand(1000, 1000)) == 4
