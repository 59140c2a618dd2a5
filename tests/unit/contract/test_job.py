"""JobRequest: what a body may say, and what is refused with the field's name."""

from datetime import UTC, datetime
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from lossbench.service.contract.job import FEWEST_COMPARED, MOST_COMPARED, JobRequest, UtcTime
from lossbench.service.contract.words import Dtype, JobKind, Pass, Recipe
from lossbench.service.statistics.verdict import LOOKS

SHAPE = {"tokens": 8, "hidden": 4, "vocab": 16}
STREAM = {"first": 1, "random": 2, "low": 1, "high": 4, "last": 4}


def body(**changes: Any) -> dict[str, Any]:
    return {"contenders": ["flce"], "shapes": [SHAPE], **changes}


def faults_of(**changes: Any) -> list[tuple[Any, ...]]:
    with pytest.raises(ValidationError) as caught:
        JobRequest.model_validate(body(**changes))
    return [error["loc"] for error in caught.value.errors()]


def test_request_of_two_fields_takes_the_defaults() -> None:
    request = JobRequest.model_validate(body())
    assert request.kind is JobKind.BENCHMARK
    assert (request.dtypes, request.passes) == ([Dtype.BFLOAT16], [Pass.FORWARD_BACKWARD])
    assert request.recipes == [Recipe.NORMAL]
    assert (request.baseline.text, request.accelerator) == ("torch-naive", "any")
    assert (request.processes, request.priority, request.timeout_s) == (3, 5, 600.0)
    assert (request.deadline_s, request.reuse, request.labels) == (None, True, {})


def test_request_example_is_valid() -> None:
    assert JobRequest.model_validate(JobRequest.example()).contenders[1].text == "liger@0.8.5"


def test_request_dumped_and_read_again_is_equal() -> None:
    request = JobRequest.model_validate(
        body(
            contenders=["liger@0.8.5[accum_dtype=float32]", {"kernel": "flce"}],
            shapes=[SHAPE, {"model": "gemma-2-2b", "tokens": {"stream": STREAM}}],
            labels={"branch": "main"},
        )
    )
    assert JobRequest.model_validate(request.model_dump(mode="json")) == request


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"contender": ["flce"]}, ("contender",)),
        ({"contenders": []}, ("contenders",)),
        ({"contenders": ["flce"] * 201}, ("contenders",)),
        ({"contenders": ["f lce"]}, ("contenders", 0)),
        ({"shapes": []}, ("shapes",)),
        ({"shapes": [SHAPE] * 1001}, ("shapes",)),
        ({"shapes": [{"tokens": 8}]}, ("shapes", 0)),
        ({"shapes": [{"tokens": 8, "hidden": 4}]}, ("shapes", 0)),
        ({"shapes": [{**SHAPE, "model": "gemma-2-2b"}]}, ("shapes", 0)),
        ({"shapes": [{**SHAPE, "hidden": 2**17 + 1}]}, ("shapes", 0, "hidden")),
        ({"shapes": [{**SHAPE, "vocab": 1}]}, ("shapes", 0, "vocab")),
        ({"shapes": [{**SHAPE, "batch": 1}]}, ("shapes", 0, "batch")),
        ({"sweep": {"tokens": [0]}}, ("sweep", "tokens", 0)),
        ({"sweep": {"heads": [1]}}, ("sweep", "heads")),
        ({"dtypes": []}, ("dtypes",)),
        ({"passes": ["both"]}, ("passes", 0)),
        ({"recipes": ["zeros"]}, ("recipes", 0)),
        ({"options": {"label_smoothing": 1.0}}, ("options", "label_smoothing")),
        ({"options": {"softcap": float("nan")}}, ("options", "softcap")),
        ({"options": {"ignore_index": 0}}, ("options", "ignore_index")),
        ({"processes": 0}, ("processes",)),
        ({"processes": 25}, ("processes",)),
        ({"priority": 10}, ("priority",)),
        ({"timeout_s": 0}, ("timeout_s",)),
        ({"timeout_s": 7201}, ("timeout_s",)),
        ({"timeout_s": float("nan")}, ("timeout_s",)),
        ({"deadline_s": 31 * 86400}, ("deadline_s",)),
        ({"accelerator": "H200"}, ("accelerator",)),
        ({"labels": {"Branch": "x"}}, ("labels", "Branch", "[key]")),
        ({"labels": {"branch": ""}}, ("labels", "branch")),
        ({"labels": {f"l{i}": "x" for i in range(21)}}, ("labels",)),
    ],
)
def test_request_out_of_limits_is_refused_at_the_field(
    changes: dict[str, Any], where: tuple[Any, ...]
) -> None:
    assert where in faults_of(**changes)


def test_request_with_several_faults_names_all() -> None:
    found = faults_of(priority=0, processes=0, nonsense=1)
    assert set(found) == {("priority",), ("processes",), ("nonsense",)}


def test_request_of_a_training_needs_only_contenders_and_survives_its_json() -> None:
    request = JobRequest.model_validate({"kind": "train", "contenders": ["torch-naive", "flce"]})
    assert request.is_training
    assert request.training is not None
    assert (request.training.size, request.training.steps, request.training.seeds) == ("1m", 500, 5)
    assert JobRequest.model_validate(request.model_dump(mode="json")) == request


@pytest.mark.parametrize(
    ("changes", "where"),
    [
        ({"shapes": [{"tokens": 8, "hidden": 4, "vocab": 16}]}, ("shapes",)),
        ({"processes": 5}, ("processes",)),
        ({"training": {"size": "2m"}}, ("training", "size")),
        ({"training": {"vocab": 300}}, ("training", "vocab")),
        ({"training": {"vocab": "bites"}}, ("training", "vocab")),
        ({"training": {"text": ["/etc/hostname"]}}, ("training", "text", 0)),
        ({"training": {"steps": 1_000_001}}, ("training", "steps")),
        ({"training": {"learning_rate": 0}}, ("training", "learning_rate")),
    ],
)
def test_request_of_a_training_is_refused_at_the_field(
    changes: dict[str, Any], where: tuple[Any, ...]
) -> None:
    with pytest.raises(ValidationError) as refused:
        JobRequest.model_validate({"kind": "train", "contenders": ["flce"], **changes})
    assert [fault["loc"] for fault in refused.value.errors()] == [where]


def test_request_of_another_kind_has_no_training() -> None:
    assert faults_of(training={}) == [("training",)]


def test_request_of_a_comparison_takes_the_defaults() -> None:
    request = JobRequest.model_validate(body(kind="compare", contenders=["flce", "liger"]))
    assert request.is_comparison
    assert (request.processes, request.least_processes, request.max_processes) == (3, 3, 24)
    assert (LOOKS[0], LOOKS[-1]) == (FEWEST_COMPARED, MOST_COMPARED)


def test_request_of_a_comparison_begins_with_enough_processes_for_a_verdict() -> None:
    wanted = {"kind": "compare", "processes": 1}
    assert JobRequest.model_validate(body(**wanted)).least_processes == 3
    assert JobRequest.model_validate(body(processes=1)).least_processes == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"max_processes": 8}, "only a job of kind compare has max_processes; use processes"),
        ({"kind": "compare", "processes": 12, "max_processes": 8}, "8, less than processes, 12"),
        ({"kind": "compare", "max_processes": 2}, "greater than or equal to 3"),
        ({"kind": "compare", "max_processes": 25}, "less than or equal to 24"),
    ],
)
def test_request_with_max_processes_that_do_not_fit_is_refused_at_the_field(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValidationError, match=message):
        JobRequest.model_validate(body(**changes))
    assert faults_of(**changes) == [("max_processes",)]


def test_utc_time_of_another_zone_becomes_utc() -> None:
    adapter: TypeAdapter[datetime] = TypeAdapter(UtcTime)
    expected = datetime(2026, 11, 30, 10, tzinfo=UTC)
    got = adapter.validate_python("2026-11-30T12:00:00+02:00")
    assert (got, got.tzinfo) == (expected, UTC)


@pytest.mark.parametrize("value", ["2026-11-30T12:00:00", datetime(2026, 11, 30)])
def test_utc_time_without_zone_is_refused(value: object) -> None:
    with pytest.raises(ValidationError, match="zone"):
        TypeAdapter(UtcTime).validate_python(value)
