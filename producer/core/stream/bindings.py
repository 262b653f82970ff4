"""The binding of each relation's rows; a new shape is published and recorded before its first row.

A shape is new where a statement or the catalog reports it, or where a row has another
shape than the one in force.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from producer.core.changes import Relation
from producer.core.router import Binding, table_key
from producer.core.shape_change import ShapeChange, StatementChanges
from producer.core.stream.relations import Relations
from producer.core.stream.transactions import Transactions, csn_of
from producer.core.stream.walk import Walker
from producer.errors import DecodeError, SchemaRefused
from schemas.control import Hole, Origin, SchemaChange
from schemas.positions import Lsn, lsn_text
from schemas.tables import Column, TableSchema
from schemas.types import unseen_renames

_LONG: Final = "the statement is longer than kafka.max-row-bytes, and left out"
_INFERRED: Final = StatementChanges((), Origin.INFERRED)


def _with_unseen(change: ShapeChange) -> ShapeChange:
    """Note a gap where columns come whose values change unseen: no copy is exact for long."""
    if (after := change.after) is None:
        return change
    was = {c.name: c for c in change.before.columns} if change.before is not None else {}
    came = (c for c in after.columns if not _was_unseen(was.get(c.name), c.type_oid))
    if not (why := unseen_renames(came)):
        return change
    holes = (*change.holes, Hole(str(after.id), "seen", why))
    return replace(change, holes=holes, lossy=change.lossy or why)


def _was_unseen(was: Column | None, type_oid: int) -> bool:
    """Say whether a column had this type, with such values: a composite may get an attribute."""
    return was is not None and was.type_oid == type_oid and bool(unseen_renames([was]))


class Bindings:
    """The bindings of one stream."""

    def __init__(
        self,
        *,
        relations: Relations,
        transactions: Transactions,
        publish: Callable[[TableSchema], Binding],
        encode_change: Callable[[SchemaChange], bytes],
        epoch: int,
        max_row_bytes: int,
        quarantines: bool,
        walker: Walker | None = None,
    ) -> None:
        """`quarantines`: a table whose schema the registry refuses is left out, with a gap.

        `walker` takes rows of bound relations where it can.
        """
        self._walker = walker
        self._relations, self._transactions = relations, transactions
        self._publish_table, self._encode_change = publish, encode_change
        self._epoch, self._max_row_bytes = epoch, max_row_bytes
        self._quarantines = quarantines
        self.of: dict[int, Binding | None] = {}  # by relation; None: its rows are not delivered

    def describe(self, relation: Relation) -> None:
        """Take a description: in force from here on."""
        self._relations.describe(relation)
        self._unbind(relation.relation)

    def bind(self, relation_id: int, lsn: Lsn, *, is_shown: bool = False) -> Binding | None:
        """Resolve a relation's shape; a new shape is sent as DDL before the row.

        `is_shown`: the catalog shows it, behind all that statements described.

        None: its rows are not delivered, since nobody wants them or a gap says why.
        """
        relations, transactions = self._relations, self._transactions
        relations.fill(relation_id)
        relation = relations.look_up(relation_id)
        for moved in relations.renamed(relation):
            transactions.hand_over()
            self._record(moved, None, lsn)  # its topic is made with its first row
            self._forget(moved)
        if not relations.is_wanted(relation):
            self._bind(relation_id, None)
            return None
        if columns := relations.withheld(relation):
            table_id = relation.id
            why = f"a column list leaves out columns of its rows: {', '.join(columns)}"
            transactions.add_gap(Hole(str(table_id), "seen", why))
            self._bind(relation_id, None)
            return None
        table, change = relations.resolve(relation, is_shown=is_shown)
        transactions.hand_over()
        binding = self._publish(table)
        if change is not None:
            self._record(change, binding, lsn)
        self._bind(relation_id, binding)
        return binding

    def widen(self, relation_id: int, table: TableSchema, column: str) -> Binding:
        """Allow NULL in a column: a row has one there."""
        wider = self._relations.widen(table.id, column)
        self._transactions.hand_over()
        binding = self._publish_table(wider)
        self._bind(relation_id, binding)
        self._transactions.use_schema(binding.topic, binding.schema_id)
        return binding

    def apply(self, statement: StatementChanges, lsn: Lsn) -> None:
        """Write one record for each table that a statement changed, before the rows that follow.

        Raises DecodeError outside a transaction.
        """
        transactions = self._transactions
        if transactions.is_skipped:
            return
        if transactions.begin is None:
            raise DecodeError("DDL outside a transaction", lsn=lsn_text(lsn))
        self._relations.apply(statement)
        ordinal: int | None = None
        for change in statement.changes:
            transactions.hand_over()
            binding = self._publish(change.after) if change.after is not None else None
            if transactions.constants is None:
                transactions.number()
            ordinal = transactions.ordinal if ordinal is None else ordinal
            self._record(change, binding, lsn, statement, ordinal)
            self._forget(change)

    def follow(self, change: ShapeChange, lsn: Lsn) -> None:
        """Take a change that only the catalog shows."""
        binding = self._publish(change.after) if change.after is not None else None
        self._record(change, binding, lsn)
        self._forget(change)

    def empty(self, relation: int, xid: int) -> None:
        """Take a TRUNCATE: the next row is told, since it binds the relation again."""
        self._relations.empty(relation, xid)
        self._unbind(relation)

    def resolve_again(self) -> None:
        """Resolve every relation with its next row."""
        for relation in list(self.of):
            self._unbind(relation)

    # ------------------------------------------------------------ publication
    def _publish(self, table: TableSchema) -> Binding | None:
        """Register a shape before its first row; None: refused, and its rows are left out."""
        try:
            binding = self._publish_table(table)
        except SchemaRefused as error:
            if not self._quarantines:
                raise
            self._transactions.add_gap(Hole(str(table.id), "seen", f"left out: {error.what}"))
            return None
        self._transactions.use_schema(binding.topic, binding.schema_id)
        return binding

    def _forget(self, change: ShapeChange) -> None:
        """Resolve every relation again from here on, even if its table is not described again."""
        stale = {table.id for table in (change.before, change.after) if table is not None}
        for relation, bound in list(self.of.items()):
            if bound is None or bound.table.id in stale:
                self._unbind(relation)

    def _bind(self, relation: int, binding: Binding | None) -> None:
        self.of[relation] = binding
        if self._walker is None:
            return
        # Rows that are not delivered are left to the source, too: its triggers' table is one.
        if binding is not None and (plan := binding.plan) is not None:
            self._walker.bind(
                relation,
                plan,
                topic=binding.topic,
                partition=binding.partition,
                key=binding.key,
                by_key=binding.key_plan,
            )
        else:
            self._walker.forget(relation)

    def _unbind(self, relation: int) -> None:
        self.of.pop(relation, None)
        if self._walker is not None:
            self._walker.forget(relation)

    def _record(
        self,
        change: ShapeChange,
        binding: Binding | None,
        lsn: Lsn,
        said: StatementChanges = _INFERRED,
        statement: int | None = None,
    ) -> None:
        change, transactions = _with_unseen(change), self._transactions
        begin, constants = transactions.begin, transactions.constants or transactions.number()
        assert begin is not None
        record = replace(
            said.record(change),
            epoch=self._epoch,
            seq=constants.seq,
            ordinal=transactions.ordinal,
            xid=begin.xid,
            csn=csn_of(begin),
            lsn=lsn,
            topic=binding.topic if binding is not None else None,
            statement=statement,
        )
        if (was := change.before) is not None and (
            change.after is None or change.after.id != was.id
        ):
            transactions.end_name(was.id, None if change.after is None else change.after.id)
        if change.moved is not None and change.moved.op == "move" and change.after is not None:
            transactions.move_rows(change.moved.table, change.after.id)
        for gap in change.holes:
            transactions.add_gap(gap)
        table = change.after or change.before
        key = table_key(table.id) if table is not None else (change.identity or "").encode()
        value = self._encode_change(record)
        if len(value) > self._max_row_bytes:  # any role that may run DDL decides its length
            record = replace(record, sql=None, canonical=None, jddl=None, lossy=_LONG)
            value = self._encode_change(record)
            if change.after is not None:
                transactions.add_gap(Hole(str(change.after.id), "seen", _LONG))
        transactions.put_change(key, value, lsn)
