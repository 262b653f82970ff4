"""What is written natively is what Python would have written, and where it is refused.

Under AddressSanitizer: build and preload as `make fuzz` does, and run
`pytest -s tests/producer/kafka/test_native_writer.py tests/producer/kafka/test_delivery.py`.
"""

import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from producer.core.events import Record, Records, TransactionEnded
from producer.core.records.encode import TransactionConstants, compile_encoder
from producer.errors import GroupUnusable, RowTooLarge
from producer.kafka.client import LOGGED
from producer.kafka.delivery import Delivery
from producer.kafka.native_writer import NativeWriter, choose
from producer.kafka.writer import ConfluentWriter, Writer
from producer.native import NativeParts, ProducerRefused, _native, parts
from schemas.tables import Column, TableId, TableSchema
from tests.writers import WRITERS, Native, WriterClass

CONSTANTS = TransactionConstants(
    xid=0, csn=5, epoch=3, seq=0, committed_at_us=1, now_us=2, commit_lsn=5, snapshot="true"
)
ROWS: list[Record] = [
    ("rows", 0, b"key", b"value", [("xid", b"1"), ("user", "ü".encode()), ("empty", b"")]),
    ("rows", 1, b"key", None, [("xid", b"2")]),
    ("rows", 0, None, b"no key, no headers", []),
    ("others", 2, b"", b"", [("xid", b"2"), ("xid", b"3")]),
]


@pytest.fixture
def broker() -> Iterator[str]:
    """A broker inside librdkafka."""
    cluster = Producer({"test.mock.num.brokers": 1, "log_level": 0})
    (broker,) = cluster.list_topics(timeout=30).brokers.values()
    yield f"{broker.host}:{broker.port}"
    cluster.flush(1)


@pytest.fixture(params=WRITERS)
def writer(request: pytest.FixtureRequest) -> WriterClass:
    made: WriterClass = request.param
    return made


def deliver(writer: Writer, records: Records) -> list[tuple[str, int, int, int]]:
    assert writer.send(records, 0) == len(records)
    while writer.flush(10):
        pass
    taken = writer.take()
    writer.close()
    return taken


def stored(broker: str, count: int) -> set[tuple[Any, ...]]:
    """Read back what the topics hold."""
    consumer = Consumer({"bootstrap.servers": broker, "group.id": "x", "log_level": 0})
    consumer.assign([TopicPartition(t, p, 0) for t in ("rows", "others") for p in range(4)])
    out: set[tuple[Any, ...]] = set()
    while len(out) < count:
        found = consumer.poll(30)
        assert found is not None
        assert found.error() is None
        out.add(
            (found.topic(), found.partition(), found.offset(), found.key(), found.value(),
             tuple(found.headers() or ()))
        )  # fmt: skip
    consumer.close()
    return out


def numbered(records: Records) -> set[tuple[Any, ...]]:
    """Records with the offsets that they have in topics that were empty."""
    out: set[tuple[Any, ...]] = set()
    for topic, partition, key, value, headers in records:
        offset = sum(1 for known in out if known[:2] == (topic, partition))
        out.add((topic, partition, offset, key, value, tuple(headers)))
    return out


def test_records_are_read_as_they_were_sent(broker: str, writer: WriterClass) -> None:
    made = writer({"bootstrap.servers": broker, "enable.idempotence": True, "acks": "all"})

    assert sorted(deliver(made, ROWS)) == [
        ("others", 2, 0, 1),
        ("rows", 0, 0, 2),
        ("rows", 1, 0, 1),
    ]
    assert stored(broker, len(ROWS)) == numbered(ROWS)


def test_an_acknowledgement_without_an_offset_is_reported_as_unknown(
    broker: str, writer: WriterClass
) -> None:
    made = writer({"bootstrap.servers": broker, "acks": 0})

    assert deliver(made, ROWS[:1] * 2) == [("rows", 0, -1, 0), ("rows", 0, -1, 0)]


def test_settings_are_taken_alike(broker: str, writer: WriterClass) -> None:
    settings = {**LOGGED, "enable.idempotence": True, "linger.ms": 0.5, "retries": 3}
    deliver(writer({**settings, "bootstrap.servers": broker}), ROWS)


def test_a_record_that_librdkafka_refuses_raises(nobody: str, writer: WriterClass) -> None:
    made = writer({"bootstrap.servers": nobody, "message.max.bytes": 1000})

    with pytest.raises(RowTooLarge):
        made.send([("rows", 0, None, bytes(2000), [])], 0)
    made.close()


def test_records_that_were_given_up_are_no_success(nobody: str, writer: WriterClass) -> None:
    made = writer({"bootstrap.servers": nobody, **LOGGED})
    made.send(ROWS, 0)
    made.purge()

    with pytest.raises(GroupUnusable):
        made.flush(10)
    assert made.take() == []
    assert made.progress == 0
    made.close()


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, ValueError])
def test_what_a_callback_raises_its_call_raises(
    nobody: str, writer: WriterClass, raised: type[BaseException]
) -> None:
    class Raising(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            raise raised(record.getMessage())

    LOGGED["logger"].addHandler(handler := Raising())
    made = writer({"bootstrap.servers": nobody, **LOGGED})

    with pytest.raises(raised, match="Connection refused"):
        made.poll(30)
    LOGGED["logger"].removeHandler(handler)
    made.close()


# ---------------------------------------------------------------- the native one
def found() -> NativeParts:
    made = parts("auto")
    assert made is not None
    return made


def batch(native: NativeParts, *, rows: int) -> Records:
    """Rows of two transactions, the second one open."""
    ended = TransactionEnded(
        seq=9, xid=2**32 - 1, csn=2**64 - 1, commit_start=1, end_lsn=2, committed_at=3, rows=rows
    )
    return _native.batch_of(
        native.places,
        1_700_000_000,
        [(9, 2**32 - 1, 2**64 - 1, ended), (10, 1, 0, None)],
        [
            (
                at * 2 // rows,
                ("rows", "others")[at % 2],
                at % 3,
                b"k%d" % at if at % 7 else None,
                b"v" * at if at % 9 else None,  # a tombstone
                at,
                at * 0x1_0000_000F,
            )
            for at in range(rows)
        ],
    )


def test_a_batch_is_stored_as_python_would_write_it(broker: str) -> None:
    native = found()
    native.places.number("elsewhere", 7)  # numbers are of more than one batch
    records = batch(native, rows=100)
    made = NativeWriter({"bootstrap.servers": broker}, native)

    acknowledged = deliver(made, records)

    assert stored(broker, 100) == numbered(records)
    assert sum(end - start for *_, start, end in acknowledged) == 100
    assert len(acknowledged) == 6  # one run a place


def test_a_chunk_of_a_load_is_stored_as_python_would_write_it(broker: str) -> None:
    table = TableSchema(TableId("s", "t"), (Column("id", 20, nullable=False),), ("id",))
    plan = compile_encoder(table, prefix="p", schema_id=7, database="d").plan
    assert plan is not None
    native = found()
    chunk = native.chunk(plan, CONSTANTS, topic="rows", partition=1, key=b"key", max_row_bytes=1000)
    chunk.take([[b"%d" % at] for at in range(9)], 0, 9, 0)
    chunk.put(2, b"another key", b"value", 9)
    records = chunk.finish()

    deliver(NativeWriter({"bootstrap.servers": broker}, native), records)

    assert stored(broker, 10) == numbered(records)


def test_a_batch_stops_where_the_queue_is_full_and_goes_on(nobody: str) -> None:
    native = found()
    records = batch(native, rows=25)
    made = NativeWriter({"bootstrap.servers": nobody, "queue.buffering.max.messages": 10}, native)

    assert made.send(records, 3) == 13
    assert made.send(records, 13) == 13
    made.purge()
    with pytest.raises(GroupUnusable):
        made.flush(10)
    assert made.send(records, 13) == 23
    assert made.send(records, 25) == 25
    made.close()


def test_numbers_of_other_places_are_refused(nobody: str) -> None:
    made = Native({"bootstrap.servers": nobody})

    with pytest.raises(ValueError, match="other numbers of places"):
        made.send(batch(found(), rows=2), 0)
    made.close()


def test_log_lines_go_to_the_logger_and_no_call_is_made_inside_another(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    refused = []

    class Inside(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            try:
                made.poll(0)
            except RuntimeError as error:
                refused.append(str(error))

    LOGGED["logger"].addHandler(handler := Inside())
    made = Native({"bootstrap.servers": nobody, **LOGGED})
    while not caplog.records:
        made.poll(10)
    LOGGED["logger"].removeHandler(handler)
    made.close()

    assert "Connection refused" in caplog.text
    assert set(refused) == {"two threads call one producer"}


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_child_that_was_forked_drops_a_writer_without_its_threads(
    nobody: str, *, is_closed: bool
) -> None:
    made = Native({"bootstrap.servers": nobody})
    made.send(ROWS, 0)
    child = os.fork()
    if not child:
        if is_closed:
            made.close()
        made.__dict__.clear()
        os._exit(0)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    made.close()


@pytest.mark.parametrize(
    "setting",
    [
        ("oauth_cb", print),
        ("plugin.library.paths", "monitoring"),
        ("default.topic.config", {}),
        ("no.such.setting", "1"),
        ("linger.ms", None),
    ],
)
def test_a_setting_that_is_not_for_librdkafka_is_refused(
    nobody: str, setting: tuple[str, object]
) -> None:
    with pytest.raises(ProducerRefused, match=setting[0]):
        Native({"bootstrap.servers": nobody, setting[0]: setting[1]})


@pytest.mark.parametrize(
    ("version", "known"),
    [
        (0x020101FF, False),
        (0x020200FF, True),
        (0x021000FF, True),
        (0x02FFFFFF, True),
        (0x03000000, False),
    ],
)
def test_a_library_of_another_version_is_not_known(version: int, *, known: bool) -> None:
    assert _native.is_known(version) == known


@pytest.mark.parametrize("path", ["", "/nowhere/librdkafka.so"])
def test_a_library_without_its_functions_is_refused(path: str) -> None:
    with pytest.raises(_native.LibraryRefused):
        _native.find_librdkafka(path or _native.__file__)


@pytest.mark.parametrize("exactly_once", [True, False])
def test_every_setting_of_a_delivery_is_taken_natively(nobody: str, *, exactly_once: bool) -> None:
    refused: list[str] = []

    def make(settings: Mapping[str, Any]) -> Writer:
        try:
            return NativeWriter(settings, found())
        except ProducerRefused as why:
            refused.append(str(why))
            return ConfluentWriter(settings)

    Delivery(
        {"bootstrap.servers": nobody, "socket.keepalive.enable": True, "client.id": "cdc"},
        prefix="bank",
        cuts_topic="bank.cuts",
        transaction_timeout=60,
        exactly_once=exactly_once,
        max_row_bytes=1000,
        make=make,
    ).close()

    assert refused == []


def test_where_the_native_writer_is_refused_python_writes_and_it_is_said_once(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "producer.kafka.native_writer")
    make = choose(found())

    for _ in range(2):
        made = make({"bootstrap.servers": nobody, "log_level": 0, "stats_cb": print})
        assert isinstance(made, ConfluentWriter)
        made.close()

    (line,) = caplog.messages
    assert "confluent_kafka" in line
    assert "stats_cb" in line


def test_without_the_native_parts_python_writes() -> None:
    assert choose(None) is ConfluentWriter
