"""Tables' shapes, as the ddl topic has recorded them."""

from __future__ import annotations

from collections.abc import Callable

from producer.core.ports import Codec, Reader
from schemas.tables import TableId, TableSchema


def known_tables(
    reader: Reader,
    codec: Codec,
    *,
    epoch: int,
    seq: int,
    note: Callable[[str], None] = lambda _: None,
) -> dict[TableId, TableSchema]:
    """Rebuild the tables' shapes from `<prefix>.ddl`, never beyond the last accepted commit.

    A record of a later seq belongs to an attempt without a cut: it is sent again.  A record that
    is not a schema change was not written by us.
    """
    low, _ = reader.bounds()
    tables: dict[TableId, TableSchema] = {}
    for stored in reader.read(low, reader.lso()):
        try:
            change = codec.read_change(stored.value or b"")
        except ValueError:
            note(f"{reader.topic} offset {stored.offset}: not a schema change of ours, ignored")
            continue
        if change.epoch != epoch or change.seq > seq:
            continue
        if change.before is not None and change.before.id != (change.after and change.after.id):
            tables.pop(change.before.id, None)
        if change.after is not None:
            tables[change.after.id] = change.after
    return tables
