"""One turn of `run`: take over, load what a new epoch needs, then stream until asked to stop.

    take over  `core/takeover`: fences the writer before, finds the end of cuts, compares the slot
               with it, and writes START.  An epoch goes on, or a new one begins.
    shapes     of an epoch that goes on the tables are those of the ddl topic, up to its last
               commit.  Statements behind that, which no commit has, are taken back first.
    load       a new epoch that loads at once reads all tables under the snapshot of its slot.  Only
               then the slot is taken: its session held the snapshot.
    stream     tables that were captured meanwhile are noted as loads, and hidden until they are
               read; then the loop goes until it is asked to stop.

Nothing of a turn outlives it but the progress: an error that may pass begins the next turn with a
takeover, which trusts what is in Kafka alone.  So a turn may end anywhere: before START readers see
nothing of it, and behind it each step begins when what it builds on is durable.

What the source sends again is compared with what cuts have, before the loop confirms anything
(`core/stream/redelivery`, [H48]).  This module puts the parts of a turn together, and writes what a
load brings; it decides nothing of what is durable.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from producer.core.catalog.catalog_watch import CatalogWatch
from producer.core.catalog.look import Before
from producer.core.delivery.engine import Engine, WriterState
from producer.core.delivery.tally import PlainTally
from producer.core.events import Records, TopicsChanged
from producer.core.key_ranges import Upto
from producer.core.loads.beside import Beside, Piece
from producer.core.loads.load import Loader, as_it_is, keep
from producer.core.loads.queue import Due, LoadQueue, asked
from producer.core.loads.reread import Rereads
from producer.core.log.cuts_log import CutsLog
from producer.core.log.ddl_log import known_tables, taken_back
from producer.core.loop import Loop, Progress
from producer.core.ports import (
    Behind,
    Blocking,
    Clock,
    Codec,
    Delivery,
    Point,
    Publisher,
    Quarantine,
    Reader,
    RunObserver,
    RunOptions,
    ShutdownRequested,
    Source,
)
from producer.core.records.chunk import PlainChunk
from producer.core.router import table_key
from producer.core.stream.assemble import Assembler, AssemblerPorts
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.core.stream.walk import Native
from producer.core.takeover.takeover import (
    Step,
    TakeoverRequest,
    TakeoverResult,
    take_over,
    take_slot,
)
from schemas.control import Head, LoadPhase, Looked, SchemaChange, Start
from schemas.positions import Lsn, of_reread
from schemas.tables import TableId, TableSchema

PAUSE: Final = 0.1  # seconds between two tries of a step that waits
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The ports and options of one turn."""

    options: RunOptions
    source: Source
    log: CutsLog
    ddl: Reader
    codec: Codec
    delivery: Delivery
    publisher: Publisher
    quarantine: Quarantine
    blocking: Blocking
    behind: Behind
    clock: Clock
    observer: RunObserver
    wants: Callable[[TableId], bool]  # [tables] of the configuration
    advice: Callable[[TableId], str]  # how a table that is not captured gets captured
    changed: list[TopicsChanged]  # filled by the publisher
    captured: Callable[[], Sequence[TableId]] = tuple  # the tables that are to be captured now
    native: Native | None = None  # None: everything is done in Python

    def run(self, request: TakeoverRequest, progress: Progress, *, stream: bool = True) -> bool:
        """Go through one turn; `stream=False` leaves when START and load are durable.

        Returns whether another turn is to follow: the source's session was outlived.  Raises
        ShutdownRequested where it is left before the stream began, and CdcError.
        """
        restated: dict[TableId, TableSchema] = {}
        result = self.drive(
            take_over(
                self.source,
                self.log,
                request,
                patience=self._patience(),
                restate=lambda start: self._restated(start, restated),
            )
        )
        progress.takeovers += 1
        for subject in self.blocking(self.codec.repair, self.options.prefix):
            self.observer.on_note(
                f"{subject}: its compatibility is what it was before an older run ended"
            )
        if result.continues:
            writer_state, known = result.writer_state, restated
        else:
            writer_state, known = self._shapes(result)
        return stream and self._loop(result, writer_state, known, progress).run()

    def drive(self, steps: Generator[Step, None, T]) -> T:
        """Run a takeover: report each step, keep the session alive, leave if asked.

        What is waited for is said once.

        Returns the steps' result; raises ShutdownRequested between two.
        """
        said: set[str] = set()
        while True:
            try:
                step = next(steps)
            except StopIteration as done:
                result: T = done.value
                return result
            self.observer.on_step(f"start: {step.name}")
            self.source.keep_alive()
            line = f"waiting: {step.waits_for}" if step.waits_for else step.says
            if line and line not in said:
                self.observer.on_note(line)
                said.add(line)
            # A slot was just created: without its START it would keep log that no run reads.
            if step.name == "write START":
                continue
            if self.observer.stop_asked(PAUSE if step.waits_for else 0):
                raise ShutdownRequested

    def _patience(self) -> int:
        return round(self.options.limits.transaction_timeout / PAUSE)

    def _shapes(self, result: TakeoverResult) -> tuple[WriterState, dict[TableId, TableSchema]]:
        """Load what a new epoch needs, or rebuild the tables' shapes from the ddl topic."""
        writer_state = result.writer_state
        if result.made is None:
            head = writer_state.head
            strays: list[SchemaChange] = []
            known = self.blocking(
                known_tables,
                self.ddl,
                self.codec,
                epoch=head.epoch,
                seq=head.last_seq,
                note=self.observer.on_note,
                strays=strays,
            )
            if strays:
                self.blocking(self._take_back, head, strays, known, writer_state.topics)
            return writer_state, known
        known = {}
        is_at_once = bool(result.made.snapshot) and not self.options.loads_beside
        if writer_state.loads and is_at_once:  # else each one is read beside the stream
            loader = self._loader(writer_state, result.made.consistent_point)
            with self.source.reading(result.made) as reading:
                writer_state, known = loader.first(reading, self.source.tables)
        self.drive(take_slot(self.source, writer_state.head.resume))
        return writer_state, known

    def _take_back(
        self,
        head: Head,
        strays: Sequence[SchemaChange],
        known: Mapping[TableId, TableSchema],
        there: Container[str],
    ) -> None:
        """Before any commit gets the number of a stray; in a Kafka transaction, and in no range."""
        topics, csn = self.options.topics, self._csn(head.resume)
        changes = taken_back(
            strays,
            known,
            lambda table: as_it_is(
                head, head.resume, 0, table, topics.of(table.id, there), csn=csn
            ),
        )
        chunk = PlainChunk(topics.ddl, head.epoch, head.last_seq, head.resume, csn)
        for ordinal, change in enumerate(changes, of_reread(head.n) - len(changes)):
            value = self.publisher.encode_change(replace(change, ordinal=ordinal))
            table = change.after or change.before
            assert table is not None
            chunk.put(0, table_key(table.id), value, ordinal)
        self.delivery.write_now([chunk.finish()], lambda _: (), atomic=True)

    def _restated(self, start: Start, known: dict[TableId, TableSchema]) -> Records:
        """Say the shapes of the epoch before again, for one that continues; they fill `known`.

        In START's Kafka transaction: which epochs continue is not known to a later start [H19].
        """
        assert start.prev is not None
        known |= self.blocking(
            known_tables,
            self.ddl,
            self.codec,
            epoch=start.prev.epoch,
            seq=start.prev.seq,
            note=self.observer.on_note,
        )
        head, topics = start.head, self.options.topics
        csn = self._csn(head.resume)
        chunk = PlainChunk(topics.ddl, head.epoch, head.last_seq, head.resume, csn)
        for ordinal, table in enumerate(known.values()):
            topic = topics.of(table.id, start.topics)
            change = as_it_is(head, head.resume, ordinal, table, topic, csn=csn)
            chunk.put(0, table_key(table.id), self.publisher.encode_change(change), ordinal)
        return chunk.finish()

    def _csn(self, at: Lsn) -> int:
        """Return the CSN of a place between two commits; 0: nothing tells it."""
        return at if self.source.positions_are_csns else 0

    def _loader(self, writer_state: WriterState, at: Lsn) -> Loader:
        return Loader(
            self.options,
            writer_state,
            log=self.log,
            delivery=self.delivery,
            publisher=self.publisher,
            observer=self.observer,
            clock=self.clock,
            at=at,
            csn=self._csn(at),
            quarantine=self.quarantine,
            behind=self.behind,
            native=self.native,
        )

    def again(
        self, state: WriterState, point: Point, table: TableSchema, load: Upto
    ) -> WriterState:
        """Read one table again, at a place of the stream.

        `state`: the writer's, before BEGIN; returns it behind END.  `load`: for whom it is.
        """
        looked = _noted(point.looked, load)
        return self._loader(state, point.at).again(point.reading, table, looked, load)

    def beside(
        self, state: WriterState, at: Lsn, table: TableSchema, load: Beside, piece: Piece
    ) -> tuple[WriterState, Upto]:
        """Write the next piece of a load, at a place between two commits.

        `state`: the writer's, before it; `at`: that place.  Returns the state behind it, and how
        far the load is then.
        """
        loader = self._loader(state, at)
        if load.mends:
            return loader.mend(table, piece, load.upto)
        if piece.shape is not None:
            looked = _noted(piece.looked, load.upto)
            return loader.begin(table, looked, load.upto), load.upto
        return loader.add(
            table,
            piece.rows,
            piece.completed,
            piece.upto,
            is_last=piece.is_last,
            expected=load.expected,
        )

    def _renamed(
        self,
        captured: Sequence[TableId],
        loads: Mapping[str, str],
        known: Mapping[TableId, TableSchema],
    ) -> dict[TableId, TableId]:
        """Find tables that the stream will rename from a known name: nobody added them.

        The catalog is asked only about names that would be read.
        """
        names = {table.oid: name for name, table in known.items() if table.oid}
        out: dict[TableId, TableId] = {}
        for table in captured:
            if table in known or loads.get(str(table)) == LoadPhase.END:
                continue
            shape = self.blocking(self.source.shape, table)
            if shape is not None and shape.oid in names:
                out[table] = names[shape.oid]
        return out

    def _redelivery(
        self, result: TakeoverResult, known: Mapping[TableId, TableSchema]
    ) -> Redelivery:
        """Prepare to compare what the source sends again with what was delivered [H48]."""
        state, confirmed = result.writer_state, result.confirmed
        if not 0 < confirmed < (resume := state.head.resume):
            return Redelivery(state.head.resume)
        names = self.options.topics
        topics = {t: names.of(t, state.topics) for t in known if self.wants(t)}
        parts = self.log.delivered(
            state,
            confirmed,
            topics,
            has_triggers=self.source.reports_ddl,
            keeps_confirmed=self.source.keeps_confirmed,
            filters_as_then=self.source.filters_as_then,
        )
        return Redelivery(
            resume,
            confirmed=confirmed,
            parts=parts,
            topics=topics,
            oids={known[t].oid: t for t in topics if self.source.ids_are_oids and known[t].oid},
            note=self.observer.on_note,
        )

    def _loop(
        self,
        result: TakeoverResult,
        writer_state: WriterState,
        known: dict[TableId, TableSchema],
        progress: Progress,
    ) -> Loop:
        options, source, publisher = self.options, self.source, self.publisher
        topics, head = options.topics, writer_state.head
        self.blocking(publisher.checked)
        found = Due([], [], {})
        # Not before the slot is ours: while this start waited, the run that had it may have taken
        # in a table whose load is noted, and not done [H41].
        captured = self.blocking(self.captured)
        repairs = source.rereads and options.repair == "auto"
        if source.rereads:
            notes_loads = writer_state.notes_loads
            renamed = self._renamed(captured, writer_state.loads, known) if notes_loads else {}
            found = asked(
                [table for table in captured if table not in renamed],
                writer_state.loads,
                known,
                self.wants,
                notes_loads=notes_loads,
                renamed=renamed.values(),
                repairs=repairs,
            )
        if since := source.recalls(writer_state.looked):
            for cut in self.log.recent(writer_state, since):
                source.delivered([cut])
        hidden = {table for table in found.tables if table not in known}
        source.start_reading(
            known,
            resume=head.resume,
            csn=result.csn,
            hidden=hidden,
            loads=writer_state.notes_loads,
        )
        catalog = CatalogWatch(
            wanted=lambda table: self.wants(table) and table not in hidden,
            publication=options.publication,
            looked=writer_state.looked,
        )
        relations = Relations(
            known,
            read_catalog=source.shape,
            name_type=source.type_name,
            name_table=source.table_name if source.ids_are_oids else None,
            root_of=source.root_of,
            wanted=lambda table: self.wants(table) and table not in hidden,
            new_tables_are_complete=source.new_tables_are_complete,
            reports_ddl=source.reports_ddl,
            had=catalog.had,
            compares=catalog.compares,
        )
        assembler = Assembler(
            relations=relations,
            ports=AssemblerPorts(
                lambda table: self.blocking(publisher.publish, table),
                publisher.encode_change,
                self.clock.wall_us,
                (lambda unfit: self.blocking(keep, self.quarantine, unfit, self.observer))
                if options.unfit_row == "quarantine"
                else None,
            ),
            epoch=head.epoch,
            seq=head.last_seq,
            redelivery=self._redelivery(result, known),
            ddl_topic=topics.ddl,
            max_row_bytes=options.max_row_bytes,
            messages=publisher.messages(),
            frames=publisher.transactions(),
            quarantines=options.incompatible == "quarantine",
            note=self.observer.on_note,
            positions_are_csns=source.positions_are_csns,
            walker=None
            if self.native is None
            else self.native.walker(
                epoch=head.epoch, resume=head.resume, max_row_bytes=options.max_row_bytes
            ),
        )
        tally_of = PlainTally if self.native is None else self.native.tally
        untracked = frozenset({topics.message, topics.transaction})
        engine = Engine(
            writer_state, options.limits, tally_of(ddl_topic=topics.ddl, untracked_topics=untracked)
        )
        engine.mark_loads(found.noted)
        return Loop(
            options,
            source=source,
            delivery=self.delivery,
            quarantine=self.quarantine,
            blocking=self.blocking,
            clock=self.clock,
            observer=self.observer,
            log=self.log,
            engine=engine,
            assembler=assembler,
            relations=relations,
            catalog=catalog,
            progress=progress,
            rereads=Rereads(
                LoadQueue(
                    hidden,
                    source=source,
                    captured=self.wants,
                    repairs=repairs,
                    look_seconds=options.look_seconds,
                    rest_seconds=options.tuning.rest_seconds,
                    blocking=self.blocking,
                    clock=self.clock,
                    note=self.observer.on_note,
                ),
                source=source,
                mark_seconds=options.tuning.mark_seconds,
                rate=options.load_rate,
                writing=self,
                begin_anew=engine.begin_anew,
                publish=publisher.publish,
                look_up=relations.look_up,
                blocking=self.blocking,
                clock=self.clock,
                note=self.observer.on_note,
                warn=self.observer.warn,
            ),
            left=found.left,
            changed=self.changed,
            advice=self.advice,
        )


def _noted(looked: Before | None, load: Upto) -> Looked | None:
    """What BEGIN says of the catalog: a load for one target mends nothing for the others [H49]."""
    return None if looked is None or load.target else looked.looked()
