"""What a kernel's page reads: versions measured, newest results, checks, what failed."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy.orm import Session

from lossbench.service.contract.catalogue import Catalogue, KernelRow, KnownFaultRow, is_older
from lossbench.service.contract.check import CaseCheck
from lossbench.service.contract.errors import NotFoundError
from lossbench.service.contract.known_faults import explained
from lossbench.service.contract.lineage import current_name, names_of
from lossbench.service.contract.plan import nearest
from lossbench.service.contract.words import Grade, Outcome
from lossbench.service.store.aggregates import Brief, briefs_of, newest_keys
from lossbench.service.store.checks import checks_page, get_check
from lossbench.service.store.models import CheckRow
from lossbench.service.store.overviews import MeasuredVersion, measured_versions
from lossbench.service.store.results import ResultFilter

MOST_READ = 1_000
"""Newest results of the kernel that are looked through."""
MOST_RESULTS = 200
"""Newest results of the page, one a contender, version, case, pass and device."""
MOST_CHECKS = 10
MOST_FAILED_CASES = 40


@dataclass(frozen=True)
class KernelPage:
    """Everything a kernel's page shows; of one version where the address names one."""

    row: KernelRow
    version: str | None
    measured: Sequence[MeasuredVersion]
    results: Sequence[Brief]
    results_total: int
    complete: bool
    checks: Sequence[CheckRow]
    failed_cases: Sequence[CaseCheck]
    """Of the newest check: cases that are neither right nor unsupported."""
    faults: Sequence[KnownFaultRow]
    """Known faults of the catalogue that this version has."""

    @property
    def failures(self) -> list[Brief]:
        """Newest results that ended without a time, or inexactly."""
        return [
            row
            for row in self.results
            if row.outcome != Outcome.OK.value
            or row.grade in (Grade.COARSE.value, Grade.POOR.value)
        ]

    @property
    def versions(self) -> list[str]:
        """All versions known or measured, the newest first."""
        known = dict.fromkeys(self.row.versions)
        known |= dict.fromkeys(each.version for each in self.measured if each.version)
        return list(reversed(known))


def kernel_page(
    session: Session, catalogue: Catalogue, name: str, version: str | None
) -> KernelPage:
    """A kernel by its name of today or an earlier one. Raises NotFoundError."""
    row = catalogue.kernels.get(current_name(name, catalogue))
    if row is None:
        hint = nearest(name, catalogue.kernels)
        raise NotFoundError(f"there is no kernel {name[:60]!r}{hint}")
    names = names_of(row.name, catalogue)
    measured = [each for known in names for each in measured_versions(session, known)]
    known_versions = {*row.versions, *(each.version for each in measured)}
    if version is not None and version not in known_versions:
        raise NotFoundError(
            f"{row.name} has no version {version[:60]!r}{nearest(version, row.versions)}"
        )
    wanted = ResultFilter(kernel=list(names), version=[version] if version else [])
    found = newest_keys(session, wanted, MOST_READ)
    checks = checks_page(session, row.name, version, limit=MOST_CHECKS)
    return KernelPage(
        row=row,
        version=version,
        measured=measured,
        results=briefs_of(session, [key.id for key in found.keys[:MOST_RESULTS]]),
        results_total=len(found.keys),
        complete=found.complete,
        checks=checks,
        failed_cases=_failed(session, catalogue, checks),
        faults=[fault for fault in catalogue.known_faults if _has(fault, row, version)],
    )


def _has(fault: KnownFaultRow, row: KernelRow, version: str | None) -> bool:
    """Whether a fault is one of this kernel's, and of this version where one is named."""
    if fault.kernel != row.name:
        return False
    if version is None:
        return True
    too_old = fault.since is not None and is_older(version, fault.since)
    return not too_old and (fault.before is None or is_older(version, fault.before))


def _failed(session: Session, catalogue: Catalogue, checks: Sequence[CheckRow]) -> list[CaseCheck]:
    if not checks:
        return []
    record = explained(get_check(session, checks[0].id), catalogue)
    right = (Outcome.OK, Outcome.UNSUPPORTED)
    return [case for case in record.cases if case.outcome not in right][:MOST_FAILED_CASES]
