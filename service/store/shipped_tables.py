"""Tables of other benchmarks that the package ships, imported as a user's would be.

Which they are, where they come from and under which licence: docs/reference/set-files.md.
"""

from pathlib import Path
from typing import NamedTuple

from ..contract.peer_formats.rows import Given
from ..contract.peer_formats.tables import read_table
from .database import Database
from .imports import Imported, import_table
from .set_files import SHIPPED


class ImportedTable(NamedTuple):
    """What importing a shipped table did."""

    name: str
    done: Imported


def shipped_tables() -> list[Path]:
    """Files of the tables, by name."""
    return sorted(SHIPPED.glob("*.csv"))


def import_shipped(database: Database) -> list[ImportedTable]:
    """Import every table of the package; what is there already stays as it is."""
    return [
        ImportedTable(
            path.name,
            import_table(
                database, read_table(path.read_text("utf-8"), None, Given()), Given(), path.name
            ),
        )
        for path in shipped_tables()
    ]


def table_lines(imported: list[ImportedTable]) -> list[str]:
    """A line for each table: `table liger.csv: 48 rows new, 0 known; 32 results`."""
    return [
        f"table {name}: {done.added} rows new, {done.known} known; {done.results_added} results"
        for name, done in imported
    ]
