"""Bodies that only the API speaks; jobs, cells and results are in `contract/result.py`."""

from datetime import UTC, datetime
from typing import Annotated, Any, Optional

from pydantic import AfterValidator, AwareDatetime, BeforeValidator, Field, create_model

from ..contract.catalogue import ParamRow
from ..contract.result import OutputErrorView, Result
from ..contract.run import Record
from ..contract.words import Flag, Grade, Outcome, Pass, Scope

NOT_HEAD_TO_HEAD = "not measured head to head"


def _to_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("the time is out of range") from error


def _no_number(value: object) -> object:
    # pydantic would take 0.5, and the text "0.5", as seconds since 1970
    if isinstance(value, str | int | float):
        try:
            float(value)
        except ValueError:
            return value
        raise ValueError("write the time with its zone, such as 2026-11-30T12:00:00Z")
    return value


Moment = Annotated[AwareDatetime, BeforeValidator(_no_number), AfterValidator(_to_utc)]
"""RFC 3339 with a zone; a time without one is refused, a bare number too."""

PassField = Annotated[Pass, Field(alias="pass", serialization_alias="pass")]


class DryRunCell(Record):
    """One cell that a job would have."""

    position: int
    contender: str
    case: str
    pass_: PassField
    known_result_id: str | None
    outcome: Outcome | None
    reason: str | None
    estimated_s: float
    estimated_peak_bytes: int


class DryRun(Record):
    """What a job would do; nothing was stored. Totals count only the cells that would run."""

    cells: tuple[DryRunCell, ...]
    cells_total: int
    cells_known: int
    cells_refused: int
    cells_to_run: int
    estimated_minutes: float
    longest_minutes: float | None = None
    """Of a compare job that takes the most processes everywhere; null for other kinds."""
    estimated_peak_bytes: int
    queue: str
    queues_live: tuple[str, ...] = ()
    """Queues that live workers take lots from: without `queue` among them the job waits."""
    machines_live: int


class Retried(Record):
    """How many cells of a job run again."""

    job_id: str
    cells_requeued: int


def _part_of(model: type[Record], name: str, about: str) -> Any:
    """A model with the fields of another, none of them required."""
    fields: dict[str, Any] = {
        key: (Optional[field.annotation], Field(default=None, alias=field.alias))  # noqa: UP045
        for key, field in model.model_fields.items()
    }
    return create_model(name, __base__=Record, __doc__=about, **fields)


ResultPart = _part_of(Result, "ResultPart", "Those fields of a result that were asked for.")


class SampleView(Record):
    """Raw samples of one arm in one process, in milliseconds, visit after visit."""

    arm: str
    process: int
    latency_ms: tuple[float | None, ...]
    visit_sizes: tuple[int, ...]


class Samples(Record):
    """All raw samples of a result."""

    result_id: str
    blocks: tuple[SampleView, ...]


class ResultPatch(Record):
    """Takes a result out of use. It is kept, and shown as invalidated."""

    invalid_reason: Annotated[str, Field(min_length=1, max_length=500)]


class KernelView(Record):
    """A kernel of the catalogue."""

    name: str
    summary: str
    origin: str
    package: str | None
    latest: str | None
    versions: tuple[str, ...]
    twins: dict[str, str]
    params: tuple[ParamRow, ...]
    options: tuple[str, ...]
    option_since: dict[str, str]
    dtypes: tuple[str, ...]
    gradients_in_forward: bool
    uses_triton: bool
    needs_compiler: bool


class MeasuredVersionView(Record):
    """What was measured of one version of a kernel."""

    version: str | None
    first_seen_at: datetime
    last_seen_at: datetime
    outcomes: dict[Outcome, int]


class KernelDetail(KernelView):
    """A kernel with what was measured of it, the newest version first."""

    measured: tuple[MeasuredVersionView, ...]


class CheckView(Record):
    """A check without its cases: `counts` by grade, or by outcome where there is none."""

    id: str
    contender: str
    kernel: str
    version: str | None
    device_type: str
    device_name: str
    interpreted: bool
    counts: dict[str, int]
    started_at: datetime
    ended_at: datetime


class KnownFailure(Record):
    """A case of the correctness grid that the newest check of a version did not pass."""

    check_id: str
    contender: str
    device_name: str
    case: str
    what: str
    outcome: Outcome
    reason: str | None
    known_fault: str | None


class KernelVersionDetail(Record):
    """One version of a kernel: what it can do, what was measured and what its checks found."""

    kernel: str
    version: str
    twin_of: str | None
    """The earlier version whose executed code is the same."""
    options: tuple[str, ...]
    params: tuple[ParamRow, ...]
    dtypes: tuple[str, ...]
    source_hash: str | None
    measured: MeasuredVersionView | None
    checks: tuple[CheckView, ...]
    known_failures: tuple[KnownFailure, ...]


class MachineView(Record):
    """A worker with its device."""

    id: str
    name: str
    state: str
    note: str | None
    queues: tuple[str, ...]
    lots_waiting: int
    lot_id: str | None
    started_at: datetime
    beat_at: datetime
    environment_id: str | None
    device_type: str | None
    device_name: str | None
    memory_bytes: int | None
    facts: dict[str, Any]
    vitals: dict[str, Any]


class TokenRequest(Record):
    """A new token. Without `expires_at` it lasts until it is revoked."""

    name: Annotated[str, Field(min_length=1, max_length=100)]
    scopes: Annotated[list[Scope], Field(min_length=1, max_length=3)] = [Scope.SUBMIT]
    expires_at: Moment | None = None


class TokenView(Record):
    """A token without its secret; `prefix` helps to recognise it."""

    id: str
    name: str
    prefix: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None


class NewToken(TokenView):
    """A token just made. The secret is shown this once."""

    secret: str


class Side(Record):
    """One contender's newest result on a case."""

    result_id: str
    label: str
    outcome: Outcome
    reason: str | None
    latency_ms: float | None
    latency_low_ms: float | None
    latency_high_ms: float | None
    baseline: str
    ratio_to_baseline: float | None
    floor_ratio: float | None
    peak_bytes: int | None
    workspace_bytes: int | None
    grade: Grade | None
    worst_output: str | None
    worst_error_ratio: float | None
    errors: tuple[OutputErrorView, ...]
    flags: tuple[Flag, ...]
    environment_id: str


class CandidateCell(Record):
    """A candidate on one case against the base: below 1 it is faster.

    Where the two were measured head to head on this hardware, verdict and ratio are those of the
    newest such comparison. Otherwise `verdict` is null, and so is `ratio` where the two share no
    baseline timed in the same process.
    """

    side: Side | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    ratio_source: str | None
    workspace_ratio: float | None
    environments_differ: bool | None
    verdict: str | None = None
    verdict_note: str | None = NOT_HEAD_TO_HEAD
    minimum_detectable_effect: float | None = None
    comparison_id: str | None = None
    """The comparison that the verdict and the ratio come from."""


class CompareRow(Record):
    """One case, pass and device; `candidates` in the order of the request."""

    case: str
    pass_: PassField
    device_name: str
    base: Side | None
    candidates: tuple[CandidateCell, ...]


class Contestant(Record):
    """One side of a comparison over all its cases. `used` is what `asked` stood for."""

    asked: str
    used: str
    cases: int
    outcomes: dict[Outcome, int]
    note: str | None


class CandidateSummary(Contestant):
    """A candidate with its geometric mean over the cases that both sides answered `ok`."""

    common_cases: int
    geometric_mean_ratio: float | None
    geometric_mean_low: float | None
    geometric_mean_high: float | None
    inexact_cases: int
    """Common cases whose error grade is coarse or poor: these never count as a win."""
    verdict: str | None = None
    verdict_note: str | None = NOT_HEAD_TO_HEAD


class Comparison(Record):
    """A page of cases, headed by what holds over all of them."""

    base: Contestant
    candidates: tuple[CandidateSummary, ...]
    items: tuple[CompareRow, ...]
    next_cursor: str | None
