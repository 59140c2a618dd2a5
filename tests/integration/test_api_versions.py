"""Versions that stand for several, through the API: expanded, counted, refused with one fault."""

from typing import Any

import pytest

JOBS = "/api/v1/jobs"
SHAPE = {"tokens": 1024, "hidden": 512, "vocab": 4096}


def body(*contenders: Any, **changes: Any) -> dict[str, Any]:
    return {"contenders": list(contenders), "shapes": [SHAPE], **changes}


def test_job_at_a_range_names_every_release(any_service: Any) -> None:
    asked = body("flce", "liger@>=0.6,<0.8", {"kernel": "liger", "version": "all"})
    dry = any_service.http.post(f"{JOBS}?dry_run=true", json=asked).json()
    found = ["flce", "liger@0.6.0", "liger@0.6.5", "liger@0.8.5"]
    assert [cell["contender"] for cell in dry["cells"]] == found
    job = any_service.http.post(JOBS, json=asked).json()
    stored = [each["version"] for each in job["request"]["contenders"]]
    assert stored == [None, "0.6.0", "0.6.5", "0.8.5"]
    cells = any_service.http.get(f"{JOBS}/{job['id']}/cells").json()["items"]
    assert [cell["contender"] for cell in cells] == found


@pytest.mark.parametrize(
    ("asked", "pointer", "words"),
    [
        (body("flce", "liger@>=0.9"), "/contenders/1/version", "'>=0.9'. Known: 0.8.5, 0.6.5"),
        (body("torch-naive@all"), "/contenders/0/version", "carries torch's version"),
        (body("liger", baseline="torch-naive@>=2"), "/baseline/version", "here one is needed"),
        (body("liger@>=0.5,0.7"), "/contenders/0/version", "is not a range of versions"),
        (body("liger@>=0.6", "<0.8"), "/contenders/1", "put the whole contender in quotes"),
    ],
)
def test_job_at_a_range_that_means_nothing_is_one_fault(
    shared_service: Any, asked: dict[str, Any], pointer: str, words: str
) -> None:
    answer = shared_service.http.post(JOBS, json=asked)
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in fault["message"]


def test_job_at_a_range_counts_its_cells(make_service: Any, sqlite_url: str) -> None:
    service = make_service(sqlite_url, max_cells=2)
    answer = service.http.post(JOBS, json=body("liger@all"))
    assert (answer.status_code, answer.json()["errors"][0]["code"]) == (422, "too_many_cells")
    assert service.http.post(JOBS, json=body("liger@<0.8")).status_code == 202


def test_comparison_with_a_range_is_refused(shared_service: Any) -> None:
    query = {"base": "flce", "cand": "liger@>=0.6"}
    answer = shared_service.http.get("/api/v1/compare", params=query)
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert (fault["pointer"], fault["code"]) == ("/query/cand/0/version", "several_versions")


def test_openapi_describes_versions(shared_service: Any) -> None:
    document = shared_service.http.get("/openapi.json").json()
    text = document["components"]["schemas"]["Contender"]["properties"]["version"]["description"]
    assert "`>=0.5,<0.7`" in text
    assert "`all`" in text
