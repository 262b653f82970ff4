"""GaussDB's and openGauss' decoding of the simulated source.

The bytes are those of the emulator's records, which shares nothing with the decoders; how they are
packed into messages is drawn here.  What reads them is `StreamReader`, whose questions to a
server are answered by the simulated one.

What these streams do not say is not in them: unsent TOAST values, logical messages, a TRUNCATE in
parallel decoding, rows behind a statement where the product loses them.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final, NamedTuple

from gauss_cdc_lab.emulator import model
from gauss_cdc_lab.emulator.formats.binary import BinaryRecords, record
from gauss_cdc_lab.emulator.formats.ddl import tagged, truncate_line
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.formats.parallel import TextRecords
from gauss_cdc_lab.emulator.formats.rows import JsonRowWriter, TextRowWriter
from gauss_cdc_lab.emulator.formats.serial import NamedFrame
from gauss_cdc_lab.emulator.model import PROFILES, Field, Mode, Op
from producer.core.changes import Cells, Delete, Insert, Message, Truncate, Undecoded, Update
from producer.native import Choice
from producer.options import Options
from producer.sources.gauss.options import Vendor
from producer.sources.gauss.options.effective import effective
from producer.sources.gauss.resolver import MARKS
from producer.sources.gauss.stream_reader import StreamReader
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema
from tests.sim.world import World

if TYPE_CHECKING:
    from tests.sim.source import Source, Transaction

WHEN: Final = "2026-11-22 16:00:00.123456+08"
END: Final = b"\0\0\0\0"  # of a batch
HOLD_BYTES: Final = (200, 2_000, 64 << 20)


class Style(NamedTuple):
    """How a stream is asked for."""

    product: Vendor
    options: Mapping[str, str] = {}  # of START_REPLICATION
    plugin: str = "mppdb_decoding"


def _parallel(product: Vendor, style: str, **more: str) -> Style:
    named = {name.replace("_", "-"): value for name, value in more.items()}
    return Style(product, {"parallel-decode-num": "4", "decode-style": style, **named})


PGOUTPUT: Final = ""
# Slots ordered by CSN export no snapshot; a slot made by SQL may have any other style.
WINDOWS: Final = frozenset(
    {"b, by csn", "j, batches, by csn", "mppdb, by csn", "mppdb", "j, batches", "b, ddl"}
)
STYLES: Final[Mapping[str, Style]] = {
    "b": _parallel(Vendor.OPENGAUSS, "b"),
    "b, batches": _parallel(Vendor.GAUSSDB, "b", sending_batch="1"),
    "b, by csn": _parallel(Vendor.GAUSSDB, "b", output_order="1"),
    "t": _parallel(Vendor.GAUSSDB, "t"),
    "t, batches": _parallel(Vendor.OPENGAUSS, "t", sending_batch="1"),
    "j": _parallel(Vendor.OPENGAUSS, "j"),
    "j, batches": _parallel(Vendor.GAUSSDB, "j", sending_batch="1"),
    "j, batches, by csn": _parallel(Vendor.GAUSSDB, "j", sending_batch="1", output_order="1"),
    "b, ddl": _parallel(Vendor.GAUSSDB, "b", enable_ddl_decoding="true"),
    "t, batches, ddl": _parallel(
        Vendor.GAUSSDB, "t", sending_batch="1", enable_ddl_decoding="true"
    ),
    "mppdb": Style(Vendor.GAUSSDB),
    "mppdb, ddl": Style(Vendor.GAUSSDB, {"enable-ddl-decoding": "true"}),
    "mppdb, by csn": Style(Vendor.GAUSSDB, {"output-order": "1"}),
    "test": Style(Vendor.OPENGAUSS, plugin="test_decoding"),
}


class Stated(NamedTuple):
    """A statement, and the table that it made or altered."""

    relation: int
    sql: str


class MarkRow(NamedTuple):
    """A row of the producer's own, which is an end of a window."""

    token: int


class Piece(NamedTuple):
    """What stands at a position of the stream."""

    lsn: int
    record: bytes
    is_message: bool = False  # of its own, without a frame
    is_bound: bool = False  # BEGIN or COMMIT


class Decoding:
    """The server's side of one style."""

    def __init__(self, style: str) -> None:
        asked = STYLES[style]
        self.options = Options(
            source={},
            slot="slot",
            publication="",
            prefix="bank",
            client={},
            registry_url="",
            kind=asked.product,
            plugin=asked.plugin,
            plugin_options=asked.options,
            include=("public.*",),
            exclude=("public.x",),  # until [tables] gets it
        )
        self.decided = effective(asked.options, self.options.terms)
        said = self.decided.get
        self.is_parallel = int(said("parallel-decode-num") or 1) > 1
        self.by_csn = said("output-order") == "1"
        self.by_windows = style in WINDOWS
        self.sends_empty = said("skip-empty-xacts") == "false"
        self._mode = Mode(
            plugin=asked.plugin,
            parallel_decode_num=int(said("parallel-decode-num") or 1),
            decode_style=said("decode-style") or "",
            sending_batch=said("sending-batch") == "1",
            enable_ddl_decoding=said("enable-ddl-decoding") == "true",
        )
        is_gaussdb = asked.product is Vendor.GAUSSDB
        self._profile = PROFILES["gaussdb" if is_gaussdb else "og7"]
        self.loses_rows = is_gaussdb or self.is_parallel  # behind a statement
        self.tells_ddl = said("enable-ddl-decoding") == "true"
        self.tells_truncate = self._profile.truncate and not self.is_parallel
        # The header of a message of one line has the start of a commit record, a batch its end.
        self._tells_start = self._mode.style in {"t", "j"} and not self._mode.sending_batch
        self._names = names = Names(self._profile, "utf-8")
        lines = TextRowWriter(names, parallel=self.is_parallel)
        is_lines = self._mode.style == "t" or asked.plugin == "test_decoding"
        self._rows = lines if is_lines else JsonRowWriter(names)
        self._frame = NamedFrame(self._mode, self._profile)
        self._records: BinaryRecords | TextRecords = (
            BinaryRecords(self._mode, self._profile, names)
            if self._mode.style == "b"
            else TextRecords(self._mode, self._profile, self._rows)
        )

    def position(self, start: int, end: int, csn: int) -> tuple[int, int]:
        """What the producer takes for start and end of a commit record."""
        if self.by_csn:
            return csn - 1, csn
        if self._tells_start:
            return start, start + 1
        return end - 1, end

    # ------------------------------------------------------------ records
    def steps(self, t: Transaction) -> Iterator[list[Piece]]:
        """A transaction, in the steps in which it is sent."""
        if not t.changes and not t.is_shown:
            yield []
            return
        led = [Piece(t.begin_lsn, b"\x01?", is_message=True)] if t.is_led else []
        said = model.Transaction(
            t.xid, t.csn, Lsn(t.begin_lsn), Lsn(t.record_start), Lsn(t.record_end), WHEN, ()
        )
        begin = (
            self._records.begin(said, Lsn(t.begin_lsn))
            if self.is_parallel
            else self._frame.begin(said)
        )
        yield [*led, Piece(t.begin_lsn, begin, is_bound=True)]
        for at, (message, shapes) in enumerate(t.changes, 1):
            lsn = t.begin_lsn + 4 * at
            yield [Piece(lsn, self._change(lsn, message, shapes))]
        commit = self._records.commit(said) if self.is_parallel else self._frame.commit(said)
        place = t.record_start if self._tells_start else t.record_end
        yield [Piece(place, commit, is_bound=True)]

    def _change(
        self, lsn: int, message: Message | Stated | MarkRow, shapes: Mapping[int, TableSchema]
    ) -> bytes:
        match message:
            case MarkRow(token):
                cells = [Field("token", "bigint", 20, b"%d" % token)]
                row = model.Row(Lsn(lsn), Op.INSERT, *MARKS, cells, None)
                return self._records.row(row) if self.is_parallel else self._rows.row(row)
            case Stated(_, sql):
                text = tagged(self._mode, model.Ddl(Lsn(lsn), sql=sql.encode()))
                assert text is not None
                return self._records.ddl(Lsn(lsn), text) if self.is_parallel else text
            case Undecoded():
                return self._unknown(lsn)
            case Truncate(relations):
                tables = tuple(shapes[number].id for number in relations)
                return truncate_line(model.Truncate(Lsn(lsn), tables), self._names)
            case Insert(relation, new):
                op, table, before = Op.INSERT, shapes[relation], None
            case Update(relation, _, old, new):
                op, table = Op.UPDATE, shapes[relation]
                before = _identity(table, new if old is None else old)
            case Delete(relation, _, old):
                op, table, new = Op.DELETE, shapes[relation], None
                before = _identity(table, old)
            case _:
                raise TypeError(message)
        after = None if new is None else _fields(table, new)
        row = model.Row(Lsn(lsn), op, *table.id, after, before)
        return self._records.row(row) if self.is_parallel else self._rows.row(row)

    def _unknown(self, lsn: int) -> bytes:
        """A record of no known kind."""
        if self._mode.style == "b":
            return record(lsn, b"?", b"no known kind")
        line = b"a line of no known kind"
        if not self._mode.sending_batch:
            return line
        return struct.pack(">IQ", len(line) + 8, lsn) + line

    # ------------------------------------------------------------ messages
    def packed(self, pieces: Sequence[Piece], world: World) -> Iterator[tuple[int, bytes]]:
        """Messages of what is sent at once; a batch ends anywhere."""
        batch: list[Piece] = []
        for piece in pieces:
            if piece.is_message or (self.by_csn and piece.is_bound):
                yield from self._message(batch, world)
                batch = []
            if piece.is_message:
                yield piece.lsn, piece.record
                continue
            batch.append(piece)
            is_alone = self.by_csn and piece.is_bound
            if is_alone or not self._mode.sending_batch or world.chance(0.25):
                yield from self._message(batch, world)
                batch = []
        yield from self._message(batch, world)

    def _message(self, batch: list[Piece], world: World) -> Iterator[tuple[int, bytes]]:
        if not batch:
            return
        position = max(piece.lsn for piece in batch)
        if self._mode.style == "b":
            by_idleness = self._mode.sending_batch and world.chance(0.3)
            payload = b"P".join(piece.record for piece in batch)
            yield position, payload + (b"P" + END if by_idleness else b"F")
        elif self._mode.sending_batch:
            yield position, b"".join(piece.record for piece in batch) + END
        else:
            yield position, batch[0].record


def _fields(table: TableSchema, cells: Cells) -> list[Field]:
    return [
        Field(column.name, "text", column.type_oid, cell)
        for column, cell in zip(table.columns, cells, strict=True)
    ]


def _identity(table: TableSchema, cells: Cells) -> list[Field]:
    """The old row: the columns of the replica identity."""
    return [field for field in _fields(table, cells) if field.name in table.identity_columns]


# ---------------------------------------------------------------- who reads it
class Reading(StreamReader):
    """What of `GaussSource` reads a stream."""

    def __init__(self, decoding: Decoding, source: Source, native: Choice) -> None:
        hold = source.world.rng.choice(HOLD_BYTES)
        exclude = decoding.options.exclude if "x" not in source.captured else ()
        options = replace(decoding.options, native=native, exclude=exclude)
        super().__init__(options, decoding.decided, "utf-8", Answers(source), hold_bytes=hold)


class Answers(NamedTuple):
    """What the simulated server says of its tables."""

    source: Source

    def shape(self, table: TableId) -> TableSchema | None:
        found = self.source.tables.get(table.name)
        return None if found is None else found.schema(table.name)

    def wrote(self, _table: TableId, _xid: int) -> bool | None:
        return False  # a statement of the simulated source stands alone in its transaction

    def holds(self, table: TableId, xid: int, rows: int) -> bool:
        raise AssertionError(table, xid, rows)

    def judged(self, _xid: int, _tables: frozenset[TableId]) -> None:
        """No catalog is compared."""
