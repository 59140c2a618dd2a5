"""Compare jobs through API, store and pages, with a worker whose comparisons are made up."""

from typing import Any

import pytest

from lossbench.service.api.context import ServiceContext
from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.service.contract.errors import LotLostError
from lossbench.service.contract.run import Cell
from lossbench.service.contract.words import Outcome, Pass, Verdict
from lossbench.service.store.comparisons import ComparisonFilter, comparisons_page
from lossbench.web.app import create_app

from .referee import BODY, Referee

JOBS, COMPARE, COMPARISONS = "/api/v1/jobs", "/api/v1/compare", "/api/v1/comparisons"
CASE = "N1024-H512-V4096-bfloat16"


def items(service: Any, path: str, **query: Any) -> list[dict[str, Any]]:
    answer = service.http.get(path, params=query)
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


def verdict_cell(service: Any, base: str, cand: str, **query: Any) -> dict[str, Any]:
    """The only candidate on the only case of GET /compare."""
    (row,) = items(service, COMPARE, base=base, cand=cand, **query)
    found: dict[str, Any] = row["candidates"][0]
    return found


def test_comparison_is_stored_with_its_runs_and_listed(any_service: Any) -> None:
    referee = Referee(any_service)
    job = referee.submit(passes=["forward", "forward_backward"])
    assert items(any_service, COMPARISONS, job=job) == []
    referee.settle(job)
    found = items(any_service, COMPARISONS, job=job)
    assert len(found) == 2
    first = found[0]
    cells = any_service.http.get(f"{JOBS}/{job}/cells").json()["items"]
    results = {
        cell["contender"]: cell["result_id"] for cell in cells if cell["pass"] == first["pass"]
    }
    assert (first["base_result_id"], first["candidate_result_id"]) == (
        results["liger@0.6.5"],
        results["liger@0.8.5"],
    )
    assert (first["verdict"], first["ratio"], first["processes"]) == ("slower", 2.0, 3)
    assert first["minimum_detectable_effect"] == 0.02
    assert first["log_ratios"] == [0.69, 0.70, 0.69]
    assert (first["job_id"], first["case"], first["device_name"]) == (job, CASE, "NVIDIA H200")
    one = any_service.http.get(f"{COMPARISONS}/{first['id']}")
    assert one.json() == first
    assert one.headers["etag"]
    queries: list[tuple[dict[str, Any], int]] = [
        ({"base": "liger@0.6.5"}, 2),
        ({"base": "liger@0.8.5"}, 0),
        ({"candidate": "liger@0.8.5", "case": CASE}, 2),
        ({"pass": "forward"}, 1),
        ({"verdict": ["slower", "faster"]}, 2),
        ({"verdict": "faster"}, 0),
        ({"job": "job-other"}, 0),
    ]
    for query, expected in queries:
        assert len(items(any_service, COMPARISONS, **query)) == expected, query


def test_comparisons_page_by_page_are_each_one_once(any_service: Any) -> None:
    referee = Referee(any_service)
    job = referee.submit(sweep={"tokens": [1, 2, 3, 4, 5]})
    referee.settle(job)
    seen: list[str] = []
    query: dict[str, Any] = {"limit": 2}
    while True:
        answer = any_service.http.get(COMPARISONS, params=query)
        seen += [item["id"] for item in answer.json()["items"]]
        if answer.json()["next_cursor"] is None:
            break
        assert 'rel="next"' in answer.headers["link"]
        query["cursor"] = answer.json()["next_cursor"]
    assert len(seen) == len(set(seen)) == 5
    assert seen == sorted(seen, reverse=True)


def test_comparison_that_is_not_there_is_not_found(service: Any) -> None:
    answer = service.http.get(f"{COMPARISONS}/cmp-none")
    assert (answer.status_code, answer.json()["title"]) == (404, "Not found")


def test_compare_takes_the_verdict_of_the_newest_comparison(any_service: Any) -> None:
    referee = Referee(any_service)
    referee.settle(referee.submit(), verdict=Verdict.FASTER, ratio=0.5)
    newest = referee.submit()
    referee.settle(newest)
    cell = verdict_cell(any_service, "liger@0.6.5", "liger@0.8.5")
    assert (cell["verdict"], cell["verdict_note"]) == ("slower", None)
    assert (cell["ratio"], cell["ratio_low"], cell["ratio_high"]) == (2.0, 1.9, 2.1)
    assert cell["ratio_source"] == "measured head to head in 3 processes"
    assert cell["minimum_detectable_effect"] == 0.02
    assert cell["comparison_id"] == items(any_service, COMPARISONS, job=newest)[0]["id"]
    head = any_service.http.get(
        COMPARE, params={"base": "liger@0.6.5", "cand": "liger@0.8.5"}
    ).json()["candidates"][0]
    assert head["verdict"] == "slower"
    assert head["verdict_note"] == "1 slower; 1 of 1 common cases measured head to head"
    assert head["geometric_mean_ratio"] == pytest.approx(2.0)


def test_compare_the_other_way_round_turns_ratio_and_verdict(any_service: Any) -> None:
    referee = Referee(any_service)
    referee.settle(referee.submit())
    cell = verdict_cell(any_service, "liger@0.8.5", "liger@0.6.5")
    assert cell["verdict"] == "faster"
    assert (cell["ratio"], cell["ratio_low"]) == (0.5, pytest.approx(1 / 2.1))
    assert cell["ratio_high"] == pytest.approx(1 / 1.9)


def test_compare_without_a_comparison_of_both_says_so(any_service: Any) -> None:
    referee = Referee(any_service)
    referee.settle(referee.submit())
    job = any_service.http.post(JOBS, json={**BODY, "kind": "benchmark", "contenders": ["flce"]})
    referee.worker.answer(job.json()["id"])
    cell = verdict_cell(any_service, "liger@0.6.5", "flce")
    assert (cell["verdict"], cell["verdict_note"]) == (None, "not measured head to head")
    assert cell["comparison_id"] is None


def test_compare_ignores_a_comparison_on_other_hardware(any_service: Any) -> None:
    referee = Referee(any_service)
    elsewhere = referee.worker.record(
        Cell(
            contender=Contender.parse("flce"),
            case=Case.parse(CASE),
            pass_=Pass.FORWARD_BACKWARD,
        )
    ).environment.model_copy(update={"hardware_fingerprint": "another"})
    referee.settle(referee.submit(), environment=elsewhere)
    assert verdict_cell(any_service, "liger@0.6.5", "liger@0.8.5")["verdict"] is None


def test_compare_ignores_a_comparison_on_an_invalidated_run(any_service: Any) -> None:
    referee = Referee(any_service)
    referee.settle(referee.submit(), verdict=Verdict.FASTER)
    referee.settle(referee.submit())
    newest = items(any_service, COMPARISONS)[0]
    path = f"/api/v1/results/{newest['base_result_id']}"
    any_service.http.patch(path, json={"invalid_reason": "throttled"})
    assert verdict_cell(any_service, "liger@0.6.5", "liger@0.8.5")["verdict"] == "faster"


def test_side_found_wrong_since_takes_the_verdict_away(any_service: Any) -> None:
    referee = Referee(any_service)
    referee.settle(referee.submit(), verdict=Verdict.FASTER, ratio=0.5)
    body = {**BODY, "kind": "benchmark", "contenders": ["liger@0.8.5"], "reuse": False}
    job = any_service.http.post(JOBS, json=body).json()["id"]

    def wrong(cell: Any) -> Any:
        return referee.worker.record(cell, outcome=Outcome.WRONG, reason="dw is zero")

    referee.worker.answer(job, wrong)
    cell = verdict_cell(any_service, "liger@0.6.5", "liger@0.8.5")
    assert (cell["verdict"], cell["ratio"]) == ("inconclusive", None)
    assert cell["verdict_note"] == "the newest result of liger@0.8.5 is wrong"


def test_lot_that_was_lost_stores_no_comparison(any_service: Any) -> None:
    referee = Referee(any_service)
    job = referee.submit()
    ((lot_id, attempt),) = referee.lots(job)
    referee.worker.work.begin_lot(lot_id, attempt)
    task = referee.worker.work.begin_case(lot_id, attempt, 0)
    any_service.http.post(f"{JOBS}/{job}/cancel")
    with pytest.raises(LotLostError):
        referee.worker.work.save_case(task, referee.answers(task), referee.verdicts(task))
    with any_service.context.database.reading() as session:
        assert comparisons_page(session, ComparisonFilter()) == []


def test_retry_runs_both_sides_and_the_newest_comparison_counts(any_service: Any) -> None:
    referee = Referee(any_service)
    job = referee.submit(sweep={"tokens": [8, 16]})
    ((lot_id, attempt),) = referee.lots(job)
    work = referee.worker.work
    work.begin_lot(lot_id, attempt)
    for case_index, lost in ((0, None), (1, Outcome.FAILED)):
        task = work.begin_case(lot_id, attempt, case_index)
        why = {"reason": "no verdict", "ratio": None} if lost else {}
        verdict = Verdict.INCONCLUSIVE if lost else Verdict.SLOWER
        work.save_case(
            task, referee.answers(task, lost), referee.verdicts(task, verdict=verdict, **why)
        )
    work.finish_lot(lot_id, attempt)
    retried = any_service.http.post(f"{JOBS}/{job}/retry").json()
    # the base of the failed candidate too, and nothing of the other case
    assert retried["cells_requeued"] == 2
    ((lot_id, attempt),) = referee.lots(job)
    work.begin_lot(lot_id, attempt)
    assert work.begin_case(lot_id, attempt, 0) is None
    task = work.begin_case(lot_id, attempt, 1)
    assert len(task.cells) == 2
    work.save_case(task, referee.answers(task), referee.verdicts(task))
    assert any_service.http.get(f"{JOBS}/{job}").json()["state"] == "done"
    made = items(any_service, COMPARISONS, job=job)
    assert [each["verdict"] for each in made] == ["slower", "inconclusive", "slower"]
    text = pages_of(any_service).get(f"/jobs/{job}").text
    assert "inconclusive" not in text.partition("For a pull request")[0]


def test_job_never_answers_a_comparison_with_known_results(any_service: Any) -> None:
    referee = Referee(any_service)
    referee.settle(referee.submit())
    plan = any_service.http.post(
        JOBS, params={"dry_run": "true"}, json={**BODY, "contenders": ["liger@0.6.5", "liger"]}
    ).json()
    assert (plan["cells_known"], plan["cells_to_run"]) == (0, 2)
    assert plan["longest_minutes"] > plan["estimated_minutes"] > 0
    body = {**BODY, "contenders": ["liger@0.6.5", "liger"], "kind": "benchmark"}
    plan = any_service.http.post(JOBS, params={"dry_run": "true"}, json=body).json()
    assert (plan["cells_known"], plan["longest_minutes"]) == (2, None)


@pytest.mark.parametrize(
    ("changes", "pointer"),
    [
        ({"contenders": ["flce"]}, "/contenders"),
        ({"contenders": ["flce", "liger@0.6.5", "liger@0.8.5"]}, "/contenders"),
        ({"contenders": ["flce", "liger"], "max_processes": 2}, "/max_processes"),
        ({"contenders": ["flce", "liger"], "processes": 9, "max_processes": 8}, "/max_processes"),
        ({"kind": "benchmark", "contenders": ["flce"], "max_processes": 8}, "/max_processes"),
    ],
)
def test_request_that_is_no_comparison_is_one_clear_fault(
    service: Any, changes: dict[str, Any], pointer: str
) -> None:
    answer = service.http.post(JOBS, json={**BODY, **changes})
    assert answer.status_code == 422
    assert [fault["pointer"] for fault in answer.json()["errors"]] == [pointer]


def pages_of(service: Any) -> Any:
    """The pages over the service's database, in this process."""
    context: ServiceContext = service.context
    other = type(service)(context, service._portal)
    other.app = create_app(context)
    return other.client()


def test_pages_show_the_verdict_in_words_with_interval_and_effect(any_service: Any) -> None:
    referee = Referee(any_service)
    job = referee.submit()
    referee.settle(job)
    pages = pages_of(any_service)
    text = pages.get(f"/jobs/{job}").text
    for words in ("<b>slower</b>", "2.000×", "1.900 – 2.100", "2.0 %", "3 to 24", "20.0"):
        assert words in text, words
    assert "**`liger@0.8.5` against `liger@0.6.5`**" in text.replace("&#39;", "'")
    compared = pages.get("/compare", params={"job": job}).text
    for words in ("<b>slower</b>", "2.000×", "2.0 %", "measured head to head in 3 processes"):
        assert words in compared, words
