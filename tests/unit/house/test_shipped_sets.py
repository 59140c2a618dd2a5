"""Sets that the package ships are small, load at once, and name no path of a machine."""

import gzip
import re
import time
from pathlib import Path

import pytest
import sqlalchemy as sa

from lossbench.service.store.database import Database, upgrade_schema
from lossbench.service.store.models import RunRow
from lossbench.service.store.set_files import read_set, shipped_sets
from lossbench.service.store.set_loading import load_shipped
from lossbench.service.store.shipped_tables import import_shipped

MOST_BYTES = 2**20
MOST_SECONDS = 3.0
"""Three times the budget of 1 s: a busy machine must not fail this."""
MACHINE_PATH = re.compile(r"(?<![\w./-])/(?:home|root|tmp|work|usr|opt|mnt|var|data|Users)/[\w.-]+")


def paths_in(path: Path) -> list[str]:
    """Paths of a machine that a set names."""
    return MACHINE_PATH.findall(gzip.decompress(path.read_bytes()).decode())


def test_shipped_sets_are_there_and_small() -> None:
    assert [path.name for path in shipped_sets()] == ["h200-checks.jsonl.gz", "h200-first.jsonl.gz"]
    assert sum(path.stat().st_size for path in shipped_sets()) <= MOST_BYTES


def test_shipped_sets_load_once_and_fast(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'lossbench.db'}")
    upgrade_schema(database)
    began = time.process_time()
    first = load_shipped(database)
    assert time.process_time() - began < MOST_SECONDS
    assert all(sum(loaded.new.values()) > 0 for loaded in first)
    assert all(sum(loaded.new.values()) == 0 for loaded in load_shipped(database))
    database.close()


def test_shipped_tables_are_imported_once_and_whole(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'lossbench.db'}")
    upgrade_schema(database)
    (first,), (second,) = import_shipped(database), import_shipped(database)
    assert (first.name, first.done.added, first.done.refused) == (
        "liger-benchmark-history.csv", 48, 0
    )  # fmt: skip
    assert (second.done.added, second.done.known, second.done.results_added) == (0, 48, 0)
    assert first.done.results_added > 0
    with database.reading() as session:
        assert set(session.scalars(sa.select(RunRow.imported))) == {True}
    database.close()


@pytest.mark.parametrize("path", shipped_sets(), ids=lambda path: path.name)
def test_shipped_set_is_of_a_gpu_and_names_no_path(path: Path) -> None:
    found = read_set(path)
    assert {place.device_type for place in found.header.environments} == {"cuda"}
    assert not paths_in(path)


def test_path_of_a_machine_is_found(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"reason": "no /opt/ann/x.py in a/tmp/b"}'))
    assert paths_in(path) == ["/opt/ann"]
