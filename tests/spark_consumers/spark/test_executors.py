"""What a task of Spark does of a segment, without Spark."""

import gc
import json
import pickle
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from pyspark import SparkFiles

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.control import Range
from schemas.envelope import envelope_schema
from spark_consumers.cuts.complete import Promised, ordinals
from spark_consumers.errors import ApplyError, Incomplete, RangeExpired, StreamError
from spark_consumers.model import Asked, CommitRows
from spark_consumers.native import IS_BUILT, RowsSettled
from spark_consumers.security import portable
from spark_consumers.spark import executors
from spark_consumers.spark.executors import (
    Done,
    Job,
    SecretFile,
    Share,
    read_shares,
    secrets,
    spare_next_task,
)
from tests.spark_consumers.feed import table


# ---------------------------------------------------------------- what a task needs
def test_what_travels_holds_no_secret() -> None:
    client, kept = portable({"bootstrap.servers": "b:9", "sasl.password": "of-kafka"})

    travels = pickle.dumps(partial(read_shares, job(client)))

    assert b"of-" not in travels
    assert kept == {"sasl.password": "of-kafka"}


def test_a_task_logs_in_with_what_the_executor_has_then_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets"
    of_file = {"sasl.password": "of the file", "ssl.key.pem": "of the file"}
    path.write_text(json.dumps(of_file))
    file = SecretFile(str(path), is_sent=False)

    assert secrets(None) == {}
    assert secrets(file) == of_file
    monkeypatch.setenv("GAUSS_CDC_KAFKA_PASSWORD", "own")
    monkeypatch.setenv("GAUSS_CDC_KAFKA_SSL_PASSWORD", "")
    assert secrets(None) == {"sasl.password": "own"}
    assert secrets(file) == {"sasl.password": "own", "ssl.key.pem": "of the file"}


def test_a_file_that_spark_brought_is_its_user_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    path = tmp_path / "secrets"
    path.write_text(json.dumps({"sasl.password": "x"}))
    path.chmod(0o755)

    assert secrets(SecretFile("secrets", is_sent=True)) == {"sasl.password": "x"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---------------------------------------------------------------- a task
A = table("a", "id text, v text")
TOPIC = "bank.public.a"


def record(ordinal: int, *, schema_id: int = 7, seq: int = 1) -> bytes:
    encoder = compile_encoder(A, prefix="bank", schema_id=schema_id, database="d")
    tx = TransactionConstants(700, 99, 1, seq, 0, 0, 1)
    return bytes(encoder.encode("c", "", None, [b"%d" % ordinal, b"x"], tx, 1, ordinal))


class Broker:
    """A broker inside librdkafka, with one topic."""

    def __init__(self) -> None:
        self.producer = Producer({"test.mock.num.brokers": 1, "log_level": 0, "linger.ms": 0})
        (broker,) = self.producer.list_topics(timeout=30).brokers.values()
        self.client = {"bootstrap.servers": f"{broker.host}:{broker.port}"}

    def put(self, partition: int, *values: bytes | int | None) -> None:
        """A number stands for the record of this ordinal."""
        for value in values:
            written = record(value) if isinstance(value, int) else value
            self.producer.produce(TOPIC, written, partition=partition)
        assert not self.producer.flush(30)


@pytest.fixture
def broker() -> Iterator[Broker]:
    yield Broker()
    executors.KEPT.close()


def job(client: Mapping[str, Any], *, native: bool = True, asked: Asked | None = None) -> Job:
    return Job({7: envelope_schema("bank", A)}, "bank", client, asked or {}, native=native)


def share(*spans: tuple[int, int, int], rows: int, is_part: bool = False) -> Share:
    """Ranges of one commit that has so many rows."""
    promise = Promised(1, CommitRows(1, [rows]), None)
    return Share([Range(TOPIC, *span) for span in spans], promise, is_part)


def read_share(of: Job, one: Share) -> Done:
    (done,) = read_shares(of, [one])
    return done


def ordinals_of(done: Done) -> list[int]:
    assert done.rows is not None, done.error
    (changes,) = done.rows.changes.values()
    assert all(change.after == [str(change.ordinal), "x"] for change in changes)
    return [change.ordinal for change in changes]


@pytest.mark.parametrize("native", [True, False])
def test_a_task_brings_the_records_of_its_ranges_in_commit_order(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    monkeypatch.setattr(executors, "PART_RECORDS", 2)  # several parts
    broker.put(0, 1, 2, 5, 6, 3, 99)
    broker.put(1, 99, 0, 4)

    done = read_share(
        job(broker.client, native=native), share((1, 1, 3), (0, 0, 2), (0, 2, 5), rows=7)
    )

    assert ordinals_of(pickle.loads(pickle.dumps(done))) == [*range(7)]
    assert done.rows is not None
    assert (done.rows.are_of_tasks, done.sums, done.error) == (True, None, None)
    executors.KEPT.close()


@pytest.mark.parametrize("values", [(0, 2), (0, 0), (0, record(1, seq=2)), (0, None)])
def test_a_segment_is_checked_against_its_cut_where_it_is_read(
    broker: Broker, values: tuple[Any, ...]
) -> None:
    broker.put(0, *values)

    done = read_share(job(broker.client), share((0, 0, 2), rows=2))

    assert isinstance(done.error, Incomplete)
    assert done.rows is None


def test_a_part_of_a_commit_is_counted_and_summed(broker: Broker) -> None:
    broker.put(0, 4, 9, 5)

    done = read_share(job(broker.client), share((0, 0, 3), rows=20, is_part=True))

    assert ordinals_of(done) == [4, 5, 9]
    assert done.sums == (3, ordinals([4, 5, 9]))


@pytest.mark.parametrize("odd", [None, record(5, seq=2)], ids=["a tombstone", "another commit's"])
def test_a_part_that_holds_something_else_is_refused(broker: Broker, odd: bytes | None) -> None:
    broker.put(0, 4, odd)

    done = read_share(job(broker.client), share((0, 0, 2), rows=20, is_part=True))

    assert isinstance(done.error, Incomplete)


def test_what_is_too_large_to_be_held_is_left_to_the_driver(
    broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executors, "PART_RECORDS", 2)
    monkeypatch.setattr(executors, "WHOLE_BYTES", 300)
    broker.put(0, *range(50))

    assert read_share(job(broker.client), share((0, 0, 50), rows=50)) == Done()
    assert executors.KEPT._fetch is None  # its partitions were being fetched
    assert ordinals_of(read_share(job(broker.client), share((0, 0, 2), rows=2))) == [0, 1]


def test_rows_become_the_last_states_that_the_sink_asked_for_before(broker: Broker) -> None:
    broker.put(0, 0, 1, 2)
    at = share((0, 0, 3), rows=3)
    whole = read_share(job(broker.client), at).rows
    keys = [(A.id, A.names(), False), (A.id, A.names(), True), (A.id, ("id",), False)]
    assert whole is not None
    for key in keys:
        rows = read_share(job(broker.client, asked={key: ((0,), True)}), at).rows
        assert rows is not None
        found = pickle.loads(pickle.dumps(rows)).changes[A.id]
        if IS_BUILT and key == keys[0]:
            assert found.last_states((0,), True) == whole.changes[A.id].last_states((0,), True)
            with pytest.raises(RowsSettled):
                list(found)
        else:  # of loads, of rows that were written otherwise, or objects
            assert list(found) == list(whole.changes[A.id])


@pytest.mark.parametrize("native", [True, False])
def test_a_task_reads_its_shares_one_by_one_and_goes_on_behind_one_that_it_cannot_read(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    monkeypatch.setattr(executors, "PART_RECORDS", 2)
    monkeypatch.setattr(executors, "WHOLE_BYTES", 5_000)
    broker.put(0, 0, 1, 0, 0, *range(200), 0, 1, 2)
    spans = [(0, 2, 2), (2, 4, 2), (4, 204, 200), (204, 207, 3)]

    done = read_shares(
        job(broker.client, native=native),
        [share((0, start, end), rows=rows) for start, end, rows in spans],
    )

    assert [ordinals_of(done[at]) for at in (0, 3)] == [[0, 1], [0, 1, 2]]
    assert isinstance(done[1].error, Incomplete)
    assert done[2] == Done()
    executors.KEPT.close()


def test_a_worker_keeps_one_reader_for_one_login(broker: Broker) -> None:
    broker.put(0, *range(4))
    kept = executors.KEPT

    def read_by(**more: str) -> object:
        read_share(job({**broker.client, **more}), share((0, 0, 2), rows=2))
        return kept._fetch

    first = read_by()
    assert first is read_by()
    other = read_by(**{"client.id": "other"})
    assert other is not first
    assert read_by(**{"client.id": "other"}) is other


@pytest.mark.parametrize("second", [0, record(1, schema_id=8)], ids=["twice", "another schema"])
def test_a_reader_does_not_stay_behind_a_task_that_failed(broker: Broker, second: Any) -> None:
    broker.put(0, 0, second)

    done = read_share(job(broker.client), share((0, 0, 2), rows=2))

    assert isinstance(done.error, ApplyError)
    assert executors.KEPT._fetch is None


def test_a_worker_does_not_read_archives_again_before_its_next_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark calls `importlib.invalidate_caches()` there, and keeps its modules in an archive."""
    archive = tmp_path / "modules.zip"
    with zipfile.ZipFile(archive, "w") as out:
        for name in ("one_in_zip", "other_in_zip"):
            out.writestr(f"{name}.py", f"found = {name!r}")
    monkeypatch.syspath_prepend(archive)
    import_module("one_in_zip")

    was_frozen = gc.get_freeze_count() > 0
    spare_next_task()
    if not was_frozen:
        gc.unfreeze()

    assert not [path for path in sys.path_importer_cache if str(archive) in path]
    assert import_module("other_in_zip").found == "other_in_zip"


def test_a_tombstone_counts_as_a_record_and_is_no_row(broker: Broker) -> None:
    broker.put(0, 0, None)

    assert ordinals_of(read_share(job(broker.client), share((0, 0, 2), rows=1))) == [0]


def test_a_record_of_a_schema_that_the_cut_does_not_name_is_told(broker: Broker) -> None:
    broker.put(0, 3, record(4, schema_id=8))
    at = share((0, 0, 2), rows=2)

    done = read_share(job(broker.client), at)

    assert isinstance(done.error, StreamError)
    assert done.error.where == {"topic": TOPIC, "partition": 0, "offset": 1}
    said = pickle.loads(pickle.dumps(done)).error  # it travels back
    assert (str(said), said.where) == (str(done.error), done.error.where)


def test_offsets_that_were_deleted_are_told_as_the_driver_tells_them(broker: Broker) -> None:
    broker.put(0, *range(5))
    fetch = executors.KEPT.reader(broker.client, "bank", native=True)
    fetch._first = lambda _: {(TOPIC, 0): 12}  # type: ignore[attr-defined]

    done = read_share(job(broker.client), share((0, 9, 11), rows=2))

    assert isinstance(done.error, RangeExpired)
    assert done.error.where["first"] == 12
