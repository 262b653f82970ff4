"""What executors do of a large segment, without any of them."""

import gc
import json
import pickle
import stat
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from schemas.tables import UNCHANGED
from spark_consumers import executors
from spark_consumers.errors import RangeExpired, StreamError
from spark_consumers.executors import (
    Done,
    Job,
    SecretFile,
    TaskRecords,
    copy_ranges,
    secrets,
    spare_next_task,
    stage,
)
from spark_consumers.kafka.ranges import count
from spark_consumers.model import Change
from spark_consumers.security import portable
from spark_consumers.sinks.postgres.copying import copy_line
from spark_consumers.sinks.postgres.loader import CopyLoader
from tests.spark_consumers.feed import table


def test_a_staged_line_distinguishes_null_unsent_and_text() -> None:
    change = Change(3, 4, "u", ("a", "b"), ["\\N", UNCHANGED], [None, "x\ty\nz\r"])

    assert copy_line(9, change) == ("9\t3\t4\tu\t\\N\t{0}\t\\\\N\t\\N\t\\N\tx\\ty\\nz\\r\n")
    assert copy_line(9, Change(3, 4, "t", ("a",), None, None)) == (
        "9\t3\t4\tt\t\\N\t\\N\t\\N\t\\N\n"
    )


# ---------------------------------------------------------------- what a task needs
def test_what_travels_holds_no_secret() -> None:
    loader = CopyLoader({"host": "db", "password": "of-the-target", "sslpassword": "of-its-key"})

    client, kept = portable({"bootstrap.servers": "b:9", "sasl.password": "of-kafka"})

    travels = pickle.dumps(partial(copy_ranges, job(loader.for_tasks(), client)))

    assert b"of-" not in travels
    assert kept == {"sasl.password": "of-kafka"}
    assert loader.secrets == {"password": "of-the-target", "sslpassword": "of-its-key"}


def test_a_task_logs_in_with_what_the_executor_has_then_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets"
    of_file = {"target": {"password": "of the file"}, "kafka": {"ssl.key.pem": "of the file"}}
    path.write_text(json.dumps(of_file))
    file = SecretFile(str(path), is_sent=False)

    assert secrets(None) == {"target": {}, "kafka": {}}
    assert secrets(file) == of_file
    monkeypatch.setenv("GAUSS_CDC_TARGET_PASSWORD", "own")
    monkeypatch.setenv("GAUSS_CDC_KAFKA_PASSWORD", "own as well")
    assert secrets(None) == {
        "target": {"password": "own"},
        "kafka": {"sasl.password": "own as well"},
    }
    assert secrets(file)["target"] == {"password": "own"}
    assert secrets(file)["kafka"] == {"sasl.password": "own as well", "ssl.key.pem": "of the file"}


def test_a_file_that_spark_brought_is_its_user_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    path = tmp_path / "secrets"
    path.write_text(json.dumps({"target": {"password": "x"}}))
    path.chmod(0o755)

    assert secrets(SecretFile("secrets", is_sent=True))["target"] == {"password": "x"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---------------------------------------------------------------- a task
A = table("a", "id text, v text")
TOPIC = "bank.public.a"


class Kept:
    """A target that keeps what a task brings, or refuses it."""

    def __init__(self, refused: str | None = None) -> None:
        self.refused = refused
        self.staged: list[tuple[str, int, list[Any]]] = []

    def load(self, stages: Sequence[str], task: int, changes: Any, _: Any) -> str | None:
        self.staged = [(stages[at], task, change.after) for at, some in changes for change in some]
        return self.refused


def record(ordinal: int, *, schema_id: int = 7) -> bytes:
    encoder = compile_encoder(A, prefix="bank", schema_id=schema_id, database="d")
    tx = TransactionConstants(700, 99, 1, 1, 0, 0, 1)
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
    executors._KEPT.close()


def job(task: Any, client: Mapping[str, Any], *, native: bool = True) -> Job:
    schemas = {7: envelope_schema("bank", A)}
    return Job(task, ["stage"], {(TOPIC, 7): 0}, schemas, "bank", client, native=native)


def share(*spans: tuple[int, int, int]) -> list[Range]:
    return [Range(TOPIC, *span) for span in spans]


@pytest.mark.parametrize("native", [True, False])
def test_a_task_stages_the_records_of_its_ranges_and_counts_them(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    monkeypatch.setattr(executors, "_FIRST", 2)  # several parts
    broker.put(0, *range(20))
    broker.put(1, 101, 102, 103)
    loader = Kept()

    done = stage(
        job(loader, broker.client, native=native), share((1, 0, 2), (0, 7, 18), (0, 3, 5)), 9
    )

    ordinals = [3, 4, *range(7, 18), 101, 102]
    assert sorted(loader.staged) == sorted(("stage", 9, [str(at), "x"]) for at in ordinals)
    assert done == Done(9, 15)
    executors._KEPT.close()


def test_parts_are_as_large_as_rows_allow(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executors, "_FIRST", 2)
    broker.put(0, *range(100))
    sizes: dict[int, list[int]] = {}

    for most in (1 << 20, 1):
        monkeypatch.setattr(executors, "_PART_BYTES", most)
        found = sizes.setdefault(most, [])
        fetch = executors._KEPT.reader(broker.client, "bank", native=True)

        def counting(ranges, content, found=found, fetch=fetch, **options) -> None:
            found.append(count(ranges))
            fetch(ranges, content, **options)

        list(TaskRecords(job(Kept(), broker.client), counting).staged(share((0, 0, 50))))

    assert sizes == {1 << 20: [2, 8, 32, 8], 1: [2, *[1] * 48]}


def test_a_worker_keeps_one_reader_for_one_login(broker: Broker) -> None:
    broker.put(0, *range(4))
    kept, loader = executors._KEPT, Kept()

    def read_by(**more: str) -> object:
        stage(job(loader, {**broker.client, **more}), share((0, 0, 2)), 0)
        return kept._fetch

    first = read_by()
    assert first is read_by()
    other = read_by(**{"client.id": "other"})
    assert other is not first
    assert read_by(**{"client.id": "other"}) is other


@pytest.mark.parametrize("refused", ["23505", None])
def test_a_reader_does_not_stay_behind_a_task_that_failed(
    broker: Broker, refused: str | None
) -> None:
    broker.put(0, 0, 1 if refused else record(1, schema_id=8))

    done = stage(job(Kept(refused), broker.client), share((0, 0, 2)), 4)

    assert done.refused == refused
    assert isinstance(done.error, StreamError) is (refused is None)
    assert executors._KEPT._fetch is None


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

    spare_next_task()
    gc.unfreeze()

    assert not [path for path in sys.path_importer_cache if str(archive) in path]
    assert import_module("other_in_zip").found == "other_in_zip"


def test_a_tombstone_counts_as_a_record_and_is_no_row(broker: Broker) -> None:
    broker.put(0, 3, None)
    loader = Kept()

    done = stage(job(loader, broker.client), share((0, 0, 2)), 0)

    assert (len(loader.staged), done.records) == (1, 2)


def test_a_record_of_a_schema_that_the_cut_does_not_name_is_told(broker: Broker) -> None:
    broker.put(0, 3, record(4, schema_id=8))

    done = stage(job(Kept(), broker.client), share((0, 0, 2)), 0)

    assert isinstance(done.error, StreamError)
    assert done.error.where == {"topic": TOPIC, "partition": 0, "offset": 1}

    known = job(Kept(), broker.client)
    known = replace(known, schemas={**known.schemas, 8: known.schemas[7]})
    said = stage(known, share((0, 0, 2)), 0).error
    assert isinstance(said, StreamError)
    assert said.where == {"topic": TOPIC, "schema": 8}
    assert str(pickle.loads(pickle.dumps(said))) == str(said)  # it travels back


def test_offsets_that_were_deleted_are_told_as_the_driver_tells_them(broker: Broker) -> None:
    broker.put(0, *range(5))
    fetch = executors._KEPT.reader(broker.client, "bank", native=True)
    fetch._first = lambda _: {(TOPIC, 0): 12}  # type: ignore[attr-defined]

    done = stage(job(Kept(), broker.client), share((0, 9, 11)), 0)

    assert isinstance(done.error, RangeExpired)
    assert done.error.where["first"] == 12
