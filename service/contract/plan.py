"""From a JobRequest to a Plan: names checked, versions resolved, cells expanded, lots cut."""

import difflib
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any

from pydantic import ValidationError

from .case import Case, CaseOptions
from .catalogue import Catalogue, KernelRow
from .contender import Contender
from .errors import Fault, InvalidRequestError, JobTooLargeError, UnknownNameError
from .estimate import cell_seconds, peak_bytes
from .job import JobRequest, ShapeSpec, StreamSpec
from .machine import ASSUMED, Machine
from .run import CaseWork, Cell, Lot, Record
from .training import TrainingCell
from .versions import LATEST, matching, names_several
from .words import Outcome

LOT_SECONDS = 600.0
CASES_PER_LOT = 25
MARGIN = 4
MOST_CONTENDERS = 200


class PlannedCell(Record):
    """A cell with what is known before it runs; a refused cell carries outcome and reason."""

    cell: Cell | TrainingCell
    lot: int
    case_index: int
    estimated_s: float
    estimated_peak_bytes: int
    outcome: Outcome | None = None
    reason: str | None = None
    longest_s: float | None = None
    """Estimate for the most processes that a comparison may take; None for other jobs."""


class Plan(Record):
    """A job ready to be stored: its cells in order and the lots that workers take."""

    request: JobRequest
    cells: tuple[PlannedCell, ...]
    lots: tuple[Lot, ...]
    estimated_s: float
    estimated_peak_bytes: int


def nearest(name: str, known: Iterable[str]) -> str:
    """` (did you mean 'x'?)` for the closest known name, else an empty text."""
    close = difflib.get_close_matches(name, list(known), n=1, cutoff=0.5)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _listing(names: Iterable[str], most: int = 40) -> str:
    shown = list(names)
    return ", ".join(shown[:most]) + (" ..." if len(shown) > most else "")


def resolve_contender(
    contender: Contender, catalogue: Catalogue, pointer: str
) -> tuple[Contender, list[Fault]]:
    """One contender with its version filled in, and everything that is wrong with it."""
    if names_several(contender.version):
        message = (
            f"{contender.version!r} stands for several releases; here one is needed, such as "
            f"{contender.kernel} or {contender.kernel}@latest"
        )
        return contender, [Fault(f"{pointer}/version", "several_versions", message)]
    found, faults = expand_contender(contender, catalogue, pointer)
    return found[0], faults


def expand_contender(
    contender: Contender, catalogue: Catalogue, pointer: str
) -> tuple[list[Contender], list[Fault]]:
    """The contenders that one of a request stands for, oldest first, and what is wrong with it.

    With a fault about its kernel or version it stands for itself.
    """
    row = catalogue.kernels.get(contender.kernel)
    if row is None:
        known = _listing(sorted(catalogue.kernels))
        hint = nearest(contender.kernel, catalogue.kernels)
        message = f"there is no kernel {contender.kernel!r}{hint}. Known: {known}"
        return [contender], [Fault(f"{pointer}/kernel", "unknown_kernel", message)]
    faults = [*_param_faults(contender, row, pointer)]
    versions, fault = _versions_of(contender, row, pointer)
    if fault is not None:
        return [contender], [*faults, fault]
    made = [Contender(kernel=row.name, version=v, params=contender.params) for v in versions]
    return made, faults


def _versions_of(
    contender: Contender, row: KernelRow, pointer: str
) -> tuple[list[str | None], Fault | None]:
    asked, at = contender.version, f"{pointer}/version"
    known = f"Known: {_listing(reversed(row.versions))}"
    if not row.versions:
        if not names_several(asked):
            return [None if asked == LATEST else asked], None
        why = f"no live worker offers files of {row.name}"
        if row.is_built_in:
            why = f"{row.name} carries torch's version"
        message = f"{why}, so {asked!r} stands for nothing; write {row.name} or {row.name}@latest"
        return [], Fault(at, "no_versions", message)
    if asked is None or asked == LATEST:
        return [row.latest], None
    if names_several(asked):
        inside: list[str | None] = [*matching(asked, row.versions, row.twins)]
        message = f"{row.name} has no version in the range {asked!r}. {known}"
        return inside, None if inside else Fault(at, "unknown_version", message)
    if asked in row.versions:
        return [asked], None
    message = f"{row.name} has no version {asked!r}{nearest(asked, row.versions)}. {known}"
    return [], Fault(at, "unknown_version", message)


def _param_faults(contender: Contender, row: KernelRow, pointer: str) -> Iterable[Fault]:
    known = {param.name: param for param in row.params}
    for name, value in contender.params.items():
        at = f"{pointer}/params/{name}"
        if name not in known:
            there = f"it has {_listing(known)}" if known else "it has none"
            message = f"{row.name} has no param {name!r}{nearest(name, known)}; {there}"
            yield Fault(at, "unknown_param", message)
        elif fault := known[name].fault(value):
            yield Fault(at, "bad_param", f"{fault}; got {value!r}")


def refuse(faults: Sequence[Fault]) -> None:
    """Raises InvalidRequestError with all faults if there are any; UnknownNameError fits names."""
    if faults:
        unknown = all(fault.code.startswith("unknown") for fault in faults)
        raise (UnknownNameError if unknown else InvalidRequestError)(faults)


def _shapes(
    request: JobRequest, catalogue: Catalogue
) -> tuple[list[tuple[Any, int, int, CaseOptions]], list[Fault]]:
    shapes: list[tuple[Any, int, int, CaseOptions]] = []
    faults: list[Fault] = []
    for index, spec in enumerate(request.shapes):
        hidden, vocab, options = spec.hidden, spec.vocab, request.options
        if spec.model is not None:
            preset = catalogue.presets.get(spec.model)
            if preset is None:
                message = (
                    f"there is no model {spec.model!r}{nearest(spec.model, catalogue.presets)}. "
                    f"Known: {_listing(sorted(catalogue.presets))}"
                )
                faults.append(Fault(f"/shapes/{index}/model", "unknown_model", message))
                continue
            hidden, vocab = preset.hidden, preset.vocab
            options = CaseOptions(**{**preset.options, **request.options.changed()})
        shapes.extend(_swept(request, spec, (hidden or 1, vocab or 2), options))
    return shapes, faults


def _swept(
    request: JobRequest, spec: ShapeSpec, size: tuple[int, int], options: CaseOptions
) -> Iterable[tuple[Any, int, int, CaseOptions]]:
    stream = isinstance(spec.tokens, StreamSpec)
    own = spec.tokens.stream if isinstance(spec.tokens, StreamSpec) else spec.tokens
    tokens: Sequence[Any] = [own] if stream else (request.sweep.tokens or [own])
    hidden = request.sweep.hidden or [size[0]]
    vocab = request.sweep.vocab or [size[1]]
    return [(n, h, v, options) for n, h, v in itertools.product(tokens, hidden, vocab)]


def _cases(request: JobRequest, catalogue: Catalogue) -> tuple[list[Case], list[Fault]]:
    shapes, faults = _shapes(request, catalogue)
    cases: dict[str, Case] = {}
    for (tokens, hidden, vocab, options), dtype, recipe in itertools.product(
        shapes, request.dtypes, request.recipes
    ):
        try:
            case = Case(
                tokens=tokens,
                hidden=hidden,
                vocab=vocab,
                dtype=dtype,
                options=options,
                recipe=recipe,
            )
        except ValidationError as error:
            faults.append(Fault("/shapes", "bad_shape", error.errors()[0]["msg"]))
            continue
        cases[case.text] = case
    return list(cases.values()), faults


def _expanded(request: JobRequest, catalogue: Catalogue) -> tuple[list[Contender], list[Fault]]:
    """All exact contenders of a request without duplicates, and what is wrong with any.

    Raises JobTooLargeError for more than one job may have.
    """
    faults: list[Fault] = []
    contenders: dict[str, Contender] = {}
    for index, contender in enumerate(request.contenders):
        found, wrong = expand_contender(contender, catalogue, f"/contenders/{index}")
        faults += wrong
        contenders |= {each.text: each for each in found}
    if len(contenders) > MOST_CONTENDERS:
        message = f"the versions asked for are {len(contenders)} contenders; at most"
        fault = Fault("/contenders", "too_many_contenders", f"{message} {MOST_CONTENDERS}")
        raise JobTooLargeError([fault])
    if request.is_comparison and len(contenders) != 2 and not faults:
        message = (
            "a job of kind compare takes two different contenders, the base and the candidate; "
            f"these are {len(contenders)}: {_listing(contenders, 5)}"
        )
        faults.append(Fault("/contenders", "not_two_contenders", message))
    return list(contenders.values()), faults


def _checked(
    request: JobRequest, catalogue: Catalogue, faults: list[Fault]
) -> tuple[JobRequest, list[Case]]:
    """The request with its baseline resolved, and its cases. Raises with `faults` and its own."""
    baseline, found = resolve_contender(request.baseline, catalogue, "/baseline")
    row = catalogue.kernels.get(baseline.kernel)
    if row is not None and not row.is_built_in:
        message = (
            f"the baseline is timed in every process, so it must be built in; {row.name} is a "
            f"{row.origin}. Use torch-naive, and a compare job for A against B"
        )
        found = [*found, Fault("/baseline", "baseline_not_built_in", message)]
    cases, bad_shapes = _cases(request, catalogue)
    refuse([*faults, *found, *bad_shapes])
    return request.model_copy(update={"baseline": baseline}), cases


def _planned_cell(
    cell: Cell, catalogue: Catalogue, request: JobRequest, machines: list[Machine]
) -> PlannedCell:
    machine = machines[0] if machines else ASSUMED
    row = catalogue.kernels[cell.contender.kernel]
    predicted = peak_bytes(catalogue, cell.contender, cell.case)
    outcome, reason = None, None
    seconds = cell_seconds(row, cell.case, cell.pass_, request.least_processes, machine)
    longest = None
    if request.is_comparison:
        longest = cell_seconds(row, cell.case, cell.pass_, request.max_processes, machine)
    if not isinstance(cell.case.tokens, int):
        outcome, reason = Outcome.UNSUPPORTED, "this version does not measure streams yet"
    elif missing := row.lacks(cell.case.options, cell.contender.version):
        outcome, reason = Outcome.UNSUPPORTED, f"{cell.contender} has no option {missing}"
    elif late := row.too_new_param(cell.contender):
        outcome = Outcome.UNSUPPORTED
        reason = f"{cell.contender} has no param {late.name}; it came with {late.since}"
    elif cell.case.dtype not in row.dtypes:
        outcome, reason = Outcome.UNSUPPORTED, f"{row.name} does not take {cell.case.dtype}"
    elif _interpreted(row, machines) and (seconds > request.timeout_s):
        outcome = Outcome.UNSUPPORTED
        reason = f"Triton's interpreter would need about {_duration(seconds)} on a CPU"
    elif machines and all(predicted > m.memory_bytes for m in machines):
        room = max(m.memory_bytes for m in machines)
        outcome = Outcome.OUT_OF_MEMORY
        reason = f"predicted {predicted / 2**30:.1f} GiB, the device has {room / 2**30:.1f} GiB"
    return PlannedCell(
        cell=cell,
        lot=0,
        case_index=0,
        estimated_s=seconds,
        estimated_peak_bytes=predicted,
        outcome=outcome,
        reason=reason,
        longest_s=longest,
    )


def _planned_case(
    case: Case, catalogue: Catalogue, request: JobRequest, machines: list[Machine]
) -> list[PlannedCell]:
    rows = [
        _planned_cell(Cell(contender=each, case=case, pass_=pass_), catalogue, request, machines)
        for each in request.contenders
        for pass_ in dict.fromkeys(request.passes)
    ]
    return _refused_together(rows) if request.is_comparison else rows


def _refused_together(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """The cells of a comparison: a side that is refused refuses the other with its reason."""
    refused = {row.cell.pass_: row for row in rows if row.outcome is not None}

    def settled(row: PlannedCell) -> PlannedCell:
        other = refused.get(row.cell.pass_)
        if other is None or row.outcome is not None:
            return row
        reason = f"nothing to compare with: {other.cell.contender}: {other.reason}"
        return row.model_copy(update={"outcome": other.outcome, "reason": reason})

    return [settled(row) for row in rows]


def _most_cells(request: JobRequest) -> int:
    """Cells with every duplicate that is seen without expanding: a sweep can ask for 10^12."""
    sweep = request.sweep
    shapes = {
        (
            spec.model,
            str(spec.tokens) if isinstance(spec.tokens, StreamSpec) or not sweep.tokens else "",
            None if sweep.hidden else spec.hidden,
            None if sweep.vocab else spec.vocab,
        )
        for spec in request.shapes
    }
    swept = len(set(sweep.hidden or [0])) * len(set(sweep.vocab or [0]))
    counts = len(set(sweep.tokens or [0]))
    rows = sum(counts if tokens == "" else 1 for _, tokens, _, _ in shapes) * swept
    lists = (request.dtypes, request.recipes, request.passes, {c.text for c in request.contenders})
    return rows * math.prod(len(set(words)) for words in lists)


def _refuse_too_many(count: int, most: int, allowed: int) -> None:
    if count > most:
        raise JobTooLargeError(
            [Fault("", "too_many_cells", f"{count} cells; one job may have {allowed}")]
        )


def _interpreted(row: KernelRow, machines: Sequence[Machine]) -> bool:
    return row.uses_triton and bool(machines) and all(m.device_type == "cpu" for m in machines)


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def plan_job(
    request: JobRequest,
    catalogue: Catalogue,
    machines: Sequence[Machine] = (),
    max_cells: int = 20_000,
) -> Plan:
    """Check and expand a request. `machines` are the live ones; without any nothing is refused.

    Raises InvalidRequestError (all faults at once), UnknownNameError, JobTooLargeError.
    """
    if request.is_training:
        what = "a job of kind train needs a service; without one take `lossbench train`"
        refuse([Fault("/kind", "needs_a_service", what)])
    contenders, faults = _expanded(request, catalogue)
    request = request.model_copy(update={"contenders": contenders})
    # unseen duplicates leave a margin: the exact count is checked when the cases are there
    _refuse_too_many(_most_cells(request), MARGIN * max_cells, max_cells)
    request, cases = _checked(request, catalogue, faults)
    passes = tuple(dict.fromkeys(request.passes))
    _refuse_too_many(len(cases) * len(request.contenders) * len(passes), max_cells, max_cells)
    serving = [machine for machine in machines if machine.serves(request.accelerator)]
    cells: list[PlannedCell] = []
    lots: list[Lot] = []
    current: list[CaseWork] = []
    lot_seconds = 0.0
    for case in cases:
        work = CaseWork(
            case=case,
            contenders=tuple(request.contenders),
            passes=passes,
            is_comparison=request.is_comparison,
        )
        rows = _planned_case(case, catalogue, request, serving)
        seconds = sum(row.estimated_s for row in rows if row.outcome is None)
        if current and (len(current) >= CASES_PER_LOT or lot_seconds + seconds > LOT_SECONDS):
            lots.append(_lot(len(lots), request, current, lot_seconds))
            current, lot_seconds = [], 0.0
        place = {"lot": len(lots), "case_index": len(current)}
        cells += [row.model_copy(update=place) for row in rows]
        current.append(work)
        lot_seconds += seconds
    lots.append(_lot(len(lots), request, current, lot_seconds))
    _refuse_hopeless(cells)
    return Plan(
        request=request,
        cells=tuple(cells),
        lots=tuple(lots),
        estimated_s=sum(lot.estimated_s for lot in lots),
        estimated_peak_bytes=max(cell.estimated_peak_bytes for cell in cells),
    )


def _lot(index: int, request: JobRequest, cases: list[CaseWork], seconds: float) -> Lot:
    return Lot(index=index, queue=request.accelerator, cases=tuple(cases), estimated_s=seconds)


def _refuse_hopeless(cells: Sequence[PlannedCell]) -> None:
    if all(cell.outcome is Outcome.OUT_OF_MEMORY for cell in cells):
        smallest = min(cells, key=lambda cell: cell.estimated_peak_bytes)
        message = f"no cell of the job fits: {smallest.cell.case} is {smallest.reason}"
        raise InvalidRequestError([Fault("/shapes", "does_not_fit", message)])
