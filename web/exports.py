"""What a reader takes along from a view: link, command, files, Markdown, a permalink."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from fastapi import Request

from lossbench.service.api.result_routes import Filters

from .address import Given

FILTERS = frozenset(field.alias or name for name, field in Filters.model_fields.items()) | {
    "imported"
}
"""Parameters that narrow results; a page's own are no filter of a file."""
API = "/api/v1"
RESULTS = "/results"


@dataclass(frozen=True)
class Exports:
    """Addresses and texts of a view; `filters` is the query that selects its results."""

    link: str
    command: str
    json: str
    filters: str
    markdown: str
    view: tuple[str, str]
    """Path and query that its permalink keeps."""

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
    view: tuple[str, Mapping[str, Sequence[str]]] | None = None,
) -> Exports:
    """The exports of a page. `api`: path and query of its numbers, below `/api/v1`.

    `view`: page and parameters that its permalink keeps; else the list of its results.
    """
    path, query = api
    json = f"{API}{path}?{query}" if query else f"{API}{path}"
    base = str(request.base_url).rstrip("/")
    kept = urlencode({n: v for n, v in filters.items() if n in FILTERS}, doseq=True)
    return Exports(
        link=str(request.url),
        command=f"curl -s {_quoted(base + json)}",
        json=json,
        filters=kept,
        markdown=markdown,
        view=(view[0], urlencode(view[1], doseq=True)) if view else (RESULTS, kept),
    )


def _quoted(address: str) -> str:
    return "'" + address.replace("'", "%27") + "'"
