"""plan_job expands cells, cuts lots, and refuses what cannot run."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lossbench.service.contract.catalogue import load_catalogue
from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.job import JobRequest
from lossbench.service.contract.machine import Machine
from lossbench.service.contract.plan import CASES_PER_LOT, LOT_SECONDS, Plan, plan_job
from lossbench.service.contract.words import Outcome

CATALOGUE = load_catalogue()
SHAPE = {"tokens": 8, "hidden": 4, "vocab": 16}
STREAM = {"stream": {"first": 1, "random": 2, "low": 1, "high": 4, "last": 4}}


def machine(memory_bytes: int, queue: str = "h200", device: str = "cuda") -> Machine:
    return Machine.model_validate(
        {
            "device_type": device,
            "device_name": queue,
            "memory_bytes": memory_bytes,
            "gemm_tflops": 600.0 if device == "cuda" else 0.05,
            "queues": (queue,),
        }
    )


def plan(*machines: Machine, **changes: Any) -> Plan:
    body = {"contenders": ["torch-naive"], "shapes": [SHAPE], **changes}
    return plan_job(JobRequest.model_validate(body), CATALOGUE, machines)


def texts(planned: Plan) -> list[str]:
    return [cell.cell.case.text for cell in planned.cells]


def test_plan_expands_the_product_of_all_lists() -> None:
    planned = plan(
        contenders=["torch-naive", "torch-upcast"],
        shapes=[SHAPE, {**SHAPE, "tokens": 9}],
        dtypes=["float32", "bfloat16"],
        passes=["forward", "forward_backward"],
        recipes=["normal", "trained"],
    )
    assert len(planned.cells) == 2 * 2 * 2 * 2 * 2
    assert len({cell.cell.key for cell in planned.cells}) == 32
    assert sum(len(lot.cases) for lot in planned.lots) == 8


def test_plan_drops_duplicates_of_every_list() -> None:
    planned = plan(
        contenders=["flce", "flce@1", "flce@latest"],
        shapes=[SHAPE, SHAPE],
        dtypes=["float32", "float32"],
        passes=["forward", "forward"],
        recipes=["normal", "normal"],
    )
    assert [cell.cell.contender.text for cell in planned.cells] == ["flce@1"]


def test_plan_sweep_replaces_the_named_dimensions() -> None:
    planned = plan(sweep={"tokens": [1, 2], "vocab": [32]}, dtypes=["float32"])
    assert texts(planned) == ["N1-H4-V32-float32", "N2-H4-V32-float32"]


def test_plan_sweep_of_tokens_leaves_a_stream_as_it_is() -> None:
    planned = plan(shapes=[{**SHAPE, "tokens": STREAM}], sweep={"tokens": [1, 2], "hidden": [8]})
    assert [cell.cell.case.hidden for cell in planned.cells] == [8]
    assert not isinstance(planned.cells[0].cell.case.tokens, int)


def test_plan_sweep_replaces_the_dimensions_of_a_preset() -> None:
    planned = plan(shapes=[{"model": "gemma-2-2b", "tokens": 8}], sweep={"hidden": [64]})
    assert texts(planned) == ["N8-H64-V256000-bfloat16-softcap=30.0"]


def test_plan_preset_carries_its_options_beside_the_request_s() -> None:
    planned = plan(
        shapes=[{"model": "gemma-2-2b", "tokens": 8}, SHAPE], options={"label_smoothing": 0.1}
    )
    assert texts(planned) == [
        "N8-H2304-V256000-bfloat16-label_smoothing=0.1-softcap=30.0",
        "N8-H4-V16-bfloat16-label_smoothing=0.1",
    ]


def test_plan_option_of_the_request_wins_over_the_preset_s() -> None:
    planned = plan(shapes=[{"model": "gemma-2-2b", "tokens": 8}], options={"softcap": 50.0})
    assert planned.cells[0].cell.case.options.softcap == 50.0


@settings(max_examples=25, deadline=None)
@given(
    # with 8 tokens something always fits: a job of which nothing does is refused whole
    tokens=st.sets(st.sampled_from([512, 8192, 65536])).map(lambda more: [8, *sorted(more)]),
    vocab=st.integers(1, 30).map(lambda n: [1000 + i for i in range(n)]),
    contenders=st.lists(
        st.sampled_from(["torch-naive", "torch-upcast", "flce", "liger"]),
        min_size=1,
        unique=True,
    ),
    memory_gib=st.sampled_from([2, 20, 140]),
)
def test_plan_lots_hold_every_cell_at_its_place(
    tokens: list[int], vocab: list[int], contenders: list[str], memory_gib: int
) -> None:
    planned = plan(
        machine(memory_gib * 2**30),
        contenders=contenders,
        shapes=[{"tokens": 1, "hidden": 4096, "vocab": 2}],
        sweep={"tokens": tokens, "vocab": vocab},
        passes=["forward", "forward_backward"],
    )
    assert [lot.index for lot in planned.lots] == list(range(len(planned.lots)))
    seconds: dict[int, float] = defaultdict(float)
    for cell in planned.cells:
        work = planned.lots[cell.lot].cases[cell.case_index]
        assert work.case == cell.cell.case
        assert cell.cell.contender in work.contenders
        assert cell.cell.pass_ in work.passes
        seconds[cell.lot] += 0 if cell.outcome else cell.estimated_s
    for lot in planned.lots:
        assert 1 <= len(lot.cases) <= CASES_PER_LOT
        assert lot.estimated_s == pytest.approx(seconds[lot.index])
        assert lot.estimated_s <= LOT_SECONDS or len(lot.cases) == 1
    places = [(cell.lot, cell.case_index) for cell in planned.cells]
    assert places == sorted(places)


def test_plan_of_small_cases_fills_lots_by_count() -> None:
    planned = plan(machine(2**40), sweep={"tokens": list(range(1, 61))}, processes=1)
    assert [len(lot.cases) for lot in planned.lots] == [25, 25, 10]
    assert {lot.queue for lot in planned.lots} == {"any"}


def test_plan_of_long_cases_cuts_lots_by_seconds() -> None:
    planned = plan(machine(2**40), sweep={"tokens": list(range(1, 61))}, processes=24)
    assert all(len(lot.cases) < 25 for lot in planned.lots)
    assert all(LOT_SECONDS / 2 < lot.estimated_s <= LOT_SECONDS for lot in planned.lots[:-1])


def outcomes(planned: Plan) -> dict[str, Outcome | None]:
    return {cell.cell.contender.text: cell.outcome for cell in planned.cells}


def test_plan_refuses_an_option_that_the_version_lacks() -> None:
    planned = plan(
        contenders=["liger@0.4.0", "liger@0.8.5", "torch-naive"], options={"softcap": 30.0}
    )
    assert outcomes(planned) == {
        "liger@0.4.0": Outcome.UNSUPPORTED,
        "liger@0.8.5": None,
        "torch-naive": None,
    }
    assert planned.cells[0].reason == "liger@0.4.0 has no option softcap"


def test_plan_refuses_a_dtype_that_the_kernel_lacks() -> None:
    planned = plan(contenders=["liger", "torch-naive"], dtypes=["float64"])
    assert planned.cells[0].reason == "liger does not take float64"
    assert planned.cells[1].outcome is None


def test_plan_refuses_streams_as_unsupported() -> None:
    planned = plan(shapes=[{**SHAPE, "tokens": STREAM}])
    assert planned.cells[0].outcome is Outcome.UNSUPPORTED
    assert "streams" in str(planned.cells[0].reason)


BIG = {"tokens": 32768, "hidden": 4096, "vocab": 128256}


def test_plan_predicts_out_of_memory_only_where_no_machine_fits() -> None:
    contenders = ["torch-naive", "flce"]
    small, large = machine(20 * 2**30), machine(140 * 2**30)
    alone = plan(small, contenders=contenders, shapes=[BIG])
    assert outcomes(alone) == {"torch-naive": Outcome.OUT_OF_MEMORY, "flce@1": None}
    assert "predicted " in str(alone.cells[0].reason)
    assert "the device has 20.0 GiB" in str(alone.cells[0].reason)
    assert set(outcomes(plan(small, large, contenders=contenders, shapes=[BIG])).values()) == {None}
    assert set(outcomes(plan(contenders=contenders, shapes=[BIG])).values()) == {None}


def test_plan_ignores_machines_that_do_not_serve_the_accelerator() -> None:
    small = machine(2**20, queue="t4")
    planned = plan(small, machine(2**40), shapes=[BIG], accelerator="h200")
    assert planned.cells[0].outcome is None
    assert planned.lots[0].queue == "h200"


def test_plan_of_cells_that_all_cannot_fit_is_refused() -> None:
    with pytest.raises(InvalidRequestError) as caught:
        plan(machine(2**30), contenders=["torch-naive", "flce"], shapes=[BIG])
    (fault,) = caught.value.faults
    assert (fault.pointer, fault.code) == ("/shapes", "does_not_fit")
    assert "the device has 1.0 GiB" in fault.message


def test_plan_sums_the_seconds_of_cells_that_will_run() -> None:
    planned = plan(machine(20 * 2**30), contenders=["torch-naive", "flce"], shapes=[BIG])
    running = [cell.estimated_s for cell in planned.cells if cell.outcome is None]
    assert planned.estimated_s == pytest.approx(sum(running))
    assert planned.estimated_peak_bytes == max(cell.estimated_peak_bytes for cell in planned.cells)
