"""Schemathesis over the whole OpenAPI document, against a service on a socket, SQLite and queue.

Every operation is first asked what it must answer with 2xx, then made-up requests: such as the
schema allows, and such as it forbids. No answer may be a 500, each fits its schema, each refusal is
a problem that names the field. The shares of the answers are printed.
"""

import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, Phase, Verbosity, given, seed, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import GenerationMode
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import FailureGroup
from schemathesis.core.parameters import ParameterLocation
from schemathesis.engine import events, from_schema
from starlette.responses import JSONResponse

from lossbench.service.api.security import AuthMode
from lossbench.service.contract.words import Scope

from .filled_service import Example, Examples, fill

SEED = 20261130
FEW, MANY, WALKS = 1, 150, 50
# A request that the schema allows may still name a kernel that is not there: that is a 422.
LEFT_OUT = {"positive_data_acceptance", "use_after_free", "ensure_resource_availability"}
NAMELESS = {"not-found", "conflict", "not-authenticated", "not-allowed", "method-not-allowed"}
NAMELESS |= {"unsupported-media-type", "body-too-large"}
IMPORT = "POST /api/v1/imports"
OF_THE_WHOLE = {"json_syntax", "yaml_syntax", "odd_character", "model_type"}
"""Codes of faults of a whole body or address, which have no place of their own."""


@dataclass
class Tour:
    """Asks operations and keeps what was answered."""

    address: str
    token: str
    examples: Examples
    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    session: requests.Session = field(default_factory=requests.Session)

    def __post_init__(self) -> None:
        self.session.trust_env = False
        load_all_checks()
        self.checks = [check for check in CHECKS.get_all() if check.__name__ not in LEFT_OUT]

    def document(self) -> Any:
        """The document as it is served."""
        # a request without its token is what the check `ignored_auth` sends
        settled = {
            "seed": SEED,
            "continue-on-failure": True,
            "base-url": self.address,
            "headers": {"Authorization": f"Bearer {self.token}"},
            "generation": {"with-security-parameters": False, "max-examples": WALKS},
            "phases": {"fuzzing": {"enabled": False}},
            "checks": {name: {"enabled": False} for name in LEFT_OUT},
        }
        raw = self.session.get(f"{self.address}/openapi.json").json()
        config = schemathesis.Config.from_dict(settled)
        return schemathesis.openapi.from_dict(raw, config=config)

    def operations(self) -> list[Any]:
        """Everything that can be asked."""
        return [found.ok() for found in self.document().get_all_operations()]

    def ask(self, case: Any) -> None:
        """Send one request and look at the answer."""
        label = case.operation.label
        headers = {"Authorization": f"Bearer {self.token}"}
        answer = case.call(self.address, self.session, headers, timeout=20)
        self.statuses.setdefault(label, Counter())[answer.status_code] += 1
        again = {"base_url": self.address, "session": self.session, "headers": headers}
        try:
            case.validate_response(
                answer, self.checks, headers=headers, transport_kwargs={**again, "timeout": 20}
            )
        except FailureGroup as error:  # the whole tour is told, not its first fault
            self.faults.append(f"{label}: {error}")
        fault = problem_fault(answer, label)
        if fault:
            self.faults.append(f"{label}: {fault}\n{case.as_curl_command(headers)}\n{answer.text}")

    def ask_known(self, operation: Any) -> None:
        """Send what must be answered with 2xx."""
        label = operation.label
        example, *_ = self.examples.get(label, [Example()])
        if all(f"{{{name}}}" in operation.path for name in example.path) and (
            operation.path.count("{") == len(example.path)
        ):
            asked: dict[str, Any] = {"path_parameters": example.path, "query": example.query}
            if example.media_type:
                asked |= {"body": example.body, "media_type": example.media_type}
            self.ask(operation.Case(**asked))
        statuses = self.statuses.get(label, Counter())
        if not any(200 <= status < 300 for status in statuses):
            self.faults.append(
                f"{label} reached no 2xx but {dict(statuses)}: give filled_service.py a request "
                "that it answers"
            )

    def ask_made_up(self, operation: Any, mode: GenerationMode, count: int) -> None:
        """Send requests that Hypothesis makes from the schema."""
        examples = self.examples.get(operation.label, [])

        @seed(SEED)
        @settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
            verbosity=Verbosity.quiet,
        )
        @given(case=operation.as_strategy(generation_mode=mode), mix=st.integers(0, 2**32))
        def ask(case: Any, mix: int) -> None:
            narrow(case, examples, random.Random(mix))
            self.ask(case)

        try:
            ask()
        except (Unsatisfiable, pytest.skip.Exception):
            assert mode is GenerationMode.NEGATIVE, operation.label

    def ask_for_coverage(self, document: Any) -> None:
        """Send what Schemathesis enumerates: every bound, type, missing and unknown part.

        Then walks from answer to answer, such as from a list to its items.
        """
        chance = random.Random(SEED)

        @document.hook
        def map_case(context: Any, case: Any) -> Any:
            examples = self.examples.get(case.operation.label)
            if examples and case.meta.generation.mode is GenerationMode.POSITIVE:
                put_known(case, chance.choice(examples), chance)
            return case

        for event in from_schema(document).execute():
            if isinstance(event, events.NonFatalError | events.FatalError):
                self.faults.append(str(event))
            if isinstance(event, events.ScenarioFinished):
                self._note(event.recorder)

    def _note(self, recorder: Any) -> None:
        for case_id, interaction in recorder.interactions.items():
            label = recorder.cases[case_id].value.operation.label
            if interaction.response is None:
                self.faults.append(f"{label}: no answer")
                continue
            # methods that the document does not have are asked too: they are no share of its own
            status = interaction.response.status_code
            if status != 405:
                self.statuses.setdefault(label, Counter())[status] += 1
            fault = problem_fault(interaction.response, label)
            if fault:
                self.faults.append(f"{label}: {fault}\n{interaction.response.text}")
        for checks in recorder.checks.values():
            for check in checks:
                if check.failure_info is not None:
                    failure = check.failure_info
                    self.faults.append(
                        f"{failure.failure.operation}: {failure.failure}\n{failure.code_sample}"
                    )

    def report(self) -> str:
        """How each operation answered, in requests by status and the share of 2xx."""
        lines = [f"seed {SEED}", f"{'operation':54} asked   2xx  statuses"]
        for label, statuses in sorted(self.statuses.items()):
            said = " ".join(f"{status}:{count}" for status, count in sorted(statuses.items()))
            lines.append(f"{label:54} {statuses.total():5d} {share(statuses):5.0%}  {said}")
        total = sum(self.statuses.values(), Counter[int]())
        by_class = Counter({f"{s // 100}xx": 0 for s in total})
        for status, count in total.items():
            by_class[f"{status // 100}xx"] += count
        shares = ", ".join(f"{k} {n / total.total():.1%}" for k, n in sorted(by_class.items()))
        return "\n".join([*lines, f"{total.total()} requests: {shares}"])


def share(statuses: Counter[int]) -> float:
    """Share of 2xx."""
    return sum(n for status, n in statuses.items() if 200 <= status < 300) / statuses.total()


def put_known(case: Any, example: Example, chance: random.Random) -> None:
    """Put what exists in place of what was made up: its path, and often its query and body."""
    case.path_parameters.update(example.path)
    if chance.random() < 0.75:
        case.query.update(example.query)
    if example.media_type and chance.random() < 0.75:
        if isinstance(case.body, dict) and isinstance(example.body, dict):
            case.body = {**case.body, **example.body}
        else:
            case.body, case.media_type = example.body, example.media_type


def narrow(case: Any, examples: list[Example], chance: random.Random) -> None:
    """Leave away some of what was made up, and put what exists in place of some.

    What was made wrong on purpose stays: only its path, unless that is what is wrong.
    """
    example = chance.choice(examples) if examples else Example()
    if case.meta.generation.mode is GenerationMode.NEGATIVE:
        if not case.meta.is_negative_at(ParameterLocation.PATH) and chance.random() < 0.75:
            case.path_parameters.update(example.path)
        return
    if chance.random() < 0.5:
        case.query = {key: value for key, value in case.query.items() if chance.random() < 0.2}
    if isinstance(case.body, dict):
        case.body = {key: value for key, value in case.body.items() if chance.random() < 0.5}
    if chance.random() < 0.75:
        put_known(case, example, chance)


def problem_fault(answer: Any, label: str) -> str | None:
    """What is wrong with a refusal: it is a problem, and what is wrong in it is named."""
    if answer.status_code < 400:
        return None
    if answer.headers["content-type"] != ["application/problem+json"]:
        return f"{answer.status_code} is no problem"
    problem = answer.json()
    name = problem["type"].removeprefix("/docs/errors#")
    if problem["status"] != answer.status_code or not problem["detail"]:
        return "the problem does not say what its status says"
    if not problem["errors"] and name not in NAMELESS:
        return "the problem names no field"
    for fault in problem["errors"]:
        # a table has lines and columns, which the message names, and no pointers
        placed = fault["pointer"] or fault["code"] in OF_THE_WHOLE or label == IMPORT
        if not fault["message"] or not placed:
            return f"a fault does not say where it is: {fault}"
    return None


@pytest.fixture
def make_tour(make_service: Callable[..., Any], sqlite_url: str) -> Iterator[Callable[..., Tour]]:
    """Start a service with tokens, its threads running, one of everything in its database."""
    made: list[Tour] = []

    def make(spare: int) -> Tour:
        service = make_service(sqlite_url, AuthMode.TOKENS, writes_per_minute=10**6)
        service.context.start()
        token = service.token(Scope.SUBMIT, Scope.ADMIN, Scope.READ)
        made.append(Tour(service.listen(), token, fill(service, token, spare)))
        return made[-1]

    yield make
    for tour in made:
        tour.session.close()


def test_every_operation_answers_as_its_schema_says(
    make_tour: Callable[..., Tour], capsys: pytest.CaptureFixture[str]
) -> None:
    tour = make_tour(spare=3)
    ask_all(tour, FEW)
    conclude(tour, capsys)


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_every_operation_answers_as_its_schema_says_to_many_requests(
    make_tour: Callable[..., Tour], capsys: pytest.CaptureFixture[str]
) -> None:
    tour = make_tour(spare=60)
    ask_all(tour, MANY)
    tour.ask_for_coverage(tour.document())
    conclude(tour, capsys)


def ask_all(tour: Tour, count: int) -> None:
    """Ask every operation: the known request, `count` good and `count` bad ones."""
    operations = tour.operations()
    assert len(operations) > 30
    for operation in operations:
        tour.ask_known(operation)
        for mode in GenerationMode:
            tour.ask_made_up(operation, mode, count)


def conclude(tour: Tour, capsys: pytest.CaptureFixture[str]) -> None:
    """Print the shares, and fail on any fault."""
    with capsys.disabled():
        sys.stdout.write(f"\n{tour.report()}\n")
    counts = Counter(fault.partition(":")[0] for fault in tour.faults)
    assert not tour.faults, f"faults: {dict(counts)}\n" + "\n\n".join(tour.faults[:20])
    assert not any(status >= 500 for found in tour.statuses.values() for status in found)


@pytest.mark.slow
def test_tour_names_a_crash_a_wrong_shape_and_a_refusal_that_names_nothing(
    make_tour: Callable[..., Tour], monkeypatch: pytest.MonkeyPatch
) -> None:
    tour = make_tour(spare=1)
    document = tour.document()

    def crash(*_args: object, **_kwargs: object) -> None:
        raise RuntimeError("inside")

    def misshapen(*_args: object, **_kwargs: object) -> JSONResponse:
        return JSONResponse({"contender": 7})

    monkeypatch.setattr("lossbench.service.api.catalogue_routes.workers_page", crash)
    monkeypatch.setattr("lossbench.service.api.check_routes.tagged", misshapen)
    monkeypatch.setattr("lossbench.service.api.problems.faults_of", lambda _errors: [])
    machines, checks = "/api/v1/machines", "/api/v1/checks"
    tour.ask_known(document[machines]["GET"])
    tour.ask_known(document[checks + "/{check_id}"]["GET"])
    tour.ask(document[checks]["GET"].Case(query={"limit": 0}))
    said = "\n".join(tour.faults)
    assert "Server error\n\n[500]" in said
    assert f"GET {machines} reached no 2xx" in said
    assert "Response violates schema" in said
    assert f"GET {checks}: the problem names no field" in said
