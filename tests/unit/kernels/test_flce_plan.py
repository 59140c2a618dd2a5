"""Plans of flce version 2: all rows and columns once, within the budget, the fastest of those."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lossbench.kernels.flce.v2.plan import (
    Plan,
    Rates,
    Sizes,
    budget_of,
    make_plan,
    plans_for,
    with_kept,
)

H200_OPERATIONS = 6.76e14
LLAMA_3 = Sizes(8192, 4096, 128256)
MIB = 2**20
sizes = st.builds(
    Sizes,
    tokens=st.integers(0, 70_000),
    hidden=st.integers(1, 8192),
    vocab=st.integers(1, 300_000),
    width=st.sampled_from([2, 4, 8]),
    dx=st.booleans(),
    dw=st.booleans(),
)


@given(sizes, st.integers(0, 16 * 2**30))
def test_every_plan_covers_rows_and_columns_once(size: Sizes, spare: int) -> None:
    for plan in plans_for(size):
        filled = with_kept(plan, plan.workspace_bytes + spare)
        ends = [0]
        for rows in filled.rows():
            assert rows.start == ends[-1]
            assert 0 < rows.stop - rows.start <= filled.chunk_rows
            assert not rows.start < filled.kept < rows.stop
            ends.append(rows.stop)
        assert ends[-1] == size.tokens
        columns = list(filled.columns())
        assert sum(c.stop - c.start for c in columns) == (size.vocab if filled.block else 0)


@given(sizes, st.integers(0, 16 * 2**30))
def test_kept_rows_keep_to_the_budget(size: Sizes, spare: int) -> None:
    for plan in plans_for(size):
        budget = plan.workspace_bytes + spare
        assert with_kept(plan, budget).workspace_bytes <= budget


@given(sizes, st.sampled_from(["fast", "lean"]))
def test_named_workspaces_always_have_a_plan(size: Sizes, workspace: str) -> None:
    plan = make_plan(size, workspace)  # type: ignore[arg-type]
    least = min(each.workspace_bytes for each in plans_for(size))
    assert plan.workspace_bytes <= max(least, budget_of(size, workspace))  # type: ignore[arg-type]


def test_one_pass_is_taken_where_it_fits() -> None:
    plan = make_plan(LLAMA_3, "fast")
    assert (plan.kind, plan.chunk_rows, plan.products) == ("one pass", 8192, 3.0)
    assert plan.workspace_bytes == pytest.approx(2 * 8192 * 128256, rel=1e-3)


def test_lean_takes_less_than_a_twentieth_of_one_pass() -> None:
    plan = make_plan(LLAMA_3, "lean")
    assert (plan.kind, plan.chunk_rows, plan.kept) == ("two sweeps", 256, 0)
    assert plan.workspace_bytes < 2 * 8192 * 128256 / 20


def test_budget_between_them_keeps_rows_and_costs_less_than_lean() -> None:
    lean, middle = make_plan(LLAMA_3, "lean"), make_plan(LLAMA_3, 1024 * MIB)
    assert middle.kept > 0
    assert middle.workspace_bytes <= 1024 * MIB
    assert 3.0 < middle.products < lean.products == 4.0
    assert middle.seconds() < lean.seconds()


def test_more_workspace_is_never_predicted_slower() -> None:
    times = [make_plan(LLAMA_3, budget * MIB).seconds() for budget in range(128, 2400, 128)]
    assert times == sorted(times, reverse=True)


def test_many_tokens_of_a_small_hidden_size_go_in_chunks_where_one_pass_is_too_large() -> None:
    plan = make_plan(Sizes(32768, 2048, 128000), 2048 * MIB)
    assert (plan.kind, plan.sums_in_float32) == ("token chunks", True)


def test_budget_that_no_plan_keeps_to_is_refused_with_the_least() -> None:
    least = make_plan(LLAMA_3, "lean").workspace_bytes
    with pytest.raises(ValueError, match=f"takes less than {least} bytes"):
        make_plan(LLAMA_3, least - 1)
    assert make_plan(LLAMA_3, least).workspace_bytes == least


def test_frozen_weight_needs_no_second_sweep() -> None:
    plan = make_plan(Sizes(8192, 4096, 128256, dw=False), "lean")
    assert plan.products == 2.0


def test_time_follows_the_device() -> None:
    plan = Plan("one pass", LLAMA_3, 8192)
    slow = Rates(H200_OPERATIONS / 10, 4.2e11)
    assert plan.seconds(slow) > 9 * plan.seconds()
