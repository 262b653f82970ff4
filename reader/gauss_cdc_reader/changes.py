"""A change of a row as values of Python, and how it is read from its Avro.

`before` and `after` hold the columns that the source sent, by their real names.  A column that is
not in `after` kept its value: `unsent` names it.  Its placeholder in Kafka is never shown.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeAlias

import fastavro

from gauss_cdc_reader.tail import RowTail, TailReader
from gauss_cdc_reader.values import Convert, converter, of_exact
from schemas.envelope import without_null
from schemas.positions import CommitKey
from schemas.tables import TableId
from schemas.topics import table_in
from spark_consumers import native
from spark_consumers.decode import real_name, value_fields
from spark_consumers.decode.rows import PackPlan, PlainRows, is_ours, pack_plan, physical
from spark_consumers.kafka.history import ShapeHistory, TableNote

Row: TypeAlias = dict[str, Any]

_ROWS: Final = 2  # fields of the envelope: `before` and `after`
_NO_NAMES: Final[tuple[str, ...]] = ()
# What native code reads, by the kind of Avro.
_OPCODES: Final = {
    "int": "int", "long": "int", "string": "text", "boolean": "bool", "double": "float8",
    "bytes": "bytea",
}  # fmt: skip


@dataclass(slots=True)
class Change:
    """One change of a table.

    `op` is Debezium's `c`, `u`, `d`, `r` (a row of a load: put it over one that you have), `t`
    (empty your copy), or `gap`: rows are missing, and `why`.  These two have neither row.
    """

    table: TableId
    epoch: int
    seq: int
    ordinal: int
    op: str
    before: Row | None = None  # what the source sent of the old row
    after: Row | None = None
    unsent: tuple[str, ...] = _NO_NAMES  # columns of the new row that kept their value
    why: str = ""
    shapes: ShapeHistory = field(default_factory=ShapeHistory, repr=False, compare=False)

    @property
    def position(self) -> CommitKey:
        """Its place in the order of all changes; `str` makes `epoch/seq/ordinal`, a unique key."""
        return CommitKey(self.epoch, self.seq, self.ordinal)

    @property
    def key(self) -> Row | None:
        """The primary key of its time, of the old row where there is one; None: no key is known."""
        shape, row = self.shapes.at(self.table, self.position), self.before or self.after
        if shape is None or not shape.key or row is None:
            return None
        if not row.keys() >= {*shape.key}:  # an UPDATE whose old row lacks it: the key is the same
            row = self.after or {}
        return {name: row[name] for name in shape.key} if row.keys() >= {*shape.key} else None


def _same(value: Any) -> Any:
    return value


def of_note(note: TableNote, shapes: ShapeHistory) -> Change:
    """Make a change of what the cuts say of a table."""
    op = {"truncate": "t"}.get(note.kind, note.kind)
    place = (*note.version, note.ordinal)
    return Change(note.table, *place, op, why=note.why, shapes=shapes)


class ValueDecoder:
    """Reads all values of one writer's schema as changes; see `content.Decoder`."""

    def __init__(
        self,
        writer_schema: dict[str, Any],
        *,
        is_native: bool = True,
        shapes: ShapeHistory | None = None,
    ) -> None:
        """`shapes`: those of tables, which grow; a change looks there for the key of its time."""
        table = table_in(writer_schema)
        if table is None:
            raise ValueError("not an envelope: its namespace names no table")
        self._table = table
        is_plain = is_ours(writer_schema)
        self._native = is_native and is_plain
        self._shapes = ShapeHistory() if shapes is None else shapes
        envelope = writer_schema["fields"]
        if is_plain:  # rows first, and what is behind them apart
            writer_schema = {**writer_schema, "fields": envelope[:_ROWS]}
        self._tail = TailReader(envelope[_ROWS:]) if is_plain else None
        self._schema = fastavro.parse_schema(physical(writer_schema))
        fields = self._fields = value_fields(writer_schema)
        self._names = {field["name"]: real_name(field) for field in fields}
        self._are_plain = all(field == name for field, name in self._names.items())
        made = ((f["name"], converter(without_null(f["type"]))) for f in fields)
        self._converters: dict[str, Convert] = {n: made for n, made in made if made is not None}

    def rows(self, schema_id: int) -> Any:
        """Make empty rows for values that are framed with this id of the schema."""
        packed = native.value_rows(self._plan(schema_id), self._made) if self._native else None
        return PlainRows() if packed is None else packed

    def _plan(self, schema_id: int) -> PackPlan:
        """Plan the physical values of fields; what makes ours of one stands in `dump`."""
        plan = pack_plan(schema_id, tuple(self._names.values()), self._fields)
        cells = []
        for cell, name in zip(plan.cells, self._names, strict=True):
            opcode, convert = _OPCODES.get(cell.kind, ""), self._converters.get(name)
            cells.append(replace(cell, opcode=opcode, dump=convert or (None if opcode else _same)))
        return replace(plan, cells=tuple(cells))

    def _made(  # noqa: PLR0917  native code calls it
        self, epoch: int, seq: int, ordinal: int, op: str,
        before: Row | None, after: Row | None, unsent: tuple[str, ...],
    ) -> Change:  # fmt: skip
        return Change(self._table, epoch, seq, ordinal, op, before, after, unsent, "", self._shapes)

    def decode(self, payload: bytes | memoryview) -> Change:
        """Read one value, without its frame; raise one of `REFUSALS` of `decode.rows`."""
        stream = io.BytesIO(payload)
        record: Any = fastavro.schemaless_reader(stream, self._schema, None)
        if self._tail is not None:
            tail = self._tail(stream)
        elif stream.read(1):
            raise ValueError("value does not fill its record")
        else:
            tail = RowTail.of(record)
        op, epoch, seq, ordinal, exact, unsent, before_exact, sent = tail
        if epoch is None or seq is None or ordinal is None:
            raise ValueError("record has no position: it was not written by gauss-cdc")
        before, after = record["before"], record["after"]
        if before is not None:
            before = self._row(before, before_exact, self._absent(sent))
        if after is not None:
            after = self._row(after, exact, unsent)
        return Change(
            self._table, epoch, seq, ordinal, op, before, after,
            tuple(unsent) if unsent else _NO_NAMES, "", self._shapes,
        )  # fmt: skip

    def _absent(self, sent: Collection[str] | None) -> list[str] | None:
        return None if sent is None else [n for n in self._names.values() if n not in sent]

    def _row(
        self, row: Row, exact: Mapping[str, str] | None, absent: Collection[str] | None
    ) -> Row:
        """Convert the fields that need it, in their places: most do not."""
        if exact or absent or not self._are_plain:
            return self._odd_row(row, exact or {}, absent or ())
        for name, convert in self._converters.items():
            value = row[name]
            if value is not None:
                row[name] = convert(value)
        return row

    def _odd_row(self, row: Row, exact: Mapping[str, str], absent: Collection[str]) -> Row:
        out: Row = {}
        for field_name, name in self._names.items():
            convert, value = self._converters.get(field_name), row[field_name]
            if name in absent:
                continue
            if (text := exact.get(name)) is not None:
                out[name] = of_exact(text, convert)
            else:
                out[name] = value if value is None or convert is None else convert(value)
        return out


def decoder_of(shapes: ShapeHistory) -> Callable[..., ValueDecoder]:
    """Return what makes decoders whose changes look for their keys in these shapes."""

    def make(schema: dict[str, Any], *, native: bool) -> ValueDecoder:
        return ValueDecoder(schema, is_native=native, shapes=shapes)

    return make
