"""The known faults of contenders, looked up for the failed cases of a check when it is read."""

from collections.abc import Iterable
from fnmatch import fnmatchcase

from .catalogue import Catalogue, KernelRow, KnownFaultRow, is_older
from .check import CaseCheck, CheckRecord
from .contender import ParamValue
from .words import Outcome


def explained(record: CheckRecord, catalogue: Catalogue) -> CheckRecord:
    """The check with the known fault behind each failed case, where there is one."""
    row = catalogue.kernels.get(record.contender.kernel)
    if row is None:
        return record
    faults = [fault for fault in _of_lineage(row, catalogue) if _applies(fault, record, row)]
    cases = tuple(_explained(case, faults) for case in record.cases)
    return record.model_copy(update={"cases": cases})


def _of_lineage(row: KernelRow, catalogue: Catalogue) -> Iterable[KnownFaultRow]:
    """Faults of every kernel that the same adapter calls: an operator's checkout has them too."""
    for fault in catalogue.known_faults:
        owner = catalogue.kernels.get(fault.kernel)
        if owner is not None and (owner.name == row.name or owner.build == row.build):
            yield fault


def _applies(fault: KnownFaultRow, record: CheckRecord, row: KernelRow) -> bool:
    defaults: dict[str, ParamValue] = {param.name: param.default for param in row.params}
    params = {**defaults, **record.contender.params}
    version = record.version if row.versions else None
    return (
        fault.device in (None, record.environment.device_type)
        and all(params.get(name) == value for name, value in fault.when.items())
        and not (version and fault.since and is_older(version, fault.since))
        and (fault.before is None or (version is not None and is_older(version, fault.before)))
    )


def _explained(case: CaseCheck, faults: Iterable[KnownFaultRow]) -> CaseCheck:
    """A case that took too long is never explained: a fault of the contender looks otherwise."""
    known = None
    if case.outcome in (Outcome.WRONG, Outcome.FAILED):
        for fault in faults:
            if any(fnmatchcase(case.case, pattern) for pattern in fault.cases):
                known = f"{fault.what} ({fault.source})"
                break
    return case.model_copy(update={"known_fault": known})
