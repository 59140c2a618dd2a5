"""`lossbench token`: make, list and revoke tokens, on the database directly (the first token)."""

from datetime import timedelta
from typing import Annotated

import typer

from ..contract.words import Scope
from ..settings import Settings
from ..store.database import Database, upgrade_schema
from ..store.events import now
from ..store.tokens import create_token, list_tokens, revoke_token
from .output import console, print_json, print_table

app = typer.Typer(help="Make, list and revoke tokens.", no_args_is_help=True)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _database() -> Database:
    database = Database.from_settings(Settings())
    upgrade_schema(database)
    return database


@app.command()
def create(
    name: Annotated[str, typer.Argument(help="What the token is for.")],
    scope: Annotated[list[Scope] | None, typer.Option(help="May be given several times.")] = None,
    days: Annotated[
        int | None, typer.Option(help="Days until it expires.", min=1, max=36_500)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Make a token; its secret is shown this once.

    Example: `lossbench token create ci --scope submit --days 90`
    """
    expires_at = now() + timedelta(days=days) if days else None
    with _database().transaction() as session:
        row, secret = create_token(session, name, scope or [Scope.SUBMIT], expires_at)
        facts = {"id": row.id, "name": name, "scopes": row.scopes, "token": secret}
    if as_json:
        print_json(facts)
    else:
        console.print(f"{row.id} ({', '.join(row.scopes)}); shown once:")
        console.print(secret, highlight=False, soft_wrap=True)


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List tokens; secrets are not stored and cannot be shown.

    Example: `lossbench token list`
    """
    with _database().reading() as session:
        rows = list_tokens(session)
    if as_json:
        names = ("id", "name", "prefix", "scopes", "created_at", "expires_at", "revoked_at")
        print_json([{name: getattr(row, name) for name in names} for row in rows])
        return
    print_table(
        "Tokens",
        ("id", "name", "begins", "scopes", "expires", "revoked"),
        ((r.id, r.name, r.prefix, ",".join(r.scopes), r.expires_at, r.revoked_at) for r in rows),
    )


@app.command()
def revoke(token_id: Annotated[str, typer.Argument(help="The token's id.")]) -> None:
    """Make a token useless from now on.

    Example: `lossbench token revoke tok-01jz4k2m8q3w5x7y`
    """
    with _database().transaction() as session:
        row = revoke_token(session, token_id)
        name = row.name
    console.print(f"revoked {token_id} ({name})")
