"""Source and target are compared at one commit while both are live."""

import json
import random
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path as File

import psycopg2
import pytest

from gauss_cdc.config import Config, ConfigError, load
from gauss_cdc.verify.report import Outcome, RowKind, TableReport
from gauss_cdc.verify.request import Request, VerifyObserver
from gauss_cdc.verify.rounds import verify
from gauss_cdc_lab.emulator.login import Account
from producer.sources import requests
from producer.sources.dial import parse_dsn
from producer.sources.postgres.catalog import QueryingConnection, connect
from tests.e2e.commands import command, configured
from tests.e2e.gauss_facade import PASSWORD, USER, facade
from tests.e2e.path import Path, ask, pause, until
from tests.schemas.types.values import SAMPLES

TABLES = """
CREATE TABLE account (id bigint PRIMARY KEY, balance numeric(12,2), note text);
CREATE TABLE named (name text COLLATE "und-x-icu", part int, v real, PRIMARY KEY (name, part));
CREATE TABLE event (at timestamptz, what jsonb, x double precision);
ALTER TABLE event REPLICA IDENTITY FULL;
CREATE TABLE metric (id int, day date, v numeric, PRIMARY KEY (id, day)) PARTITION BY RANGE (day);
CREATE TABLE metric_old PARTITION OF metric FOR VALUES FROM (MINVALUE) TO ('2020-01-01');
CREATE TABLE metric_new PARTITION OF metric FOR VALUES FROM ('2020-01-01') TO (MAXVALUE);
INSERT INTO account SELECT g, g, repeat('x', g % 50) FROM generate_series(1, 3000) g;
INSERT INTO named SELECT chr(97 + g % 26) || g, g % 3, g / 7.0 FROM generate_series(1, 2000) g;
INSERT INTO named VALUES ('Ä', 1, 'NaN'), ('ä', 1, '-0'), ('a', 1, 'infinity'), ('A', 1, 1e-45);
INSERT INTO event SELECT 'epoch'::timestamptz + g * interval '1 h', jsonb_build_object('g', g), g
  FROM generate_series(1, 500) g;
INSERT INTO event VALUES ('infinity', '{"b": 1.50, "a": [1, null]}', '-0'), (NULL, NULL, 'NaN'),
  ('4000-01-01 BC', '"x"', 'infinity'), ('4000-01-01 BC', '"x"', 'infinity');
INSERT INTO metric SELECT g, date '2019-06-01' + g, g FROM generate_series(1, 600) g;
"""
STRANGER = """
UPDATE account SET note = 'stranger' WHERE id = 2500;
DELETE FROM account WHERE id = 2600;
INSERT INTO account VALUES (-5, 1, NULL);
UPDATE named SET v = '0' WHERE name = 'z25';
INSERT INTO named VALUES ('ß', 1, 1);
DELETE FROM event WHERE ctid = (SELECT min(ctid) FROM event WHERE at = '4000-01-01 BC');
INSERT INTO event VALUES ('2001-01-01', '{}', NULL);
INSERT INTO metric VALUES (9999, '2001-02-03', 0);
"""
NAMES = ("public.account", "public.event", "public.metric", "public.named")


LOAD: tuple[str, ...] = (
    "UPDATE account SET balance = balance + %(n)s WHERE id = %(n)s %% 40 + 1",
    "UPDATE account SET note = NULLIF(note, 'x') WHERE id %% 50 = %(n)s %% 50 AND id < 1000",
    "INSERT INTO account VALUES (100000 + %(n)s, %(n)s / 3.0, repeat(md5(%(n)s::text), 300))",
    "UPDATE account SET balance = 0 WHERE id >= 100000 AND id %% 7 = %(n)s %% 7",
    "UPDATE account SET id = id + 1000000 WHERE id = 100000 + %(n)s - 20",
    "DELETE FROM account WHERE id = 100000 + %(n)s - 31",
    "UPDATE named SET v = v + 0.1 WHERE part = %(n)s %% 3 AND name < 'f'",
    "UPDATE named SET part = part + 3 WHERE name = 'Ä'",
    "INSERT INTO event VALUES (now(), '{\"n\": 1}', %(n)s / 7.0)",
    "DELETE FROM event WHERE x > 1 AND x = (SELECT min(x) FROM event WHERE x > 1)",
    "UPDATE event SET x = -x WHERE at = 'infinity'",
    "UPDATE metric SET day = day + 1 WHERE id = %(n)s %% 600 + 1",
)


@contextmanager
def applying(path: Path) -> Iterator[None]:
    """The consumer's loop in a thread."""
    with repeated(lambda _: path.applier.drain()):
        yield


@contextmanager
def under_load(path: Path) -> Iterator[None]:
    """Transactions of several tables, again and again."""
    connection = psycopg2.connect(path.source)

    def change(n: int) -> None:
        with connection, connection.cursor() as cursor:
            for statement in random.Random(n).sample(LOAD, 4):
                cursor.execute(statement, {"n": n})

    with repeated(change):
        yield
    connection.close()


@contextmanager
def repeated(call: Callable[[int], object]) -> Iterator[None]:
    stop, failures = threading.Event(), list[BaseException]()

    def run() -> None:
        n = 0
        try:
            while not stop.wait(0.01):
                n += 1
                call(n)
        except BaseException as failure:  # noqa: BLE001  raised by the test
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failures:
        raise failures[0]


def compared(config: Config, **request) -> dict[str, TableReport]:
    watch = VerifyObserver(print, lambda *_: None, threading.Event().wait)
    found = verify(config, Request(**request), watch)
    assert found is not None
    return {report.table: report for report in found}


def differing(report: TableReport) -> set[tuple[str, ...]]:
    return {(row.kind.value, *(cell or "" for cell in row.key)) for row in report.rows}


def test_what_a_stranger_did_is_found_under_load_and_nothing_else(place: tuple[Path, File]) -> None:
    path, file = place
    config = load(file)
    ask(path.source, TABLES)
    path.start()
    path.catch_up()

    with applying(path), under_load(path):
        settled = 0
        for _ in range(2):
            found = compared(config)
            settled += sum(report.settled for report in found.values())
            outcomes = {name: report.outcome for name, report in found.items()}
            assert outcomes == dict.fromkeys(NAMES, Outcome.EQUAL), found
        assert settled > 0  # rows that changed between the two snapshots
        ask(path.target, STRANGER)
        found = compared(config)

    assert differing(found["public.account"]) == {
        ("changed", "2500"), ("missing", "2600"), ("extra", "-5")
    }  # fmt: skip
    changed = next(row for row in found["public.account"].rows if row.key == ("2500",))
    assert changed.columns == ("note",)
    assert differing(found["public.named"]) == {("changed", "z25", "1"), ("extra", "ß", "1")}
    assert found["public.event"].counts == {RowKind.MISSING: 1, RowKind.EXTRA: 1}
    assert differing(found["public.metric"]) == {("extra", "9999", "2001-02-03")}


def test_the_command_says_what_differs_and_keeps_values_for_itself(
    place: tuple[Path, File],
) -> None:
    path, file = place
    ask(
        path.source,
        "CREATE TABLE account (id int PRIMARY KEY, owner text);"
        "CREATE TABLE log (line text);"
        "INSERT INTO account SELECT g, 'o' || g FROM generate_series(1, 500) g",
    )
    path.start()
    path.catch_up()

    with applying(path):
        assert command(file, "verify").exit_code == 0
        ask(path.target, "UPDATE account SET owner = 'mallory' WHERE id IN (77, 78)")
        ask(path.target, "ALTER TABLE log DROP COLUMN line")
        silent = command(file, "verify", "--json")
        shown = command(file, "verify", "--json", "--show-keys")
        sampled = command(file, "verify", "--table", "public.account", "--sample", "10%", "--json")
        printed = command(file, "verify", "--show-keys", "--limit", "1")
        lacking = command(file, "verify", "--table", "public.log")
        unknown = command(file, "verify", "--table", "public.none")
        asked = command(file, "verify", "--repair", "--table", "public.account")
        with connect(parse_dsn(path.source)) as source:
            asks = QueryingConnection(source)
            until(lambda: not requests.requests(asks, path.options.slot), "the re-read", pause)
        mended = command(file, "verify", "--table", "public.account")

    account, log = json.loads(silent.stdout)
    assert (account["outcome"], account["differences"]["changed"]) == ("different", 2)
    assert (log["outcome"], log["why"]) == ("not decided", "the target lacks columns: line")
    assert (silent.exit_code, lacking.exit_code) == (7, 8)
    assert "77" not in silent.stdout
    keys = json.loads(shown.stdout)[0]["keys"]
    assert keys[0] == {"kind": "changed", "key": {"id": "77"}, "columns": ["owner"]}
    assert 10 < json.loads(sampled.stdout)[0]["rows"]["source"] < 120
    assert "public.account: changed: id=77 (owner)" in printed.stderr
    assert "public.account: 1 more" in printed.stderr
    assert re.search(r"^public.account +different .* 2 changed *$", printed.stderr, re.MULTILINE)
    assert "mallory" not in shown.output + printed.output
    assert isinstance(unknown.exception, ConfigError)
    assert (asked.exit_code, mended.exit_code) == (7, 0)
    assert "is asked to read again: public.account" in asked.stderr


def test_tables_that_are_not_compared_are_named(place: tuple[Path, File]) -> None:
    path, file = place
    for name in "ab":
        ask(path.source, f"CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1)")
    ask(path.source, f"CREATE PUBLICATION {path.prefix} FOR TABLE a")  # of others
    path.start()
    path.catch_up()
    less = file.with_name("less.toml")
    less.write_text(f"{file.read_text()}\n[tables]\nexclude = ['public.a']\n")

    with applying(path):
        both = command(file, "verify", "--json")
        alone = command(file, "verify", "--table", "public.b", "--json")
        ask(path.target, "DELETE FROM a")
        left = command(less, "verify", "--repair", "--json")
        asked = command(less, "verify", "--table", "public.a", "--repair")

    why = (
        f"not captured: publication {path.prefix} does not have it, or not whole;"
        " have it captured, or leave it out of [tables]"
    )
    assert {one["table"]: one["why"] for one in json.loads(both.stdout)} == {
        "public.a": None, "public.b": why
    }  # fmt: skip
    assert [one["why"] for one in json.loads(alone.stdout)] == [why]
    assert (both.exit_code, alone.exit_code) == (8, 8)
    assert "public.a is not in [tables] any more: it is not compared" in left.stderr
    assert [one["table"] for one in json.loads(left.stdout)] == ["public.b"]
    assert left.exit_code == 8
    assert "not read again, since [tables] does not name it: public.a" in asked.stderr
    assert asked.exit_code == 7
    with closing(connect(parse_dsn(path.source))) as source:
        assert requests.requests(QueryingConnection(source), path.prefix) == []


@pytest.mark.since(15, "scales outside of a precision, intervals of 2^63 microseconds")
def test_values_of_every_type_are_equal_to_themselves(place: tuple[Path, File]) -> None:
    path, file = place
    samples = [one for one in SAMPLES if has_type(path.source, one.type_name)]
    columns = ", ".join(f"c{at} {one.type_name}" for at, one in enumerate(samples))
    ask(path.source, f"CREATE TABLE typed (id int PRIMARY KEY, {columns})")
    for row in range(max(len(one.texts) for one in samples)):
        values = [one.texts[row % len(one.texts)] for one in samples]
        marks = ", ".join(["%s"] * len(values))
        for shift in (0, 1000):  # loaded, and streamed below
            ask(path.source, f"INSERT INTO typed VALUES (%s, {marks})", row + shift, *values)
    path.start()
    path.catch_up()
    ask(path.source, "UPDATE typed SET id = id + 1000 WHERE id >= 1000")

    with applying(path):
        (report,) = compared(load(file)).values()

    assert (report.outcome, report.source_rows > 0) == (Outcome.EQUAL, True), report


def test_a_source_behind_the_emulator_is_compared(
    addresses, topic_prefix, new_database, tmp_path: File, monkeypatch
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v double precision, n numeric)")
    ask(source, "INSERT INTO t SELECT g, g / 3.0, g / 7.0 FROM generate_series(1, 900) g")
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    with facade(source, accounts=[Account(USER, PASSWORD, is_admin=True)]) as front:
        dsn = f"postgresql://{USER}@127.0.0.1:{front.emulator.port}/{front.database}"
        kind = {"kind": "opengauss", "plugin": "mppdb_decoding"}
        dsn = f"{dsn}?sslmode=disable"
        file = configured(tmp_path, addresses, topic_prefix, dsn, target, **kind)
        with Path(addresses, topic_prefix, source, target, **kind) as path:
            path.options = replace(path.options, source=parse_dsn(dsn, PASSWORD))
            path.start()
            path.catch_up()
            ask(source, "CREATE TABLE idle (id int PRIMARY KEY)")  # the stream says nothing of it
            with applying(path), repeated(
                lambda n: ask(source, "UPDATE t SET v = v + 0.1 WHERE id = %s", n % 50 + 1)
            ):  # fmt: skip
                (equal,) = compared(load(file)).values()
                ask(target, "UPDATE t SET v = 'NaN' WHERE id = 600; DELETE FROM t WHERE id = 601")
                (report,) = compared(load(file)).values()

    assert equal.outcome is Outcome.EQUAL, equal
    assert differing(report) == {("changed", "600"), ("missing", "601")}
    assert ask(source, "SELECT count(*) FROM pg_replication_slots WHERE slot_name ~ 'verify'") == [
        (0,)
    ]


def has_type(url: str, name: str) -> bool:
    return ask(url, "SELECT to_regtype(%s) IS NOT NULL", re.sub(r"\(.*?\)", "", name)) == [(True,)]
