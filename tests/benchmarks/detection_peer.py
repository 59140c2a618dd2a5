"""Runs one other detector over series; started by `detection.py` with that detector's own Python.

Reads `{"series": [[...], ...]}` from a file and writes `{"found": [[index, ...], ...], "seconds":
[...], "version": "..."}` to another. An index is that of the first point of a new level.
"""

import json
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path

Detect = Callable[[list[float]], list[int]]


def asv_steps() -> Detect:
    """The borders of the steps that asv fits before it looks for regressions among them."""
    from asv.step_detect import detect_steps

    return lambda series: [step[0] for step in detect_steps(series)[1:]]


def otava_points(max_pvalue: float, min_magnitude: float) -> Detect:
    """Otava's change points, with its window of 50 points."""
    from otava.analysis import compute_change_points

    def found(series: list[float]) -> list[int]:
        points, _ = compute_change_points(
            series, window_len=50, max_pvalue=max_pvalue, min_magnitude=min_magnitude
        )
        return [int(point.index) for point in points]

    return found


TOOLS: dict[str, tuple[str, Callable[[], Detect]]] = {
    "asv": ("asv", asv_steps),
    "otava": ("apache-otava", lambda: otava_points(0.001, 0.0)),
    "otava-strict": ("apache-otava", lambda: otava_points(0.0001, 0.005)),
    "otava-rare": ("apache-otava", lambda: otava_points(0.000001, 0.005)),
}


def main() -> None:
    """`detection_peer.py TOOL INPUT OUTPUT`."""
    tool, given, output = sys.argv[1:]
    package, make = TOOLS[tool]
    detect = make()
    found, seconds = [], []
    for series in json.loads(Path(given).read_text(encoding="utf-8"))["series"]:
        began = time.perf_counter()
        found.append(detect(list(series)))
        seconds.append(time.perf_counter() - began)
    answer = {"found": found, "seconds": seconds, "version": version(package)}
    Path(output).write_text(json.dumps(answer), encoding="utf-8")


if __name__ == "__main__":
    main()
