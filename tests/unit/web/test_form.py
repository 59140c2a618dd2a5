"""The job form carries a request there and back, and says what it cannot carry."""

from typing import Any

import pytest

from lossbench.service.contract.errors import InvalidRequestError
from lossbench.service.contract.job import JobRequest
from lossbench.web.form import JobForm, unspoken

BODY: dict[str, Any] = {
    "contenders": ["flce[chunk_rows=256]", "liger@0.5.0"],
    "shapes": [{"tokens": 64, "hidden": 32, "vocab": 128}, {"model": "gemma-2-2b", "tokens": 64}],
    "dtypes": ["float32"],
    "passes": ["forward"],
    "options": {"bias": True, "softcap": 30.0, "frozen": "weight", "ignored_share": 0.25},
    "processes": 2,
    "labels": {"name": "mine"},
}


def test_form_of_a_request_gives_the_same_request() -> None:
    request = JobRequest.model_validate(BODY)
    again = JobForm.of_request(request).request()
    assert again.options == request.options
    assert {spec.model_dump_json() for spec in again.shapes} == {
        spec.model_dump_json() for spec in request.shapes
    }
    assert again.model_copy(update={"shapes": request.shapes}) == request
    assert unspoken(request) == []


def test_form_takes_a_range_and_all_on_lines_of_their_own() -> None:
    form = JobForm.fresh().model_copy(
        update={"more_contenders": "liger@>=0.5, <0.7\n\n liger@all[chunk_mem_const=2] \n"}
    )
    texts = [contender.text for contender in form.request().contenders]
    assert texts[-2:] == ["liger@>=0.5,<0.7", "liger@all[chunk_mem_const=2]"]
    assert [
        contender.text for contender in JobForm.of_request(form.request()).request().contenders
    ] == texts


def test_form_names_what_it_cannot_carry() -> None:
    body = BODY | {"sweep": {"tokens": [8, 16]}, "timeout_s": 5, "labels": {"branch": "main"}}
    assert unspoken(JobRequest.model_validate(body)) == ["sweep", "timeout_s", "labels"]


@pytest.mark.parametrize("text", ["bias", "softcap=[", "softcap="])
def test_form_with_an_unreadable_option_points_at_options(text: str) -> None:
    form = JobForm.fresh().model_copy(update={"options": text})
    with pytest.raises(InvalidRequestError) as caught:
        form.request()
    assert caught.value.faults[0].pointer == "/options"


def test_form_with_an_unknown_option_names_it() -> None:
    form = JobForm.fresh().model_copy(update={"options": "biass=true"})
    with pytest.raises(InvalidRequestError) as caught:
        form.request()
    assert caught.value.faults[0].pointer == "/options/biass"


def test_form_says_when_it_would_cross_models_with_tokens_of_others() -> None:
    def shapes(*pairs: tuple[str, int]) -> JobRequest:
        named = [{"model": model, "tokens": tokens} for model, tokens in pairs]
        return JobRequest.model_validate({"contenders": ["torch-naive"], "shapes": named})

    told = "which tokens belong to which model"
    assert told in unspoken(shapes(("llama-3-8b", 4096), ("gemma-2-2b", 8192)))
    full = [(model, n) for model in ("llama-3-8b", "gemma-2-2b") for n in (4096, 8192)]
    assert unspoken(shapes(*full)) == []
