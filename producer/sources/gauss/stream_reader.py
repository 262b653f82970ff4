"""What of a source reads a stream: which tables, what of them is asked, and what holds them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from producer import native
from producer.core.changes import Message
from producer.options import Options
from producer.sources import patterns
from producer.sources.decoders import NAMING
from producer.sources.gauss import gaps
from producer.sources.gauss.buffer import HOLD_BYTES
from producer.sources.gauss.held import Held
from producer.sources.gauss.options import Decoding, Effective
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.spill import SpillFile
from producer.sources.gauss.stream import GaussStream
from producer.sources.gauss.system_schemas import is_system_schema
from producer.wire.replication import WalMessage
from schemas.positions import NOWHERE, Lsn
from schemas.tables import TableId, TableSchema
from schemas.types.names import oid_of


class TableQueries(Protocol):
    """What the server is asked while its stream is read."""

    def shape(self, table: TableId) -> TableSchema | None:
        """Read one table's shape as it is now; None if it is gone."""

    def wrote(self, table: TableId, xid: int) -> bool | None:
        """Query whether a transaction wrote rows into a captured table that it created.

        None: the server cannot tell.
        """

    def judged(self, xid: int, tables: frozenset[TableId]) -> None:
        """Take it that the gaps of these tables, by a transaction's statements, are known."""


class StreamReader:
    """The stream of one source; it begins with `start`."""

    def __init__(
        self,
        options: Options,
        decided: Effective,
        encoding: str,
        server: TableQueries,
        *,
        hold_bytes: int = HOLD_BYTES,
    ) -> None:
        """`encoding` is the database's: a stream is never converted.

        `hold_bytes`: of a transaction in memory until its COMMIT; the rest waits in a file.
        """
        self._options, self._decided, self._encoding = options, decided, encoding
        self._server, self._hold_bytes = server, hold_bytes
        self._stream: GaussStream | None = None

    @property
    def by_csn(self) -> bool:
        """Say whether the slot is in the order of CSNs."""
        return self._decided.ordered_by == "csn"

    @property
    def keepalives_move(self) -> bool:
        """Only serial decoding has sent everything before a keepalive's position.

        A parallel keepalive has the reader's position, which is ahead of what was sent.  Calls of
        functions tell a position only where a window has flushed the log.
        """
        return self._decided.mode is not Decoding.PARALLEL and not self.by_csn

    def newest_csn(self) -> int:
        """Return the CSN of the newest transaction that was taken, in the order of CSNs."""
        return 0 if self._stream is None else self._stream.last_csn

    def told_end(self) -> Lsn:
        """Return what the newest heartbeat says of the log on disk; 0: none came."""
        return NOWHERE if self._stream is None else self._stream.told_end

    def start(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: Lsn,
        csn: int,
        hidden: set[TableId] | None = None,
    ) -> None:
        """Buffer transactions from here on; `known` are the tables in force at `resume`."""
        options, form = self._options, self._decided.format
        chosen = patterns.chooser(options.include, options.exclude)
        relations = RelationResolver(
            known,
            wanted=lambda table: chosen(table) and not is_system_schema(table.schema),
            read_catalog=self._server.shape,
            oid_of=oid_of,
            skip_unidentified=options.without_identity == "skip-and-record",
            names_run_together=form.style == "t",
            hidden=hidden,
        )
        mode = gaps.decoding_mode(self._decided)
        self._stream = GaussStream(
            NAMING[form.plugin, form.style](form),
            relations,
            spill=SpillFile,
            hold_bytes=self._hold_bytes,
            by_csn=self.by_csn,
            resume=resume,
            newest_csn=csn,
            loses_rows_behind_ddl=mode.is_gaussdb and mode.decodes_ddl,
            wrote=self._server.wrote,
            judged=self._server.judged,
            held=self._held(csn),
            style=form.style,
        )

    def _held(self, csn: int) -> Held | None:
        """Make what holds the stream for the native walker, which reads UTF-8 only."""
        form = self._decided.format
        if not form.style or self._encoding != "utf-8":
            return None
        return native.held(
            self._options.native,
            style=form.style,
            is_batch=form.batch,
            by_csn=self.by_csn,
            newest_csn=csn,
            hold_bytes=self._hold_bytes,
        )

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[Lsn, Message]]:
        """Yield the ended transactions, each in one piece."""
        assert self._stream is not None
        return self._stream.messages(received, one_by_one=one_by_one)

    def adopt(self, table: TableSchema) -> None:
        """Take the shape under which a table was read again."""
        assert self._stream is not None
        self._stream.adopt(table)

    def forget(self, table: TableId) -> None:
        """Take it that a table is gone."""
        assert self._stream is not None
        self._stream.forget(table)

    def close(self) -> None:
        """Free the disk space of the transactions that are held."""
        if self._stream is not None:
            self._stream.close()
