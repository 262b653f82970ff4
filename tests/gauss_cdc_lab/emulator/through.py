"""From what happened in a database to what the topics are told, without a socket.

The emulator's encoders print it, the producer's decoders read it, a held
transaction goes through the assembler.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from gauss_cdc_lab.emulator.model import Ddl, Field, Item, Mode, Op, Row, Transaction
from producer.core.changes import Lost, Message
from producer.core.events import Happened, TransactionEnded
from producer.core.records.encode import compile_encoder
from producer.core.router import Binding
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.sources.gauss.mixed import Wrote
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.spill import SpillFile
from producer.sources.gauss.stream import GaussStream
from producer.sources.gauss.system_schemas import is_system_schema
from schemas.control import Hole, SchemaChange
from schemas.positions import Lsn
from schemas.tables import Column, TableId, TableSchema
from schemas.types.names import oid_of
from tests.gauss_cdc_lab.emulator.formats.made import number, sent, text, transaction
from tests.gauss_cdc_lab.emulator.formats.reread import naming

TDDL = Mode(enable_ddl_decoding=True)
JDDL = Mode(enable_ddl_decoding=True, enable_ddl_json_format=True)
SERIAL = Mode()
PARALLEL = Mode(
    parallel_decode_num=4, decode_style="j", enable_ddl_decoding=True, include_timestamp=True
)

ID = TableId("public", "t")
T = TableSchema(
    ID,
    (Column("id", 23, -1, "integer", nullable=False), Column("a", 25, -1, "text")),
    key=("id",),
    identity_columns=("id",),
)


@dataclass
class Through:
    """One stream; what it told."""

    mode: Mode = TDDL
    product: str = "gaussdb"
    known: tuple[TableSchema, ...] = (T,)
    resume: int = 0  # what begins before it was delivered
    catalog: tuple[TableSchema, ...] = ()  # as it is by now, where it is not as known
    wrote: Wrote = lambda _table, _xid: None  # what the source says of new tables
    changes: list[SchemaChange] = field(default_factory=list)
    published: list[TableSchema] = field(default_factory=list)
    happened: list[Happened] = field(default_factory=list)
    lost: list[Lost] = field(default_factory=list)  # told by what holds transactions
    readings: int = 0

    def __post_init__(self) -> None:
        known = {table.id: table for table in self.known}
        self._catalog = known | {table.id: table for table in self.catalog}
        self._held = GaussStream(
            naming(self.mode, "utf-8"),
            RelationResolver(
                known,
                wanted=_wanted,
                read_catalog=self._read,
                oid_of=oid_of,
                skip_unidentified=True,
            ),
            spill=SpillFile,
            resume=self.resume,
            loses_rows_behind_ddl=self.product == "gaussdb" and self.mode.enable_ddl_decoding,
            wrote=self.wrote,
        )
        self._assembler = Assembler(
            relations=Relations(
                known,
                read_catalog=self._read,
                wanted=_wanted,
                new_tables_are_complete=True,
            ),
            ports=AssemblerPorts(self._publish, self._encode, lambda: 7),
            epoch=1,
            seq=0,
            redelivery=Redelivery(self.resume),
            ddl_topic="ddl",
            max_row_bytes=1 << 20,
        )

    def feed(self, *transactions: Transaction) -> "Through":
        wal = [(e.start, e.start, e.payload) for e in sent(self.mode, transactions, self.product)]
        self.happened += self._assembler.feed(self._noted(self._held.messages(wal)))
        return self

    def _noted(self, messages: Iterator[tuple[int, Message]]) -> Iterator[tuple[int, Message]]:
        for position, message in messages:
            if isinstance(message, Lost):
                self.lost.append(message)
            yield position, message

    @property
    def holes(self) -> list[Hole]:
        ends = [each for each in self.happened if isinstance(each, TransactionEnded)]
        return [hole for end in ends for hole in end.holes]

    @property
    def rows(self) -> int:
        """Rows that reached their topics; schema changes are none."""
        ends = [each for each in self.happened if isinstance(each, TransactionEnded)]
        return sum(end.rows - len(end.ddl_ordinals) for end in ends)

    def _read(self, table: TableId) -> TableSchema | None:
        self.readings += 1
        return self._catalog.get(table)

    def _publish(self, table: TableSchema) -> Binding:
        self.published.append(table)
        encoder = compile_encoder(table, prefix="x", schema_id=1, database="x")
        return Binding(table, f"x.{table.id}", 1, 1, encoder, b"k", None, None, 0)

    def _encode(self, change: SchemaChange) -> bytes:
        self.changes.append(change)
        return b"change"


def _wanted(table: TableId) -> bool:
    return not table.schema.startswith("not") and not is_system_schema(table.schema)


def row(value: int, *more: Field, table: str = "t", schema: str = "public") -> Row:
    fields = (number("id", value), *(more or (text("a", "x"),)))
    return Row(Lsn(0x110), Op.INSERT, schema, table, fields, None)


def ddl(sql: str = "", content: str = "") -> Ddl:
    return Ddl(
        Lsn(0x110), sql=sql.encode() or None, content=content.encode() or None, end_lsn=Lsn(0x118)
    )


def done(*items: Item, at: int = 0x100) -> Transaction:
    return transaction(*items, at=at, xid=700 + at)
