"""Messages -> records with a `CommitKey`, one source transaction after the other.

The state is one open transaction.  What needs the world (registry, topics, the
catalog) is given as callables; both are asked once per table version, never per
row.  A transaction that begins before `resume` was delivered by an earlier self
and is dropped whole: `commit_start < resume`, strictly, since an idle position
may equal the start of the next commit.
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import assert_never

from producer.core.catalog_watch import Altered, Described, Dropped, Finding, Unseen
from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Logical,
    Lost,
    Message,
    Origin,
    Relation,
    StatementsDescribed,
    Truncate,
    TypeName,
    Undecoded,
    Update,
)
from producer.core.events import (
    Happened,
    PositionReached,
    Record,
    RowsAssembled,
    SchemaUsed,
    TransactionEnded,
)
from producer.core.records.encode import (
    NullInRequired,
    RowEncoder,
    TransactionConstants,
    is_one_key,
)
from producer.core.records.messages import MessageWriter
from producer.core.records.transaction_topic import Counted, TransactionWriter
from producer.core.relations import Relations
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.core.unfit import HINT, UNFIT, WHY, Unfit, of_row, put_aside
from producer.errors import DecodeError, HistoryDiffers, RowTooLarge, SchemaRefused
from schemas.control import Hole, SchemaChange
from schemas.control import Origin as ChangeOrigin
from schemas.errors import LOAD_AGAIN
from schemas.headers import POSITION, Headers, transaction_headers
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, TableId, TableSchema

POSTGRES_EPOCH_US = 946_684_800_000_000  # 2000-01-01 in µs since 1970
_BATCH_BYTES = 1 << 20
_LONG = "the statement is longer than kafka.max-row-bytes, and left out"
_INFERRED = StatementChanges((), ChangeOrigin.INFERRED)


@dataclass(slots=True)
class Binding:
    """Where rows of one table version go, and how they are written."""

    table: TableSchema
    topic: str
    schema_id: int
    partitions: int
    encoder: RowEncoder
    key: bytes | None  # of every row, unless key_of says otherwise
    key_of: Callable[[Cells], bytes] | None  # Avro key of a row, with key = "primary-key"
    partition_of: Callable[[Cells], int] | None  # None: all rows into `partition`
    partition: int
    key_at: tuple[int, ...] = ()  # primary key's columns, where rows are keyed or placed by it
    tombstones: bool = False  # a record without value follows each delete


@dataclass(frozen=True, slots=True)
class World:
    """What the assembler is given of the world, once per table version."""

    publish: Callable[[TableSchema], Binding]  # topic made, schema registered, encoder compiled
    encode_change: Callable[[SchemaChange], bytes]
    constants: Callable[..., TransactionConstants]
    now_us: Callable[[], int]
    put_aside: Callable[[Unfit], None] | None = None  # rows that are unfit; None: they stop


def partition_of(key: bytes, partitions: int) -> int:
    """Place a key as librdkafka's `consistent` partitioner does: crc32 of the key.

    >>> partition_of(b"public.account", 1)
    0
    """
    return binascii.crc32(key) % partitions


class Assembler:
    """Turns the messages of one stream into rows for the engine."""

    def __init__(
        self,
        *,
        relations: Relations,
        world: World,
        epoch: int,
        seq: int,
        resume: int,
        ddl_topic: str,
        max_row_bytes: int,
        known: Mapping[int, int] | None = None,
        messages: MessageWriter | None = None,
        transactions: TransactionWriter | None = None,
        quarantines: bool = False,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`messages` writes logical messages, `transactions` BEGIN and END: left out without them.

        `quarantines`: a table whose schema the registry refuses is left out, with a hole.
        """
        self._relations = relations
        self._world = world
        self._epoch, self._seq, self._resume = epoch, seq, resume
        self._ddl_topic = ddl_topic
        self._max_row_bytes = max_row_bytes
        self._known = dict(known or {})  # commit_start -> xid of transactions in the last cut
        self._messages = messages
        self._transactions = transactions
        self._is_lonely = False  # the open one is a message that belongs to no transaction
        self._begins = False  # BEGIN is still to be written, before the first event
        self._quarantines = quarantines
        self._note = note
        self._has_left_out = False
        self._bindings: dict[int, Binding | None] = {}
        self._begin: Begin | None = None
        self._skipping = False
        self._tx: TransactionConstants | None = None
        self._constant: Headers = []
        self._ordinal = 0
        self._ddl: list[int] = []
        self._holes: list[Hole] = []
        self._batch: list[Record] = []
        self._size = 0
        self._lsn = 0
        self._lsn_header = b""

    @property
    def is_open(self) -> bool:
        """Say whether a source transaction is open in the stream."""
        return self._begin is not None

    def feed(self, messages: Iterable[tuple[int, Message]]) -> list[Happened]:
        """Take (WAL position, message) pairs; return what happened, rows in batches."""
        out: list[Happened] = []
        for lsn, message in messages:
            match message:
                case Insert(relation, new):
                    self._row(relation, "c", "", None, new, lsn, out)
                case Update(relation, old_kind, old, new):
                    self._row(relation, "u", old_kind, old, new, lsn, out)
                case Delete(relation, old_kind, old):
                    self._row(relation, "d", old_kind, old, None, lsn, out)
                case Begin():
                    self._open(message)
                case Commit():
                    self._close(message, out)
                case Relation():
                    self._describe(message)
                case Truncate(relations):
                    self._truncate(relations, lsn, out)
                case StatementChanges():
                    self._statement(message, lsn, out)
                case StatementsDescribed(is_on):
                    self._relations.describe_statements(is_on=is_on)
                case Logical() if self._messages is not None:
                    self._say(self._messages, message, out)
                case TypeName() | Origin() | Logical():
                    pass  # names come from the catalog; logical messages are opt-in
                case Lost():
                    self._lose(message)
                case Undecoded():
                    raise DecodeError("bytes that are no message", why=message.why, lsn=Lsn(lsn))
                case _:
                    assert_never(message)
        self._hand_over(out)
        return out

    def explain(self, findings: Iterable[Finding], position: int) -> list[Happened]:
        """Put what only the catalog showed into a transaction of its own, between two others.

        `position`: everything committed before it was fed, nothing after it.
        """
        out: list[Happened] = []
        begin = Begin(Lsn(position), self._world.now_us() - POSTGRES_EPOCH_US, 0)
        self._open(begin)
        for finding in findings:
            match finding:
                case Described(_, relation):
                    self._relations.describe(relation)
                    self._bindings.pop(relation.relation, None)
                    self._bind(relation.relation, position, out)
                case Dropped(_, table):
                    self._follow(self._relations.drop(table), position, out)
                case Altered(_, before, after, why):
                    self._follow(self._relations.alter(before, after, why), position, out)
                case Unseen():
                    self._note_hole(finding.hole)
                case _:
                    assert_never(finding)
        if self._tx is None:
            self._begin = None
            return out
        self._close(Commit(Lsn(position), Lsn(position), begin.committed_at), out)
        return out

    def _follow(self, change: ShapeChange, lsn: int, out: list[Happened]) -> None:
        """Write a change that no message told."""
        binding = self._publish(change.after, out) if change.after is not None else None
        self._schema_change(change, binding, lsn, out)
        self._forget_bindings(change)

    # ------------------------------------------------------------ transactions
    def _open(self, begin: Begin) -> None:
        if self._begin is not None:
            raise DecodeError("BEGIN inside a transaction", xid=begin.xid)
        self._begin = begin
        self._skipping = begin.commit_lsn < self._resume
        if self._skipping:
            known = self._known.get(begin.commit_lsn, begin.xid)
            if known != begin.xid:
                raise HistoryDiffers(
                    "a transaction sent again is not the one in the last cut",
                    lsn=Lsn(begin.commit_lsn),
                    ours=known,
                    theirs=begin.xid,
                    hint=f"the source was restored or replaced: {LOAD_AGAIN}",
                )
            return
        self._ordinal = 0
        self._ddl, self._holes = [], []
        self._tx = None
        self._lsn = -1

    def _first_row(self) -> None:
        """Number the transaction: it has a row that survives."""
        begin = self._begin
        assert begin is not None
        self._seq += 1
        committed_at = begin.committed_at + POSTGRES_EPOCH_US
        csn = _csn(begin)
        self._tx = self._world.constants(
            xid=begin.xid,
            csn=csn,
            epoch=self._epoch,
            seq=self._seq,
            committed_at_us=committed_at,
            now_us=self._world.now_us(),
            commit_lsn=int(begin.commit_lsn),
        )
        if self._transactions is not None and not self._is_lonely:
            self._tx.counted = Counted(f"{begin.xid}:{int(begin.commit_lsn)}")
            self._begins = True
        self._constant = transaction_headers(begin.xid, csn, begin.user)
        self._position = f"{self._epoch}/{self._seq}/".encode()

    def _close(self, commit: Commit, out: list[Happened]) -> None:
        begin, self._begin = self._begin, None
        if begin is None:
            raise DecodeError("COMMIT outside a transaction", lsn=Lsn(commit.commit_lsn))
        if self._skipping:
            self._skipping = False
            return
        if self._tx is None:
            out.append(PositionReached(int(commit.end_lsn)))
            return
        self._frame_end()
        self._hand_over(out)
        out.append(
            TransactionEnded(
                seq=self._seq,
                xid=begin.xid,
                csn=_csn(begin),
                commit_start=int(begin.commit_lsn),
                end_lsn=int(commit.end_lsn),
                committed_at=begin.committed_at + POSTGRES_EPOCH_US,
                user=begin.user,
                rows=self._ordinal,
                ddl_ordinals=tuple(self._ddl),
                holes=tuple(self._holes),
            )
        )

    def _say(self, writer: MessageWriter, message: Logical, out: list[Happened]) -> None:
        """Write a message; one outside of a transaction is numbered as one of its own.

        Any role can write one, of any size and content: it is payload, and no reason to stop.
        """
        if len(message.content) + len(message.prefix) > self._max_row_bytes:
            self._leave_out(message)
            return
        lsn = int(message.lsn)
        if not message.transactional:
            if self._begin is not None:
                raise DecodeError("a message of no transaction inside one", lsn=Lsn(lsn))
            self._open(Begin(message.lsn, self._world.now_us() - POSTGRES_EPOCH_US, 0))
            self._is_lonely = True
        if not self._skipping:
            if self._begin is None:
                raise DecodeError("a message outside its transaction", lsn=Lsn(lsn))
            if self._tx is None:
                self._first_row()
            assert self._tx is not None
            key, value = writer.write(message, self._tx, lsn, in_transaction=message.transactional)
            if len(key) + len(value) > self._max_row_bytes:
                self._leave_out(message)
            else:
                if self._begins:
                    self._frame_begin()
                headers = [*self._constant, ("lsn", repr(Lsn(lsn)).encode())]
                self._batch.append((writer.topic, 0, key, value, headers))
                self._size += len(key) + len(value)
        if not message.transactional:
            assert self._begin is not None
            # The record's own end is not told; whatever begins behind its start comes later.
            self._close(Commit(message.lsn, Lsn(lsn + 1), self._begin.committed_at), out)
            self._is_lonely = False

    def _leave_out(self, message: Logical) -> None:
        """Note it once: whoever writes messages does not fill the log as well."""
        if not self._has_left_out:
            self._has_left_out = True
            self._note(
                f"a logical message of {len(message.content)} bytes is left out: it is larger than "
                f"kafka.max-row-bytes = {self._max_row_bytes}; others like it are not named"
            )

    def _lose(self, lost: Lost) -> None:
        """Note a hole of the open transaction, once; it gets a number for that alone."""
        if self._skipping:
            return
        if self._begin is None:
            raise DecodeError("a loss outside a transaction", why=lost.why)
        if lost.schema and not self._relations.wants(TableId(lost.schema, lost.table)):
            return
        hole = Hole(
            str(TableId(lost.schema, lost.table)) if lost.schema else "*", lost.kind, lost.why
        )
        self._note_hole(hole)

    # ------------------------------------------------------------ rows
    def _row(  # noqa: PLR0917  called once per row: keywords cost
        self,
        relation: int,
        op: str,
        old_kind: str,
        old: Cells | None,
        new: Cells | None,
        lsn: int,
        out: list[Happened],
    ) -> None:
        if self._skipping:
            return
        if self._begin is None:
            raise DecodeError("a row outside a transaction", relation=relation)
        try:
            binding = self._bindings[relation]
        except KeyError:
            binding = self._bind(relation, lsn, out)
        if binding is None:
            return
        if self._tx is None:
            self._first_row()
        tx, first = self._tx, self._ordinal
        assert tx is not None
        events = 0 if tx.counted is None else tx.counted.total
        try:
            self._write_row(relation, binding, op, old_kind, old, new, lsn, out)
        except UNFIT as error:
            position = f"{self._epoch}/{self._seq}/{self._ordinal}"
            table = binding.table
            if self._world.put_aside is None:
                raise of_row(error, table, position) from error
            if tx.counted is not None:
                tx.counted.take_back(str(table.id), events + self._ordinal - first)
            aside = put_aside(
                error, table, op=op, before=old, after=new, lsn=lsn, position=position
            )
            self._world.put_aside(aside)
            self._note_hole(Hole(str(table.id), "seen", WHY))

    def _write_row(  # noqa: PLR0917  called once per row: keywords cost
        self,
        relation: int,
        binding: Binding,
        op: str,
        old_kind: str,
        old: Cells | None,
        new: Cells | None,
        lsn: int,
        out: list[Happened],
    ) -> None:
        value = self._encode(relation, binding, op, old_kind, old, new, lsn, out)
        if not binding.key_at:
            self._put(binding.topic, binding.partition, binding.key, value, lsn, out)
            return
        if new is None:
            assert old is not None
            self._put_keyed(binding, old, value, lsn, out)
            self._bury(binding, old, lsn, out)
            return
        moved_from: Cells | None = None
        if old is not None:
            new, moved_from = _placed(binding, old, new)
        self._put_keyed(binding, new, value, lsn, out)
        if moved_from is not None:
            # Behind the update, which may take unsent values from the row that goes away here.
            value = self._encode(relation, binding, "d", old_kind, moved_from, None, lsn, out)
            self._put_keyed(binding, moved_from, value, lsn, out)
            self._bury(binding, moved_from, lsn, out)

    def _put_keyed(
        self, binding: Binding, cells: Cells, value: bytes | None, lsn: int, out: list[Happened]
    ) -> None:
        key = binding.key if binding.key_of is None else binding.key_of(cells)
        at = binding.partition if binding.partition_of is None else binding.partition_of(cells)
        self._put(binding.topic, at, key, value, lsn, out)

    def _bury(self, binding: Binding, cells: Cells, lsn: int, out: list[Happened]) -> None:
        """Let compaction forget a key: a tombstone at the place of its delete; it is no row."""
        if binding.tombstones:
            self._put_keyed(binding, cells, None, lsn, out)

    def _encode(  # noqa: PLR0917  called once per row: keywords cost
        self,
        relation: int,
        binding: Binding,
        op: str,
        old_kind: str,
        old: Cells | None,
        new: Cells | None,
        lsn: int,
        out: list[Happened],
    ) -> bytes:
        width = len(binding.table.columns)
        for cells in (old, new):
            if cells is not None and len(cells) != width:
                raise DecodeError(
                    "a row does not fit its relation",
                    table=binding.table.id,
                    columns=width,
                    cells=len(cells),
                )
        assert self._tx is not None
        while True:
            try:
                value = binding.encoder.encode(op, old_kind, old, new, self._tx, lsn, self._ordinal)
            except NullInRequired as problem:
                table = self._relations.widen(binding.table.id, problem.column)
                self._hand_over(out)
                binding = self._bindings[relation] = self._world.publish(table)
                out.append(SchemaUsed(binding.topic, binding.schema_id))
                continue
            break
        if len(value) > self._max_row_bytes:
            raise RowTooLarge(
                "a row is larger than kafka.max-row-bytes",
                table=binding.table.id,
                bytes=len(value),
                limit=self._max_row_bytes,
                position=f"{self._epoch}/{self._seq}/{self._ordinal}",
                hint=HINT,
            )
        return value

    def _put(  # noqa: PLR0917  called once per row: keywords cost
        self,
        topic: str,
        partition: int,
        key: bytes | None,
        value: bytes | None,
        lsn: int,
        out: list[Happened],
    ) -> None:
        if self._begins and topic != self._ddl_topic:
            self._frame_begin()
        if lsn != self._lsn:
            # As Lsn prints it; one made for each row cost 3 % of all.
            self._lsn, self._lsn_header = lsn, b"%X/%X" % (lsn >> 32, lsn & 0xFFFF_FFFF)
        ordinal = self._ordinal if value is not None else self._ordinal - 1
        headers = [
            *self._constant,
            ("lsn", self._lsn_header),
            (POSITION, self._position + b"%d" % ordinal),
        ]
        self._batch.append((topic, partition, key, value, headers))
        self._ordinal = ordinal + 1
        self._size += len(key or b"") + len(value or b"")
        if self._size >= _BATCH_BYTES:
            self._hand_over(out)

    def _frame_begin(self) -> None:
        """Write BEGIN, before the first event; a transaction of DDL alone has none."""
        tx = self._tx
        assert self._transactions is not None
        assert tx is not None
        assert tx.counted is not None
        self._frame(self._transactions.begin(tx.counted.id, tx.committed_at_us))
        self._begins = False

    def _frame_end(self) -> None:
        """Write END, behind the last event."""
        tx = self._tx
        if self._transactions is None or tx is None or tx.counted is None or self._begins:
            self._begins = False
            return
        self._frame(self._transactions.end(tx.counted, tx.committed_at_us))

    def _frame(self, record: tuple[bytes, bytes]) -> None:
        assert self._transactions is not None
        self._batch.append((self._transactions.topic, 0, *record, [*self._constant]))
        self._size += len(record[1])

    def _hand_over(self, out: list[Happened]) -> None:
        if self._batch:
            out.append(RowsAssembled(self._batch, self._size))
            self._batch, self._size = [], 0

    def _truncate(self, relations: tuple[int, ...], lsn: int, out: list[Happened]) -> None:
        """One `t` per table and partition; all of one statement stand together."""
        if self._skipping:
            return
        if self._begin is None:
            raise DecodeError("TRUNCATE outside a transaction")
        self._relations.emptied.update(relations)
        for relation in relations:
            binding = self._bindings.get(relation) or self._bind(relation, lsn, out)
            if binding is None:
                continue
            if self._tx is None:
                self._first_row()
            # Among Avro keys a text would break readers: no row is meant, so there is no key.
            key = binding.key if binding.key_of is None else None
            for partition in (
                range(binding.partitions) if binding.partition_of else (binding.partition,)
            ):
                assert self._tx is not None
                value = binding.encoder.encode("t", "", None, None, self._tx, lsn, self._ordinal)
                self._put(binding.topic, partition, key, value, lsn, out)

    # ------------------------------------------------------------ tables
    def _bind(self, relation_id: int, lsn: int, out: list[Happened]) -> Binding | None:
        """Find out what a relation is now; a new shape goes out as DDL before the row."""
        relation = self._relations.look_up(relation_id)
        for moved in self._relations.renamed(relation):
            self._hand_over(out)
            self._schema_change(moved, None, lsn, out)  # its topic is made with its first row
            self._forget_bindings(moved)
        if not self._relations.is_wanted(relation):
            self._bindings[relation_id] = None
            return None
        table, change = self._relations.resolve(relation)
        self._hand_over(out)
        binding = self._publish(table, out)
        if change is not None:
            self._schema_change(change, binding, lsn, out)
        self._bindings[relation_id] = binding
        return binding

    def _publish(self, table: TableSchema, out: list[Happened]) -> Binding | None:
        """Register a shape, before its first row; None: it was refused, and goes without rows."""
        try:
            binding = self._world.publish(table)
        except SchemaRefused as error:
            if not self._quarantines:
                raise
            self._note_hole(Hole(str(table.id), "seen", f"left out: {error.what}"))
            return None
        out.append(SchemaUsed(binding.topic, binding.schema_id))
        return binding

    def _note_hole(self, hole: Hole) -> None:
        if hole not in self._holes:
            if self._tx is None:
                self._first_row()
            self._holes.append(hole)

    # ------------------------------------------------------------ statements
    def _describe(self, relation: Relation) -> None:
        self._relations.describe(relation)
        self._bindings.pop(relation.relation, None)

    def _statement(self, statement: StatementChanges, lsn: int, out: list[Happened]) -> None:
        """One statement, as many records as it changed tables: before the rows after it."""
        if self._skipping:
            return
        if self._begin is None:
            raise DecodeError("DDL outside a transaction", lsn=Lsn(lsn))
        self._relations.apply(statement)
        ordinal: int | None = None
        for change in statement.changes:
            self._hand_over(out)
            binding = self._publish(change.after, out) if change.after is not None else None
            if self._tx is None:
                self._first_row()
            ordinal = self._ordinal if ordinal is None else ordinal
            self._schema_change(change, binding, lsn, out, statement, ordinal)
            self._forget_bindings(change)

    def _forget_bindings(self, change: ShapeChange) -> None:
        """Write rows anew from here on, whether their table is described again or not."""
        stale = {table.id for table in (change.before, change.after) if table is not None}
        self._bindings = {
            relation: bound
            for relation, bound in self._bindings.items()
            if bound is not None and bound.table.id not in stale
        }

    def _schema_change(  # noqa: PLR0917  what a record says
        self,
        change: ShapeChange,
        binding: Binding | None,
        lsn: int,
        out: list[Happened],
        said: StatementChanges = _INFERRED,
        statement: int | None = None,
    ) -> None:
        begin = self._begin
        assert begin is not None
        if self._tx is None:
            self._first_row()
        record = SchemaChange(
            epoch=self._epoch,
            seq=self._seq,
            ordinal=self._ordinal,
            xid=begin.xid,
            csn=_csn(begin),
            lsn=lsn,
            origin=said.origin,
            tag=change.tag,
            before=change.before,
            after=change.after,
            topic=binding.topic if binding is not None else None,
            sql=said.sql,
            canonical=change.canonical,
            jddl=said.jddl,
            lossy=change.lossy,
            kind=change.kind,
            identity=change.identity,
            statement=statement,
            renamed=change.renamed,
            values=change.values,
            settings=said.settings,
            moved=change.moved,
        )
        self._ddl.append(self._ordinal)
        self._holes += [hole for hole in change.holes if hole not in self._holes]
        table = change.after or change.before
        key = table_key(table.id) if table is not None else (change.identity or "").encode()
        value = self._world.encode_change(record)
        if len(value) > self._max_row_bytes:  # whoever may run DDL decides how long it is
            record = replace(record, sql=None, canonical=None, jddl=None, lossy=_LONG)
            value = self._world.encode_change(record)
        self._put(self._ddl_topic, 0, key, value, lsn, out)


def _csn(begin: Begin) -> int:
    """PostgreSQL has no CSN: the commit LSN stands for it."""
    return int(begin.commit_lsn) if begin.csn is None else begin.csn


def _placed(binding: Binding, old: Cells, new: Cells) -> tuple[Cells, Cells | None]:
    """Return the new row with its key complete, and the old row if its key was another one.

    A long key value that did not change is not sent in the new row, but with the old one.
    """
    columns = binding.table.columns
    moved = False
    for at in binding.key_at:
        was, now = old[at], new[at]
        if now is UNCHANGED:
            new = [*new[:at], was, *new[at + 1 :]]
        elif was != now and not is_one_key(columns[at], was, now):
            moved = True
    return new, old if moved else None


def table_key(table: TableId) -> bytes:
    """Kafka key of a table: `schema.table` in UTF-8."""
    return str(table).encode()
