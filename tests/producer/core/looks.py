"""Looks at a catalog of one table, for tests without a catalog."""

from dataclasses import replace

from producer.core.catalog.look import Look, Seen
from schemas.tables import Column, TableId, TableSchema, UserType

A, B = TableId("public", "a"), TableId("public", "b")
MOOD = UserType("e", "mood", labels=("sad", "ok"))
TABLE = TableSchema(
    A,
    (Column("id", 23, number=1), Column("m", 16400, user_type=MOOD, number=2)),
    ("id",),
    identity_columns=("id",),
    oid=100,
)


def seen(table: TableSchema, **changes) -> Seen:
    made = Seen(
        table.id, table.oid, is_partitioned=False, is_logged=True, is_published=True, shape=table
    )
    return replace(made, **changes)


def look(*tables: Seen, lsn: int = 10, missing: tuple[TableId, ...] = (), **more) -> Look:
    return Look(
        lsn, {each.oid: each for each in tables}, missing, more.pop("signature", "x"), **more
    )
