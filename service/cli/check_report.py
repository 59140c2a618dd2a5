"""The stored checks as one Markdown page: what every contender can do, option by option."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

from ..contract.check import NEEDS_GPU, CaseCheck, CheckRecord, worst_grade
from ..contract.words import FAILURES, Dtype, Grade, Outcome

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
A cell gives the worst grade of the cases behind it, with its outputs for `coarse` and `poor`. It is
the error over torch's own error in the same dtype on the same inputs (torch-naive for gradients,
torch-upcast for the loss): `exact` <= 1.1, `fair` <= 1.5, `coarse` <= 4, `poor` above.
**wrong 2/9**: two of nine are defects; **fails 2/9**: two raised an error or took too long.
`-`: the contender says that it cannot do this. `+ -`: some of the cases it cannot do. A bf16 or
fp16 loss is `poor` by design where it is kept in that dtype.
"""


def summary(cases: Sequence[CaseCheck]) -> str:
    """One cell of a table: failures counted, else the worst grade and the output it is of."""
    here = [case for case in cases if case.reason != NEEDS_GPU]
    asked = [case for case in here if case.outcome is not Outcome.UNSUPPORTED]
    if not asked:
        return "-"
    wrong = sum(case.outcome is Outcome.WRONG for case in asked)
    failed = sum(case.outcome in FAILURES for case in asked) - wrong
    failed += sum(case.outcome is Outcome.OUT_OF_MEMORY for case in asked)
    parts = [f"**wrong {wrong}/{len(asked)}**"] if wrong else []
    parts += [f"**fails {failed}/{len(asked)}**"] if failed else []
    return (", ".join(parts) or _worst(asked)) + (" + -" if len(asked) < len(here) else "")


def _worst(cases: Sequence[CaseCheck]) -> str:
    grade = worst_grade(case.grade for case in cases)
    if grade not in (Grade.COARSE, Grade.POOR):
        return grade.value if grade else "ok"
    outputs = [case.worst_output for case in cases if case.grade is grade and case.worst_output]
    return f"{grade.value} ({', '.join(sorted(set(outputs)))})" if outputs else grade.value


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
    """What is not right: for each kernel, each reason once, with the contenders it was seen in."""
    kernels = dict.fromkeys(record.contender.kernel for record in records)
    for kernel in kernels:
        reasons: dict[tuple[str, str], list[tuple[str, CaseCheck]]] = {}
        for record in records:
            if record.contender.kernel != kernel:
                continue
            for case in record.cases:
                if case.outcome in FAILURES or case.outcome is Outcome.OUT_OF_MEMORY:
                    key = (case.outcome.value, case.known_fault or _one_line(case.reason))
                    reasons.setdefault(key, []).append((record.contender.text, case))
        if reasons:
            yield f"\n**{kernel}**\n"
        for (outcome, reason), seen in reasons.items():
            first = seen[0][1]
            example = f" Seen: {_one_line(first.reason)}." if first.known_fault else ""
            ids = _few([f"`{case.case}`" for _, case in seen])
            who = _few([text for text, _ in seen], most=40)
            yield f"- {outcome}: {reason}.{example} In {ids}; {who}."


def _few(words: Iterable[str], most: int = 4) -> str:
    """The first of some words, each once, and how many more there are."""
    once = list(dict.fromkeys(words))
    return ", ".join(once[:most]) + (f" and {len(once) - most} more" if len(once) > most else "")


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
        lines += ["### What is not right", *(list(_faults(answered)) or ["", "Nothing."]), ""]
        refused = list(_refused(mine))
        if refused:
            lines += ["### What cannot run here", "", *refused, ""]
    return "\n".join(lines).rstrip() + "\n"
