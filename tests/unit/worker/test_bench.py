"""A case on the CPU: every mutant is caught, every honest contender passes, blame stays its own."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import torch
from torch import Tensor

from lossbench.kernels.adapters.torch_plain import build_naive
from lossbench.kernels.catalogue import build
from lossbench.kernels.errors import UnsupportedHere
from lossbench.kernels.mutants import MUTANTS
from lossbench.kernels.protocol import LossFunction
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.run import Environment, ErrorReport
from lossbench.service.contract.words import Grade, Outcome, Pass
from lossbench.worker import bench as bench_module
from lossbench.worker.arms import Leaves
from lossbench.worker.assemble import Occasion, assemble
from lossbench.worker.bench import CaseBench, problem_of
from lossbench.worker.child import _plain
from lossbench.worker.order import CaseOrder, CellFindings, CellOrder

NAIVE = build_naive(None, {})
PLANTED = "flce@1"
"""Under this name a test's own loss is measured: flce may run without Triton and interpreter."""
Judged = tuple[Outcome, str | None, ErrorReport]
FULL = "bias=true-ignored_share=0.25-recipe=trained-upstream=random"
HERE = Environment(
    device_type="cpu",
    device_name="CPU",
    device_uuid_hash="x",
    memory_bytes=1,
    facts={},
    hardware_fingerprint="h",
    software_fingerprint="s",
)
DTYPES = ("float32", "bfloat16")


@pytest.fixture(autouse=True)
def _without_memory(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Reading memory starts torch's profiler seven times; only its own test does that."""
    if "memory" not in request.node.name:
        monkeypatch.setattr(CaseBench, "_memory", lambda self, timed: None)


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Callable[[LossFunction], None]:
    """Makes a loss take the place of `flce`."""

    def use(function: LossFunction) -> None:
        def build_planted(
            name: str, version: str | None, params: Mapping[str, object]
        ) -> LossFunction:
            return function if name == "flce" else build(name, version, params)

        monkeypatch.setattr(bench_module, "build", build_planted)

    return use


def make(case: str, interpreted: bool = False) -> CaseBench:
    return CaseBench(Case.parse(case), 0, "cpu", interpreted)


def add(bench: CaseBench, contender: str, pass_: Pass = Pass.FORWARD_BACKWARD) -> str:
    arm = f"{contender} {pass_}"
    bench.add_contender(arm, Contender.parse(contender), pass_)
    return arm


def judged(bench: CaseBench, arm: str) -> Judged:
    """Outcome, reason and errors as the worker stores them, JSON between."""
    moment = datetime(2026, 11, 30, tzinfo=UTC)
    cell = CellOrder(0, Contender(kernel="flce"), Pass.FORWARD)
    order = CaseOrder(bench.case, (cell,), Contender(kernel="torch-naive"), 1, 600.0)
    found = CellFindings(check=_plain(bench.check(arm, only_bits=False)))
    result = assemble(order, cell, found, None, Occasion(HERE, "wrk", moment, moment))
    assert result.record is not None
    assert result.record.errors is not None
    return result.outcome, result.reason, result.record.errors


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_mutant_is_caught(plant: Callable[[LossFunction], None], name: str, dtype: str) -> None:
    plant(MUTANTS[name])
    bench = make(f"N512-H32-V515-{dtype}-{FULL}")
    outcome, reason, errors = judged(bench, add(bench, PLANTED))
    if name == "dw_summed_in_bf16":
        assert outcome is Outcome.OK
        assert errors.grade in (Grade.COARSE, Grade.POOR)
        assert errors.worst_output == "dw"
    else:
        assert outcome is Outcome.WRONG
        assert reason
        assert errors.grade is None


@pytest.mark.parametrize("contender", ["torch-naive", "torch-upcast", "flce"])
@pytest.mark.parametrize(
    "options",
    [
        "",
        FULL,
        "frozen=input",
        "frozen=weight",
        "bias=true-reduction=none-upstream=random",
        "accumulate=true-reduction=sum",
        "class_weight=true-ignored_share=0.5-label_smoothing=0.1",
        "logit_scale=0.5-lse_square_scale=0.0001-softcap=30.0",
        "recipe=large_logits",
        "recipe=unit_normal",
        "recipe=zipf_labels",
    ],
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_honest_contender_is_ok(contender: str, options: str, dtype: str) -> None:
    bench = make("-".join(filter(None, [f"N96-H32-V200-{dtype}", options])))
    outcome, reason, errors = judged(bench, add(bench, contender))
    assert (outcome, reason) == (Outcome.OK, None)
    assert errors.grade is not None
    assert errors.deterministic_in_process is True
    if contender == "torch-naive":
        assert [out.ratio for out in errors.outputs if out.output != "loss"] == pytest.approx(
            [1.0] * (len(errors.outputs) - 1), abs=0.5
        )


@pytest.mark.parametrize("contender", ["torch-naive", "torch-upcast", "flce"])
def test_honest_contender_without_a_valid_label_is_ok(contender: str) -> None:
    """Torch gives a NaN loss and zero gradients there: noted, not held against it."""
    bench = make("N16-H8-V32-float32-bias=true-ignored_share=1.0")
    outcome, reason, errors = judged(bench, add(bench, contender))
    assert (outcome, reason) == (Outcome.OK, None)
    assert errors.notes == (() if contender == "flce" else ("nan_on_empty",))


def test_nan_gradients_without_a_valid_label_are_wrong(
    plant: Callable[[LossFunction], None],
) -> None:
    def spoilt(input: Tensor, *rest: Any, **options: Any) -> Tensor:
        return NAIVE(input, *rest, **options) + input.sum() * torch.nan

    plant(spoilt)
    bench = make("N16-H8-V32-float32-ignored_share=1.0")
    assert judged(bench, add(bench, PLANTED))[0] is Outcome.WRONG


def test_tiny_gradient_of_an_ignored_row_is_wrong(plant: Callable[[LossFunction], None]) -> None:
    """Far too small for any error norm: the right value is known to be exactly zero."""

    def spoilt(input: Tensor, weight: Tensor, target: Tensor, *rest: Any, **options: Any) -> Tensor:
        ignored = (target == -100).to(input.dtype)
        return NAIVE(input, weight, target, *rest, **options) + 1e-20 * (ignored @ input).sum()

    plant(spoilt)
    bench = make("N16-H8-V32-float32-ignored_share=0.25")
    outcome, reason, errors = judged(bench, add(bench, PLANTED))
    assert (outcome, reason) == (Outcome.WRONG, "dx of an ignored row is not zero")
    assert all(out.relative_l2 is not None and out.relative_l2 < 1e-5 for out in errors.outputs)


def changes_inputs(input: Tensor, weight: Tensor, *rest: Any, **options: Any) -> Tensor:
    loss = NAIVE(input, weight, *rest, **options)
    # as a kernel does: without autograd's knowledge
    weight.data[0, 0] += 1
    return loss


@pytest.mark.parametrize("honest_first", [True, False])
def test_contender_that_changes_its_inputs_is_wrong_and_alone(
    plant: Callable[[LossFunction], None], honest_first: bool
) -> None:
    plant(changes_inputs)
    bench = make("N16-H8-V32-float32")
    names = ["torch-upcast", PLANTED] if honest_first else [PLANTED, "torch-upcast"]
    arms = {name: add(bench, name) for name in names}
    found = {name: judged(bench, arm)[:2] for name, arm in arms.items()}
    assert found["torch-upcast"] == (Outcome.OK, None)
    assert found[PLANTED][0] is Outcome.WRONG
    assert "changed its inputs" in str(found[PLANTED][1])


@pytest.mark.parametrize("named", ["class_weight", "target"])
def test_contender_that_changes_a_side_input_is_wrong(
    plant: Callable[[LossFunction], None], named: str
) -> None:
    def spoils(input: Tensor, weight: Tensor, target: Tensor, *rest: Any, **options: Any) -> Tensor:
        loss = NAIVE(input, weight, target, *rest, **options)
        tensors = {"target": target, **options}
        tensors[named].data[0] = 1
        return loss

    plant(spoils)
    bench = make("N16-H8-V32-float32-class_weight=true")
    assert "changed its inputs" in str(judged(bench, add(bench, PLANTED))[1])


@pytest.mark.parametrize(("frozen", "output"), [("input", "dx"), ("weight", "dw")])
def test_contender_that_gives_a_frozen_tensor_a_gradient_is_wrong_and_alone(
    plant: Callable[[LossFunction], None], frozen: str, output: str
) -> None:
    def spoils(input: Tensor, weight: Tensor, *rest: Any, **options: Any) -> Tensor:
        tensor = input if frozen == "input" else weight
        tensor.grad = torch.zeros_like(tensor)
        return NAIVE(input, weight, *rest, **options)

    plant(spoils)
    bench = make(f"N16-H8-V32-float32-frozen={frozen}")
    arms = {name: add(bench, name) for name in (PLANTED, "torch-upcast")}
    outcome, reason, _ = judged(bench, arms[PLANTED])
    assert (outcome, reason) == (Outcome.WRONG, f"{output} was made for a frozen tensor")
    assert judged(bench, arms["torch-upcast"])[0] is Outcome.OK


def test_contender_whose_bits_differ_from_call_to_call_is_noted(
    plant: Callable[[LossFunction], None],
) -> None:
    noise: Iterator[float] = iter(range(1, 1000))

    def unsteady(*args: Any, **options: Any) -> Tensor:
        return NAIVE(*args, **options) * (1 + next(noise) * 1e-7)

    plant(unsteady)
    bench = make("N16-H8-V32-float32")
    _, _, errors = judged(bench, add(bench, PLANTED))
    assert errors.deterministic_in_process is False


def test_check_of_two_passes_of_one_contender_is_made_once() -> None:
    bench = make("N16-H8-V32-float32")
    both = add(bench, "torch-naive"), add(bench, "torch-naive", Pass.FORWARD)
    whole = [bench.check(arm, only_bits=False) for arm in both]
    assert whole[0] is whole[1]
    bits = bench.check(both[0], only_bits=True)
    assert bits == {"checksum": whole[0]["checksum"]}


def test_check_bits_differ_for_another_seed() -> None:
    first, second = (
        CaseBench(Case.parse("N16-H8-V32-float32"), seed, "cpu", False) for seed in (0, 1)
    )
    bits = [bench.check(add(bench, "torch-naive"), only_bits=True) for bench in (first, second)]
    assert bits[0] != bits[1]


def test_check_of_a_floor_is_refused() -> None:
    bench = make("N16-H8-V32-float32")
    bench.add_floor("floor", Pass.FORWARD)
    with pytest.raises(TypeError, match="no contender"):
        bench.check("floor", only_bits=False)


@pytest.mark.parametrize("pass_", list(Pass))
def test_arm_leaves_gradients_only_where_the_pass_makes_them(pass_: Pass) -> None:
    bench = make("N16-H8-V32-float32")
    arm = bench.arms[add(bench, "torch-naive", pass_)]
    arm.before()
    arm.call()
    made = [gradient is not None for gradient in bench.leaves.gradients().values()]
    assert made == ([False] * 3 if pass_ is Pass.FORWARD else [True, True, False])


@pytest.mark.parametrize("accumulate", [False, True])
def test_arm_accumulates_only_where_the_case_says_so(accumulate: bool) -> None:
    extra = "-accumulate=true" if accumulate else ""
    bench = make(f"N16-H8-V32-float32{extra}")
    arm = bench.arms[add(bench, "torch-naive")]
    norms = []
    for _ in range(2):
        arm.before()
        arm.call()
        norms.append(float(bench.leaves.inputs.weight.grad.norm()))  # type: ignore[union-attr]
    assert norms[1] == pytest.approx((2 if accumulate else 1) * norms[0])


@pytest.mark.parametrize(
    ("contender", "case", "reason"),
    [
        ("torch-naive@1.2.3", "N8-H4-V16-float32", "asks for another torch"),
        ("liger@0.8.5", "N8-H4-V16-float32", "Triton kernel"),
        ("liger@0.4.0", "N8-H4-V16-float32-softcap=30.0", "has no softcap"),
        (
            "flce",
            "Nstream(first=1,high=1,jitter=0,last=1,low=1,random=0,seed=0)-H4-V16-float32",
            "streams",
        ),
    ],
)
def test_contender_that_cannot_run_here_says_why(contender: str, case: str, reason: str) -> None:
    with pytest.raises(UnsupportedHere, match=reason):
        add(make(case), contender)


def test_add_contender_reports_version_and_times() -> None:
    bench = make("N16-H8-V32-float32")
    naive = bench.add_contender("a", Contender.parse("torch-naive"), Pass.FORWARD)
    flce = bench.add_contender("b", Contender.parse("flce@1"), Pass.FORWARD)
    assert naive["version"] == torch.__version__.split("+")[0]
    assert (naive["gradients_in_forward"], flce["gradients_in_forward"]) == (False, True)
    assert (flce["version"], flce["interpreted"]) == ("1", False)
    assert naive["first_call_s"] >= naive["compile_s"] >= 0


def test_gradients_of_a_loss_per_token_are_reported_where_they_are_made() -> None:
    """flce makes them in its forward, but not where each row has its own upstream gradient."""
    found = {
        reduction: make(f"N16-H8-V32-float32-reduction={reduction}").add_contender(
            "a", Contender.parse("flce@1"), Pass.FORWARD
        )["gradients_in_forward"]
        for reduction in ("sum", "none")
    }
    assert found == {"sum": True, "none": False}


def test_own_kernel_is_proved_for_each_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first case runs the kernel, a second falls back: only the second is found out."""
    calls: list[list[str]] = []

    def seen(call: Callable[[], object]) -> list[str]:
        calls.append(["aten_softmax"] if calls else ["_row_kernel"])
        return calls[-1]

    monkeypatch.setattr(bench_module, "kernels_of", seen)
    monkeypatch.setattr(bench_module, "_KERNELS_RUN", {})
    faults = []
    for case in ("N16-H8-V32-float32", "N16-H8-V32-float32-softcap=30.0", "N16-H8-V32-float32"):
        bench = make(case)
        arm = add(bench, "flce@1")
        # the profiler is a stand-in; all else of the check runs on the CPU
        bench.device = "cuda"
        faults.append(bench.check(arm, only_bits=False)["faults"])
    assert faults == [[], ["it fell back: none of its own kernels ran (_row_kernel)"], []]
    assert len(calls) == 2


@pytest.mark.parametrize("accumulate", [False, True])
def test_memory_of_torch_naive_counts_outputs_apart(
    monkeypatch: pytest.MonkeyPatch, accumulate: bool
) -> None:
    """New gradients belong to the caller; beside gradients that are there they are workspace."""
    monkeypatch.setattr("lossbench.worker.memory.REPEATS", 1)
    n, h, v = 64, 32, 256
    extra = "-accumulate=true" if accumulate else ""
    bench = make(f"N{n}-H{h}-V{v}-float32{extra}")
    memory = bench.check(add(bench, "torch-naive"), only_bits=False)["memory"]
    logits, gradients, loss = 4 * n * v, 4 * (n * h + v * h), 4
    assert memory["outputs_bytes"] == (loss if accumulate else loss + gradients)
    assert memory["repeats_equal"] is True
    assert memory["peak_forward_bytes"] >= 2 * logits
    least = 2 * logits + (4 * v * h if accumulate else 0) - loss
    assert least <= memory["workspace_bytes"] <= least + 2 * logits


def test_leaves_hold_copies_with_the_gradients_the_case_needs() -> None:
    bench = make("N16-H8-V32-float32-bias=true-frozen=weight")
    leaves: Leaves = bench.leaves
    assert [tensor.shape for tensor in leaves.trained] == [(16, 8), (32,)]
    assert leaves.inputs.x.data_ptr() != bench._inputs.x.data_ptr()


@pytest.mark.parametrize(
    "options",
    ["", FULL, "softcap=30.0", "logit_scale=1.0", "ignore_index=-1", "frozen=weight"],
)
def test_options_that_service_and_kernels_ask_for_are_the_same(options: str) -> None:
    case = Case.parse("-".join(filter(None, ["N8-H4-V16-float32", options])))
    assert case.options.asked() == problem_of(case).options_used
