"""Winner map and fronts of random result sets against a brute-force oracle."""

from datetime import UTC, datetime
from itertools import product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from lossbench.service.api.maps import fronts, plan_fronts, plan_map, shape_map
from lossbench.service.contract.words import Grade, Outcome
from lossbench.service.plots.fronts import fronts_figure, inexact_on
from lossbench.service.plots.spots import spot, winner_of
from lossbench.service.store.aggregates import Brief, Newest, NewestKey

GRADES = ["exact", "fair", "coarse", "poor", None]
SHAPES = [(64, 1024, 32000), (128, 1024, 32000), (64, 4096, 128256)]
# few values, so that ties are common
RATIOS = [0.5, 0.8, 1.0, 2.0, None]


def brief(place: int, kernel: str, shape: tuple[int, int, int], drawn: dict[str, Any]) -> Brief:
    tokens, hidden, vocab = shape
    ok = drawn["outcome"] == "ok"
    ratio = drawn["ratio"] if ok else None
    wide = drawn["wide"] and ratio is not None
    return Brief(
        id=f"run-{place:03d}", contender=kernel, kernel=kernel, version="1", params="",
        case=f"N{tokens}-H{hidden}-V{vocab}-bfloat16", pass_="forward", tokens=tokens,
        hidden=hidden, vocab=vocab, dtype="bfloat16", device_name="H200", environment_id="a-b",
        outcome=drawn["outcome"], reason=None if ok else "made up", grade=drawn["grade"] if ok
        else None, flags=drawn["flags"], baseline=drawn["baseline"],
        latency_ms=10 * ratio if ratio else None, latency_low_ms=None, latency_high_ms=None,
        ratio=ratio, ratio_low=ratio * 0.9 if wide and ratio else None,
        ratio_high=ratio * 1.1 if wide and ratio else None, floor_ratio=None,
        workspace_bytes=drawn["workspace"] if ok else None,
        started_at=datetime(2026, 11, 30, tzinfo=UTC),
    )  # fmt: skip


ONE = st.fixed_dictionaries(
    {
        "outcome": st.sampled_from(["ok", "ok", "ok", *(o.value for o in Outcome)]),
        "grade": st.sampled_from(GRADES),
        "flags": st.sampled_from([[], [], [], ["suspect"], ["interpreted"]]),
        "baseline": st.sampled_from(["torch-naive", "torch-naive", "other"]),
        "ratio": st.sampled_from(RATIOS),
        "workspace": st.sampled_from([None, 0, 2**20, 2**30, 2**31]),
        "wide": st.booleans(),
    }
)


@st.composite
def result_sets(draw: st.DrawFn, shapes: list[tuple[int, int, int]]) -> list[Brief]:
    """At least one result, often all of them, so that many meet on a shape."""
    places = list(product(["cce", "flce", "liger", "quack", "torch-naive"], shapes))
    chosen = draw(st.just(places) | st.lists(st.sampled_from(places), unique=True, min_size=1))
    return [brief(i, kernel, shape, draw(ONE)) for i, (kernel, shape) in enumerate(chosen)]


def newest(rows: list[Brief]) -> Newest:
    keys = [
        NewestKey(
            r.id,
            r.contender,
            r.version,
            r.case,
            r.pass_,
            r.device_name,
            r.tokens,
            r.hidden,
            r.vocab,
        )
        for r in rows
    ]
    return Newest(keys, len(keys), complete=True)


def may_count(row: Brief, worst: Grade) -> bool:
    """Written anew, from the rules: ok, timed, not suspect, not interpreted, exact enough."""
    order = ["exact", "fair", "coarse", "poor"]
    return (
        row.outcome == "ok"
        and row.latency_ms is not None
        and not {"suspect", "interpreted"} & set(row.flags)
        and row.grade is not None
        and order.index(row.grade) <= order.index(worst.value)
    )


@settings(max_examples=150, deadline=None)
@given(result_sets(SHAPES), st.sampled_from(list(Grade)))
def test_winner_map_agrees_with_brute_force(rows: list[Brief], worst: Grade) -> None:
    found = shape_map(plan_map(newest(rows)), rows, worst)
    assert {(c.tokens, c.hidden, c.vocab) for c in found.cells} == {
        (r.tokens, r.hidden, r.vocab) for r in rows
    }
    for cell in found.cells:
        here = [
            r
            for r in rows
            if (r.tokens, r.hidden, r.vocab) == (cell.tokens, cell.hidden, cell.vocab)
        ]
        timed = [
            r for r in here
            if r.outcome == "ok" and r.latency_ms is not None and "interpreted" not in r.flags
            and (r.contender == r.baseline or r.ratio)
        ]  # fmt: skip
        names = [r.baseline for r in timed]
        shared = max(names, key=lambda n: (names.count(n), n), default=None)
        able = [
            (1.0 if r.contender == r.baseline else r.ratio, r.label)
            for r in timed
            if r.baseline == shared and may_count(r, worst)
        ]
        assert cell.winner == (min(able)[1] if able else None)
        field = winner_of(cell)
        assert field.contender == (cell.winner or "")
        assert (field.level is not None) == (cell.winner is not None)
        for entry in cell.entries:
            shown = spot(entry)
            if shown.way == "faster":
                assert entry.may_win
                assert entry.ratio_high is not None
                assert entry.ratio_high < 1


@settings(max_examples=150, deadline=None)
@given(result_sets(SHAPES[:2]), st.sampled_from(list(Grade)))
def test_fronts_agree_with_brute_force(rows: list[Brief], worst: Grade) -> None:
    found = fronts(plan_fronts(newest(rows)), rows, {}, worst)
    assert sum(len(front.points) for front in found.items) == len(rows)
    figure = fronts_figure(found.items)
    drawn = [trace for trace in figure["data"] if trace["name"] == "front"]
    expected_lines: list[int] = []
    for front in found.items:
        here = [r for r in rows if r.case == front.case]
        able = {
            r.label: (r.latency_ms, r.workspace_bytes)
            for r in here
            if may_count(r, worst) and r.workspace_bytes is not None
        }
        best = {
            label
            for label, (time, memory) in able.items()
            if not any(
                t <= time and m <= memory and (t < time or m < memory)  # type: ignore[operator]
                for t, m in able.values()
            )
        }
        assert {point.contender for point in front.points if point.on_front} == best
        if best:
            expected_lines.append(len({able[label] for label in best}))
        inexact = inexact_on(front)
        assert not set(inexact) & best
        for row in here:
            timed = row.outcome == "ok" and row.latency_ms is not None
            beaten = any(
                t <= row.latency_ms and m <= row.workspace_bytes  # type: ignore[operator]
                and (t, m) != (row.latency_ms, row.workspace_bytes)
                for t, m in able.values()
                if timed and row.workspace_bytes is not None
            )  # fmt: skip
            tempting = (
                timed
                and row.workspace_bytes is not None
                and row.grade is not None
                and not {"suspect", "interpreted"} & set(row.flags)
                and not may_count(row, worst)
                and not beaten
            )
            assert (row.label in inexact) == tempting
    assert [len(trace["x"]) for trace in drawn] == expected_lines
