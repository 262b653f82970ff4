"""pgoutput's rows with the names that were in force where they stand."""

import json
from typing import Any

import pytest

from gauss_cdc_lab.recordings.transactions import RecordedStream, RecordedTransaction
from producer.errors import DecodeError
from producer.sources.decoders import Format
from tests.producer.sources.gauss.decoders.ledgers import GOLDEN

BEGIN = b"B" + bytes(16) + (7).to_bytes(4, "big")
COMMIT = b"C" + bytes(25)


def sent(vector: str) -> list[bytes]:
    """Messages that a PostgreSQL sent."""
    golden: Any = json.loads((GOLDEN.parent / "pgoutput" / f"{vector}.json").read_text("utf-8"))
    return [bytes.fromhex(message["hex"]) for message in golden["messages"]]


def read(*payloads: bytes) -> list[RecordedTransaction]:
    stream = RecordedStream(Format("pgoutput"), {})
    return [txn for at, payload in enumerate(payloads) for txn in stream.feed(at, payload)]


def test_a_row_has_the_columns_of_the_description_before_it_within_a_transaction_too() -> None:
    messages = [m for m in sent("column_added_and_dropped") if m[:1] not in b"BC"]
    assert [m[:1] for m in messages] == [b"R", b"I"] * (len(messages) // 2)

    (txn,) = read(BEGIN, *messages, COMMIT)
    apart = [
        change
        for at in range(0, len(messages), 2)
        for each in read(BEGIN, *messages[at : at + 2], COMMIT)
        for change in each.changes
    ]

    assert list(txn.changes) == apart
    assert len({tuple(name for name, _ in change.after) for change in apart}) > 1


def test_a_truncated_table_is_named_as_it_was_described() -> None:
    changes = [change for txn in read(*sent("truncate")) for change in txn.changes]

    assert any(getattr(change, "tables", ()) for change in changes)


@pytest.mark.parametrize("tag", [b"I", b"T"])
def test_a_relation_that_was_not_described_is_damage(tag: bytes) -> None:
    row = next(m for v in ("insert", "truncate") for m in sent(v) if m[:1] == tag)

    with pytest.raises(DecodeError, match="did not describe"):
        read(BEGIN, row, COMMIT)


@pytest.mark.parametrize("payload", [b"", b"?", b"I", b"C", COMMIT + b"x"])
def test_an_undecodable_message_is_damage(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        read(BEGIN, payload)
