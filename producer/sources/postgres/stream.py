"""pgoutput's messages, with the records of our event triggers converted into schema changes.

A record is a row of our own table, in the statement's transaction.  It becomes the
statement's changes, at its position: later modules do not depend on triggers.

`CREATE TABLE AS` writes its rows before its trigger runs: rows of an unknown table wait for
their record, within the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Message,
    Relation,
    SentAgain,
    StatementsDescribed,
    Stretch,
    Truncate,
    Undecoded,
    Update,
)
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.core.stream.inference import difference
from producer.errors import DecodeError
from producer.sources.postgres.triggers import records
from producer.sources.postgres.triggers.follow import Follower
from producer.sources.postgres.triggers.records import Trust
from producer.wire.replication import WalMessage
from schemas.control import Origin
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.system_schemas import OWN_SCHEMA
from schemas.tables import TableId, TableSchema

Judge = Callable[[int], Trust]  # who may write to the table with an oid

WAITING_MESSAGES: Final = 20_000  # for a new table's record; then its relation is used
_CHANNEL: Final = TableId(OWN_SCHEMA, records.CHANNEL)
_ROWS: Final = (Update, Delete)
_CHANGES: Final = (Insert, Update, Delete, Truncate)
_MOST_DECODED: Final = 256  # messages in a row that are not the native walker's


class PgoutputStream:
    """One stream from START_REPLICATION on."""

    def __init__(
        self,
        decode: Callable[[bytes], Message],
        known: dict[TableId, TableSchema],
        *,
        wanted: Callable[[TableId], bool],
        publication: str,
        judge: Judge,
        name_now: Callable[[int], TableId | None] = lambda _: None,
        resume: Lsn = NOWHERE,
        has_triggers: bool = False,
        on_begin: Callable[[int], None] = lambda _xid: None,
        hidden: set[TableId] | None = None,
    ) -> None:
        """`known`: the tables in force, shared with the assembler; as of `resume`.

        `name_now` returns the present name of the table with an oid; None if it is gone.
        `has_triggers`: event triggers describe each statement.  `hidden` tables are wanted
        later; one whose creation the stream reports is taken out of them.
        """
        self._decode, self._known, self._wanted = decode, known, wanted
        self._judge, self._resume, self._on_begin = judge, resume, on_begin
        hidden = set() if hidden is None else hidden
        self._follower = Follower(known, wanted, publication, difference, name_now, hidden)
        self.has_triggers = has_triggers
        self._relations: dict[int, Relation] = {}
        self._said: dict[int, TableId] = {}  # their names as the stream has them
        self._channels: dict[int, Trust] = {}  # relations that our triggers write to
        self._judged: dict[int, Trust] = {}  # the same, and those of other roles
        self._lost: set[int] = set()  # of these, the ones whose records cannot be verified
        self._watched: set[int] = set()  # channels, and relations of unknown tables
        self._begin: Begin | None = None
        self._is_delivered = False  # the open transaction: it is sent again
        self._waiting: list[tuple[Lsn, Message]] = []  # from a row of an undescribed table on
        self._waits_no_more = False

    def messages(
        self, received: Sequence[WalMessage], *, one_by_one: bool = False
    ) -> Iterator[tuple[Lsn, Message]]:
        """Decode lazily: yield (position, message); `one_by_one`: leave none to the walker."""
        decode, watched, waiting = self._decode, self._watched, self._waiting
        stretch, size = Stretch(received), len(received)
        burst = 1  # messages that are decoded here before the native walker is asked again
        while stretch.at < size:
            if one_by_one:
                burst = _MOST_DECODED
            elif not waiting:
                at = stretch.at
                yield NOWHERE, stretch
                if stretch.at > at:
                    self._overtaken(stretch)
                    burst = 1
                else:
                    burst = min(2 * burst, _MOST_DECODED)
            end = min(stretch.at + burst, size)
            while stretch.at < end:
                start, _, payload = received[stretch.at]
                stretch.at += 1
                try:
                    message = decode(payload)
                except DecodeError as error:
                    message = Undecoded(payload, str(error))
                if waiting:
                    yield from self._wait(start, message)
                elif self._is_delivered and isinstance(message, _CHANGES):
                    yield start, self._again(message)
                elif (
                    message.relation not in watched
                    if isinstance(message, Insert)
                    else isinstance(message, _ROWS)
                ):
                    yield start, message
                else:
                    yield from self._rare(start, message)

    def _overtaken(self, stretch: Stretch) -> None:
        """Take what the native walker has seen."""
        begin, was = stretch.begin, self._begin
        if begin is None or was is None or begin.commit_lsn != was.commit_lsn:
            self._waits_no_more = False
        self._begin = begin
        self._is_delivered = begin is not None and begin.commit_lsn < self._resume
        for xid in stretch.begun:
            self._on_begin(xid)

    def _rare(self, lsn: Lsn, message: Message) -> Iterator[tuple[Lsn, Message]]:
        match message:
            case Begin():
                self._on_begin(message.xid)
                self._begin = message
                self._is_delivered = message.commit_lsn < self._resume
            case Commit():
                self._begin, self._waits_no_more, self._is_delivered = None, False, False
            case Relation():
                message = self._described(message)
            case Insert(relation, cells) if relation in self._channels:
                yield from self._recorded(relation, cells, lsn)
                return
            case Insert(relation) if self._awaits(relation):
                self._waiting.append((lsn, message))
                return
            case _:
                pass
        yield lsn, message

    def _again(self, message: Insert | Update | Delete | Truncate) -> SentAgain:
        """Name the tables as they were called there: known names are later ones.

        By their oids a table is found that never had this name in what was delivered.
        """
        oids = message.relations if isinstance(message, Truncate) else (message.relation,)
        return SentAgain([self._said[oid] for oid in oids if oid in self._said], oids)

    # ------------------------------------------------------------ relations
    def _described(self, relation: Relation) -> Relation:
        """Take a description; an earlier name is replaced by the current one."""
        oid, said = relation.relation, relation.id
        self._said[oid] = said
        if said == _CHANNEL:
            self._judge_channel(relation)
        if self.has_triggers and (now := self._follower.named(oid, said)) != said:
            relation = replace(relation, schema=now.schema, table=now.name)
        self._relations[oid] = relation
        self._watch(relation)
        return relation

    def _judge_channel(self, relation: Relation) -> None:
        """Find out who may write to a table with the name of our triggers' table.

        The catalog is read each time: rights may have been granted since.  A dropped table
        keeps its state.
        """
        oid = relation.relation
        trust = self._judge(oid)
        if tuple(column.name for column in relation.columns) != records.COLUMNS:
            trust = Trust.FOREIGN
        if trust is Trust.UNKNOWN and self._judged.get(oid) is Trust.OURS:
            trust = Trust.OURS
        self._judged[oid] = trust
        if trust is Trust.FOREIGN:
            self._channels.pop(oid, None)
        else:
            self._channels[oid] = trust

    def _watch(self, relation: Relation) -> None:
        if relation.relation in self._channels or self._is_new(relation):
            self._watched.add(relation.relation)
        else:
            self._watched.discard(relation.relation)

    def _is_new(self, relation: Relation) -> bool:
        table = relation.id
        return table not in self._known and self._wanted(table)

    # ------------------------------------------------------------ rows that come first
    def _awaits(self, oid: int) -> bool:
        """Say whether this transaction must still contain a record about this table."""
        if self._begin is None or self._is_delivered or (at := self._relations.get(oid)) is None:
            return False
        if not self._is_new(at):
            self._watched.discard(oid)
            return False
        return self.has_triggers and not self._waits_no_more

    def _wait(self, lsn: Lsn, message: Message) -> Iterator[tuple[Lsn, Message]]:
        """Keep messages until the new table's record; then yield all of them, in order."""
        waiting = self._waiting
        if isinstance(message, Relation) and (message.schema, message.table) == _CHANNEL:
            yield lsn, self._described(message)
            return
        if isinstance(message, Insert) and message.relation in self._channels:
            first = waiting[0][1]
            assert isinstance(first, Insert)
            yield from self._recorded(message.relation, message.new, lsn)
            if self._awaits(first.relation):
                return
        else:
            waiting.append((lsn, message))
            if not isinstance(message, Commit) and len(waiting) < WAITING_MESSAGES:
                return
            self._waits_no_more = True  # there is no record: the relation's description is used
        kept = list(waiting)
        waiting.clear()
        for pair in kept:
            yield from self._wait(*pair) if waiting else self._rare(*pair)

    # ------------------------------------------------------------ records
    def _recorded(self, oid: int, cells: Cells, lsn: Lsn) -> Iterator[tuple[Lsn, Message]]:
        """A statement ended at this position: shapes change here, before the rows after it."""
        if self._begin is None:
            raise DecodeError("a schema change outside a transaction", lsn=lsn_text(lsn))
        if self._channels[oid] is Trust.UNKNOWN:
            if oid not in self._lost:
                self._lost.add(oid)
                yield from self._all_lost(
                    lsn,
                    "schema changes were recorded, but their author cannot be verified",
                )
            return
        body = cells[1] if len(cells) == len(records.COLUMNS) else None
        try:
            record = records.read(body if isinstance(body, bytes) else b"")
        except DecodeError as error:  # of another release, maybe: no restart would help
            yield from self._all_lost(lsn, f"a schema change was recorded: {error.what}")
            return
        has_triggers = record.event != "uninstall"
        if has_triggers != self.has_triggers:
            self.has_triggers = has_triggers
            yield lsn, StatementsDescribed(has_triggers)
        if not has_triggers:
            return
        changes = self._follower.follow(
            record, lsn, self._begin.commit_lsn, is_older=lsn < self._resume
        )
        if changes:
            yield (
                lsn,
                StatementChanges(
                    tuple(changes),
                    Origin.TRIGGER,
                    record.sql,
                    settings=record.settings,
                    files=record.files,
                ),
            )
        for renamed in self._renamed(changes):
            yield lsn, renamed
        for relation in self._relations.values():
            self._watch(relation)

    def _all_lost(self, lsn: Lsn, why: str) -> Iterator[tuple[Lsn, Message]]:
        """All tables are uncertain from here on."""
        if changes := tuple(self._follower.all_unknown("", why)):
            yield lsn, StatementChanges(changes, Origin.TRIGGER)

    def _renamed(self, changes: list[ShapeChange]) -> Iterator[Relation]:
        """Describe tables with their new names; the stream's relation ids are oids.

        A renamed partitioned table is not described again: its partitions are, with their next
        change.
        """
        for change in changes:
            after = change.after
            if after is None or (known := self._relations.get(after.oid)) is None:
                continue
            named = replace(known, schema=after.id.schema, table=after.id.name)
            if named != known:
                self._relations[after.oid] = named
                yield named
