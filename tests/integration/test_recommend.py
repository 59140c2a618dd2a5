"""GET /recommend: the contender to use, its evidence, and what is not measured."""

from collections.abc import Iterator
from typing import Any

import pytest

from lossbench.service.contract.run import ErrorReport, OutputError
from lossbench.service.contract.words import Flag, Grade, Outcome

from .shared_sites import ENGINES, VOCAB, Site, open_site

GIB = 2**30
TIMES = {"flce": 20.0, "liger": 25.0, "torch-naive": 40.0}


@pytest.fixture(scope="module", params=ENGINES)
def shared(request: pytest.FixtureRequest) -> Iterator[Site]:
    """One site for all tests of this file, on each engine in turn."""
    yield from open_site(request)


@pytest.fixture
def site(shared: Site) -> Site:
    """The site, with a hidden size that no other test has."""
    return shared.renewed()


def ask(site: Site, **query: Any) -> dict[str, Any]:
    """The answer for this test's shape."""
    shape = {"hidden": site.hidden, "vocab": VOCAB, "tokens": 1024}
    asked = {name: value for name, value in {**shape, **query}.items() if value is not None}
    found: dict[str, Any] = site.get("/recommend", **asked)
    return found


def measure(site: Site, changes: dict[str, dict[str, Any]] | None = None, **job: Any) -> None:
    """Store a result of flce, two ligers and torch-naive; `changes` by kernel@version."""

    def answer(cell: Any) -> Any:
        fields = (changes or {}).get(cell.contender.text, {})
        time = fields.get("latency_ms", TIMES[cell.contender.kernel])
        rest = {name: value for name, value in fields.items() if name != "latency_ms"}
        return site.worker.record(cell, time, **rest)

    contenders = ["flce", "liger@0.6.5", "liger@0.8.5", "torch-naive"]
    site.measure(answer=answer, **{"contenders": contenders, **job})


def graded(grade: Grade) -> ErrorReport:
    return ErrorReport(outputs=(OutputError(output="dw", ratio=1.2, relative_l2=1.0),), grade=grade)


def names(listed: list[dict[str, Any]]) -> list[str]:
    return [each["contender"] for each in listed]


def test_recommend_gives_the_fastest_with_its_runner_up_and_evidence(site: Site) -> None:
    measure(site, {"liger@0.6.5": {"latency_ms": 30.0}})
    found = ask(site)
    assert (found["exact"], found["shape_note"], found["case"]) == (True, None, site.case())
    use, second = found["use"], found["runner_up"]
    assert (use["contender"], second["contender"]) == ("flce@2.11.0", "liger@0.8.5")
    assert (use["ratio_to_baseline"], use["ratio_low"]) == (0.5, 0.49)
    assert (use["grade"], use["worst_output"], use["worst_error_ratio"]) == ("fair", "dw", 1.1)
    assert site.get(f"/results/{use['result_id']}")["kernel"] == "flce"
    assert found["told_apart"] is True
    assert names(found["evidence"]) == [
        "flce@2.11.0", "liger@0.8.5", "liger@0.6.5", "torch-naive@2.11.0",
    ]  # fmt: skip
    assert found["evidence"][3]["ratio_to_baseline"] == 1.0
    assert found["device_name"] == "NVIDIA H200"
    assert found["sentence"].startswith("Use flce@2.11.0 (0.500× the time of torch-naive, 95 % ")
    assert "runner-up liger@0.8.5" in found["sentence"]
    assert second["snippet"].startswith("# pip install liger-kernel==0.8.5\n")
    assert (found["not_measured"], found["measure_command"]) == ([], None)


def test_recommend_never_takes_a_wrong_or_suspect_contender(site: Site) -> None:
    wrong = {"outcome": Outcome.WRONG, "reason": "dw: missing", "latency_ms": 1.0}
    suspect = {"latency_ms": 2.0, "flags": (Flag.SUSPECT,)}
    measure(site, {"flce": wrong, "liger@0.8.5": suspect})
    found = ask(site)
    assert found["use"]["contender"] == "liger@0.6.5"
    assert names(found["evidence"]) == ["liger@0.6.5", "torch-naive@2.11.0"]
    left_out = {each["contender"]: each for each in found["left_out"]}
    assert left_out["flce@2.11.0"]["reason"] == "dw: missing"
    assert left_out["flce@2.11.0"]["outcome"] == "wrong"
    assert "suspect" in left_out["liger@0.8.5"]["reason"]


def test_recommend_keeps_to_grade_and_workspace(site: Site) -> None:
    slim = {"memory": None, "latency_ms": 10.0}
    measure(site, {"flce": {"errors": graded(Grade.COARSE)}, "liger@0.6.5": slim})
    assert ask(site)["use"]["contender"] == "liger@0.6.5"
    assert ask(site, max_error_grade="coarse", max_workspace="1GiB")["use"]["contender"] == (
        "flce@2.11.0"
    )
    found = ask(site, max_workspace="1.5GiB")
    assert found["use"]["contender"] == "liger@0.8.5"
    reasons = {each["contender"]: each["reason"] for each in found["left_out"]}
    assert reasons["flce@2.11.0"] == "its error is coarse; fair is asked for"
    assert reasons["liger@0.6.5"] == "its workspace is not known"
    nothing = ask(site, max_workspace=str(GIB - 1))
    assert (nothing["use"], nothing["exact"]) == (None, True)
    assert nothing["sentence"] == "No recommendation: no measured contender fits."


def test_recommend_names_the_nearest_shape_and_never_takes_it_silently(site: Site) -> None:
    measure(site, sweep={"tokens": [64, 4096]})
    found = ask(site, tokens=2048)
    assert (found["exact"], found["case"]) == (False, site.case(4096))
    assert found["asked_case"] == site.case(2048)
    assert found["shape_note"] == (
        f"{site.case(2048)} is not measured here. This is the nearest measured shape, "
        f"{site.case(4096)}: 4,096 tokens for 2,048"
    )
    assert found["shape_note"] in found["sentence"]
    missing = {each["contender"]: each["reason"] for each in found["not_measured"]}
    assert set(missing) == {"flce", "liger@0.8.5", "torch-naive"}
    assert found["measure_command"].startswith("lossbench submit -c 'flce' -c 'liger@0.8.5'")
    assert f"-s 2048x{site.hidden}x{VOCAB}" in found["measure_command"]
    # another loss is another question: no shape is near
    other = ask(site, softcap=30)
    assert (other["use"], other["case"]) == (None, None)
    assert "nor is any other shape with these options" in other["shape_note"]


def test_recommend_says_what_is_not_measured_and_why(site: Site) -> None:
    measure(site, contenders=["liger@0.6.5"], options={"bias": True})
    found = ask(site, bias="true")
    assert {each["contender"]: each["reason"] for each in found["not_measured"]} == {
        "flce": "no result on this case and device",
        "liger@0.8.5": "only older versions have a result on this case and device",
        "torch-naive": "no result on this case and device",
    }
    assert found["use"]["contender"] == "liger@0.6.5"
    assert "bias=bias" in found["use"]["snippet"]
    assert found["measure_command"].endswith("-o bias=True --watch")
    cannot = {each["contender"]: each["reason"] for each in ask(site, softcap=1)["not_measured"]}
    assert cannot["flce"] == "has no option softcap"


def test_recommend_of_a_model_takes_its_shape_and_options(site: Site) -> None:
    measure(site, shapes=[{"model": "gemma-2-2b", "tokens": 512}])
    found = ask(site, hidden=None, vocab=None, model="gemma-2-2b", tokens=512)
    assert (found["case"], found["exact"]) == ("N512-H2304-V256000-bfloat16", True)


def test_recommend_lets_a_comparison_head_to_head_decide(site: Site) -> None:
    measure(site, {"liger@0.8.5": {"latency_ms": 20.1}})
    found = ask(site)
    assert (found["use"]["kernel"], found["told_apart"]) == ("flce", False)
    assert "not told apart from it" in found["sentence"]
    compared = site.compare("flce", "liger@0.8.5", 0.9, "faster")
    found = ask(site)
    assert (found["use"]["contender"], found["told_apart"]) == ("liger@0.8.5", True)
    assert found["comparison_id"] == compared


def test_recommend_s_runner_up_is_of_another_kernel(site: Site) -> None:
    releases = {"liger@0.8.5": {"latency_ms": 10.0}, "liger@0.6.5": {"latency_ms": 10.5}}
    measure(site, releases)
    found = ask(site)
    assert (found["use"]["contender"], found["runner_up"]["kernel"]) == ("liger@0.8.5", "flce")
    assert names(found["evidence"])[:2] == ["liger@0.8.5", "liger@0.6.5"]
    # the older release won when the two met
    site.compare("liger@0.8.5", "liger@0.6.5", 0.95, "faster")
    assert ask(site)["use"]["contender"] == "liger@0.6.5"
    assert ask(site)["runner_up"]["kernel"] == "flce"


def test_recommend_after_an_invalidation_rests_on_what_is_left(site: Site) -> None:
    measure(site)
    first = ask(site)["use"]
    site.invalidate(first["result_id"])
    found = ask(site)
    assert found["use"]["kernel"] == "liger"
    assert first["result_id"] not in str(found)
    assert [each["contender"] for each in found["not_measured"]] == ["flce"]


def test_recommend_never_takes_what_was_imported(site: Site) -> None:
    measure(site)
    site.store("liger@0.8.5", 1.0, imported=True)
    found = ask(site)
    assert (found["use"]["kernel"], found["runner_up"]["latency_ms"]) == ("flce", 25.0)
    alone = site.renewed()
    alone.store("flce", 1.0, imported=True)
    assert ask(alone)["exact"] is False


def test_recommend_takes_the_newest_result_of_a_contender(site: Site) -> None:
    measure(site)
    measure(site, {"flce": {"latency_ms": 39.0}}, contenders=["flce"])
    found = ask(site)
    assert names(found["evidence"]).count("flce@2.11.0") == 1
    assert found["use"]["kernel"] == "liger"


@pytest.mark.parametrize(
    ("query", "pointer", "words"),
    [
        ({"tokens": 8}, "/query/model", "needs model, or hidden and vocab"),
        ({"tokens": 8, "model": "gema-2-2b"}, "/query/model", "did you mean 'gemma-2-2b'?"),
        ({"tokens": 8, "model": "gemma-2-2b", "hidden": 8}, "/query/model", "either model"),
        ({"hidden": 8, "vocab": 8}, "/query/tokens", "required"),
        ({"tokens": 8, "hidden": 8, "vocab": 8, "max_workspace": "2 GO"}, "/query/max_workspace",
         "2GiB"),
        ({"tokens": 8, "hidden": 8, "vocab": 8, "softcp": 1}, "/query/softcp", "'softcap'"),
        ({"tokens": 8, "hidden": 8, "vocab": 8, "max_error_grade": "exakt"},
         "/query/max_error_grade", "'exact'"),
    ],
)  # fmt: skip
def test_recommend_names_what_is_wrong_with_a_query(
    shared_service: Any, query: dict[str, Any], pointer: str, words: str
) -> None:
    answer = shared_service.http.get("/api/v1/recommend", params=query)
    assert answer.status_code == 422
    (fault,) = answer.json()["errors"]
    assert fault["pointer"] == pointer
    assert words in fault["message"]


def test_recommend_asks_which_of_several_devices(service: Any) -> None:
    from .conftest import make_environment

    nothing = service.http.get("/api/v1/recommend", params={"model": "gemma-2-2b", "tokens": 8})
    assert nothing.json()["sentence"] == "No recommendation: nothing was measured yet."
    site = Site(service, service.worker())
    site.measure()
    small = make_environment("NVIDIA L4", "l4aaaaaa")
    site.measure(
        answer=lambda cell: site.worker.record(cell, 35.0, environment=small), contenders=["flce"]
    )
    query = {"hidden": site.hidden, "vocab": VOCAB, "tokens": 1024}
    refused = service.http.get("/api/v1/recommend", params=query).json()
    assert "Known: NVIDIA H200, NVIDIA L4" in refused["detail"]
    assert ask(site, gpu="l4")["use"]["latency_ms"] == 35.0
    assert ask(site, gpu="NVIDIA H200")["use"]["latency_ms"] == 20.0
    for name, words in (("nvidia", "part of several devices"), ("h20", "")):
        answer = service.http.get("/api/v1/recommend", params={**query, "gpu": name})
        assert words in answer.text
    unknown = service.http.get("/api/v1/recommend", params={**query, "gpu": "B200"})
    assert (unknown.status_code, "nothing was measured on" in unknown.text) == (422, True)
