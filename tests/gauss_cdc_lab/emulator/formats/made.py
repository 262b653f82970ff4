"""Small transactions for tests."""

from collections.abc import Iterable, Sequence
from typing import Any

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.model import (
    PROFILES,
    Field,
    Heartbeat,
    Item,
    Mode,
    Op,
    Row,
    Sent,
    Transaction,
)
from schemas.positions import Lsn


def insert(lsn: int, *fields: Field, table: str = "t", schema: str = "public") -> Row:
    return Row(Lsn(lsn), Op.INSERT, schema, table, fields or (number("a", 1),), None)


def number(name: str, value: int) -> Field:
    return Field(name, "integer", 23, str(value).encode())


def text(name: str, value: str | None) -> Field:
    return Field(name, "text", 25, None if value is None else value.encode())


def transaction(*items: Item, xid: int = 700, at: int = 0x100, **rest: Any) -> Transaction:
    """A transaction whose commit record lies at `at` + 0x80, of 0x20 bytes."""
    return Transaction(
        **{
            "xid": xid,
            "csn": xid + 2000,
            "first_lsn": Lsn(at),
            "commit_lsn": Lsn(at + 0x80),
            "end_lsn": Lsn(at + 0xA0),
            "committed_at": "2024-12-17 10:00:00.123456+08",
            "items": items,
            **rest,
        }
    )


def sent(
    mode: Mode, fed: Iterable[Transaction | Heartbeat], product: str = "og7", *, idle: bool = True
) -> list[Sent]:
    stream = encoder(mode, PROFILES[product], "utf-8")
    messages = [message for each in fed for message in stream.feed(each)]
    return [*messages, *stream.idle()] if idle else messages


def payloads(messages: Sequence[Sent]) -> list[str]:
    return [message.payload.decode() for message in messages]


def starts(messages: Sequence[Sent]) -> list[int]:
    return [message.start for message in messages]
