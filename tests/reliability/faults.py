"""Inflicts every fault on real processes and prints what became of the jobs.

Run as `python -P tests/reliability/faults.py`, or `make reliability`. Service, workers and
databases are real; workers measure by sleeping, but for the faults of measuring processes. Ends
with 1 where anything was lost, doubled or otherwise wrong.
"""

import argparse
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

sys.path.append(str(Path(__file__).parent))

import child_faults
import database_faults
import service_faults
import worker_faults
from found import ENGINES, Fault, Found, Site
from long_job import killed_until_done
from servers import Server, SmallDisk
from stage import Stage, Verdict, make_stage, remove

SMALL_MB = {"sqlite": 12, "postgresql": 64}
DISK_FULL = "disk full while cases are saved"


class Row(NamedTuple):
    """A line of the table."""

    fault: str
    engine: str
    times: int
    lost: int
    doubled: int
    recovered_s: float | None
    said: str
    wrong: list[str]


def all_faults(site: Site) -> list[Fault]:
    """Every fault of the site's engine, in the order of the table."""
    return [
        killed_until_done(site.cells, 4.0),
        *worker_faults.FAULTS,
        *service_faults.FAULTS,
        *child_faults.FAULTS,
        *database_faults.faults(site.server),
        Fault(DISK_FULL, lambda stage: Found([], None, "")),
    ]


@contextmanager
def on_small_disk(site: Site, number: int) -> Iterator[tuple[Stage, SmallDisk]]:
    """A stage whose database lies on a disk that can be filled."""
    with tempfile.TemporaryDirectory(prefix="lbrel") as folder:
        Path(folder).chmod(0o755)
        disk = SmallDisk(Path(folder) / "disk", SMALL_MB[site.engine])
        stage = make_stage(site.engine, None, site.stale_after_s)
        try:
            if site.server:
                site.server.add_tablespace(f"small_{number}", disk.folder)
                url = site.server.fresh_url(f"small_{number}")
            else:
                url = f"sqlite:///{disk.folder / 'lossbench.db'}"
            stage = Stage(site.engine, url, stage.folder, site.stale_after_s)
            yield stage, disk
        finally:
            remove(stage)
            disk.close()


def inflict(site: Site, fault: Fault, times: int) -> Row:
    """Play a fault so many times; a stage that went wrong is replaced."""
    found: list[Found] = []
    verdicts: list[tuple[Verdict, Found]] = []
    wrong: list[str] = []
    if fault.name == DISK_FULL:
        for _ in range(times):
            with on_small_disk(site, int(time.time() * 1000)) as (stage, disk):
                stage.service()
                found.append(_judged(stage, verdicts, database_faults.disk_full(stage, disk)))
    else:
        with site.stage() as stage:
            if fault.service:
                stage.service()
            for _ in range(times):
                stage.mark_logs()
                found.append(_judged(stage, verdicts, fault.play(stage)))
    lost = sum(max(0, v.lost - (f.expected is not None) * (1)) for v, f in verdicts)
    doubled = sum(v.doubled for v, _ in verdicts)
    for verdict, one in verdicts:
        wrong += one.wrong
        if verdict.state != "done":
            wrong.append(f"the job ended as {verdict.state}")
        if not one.said:
            wrong.append("the log said nothing")
    recovered = [one.recovered_s for one in found if one.recovered_s is not None]
    said = next((one.said for one in found if one.said), "")
    slowest = max(recovered) if recovered else None
    return Row(fault.name, site.engine, len(found), lost, doubled, slowest, said, wrong)


def _judged(stage: Stage, verdicts: list[tuple[Verdict, Found]], found: Found) -> Found:
    verdicts += [(stage.verdict(job), found) for job in found.jobs]
    return found


def say(line: str) -> None:
    """One line, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def print_table(rows: list[Row], stale_after_s: float) -> None:
    """The table as it stands in docs/reference/reliability.md."""
    say(f"\n{datetime.now(UTC):%Y-%m-%d}, a worker counts as dead after {stale_after_s:g} s\n")
    say("| fault | database | times | lost | doubled | seconds to recover | the log says |")
    say("|---|---|---|---|---|---|---|")
    for row in rows:
        seconds = "" if row.recovered_s is None else f"{row.recovered_s:.1f}"
        say(
            f"| {row.fault} | {row.engine} | {row.times} | {row.lost} | {row.doubled} | {seconds} "
            f"| {row.said.replace('|', '/')} |"
        )


def main() -> int:
    """The whole table, or a part of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=3, help="how often each fault is inflicted")
    parser.add_argument("--database", choices=[*ENGINES, "both"], default="both")
    parser.add_argument("--only", action="append", help="part of a fault's name; may be repeated")
    parser.add_argument("--skip", action="append", default=[], help="part of a name to leave out")
    parser.add_argument("--stale-after-s", type=float, default=10.0, help="as the setting")
    parser.add_argument("--cells", type=int, default=1000, help="cells of the long job")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    given = parser.parse_args()
    rows: list[Row] = []
    for engine in ENGINES if given.database == "both" else (given.database,):
        server = Server() if engine == "postgresql" and not given.list else None
        try:
            site = Site(engine, server, given.stale_after_s, given.cells)
            for fault in all_faults(site):
                chosen = not given.only or any(part in fault.name for part in given.only)
                if not chosen or any(part in fault.name for part in given.skip):
                    continue
                if given.list:
                    say(fault.name)
                    continue
                rows += _row(site, fault, 1 if "until" in fault.name else given.times)
        except KeyboardInterrupt:
            say("interrupted: the table holds what was inflicted so far")
            break
        finally:
            if server:
                server.close()
    if not given.list:
        print_table(rows, given.stale_after_s)
    return int(any(row.lost or row.doubled or row.wrong for row in rows))


def _row(site: Site, fault: Fault, times: int) -> list[Row]:
    began = time.monotonic()
    try:
        row = inflict(site, fault, times)
    except PermissionError as error:
        say(f"-- {site.engine}: {fault.name}: left out: {error}")
        return []
    except Exception as error:  # the other faults are still to be seen
        traceback.print_exc()
        row = Row(fault.name, site.engine, 0, 0, 0, None, "", [f"{type(error).__name__}: {error}"])
    verdict = "; ".join(row.wrong) or "right"
    seconds = time.monotonic() - began
    say(
        f"-- {site.engine}: {fault.name}: {row.times} times, {row.lost} lost, {row.doubled} "
        f"doubled, {row.recovered_s or 0:.1f} s, {verdict} [{seconds:.0f} s]"
    )
    return [row]


if __name__ == "__main__":
    sys.exit(main())
