"""Logical messages: in their transaction, or in one of their own if they belong to none.

Any role can write one, of any size and content, so none of them stops the stream.
"""

from __future__ import annotations

from collections.abc import Callable

from producer.core.changes import Logical
from producer.core.records.messages import MessageWriter
from producer.core.stream.transactions import Transactions
from producer.errors import DecodeError
from schemas.positions import Lsn, lsn_text


class LogicalMessages:
    """Writes the logical messages of one stream."""

    def __init__(
        self,
        writer: MessageWriter,
        transactions: Transactions,
        *,
        max_row_bytes: int,
        note: Callable[[str], None],
    ) -> None:
        self._writer, self._transactions = writer, transactions
        self._max_row_bytes, self._note = max_row_bytes, note
        self._has_left_out = False

    def write(self, message: Logical) -> None:
        """Write a message; one outside of a transaction is numbered as one of its own.

        Its position is where its record ends, and another commit may begin: that one comes later.

        Raises DecodeError for a non-transactional one inside a transaction.
        """
        if len(message.content) + len(message.prefix) > self._max_row_bytes:
            self._leave_out(message)
            return
        lsn, transactions = message.lsn, self._transactions
        if not message.transactional:
            if transactions.begin is not None:
                raise DecodeError(
                    "a non-transactional message inside a transaction", lsn=lsn_text(lsn)
                )
            transactions.redelivery.reached(lsn)
            transactions.open_own(Lsn(lsn - 1))
        if not transactions.is_skipped:
            self._put(message, lsn)
        if not message.transactional:
            transactions.close_own(lsn)

    def _put(self, message: Logical, lsn: Lsn) -> None:
        transactions, writer = self._transactions, self._writer
        if transactions.begin is None:
            raise DecodeError("a message outside its transaction", lsn=lsn_text(lsn))
        constants = transactions.constants or transactions.number()
        key, value = writer.write(message, constants, lsn, in_transaction=message.transactional)
        if len(key) + len(value) > self._max_row_bytes:
            self._leave_out(message)
        else:
            transactions.put_unnumbered(writer.topic, key, value, lsn)

    def _leave_out(self, message: Logical) -> None:
        """Log it once: a role that writes many messages must not fill the log."""
        if not self._has_left_out:
            self._has_left_out = True
            self._note(
                f"a logical message of {len(message.content)} bytes is left out: it is larger than "
                f"kafka.max-row-bytes = {self._max_row_bytes}; others like it are not named"
            )
