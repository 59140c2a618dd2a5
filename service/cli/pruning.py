"""`lossbench kernels prune`: remove contenders' environments that nothing uses any more.

In use is what a process of this user has on its path, what an installation holds the lock of, and
what an open lot names. When one was used last is the time of its lock: every use takes it.
"""

import fcntl
import os
import shutil
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from ..settings import Settings
from .output import console, mebibytes, print_json, print_table

DAY_S = 86_400.0
PROCESSES = Path("/proc")
_TRASH = ".removing-"
_SCRATCH = "tmp"
"""Folders of an installation that did not come to its end begin with this."""


@dataclass(frozen=True)
class Pruned:
    """One environment: its size, when it was used last, and why it stays, or None."""

    name: str
    size_bytes: int
    unused_days: float
    kept: str | None


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(prune)


def prune(
    unused_days: Annotated[
        float, typer.Option(help="Remove what was not used for this many days.", min=0)
    ] = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Remove old contender environments from the data directory, never one in use.

    They are installed anew when asked for; hashes of their wheels are kept. Run it as the user of
    the workers: processes of others cannot be looked into.

    Example: `lossbench kernels prune --unused-days 14 --dry-run`
    """
    from lossbench.worker.install import FOLDER

    settings = Settings()
    root = settings.data_dir / FOLDER
    found = prune_folder(root, unused_days, names_in_open_lots(settings), dry_run)
    gone = [each for each in found if each.kept is None]
    freed = sum(each.size_bytes for each in gone)
    if as_json:
        print_json(
            {
                "dry_run": dry_run,
                "removed": [vars(each) for each in gone],
                "kept": [vars(each) for each in found if each.kept is not None],
                "freed_bytes": freed,
            }
        )
        return
    rows = [(e.name, mebibytes(e.size_bytes), f"{e.unused_days:.0f}", e.kept or "") for e in found]
    print_table("Environments", ("name", "size", "days unused", "kept because"), rows)
    word = "would free" if dry_run else "freed"
    console.print(f"{word} {freed:,} bytes ({mebibytes(freed)}) of {len(gone)} environments")


def prune_folder(
    root: Path, unused_days: float, needed: Sequence[str], dry_run: bool = False
) -> list[Pruned]:
    """Remove what is old and not in use below `root`; what became of each, by name.

    `needed`: names of folders that jobs still ask for; one that ends in `+` stands for all that
    begin with it.
    """
    return [
        _prune_one(folder, unused_days, needed, dry_run)
        for folder in sorted(root.iterdir() if root.is_dir() else ())
        if folder.is_dir() and not folder.is_symlink()
    ]


def _prune_one(folder: Path, unused_days: float, needed: Sequence[str], dry_run: bool) -> Pruned:
    unused_s = time.time() - _last_used(folder)
    size = _size(folder)

    def report(kept: str | None) -> Pruned:
        return Pruned(folder.name, size, unused_s / DAY_S, kept)

    if any(_names(folder.name, name) for name in needed):
        return report("a job that has not ended asks for it")
    with _lock(folder) as held:
        if not held.mine:
            return report("it is being installed or looked for")
        # what an installation left behind when it was killed is of no use to anybody
        least_s = DAY_S if _is_rest(folder) else unused_days * DAY_S
        if unused_s < least_s:
            return report(f"used within {least_s / DAY_S:g} days")
        if user := next(users_of(folder), None):
            return report(f"process {user} uses it")
        if not dry_run:
            _remove(folder)
    return report(None)


def _names(folder: str, name: str) -> bool:
    """Whether a name that a job asks for means this folder, whatever it requires beside it."""
    return folder == name or folder.startswith(name if name.endswith("+") else f"{name}+")


def _is_rest(folder: Path) -> bool:
    from lossbench.worker.install import RECORD

    return folder.name.startswith((_SCRATCH, _TRASH)) or not (folder / RECORD).exists()


def _last_used(folder: Path) -> float:
    lock = folder.with_name(f"{folder.name}.lock")
    return max(path.stat().st_mtime for path in (folder, lock) if path.exists())


def _size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    total = 0
    for where, _, files in os.walk(folder):
        for name in files:
            try:
                found = os.lstat(os.path.join(where, name))
            except OSError:
                continue
            total += found.st_size if stat.S_ISREG(found.st_mode) else 0
    return total


class _lock:  # noqa: N801
    """The lock that installing the folder takes, if nobody holds it. Its time stays as it was."""

    def __init__(self, folder: Path) -> None:
        self._path = folder.with_name(f"{folder.name}.lock")
        self.mine = False

    def __enter__(self) -> "_lock":
        there = self._path.exists()
        times = self._path.stat() if there else None
        self._file = self._path.open("a")
        if times is not None:
            os.utime(self._path, ns=(times.st_atime_ns, times.st_mtime_ns))
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.mine = True
        except BlockingIOError:
            self.mine = False
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()


def users_of(folder: Path) -> Iterator[int]:
    """Processes that have the folder on their path, or a file of it open or mapped."""
    needle = os.fsencode(f"{folder.resolve()}{os.sep}")
    plain = os.fsencode(f"{folder}{os.sep}")
    for process in PROCESSES.iterdir() if PROCESSES.is_dir() else ():
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        for part in ("environ", "cmdline", "maps"):
            try:
                text = (process / part).read_bytes()
            except OSError:
                continue
            if needle in text or plain in text:
                yield int(process.name)
                break


def _remove(folder: Path) -> None:
    """Take the folder away in one step, then its files: it is there whole or not at all."""
    trash = folder
    if not folder.name.startswith(_TRASH):
        trash = folder.with_name(f"{_TRASH}{os.getpid()}-{folder.name}")
        os.rename(folder, trash)
    shutil.rmtree(trash, ignore_errors=True)


def names_in_open_lots(settings: Settings) -> list[str]:
    """Names of folders that queued and running lots ask for. Raises DatabaseError."""
    from ..store.budgets import contenders_of_open_lots
    from ..store.database import Database, check_schema, schema_revision

    if settings.database_url is None and not (settings.data_dir / "lossbench.db").exists():
        return []
    database = Database.from_settings(settings)
    try:
        check_schema(database)
        if schema_revision(database.engine) is None:
            return []
        with database.reading() as session:
            texts = contenders_of_open_lots(session)
    finally:
        database.close()
    return [name for text in texts for name in folder_names(text)]


def folder_names(contender: str) -> list[str]:
    """Folders that a contender runs from; those of what it requires are named by their beginning.

    One that the catalogue does not know has none here.
    """
    from lossbench.worker.install import exact_pin

    from ..contract.contender import Contender
    from .kernels import catalogue_here

    parsed = Contender.parse(contender)
    row: Any = catalogue_here().kernels.get(parsed.kernel)
    if row is None or parsed.version is None:
        return []
    if row.package is not None:
        return [exact_pin(row.package, parsed.version).replace("==", "-")]
    if row.origin == "checkout":
        return [f"{row.name}-{parsed.version}", "requires+"]
    return []
