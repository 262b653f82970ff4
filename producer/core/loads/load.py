"""Loads: every table under the slot's own snapshot, or one table again at a place of the stream.

A load's rows have the number of the newest commit before them, and ordinals of their own: those
of the first load count from 0, those of a re-read from far behind any commit's (`of_reread`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from producer.core.changes import Cells
from producer.core.delivery.engine import WriterState
from producer.core.events import Acknowledgement, Place, Records
from producer.core.key_ranges import Upto, key_places
from producer.core.loads.beside import Piece
from producer.core.loads.load_steps import LoadStep, with_offsets
from producer.core.log.cuts_log import CutsLog
from producer.core.ports import (
    Behind,
    Clock,
    Delivery,
    Publisher,
    Quarantine,
    Reading,
    RunObserver,
    RunOptions,
    ShutdownRequested,
)
from producer.core.records.chunk import Chunk, Chunks, PlainChunk
from producer.core.records.encode import TransactionConstants
from producer.core.router import Binding, table_key
from producer.core.stream.unfit import HINT, UNFIT, WHY, Unfit, of_row, put_aside
from producer.errors import RowTooLarge
from schemas.control import (
    AGAIN,
    BESIDE,
    EXACT,
    MEND,
    Head,
    LoadPhase,
    Looked,
    Origin,
    SchemaChange,
    TableLoad,
    note_load,
)
from schemas.positions import CommitKey, Lsn, of_reread
from schemas.tables import UNCHANGED, TableId, TableSchema
from schemas.types import unseen_renames


def as_it_is(
    head: Head, at: Lsn, ordinal: int, table: TableSchema, topic: str, *, csn: int
) -> SchemaChange:
    """Say a table's shape as of a place of the log that is in no transaction."""
    return SchemaChange(
        epoch=head.epoch,
        seq=head.last_seq,
        ordinal=ordinal,
        xid=0,
        csn=csn,
        lsn=at,
        origin=Origin.SNAPSHOT,
        tag="CREATE TABLE",
        before=None,
        after=table,
        topic=topic,
    )


@dataclass(slots=True)
class _Loading:
    """A table whose rows are being written."""

    table: TableSchema
    topic: str
    tx: TransactionConstants
    bound: tuple[Binding, Chunk] | None = None  # from its first row on
    done: int = 0
    expected: int = 0
    lossy: str | None = None  # what is missing in the end


class Loader:
    """Reads tables under one snapshot, as `op = r`.

    A chunk and its TABLE record are in one Kafka transaction, so a reader of cuts sees whole
    chunks only; steps of small tables share it (`load_steps`), and chunks that were read while
    others were written.  A crash in between leaves the
    table unfinished: the next run reads it again, from BEGIN, which empties it.  Tables that
    have END stay.
    """

    def __init__(
        self,
        options: RunOptions,
        writer_state: WriterState,
        *,
        log: CutsLog,
        delivery: Delivery,
        publisher: Publisher,
        observer: RunObserver,
        clock: Clock,
        at: Lsn,
        csn: int,
        quarantine: Quarantine,
        behind: Behind,
        native: Chunks | None = None,
    ) -> None:
        """`at` is the snapshot's place, `csn` its CSN, or 0.

        `behind` writes a chunk while the next one is read.
        """
        self._behind = behind
        self._options, self._native = options, native
        self._quarantine = quarantine
        self._log = log
        self._delivery = delivery
        self._publisher = publisher
        self._observer = observer
        self._clock = clock
        self._at, self._csn = at, csn
        self._head = replace(writer_state.head, state_from=writer_state.state_from)
        self._loads, self._upto = dict(writer_state.loads), dict(writer_state.upto)
        self._targeted = dict(writer_state.targeted)
        self._at_first = Upto()  # of the load: its request, and the target if it is for one
        self._writer_state = writer_state
        self._ordinal, self._mode = 0, EXACT
        self._steps: list[LoadStep] = []  # not written yet
        self._rows, self._size = 0, 0  # of theirs: rows, and bytes of values

    def first(
        self, reading: Reading, tables: list[TableId]
    ) -> tuple[WriterState, dict[TableId, TableSchema]]:
        """Load all tables; return the writer's state after the load, and the tables' shapes.

        Raises ShutdownRequested between two tables, if asked to stop.
        """
        shapes: dict[TableId, TableSchema] = {}
        found = list(reading.shapes(tables))
        self._publisher.register_ahead(found)
        for schema in found:
            if self._observer.stop_asked(0):
                raise ShutdownRequested
            shapes[schema.id] = schema
            self._table(reading, schema, is_first=schema is found[0], is_last=schema is found[-1])
        return self._end(), shapes

    def again(
        self, reading: Reading, table: TableSchema, looked: Looked | None, load: Upto
    ) -> WriterState:
        """Read one table again; return the writer's state after it.

        `load`: for whom, and for which request.

        `looked`: the table in the catalog at its point.  It is durable with BEGIN: what happens
        behind the point, and before the next look, is compared with it also after a crash [H49].

        All commits before its point are durable, or had no rows to deliver: a table that was
        hidden may have had some, which the snapshot shows.  So reading the source goes on at the
        point from BEGIN on, or a crash would bring those rows again [H37].
        """
        self._head = replace(self._head, resume=max(self._head.resume, self._at))
        self._ordinal, self._mode = of_reread(self._head.n), AGAIN
        self._at_first = replace(load, is_void=True)
        self._table(reading, table, is_first=True, is_last=True, is_again=True, looked=looked)
        return self._end()

    def _end(self) -> WriterState:
        self._write()
        self._behind.wait()
        return replace(
            self._writer_state,
            head=self._head,
            loads=self._loads,
            upto=self._upto,
            targeted=self._targeted,
        )

    def begin(self, table: TableSchema, looked: Looked | None, load: Upto) -> WriterState:
        """Begin a load that has commits between its records, at a place between two of them.

        Reading the source goes on there, as in `again`.
        """
        to = self._beside(table, load, BESIDE)
        self._begin(to, is_again=True, looked=looked)
        return self._end()

    def add(
        self,
        table: TableSchema,
        rows: Sequence[Cells],
        completed: Sequence[Cells],
        upto: Upto,
        *,
        is_last: bool,
        expected: int,
    ) -> tuple[WriterState, Upto]:
        """Add a range to such a load, and end it with the last; `expected` rows are estimated.

        `completed`: rows that have values of the stream.  Returns also how far the load is now,
        and whether rows are missing.
        """
        to = self._beside(table, upto, BESIDE)
        to.done, to.expected, to.lossy = upto.rows, expected, upto.lossy
        chunk = self._range(to, rows, completed)
        upto = replace(upto, lossy=to.lossy, rows=to.done + len(chunk))
        if len(chunk) or not is_last:
            self._flush(to, upto.text)
        if is_last:
            self._close(to)
        return self._end(), upto

    def mend(self, table: TableSchema, piece: Piece, load: Upto) -> tuple[WriterState, Upto]:
        """Write some keys as they are, where no load is open; nothing, where a row is unfit."""
        to = self._beside(table, load, MEND)
        chunk = self._range(to, piece.rows, piece.completed)
        places = key_places(table)
        for key in piece.gone:
            sent = dict(zip(places, key, strict=True))
            cells: Cells = [sent.get(at, UNCHANGED) for at in range(len(table.columns))]
            self._put(to, cells, to.tx, is_gone=True)
        if len(chunk) and not to.lossy:
            self._flush(to)
            self._observer.on_load(table.id, to.done, to.done)
        return self._end(), replace(load, lossy=to.lossy)

    def _range(self, to: _Loading, rows: Sequence[Cells], completed: Sequence[Cells]) -> Chunk:
        """Add a range's rows to the chunk."""
        _, chunk = self._bound(to)
        at = 0
        while at < len(rows):
            taken = chunk.take(rows, at, len(rows), self._ordinal)
            self._ordinal, at = self._ordinal + taken - at, taken
            if at < len(rows):
                self._put(to, rows[at], to.tx)
                at += 1
        for cells in completed:
            self._put(to, cells, to.tx)
        return chunk

    def _beside(self, table: TableSchema, load: Upto, mode: str) -> _Loading:
        self._head = replace(self._head, resume=max(self._head.resume, self._at))
        self._ordinal, self._mode = of_reread(self._head.n), mode
        self._at_first = load
        return self._open(table, snapshot="incremental")

    def _open(self, table: TableSchema, *, snapshot: str = "true") -> _Loading:
        tx = TransactionConstants(
            xid=0,
            csn=self._csn,
            epoch=self._head.epoch,
            seq=self._head.last_seq,
            committed_at_us=self._clock.wall_us(),
            now_us=self._clock.wall_us(),
            commit_lsn=self._at,
            snapshot=snapshot,
        )
        return _Loading(table, self._publisher.topic(table.id), tx)

    def _bound(self, to: _Loading) -> tuple[Binding, Chunk]:
        """Bind a table with its first row: a registry takes long for many that have none."""
        if to.bound is None:
            binding = self._publisher.publish(to.table)
            to.bound = binding, self._chunk(binding, to.tx)
        return to.bound

    def _begin(self, to: _Loading, *, is_again: bool, looked: Looked | None) -> None:
        self._observer.on_step("load: BEGIN")
        table = to.table
        change = as_it_is(self._head, self._at, self._ordinal, table, to.topic, csn=self._csn)
        value = self._publisher.encode_change(change)
        shape = self._plain_chunk(self._options.topics.ddl)
        shape.put(0, table_key(table.id), value, self._ordinal)
        self._ordinal += 1
        # Rows for one target are the newest of their keys: others put them over the same.
        is_emptied = is_again and not (self._at_first.target and table.key)
        emptied = self._emptied(self._bound(to)[0], to.tx) if is_emptied else ()
        self._step(table.id, LoadPhase.BEGIN, shape.finish(), unnamed=emptied, looked=looked)

    def _table(
        self,
        reading: Reading,
        table: TableSchema,
        *,
        is_first: bool,
        is_last: bool,
        is_again: bool = False,
        looked: Looked | None = None,
    ) -> None:
        to = self._open(table)
        self._begin(to, is_again=is_again, looked=looked)
        to.expected = reading.estimated_rows(table.id)
        first = replace(to.tx, snapshot="first" if is_first else "first_in_data_collection")
        last = replace(to.tx, snapshot="last" if is_last else "last_in_data_collection")
        tuning = self._options.tuning
        place = first
        newest: Cells | None = None  # is held back until it is known whether it is the last one

        def take(rows: Sequence[Cells]) -> None:
            nonlocal place, newest
            _, chunk = self._bound(to)
            at, last_one = 0, len(rows) - 1
            while at <= last_one:
                if newest is not None:
                    self._put(to, newest, place)
                    place = to.tx
                if place is to.tx:
                    taken = chunk.take(rows, at, last_one, self._ordinal)
                    self._ordinal += taken - at
                    at = taken
                newest = rows[at]
                at += 1
            size = self._size + chunk.size
            if len(chunk) >= tuning.chunk_rows or size >= tuning.chunk_bytes:
                self._flush(to)
                if self._observer.stop_asked(0):
                    raise ShutdownRequested

        reading.copy_rows(table.id, table.columns, take)
        if newest is not None:
            self._put(to, newest, first if place is first and is_first and not is_last else last)
            self._flush(to)
        self._close(to)

    def _put(
        self, to: _Loading, cells: Cells, place: TransactionConstants, *, is_gone: bool = False
    ) -> None:
        """Add a row, or that there is none; one that cannot be delivered is put aside."""
        binding, chunk = self._bound(to)
        op, kind, old, new = ("d", "K", cells, None) if is_gone else ("r", "", None, cells)
        try:
            value = binding.encoder.encode(op, kind, old, new, place, self._at, self._ordinal)
            if len(value) > self._options.max_row_bytes:
                raise RowTooLarge(
                    "a row is larger than kafka.max-row-bytes",
                    table=to.table.id,
                    bytes=len(value),
                    limit=self._options.max_row_bytes,
                    hint=HINT,
                )
            key = binding.key if binding.key_of is None else binding.key_of(cells)
            at = binding.partition
            if binding.partition_of is not None:
                at = binding.partition_of(cells)
        except UNFIT as error:
            self._put_aside(error, to.table, cells)
            to.lossy = WHY
            return
        chunk.put(at, key, value, self._ordinal)
        self._ordinal += 1

    def _flush(self, to: _Loading, upto: str | None = None) -> None:
        """Make a step of the rows so far; `upto`: how far a load with commits between has come."""
        self._observer.on_step("load: CHUNK")
        binding, chunk = self._bound(to)
        self._size += chunk.size
        records = chunk.finish()
        self._rows += len(records)
        # A native chunk has one place: its records are not made for Python to be counted.
        at_one = {(binding.topic, binding.partition): len(records)}
        self._step(
            to.table.id,
            LoadPhase.CHUNK,
            records,
            places=at_one if binding.partition_of is None else None,
            ids={binding.topic: (binding.schema_id,)},
            upto=upto,
        )
        to.done += len(records)
        self._observer.on_load(to.table.id, to.done, to.expected)

    def _close(self, to: _Loading) -> None:
        self._observer.on_step("load: END")
        lossy = to.lossy or unseen_renames(to.table.columns) or None
        self._step(to.table.id, LoadPhase.END, lossy=lossy)
        self._observer.on_load(to.table.id, to.done, to.done)

    def _emptied(self, binding: Binding, tx: TransactionConstants) -> Records:
        """Tell plain readers that the table begins anew: one `t` for each of its partitions.

        No cut names them: for readers of cuts BEGIN says it.
        """
        chunk = self._plain_chunk(binding.topic)
        # Where keys are Avro, a text would break readers; no row has this key.
        key = binding.key if binding.key_of is None else None
        for partition in binding.every_partition():
            value = binding.encoder.encode("t", "", None, None, tx, self._at, self._ordinal)
            chunk.put(partition, key, value, self._ordinal)
            self._ordinal += 1
        return chunk.finish()

    def _plain_chunk(self, topic: str) -> PlainChunk:
        return PlainChunk(topic, self._head.epoch, self._head.last_seq, self._at, self._csn)

    def _chunk(self, binding: Binding, constants: TransactionConstants) -> Chunk:
        plan = None if binding.key is None or binding.key_at else binding.plan
        if self._native is None or plan is None:
            return self._plain_chunk(binding.topic)
        assert binding.key is not None
        return self._native.chunk(
            plan,
            constants,
            topic=binding.topic,
            partition=binding.partition,
            key=binding.key,
            max_row_bytes=self._options.max_row_bytes,
        )

    def _put_aside(self, error: Exception, table: TableSchema, cells: Cells) -> None:
        """Keep a row that cannot be delivered, or stop before it.

        With an accepted gap, the row that stopped the run does not stop it again.
        """
        position = str(CommitKey(self._head.epoch, self._head.last_seq, self._ordinal))
        if self._options.unfit_row != "quarantine" and not self._options.accept_gap:
            raise of_row(error, table, position) from error
        lsn = self._at
        unfit = put_aside(
            error, table, op="r", before=None, after=cells, lsn=lsn, position=position
        )
        keep(self._quarantine, unfit, self._observer)

    def _step(
        self,
        table: TableId,
        phase: LoadPhase,
        records: Records = (),
        *,
        places: Mapping[Place, int] | None = None,
        unnamed: Records = (),
        ids: Mapping[str, tuple[int, ...]] | None = None,
        lossy: str | None = None,
        looked: Looked | None = None,
        upto: str | None = None,
    ) -> None:
        """Number a step; it is written with those around it."""
        if (target := self._at_first.target) and phase is not LoadPhase.END:
            upto = upto or self._at_first.text
        head = replace(self._head, n=self._head.n + 1, written_at=self._clock.wall_us())
        cut = TableLoad(
            head,
            table,
            phase,
            self._mode,
            ranges=(),
            rows=0,
            as_of=self._at,
            schema_ids=ids or {},
            lossy=lossy,
            looked=looked,
            upto=upto,
            target=target or None,
        )
        note_load(cut, self._loads, self._upto, self._targeted)
        self._steps.append(LoadStep(cut, records, places, unnamed))
        self._head = head
        if self._is_enough():
            self._write()

    def _is_enough(self) -> bool:
        """Should the steps that wait be written?  While others are, more may join them.

        What a Kafka transaction costs besides its rows, several round trips, is shared then.
        """
        tuning = self._options.tuning
        if len(self._steps) >= tuning.load_steps or self._size >= tuning.chunk_bytes:
            return True
        return self._rows >= tuning.chunk_rows and not self._behind.is_busy

    def _write(self) -> None:
        """Write the steps that wait, in one Kafka transaction."""
        steps, self._steps, self._rows, self._size = self._steps, [], 0, 0
        if not steps:
            return

        def cuts(acknowledged: list[Acknowledgement]) -> list[tuple[bytes, bytes]]:
            return [self._log.framed(cut) for cut in with_offsets(steps, acknowledged)]

        batches = [batch for step in steps for batch in step.batches()]
        # Each record of cuts says how many there were before: they are written in order.
        # A shape counts with its BEGIN only, which the next run could not find out [H19].
        is_atomic = any(step.is_begin for step in steps)
        self._behind(lambda: self._delivery.write_now(batches, cuts, atomic=is_atomic))


def keep(quarantine: Quarantine, unfit: Unfit, observer: RunObserver) -> None:
    """Write an unfit row into the quarantine topic, durable."""
    quarantine.put(
        unfit.content,
        lsn=unfit.lsn,
        why=unfit.why,
        table=unfit.table,
        position=unfit.position,
        op=unfit.op,
        bytes=unfit.size,
    )
    observer.warn(f"{unfit.table}: a row is in quarantine, {unfit.size} bytes: {unfit.why}")
