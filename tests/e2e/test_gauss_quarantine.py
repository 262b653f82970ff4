"""An undecodable message is kept with its position; then the stream stops, or has a gap."""

import gzip
import json
from dataclasses import replace

import pytest
from confluent_kafka import Consumer

from gauss_cdc_lab.emulator import recording
from producer.errors import DecodeError
from producer.sources.dial import parse_dsn
from tests.e2e.path import Path, ask, until
from tests.e2e.test_gauss_golden import GOLDEN, PASSWORD, USER, replayed

NAME = "capture_names_par_b_batch0.jsonl.gz"
LETTER = 25 + 12  # behind the headers of XLogData and of the record


def damaged(folder, kind):
    """The recording with a letter that no plugin writes, in the third record of a kind."""
    lines = gzip.decompress((GOLDEN / NAME).read_bytes()).decode().splitlines()
    rows = 0
    for at, line in enumerate(lines):
        event = json.loads(line)
        body = bytearray.fromhex(event.get("hex", ""))
        if event.get("sub") == "w" and body[LETTER : LETTER + 1] == kind:
            rows += 1
            if rows == 3:
                body[LETTER] = ord("Z")
                lines[at] = json.dumps({**event, "hex": body.hex()})
                payload = bytes(body[25:])
                break
    path = folder / NAME
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode()))
    return recording.load(path), payload


def quarantined(kafka: str, topic: str):
    consumer = Consumer(
        {"bootstrap.servers": kafka, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        return message.value(), dict(message.headers())
    finally:
        consumer.close()


@pytest.fixture
def path(addresses, topic_prefix, new_database, tmp_path, request):
    found, payload = damaged(tmp_path, getattr(request, "param", b"I"))
    scratch, target = new_database(), new_database()
    with (
        replayed(found, "tables_names.json.gz", scratch) as emulator,
        Path(
            addresses,
            topic_prefix,
            scratch,
            target,
            kind="opengauss",
            plugin=found.plugin,
            plugin_options=dict(found.header["options"]),
            include=("*.*",),
            without_identity="skip-and-record",
        ) as path,
    ):
        dsn = f"postgresql://{USER}@127.0.0.1:{emulator.port}/{found.database}?sslmode=disable"
        path.options = replace(path.options, source=parse_dsn(dsn, PASSWORD))
        yield path, payload, max(t.end_lsn for t in found.transactions if t.items)


def test_the_stream_stops_before_them_and_they_are_kept(path, kafka) -> None:
    path, payload, _ = path
    path.start()
    until(lambda: path.failure is not None, "the stop", path._stop.wait)

    value, headers = quarantined(kafka, f"{path.prefix}.quarantine")
    assert value in payload  # the record, without its length and what separates it from the next
    assert value[8:9] == b"Z"
    assert headers["reason"]
    with pytest.raises(DecodeError, match="unknown-message"):
        path.stop()
    path.failure = None


# Without its BEGIN a whole transaction is lost: nothing is open then that could have a hole.
@pytest.mark.parametrize("path", [b"I", b"B"], indirect=True, ids=["a row", "a BEGIN"])
def test_on_request_the_stream_continues_and_the_cut_has_a_gap(path, kafka) -> None:
    path, _, last = path
    path.options = replace(path.options, unknown_message="quarantine")
    path.start()
    ledger = path.catch_up_to(last)

    assert quarantined(kafka, f"{path.prefix}.quarantine")[0][8:9] == b"Z"
    assert "*" in ledger.inexact
    assert ask(path.target, 'SELECT count(*) > 1 FROM "My Schema"."Upper Table"') == [(True,)]
