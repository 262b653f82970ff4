"""What executors do of a large segment, without any of them."""

import gc
import json
import pickle
import stat
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark import SparkFiles

from producer.core.records.encode import TransactionConstants, compile_encoder
from schemas.envelope import envelope_schema
from schemas.tables import UNCHANGED
from spark_consumers.decode.batches import Spans
from spark_consumers.executors import (
    Job,
    SecretFile,
    copy_batches,
    secrets,
    spare_next_task,
)
from spark_consumers.model import Change
from spark_consumers.sinks.postgres.copying import CopyTask, copy_line
from spark_consumers.sinks.postgres.loader import CopyLoader
from tests.spark_consumers.feed import table


def test_a_staged_line_distinguishes_null_unsent_and_text() -> None:
    change = Change(3, 4, "u", ("a", "b"), ["\\N", UNCHANGED], [None, "x\ty\nz\r"])

    assert copy_line(9, change) == ("9\t3\t4\tu\t\\N\t{0}\t\\\\N\t\\N\t\\N\tx\\ty\\nz\\r\n")
    assert copy_line(9, Change(3, 4, "t", ("a",), None, None)) == (
        "9\t3\t4\tt\t\\N\t\\N\t\\N\t\\N\n"
    )


# ---------------------------------------------------------------- what a task needs
_WITHOUT = """
import pickle, sys
import pyarrow as pa
for name in ("psycopg2", "confluent_kafka", "pandas", "pyspark"):
    sys.modules[name] = None
function = pickle.loads(bytes.fromhex(sys.argv[1]))
from spark_consumers.executors import TaskRecords
records = TaskRecords(function.args[0])
batches = pa.ipc.open_stream(bytes.fromhex(sys.argv[2]))
print([[change.after for change in rows] for _, rows in records.staged(batches)])
"""


def test_a_task_decodes_without_clients_of_kafka_and_of_the_target() -> None:
    travels = pickle.dumps(partial(copy_batches, job(CopyTask({"host": "db"}, ""))))
    one, stream = batch((TOPIC, 0, 3, 3)), pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, one.schema) as writer:
        writer.write_batch(one)

    said = subprocess.run(
        [sys.executable, "-c", _WITHOUT, travels.hex(), stream.getvalue().hex().decode()],
        check=True, capture_output=True, text=True,
    )  # fmt: skip

    assert said.stdout.strip() == "[[['3', 'x']]]"


def test_what_travels_holds_no_secret() -> None:
    loader = CopyLoader({"host": "db", "password": "of-the-target", "sslpassword": "of-its-key"})

    travels = pickle.dumps(partial(copy_batches, job(loader.for_tasks())))

    assert b"of-" not in travels
    assert loader.secrets == {"password": "of-the-target", "sslpassword": "of-its-key"}


def test_a_task_logs_in_with_what_the_executor_has_then_with_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "secrets"
    path.write_text(json.dumps({"password": "of the file"}))
    file = SecretFile(str(path), is_sent=False)

    assert secrets(None) == {}
    assert secrets(file) == {"password": "of the file"}
    monkeypatch.setenv("GAUSS_CDC_TARGET_PASSWORD", "of the executor")
    assert secrets(file) == secrets(None) == {"password": "of the executor"}


def test_a_file_that_spark_brought_is_its_user_s_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    path = tmp_path / "secrets"
    path.write_text(json.dumps({"password": "x"}))
    path.chmod(0o755)

    assert secrets(SecretFile("secrets", is_sent=True)) == {"password": "x"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


# ---------------------------------------------------------------- a task
A = table("a", "id text, v text")
TOPIC = "bank.public.a"
COLUMNS = ("topic", "partition", "offset", "value")


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


def batch(*rows: tuple[str, int, int, bytes | int | None]) -> pa.RecordBatch:
    """Records as Spark gives them; a number stands for the record of this ordinal."""
    filled = [
        (topic, partition, offset, record(value) if isinstance(value, int) else value)
        for topic, partition, offset, value in rows
    ]
    return pa.RecordBatch.from_pylist(
        [dict(zip(COLUMNS, row, strict=True)) for row in filled],
        pa.schema(
            [("topic", "string"), ("partition", "int32"), ("offset", "int64"), ("value", "binary")]
        ),
    )


def job(task: Any, *, native: bool = True) -> Job:
    spans = {(TOPIC, 0): Spans([3, 7], [5, 8]), (TOPIC, 1): Spans([0], [2])}
    return Job(
        task, ["stage"], {(TOPIC, 7): 0}, {7: envelope_schema("bank", A)}, spans, native=native
    )


def run(loader: Kept, *batches: pa.RecordBatch, native: bool = True) -> dict[str, Any]:
    (done,) = copy_batches(job(loader, native=native), batches)
    (found,) = done.to_pylist()
    return found


@pytest.mark.parametrize("native", [True, False])
def test_a_task_stages_the_records_of_its_ranges_and_counts_them(native: bool) -> None:
    loader = Kept()
    one = batch(*[(TOPIC, 0, at, at) for at in range(2, 10)])
    other = batch((TOPIC, 0, 9, 9), (TOPIC, 1, 1, 11), (TOPIC, 1, 2, 12))

    done = run(loader, one, other, native=native)

    assert loader.staged == [("stage", 0, [str(at), "x"]) for at in (3, 4, 7, 11)]
    assert done == {"task": 0, "records": 4, "refused": None}


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


def test_a_tombstone_counts_as_a_record_and_is_no_row() -> None:
    loader = Kept()

    done = run(loader, batch((TOPIC, 0, 3, 3), (TOPIC, 0, 4, None)))

    assert (len(loader.staged), done["records"]) == (1, 2)


def test_a_record_of_a_schema_that_the_cut_does_not_name_ends_the_task() -> None:
    with pytest.raises(ValueError, match="schema 8"):
        run(Kept(), batch((TOPIC, 0, 3, 3), (TOPIC, 0, 4, record(4, schema_id=8))))


def test_what_the_target_refuses_comes_back_as_text() -> None:
    assert run(Kept("23505"), batch((TOPIC, 0, 3, 3)))["refused"] == "23505"
