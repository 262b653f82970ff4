"""What `check`, `status`, `wait` and `verify` ask of a PostgreSQL source."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import cached_property
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.core.catalog.catalog_differences import Described, differences, left_out
from producer.core.catalog.catalog_rows import not_sent
from producer.core.catalog.look import Before, Look, since
from producer.errors import ConnectionLost
from producer.options import Options
from producer.sources import patterns
from producer.sources.base import ServerNow, SnapshotPoint, SourceInspector, SourceStanding
from producer.sources.postgres import catalog, catalog_look, publications, running, snapshot
from producer.sources.postgres.captured import captured, captured_tables
from producer.sources.postgres.checks import check_source
from producer.sources.postgres.connection import ReplicationConnection, reach
from producer.sources.postgres.primary import Primary, at_primary, history_of
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.session import Asks
from schemas.findings import Finding
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema

_LOOK: Final = 0.5  # seconds between two looks at what a new slot waits for
_LONGEST_NAME: Final = 63
_WAY_OUT: Final = " (if it stays so, restart `run`: its [tables] may be older)"
_NOT_WHOLE: Final = "does not have it, or not whole"


class PostgresSourceInspector(SourceInspector):
    """Two sessions of the server that is read: by psycopg2, and by our own client."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._stack = ExitStack()
        self._there: set[int] | None = None  # oids of the tables when `unexplained` was asked first

    @cached_property
    def _connection(self) -> Connection:
        return self._stack.enter_context(closing(catalog.connect(self._options.source)))

    @cached_property
    def _session(self) -> ReplicationConnection:
        return self._stack.enter_context(
            ReplicationConnection.open(self._options.source, replication=False)
        )

    @cached_property
    def _asking(self) -> Asks:
        connection = catalog.connect(at_primary(self._options.source))
        self._stack.callback(connection.close)
        return catalog.QueryingConnection(connection)

    def close(self) -> None:
        self._stack.close()

    def session(self) -> ReplicationConnection:
        return self._session

    def asking(self) -> Asks:
        """Return a session of the primary's: a standby takes no requests."""
        return self._asking

    # ---- check
    def check(self, *, fix: bool) -> Iterator[Finding]:
        return check_source(self._options, self._connection, fix=fix)

    def captured(self) -> list[TableSchema]:
        options = self._options
        tables = captured_tables(self._connection, options)
        if not tables:  # no publication yet
            tables = catalog.expand(self._connection, options.include, options.exclude)
        return snapshot.stream_shapes(catalog.table_schemas(self._connection, tables))

    def selected(self) -> dict[TableId, str]:
        options = self._options
        found = captured(self._connection, options)
        return dict.fromkeys(found.absent, patterns.ABSENT) | {
            table: ""
            if table in found.tables
            else f"publication {options.publication} {found.loose.get(table, _NOT_WHOLE)}"
            for table in catalog.expand(self._connection, options.include, options.exclude)
            if table not in found.by_leaf
        }

    # ---- status and wait
    def log_end(self) -> Lsn:
        return catalog.log_end(self._connection)

    def goal(self) -> Lsn:
        """Where the primary's log ends; at a standby without one, what it has replayed."""
        self._there = None
        with closing(Primary(self._options.source, self._connection)) as primary:
            try:
                return catalog.log_end(primary.connection)
            except ConnectionLost:
                return self.log_end()

    def standing(self) -> SourceStanding | None:
        state = catalog.slot_state(self._connection, self._options.slot)
        if state is None:
            return None
        end = self.log_end()
        return SourceStanding(
            wal_end=end,
            slot=self._options.slot,
            active=state.active_pid is not None,
            confirmed=state.confirmed_flush,
            restart=state.restart,
            retained_bytes=end - state.restart if state.restart else 0,
            wal_status=state.wal_status,
            safe_bytes=state.safe_bytes,
        )

    def server(self) -> ServerNow:
        connection = self._connection
        system_id, timeline = history_of(connection)
        end, is_standby = catalog.log_end(connection), catalog.in_recovery(connection)
        return ServerNow(system_id, timeline, end, is_standby)

    def has_left(self, was: int, now: int) -> bool:
        with ReplicationConnection.open(self._options.source) as wire:
            return any(switch.timeline == was for switch in wire.timeline_history(now))

    def estimated_rows(self, table: TableId) -> int:
        return snapshot.estimated_rows(self._connection, table)

    def notes(self, before: Before | None) -> list[str]:
        options, connection = self._options, self._connection
        look = catalog_look.look(connection, options, {}, unless="", before=before)
        if not isinstance(look, Look) or not self._is_published():
            return []
        notes = catalog_look.how_captured(connection, options, look.missing, is_ours=look.is_ours)
        oids = () if before is None else before.versions
        wanted = patterns.chooser(options.include, options.exclude)
        notes += left_out(look, oids, wanted, options.publication).values()
        notes += [f"{what}; `run` has not compared it yet" for what in since(before, look)]
        of_generated = [
            seen.id
            for seen in look.tables.values()
            if seen.version is not None and seen.version.generated
        ]
        shapes = catalog.table_schemas(connection, of_generated)
        return [*notes, *(f"{shape.id}: {not_sent(shape)}" for shape in shapes)]

    def changed(self, before: Before) -> list[str]:
        look = catalog_look.look(self._connection, self._options, {}, unless="", before=before)
        return [*since(before, look)] if isinstance(look, Look) and self._is_published() else []

    def _is_published(self) -> bool:
        publication = self._options.publication
        return publications.publication(self._connection, publication) is not None

    def unexplained(
        self,
        known: Mapping[TableId, TableSchema],
        before: Before | None,
        inexact: Container[str],
        read: Container[str] | None = None,
    ) -> str:
        """Without triggers a table that is dropped and made again is not in the stream.

        The target holds every commit then, and another table, or none where it is new.  One that
        is made while this is asked again is not waited for: others may be made all the time.
        """
        options = self._options
        wanted = patterns.chooser(options.include, options.exclude)
        is_told = ddl_triggers.state(self._connection).enabled
        look = catalog_look.look(self._connection, options, known, unless="", before=before)
        if not isinstance(look, Look):
            return "a table is being altered"
        if self._there is None:
            self._there = {*look.tables, *(table.oid for table in known.values())}
        there = self._there
        older = {name: t for name, t in known.items() if not t.oid or t.oid in there}
        found = differences(
            older, look, wanted=wanted, publication=options.publication, reports_ddl=is_told
        )
        left = [
            finding
            for finding in found
            if str(finding.table) not in inexact
            # No mark speaks of the name that `run` is to give it.
            or (
                isinstance(finding, Described)
                and finding.is_renamed
                and wanted(finding.relation.id)
            )
        ]
        new = {seen.id for oid, seen in look.tables.items() if oid in there} - known.keys()
        coming = () if read is None else self._coming(look, new, read)
        return "; ".join([*map(str, left), *since(before, look, older, inexact), *coming])

    def _coming(self, look: Look, new: Container[TableId], read: Container[str]) -> Iterator[str]:
        """Name tables that `run` takes in once it looks: no load of them has begun."""
        for table in look.arrived:
            if table in new and str(table) not in read:
                yield f"{table} is published, and not loaded yet{_WAY_OUT}"
        if look.is_ours:
            missing = [table for table in look.missing if table in new]
            shapes = catalog.found_schemas(self._connection, missing)
            version = self._connection.server_version
            able = [t for t, s in shapes.items() if not catalog_look.without_identity(s, version)]
            for rights in catalog.table_rights(self._connection, able):
                if rights.owns and rights.uses_schema:  # else `run` has said what others must do
                    yield f"{rights.id} is not published yet{_WAY_OUT}"

    # ---- verify
    @contextmanager
    def snapshot(
        self, stop: Callable[[], bool], note: Callable[[str], None]
    ) -> Iterator[SnapshotPoint | None]:
        """Read under the snapshot of a temporary slot, which lives until it is imported."""
        options = self._options
        name = f"{options.slot[: _LONGEST_NAME - 16]}_verify_{secrets.token_hex(4)}"
        at = reach(options.source)
        with ExitStack() as stack:
            asker = stack.enter_context(closing(catalog.connect(at)))
            primary = stack.enter_context(closing(Primary(options.source, asker)))
            with ReplicationConnection.open(at) as maker:
                maker.begin_slot(name, options.plugin, temporary=True)
                said = list[running.Blocker]()
                while (made := primary.begun(maker, _LOOK)) is None:
                    if stop():
                        running.end_waiter(asker, maker.backend_pid)
                        yield None
                        return
                    found = primary.blockers(maker.backend_pid)
                    for blocker in found:
                        if blocker not in said:
                            note(f"the snapshot waits for {blocker}; {blocker.way_out}")
                    said = found
                reading = stack.enter_context(snapshot.imported(at, made.snapshot or ""))
            rows = snapshot.SnapshotReading(reading, asker)
            asking = map(catalog.QueryingConnection, (reading, asker))
            yield SnapshotPoint(made.consistent_point, rows, "utf-8", *asking)
