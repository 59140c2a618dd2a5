"""`lossbench results`: stored results on a terminal, with the filters of the API."""

from typing import Annotated, Any

import typer

from ..contract.errors import InvalidRequestError
from ..contract.result import Result
from ..plots import text
from .output import console, mebibytes, print_json, print_table

COLUMNS = ("result", "contender", "case", "pass", "outcome", "time ms", "× baseline", "workspace",
           "error")  # fmt: skip


def register(app: typer.Typer) -> None:
    """Add the command of this file."""
    app.command()(results)


def results(
    result_id: Annotated[
        str | None, typer.Argument(metavar="RESULT", help="Show only this one, whole.")
    ] = None,
    narrow: Annotated[
        list[str] | None,
        typer.Option("--filter", help="A filter of results, name=value; may be repeated."),
    ] = None,
    sort: Annotated[
        str | None, typer.Option(help="Column to sort by, with - before it from high to low.")
    ] = None,
    limit: Annotated[int, typer.Option(help="Most results to print.", min=1, max=100_000)] = 50,
    url: Annotated[str | None, typer.Option(help="Address of the service.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """List stored results, newest first; the filters are those of GET /results.

    Example: `lossbench results --filter kernel=liger --filter tokens_gte=8192 --sort latency_ms`
    """
    from .following import client_for

    query = filters_of(narrow or [])
    with client_for(url) as client:
        if result_id is not None:
            print_json(client.result(result_id).model_dump(mode="json", by_alias=True))
            return
        page = {"sort": sort, "limit": min(limit, 1000)}
        found = client.results(**{**query, **page})
        shown = [result for _, result in zip(range(limit), found, strict=False)]
    if as_json:
        print_json([result.model_dump(mode="json", by_alias=True) for result in shown])
        return
    print_table("Results", COLUMNS, [_row(result) for result in shown])
    if len(shown) == limit:
        console.print(f"the first {limit}; --limit takes more")


def filters_of(texts: list[str]) -> dict[str, Any]:
    """Query of repeated `name=value`. Raises InvalidRequestError."""
    query: dict[str, Any] = {}
    for each in texts:
        name, equals, value = each.partition("=")
        if not equals or not name.strip():
            raise InvalidRequestError(f"filter {each!r} is not name=value, such as kernel=flce")
        query.setdefault(name.strip(), []).append(value)
    return query


def _row(result: Result) -> tuple[str, ...]:
    return (
        result.id,
        result.label,
        result.case,
        result.pass_.value,
        result.outcome.value,
        text.digits(result.latency_ms),
        text.digits(result.ratio_to_baseline),
        mebibytes(result.workspace_bytes),
        result.grade or text.NONE,
    )
