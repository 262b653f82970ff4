"""Kafka record headers, all plain UTF-8 text."""

from __future__ import annotations

from typing import Final

from schemas.positions import CommitKey, Lsn, lsn_text

XID: Final = "xid"
CSN: Final = "csn"
LSN: Final = "lsn"
POSITION: Final = "position"
USER: Final = "user"

Headers = list[tuple[str, bytes]]


def transaction_headers(xid: int, csn: int, user: str | None = None) -> Headers:
    """What is constant in a transaction; built once.  A CSN of 0 is none."""
    out = [(XID, str(xid).encode()), *([(CSN, str(csn).encode())] if csn else ())]
    return out if user is None else [*out, (USER, user.encode())]


def row_headers(constant: Headers, lsn: Lsn, position: CommitKey) -> Headers:
    """The headers of one row; `lsn` is the row's own position in the log."""
    return [*constant, (LSN, lsn_text(lsn).encode()), (POSITION, str(position).encode())]
