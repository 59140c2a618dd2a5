"""What a reader takes along from a view: link, command, files, Markdown, a permalink."""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request

from lossbench.service.api.result_routes import Filters

from .address import Given

FILTERS = frozenset(field.alias or name for name, field in Filters.model_fields.items())
"""Parameters that narrow results; a page's own are no filter of a file."""
API = "/api/v1"


@dataclass(frozen=True)
class Exports:
    """Addresses and texts of a view; `filters` is the query that selects its results."""

    link: str
    command: str
    json: str
    filters: str
    markdown: str

    @property
    def query(self) -> str:
        """Query of its numbers, without their path."""
        return self.json.partition("?")[2]

    @property
    def csv(self) -> str:
        """Address of its results as CSV."""
        return f"{API}/export/results.csv?{self.filters}"

    @property
    def parquet(self) -> str:
        """Address of its results as Parquet."""
        return f"{API}/export/results.parquet?{self.filters}"


def exports_of(
    request: Request,
    api: tuple[str, str],
    filters: Given,
    markdown: str,
    leave_out: Sequence[str] = (),
) -> Exports:
    """The exports of a page. `api`: path and query of its numbers, below `/api/v1`."""
    path, query = api
    json = f"{API}{path}?{query}" if query else f"{API}{path}"
    base = str(request.base_url).rstrip("/")
    kept = {n: v for n, v in filters.items() if n in FILTERS and n not in leave_out}
    return Exports(
        link=str(request.url),
        command=f"curl -s {_quoted(base + json)}",
        json=json,
        filters=urlencode(kept, doseq=True),
        markdown=markdown,
    )


def _quoted(address: str) -> str:
    return "'" + address.replace("'", "%27") + "'"
