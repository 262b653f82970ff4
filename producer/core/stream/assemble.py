"""Messages -> records with a `CommitKey`, one source transaction after the other.

Each message goes to the module that handles it: `transactions` assigns numbers, `bindings`
publishes shapes, `row_writer` writes rows, `logical_messages` writes what clients put into the
log.  Access to registry and topics is passed in as callables, called once per table version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, assert_never

from producer.core.catalog.catalog_differences import Altered, Described, Dropped, Finding, Unseen
from producer.core.changes import (
    Begin,
    Commit,
    Delete,
    Insert,
    Logical,
    Lost,
    Mark,
    Message,
    OriginMessage,
    Relation,
    SentAgain,
    StatementsDescribed,
    Stretch,
    Truncate,
    TypeMessage,
    Undecoded,
    Update,
)
from producer.core.events import Happened
from producer.core.records.messages import MessageWriter
from producer.core.records.transaction_topic import TransactionWriter
from producer.core.router import Binding
from producer.core.shape_change import StatementChanges
from producer.core.stream.bindings import Bindings
from producer.core.stream.logical_messages import LogicalMessages
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.relations import Relations
from producer.core.stream.row_writer import RowWriter
from producer.core.stream.transactions import Transactions
from producer.core.stream.unfit import Unfit
from producer.core.stream.walk import MAX_ROWS, Walker
from producer.errors import DecodeError
from schemas.control import ANY, Hole, SchemaChange
from schemas.positions import Lsn, lsn_text
from schemas.tables import TableId, TableSchema

# Descriptions behind a statement are of tables that it named, until a row comes: of its record.
_NAMED: Final = -1


@dataclass(frozen=True, slots=True)
class AssemblerPorts:
    """The calls by which the assembler reaches registry, topics and quarantine."""

    publish: Callable[[TableSchema], Binding]  # topic made, schema registered, encoder compiled
    encode_change: Callable[[SchemaChange], bytes]
    now_us: Callable[[], int]
    put_aside: Callable[[Unfit], None] | None = None  # None: an unfit row stops


class Assembler:
    """Turns the messages of one stream into rows for the engine."""

    def __init__(
        self,
        *,
        relations: Relations,
        ports: AssemblerPorts,
        epoch: int,
        seq: int,
        redelivery: Redelivery,
        ddl_topic: str,
        max_row_bytes: int,
        messages: MessageWriter | None = None,
        frames: TransactionWriter | None = None,
        quarantines: bool = False,
        note: Callable[[str], None] = lambda _: None,
        walker: Walker | None = None,
        positions_are_csns: bool = True,
    ) -> None:
        """`messages` writes logical messages, `frames` BEGIN and END; None: these are not written.

        `quarantines`: a table whose schema the registry refuses is left out, with a gap.
        `redelivery` says which transactions were delivered before.
        `walker`: the native one, where it is built; it does not number events for `frames`.
        """
        self._walker, self._now_us = walker if frames is None else None, ports.now_us
        self._relations = relations
        self._transactions = Transactions(
            epoch=epoch,
            seq=seq,
            redelivery=redelivery,
            now_us=ports.now_us,
            ddl_topic=ddl_topic,
            frames=frames,
            positions_are_csns=positions_are_csns,
        )
        self._bindings = Bindings(
            relations=relations,
            transactions=self._transactions,
            publish=ports.publish,
            encode_change=ports.encode_change,
            epoch=epoch,
            max_row_bytes=max_row_bytes,
            quarantines=quarantines,
            walker=self._walker,
        )
        self._rows = RowWriter(
            bindings=self._bindings,
            transactions=self._transactions,
            max_row_bytes=max_row_bytes,
            put_aside=ports.put_aside,
        )
        self._described = 0  # the relation that the newest message described; 0: none, see _NAMED
        self._messages: LogicalMessages | None = None
        if messages is not None:
            self._messages = LogicalMessages(
                messages, self._transactions, max_row_bytes=max_row_bytes, note=note
            )

    @property
    def is_open(self) -> bool:
        """Say whether a source transaction is open in the stream."""
        return self._transactions.begin is not None

    @property
    def has_compared(self) -> bool:
        """Say whether all that the source sent again is what was delivered."""
        return self._transactions.redelivery.is_over

    def reached(self, position: Lsn) -> None:
        """Take note that the source has sent everything committed before a position."""
        self._transactions.redelivery.reached(position)

    def feed(self, messages: Iterable[tuple[Lsn, Message]]) -> list[Happened]:
        """Take (WAL position, message) pairs; return what happened, rows in batches.

        Raises DecodeError for what cannot stand there, or be decoded; and what stops before a row.
        """
        write = self._rows.write
        for lsn, message in messages:
            if self._described:
                self._follow_description(message)
            match message:
                case Insert(relation, new):
                    write(relation, "c", "", None, new, lsn)
                case Update(relation, old_kind, old, new):
                    write(relation, "u", old_kind, old, new, lsn)
                case Delete(relation, old_kind, old):
                    write(relation, "d", old_kind, old, None, lsn)
                case Begin():
                    self._transactions.open(message)
                case Commit():
                    self._transactions.close(message)
                case Relation():
                    self._bindings.describe(message)
                    self._described = _NAMED if self._described == _NAMED else message.relation
                case Truncate(relations):
                    self._truncate(relations, lsn)
                case StatementChanges():
                    self._bindings.apply(message, lsn)
                    self._described = _NAMED
                case StatementsDescribed(is_on):
                    self._relations.describe_statements(is_on=is_on)
                case Logical() if self._messages is not None:
                    self._messages.write(message)
                case TypeMessage() | OriginMessage() | Logical() | Mark():
                    pass  # names come from the catalog; logical messages are opt-in
                case Lost():
                    self._lose(message)
                case SentAgain(tables, oids):
                    self._transactions.redelivery.rows_of(tables, oids)
                case Stretch():
                    self._walk(message)
                case Undecoded():
                    raise DecodeError("undecodable message", why=message.why, lsn=lsn_text(lsn))
                case _:
                    assert_never(message)
        return self._transactions.take()

    def adopt(self, table: TableSchema) -> None:
        """Take a table as it was read again, at a place between two transactions."""
        self._relations.adopt(table)
        self._bindings.resolve_again()

    def explain(self, findings: Iterable[Finding], position: Lsn) -> list[Happened]:
        """Put changes that only the catalog showed into a transaction of their own.

        `position`: everything committed before it was fed, nothing after it.
        """
        relations, bindings, transactions = self._relations, self._bindings, self._transactions
        transactions.open_own(position)
        for finding in findings:
            match finding:
                case Described(_, relation):
                    bindings.describe(relation)
                    bindings.bind(relation.relation, position, is_shown=True)
                case Dropped(known=table):
                    bindings.follow(relations.drop(table), position)
                case Altered(_, before, after, why):
                    bindings.follow(relations.alter(before, after, why), position)
                case Unseen():
                    transactions.add_gap(finding.gap)
                case _:
                    assert_never(finding)
        transactions.close_own(position)
        return transactions.take()

    def _truncate(self, relations: tuple[int, ...], lsn: Lsn) -> None:
        self._rows.truncate(relations, lsn)
        begin = self._transactions.begin
        if begin is not None and not self._transactions.is_skipped:
            for relation in relations:
                self._bindings.empty(relation, begin.xid)

    def _follow_description(self, message: Message) -> None:
        """See that a row is of the relation that was described for it, the last of them.

        The source describes a root, then the partition that has the row.
        """
        match message:
            case TypeMessage() | Relation() | Stretch() | StatementChanges():
                return
            case Insert(root, _) | Update(root, _, _, _) | Delete(root, _, _):
                is_other = self._described not in {root, _NAMED}
                if is_other and not self._transactions.is_skipped:
                    for gap in self._relations.sent_as(self._described, root):
                        self._transactions.add_gap(gap)
        self._described = 0

    def _walk(self, stretch: Stretch) -> None:
        """Let the native walker take what it can; it tells no tables of what it drops."""
        transactions = self._transactions
        if self._walker is None or transactions.redelivery.is_unknown:
            return
        walk = self._walker.walk(
            stretch.messages,
            stretch.at,
            transactions.lend(),
            now_us=self._now_us(),
            max_rows=MAX_ROWS,
        )
        if walk.at != stretch.at:
            self._described = 0
        stretch.at, stretch.begun = walk.at, walk.begun
        stretch.begin = transactions.take_back(walk)

    def _lose(self, lost: Lost) -> None:
        """Note a gap of the open transaction."""
        if self._transactions.is_skipped:
            return
        if not self.is_open:
            raise DecodeError("a loss outside a transaction", why=lost.why)
        table = TableId(lost.schema, lost.table)
        if not lost.schema:
            tables = map(str, self._relations.known)
            self._transactions.add_gap(Hole(ANY, lost.kind, lost.why), tables=tables)
        elif self._relations.wants(table):
            self._transactions.add_gap(Hole(str(table), lost.kind, lost.why))
