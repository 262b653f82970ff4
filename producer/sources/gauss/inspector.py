"""What `check`, `status`, `wait` and `verify` ask of an openGauss or a GaussDB."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cached_property, partial
from typing import Final

from producer.core.catalog.look import Before
from producer.errors import SourceError, Unsupported
from producer.options import Options
from producer.sources import patterns
from producer.sources.base import ServerNow, SnapshotPoint, SourceInspector, SourceStanding
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import evidence as gauss_evidence
from producer.sources.gauss import gaps
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.catalog_writers import NotJudged
from producer.sources.gauss.checks import check_gauss_source
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.options import Decoding, effective
from producer.sources.gauss.point import exporting_slot, exports_snapshot, open_replication
from producer.sources.gauss.server import Server
from producer.sources.gauss.source import open_session
from producer.sources.gauss.storage import StorageWatch, StreamTells
from schemas.findings import Finding, Level
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema

_LOOK: Final = 0.5  # seconds between two looks at what a new slot waits for


class GaussSourceInspector(SourceInspector):
    """One session of our own client's: psycopg2 cannot log in everywhere."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stack = ExitStack()
        self._not_judged = NotJudged()

    @cached_property
    def _session(self) -> GaussConnection:
        return self._stack.enter_context(open_session(self._options))

    @cached_property
    def _server(self) -> Server:
        return self._session.server()

    @cached_property
    def _is_looked_at(self) -> bool:
        """Say whether `run` looks at the catalog for statements that are not sent."""
        options = self._options
        mode = gaps.decoding_mode(effective(options.plugin_options, options.terms))
        if not (self._server.is_primary and mode.loses_rows_behind_ddl):
            return False
        return gauss_readings.node_of(self._session, self._server)[0] != "CN"

    def close(self) -> None:
        self._stack.close()

    def session(self) -> GaussConnection:
        return self._session

    # ---- check
    def check(self, *, fix: bool) -> Iterator[Finding]:
        return check_gauss_source(self._options, self._session, fix=fix)

    def captured(self) -> list[TableSchema]:
        options = self._options
        tables = gauss_catalog.expand(self._session, options.include, options.exclude)
        return gauss_catalog.table_schemas(self._session, tables)

    def selected(self) -> dict[TableId, str]:
        tables, options = [shape.id for shape in self.captured()], self._options
        missing = patterns.absent(tables, options.include, options.exclude)
        return dict.fromkeys(missing, patterns.ABSENT) | dict.fromkeys(tables, "")

    def replication(self) -> Iterator[Finding]:
        """Log in once more, as `run` does: another port, another line of pg_hba.conf."""
        if self._options.interface == "sql":
            return
        with open_replication(self._options) as wire:
            found = wire.identify()
            at = f"{wire.arguments.host}:{wire.arguments.port}"
        yield Finding(
            Level.OK, "replication", f"at {at}, system {found.system_id}, timeline {found.timeline}"
        )

    # ---- status and wait
    def log_end(self) -> Lsn:
        return gauss_readings.wal_end(self._session)

    def goal(self) -> Lsn:
        """The current end of the log, followed by a commit that every stream sends.

        Parallel decoding and SQL functions send commits only: without one an idle source
        never shows that all was read. A transaction that has an id and no changes is one.

        Raises Unsupported where the slot is in the order of CSNs.
        """
        self._not_judged.begin()
        end = self.log_end()
        decided = effective(self._options.plugin_options, self._options.terms)
        if decided.ordered_by == "csn":
            raise Unsupported(
                "a slot in the order of CSNs has no position in the log that could be waited for",
                hint="give the CSN as --lsn, in hex and with a slash before its last eight digits",
            )
        if decided.mode is not Decoding.SERIAL and self._server.is_primary:
            self._session.query("SELECT txid_current()")
        return end

    def standing(self) -> SourceStanding | None:
        name = self._options.slot
        slot = gauss_slots.find(self._session, name)
        if slot is None:
            return None
        end = self.log_end()
        return SourceStanding(
            wal_end=end,
            slot=name,
            active=slot.is_active,
            confirmed=slot.told,
            restart=slot.restart,
            retained_bytes=max(0, end - slot.restart) if slot.restart else 0,
            wal_status="lost" if slot.is_invalid else "orphaned" if slot.is_orphaned else "",
            ordered_by=slot.ordered_by,
        )

    def server(self) -> ServerNow:
        end = gauss_readings.wal_end(self._session)
        if self._options.interface == "sql":
            system_id, timeline = gauss_catalog.system(self._session)
        else:
            with open_replication(self._options) as wire:
                said = wire.identify()
            system_id, timeline = said.system_id, said.timeline
        return ServerNow(system_id, timeline, end, not self._server.is_primary)

    def estimated_rows(self, table: TableId) -> int:
        return gauss_snapshot.estimated_rows(self._session, table)

    def unexplained(
        self,
        known: Mapping[TableId, TableSchema],
        before: Before | None,
        inexact: Container[str],
        read: Container[str] | None = None,
    ) -> str:
        """Rows behind a statement that is not sent are lost, until `run` looks for it."""
        del read  # each table is sent, from its first row on
        changed = self._changed(before, known)
        if left := [
            f"{table} {why}" for table, why in changed.items() if str(table) not in inexact
        ]:
            return "; ".join(left)
        return self._not_judged(self._session, before) if self._is_looked_at else ""

    def changed(self, before: Before) -> list[str]:
        return [f"{table} {why}" for table, why in self._changed(before).items()]

    def notes(self, before: Before | None) -> list[str]:
        try:
            changed = [] if before is None else self.changed(before)
        except SourceError as error:
            if gauss_evidence.is_gone(error):
                raise
            return [f"the catalog was not compared: {error}"]
        mode = gaps.decoding_mode(effective(self._options.plugin_options, self._options.terms))
        shapes = self.captured() if "skip-generated-columns" in mode.removing else ()
        lacking = ((shape.id, gaps.not_sent(shape, mode)) for shape in shapes)
        return [
            *(f"{what}; `run` has not compared it yet" for what in changed),
            *(f"{table}: {what}" for table, what in lacking if what),
        ]

    def _changed(
        self, before: Before | None, known: Mapping[TableId, TableSchema] | None = None
    ) -> Mapping[TableId, str]:
        """Name tables in which `run` finds something at its next look.

        `known`: the tables of the stream; None: any may be one.
        """
        if before is None or not self._server.is_primary:
            return {}
        decided = effective(self._options.plugin_options, self._options.terms)
        mode = gauss_readings.decoding_mode(self._session, decided)
        chosen = patterns.chooser(self._options.include, self._options.exclude)
        is_coordinator = gauss_readings.node_of(self._session, self._server)[0] == "CN"
        watch = StorageWatch(StreamTells.by(mode, decided), chosen, clears=not is_coordinator)
        found = watch.compare(self._session, before, lambda _: None, known or ())
        return {
            table: why
            for table, why in (
                *((table, "was dropped, or has another name") for table in found.dropped),
                *((table, "has other storage files") for table in found.emptied),
                *found.suspected.items(),
            )
            if known is None
            or table in known
            or (table in found.suspected and table in found.there)
        }

    # ---- verify
    @contextmanager
    def snapshot(
        self, stop: Callable[[], bool], note: Callable[[str], None]
    ) -> Iterator[SnapshotPoint | None]:
        """Read under the snapshot of a slot, which lives until it is imported.

        These servers have no temporary slots: its name is always the same one, and what a killed
        `verify` left behind is dropped by the next.

        Raises Unsupported where slots export no snapshot.
        """
        options = self._options
        if not exports_snapshot(options):
            raise Unsupported(
                "slots of this source export no snapshot: no state of it is known by its position",
                hint='verify needs interface = "stream" and a slot in the order of the log',
            )

        def note_blockers(found: list[gauss_slots.OpenTransaction]) -> None:
            for blocker in found:
                note(f"the snapshot waits for {blocker}")

        with ExitStack() as stack:
            asker = stack.enter_context(open_session(options))
            # SlotTaken: another verify runs.
            with exporting_slot(
                options, asker, "verify", on_blocked=note_blockers, note=note
            ) as making:
                while (made := making.result(_LOOK)) is None:
                    if stop():
                        yield None
                        return
                opened = partial(open_session, options)
                rows = stack.enter_context(gauss_snapshot.imported(opened, made.snapshot or ""))
                now = stack.enter_context(opened())
            at = made.consistent_point
            yield SnapshotPoint(at, rows, rows.encoding, rows.session, now)
