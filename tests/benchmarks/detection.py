"""The change detector's own score, beside asv and Apache Otava on the same series.

`make compare-detectors` installs both in virtual environments of their own and runs this; it prints
Markdown, which stands dated in docs/reference/detection.md. lossbench reads logs of times, the
others the times. A hit is a change told within three points of the true one; in a clean series
every change, drifts included, is a false alarm.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

sys.path.append(str(Path(__file__).parent))

import numpy as np
from detection_series import BEYOND, KINDS, Series, measured_kinds, white

from lossbench.service.statistics.change_points import FALSE_RATE, find_changes

STEPS = (0.01, 0.02, 0.05, 0.10)
WITHIN = 3
POINTS = 100
SD = 0.005
ENDS = 5
"""A step has at least this many points on either side."""
BEFORE = 50
LOOKS = (*range(1, 16), 20, 30)
"""Points after a step at which a growing series is looked at."""
PEER = Path(__file__).with_name("detection_peer.py")
TITLES = {
    "lossbench": "lossbench",
    "lossbench-loose": "lossbench, false_rate=0.05",
    "asv": "asv {version}",
    "otava": "Otava {version}, as it comes",
    "otava-strict": "Otava {version}, p 1e-4, >= 0.5 %",
    "otava-rare": "Otava {version}, p 1e-6, >= 0.5 %",
}


class Answers(NamedTuple):
    """What one tool found in a list of series."""

    found: list[list[int]]
    alarms: list[bool]
    """Whether anything was told at all: drifts too."""
    seconds: list[float]
    version: str


Tool = Callable[[Sequence[Series]], Answers]


def lossbench(logs: Sequence[Series], false_rate: float = FALSE_RATE) -> Answers:
    """Our detector, in this process."""
    answers = Answers([], [], [], version("lossbench"))
    for series in logs:
        began = time.perf_counter()
        changes = find_changes(series, false_rate=false_rate)
        answers.seconds.append(time.perf_counter() - began)
        answers.found.append([point.index for point in changes.points])
        answers.alarms.append(bool(changes.points or changes.drifts))
    return answers


def peer(tool: str, python: Path) -> Tool:
    """Another detector, in a process of its own Python."""

    def run(logs: Sequence[Series]) -> Answers:
        with tempfile.TemporaryDirectory() as folder:
            given, output = Path(folder, "given.json"), Path(folder, "output.json")
            times = [(30.0 * np.exp(series)).tolist() for series in logs]
            given.write_text(json.dumps({"series": times}), encoding="utf-8")
            subprocess.run([python, PEER, tool, given, output], check=True)
            answer = json.loads(output.read_text(encoding="utf-8"))
        found = answer["found"]
        return Answers(found, [bool(one) for one in found], answer["seconds"], answer["version"])

    return run


def kinds() -> dict[str, Callable[[np.random.Generator, int, int], Series]]:
    """Log ratios of clean series."""
    scaled = {
        f"{name}, sd 0.5 %": lambda rng, count, length, kind=kind: SD * kind(rng, count, length)
        for name, kind in {**KINDS, **BEYOND}.items()
    }
    wide = {"white, sd 1 %": lambda rng, count, length: 2 * SD * white(rng, count, length)}
    return {**scaled, **wide, **measured_kinds()}


def stepped(clean: Series, step: float, rng: np.random.Generator) -> tuple[Series, list[int]]:
    """Each series with a step of time, up or down, at a place of its own."""
    series, places = clean.copy(), rng.integers(ENDS, POINTS - ENDS + 1, len(clean))
    signs = np.where(rng.random(len(clean)) < 0.5, -1, 1)
    for row, place, sign in zip(series, places, signs, strict=True):
        row[place:] += sign * np.log1p(step)
    return series, places.tolist()


def hits(found: Sequence[Sequence[int]], places: Sequence[int]) -> tuple[float, float]:
    """Share of steps that were hit, and changes told elsewhere per 100 series."""
    near = [
        [abs(index - place) <= WITHIN for index in indices]
        for indices, place in zip(found, places, strict=True)
    ]
    elsewhere = sum(max(len(each) - any(each), 0) for each in near)
    return float(np.mean([any(each) for each in near])), 100 * elsewhere / len(near)


def score_rows(tools: dict[str, Tool], clean: int, steps: int, seed: int) -> Iterator[str]:
    """A line for each kind of noise and tool."""
    for place, (name, kind) in enumerate(kinds().items()):
        rng = np.random.default_rng([seed, place])
        quiet = kind(rng, clean, POINTS)
        moved = {step: stepped(kind(rng, steps, POINTS), step, rng) for step in STEPS}
        for tool, run in tools.items():
            answers = run(list(quiet))
            false = 1000 * np.mean(answers.alarms)
            cells = []
            extra = []
            for series, places in moved.values():
                share, elsewhere = hits(run(list(series)).found, places)
                cells.append(f"{100 * share:.1f} %")
                extra.append(elsewhere)
            title = TITLES[tool].format(version=answers.version)
            line = " | ".join([name, title, f"{false:.1f}", *cells, f"{np.mean(extra):.1f}"])
            yield f"| {line} |"


def delay_rows(tools: dict[str, Tool], steps: int, seed: int) -> Iterator[str]:
    """How many points after a step it is first found, looking after each new point."""
    rng = np.random.default_rng([seed, 1000])
    for step in STEPS:
        series = SD * white(rng, steps, BEFORE + LOOKS[-1])
        series[:, BEFORE:] += np.log1p(step)
        for tool, run in tools.items():
            first = np.full(steps, np.inf)
            for look in LOOKS:
                waiting = np.flatnonzero(np.isinf(first))
                if not len(waiting):
                    break
                answers = run([series[i, : BEFORE + look] for i in waiting])
                for i, found in zip(waiting, answers.found, strict=True):
                    if any(abs(index - BEFORE) <= WITHIN for index in found):
                        first[i] = look
            shares = [f"{100 * np.mean(first <= look):.0f} %" for look in (3, 5, 10, 30)]
            title = TITLES[tool].format(version=answers.version)
            line = " | ".join([f"{100 * step:.0f} %", title, f"{np.median(first):.0f}", *shares])
            yield f"| {line} |"


def time_rows(tools: dict[str, Tool], seed: int) -> Iterator[str]:
    """Median time for 1,000 points: clean, and with four steps."""
    rng = np.random.default_rng([seed, 2000])
    quiet = SD * white(rng, 20, 1000)
    moved = quiet + np.log1p(0.02) * (np.arange(1000) // 200 % 2)
    for tool, run in tools.items():
        clean, steps = run(list(quiet)), run(list(moved))
        cells = [f"{1e3 * np.median(each.seconds):.1f} ms" for each in (clean, steps)]
        yield f"| {TITLES[tool].format(version=clean.version)} | {' | '.join(cells)} |"


def labelled(folder: Path) -> dict[str, tuple[Series, list[int]]]:
    """Series with labels: logs, and the indices of labels."""
    columns = {
        "mozilla_talos_labelled.csv": ("value", "expected_alert"),
        "perf_series.csv": ("value", "change_point"),
    }
    values: dict[str, list[float]] = {}
    labels: dict[str, list[int]] = {}
    for name, (value, label) in columns.items():
        with (folder / name).open(encoding="utf-8", newline="") as lines:
            for row in csv.DictReader(lines):
                series = values.setdefault(row["series"], [])
                if row[label] == "1":
                    labels.setdefault(row["series"], []).append(len(series))
                series.append(float(row[value]))
    return {name: (np.log(values[name]), places) for name, places in labels.items()}


def labelled_rows(tools: dict[str, Tool], folder: Path) -> Iterator[str]:
    """Labels hit, and changes told elsewhere, in each labelled series."""
    for name, (series, places) in labelled(folder).items():
        for tool, run in tools.items():
            answers = run([series])
            found = answers.found[0]
            hit = sum(any(abs(index - place) <= WITHIN for index in found) for place in places)
            elsewhere = sum(all(abs(index - place) > WITHIN for place in places) for index in found)
            title = TITLES[tool].format(version=answers.version)
            counts = f"{hit} of {len(places)} | {elsewhere}"
            yield f"| {name}, {len(series):,} points | {title} | {counts} |"


def table(head: str, rows: Iterator[str]) -> dict[str, list[Any]]:
    """Print a table, each line when it is known; returns its head and its lines as cells."""
    columns = head.split(" | ")
    sys.stdout.write(f"\n| {head} |\n|{'---|' * len(columns)}\n")
    lines = []
    for row in rows:
        sys.stdout.write(row + "\n")
        sys.stdout.flush()
        lines.append(row.strip("| ").split(" | "))
    return {"columns": columns, "rows": lines}


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--asv", type=Path, help="the Python that has asv")
    parser.add_argument("--otava", type=Path, help="the Python that has apache-otava")
    parser.add_argument("--labelled", type=Path, help="folder with the labelled series")
    parser.add_argument("--clean", type=int, default=1000, help="clean series of each kind")
    parser.add_argument("--steps", type=int, default=300, help="series of each kind and step")
    parser.add_argument("--seed", type=int, default=20261130)
    parser.add_argument("--json", type=Path, help="write the tables of injected series there too")
    chosen = parser.parse_args()
    tools: dict[str, Tool] = {
        "lossbench": lossbench,
        "lossbench-loose": partial(lossbench, false_rate=0.05),
    }
    for tool in TITLES:
        python = chosen.asv if tool == "asv" else chosen.otava
        if tool not in tools and python is not None:
            tools[tool] = peer(tool, python.absolute())
    steps = " | ".join(f"{100 * step:.0f} % hit" for step in STEPS)
    score = table(
        f"noise | detector | false alarms per 1,000 | {steps} | elsewhere per 100",
        score_rows(tools, chosen.clean, chosen.steps, chosen.seed),
    )
    delay = table(
        "step | detector | median points until found | after 3 | after 5 | after 10 | after 30",
        delay_rows(tools, chosen.steps, chosen.seed),
    )
    speed = table("detector | 1,000 clean points | with four steps", time_rows(tools, chosen.seed))
    if chosen.json is not None:
        measured = {
            "measured_on": datetime.now(UTC).date().isoformat(),
            "seed": chosen.seed,
            "clean_series": chosen.clean,
            "stepped_series": chosen.steps,
            "score": score,
            "delay": delay,
            "time": speed,
        }
        chosen.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    if chosen.labelled is not None:
        table(
            "series | detector | labels hit | told elsewhere",
            labelled_rows(tools, chosen.labelled),
        )


if __name__ == "__main__":
    main()
