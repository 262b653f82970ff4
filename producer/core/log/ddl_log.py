"""Tables' shapes, as the ddl topic has recorded them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from producer.core.ports import Codec, Reader
from schemas.control import SchemaChange
from schemas.tables import TableId, TableSchema


def known_tables(
    reader: Reader,
    codec: Codec,
    *,
    epoch: int,
    seq: int,
    note: Callable[[str], None] = lambda _: None,
    strays: list[SchemaChange] | None = None,
) -> dict[TableId, TableSchema]:
    """Rebuild the tables' shapes from `<prefix>.ddl`, never beyond the last accepted commit.

    A record of a later seq belongs to an attempt without a cut: `strays` gets it.  A record that
    is not a schema change was not written by us.  A table that left [tables] is known by its former
    name until it has another one that they name.
    """
    low, _ = reader.bounds()
    tables: dict[TableId, TableSchema] = {}
    names: dict[int, TableId] = {}  # by oid
    for stored in reader.read(low, reader.lso()):
        try:
            change = codec.read_change(stored.value or b"")
        except ValueError:
            note(f"{reader.topic} offset {stored.offset}: not a schema change of ours, ignored")
            continue
        if change.epoch != epoch:
            continue
        if change.seq > seq:
            if strays is not None:
                strays.append(change)
            continue
        if change.before is not None and change.before.id != (change.after and change.after.id):
            tables.pop(change.before.id, None)
        if (after := change.after) is not None:
            former = names.get(after.oid, after.id) if after.oid else after.id
            if former != after.id and former in tables and tables[former].oid == after.oid:
                del tables[former]
            names[after.oid] = after.id
            tables[after.id] = after
    return tables


def taken_back(
    strays: Iterable[SchemaChange],
    known: Mapping[TableId, TableSchema],
    restate: Callable[[TableSchema], SchemaChange],
) -> list[SchemaChange]:
    """Say again what holds for the tables of `strays`, at a number that counts.

    Another transaction may get the number of a stray: what is delivered is not the same after each
    start (a table may be hidden that was not), nor does each one find the same in the catalog.
    Then the stray would count, too [H19].
    """
    out: dict[TableId, SchemaChange] = {}
    by_oid = {table.oid: table for table in known.values() if table.oid}
    for stray in strays:
        met = [table for table in (stray.before, stray.after) if table is not None]
        for table in (*met, *(by_oid[t.oid] for t in met if t.oid in by_oid)):
            here = restate(known.get(table.id, table))
            gone = replace(here, before=table, after=None, tag="DROP TABLE")
            out[table.id] = here if table.id in known else gone
    return sorted(out.values(), key=lambda change: change.after is not None)
