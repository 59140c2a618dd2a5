"""Routes of checks: the correctness grid of each contender."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query
from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from ..contract.catalogue import KernelRow, is_older
from ..contract.check import CheckRecord
from ..contract.errors import NotFoundError
from ..contract.known_faults import explained
from ..contract.plan import nearest
from ..contract.words import FAILURES
from ..store.checks import checks_page, get_check, newest_checks, record_of
from ..store.models import CheckRow
from ..store.overviews import measured_versions
from .answers import tagged
from .dependencies import READING, Context
from .paging import Page, PageQuery, cut_page, decode_cursor, encode_cursor, link_next
from .problems import problem_docs
from .records import CheckView, KernelVersionDetail, KnownFailure, MeasuredVersionView

router = APIRouter(prefix="/api/v1", dependencies=READING, tags=["kernels and machines"])

_Check = tuple[CheckRow, CheckRecord]


class CheckQuery(PageQuery):
    """Which checks to list."""

    kernel: Annotated[str | None, Field(max_length=64, description="Kernel.")] = None
    version: Annotated[str | None, Field(max_length=64, description="Version.")] = None


@router.get("/checks", responses=problem_docs())
def get_checks(
    request: Request, response: Response, query: Annotated[CheckQuery, Query()], context: Context
) -> Page[CheckView]:
    """Checks of contenders against the correctness grid, newest first, without their cases."""
    before = decode_cursor("checks", query.cursor, [str])[0] if query.cursor else None
    with context.database.reading() as session:
        rows = checks_page(session, query.kernel, query.version, before, query.limit + 1)
        views = [CheckView.model_validate(row, from_attributes=True) for row in rows]
    shown, cursor = cut_page(views, query.limit, lambda view: encode_cursor("checks", view.id))
    link_next(request, response, cursor)
    return Page(items=list(shown), next_cursor=cursor)


@router.get("/checks/{check_id}", responses=problem_docs(404), response_model=CheckRecord)
def get_one_check(
    request: Request, check_id: Annotated[str, Path(max_length=64)], context: Context
) -> Response:
    """A whole check: every case with its outcome, grade and reason."""
    with context.database.reading() as session:
        record = get_check(session, check_id)
    return tagged(request, explained(record, context.catalogue))


@router.get("/kernels/{name}/versions/{version}", responses=problem_docs(404))
def get_kernel_version(
    name: Annotated[str, Path(max_length=64)],
    version: Annotated[str, Path(max_length=64)],
    context: Context,
) -> KernelVersionDetail:
    """One version of a kernel: options, source hash, what was measured, known failures."""
    row = context.catalogue.kernels.get(name)
    with context.database.reading() as session:
        measured = {
            entry.version: MeasuredVersionView.model_validate(entry, from_attributes=True)
            for entry in measured_versions(session, name)
        }
        rows = newest_checks(session, name, version)
        seen = measured.get(version)
        catalogue = context.catalogue
        checks = [(check, explained(record_of(check), catalogue)) for check in rows]
        if row is None or not (version in row.versions or seen or checks):
            known = sorted(row.versions) if row else []
            raise NotFoundError(f"there is no {name} {version!r}{nearest(version, known)}")
        return _version_detail(row, version, seen, checks)


def _version_detail(
    row: KernelRow, version: str, seen: MeasuredVersionView | None, checks: Sequence[_Check]
) -> KernelVersionDetail:
    hashes = [hash_ for _, record in checks if (hash_ := record.details.get("source_hash"))]

    def has(since: str | None) -> bool:
        return since is None or not row.versions or not is_older(version, since)

    return KernelVersionDetail(
        kernel=row.name,
        version=version,
        twin_of=row.twins.get(version),
        options=tuple(o for o in row.options if has(row.option_since.get(o))),
        params=tuple(param for param in row.params if has(param.since)),
        dtypes=row.dtypes,
        source_hash=hashes[-1] if hashes else None,
        measured=seen,
        checks=tuple(CheckView.model_validate(check, from_attributes=True) for check, _ in checks),
        known_failures=tuple(_failures(checks)),
    )


def _failures(checks: Sequence[_Check]) -> Iterable[KnownFailure]:
    for check, record in checks:
        for case in record.cases:
            if case.outcome in FAILURES:
                yield KnownFailure(
                    check_id=check.id,
                    contender=check.contender,
                    device_name=check.device_name,
                    case=case.case,
                    what=case.what,
                    outcome=case.outcome,
                    reason=case.reason,
                    known_fault=case.known_fault,
                )
