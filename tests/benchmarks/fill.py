"""Fill an empty database with made-up results, as many as asked for.

Run as `python -P tests/benchmarks/fill.py sqlite:////tmp/scale.db --results 1000000`. A database on
PostgreSQL is named by its URL. `world.py` says what the data looks like.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parent))

from bulk import Bulk, bulk_of
from world import Tables, World
from world_facts import MACHINES

from lossbench.service.store.database import Database, upgrade_schema
from lossbench.service.store.queue import migrate_queue

AT_ONCE = 10_000


def make_schema(url: str) -> None:
    """Tables of the service and of its queue."""
    database = Database(url)
    upgrade_schema(database)
    migrate_queue(database)
    database.close()


def fill(url: str, results: int, seed: int = 0) -> int:
    """Make the schema and fill it; returns how many results there are."""
    make_schema(url)
    world, bulk = World(results, seed), bulk_of(url)
    bulk.write("environments", world.environments())
    waiting: Tables = {}
    made = 0
    for job in world.jobs():
        made += len(job["runs"])
        for table, rows in job.items():
            waiting.setdefault(table, []).extend(rows)
        if len(waiting["runs"]) >= AT_ONCE:
            _write(bulk, waiting)
    _write(bulk, waiting)
    bulk.close()
    return made


def _write(bulk: Bulk, waiting: Tables) -> None:
    # in the order of their foreign keys
    for table in ("jobs", "runs", "output_errors", "samples", "job_cells", "comparisons"):
        if waiting.get(table):
            bulk.write(table, waiting[table])
    waiting.clear()


def main() -> None:
    """Fill and say how long it took."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("--results", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    began = time.perf_counter()
    made = fill(chosen.url, chosen.results, chosen.seed)
    took = time.perf_counter() - began
    sys.stdout.write(f"{made:,} results on {len(MACHINES)} machines in {took:.0f} s\n")


if __name__ == "__main__":
    main()
