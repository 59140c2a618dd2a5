"""Alembic's entry: runs the migrations on the engine that `database.py` hands over."""

from typing import Any

from alembic import context

from lossbench.service.store.models import Base

OURS = frozenset(Base.metadata.tables)


def include_name(name: str | None, kind: str, _parents: Any) -> bool:
    """Only our tables: autogenerate would otherwise drop DBOS's in a shared SQLite file."""
    return kind != "table" or name in OURS


engine = context.config.attributes["engine"]
with engine.connect() as connection:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        include_name=include_name,
        render_as_batch=engine.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()
    connection.commit()
