"""The proof pool: processes that time all arms of four shapes, appended to a file line by line.

    python -P tests/gpu/proof_pool.py FILE --processes 16 --until-s 520

Call it again with the same file to go on: a process whose shapes are all in the file is not
measured again, one that was cut short is begun anew. Exit 0 when all processes are there, 3 when
the time was over first. `proof_report.py` reads the file; `--shapes` takes cases in text form.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from lossbench.service.contract.case import Case
from lossbench.service.contract.contender import Contender
from lossbench.worker.measure import VISITS
from lossbench.worker.proof_runner import GPU_CASES, prove

ENOUGH, NOT_YET = 0, 3
FIRST_GUESS_S = 70.0
"""Seconds of a process before one was measured."""


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Whole lines of a pool file; one that was cut off by the end of a machine is left out."""
    if not path.exists():
        return []
    found = []
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            found.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return found


def missing_processes(
    lines: Iterable[dict[str, Any]], cases: Sequence[Case], processes: int
) -> list[int]:
    """Process indices that lack a shape."""
    done: dict[int, set[str]] = {}
    for line in lines:
        done.setdefault(line["process"], set()).add(line["case"])
    wanted = {case.text for case in cases}
    return [number for number in range(processes) if not wanted <= done.get(number, set())]


def arguments_of(texts: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("file", type=Path)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--until-s", type=float, default=520.0, help="start none that ends later")
    parser.add_argument("--shapes", nargs="+", default=list(GPU_CASES))
    parser.add_argument("--contender", default="flce")
    parser.add_argument("--visits", type=int, default=VISITS)
    parser.add_argument("--quick", action="store_true", help="visits of 0.08 s, to try the script")
    parser.add_argument("--ahead", action=argparse.BooleanOptionalAction, default=True)
    return parser.parse_args(texts)


def main(texts: Sequence[str] | None = None) -> int:
    """Measure what is missing until the time is over."""
    given = arguments_of(texts)
    cases = [Case.parse(text) for text in given.shapes]
    began = time.monotonic()
    longest, started = FIRST_GUESS_S, began
    missing = missing_processes(read_lines(given.file), cases, given.processes)
    given.file.parent.mkdir(parents=True, exist_ok=True)
    # a line that was cut off must not swallow the next one
    cut = given.file.exists() and not given.file.read_bytes().endswith(b"\n")
    with given.file.open("a", encoding="utf-8") as out:
        out.write("\n" if cut and given.file.stat().st_size else "")
        lines = prove(
            cases,
            Contender.parse(given.contender),
            missing,
            given.quick,
            start_ahead=given.ahead,
            visits=given.visits,
        )
        for line in lines:
            out.write(json.dumps(line) + "\n")
            out.flush()
            sys.stdout.write(f"process {line['process']} {line['case']}: {outcome_of(line)}\n")
            if line["case"] == cases[-1].text:
                now = time.monotonic()
                longest, started = now - started, now
                if now - began + longest > given.until_s:
                    lines.close()
                    break
    left = missing_processes(read_lines(given.file), cases, given.processes)
    sys.stdout.write(f"{given.processes - len(left)} of {given.processes} processes measured\n")
    return NOT_YET if left else ENOUGH


def outcome_of(line: dict[str, Any]) -> str:
    """What became of a shape, for the screen."""
    if "failed" in line:
        return str(line["failed"])
    planted = ", ".join(f"{share:.2%}" for share in line["planted"].values())
    return f"{line['call_ms']:.2f} ms a call, planted {planted}, {line['wall_s']:.1f} s"


if __name__ == "__main__":
    sys.exit(main())
