"""Turns a row into records: encodes, keys, routes it; an unfit row is put aside or stops.

Called once per row: hence positional arguments, and as few calls as possible.
"""

from __future__ import annotations

from collections.abc import Callable

from producer.core.changes import Cells
from producer.core.records.encode import NullInRequired
from producer.core.router import Binding
from producer.core.stream.bindings import Bindings
from producer.core.stream.transactions import Transactions
from producer.core.stream.unfit import HINT, UNFIT, WHY, Unfit, of_row, put_aside
from producer.errors import DecodeError, RowTooLarge
from schemas.control import Hole
from schemas.positions import Lsn


class RowWriter:
    """Writes the rows of one stream into its transactions."""

    def __init__(
        self,
        *,
        bindings: Bindings,
        transactions: Transactions,
        max_row_bytes: int,
        put_aside: Callable[[Unfit], None] | None,
    ) -> None:
        """`put_aside` takes rows that are unfit; None: the stream stops before one."""
        self._bindings, self._transactions = bindings, transactions
        self._max_row_bytes, self._put_aside = max_row_bytes, put_aside

    def write(  # noqa: PLR0917
        self,
        relation: int,
        op: str,
        old_kind: str,
        old: Cells | None,
        new: Cells | None,
        lsn: Lsn,
    ) -> None:
        """Write a row of the open transaction.

        `relation`: its number in the stream; `op`: c, u or d; `old_kind`: what `old` has, as in
        `Update`.  Raises DecodeError outside a transaction; RowTooLarge or Unsupported for a row
        that cannot be written, unless such are put aside.
        """
        transactions = self._transactions
        if transactions.is_skipped:
            return
        if transactions.begin is None:
            raise DecodeError("a row outside a transaction", relation=relation)
        try:
            binding = self._bindings.of[relation]
        except KeyError:
            binding = self._bindings.bind(relation, lsn)
        if binding is None:
            return
        constants = transactions.constants or transactions.number()
        first = transactions.ordinal
        events = 0 if constants.counted is None else constants.counted.total
        try:
            value = self._encode(relation, binding, op, old_kind, old, new, lsn)
            if binding.key_at:
                self._put_keyed(relation, binding, old_kind, old, new, value, lsn)
            else:
                transactions.put(binding.topic, binding.partition, binding.key, value, lsn)
        except UNFIT as error:
            table, position = binding.table, transactions.position
            if self._put_aside is None:
                raise of_row(error, table, position) from error
            if constants.counted is not None:
                constants.counted.take_back(str(table.id), events + transactions.ordinal - first)
            self._put_aside(
                put_aside(error, table, op=op, before=old, after=new, lsn=lsn, position=position)
            )
            transactions.add_gap(Hole(str(table.id), "seen", WHY), tables=())

    def truncate(self, relations: tuple[int, ...], lsn: Lsn) -> None:
        """Write one `t` per table and partition; those of one statement are adjacent.

        Raises DecodeError outside a transaction.
        """
        transactions = self._transactions
        if transactions.is_skipped:
            return
        if transactions.begin is None:
            raise DecodeError("TRUNCATE outside a transaction")
        for relation in relations:
            binding = self._bindings.of.get(relation) or self._bindings.bind(relation, lsn)
            if binding is None:
                continue
            constants = transactions.constants or transactions.number()
            # Where keys are Avro, a text would break readers; a TRUNCATE means no row: no key.
            key = binding.key if binding.key_of is None else None
            for partition in binding.every_partition():
                value = binding.encoder.encode(
                    "t", "", None, None, constants, lsn, transactions.ordinal
                )
                transactions.put(binding.topic, partition, key, value, lsn)

    def _put_keyed(  # noqa: PLR0917
        self,
        relation: int,
        binding: Binding,
        old_kind: str,
        old: Cells | None,
        new: Cells | None,
        value: bytes,
        lsn: Lsn,
    ) -> None:
        topic, put = binding.topic, self._transactions.put
        if new is None:
            assert old is not None
            put(topic, *binding.place(old), value, lsn)
            if binding.tombstones:  # not a row: compaction may drop the key
                put(topic, *binding.place(old), None, lsn)
            return
        moved_from: Cells | None = None
        if old is not None:
            new, moved_from = binding.moved(old, new)
        put(topic, *binding.place(new), value, lsn)
        if moved_from is not None:
            # After the update, which may take unsent values from the row removed here.
            value = self._encode(relation, binding, "d", old_kind, moved_from, None, lsn)
            put(topic, *binding.place(moved_from), value, lsn)
            if binding.tombstones:
                put(topic, *binding.place(moved_from), None, lsn)

    def _encode(  # noqa: PLR0917
        self,
        relation: int,
        binding: Binding,
        op: str,
        old_kind: str,
        old: Cells | None,
        new: Cells | None,
        lsn: Lsn,
    ) -> bytes:
        width, transactions = len(binding.table.columns), self._transactions
        for cells in (old, new):
            if cells is not None and len(cells) != width:
                raise DecodeError(
                    "a row does not fit its relation",
                    table=binding.table.id,
                    columns=width,
                    cells=len(cells),
                )
        constants = transactions.constants
        assert constants is not None
        while True:
            try:
                value = binding.encoder.encode(
                    op, old_kind, old, new, constants, lsn, transactions.ordinal
                )
            except NullInRequired as problem:
                binding = self._bindings.widen(relation, binding.table, problem.column)
                continue
            break
        if len(value) > self._max_row_bytes:
            raise RowTooLarge(
                "a row is larger than kafka.max-row-bytes",
                table=binding.table.id,
                bytes=len(value),
                limit=self._max_row_bytes,
                position=transactions.position,
                hint=HINT,
            )
        return value
