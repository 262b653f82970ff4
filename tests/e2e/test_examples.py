"""The consumers of docs/examples, run as a user runs them while `run` is killed.

Twice: as a source is configured by default, and at least once with keyed rows in partitions.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from threading import Event
from typing import Any, Self

import pyspark
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from gauss_cdc_lab.demo.programs import Program
from gauss_cdc_lab.services import Addresses, postgres
from schemas import headers
from schemas.accept import CutReplay
from schemas.control import (
    FORMAT_VERSION,
    MEND,
    CommitEntry,
    Commits,
    Cut,
    Head,
    Heartbeat,
    Identity,
    LoadPhase,
    Prev,
    Range,
    Start,
    State,
    TableLoad,
    cut_to_avro,
)
from schemas.load import avsc, canonical
from schemas.tables import TableId
from schemas.topics import Topics
from tests.e2e.bank_truth import TABLES, TOTAL, Bank, Row
from tests.e2e.path import PATIENCE, ask, until
from tests.services_fixtures import drop_database, open_directory

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
NO_COMPILER = "this Java has no compiler: it cannot run Commits.java"
BLOCKED = "WalSenderWriteData"  # its socket is full
LARGE = 10_000  # rows of a kilobyte: more than the sockets between the server and `run` hold
TOML = """\
[source]
dsn = "{source}"
slot = "{prefix}"
publication = "{prefix}"
[kafka]
prefix = "{prefix}"
{kafka_lines}
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[target]
dsn = "{source}"
"""
AT_LEAST_ONCE = """\
exactly-once = false
key = "primary-key"
partition-by = "primary-key"
partitions = 3
"""


DOCUMENT = EXAMPLES.parent / "subscribers.md"
RECORDS = EXAMPLES.parent / "reference" / "control-records.md"


class Example:
    """A program of docs/examples, which prints one JSON object a line."""

    def __init__(self, name: str, folder: Path, *command: str | Path) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        self._read, self._lines = 0, []
        self.name = name
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                command, stdout=out, stderr=err, cwd=folder, start_new_session=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def ended(self) -> tuple[list[dict[str, Any]], int, str]:
        """Wait for the end; return what was printed, the exit code and the last words."""
        code = self._process.wait(PATIENCE)
        return self._printed(), code, self._err.read_text()

    def lines(self) -> list[dict[str, Any]]:
        """What was printed until now; numbers with a point as text."""
        code = self._process.poll()
        assert code is None, f"{self.name} ended with {code}: {self.last_words()}"
        return self._printed()

    def last_words(self) -> str:
        return self._err.read_text()[-2000:]

    def _printed(self) -> list[dict[str, Any]]:
        with self._out.open("rb") as out:
            out.seek(self._read)
            new = out.read()
        whole = new[: new.rfind(b"\n") + 1]
        self._read += len(whole)
        self._lines += [json.loads(line, parse_float=str) for line in whole.splitlines()]
        return self._lines


@dataclass
class Played:
    """What the source committed, and what each example printed."""

    bank: Bank
    prefix: str
    before: dict[int, dict[str, Any]]  # account, as it was loaded
    printed: dict[str, list[dict[str, Any]]]
    records: int  # in the journal's topic, those of killed attempts among them

    def rows(self, table: str) -> list[Row]:
        return [row for truth in self.bank.committed for row in truth.rows if row[0] == table]


class Scene:
    """A source, a `run` that is killed, and the examples."""

    def __init__(self, addresses: Addresses, folder: Path, lines: str, stack: ExitStack) -> None:
        self.addresses, self.folder, self._stack = addresses, folder, stack
        self._examples: list[Example] = []
        self.prefix = f"t{uuid.uuid4().hex[:12]}"
        database = f"t_{self.prefix}"
        postgres.create_database(addresses.postgres_url(), database)
        stack.callback(drop_database, addresses.postgres_url(), database)
        self.source = addresses.postgres_url(database)
        ask(self.source, TABLES)
        config = folder / "gauss-cdc.toml"
        config.write_text(
            TOML.format(
                source=self.source,
                prefix=self.prefix,
                kafka_lines=lines,
                kafka=addresses.kafka_bootstrap,
                registry=addresses.registry_url,
            )
        )
        (folder / "logs").mkdir()
        self.run = Program("run", config, folder=folder)
        stack.callback(self.run.close)
        self._pause = Event()
        self._kafka = Consumer(
            {
                "bootstrap.servers": addresses.kafka_bootstrap,
                "group.id": self.prefix,
                "isolation.level": "read_uncommitted",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
            }
        )
        stack.callback(self._kafka.close)

    def example(self, name: str, *command: str | Path) -> Example:
        self._examples.append(example := Example(name, self.folder, *command))
        return self._stack.enter_context(example)

    def python(self, name: str, program: str, *words: str) -> Example:
        return self.example(name, sys.executable, EXAMPLES / program, *self.places(), *words)

    def places(self) -> tuple[str, str]:
        return self.addresses.kafka_bootstrap, self.addresses.registry_url

    def wait(self, is_so: Any, what: str) -> None:
        def checked() -> bool:
            assert not self.run.died(), self.run.last_words()
            return bool(is_so())

        try:
            until(checked, what, self._pause.wait)
        except AssertionError as error:
            for example in self._examples:
                error.add_note(f"{example.name}: {example.last_words()}")
            raise

    def streams(self) -> None:
        self.wait(lambda: self.run.step().startswith("run: "), "the stream")

    def kill_while_rows_are_sent(self, bank: Bank) -> None:
        """Leave rows in Kafka that no cut names: they are sent again.

        `run` gets a part of a transaction: it stands still until the server has filled the
        sockets, and the server stands still while `run` sends what it has.
        """
        journal = TopicPartition(f"{self.prefix}.public.journal", 0)
        before = self.high(journal) + LARGE // 100  # more than the marks of what went before
        run = self.run._process
        assert run is not None
        run.send(signal.SIGSTOP)
        bank.large(LARGE)
        self.wait(lambda: self._sender(BLOCKED), "a walsender that cannot send")
        (sender,) = self._sender(BLOCKED)
        os.kill(sender, signal.SIGSTOP)
        try:
            run.send(signal.SIGCONT)
            self.wait(lambda: self.high(journal) > before, "rows of a part of a transaction")
            self.run.kill()
        finally:
            os.kill(sender, signal.SIGCONT)

    def _sender(self, event: str) -> list[int]:
        """The server's process that sends to `run`, if it waits for this."""
        found = ask(
            self.source,
            "SELECT pid FROM pg_stat_activity JOIN pg_replication_slots ON pid = active_pid"
            " WHERE slot_name = %s AND wait_event = %s",
            self.prefix,
            event,
        )
        return [pid for (pid,) in found]

    def high(self, place: TopicPartition) -> int:
        return int(self._kafka.get_watermark_offsets(place, cached=False)[1])

    def records(self, table: str) -> int:
        """Count the records with a value, committed or not."""
        parts = self._kafka.list_topics(f"{self.prefix}.public.{table}").topics.popitem()[1]
        left = [TopicPartition(parts.topic, number) for number in parts.partitions]
        self._kafka.assign(left)
        found, ends = 0, 0
        while ends < len(left):
            message = self._kafka.poll(1)
            if message is not None and message.error():
                ends += 1
            elif message is not None:
                found += message.value() is not None
        return found


def java(addresses: Addresses) -> Path | None:
    """The Java that runs a source file: it has a compiler."""
    home = addresses.java_home / "bin"
    return home / "java" if shutil.which("javac", path=str(home)) else None


def jars(addresses: Addresses, folder: Path) -> Path:
    """Fill a folder with what Commits.java needs."""
    folder.mkdir()
    spark = Path(pyspark.__file__).parent / "jars"
    names = ("avro-1", "jackson-annotations", "jackson-core-2", "jackson-databind", "lz4-java")
    for name in (*names, "slf4j-api"):
        (jar,) = spark.glob(f"{name}*.jar")
        (folder / jar.name).symlink_to(jar)
    (kafka,) = (jar for jar in addresses.spark_jars if jar.name.startswith("kafka-clients"))
    (folder / kafka.name).symlink_to(kafka)
    return folder


def submit(scene: Scene) -> tuple[str | Path, ...]:
    """`spark-submit` with this machine's jars in place of `--packages`."""
    connectors = ("spark-sql-kafka", "spark-token-provider", "spark-avro", "kafka-", "commons-pool")
    mine = [str(jar) for jar in scene.addresses.spark_jars if jar.name.startswith(connectors)]
    return (
        Path(pyspark.__file__).parent / "bin" / "spark-submit",
        *("--master", "local[2]", "--jars", ",".join(mine)),
        *("--conf", "spark.ui.enabled=false", "--conf", "spark.driver.host=127.0.0.1"),
        *("--driver-java-options", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"),
    )


def play(scene: Scene, bank: Bank, *, followed: str, with_spark: bool) -> Played:
    before = bank.content("account")
    scene.run.start()
    scene.streams()
    topic = f"{scene.prefix}.public.{followed}"
    all_of = {
        "table": scene.python("table", "table.py", topic),
        "commits": scene.python("commits", "commits.py", scene.prefix),
    }
    if (executable := java(scene.addresses)) is not None:
        folder = jars(scene.addresses, scene.folder / "jars")
        words = ("-cp", f"{folder}/*", EXAMPLES / "Commits.java", *scene.places(), scene.prefix)
        all_of["java"] = scene.example("java", executable, *words)
    if with_spark:
        program = EXAMPLES / "plain_spark.py"
        all_of["spark"] = scene.example(
            "spark", *submit(scene), program, *scene.places(), topic, scene.folder / "state"
        )
    else:
        keyed = f"{scene.prefix}.public.account"
        all_of["keyed"] = scene.python("keyed", "table.py", keyed)
    bank.transfers(20)
    bank.reopen()
    # Before the schema changes: a reader that knows one schema only has begun.
    if with_spark:
        scene.wait(all_of["spark"].lines, "a first line of Spark")
    scene.kill_while_rows_are_sent(bank)
    bank.transfers(10)
    bank.truncate()
    scene.run.start()
    bank.add_column("level")
    bank.transfers(10)
    scene.streams()
    bank.reopen()
    bank.add_column("grade")
    bank.transfers(10)
    scene.run.kill()
    bank.transfers(10)
    scene.run.start()
    bank.reopen()

    count = len(bank.committed)
    for name in all_of.keys() & {"commits", "java"}:
        scene.wait(lambda n=name: len(all_of[n].lines()) >= count, f"all transactions of {name}")
    half = count // 2
    late = scene.python("late", "commits.py", scene.prefix, f"1/{half}")
    scene.wait(lambda: len(late.lines()) >= count - half, "the second half")
    for name in all_of.keys() - {"commits", "java"}:
        table = "account" if name == "keyed" else followed
        rows = len([row for truth in bank.committed for row in truth.rows if row[0] == table])
        rows += len(before) if table == "account" else 0
        scene.wait(lambda n=name, r=rows: len(positions(all_of[n].lines())) >= r, f"rows of {name}")
    printed = {name: example.lines() for name, example in all_of.items()}
    printed["late"] = late.lines()
    return Played(bank, scene.prefix, before, printed, scene.records("journal"))


def positions(lines: list[dict[str, Any]]) -> set[str]:
    return {line["position"] for line in lines}


@pytest.fixture(scope="module", params=["exactly once", "at least once"])
def played(request: pytest.FixtureRequest, addresses: Addresses) -> Iterator[Played]:
    is_exact = request.param == "exactly once"
    folder = open_directory()
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        scene = Scene(addresses, folder, "" if is_exact else AT_LEAST_ONCE, stack)
        bank = Bank(scene.source, keyed=not is_exact, partitions=1 if is_exact else 3)
        stack.enter_context(bank)
        followed = "account" if is_exact else "journal"
        yield play(scene, bank, followed=followed, with_spark=is_exact)


def rows_of(transaction: dict[str, Any]) -> list[Row]:
    """What a printed transaction says in the words of the truth."""
    out = []
    for row in transaction["changes"]:
        if "op" in row:  # else a change of a schema
            content = row["before"] if row["op"] == "d" else row["after"]
            key = content and next(iter(content.values()))
            out.append((row["source"]["table"], row["op"], key))
    return out


def fold(content: dict[Any, dict[str, Any]], op: str, before: Any, after: Any) -> None:
    """Apply a change of a keyed table."""
    if op == "t":
        content.clear()
    if before:
        content.pop(before["id"], None)
    if after:
        content[after["id"]] = after


def equal(content: dict[Any, dict[str, Any]], source: dict[Any, dict[str, Any]]) -> bool:
    """Rows from before ADD COLUMN lack the column, whose value is NULL."""
    return content.keys() == source.keys() and all(
        str(content[key].get(name)) == str(value)
        for key, row in source.items()
        for name, value in row.items()
    )


@pytest.mark.parametrize("example", ["commits", "java"])
def test_every_transaction_is_shown_once_and_whole_in_commit_order(
    played: Played, example: str
) -> None:
    if example not in played.printed:
        pytest.skip(NO_COMPILER)
    shown, committed = played.printed[example], played.bank.committed

    assert played.records > len(played.rows("journal")), "no row was sent twice: nothing is shown"
    assert [line["commit"]["seq"] for line in shown] == [i + 1 for i in range(len(committed))]
    assert [line["commit"]["xid"] for line in shown] == [truth.xid for truth in committed]
    for line, truth in zip(shown, committed, strict=True):
        assert rows_of(line) == truth.rows
        assert [row["tag"] for row in line["changes"] if "tag" in row] == (
            ["ALTER TABLE"] if truth.has_ddl else []
        )
        assert line["commit"]["holes"] == []
        assert line["epoch"] == 1

    account, transfer = dict(played.before), {}
    for line in shown:
        for row in line["changes"]:
            for name, content in (("account", account), ("transfer", transfer)):
                if "op" in row and row["source"]["table"] == name:
                    fold(content, row["op"], row["before"], row["after"])
        assert sum(Decimal(row["balance"]) for row in account.values()) == TOTAL
    assert equal(account, played.bank.content("account"))
    assert equal(transfer, played.bank.content("transfer"))


def test_a_reader_of_commits_goes_on_behind_the_last_one_it_has(played: Played) -> None:
    half = len(played.bank.committed) // 2

    assert played.printed["late"] == played.printed["commits"][half:]


def changes_of(lines: list[dict[str, Any]], table: str) -> list[Row]:
    """What table.py printed in the words of the truth."""
    out = []
    for line in lines:
        content = line["before"] if line["op"] == "d" else line["after"]
        out.append((table, line["op"], content and next(iter(content.values()))))
    return out


def place(line: dict[str, Any]) -> tuple[int, ...]:
    """`position` as numbers, which have an order."""
    return tuple(map(int, line["position"].split("/")))


def of_its_transaction(played: Played, line: dict[str, Any]) -> bool:
    _, seq, _ = place(line)
    return int(line["xid"]) == (played.bank.committed[seq - 1].xid if seq else 0)


@pytest.mark.parametrize("played", ["exactly once"], indirect=True)
def test_a_reader_of_one_table_gets_every_change_once_and_in_order(played: Played) -> None:
    lines = played.printed["table"]
    loaded = [("account", "r", key) for key in played.before]

    assert changes_of(lines, "account") == loaded + played.rows("account")
    assert {line["key"] for line in lines} == {"public.account"}
    assert all(of_its_transaction(played, line) for line in lines)


@pytest.mark.parametrize("played", ["at least once"], indirect=True)
def test_a_reader_of_one_table_finds_a_repeated_change_by_its_position(played: Played) -> None:
    lines = played.printed["table"]
    newest, once = (0, 0, 0), []
    for line in lines:
        if place(line) > newest:
            newest = place(line)
            once.append(line)

    assert len(lines) == played.records > len(once)
    assert changes_of(once, "journal") == played.rows("journal")
    assert {line["key"] for line in lines} == {""}
    assert all(of_its_transaction(played, line) for line in lines)


@pytest.mark.parametrize("played", ["at least once"], indirect=True)
def test_keyed_rows_have_their_key_in_avro_and_are_in_order_in_their_partition(
    played: Played,
) -> None:
    lines = played.printed["keyed"]
    by_position = {place(line): line for line in lines}
    loaded = [("account", "r", key) for key in played.before]

    in_order = [by_position[position] for position in sorted(by_position)]
    assert changes_of(in_order, "account") == loaded + played.rows("account")
    for line in lines:
        content = line["before"] if line["op"] == "d" else line["after"]
        assert line["key"] == {"id": content["id"]}
    for key in {line["key"]["id"] for line in lines}:
        mine = list(dict.fromkeys(place(line) for line in lines if line["key"]["id"] == key))
        assert mine == sorted(mine)


@pytest.mark.parametrize("played", ["exactly once"], indirect=True)
def test_a_plain_spark_job_survives_add_column(played: Played) -> None:
    lines = played.printed["spark"]

    assert [(line["position"], line["op"]) for line in lines] == [
        (line["position"], line["op"]) for line in played.printed["table"]
    ]
    account: dict[Any, dict[str, Any]] = {}
    for line in lines:
        fold(account, line["op"], line["before"], line["after"])
    assert equal(account, played.bank.content("account"))
    assert "grade" not in lines[0]["after"]
    assert lines[-1]["after"].keys() == {"id", "balance", "note", "level", "grade"}


class Forgery:
    """A log of cuts as no producer alone would write it, with the rows that it names."""

    def __init__(self, addresses: Addresses, prefix: str) -> None:
        client = {"bootstrap.servers": addresses.kafka_bootstrap}
        self._prefix, self._names = prefix, Topics(prefix)
        self._topic = self._names.table(TableId("public", "t"))
        topics = [NewTopic(name, 1, 1) for name in (self._names.cuts, self._topic)]
        admin = AdminClient(client)
        for made in admin.create_topics(topics).values():
            made.result()
        self._producer = Producer({**client, "acks": "all"})
        registry = SchemaRegistryClient({"url": addresses.registry_url})
        row = {"name": "op", "type": "string"}, {"name": "id", "type": "long"}
        schema = {"type": "record", "name": "Envelope", "namespace": prefix, "fields": row}
        self._row = AvroSerializer(registry, json.dumps(schema))
        self._cut = AvroSerializer(registry, canonical("cut"))
        self.cuts: list[Cut] = []

    def row(self, position: str, id_: int | None) -> None:
        """Write a row, or a tombstone, at the next offset."""
        context = SerializationContext(self._topic, MessageField.VALUE)
        value = None if id_ is None else self._row({"op": "c", "id": id_}, context)
        headers = [("position", position.encode())]
        self._producer.produce(self._topic, value, partition=0, headers=headers)

    def cut(self, cut: Cut) -> None:
        self.cuts.append(cut)
        context = SerializationContext(self._names.cuts, MessageField.VALUE)
        self.raw(self._prefix, self._cut(cut_to_avro(cut), context))

    def commits(self, head: Head, seqs: dict[int, int], *ranges: tuple[int, int]) -> None:
        """`seqs`: number of a transaction -> its rows."""
        entries = (CommitEntry(seq, seq, seq, seq, seq, 0, rows, {}) for seq, rows in seqs.items())
        mine = tuple(Range(self._topic, 0, *r) for r in ranges)
        self.cut(Commits(head, tuple(entries), mine))

    def raw(self, key: str, value: bytes) -> None:
        self._producer.produce(self._names.cuts, value, key)

    def close(self) -> None:
        assert self._producer.flush(PATIENCE) == 0


@pytest.mark.parametrize("example", ["commits", "java"])
def test_a_reader_of_commits_passes_over_what_does_not_count_and_ends_where_a_cut_is_missing(
    addresses: Addresses, topic_prefix: str, tmp_path: Path, example: str
) -> None:
    identity = Identity("1", 1, "d", "s", "p")
    more: Any = {"identity": identity, "content": "", "cluster_id": "", "topics": {}}

    def head(n: int, seq: int, writer: int = 1, *, epoch: int = 1, by: str = "") -> Head:
        return Head(n, epoch, writer, by or f"writer {writer}", seq, 0, -1)

    log = Forgery(addresses, topic_prefix)
    for position, id_ in (
        *(("1/5/0", 50), ("1/6/0", 60), ("1/6/0", None), ("1/6/0", -1), ("1/6/1", 61)),
        *(("1/7/0", -1), ("1/7/0", 70), ("2/1/0", 210), ("3/1/0", 310), ("3/2/0", -1)),
    ):
        log.row(position, id_)
    log.commits(head(7, 4), {4: 1}, (0, 1))  # older than what says who writes
    log.cut(State(head(7, 4), **more))
    log.commits(head(8, 6), {5: 1, 6: 2}, (0, 3), (4, 5))
    log.raw("somebody else", b"7 bytes")
    log.cut(TableLoad(head(9, 6), TableId("public", "t"), LoadPhase.BEGIN))
    log.cut(TableLoad(head(10, 6), TableId("public", "t"), LoadPhase.CHUNK, MEND))
    log.cut(Start(head(11, 6, 2), **more))
    log.commits(head(11, 7), {7: 1}, (5, 6))  # of the producer that was taken over from
    log.cut(Start(head(12, 6, 2, by="another"), **more))
    log.commits(head(12, 6, 2), {5: 1, 6: 2}, (0, 3), (4, 5))
    log.commits(head(12, 7, 2), {6: 2, 7: 1}, (1, 2), (4, 5), (6, 7))
    log.cut(Heartbeat(head(12, 7, 2)))
    log.cut(Start(head(13, 0, 3, epoch=2), **more, prev=Prev(1, 7, 12), continues=True))
    log.commits(head(14, 1, 3, epoch=2), {1: 1}, (7, 8))
    log.cut(Start(head(40, 0, 9, epoch=3), **more, prev=Prev(2, 5, 39), continues=False))
    log.commits(head(41, 1, 9, epoch=3), {1: 1}, (8, 9))
    log.commits(head(43, 2, 9, epoch=3), {2: 1}, (9, 10))
    log.close()

    places = (addresses.kafka_bootstrap, addresses.registry_url, topic_prefix)
    command: tuple[str | Path, ...] = (sys.executable, EXAMPLES / "commits.py", *places)
    if example == "java":
        if (executable := java(addresses)) is None:
            pytest.skip(NO_COMPILER)
        classpath = f"{jars(addresses, tmp_path / 'jars')}/*"
        command = (executable, "-cp", classpath, EXAMPLES / "Commits.java", *places)
    with Example(example, tmp_path, *command) as reader:
        shown, code, last_words = reader.ended()

    assert [
        (line["epoch"], line["commit"]["seq"], [row["id"] for row in line["changes"]])
        for line in shown
    ] == [(1, 5, [50]), (1, 6, [60, 61]), (1, 7, [70]), (2, 1, [210]), (3, 1, [310])]
    assert code == 1
    assert "cuts are missing" in last_words
    # What the product itself makes of this log.
    replay = CutReplay.from_nobody()
    counts = [replay.follow(at, cut) for at, cut in enumerate(log.cuts)]
    seqs = [(cut.head.epoch, cut.head.last_seq) for cut in counts if isinstance(cut, Commits)]
    assert seqs == [(1, 6), (1, 7), (2, 1), (3, 1)]
    assert replay.suspect is not None


def test_examples_read_each_format_of_cuts() -> None:
    for name in ("commits.py", "Commits.java"):
        (refused,) = re.findall(r"version\"\W* > (\d+)", (EXAMPLES / name).read_text("utf-8"))
        assert int(refused) == FORMAT_VERSION, name


def test_every_example_is_introduced_by_the_command_that_runs_it() -> None:
    blocks = re.findall(r"```sh\n(.*?)```", DOCUMENT.read_text("utf-8"), re.DOTALL)
    commands = "".join(blocks).replace("docs/examples/", "")

    for program in ("table.py", "commits.py", "plain_spark.py", "Commits.java"):
        text = (EXAMPLES / program).read_text("utf-8")
        (said,) = re.findall(rf"^.*\b{re.escape(program)} localhost.*$", text, re.MULTILINE)
        command = said.strip(" *").removeprefix("<p>").partition(" [")[0]
        assert f"{command}\n" in commands, program


@pytest.mark.parametrize("record", ["cut", "schema_change"])
def test_the_document_names_every_field_of_the_records_in_the_control_topics(record: str) -> None:
    said = set(re.findall(r"`([a-z_]+)`", RECORDS.read_text("utf-8")))
    fields = {field["name"] for field in avsc(record)["fields"]}
    if record == "cut":
        (commits,) = (f for f in avsc(record)["fields"] if f["name"] == "commits")
        fields |= {field["name"] for field in commits["type"][1]["items"]["fields"]}

    assert fields - said - {"epoch", "seq", "ordinal", "xid", "csn", "lsn"} == set()


def test_the_document_names_every_header() -> None:
    said = re.findall(r"^\| `(\w+)` \|", DOCUMENT.read_text("utf-8"), re.MULTILINE)

    assert {headers.XID, headers.CSN, headers.LSN, headers.POSITION, headers.USER} <= set(said)
