"""The contender to use for a case: the fastest that is exact enough and fits, with its evidence.

Only measured results count. What ended `wrong`, has no error grade, is interpreted or `suspect` is
left out by name, with the reason. Contenders are ranked by their time over one shared baseline;
where the first two were measured head to head, that comparison's verdict decides between them.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ..contract.case import Case
from ..contract.catalogue import Catalogue
from ..contract.contender import Contender
from ..contract.words import Flag, Grade, Outcome, Pass, Verdict
from ..plots import text
from ..store.aggregates import Brief, NewestKey, Ratio, within_grade
from ..store.comparisons import HeadToHead
from .recommend_records import Choice, Evidence, LeftOut, NotMeasured
from .snippets import snippet

MOST_EVIDENCE = 50


@dataclass(frozen=True)
class Wish:
    """What is asked for, names resolved."""

    case: Case
    pass_: Pass
    max_error_grade: Grade
    max_workspace_bytes: int | None


@dataclass(frozen=True)
class Candidate:
    """A result that counts, and its time over the shared baseline."""

    row: Brief
    ratio: Ratio


def distance(asked: Case, key: NewestKey) -> tuple[float, float]:
    """How far a measured shape is from the one asked for, as logs: head size first, then tokens."""
    head = abs(math.log(key.hidden / asked.hidden)) + abs(math.log(key.vocab / asked.vocab))
    return head, abs(math.log(key.tokens / asked.max_tokens))


def nearest_cases(asked: Case, keys: Sequence[NewestKey]) -> list[str]:
    """Measured cases by distance, of those with the same dtype, options and recipe."""
    ending = shape_free(asked.text)
    same = {key.case: key for key in keys if shape_free(key.case) == ending}
    return sorted(same, key=lambda case: (*distance(asked, same[case]), case))


def shape_free(case: str) -> str:
    """What a case text says behind its shape: dtype, options, recipe."""
    return case.split("-", 3)[3] if case.count("-") >= 3 else case


def shape_note(asked: Case, row: Brief) -> str:
    """How a measured shape differs from the one asked for."""
    parts = [
        f"{there:,} {name} for {wanted:,}"
        for name, there, wanted in (
            ("tokens", row.tokens, asked.max_tokens),
            ("hidden", row.hidden, asked.hidden),
            ("vocab", row.vocab, asked.vocab),
        )
        if there != wanted
    ]
    return (
        f"{asked.text} is not measured here. This is the nearest measured shape, {row.case}: "
        f"{', '.join(parts)}"
    )


def split(rows: Sequence[Brief], wish: Wish) -> tuple[list[Candidate], list[LeftOut]]:
    """What counts, the fastest first, and what does not, with the reason."""
    shared = _shared_baseline(rows)
    counted: list[Candidate] = []
    left_out: list[LeftOut] = []
    for row in rows:
        why = _why_not(row, wish, shared)
        ratio = row.over_baseline
        if why is None and ratio is not None:
            counted.append(Candidate(row, ratio))
        else:
            left_out.append(_left_out(row, why or f"has no ratio to {row.baseline}"))
    counted.sort(key=lambda each: (each.ratio.value, each.row.label))
    return counted, left_out


def _shared_baseline(rows: Sequence[Brief]) -> str | None:
    counts = Counter(row.baseline for row in rows if row.over_baseline is not None)
    return max(counts, key=lambda name: (counts[name], name)) if counts else None


def _why_not(row: Brief, wish: Wish, shared: str | None) -> str | None:
    if row.outcome != Outcome.OK.value:
        return row.reason or row.outcome
    if Flag.INTERPRETED.value in row.flags:
        return "ran in Triton's interpreter, which has no speed"
    if Flag.SUSPECT.value in row.flags:
        return "is flagged suspect: faster than the device can be"
    if row.grade is None:
        return "has no error grade"
    if not within_grade(row.grade, wish.max_error_grade):
        return f"its error is {row.grade}; {wish.max_error_grade} is asked for"
    most = wish.max_workspace_bytes
    if most is not None and row.workspace_bytes is None:
        return "its workspace is not known"
    if most is not None and row.workspace_bytes is not None and row.workspace_bytes > most:
        return (
            f"needs {text.in_bytes(row.workspace_bytes)} of workspace, over {text.in_bytes(most)}"
        )
    if row.baseline != shared:
        return f"was timed against {row.baseline}, the others against {shared}"
    return None


def _left_out(row: Brief, reason: str) -> LeftOut:
    return LeftOut(
        contender=row.label,
        result_id=row.id,
        outcome=Outcome(row.outcome),
        reason=reason[:400],
    )


def decide(
    first: Candidate, second: Candidate, meeting: HeadToHead | None
) -> tuple[bool, bool | None]:
    """(whether the two change places, whether they are told apart).

    `meeting` compares the second with the first as its base. Its verdict decides; without one the
    intervals of both ratios do, and overlapping ones tell nothing apart.
    """
    if meeting is not None and meeting.verdict != Verdict.INCONCLUSIVE.value:
        if meeting.verdict == Verdict.FASTER.value:
            return True, True
        return False, meeting.verdict == Verdict.SLOWER.value
    return False, first.ratio.is_below(second.ratio)


def evidence(each: Candidate, worst: tuple[str, float] | None) -> Evidence:
    """A candidate as it is served."""
    row = each.row
    return Evidence(
        contender=row.label,
        kernel=row.kernel,
        version=row.version,
        params=row.params,
        result_id=row.id,
        latency_ms=row.latency_ms,
        latency_low_ms=row.latency_low_ms,
        latency_high_ms=row.latency_high_ms,
        baseline=row.baseline,
        ratio_to_baseline=each.ratio.value,
        ratio_low=each.ratio.low,
        ratio_high=each.ratio.high,
        floor_ratio=row.floor_ratio,
        workspace_bytes=row.workspace_bytes,
        grade=Grade(row.grade or Grade.POOR),
        worst_output=worst[0] if worst else None,
        worst_error_ratio=worst[1] if worst else None,
        flags=tuple(Flag(flag) for flag in row.flags),
        environment_id=row.environment_id,
        measured_at=row.started_at,
    )


def choice(shown: Evidence, wish: Wish, catalogue: Catalogue) -> Choice:
    """An evidence with the lines that call its contender."""
    kernel = catalogue.kernels.get(shown.kernel)
    lines = f"# the catalogue has no kernel {shown.kernel} any more"
    if kernel is not None:
        contender = Contender.parse(f"{shown.kernel}[{shown.params}]")
        contender = contender.model_copy(update={"version": shown.version})
        lines = snippet(kernel, contender, wish.case.options, wish.case.dtype)
    return Choice(**shown.model_dump(), snippet=lines)


def not_measured(rows: Iterable[Brief], wish: Wish, catalogue: Catalogue) -> list[NotMeasured]:
    """Kernels without any result on the case, and the newest version where only older ones have."""
    seen: dict[str, set[str | None]] = {}
    for row in rows:
        seen.setdefault(row.kernel, set()).add(row.version)
    missing = []
    for name, kernel in sorted(catalogue.kernels.items()):
        versions = seen.get(name)
        newest = kernel.latest
        same_code = {newest, kernel.twins.get(newest)} if newest else set()
        if versions is not None and (not kernel.versions or versions & same_code):
            continue
        named = Contender(kernel=name, version=newest).text
        lacks = kernel.lacks(wish.case.options, newest)
        reason = "no result on this case and device"
        if versions is not None:
            reason = "only older versions have a result on this case and device"
        if lacks is not None:
            reason = f"has no option {lacks}"
        elif wish.case.dtype not in kernel.dtypes:
            reason = f"does not take {wish.case.dtype}"
        elif kernel.origin == "checkout" and not kernel.versions:
            reason = "its files are the operator's, and no live worker offers them"
        missing.append(NotMeasured(contender=named, reason=reason))
    return missing


def measure_command(missing: Sequence[NotMeasured], wish: Wish, exact: bool) -> str | None:
    """The command that measures what is missing; None where nothing is."""
    able = [each.contender for each in missing if each.reason.endswith("case and device")]
    if not able and exact:
        return None
    case = wish.case
    words = ["lossbench submit", *(f"-c '{name}'" for name in able or ["torch-naive", "flce"])]
    words.append(f"-s {case.max_tokens}x{case.hidden}x{case.vocab} --dtype {case.dtype}")
    words.append(f"--pass {wish.pass_}")
    words += [f"-o {name}={value}" for name, value in case.options.changed().items()]
    return " ".join([*words, "--watch"])
