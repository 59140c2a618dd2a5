"""How evenly four workers share a long job of sleeping cells: seconds beside the ideal.

Run as `python -P tests/reliability/sharing.py`. Ends with 1 where it took over a tenth longer.
"""

import argparse
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from found import ENGINES, Site
from servers import Server
from stage import Stage

MOST_OVER = 0.10


def seconds_of(stage: Stage, workers: int, cells: int, cell_s: float) -> tuple[float, list[int]]:
    """Seconds from the first start to the last save, and how many cells each worker did."""
    stage.service()
    started = [stage.worker(case_s=cell_s) for _ in range(workers)]
    time.sleep(2.0)  # their imports are done
    began = time.monotonic()
    job = stage.submit(cells)
    stage.wait_end(job, timeout_s=20 * cells * cell_s / workers + 60)
    seconds = time.monotonic() - began
    verdict = stage.verdict(job)
    if verdict.lost or verdict.doubled:
        raise RuntimeError(f"{verdict.lost} lost, {verdict.doubled} doubled")
    shares = stage.shares(job)
    stage.end(*started)
    return seconds, shares


def main() -> int:
    """One row for each engine."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--cells", type=int, default=1000)
    parser.add_argument("--cell-s", type=float, default=0.5)
    given = parser.parse_args()
    ideal_s = given.cells * given.cell_s / given.workers
    too_slow = False
    lines = [
        "| database | ideal s | took s | over | cells of each worker |",
        "|---|---|---|---|---|",
    ]
    for engine in ENGINES if given.database == "both" else (given.database,):
        server = Server() if engine == "postgresql" else None
        try:
            with Site(engine, server, 10.0, given.cells).stage() as stage:
                took_s, shares = seconds_of(stage, given.workers, given.cells, given.cell_s)
        finally:
            if server:
                server.close()
        over = took_s / ideal_s - 1
        too_slow |= over > MOST_OVER
        each = ", ".join(str(share) for share in shares)
        lines.append(f"| {engine} | {ideal_s:.1f} | {took_s:.1f} | {over:+.1%} | {each} |")
    sys.stdout.write(f"{datetime.now(UTC):%Y-%m-%d}\n\n" + "\n".join(lines) + "\n")
    return int(too_slow)


if __name__ == "__main__":
    sys.exit(main())
