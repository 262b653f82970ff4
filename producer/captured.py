"""Which tables are captured: what [tables] asks for and the publication lets through."""

from __future__ import annotations

from collections.abc import Callable

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.drivers import catalog
from producer.errors import SourceError, Unsupported
from producer.options import Options
from schemas.tables import TableId

_ROOTS = 130_000  # from here on a partitioned table can be published as one


def ensure_publication(
    connection: Connection, options: Options, note: Callable[[str], None]
) -> None:
    """Make the publication if there is none, refuse one that hides changes.

    It must be there before the slot: decoding at an earlier place would not find it.
    """
    name = options.publication
    publication = catalog.publication(connection, name)
    if publication is None:
        wanted = catalog.expand(connection, options.include, options.exclude)
        if not wanted:
            raise SourceError(
                "no table matches [tables]",
                include=", ".join(options.include),
                hint="create tables, or correct include and exclude",
            )
        make_publication(connection, name, wanted)
        note(f"publication {name} made for {len(wanted)} tables")
        return
    if publication.filtered:
        raise Unsupported(
            "the publication leaves out rows or columns of a table: the copy would not be equal",
            publication=name,
            tables=", ".join(map(str, publication.filtered)),
            hint="ALTER PUBLICATION … SET TABLE without WHERE and column lists",
        )
    if publication.actions != {"insert", "update", "delete", "truncate"}:
        raise SourceError(
            "the publication does not publish every kind of change",
            publication=name,
            publishes=",".join(sorted(publication.actions)),
            hint=f"ALTER PUBLICATION {name} SET (publish = 'insert, update, delete, truncate')",
        )


def make_publication(connection: Connection, name: str, tables: list[TableId]) -> None:
    """Publish tables; a partitioned one as one, where the server can."""
    via_root = connection.server_version >= _ROOTS
    settings = {"publish_via_partition_root": "true"} if via_root else {}
    catalog.create_publication(connection, name, tables, settings)


def captured_tables(
    connection: Connection, options: Options, note: Callable[[str], None] = lambda _: None
) -> list[TableId]:
    """List the tables as this connection's snapshot sees them."""
    publication = catalog.publication(connection, options.publication)
    published = set(publication.tables) if publication else set()
    wanted = catalog.expand(connection, options.include, options.exclude)
    for table in wanted:
        if table not in published:
            note(
                f"table {table} matches [tables] but is not in publication "
                f"{options.publication}: not captured"
            )
    return [table for table in wanted if table in published]
