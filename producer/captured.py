"""Which tables are captured: what [tables] asks for and the publication lets through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class Captured:
    """What of [tables] a publication lets through."""

    tables: tuple[TableId, ...]  # partitions stand for themselves where it has them so
    by_leaf: tuple[TableId, ...]  # partitioned tables of which all partitions are among `tables`
    missing: tuple[TableId, ...]  # what matches [tables] and is not, or not wholly, let through


def captured(connection: Connection, options: Options) -> Captured:
    """Compare [tables] with the publication, as this connection's snapshot sees both."""
    publication = catalog.publication(connection, options.publication)
    published = set(publication.tables) if publication else set()
    matching = catalog.matching(connection, options.include, options.exclude)
    tables = [table for table in matching if table in published]
    wanted = catalog.expand(connection, options.include, options.exclude)
    rest = [table for table in wanted if table not in published]
    leaves = catalog.partitions(connection, rest)
    by_leaf = [root for root, leaf in leaves.items() if set(leaf) <= set(tables)]
    return Captured(
        tuple(tables), tuple(by_leaf), tuple(table for table in rest if table not in by_leaf)
    )


def captured_tables(
    connection: Connection, options: Options, note: Callable[[str], None] = lambda _: None
) -> list[TableId]:
    """List the tables that are captured, sorted; say of others that they are not."""
    found = captured(connection, options)
    for table in found.by_leaf:
        note(f"table {table} is captured by its partitions: so the publication has them")
    for table in found.missing:
        note(
            f"table {table} matches [tables] but is not in publication "
            f"{options.publication}: not captured"
        )
    return list(found.tables)
