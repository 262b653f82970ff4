"""Streams read by the producer's decoders, turned back into what an encoder is fed.

What a mode does not put on the wire it cannot need either: such parts stay empty.
Types of sql_decoding's rows are the exception, since its text tells neither names
nor types: they come from the stream that mppdb_decoding made of the same rows.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gauss_cdc_lab.emulator.model import Field, Item, Mode, Op, Row, Transaction, Truncate
from producer.sources.decoders import NAMING
from producer.sources.gauss.decoders.formats import Format, Naming
from producer.sources.gauss.decoders.messages import (
    DecodedMessage,
    NamedChange,
    NamedRow,
    NamedTruncate,
    TxBegin,
    TxCommit,
)
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.gauss_cdc_lab.emulator.formats.recordings import Recording

OPS = {"c": Op.INSERT, "u": Op.UPDATE, "d": Op.DELETE}
# Types that are printed bare; the text of a row names them without their OIDs.
OIDS = {
    "bigint": 20,
    "smallint": 21,
    "integer": 23,
    "oid": 26,
    "tinyint": 5545,
    "real": 700,
    "double precision": 701,
    "numeric": 1700,
    "boolean": 16,
    "bit": 1560,
    "bit varying": 1562,
}

Types = tuple[tuple[str, str, int], ...]  # name, type, OID of each column


@dataclass
class Reread:
    """One transaction as it is read, and whether a pause of the stream followed it."""

    begun: TxBegin
    items: list[Item] = field(default_factory=list)
    ended: TxCommit | None = None
    commit_lsn: Lsn = Lsn(0)  # noqa: RUF009  a number like any other
    paused: bool = False


def naming(mode: Mode, encoding: str) -> Naming:
    written = Format(mode.plugin, mode.style, mode.sending_batch, encoding)
    return NAMING[mode.plugin, mode.style](written)


def reread(recorded: Recording, rows: Sequence[Row] = ()) -> list[tuple[Transaction, bool]]:
    """The transactions of a stream, each with whether the sender flushed for idleness behind it.

    `rows` are the same rows as another plugin told them, for sql_decoding.
    """
    mode, decoder = recorded.mode, naming(recorded.mode, recorded.encoding)
    types = iter(rows)
    found: list[Reread] = []
    for start, payload in recorded.sent:
        opener = len(found) if not found or found[-1].ended else len(found) - 1
        reported = [
            (position, decoder.decode(position, record))
            for position, record in decoder.split(start, payload)
        ]
        for position, each in _updates_joined(reported):
            match each:
                case TxBegin():
                    found.append(Reread(each))
                case TxCommit():
                    found[-1].ended = each
                    # One message each: its header has reached the commit record.
                    found[-1].commit_lsn = Lsn(start)
                case (NamedChange(), *_):
                    shape = next(types) if rows else None
                    found[-1].items.append(_row(position, each, shape))
                case NamedTruncate(tables, cascade, restart):
                    ids = tuple(TableId(*table) for table in tables)
                    found[-1].items.append(Truncate(Lsn(position), ids, cascade, restart))
                case _:
                    raise AssertionError(each)
        if mode.sending_batch and len(payload) + 25 <= 1 << 20:
            # Not full, so it was sent for idleness: its header has the commit record of the
            # transaction that opened it.  Recorded pauses lie between transactions.
            assert found[-1].ended
            found[-1].paused = True
            found[opener].commit_lsn = Lsn(start)
    assert next(types, None) is None
    return [(_transaction(each), each.paused) for each in found]


def _updates_joined(
    reported: list[tuple[int, DecodedMessage]],
) -> Iterator[tuple[int, DecodedMessage | tuple[NamedChange, ...]]]:
    """Changes as tuples: sql_decoding's message with an UPDATE holds two."""
    match reported:
        case [(position, NamedChange() as old), (_, NamedChange() as new)] if (old.op, new.op) == (
            "d",
            "c",
        ):
            yield position, (old, new)
        case _:
            for position, each in reported:
                yield position, ((each,) if isinstance(each, NamedChange) else each)


def _row(position: int, changes: tuple[NamedChange, ...], shape: Row | None) -> Row:
    last = changes[-1]
    if len(changes) == 2:
        op, old, new = Op.UPDATE, changes[0].old, last.new
    else:
        op, old, new = OPS[last.op], last.old, last.new
    return Row(
        Lsn(position),
        op,
        last.schema,
        last.table,
        new=_fields(new, shape and shape.new),
        old=_fields(old, shape and shape.old),
    )


def _fields(row: NamedRow | None, known: Sequence[Field] | None) -> tuple[Field, ...] | None:
    if row is None:
        return None
    if known is not None:
        types: Types = tuple(each[:3] for each in known)
    else:
        names, oids = row.shape.types, row.shape.oids
        types = tuple(
            (column, name, oid or OIDS.get(name, 0))
            for column, name, oid in zip(row.shape.names, names, oids, strict=True)
        )
    return tuple(
        Field(*reported, cell)  # type: ignore[arg-type]  # openGauss sends all TOAST values
        for reported, cell in zip(types, row.cells, strict=True)
    )


def _transaction(read: Reread) -> Transaction:
    begun, ended = read.begun, read.ended
    assert ended is not None
    return Transaction(
        xid=ended.xid or begun.xid or 0,
        csn=begun.csn or ended.csn or 0,
        first_lsn=begun.first_lsn or Lsn(0),
        commit_lsn=read.commit_lsn,
        end_lsn=ended.end_lsn or Lsn(0),
        committed_at=ended.committed_at or begun.committed_at or "",
        items=read.items,
        first_change_lsn=begun.first_lsn,
    )
