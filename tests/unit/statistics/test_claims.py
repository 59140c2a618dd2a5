"""Every kind of rule decides from made-up cells, and the verdict flips with the data."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import TypeAdapter

from lossbench.service.contract.claim import Claim, ClaimVerdict
from lossbench.service.contract.claim_evidence import CellError, Decided, MeasuredCell, MetPair
from lossbench.service.contract.claim_rule import CellName, Rule, leaves_of
from lossbench.service.contract.words import Flag, Outcome, Pass
from lossbench.service.statistics.claims import Found, decide_claim

HOLDS, FAILS, UNTESTED = ClaimVerdict.HOLDS, ClaimVerdict.FAILS, ClaimVerdict.UNTESTED
CASE = "N1024-H512-V4096-bfloat16"
PEAKED = f"{CASE}-recipe=trained"
DAY = datetime(2026, 12, 1, tzinfo=UTC)
OF = {"contender": "liger@0.5.0", "case": CASE}
OVER = {"contender": "liger@0.4.2", "case": CASE}
ADAPTER: TypeAdapter[Any] = TypeAdapter(Rule)


def cell(name: dict[str, str], **changes: Any) -> MeasuredCell:
    """An ok result of 0.5 times the baseline in 8 processes, its interval 1 % either way."""
    named = CellName.model_validate(name)
    ratio = changes.pop("ratio", 0.5)
    usual = MeasuredCell(
        result_id=f"run-{name['contender']}-{name['case']}",
        key=named.key,
        contender=named.contender.text,
        case=named.case.text,
        pass_=Pass.FORWARD_BACKWARD,
        environment_id="gpu1-torch",
        device_name="NVIDIA H200",
        protocol_version=3,
        outcome=Outcome.OK,
        measured_at=DAY,
        processes=8,
        latency_ms=20.0,
        ratio=ratio,
        ratio_low=ratio * 0.99,
        ratio_high=ratio * 1.01,
        floor_ms=10.0,
        floors_ms=(10.0, 10.01, 9.99),
        workspace_bytes=2**30,
        peak_bytes=2**31,
        errors={o: CellError(1e-3, 1.0, 1e-2) for o in ("loss", "dx", "dw")},
        checksum="aa",
        repeats_bits=True,
        recompiles=0,
    )
    return replace(usual, **changes)


def decided(rule: dict[str, Any], *cells: MeasuredCell, met: Any = None) -> Decided:
    """What these cells say of a claim with this rule."""
    claim = Claim.model_validate(
        {
            "id": "made-up",
            "title": "A claim that was made up",
            "statement": "Something is so.",
            "source": "https://example.org/thread",
            "original": {"environment": "one GPU", "figure": "some"},
            "job": {
                "contenders": ["flce"],
                "shapes": [{"tokens": 1, "hidden": 1, "vocab": 2}],
                "accelerator": "h200",
            },
            "rule": rule,
        }
    )
    found: dict[str, list[MeasuredCell]] = {}
    for each in cells:
        found.setdefault(each.key, []).append(each)
    return decide_claim(claim, Found(found, met or {}))


def rule(kind: str, **fields: Any) -> dict[str, Any]:
    return {"kind": kind, "of": OF, "over": OVER, **fields}


SLOWER = {"ratio": 0.6}
ERRORS = {o: CellError(3e-3, 3.0, 3e-2) for o in ("loss", "dx", "dw")}
FLIPS = {
    "time_ratio": (rule("time_ratio", at_most=1.05), {}, SLOWER),
    "bytes_ratio": (rule("bytes_ratio", at_most=1.1), {}, {"workspace_bytes": 2**31}),
    "bytes_ratio of peaks": (
        rule("bytes_ratio", measure="peak", at_least=1.0), {}, {"peak_bytes": 2**30},
    ),
    "bytes_difference": (
        rule("bytes_difference", product=[1024, "V", 4], within=0.1),
        {"workspace_bytes": 2**30 + 2**24}, {"workspace_bytes": 2**30 + 2**25},
    ),
    "bytes_difference at most": (
        rule("bytes_difference", product=[2**20]), {}, {"workspace_bytes": 2**30 + 2**21},
    ),
    "error_ratio": (
        {"kind": "error_ratio", "of": OF, "outputs": ["dx", "dw"], "at_most": 1.5},
        {}, {"errors": ERRORS},
    ),
    "error_ratio of two": (
        rule("error_ratio", outputs=["dw"], at_most=1.5), {}, {"errors": ERRORS},
    ),
    "same_errors": (
        rule("same_errors", outputs=["loss", "dw"], statistic="max_abs"), {}, {"errors": ERRORS},
    ),
    "same_bits": (rule("same_bits"), {}, {"checksum": "bb"}),
    "outcome": (
        {"kind": "outcome", "of": OF, "outcomes": ["ok"]},
        {}, {"outcome": Outcome.WRONG, "reason": "dw is zero"},
    ),
    "recompiles": ({"kind": "recompiles", "of": OF, "at_most": 1}, {}, {"recompiles": 7}),
    "floor_ratio": (
        rule("floor_ratio", at_least=0.98), {}, {"floors_ms": (9.0, 9.01, 8.99)},
    ),
    "time_gain": (
        rule("time_gain", at_most=1.05, than_of=OVER, than_over=OVER), {}, SLOWER,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLIPS)
def test_verdict_flips_with_the_data(name: str) -> None:
    asked, holding, failing = FLIPS[name]
    holds = decided(asked, cell(OF, **holding), cell(OVER))
    fails = decided(asked, cell(OF, **failing), cell(OVER))
    assert (holds.verdict, fails.verdict) == (HOLDS, FAILS), (holds.reason, fails.reason)
    assert holds.findings[0].evidence[0].result_id == "run-liger@0.5.0-" + CASE
    assert fails.measured_at == DAY


def test_every_kind_of_rule_flips_or_is_always_untested() -> None:
    kinds = {name.split(" ", maxsplit=1)[0] for name in FLIPS}
    every = set(ADAPTER.json_schema()["discriminator"]["mapping"])
    assert every - kinds == {"all", "any", "same_training"}
    training = {"kind": "same_training", "contenders": ["flce@1", "liger@0.8.5"], "within": 0.01}
    assert decided(training).verdict is UNTESTED


def test_ratio_of_a_shared_baseline_has_welchs_interval() -> None:
    (finding,) = decided(rule("time_ratio", at_most=1.05), cell(OF), cell(OVER)).findings
    assert finding.value == pytest.approx(1.0)
    # two half-widths of 1 % with 7 degrees each: sqrt(2) x 1 % x t(14) / t(7)
    assert finding.high == pytest.approx(1 + 0.01 * 2**0.5 * 2.145 / 2.365, abs=3e-4)


def test_interval_over_the_limit_is_undecided_and_says_what_it_takes() -> None:
    found = decided(rule("time_ratio", at_most=1.005), cell(OF), cell(OVER))
    assert found.verdict is UNTESTED
    assert found.reason.startswith("undecided: ")
    assert "more processes" in found.reason


def test_one_process_gives_no_verdict() -> None:
    alone = {"ratio_low": None, "ratio_high": None, "processes": 1}
    found = decided(rule("time_ratio", at_most=2.0), cell(OF, **alone), cell(OVER))
    assert (found.verdict, found.findings[0].value) == (UNTESTED, pytest.approx(1.0))


@pytest.mark.parametrize("turned", [False, True])
def test_head_to_head_wins_in_either_direction(turned: bool) -> None:
    base, candidate = ("liger@0.5.0", "liger@0.4.2") if turned else ("liger@0.4.2", "liger@0.5.0")
    ratio = 1 / 0.8 if turned else 0.8
    pair = MetPair(
        "cmp-1", base, candidate, CASE, Pass.FORWARD_BACKWARD, "gpu1-torch", 3, 8, DAY, ratio,
        ratio * 0.99, ratio * 1.01,
    )  # fmt: skip
    met = {(base, candidate, CASE, "forward_backward", "gpu1-torch"): pair}
    found = decided(rule("time_ratio", at_most=0.9), cell(OF), cell(OVER), met=met)
    assert (found.verdict, found.findings[0].comparison_id) == (HOLDS, "cmp-1")
    assert found.findings[0].value == pytest.approx(0.8)


def test_cells_of_two_devices_are_never_mixed() -> None:
    found = decided(rule("same_bits"), cell(OF), cell(OVER, environment_id="gpu2-torch"))
    assert found.verdict is UNTESTED
    assert "no device has measured all" in found.reason


def test_newest_environment_that_decides_wins_and_the_other_is_told() -> None:
    later = {"environment_id": "gpu2-torch", "measured_at": DAY + timedelta(days=1)}
    found = decided(
        rule("same_bits"),
        cell(OF), cell(OVER), cell(OF, checksum="bb", **later), cell(OVER, **later),
    )  # fmt: skip
    assert found.verdict is FAILS
    assert "says otherwise" in found.reason


def test_two_protocols_have_no_time_ratio_but_bytes_have() -> None:
    cells = cell(OF), cell(OVER, protocol_version=2)
    timed = decided(rule("time_ratio", at_most=1.1), *cells)
    assert (timed.verdict, "two versions" in timed.reason) == (UNTESTED, True)
    assert decided(rule("bytes_ratio", at_most=1.1), *cells).verdict is HOLDS


@pytest.mark.parametrize("flag", [Flag.SUSPECT, Flag.INTERPRETED, Flag.DRIFT, Flag.LOW_N])
def test_flag_that_makes_a_time_unfit_leaves_it_untested(flag: Flag) -> None:
    found = decided(rule("time_ratio", at_most=1.1), cell(OF, flags=frozenset({flag})), cell(OVER))
    assert (found.verdict, flag.replace("_", " ") in found.reason) == (UNTESTED, True)


def test_power_cap_is_no_hindrance() -> None:
    capped = {"flags": frozenset({Flag.POWER_CAPPED})}
    found = decided(rule("time_ratio", at_most=1.1), cell(OF, **capped), cell(OVER, **capped))
    assert found.verdict is HOLDS


def test_bits_that_do_not_repeat_decide_nothing() -> None:
    found = decided(rule("same_bits"), cell(OF, checksum="bb", repeats_bits=False), cell(OVER))
    assert (found.verdict, found.reason.startswith("undecided")) == (UNTESTED, True)


def test_cell_that_did_not_end_well_has_no_time() -> None:
    lost = {"outcome": Outcome.OUT_OF_MEMORY, "reason": "144 GiB"}
    found = decided(rule("time_ratio", at_most=1.1), cell(OF, **lost), cell(OVER))
    assert (found.verdict, "out of memory" in found.reason) == (UNTESTED, True)


@pytest.mark.parametrize(
    ("kind", "bits", "verdict"),
    [
        ("all", ("aa", 0), HOLDS), ("all", ("bb", 0), FAILS), ("all", ("bb", None), FAILS),
        ("all", ("aa", None), UNTESTED), ("any", ("bb", 0), HOLDS), ("any", ("bb", 9), FAILS),
        ("any", ("bb", None), UNTESTED), ("any", ("aa", None), HOLDS),
    ],
)  # fmt: skip
def test_parts_are_joined(kind: str, bits: tuple[str, int | None], verdict: ClaimVerdict) -> None:
    parts = [rule("same_bits"), {"kind": "recompiles", "of": OF, "at_most": 1}]
    cells = cell(OF, checksum=bits[0], recompiles=bits[1]), cell(OVER)
    found = decided({"kind": kind, "rules": parts}, *cells)
    assert (found.verdict, len(found.findings)) == (verdict, 2)


def test_time_of_two_cases_is_relative_to_the_baseline_of_each() -> None:
    peaked = {"contender": "cce@25.1.1", "case": PEAKED}
    flat = {"contender": "cce@25.1.1", "case": CASE}
    asked = {"kind": "time_ratio", "of": flat, "over": peaked, "at_least": 1.1}
    found = decided(asked, cell(flat, ratio=1.0), cell(peaked, ratio=0.5))
    assert (found.verdict, found.findings[0].value) == (HOLDS, pytest.approx(2.0))
    assert "relative to its baseline" in found.findings[0].rule


@pytest.mark.parametrize(
    "wrong",
    [
        rule("time_ratio"),
        rule("time_ratio", at_least=2, at_most=1),
        rule("faster", at_most=1),
        rule("same_bits", at_most=1),
        rule("same_errors", outputs=[]),
    ],
)
def test_rule_that_says_nothing_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        ADAPTER.validate_python(wrong)


def test_leaves_come_in_order() -> None:
    parts = [rule("same_bits"), {"kind": "any", "rules": [rule("same_bits"), FLIPS["outcome"][0]]}]
    whole = ADAPTER.validate_python({"kind": "all", "rules": parts})
    assert [leaf.kind for leaf in leaves_of(whole)] == ["same_bits", "same_bits", "outcome"]
