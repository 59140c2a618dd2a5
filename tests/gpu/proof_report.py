"""What a proof pool shows, as Markdown: python -P tests/gpu/proof_report.py FILE > page.md"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from lossbench.worker.proof_figures import SHOWN_PROCESSES, figures

NONE = "none"


def read_pool(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a pool file."""
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """A Markdown table."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join(str(cell) for cell in row) + " |"
    yield ""


def percent(value: float | None, digits: int = 2) -> str:
    """A fraction as per cent; a dash for None."""
    return "–" if value is None else f"{100 * value:.{digits}f} %"


def counts(found: dict[str, int]) -> str:
    """Verdicts with how often each came."""
    return ", ".join(f"{count} {word}" for word, count in sorted(found.items())) or NONE


def same_code(classes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """A/A: every verdict that is not `no_difference` or `inconclusive` is a false one."""
    yield "## The same code twice"
    yield ""
    rows = []
    for made in classes:
        same = made["same_code"]
        drawn = "; ".join(f"P={p}: {counts(v)}" for p, v in same["drawn"].items())
        rows.append(
            (
                f"`{made['case']}`",
                f"{made['call_ms']:.1f} ms",
                made["processes"],
                f"{same['verdict']} at P={same['at_processes']}",
                counts(same["disjoint"]),
                drawn or NONE,
            )
        )
    head = ("shape", "a call", "processes", "series", "disjoint triples", "random choices")
    yield from table(head, rows)


def deviations(classes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """How r spreads, and what follows from it."""
    yield "## Deviation of r and the smallest slowdown that is found 9 times of 10"
    yield ""
    rows = [
        (
            f"`{made['case']}`",
            f"{made['call_ms']:.1f} ms",
            percent(made["deviation"], 3),
            *(percent(made["detectable"][str(p)]) for p in SHOWN_PROCESSES),
            "–" if made["lag_correlation"] is None else f"{made['lag_correlation']:+.2f}",
        )
        for made in classes
    ]
    shown = (f"P={p}" for p in SHOWN_PROCESSES)
    yield from table(("shape", "a call", "deviation", *shown, "lag correlation"), rows)


def steps(classes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Slowdowns that were added: what was read, and how often they were found."""
    yield "## Slowdowns that were added"
    yield ""
    rows = []
    for made in classes:
        for arm, step in made["slowdowns"].items():
            drawn = "; ".join(f"P={p}: {counts(v)}" for p, v in step["drawn"].items())
            rows.append(
                (
                    f"`{made['case']}`",
                    arm,
                    percent(step["planted"]),
                    percent(step["read"]),
                    percent(step["deviation"], 3),
                    f"{step['verdict']} at P={step['at_processes']}",
                    drawn or NONE,
                )
            )
    head = ("shape", "arm", "really added", "read", "deviation", "series", "random choices")
    yield from table(head, rows)


def economy(classes: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Place in the round, and how much of the wall time was timed calls."""
    yield "## Place in the round, and economy"
    yield ""
    rows = []
    for made in classes:
        places = ", ".join(f"{100 * log:+.2f}" for log in made["position"].values())
        flags = ", ".join(made["flags"]) or NONE
        timed = percent(made["timed_share"], 0)
        rows.append((f"`{made['case']}`", places, timed, made["not_steady"], flags))
    head = ("shape", "first to last place, %", "timed share", "not steady", "flags")
    yield from table(head, rows)


def report(lines: Sequence[dict[str, Any]]) -> str:
    """The whole page."""
    found = figures(lines)
    classes = found["classes"]
    text = ["# What this device can tell apart", ""]
    verdict = "no verdict on the same code" if found["passed"] else "THE SAME CODE WAS JUDGED"
    text += [f"{len(classes)} shapes; {verdict}.", ""]
    for part in (same_code, deviations, steps, economy):
        text += part(classes)
    for line in found["failed"]:
        text.append(f"- process {line['process']}, `{line['case']}`: {line['failed']}")
    return "\n".join(text).rstrip() + "\n"


if __name__ == "__main__":
    sys.stdout.write(report(read_pool(Path(sys.argv[1]))))
