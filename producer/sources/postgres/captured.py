"""Which tables are captured: those of [tables] that the publication contains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import CdcError, NotPermitted, SourceError, Unsupported
from producer.options import Options
from producer.sources import patterns
from producer.sources.postgres import catalog, publications
from producer.sources.postgres.primary import Primary
from producer.sources.rights import problems_of_reading
from schemas.errors import shortened
from schemas.quoting import identifier
from schemas.tables import TableId

_MADE_MEANWHILE: Final = {"42710", "23505"}  # by a second `run` that waits for the first


def ensure_publication(
    connection: Connection, options: Options, note: Callable[[str], None], primary: Primary
) -> bool:
    """Create the publication if there is none, refuse one that omits changes; True: created now.

    It must exist before the slot: decoding at an earlier position would not find it.
    """
    for problem in publication_problems(connection, options):
        raise problem
    name = options.publication
    if publications.publication(connection, name) is not None:
        return False
    wanted = catalog.expand(connection, options.include, options.exclude)
    try:
        make_publication(primary.connection, name, wanted)
    except SourceError as error:
        if error.where.get("sqlstate") not in _MADE_MEANWHILE:
            raise
        return ensure_publication(connection, options, note, primary)
    note(f"publication {name} created for {len(wanted)} tables")
    primary.await_replay()
    return True


def publication_problems(connection: Connection, options: Options) -> Iterator[CdcError]:
    """Find problems of the publication, or of creating it with this role."""
    name = options.publication
    publication = publications.publication(connection, name)
    if publication is None:
        wanted = catalog.expand(connection, options.include, options.exclude)
        yield from _making_problems(connection, name, wanted, options)
        return
    if publication.filtered:
        yield Unsupported(
            "the publication omits rows or columns of a table: the copy would not be equal",
            publication=name,
            tables=", ".join(map(str, publication.filtered)),
            hint="ALTER PUBLICATION … SET TABLE without WHERE and column lists",
        )
    if publication.computed:
        yield Unsupported(
            "the publication sends generated columns, which are not copied",
            publication=name,
            tables=shortened([str(table) for table in publication.computed]),
            hint=f"ALTER PUBLICATION {identifier(name)} SET (publish_generated_columns = none)",
        )
    if publication.actions != {"insert", "update", "delete", "truncate"}:
        yield SourceError(
            "the publication does not publish every kind of change",
            publication=name,
            publishes=",".join(sorted(publication.actions)),
            hint=f"ALTER PUBLICATION {identifier(name)}"
            " SET (publish = 'insert, update, delete, truncate')",
        )


def _making_problems(
    connection: Connection, name: str, wanted: list[TableId], options: Options
) -> Iterator[CdcError]:
    """The role must own the tables of a new publication and have CREATE on the database."""
    if not wanted:
        yield SourceError(
            "no table matches [tables]",
            include=", ".join(options.include),
            hint="create tables, or correct include and exclude",
        )
        return
    info = catalog.server_info(connection)
    rights = catalog.table_rights(connection, wanted)
    others = [str(table.id) for table in rights if not table.owns]
    closed = sorted({table.id.schema for table in rights if not table.uses_schema})
    if info.is_superuser or (info.may_create and not others and not closed):
        return
    lacks = [] if info.may_create else ["CREATE on the database"]
    lacks += [f"USAGE on schema {shortened(closed)}"] if closed else []
    lacks += [f"ownership of {shortened(others)}"] if others else []
    statement = publications.publication_sql(connection, name, wanted, _settings(connection))
    yield NotPermitted(
        "the publication does not exist, and the role may not create it",
        publication=name,
        lacks=" and ".join(lacks),
        hint=f"as the tables' owner or a superuser: {statement}",
    )


def make_publication(connection: Connection, name: str, tables: list[TableId]) -> None:
    """Publish tables; a partitioned one as one, where the server can."""
    publications.create_publication(connection, name, tables, _settings(connection))
    publications.mark_ours(connection, name)


def _settings(connection: Connection) -> dict[str, str]:
    via_root = connection.server_version >= catalog.ROOTS
    return {"publish_via_partition_root": "true"} if via_root else {}


def reading_problems(connection: Connection, tables: Sequence[TableId]) -> Iterator[CdcError]:
    """Find why the role cannot read tables whole, as a first load must."""
    rights = catalog.table_rights(connection, tables)
    yield from problems_of_reading(rights, catalog.user(connection))


@dataclass(frozen=True, slots=True)
class Captured:
    """The tables of [tables] that a publication contains."""

    tables: tuple[TableId, ...]  # partitions where it publishes them as tables of their own
    by_leaf: tuple[TableId, ...]  # partitioned tables of which all partitions are among `tables`
    missing: tuple[TableId, ...]  # what matches [tables] and is not published
    absent: tuple[TableId, ...]  # named in [tables], and nothing that can be published
    loose: Mapping[TableId, str] = field(default_factory=dict)  # published, by no valid key


def captured(connection: Connection, options: Options) -> Captured:
    """Compare [tables] with the publication, as this connection's snapshot sees both."""
    publication = publications.publication(connection, options.publication)
    published = set(publication.whole) if publication else set()
    partly = (
        {*publication.filtered, *publication.computed, *publication.loose} if publication else set()
    )
    matching = catalog.matching(connection, options.include, options.exclude)
    tables = [table for table in matching if table in published]
    wanted = catalog.expand(connection, options.include, options.exclude)
    rest = [table for table in wanted if table not in published | partly]
    leaves = catalog.partitions(connection, rest)
    by_leaf = [root for root, leaf in leaves.items() if set(leaf) <= set(tables)]
    return Captured(
        tuple(tables),
        tuple(by_leaf),
        tuple(table for table in rest if table not in by_leaf),
        tuple(patterns.absent(matching, options.include, options.exclude)),
        {table: publication.loose[table] for table in wanted if table in publication.loose}
        if publication
        else {},
    )


def captured_tables(
    connection: Connection, options: Options, note: Callable[[str], None] = lambda _: None
) -> list[TableId]:
    """List the tables that are captured, sorted; note the others."""
    found = captured(connection, options)
    for table in found.by_leaf:
        note(f"table {table} is captured by its partitions, as the publication has them")
    for table, why in found.loose.items():
        note(f"table {table} is not captured: publication {options.publication} {why}")
    if found.absent:
        names = shortened(patterns.texts(found.absent))
        note(f"not captured, of [tables]: {names}: {patterns.ABSENT}")
    for table in found.missing:
        note(
            f"table {table} matches [tables] but is not in publication "
            f"{options.publication}: not captured"
        )
    return list(found.tables)
