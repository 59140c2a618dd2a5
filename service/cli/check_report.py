"""The stored checks as one Markdown page: what every contender can do, option by option."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from ..contract.check import CaseCheck, CheckRecord, worst_grade
from ..contract.words import FAILURES, Dtype, Outcome

Chosen = Callable[[CaseCheck], bool]


def _option(name: str) -> Chosen:
    return lambda case: case.case.startswith(f"options/{name}/")


def _reduction(name: str) -> Chosen:
    return lambda case: case.group == "options" and case.case.split("/")[2] == name


def _dtype(dtype: Dtype) -> Chosen:
    return lambda case: case.group in ("options", "dtypes") and case.dtype is dtype


def _starts(*prefixes: str) -> Chosen:
    return lambda case: case.case.startswith(prefixes)


OPTIONS: dict[str, Chosen] = {
    "plain": _option("none"),
    "bias": _option("bias"),
    "class weight": _option("class_weight"),
    "ignored": _option("ignore_index"),
    "smoothing": _option("label_smoothing"),
    "softcap": _option("softcap"),
    "logit scale": _option("logit_scale"),
    "z-loss": _option("lse_square_scale"),
    "frozen x": _option("frozen_input"),
    "frozen W": _option("frozen_weight"),
    "all": _option("all"),
    "sum": _reduction("sum"),
    "none": _reduction("none"),
}
REST: dict[str, Chosen] = {
    "bf16": _dtype(Dtype.BFLOAT16),
    "fp16": _dtype(Dtype.FLOAT16),
    "fp32": _dtype(Dtype.FLOAT32),
    "odd and real sizes": _starts("sizes/odd", "sizes/one", "sizes/two", "sizes/gpt", "sizes/phi",
                                  "sizes/qwen", "sizes/ragged", "sizes/wide"),
    "N = 0": _starts("sizes/no-token"),
    "N V > 2^31": _starts("sizes/past"),
    "strides": _starts("layouts/"),
    "no valid label": _starts("calls/all-ignored", "reports/K01"),
    "two backwards": _starts("calls/two_backwards", "reports/K18"),
    "autocast": _starts("calls/autocast"),
    "label V": _starts("calls/label"),
    "no cheating": _starts("cheats/", "calls/own-kernel"),
    "reports": _starts("reports/"),
}  # fmt: skip
_LEGEND = """\
A cell gives the worst grade of the cases behind it: the error over torch's own error in the same
dtype on the same inputs (torch-naive for gradients, torch-upcast for the loss): `exact` <= 1.1,
`fair` <= 1.5, `coarse` <= 4, `poor` above. **wrong 2/9**: two of nine answers are defects;
**fails 2/9**: two raised an error. `-`: the contender says that it cannot do this. `+ -`: some of
the cases it cannot do. A bf16 or fp16 loss is `poor` by design where it is kept in that dtype.
"""


def summary(cases: Sequence[CaseCheck]) -> str:
    """One cell of a table."""
    asked = [case for case in cases if case.outcome is not Outcome.UNSUPPORTED]
    if not asked:
        return "-"
    wrong = sum(case.outcome is Outcome.WRONG for case in asked)
    failed = sum(case.outcome in FAILURES for case in asked) - wrong
    failed += sum(case.outcome is Outcome.OUT_OF_MEMORY for case in asked)
    parts = [f"**wrong {wrong}/{len(asked)}**"] if wrong else []
    parts += [f"**fails {failed}/{len(asked)}**"] if failed else []
    if not parts:
        grade = worst_grade(case.grade for case in asked)
        parts = [grade.value if grade else "ok"]
    return ", ".join(parts) + (" + -" if len(asked) < len(cases) else "")


def _table(records: Sequence[CheckRecord], columns: dict[str, Chosen]) -> Iterable[str]:
    yield "| contender | " + " | ".join(columns) + " |"
    yield "|---" * (len(columns) + 1) + "|"
    for record in records:
        cells = (summary([c for c in record.cases if chosen(c)]) for chosen in columns.values())
        yield f"| {record.contender} | " + " | ".join(cells) + " |"


def _counts(records: Sequence[CheckRecord]) -> Iterable[str]:
    words = ("exact", "fair", "coarse", "poor", "wrong", "failed", "timed_out", "unsupported")
    yield "| contender | version | " + " | ".join(words) + " | checked |"
    yield "|---" * (len(words) + 3) + "|"
    for record in records:
        counts = " | ".join(str(record.counts.get(word, 0)) for word in words)
        when = record.started_at.astimezone(UTC).date().isoformat()
        yield f"| {record.contender} | {record.version or ''} | {counts} | {when} |"


def _faults(records: Sequence[CheckRecord]) -> Iterable[str]:
    """What is not right, each reason once with the cases that show it."""
    for record in records:
        reasons: dict[str, list[CaseCheck]] = {}
        for case in record.cases:
            if case.outcome in FAILURES or case.outcome is Outcome.OUT_OF_MEMORY:
                reasons.setdefault(case.known_fault or case.reason or "", []).append(case)
        if not reasons:
            continue
        yield f"\n**{record.contender}**\n"
        for reason, cases in reasons.items():
            names = ", ".join(f"`{case.case}`" for case in cases[:4])
            more = f" and {len(cases) - 4} more" if len(cases) > 4 else ""
            first = cases[0]
            seen = f" Seen: {_one_line(first.reason)}." if first.known_fault else ""
            yield f"- {first.outcome.value}: {_one_line(reason)}.{seen} ({names}{more})"


def _one_line(text: str | None) -> str:
    return " ".join((text or "").split())[:240].rstrip(".")


def refused_everywhere(cases: Sequence[CaseCheck]) -> str | None:
    """The most frequent reason of a contender that answered no case; None if it answered one."""
    if any(case.outcome is not Outcome.UNSUPPORTED for case in cases):
        return None
    reasons = Counter(_one_line(case.reason) for case in cases)
    return reasons.most_common(1)[0][0] if reasons else "no case was asked"


def _refused(records: Sequence[CheckRecord]) -> Iterable[str]:
    """Contenders that answered no case, with the reason."""
    for record in records:
        if reason := refused_everywhere(record.cases):
            yield f"- **{record.contender}**: {reason}"


def _environment(record: CheckRecord) -> str:
    facts = record.environment.facts
    names = ("torch", "triton", "cuda", "driver", "python")
    known = ", ".join(f"{name} {facts[name]}" for name in names if facts.get(name))
    return f"{record.environment.device_name}: {known}"


def report_of(records: Sequence[CheckRecord], today: datetime | None = None) -> str:
    """The page. Devices with a GPU come first; contenders that answered nothing are listed."""
    day = (today or datetime.now(UTC)).date().isoformat()
    lines = [
        "# Contenders: what each can do, and how right it is",
        "",
        f"Written by `lossbench kernels report` on {day} from stored checks "
        "(`lossbench kernels check`).",
        "",
        _LEGEND,
    ]
    devices = {record.environment.device_name: record for record in records}
    order = sorted(devices, key=lambda name: devices[name].environment.device_type != "cuda")
    for device in order:
        mine = [r for r in records if r.environment.device_name == device]
        answered = [r for r in mine if any(c.outcome is not Outcome.UNSUPPORTED for c in r.cases)]
        lines += [f"## {_environment(devices[device])}", ""]
        if devices[device].environment.device_type == "cpu":
            lines += [
                "Triton kernels run in Triton's interpreter here, in float32; what fails there may "
                "be the interpreter's fault and counts as unsupported.",
                "",
            ]
        lines += ["### Options", "", *_table(answered, OPTIONS), ""]
        lines += ["### Dtypes, sizes, ways of calling", "", *_table(answered, REST), ""]
        lines += ["### Cases by result", "", *_counts(answered), ""]
        lines += ["### What is not right", *(_faults(answered) or ["", "Nothing."]), ""]
        refused = list(_refused(mine))
        if refused:
            lines += ["### What cannot run here", "", *refused, ""]
    return "\n".join(lines).rstrip() + "\n"
