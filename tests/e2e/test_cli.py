"""The commands that look, as an operator types them."""

import json
import queue
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path as File
from urllib.parse import quote

import click
import psycopg2
import pytest
from confluent_kafka.admin import AdminClient

from gauss_cdc.config import load
from gauss_cdc.inspect.look import tail_lines
from gauss_cdc.inspect.places import Endpoints
from gauss_cdc_lab.services.process import poll
from producer.errors import CdcError
from producer.kafka.registry import Registry
from producer.kafka.topics import TopicAdmin
from producer.sources.dial import parse_dsn
from schemas.load import CUT, canonical
from schemas.quoting import identifier
from spark_consumers.errors import ApplyError, NotExpressible, RegistryDown
from spark_consumers.kafka.read import CutReader, registry_at
from spark_consumers.loop.job import Applier
from tests.e2e.commands import command
from tests.e2e.path import PATIENCE, ask, pause, until


def raises(error: type[Exception], call: Callable[[], object]) -> bool:
    try:
        call()
    except error:
        return True
    return False


@contextmanager
def tailing(file: File) -> Iterator[Callable[[], str]]:
    """`tail --follow` in a thread; call for the next line."""
    stop, lines = threading.Event(), queue.SimpleQueue[str]()

    def follow() -> None:
        for line in tail_lines(
            load(file), (), last=100, follow=True, as_json=False, stop=stop.wait
        ):
            lines.put(line)

    thread = threading.Thread(target=follow)
    thread.start()
    try:
        yield lambda: lines.get(timeout=PATIENCE)
    finally:
        stop.set()
        thread.join()


def test_one_looks_at_a_running_source(place) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    path.start()
    path.catch_up()
    ask(
        path.source, "INSERT INTO t VALUES (1, 'one'), (2, NULL); UPDATE t SET v = 'x' WHERE id = 2"
    )
    path.catch_up()

    status = json.loads(command(file, "status", "--json").stdout)
    assert status["lag"]["commits"] == 0
    assert status["target"]["state"] == "EXACT"
    assert (status["cuts"]["epoch"], status["cuts"]["seq"]) == (1, 1)

    lines = [json.loads(line) for line in command(file, "tail", "--json").stdout.splitlines()]
    assert [(row["position"], row["op"], row["after"]) for row in lines] == [
        ("1/1/0", "c", {"id": 1, "v": "one"}),
        ("1/1/1", "c", {"id": 2, "v": None}),
        ("1/1/2", "u", {"id": 2, "v": "x"}),
    ]

    cuts = [json.loads(line) for line in command(file, "cuts", "--json").stdout.splitlines()]
    assert [cut["kind"] for cut in cuts if cut["kind"] != "HEARTBEAT"] == [
        *("START", "TABLE", "TABLE", "COMMITS")
    ]
    positions = [cuts[0]["resume"], cuts[-1]["resume"], status["cuts"]["resume"]]
    positions += [one["as_of"] for one in cuts if one["kind"] == "TABLE"]
    positions += [e["end_lsn"] for one in cuts for e in one.get("commits", ()) if e]
    slots = [json.loads(line) for line in command(file, "slot", "list").stdout.splitlines()]
    positions += [slots[0]["confirmed"], slots[0]["restart"]]
    assert all(re.fullmatch(r"[1-9A-F]?[0-9A-F]*/[1-9A-F][0-9A-F]*", p) for p in positions)
    assert command(file, "wait", "--timeout", "60s").stdout == "1/1\n"
    assert json.loads(command(file, "slot", "show").stdout)["active"] is True


def test_a_look_that_goes_on_says_what_a_new_one_says(place) -> None:
    """Commits, a load, another writer; then records that no `run` of ours wrote."""
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY, v text)")

    def change(number: int) -> None:
        ask(path.source, "INSERT INTO t VALUES (%s, 'v')", number)

    def load_again(_: int) -> None:
        assert command(file, "snapshot", "--table", "public.t").exit_code == 0

    def restart(number: int) -> None:
        path.stop()
        change(number)
        path.start()

    path.start()
    path.catch_up()
    with Endpoints(load(file)) as kept:
        for number, step in enumerate((change, change, load_again, restart, change)):
            step(number)
            path.catch_up()
            on = kept.cuts(goes_on=True)
            with Endpoints(load(file)) as fresh:
                new = fresh.cuts()
                while (on.n, on.written_at) != (new.n, new.written_at):  # one came in between
                    on, new = kept.cuts(goes_on=True), fresh.cuts()
            assert replace(on, state_at=0) == replace(new, state_at=0), step.__name__
        assert (on.epoch, on.seq, on.writer) == (1, 4, 2)


def test_tail_is_typed_and_in_commit_order_across_tables(place) -> None:
    path, file = place
    ask(
        path.source,
        "CREATE TABLE a (id bigint PRIMARY KEY, n numeric, f float8, b bool, j jsonb,"
        " l int[], d date); CREATE TABLE b (id int PRIMARY KEY, v text)",
    )
    path.start()
    path.catch_up()
    with tailing(file) as line:
        for number in range(3):
            ask(
                path.source,
                f"INSERT INTO b VALUES ({number}, E'\\x1b[2J'); INSERT INTO a VALUES ("
                f"9007199254740993 + {number}, 12345678901234567890.10, 'NaN', true,"
                " '{\"x\": [1.10, null]}', '{1,NULL}', '2024-05-01');"
                f"UPDATE b SET v = 'x' WHERE id = {number}",
            )
        path.catch_up()
        followed = [line() for _ in range(9)]

    said = command(file, "tail", "--json", "--last", "5").stdout
    lines = [json.loads(line) for line in said.splitlines()]
    assert [row["position"] for row in lines] == ["1/2/1", "1/2/2", "1/3/0", "1/3/1", "1/3/2"]
    assert '"n": 12345678901234567890.10, ' in said
    assert '"j": {"x": [1.10, null]}' in said
    first = lines[0]
    assert (first["table"], first["after"]["id"]) == ("public.a", 9007199254740994)
    assert (first["after"]["f"], first["after"]["b"], first["after"]["l"]) == (
        "NaN",
        True,
        [1, None],
    )
    assert first["after"]["d"] == "2024-05-01"
    assert first["xid"] > 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", first["time"])
    assert re.fullmatch(r"[0-9A-F]+/[0-9A-F]+", first["lsn"])
    assert [line.split()[0] for line in followed] == [
        f"1/{seq}/{ordinal}" for seq in (1, 2, 3) for ordinal in range(3)
    ]
    assert "\x1b" not in "".join(followed)


def test_wait_times_out_without_an_applier(place) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    path.start()
    path.catch_up()
    path.stop()
    ask(path.source, "INSERT INTO t VALUES (1)")

    given_up = command(file, "wait", "--timeout", "1s")

    assert isinstance(given_up.exception, SystemExit)
    assert given_up.exception.code == 4


def test_what_needs_a_registry_that_is_down_says_so(place) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    path.start()
    path.catch_up()
    with socket.create_server(("127.0.0.1", 0)) as closed:
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"
    down = file.with_name("down.toml")
    down.write_text(file.read_text().replace(path.options.registry_url, url))

    for words in (["tail"], ["cuts"], ["tail", "public.t"]):
        failure = command(down, *words).exception
        assert isinstance(failure, CdcError | ApplyError), words
        assert failure.verdict.name == "RETRY"
        assert url in str(failure)
    given_up = command(down, "wait", "--timeout", "1s")
    assert isinstance(given_up.exception, SystemExit)
    assert given_up.exception.code == 4
    found = json.loads(command(down, "check", "--json").stdout)
    assert "does not answer" in next(f["what"] for f in found if f["subject"] == "registry")

    # `apply` tries again what passes: here with the loop that it runs in.
    ask(path.source, "INSERT INTO t VALUES (2)")
    cuts = CutReader(path.options.client, path.prefix, registry_at(url, {"max.retries": "0"}))
    applier = Applier(cuts, path.rows, path.sink)
    with closing(cuts):
        until(lambda: raises(RegistryDown, applier.drain), "a record of cuts", time.sleep)


def test_check_says_what_would_go_wrong_later(place) -> None:
    path, file = place
    ask(
        path.source,
        "CREATE TYPE mood AS ENUM ('ok'); CREATE TYPE other;"
        "CREATE FUNCTION other_in(cstring) RETURNS other AS 'textin' LANGUAGE internal STRICT;"
        "CREATE FUNCTION other_out(other) RETURNS cstring AS 'textout' LANGUAGE internal STRICT;"
        "CREATE TYPE other (INPUT = other_in, OUTPUT = other_out);"
        "CREATE TABLE fine (id int PRIMARY KEY, m mood); CREATE TABLE keyless (v text);"
        "CREATE TABLE odd (id int PRIMARY KEY, v other);"
        "CREATE UNLOGGED TABLE loose (id int PRIMARY KEY)",
    )
    ask(path.target, "CREATE TABLE fine (id int PRIMARY KEY, m text); INSERT INTO fine VALUES (1)")
    file.write_text(file.read_text() + '\n[types]\nunknown-types = "fail"\n')

    with closing(psycopg2.connect(path.source)) as session:
        session.cursor().execute("CREATE TEMPORARY TABLE passing (id int)")
        session.commit()
        found = json.loads(command(file, "check", "--json").stdout)

    said = {(f["level"], f["subject"]): f["what"] for f in found}
    assert "other" in said["error", "table public.odd"]
    assert ("error", "table public.fine") not in said
    assert "no replica identity" in said["warning", "table public.keyless"]
    assert "unlogged" in said["warning", "table public.loose"]
    assert "passing" in said["note", "temporary tables"]
    assert "does not exist" in said["warning", "publication"]
    assert "holds rows" in said["warning", "table public.fine"]
    assert ("ok", "server") in said
    assert "made by" in said["ok", "rows"]
    assert command(file, "check").exit_code == 1


def test_check_fixes_what_may_be_fixed_and_then_finds_nothing_wrong(place) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")

    fixed = json.loads(command(file, "check", "--fix", "--json").stdout)
    again = json.loads(command(file, "check", "--json").stdout)

    assert ("fixed", "publication") in {(f["level"], f["subject"]) for f in fixed}
    assert ("ok", "publication") in {(f["level"], f["subject"]) for f in again}
    assert not [f for f in again if f["level"] == "error"]


def test_who_types_what_check_prints_comes_to_its_end(place) -> None:
    """Roles without any right, one of them with an odd name; a superuser types, word by word."""
    path, file = place
    roles = {path.source: f'Cdc "S" {path.prefix}', path.target: f"t-{path.prefix}"}
    for url, role in roles.items():
        ask(url, f"CREATE ROLE {identifier(role)} LOGIN")
        ask(url, "REVOKE ALL ON SCHEMA public FROM PUBLIC")
        ask(url, f"REVOKE ALL ON DATABASE {url.rsplit('/', 1)[1].split('?')[0]} FROM PUBLIC")
        at = re.sub("//([^@/]*@)?", f"//{quote(role)}@", url, count=1)
        file.write_text(file.read_text().replace(f'"{url}"', f'"{at}"'))
    ask(path.source, 'CREATE TABLE "T a""b" (id int PRIMARY KEY, v text)')
    ask(path.source, "CREATE TABLE keyless (v text)")
    told = set[str]()

    for _ in range(9):
        found = json.loads(command(file, "check", "--json").stdout)
        bad = [f for f in found if f["level"] in {"error", "warning"} and f["hint"]]
        for statement in re.findall(_STATEMENT, "\n".join(f["hint"] for f in bad), re.MULTILINE):
            told.add(statement)
            is_target = roles[path.target] in statement
            ask(path.target if is_target else path.source, statement)
        if not [f for f in bad if re.search(_STATEMENT, f["hint"], re.MULTILINE)]:
            break

    assert [f for f in found if f["level"] == "error"] == [], told
    assert not [one for one in told if "REPLICATION" in one and roles[path.target] in one]
    for url, role in roles.items():
        ask(url, f"DROP OWNED BY {identifier(role)} CASCADE")


_STATEMENT = "(?:GRANT|ALTER|CREATE) [^;\n]*"


def test_check_publishes_again_a_table_that_was_made_again(place) -> None:
    path, file = place
    # A look between DROP and `check --fix` publishes the new table, and loads it: nothing is lost.
    path.options = replace(path.options, look_seconds=3600.0)
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int PRIMARY KEY)")
    path.start()
    path.catch_up()
    ask(path.source, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    (lacks,) = [
        f for f in json.loads(command(file, "check", "--json").stdout)
        if (f["level"], f["subject"]) == ("warning", "publication")
    ]  # fmt: skip

    fixed = json.loads(command(file, "check", "--fix", "--json").stdout)
    ask(path.source, "INSERT INTO t VALUES (2); INSERT INTO u VALUES (3)")
    path.catch_up()

    assert "lacks public.t" in lacks["what"]
    assert "check --fix" in lacks["hint"]
    assert ("fixed", "publication") in {(f["level"], f["subject"]) for f in fixed}
    assert set(path.catch_up().inexact) == {"public.t"}
    assert ask(path.target, "SELECT id FROM t UNION ALL SELECT id FROM u ORDER BY 1") == [
        (2,),
        (3,),
    ]


def test_check_names_the_gaps_that_the_next_run_finds(place) -> None:
    """The publication was dropped and made again, and the stream brings nothing of it."""
    path, file = place

    def of_run() -> list[tuple[str, str]]:
        found = json.loads(command(file, "check", "--json").stdout)
        return [(f["level"], f["what"]) for f in found if f["subject"] == "run"]

    goes_on = ("ok", f"continues after the newest cut, by slot {path.prefix}")
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    path.start()
    path.catch_up()
    path.stop()
    assert of_run() == [goes_on]
    made = f"CREATE PUBLICATION {path.prefix} FOR TABLE t"
    ask(path.source, f"DROP PUBLICATION {path.prefix}; {made}")

    altered = "the publication was altered since `run` looked last: rows may have been lost"
    assert of_run() == [goes_on, ("warning", altered)]
    path.start()
    assert path.waited().keys() == {"public.t"}


def test_check_registers_no_schema_and_makes_no_topic(place, registry_url: str) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")

    found = json.loads(command(file, "check", "--json").stdout)

    assert any("is not checked: that would write" in f["what"] for f in found)
    registry = Registry(registry_url)
    assert not registry.has(f"{path.prefix}.cuts-value", canonical(CUT))
    registry.close()
    admin = TopicAdmin(path.options.client, path.options.topic_settings)
    assert admin.list_below(path.prefix) == []


def errors(file: File) -> dict[str, str]:
    found = json.loads(command(file, "check", "--json").stdout)
    return {f["subject"]: f"{f['what']}; {f['hint']}" for f in found if f["level"] == "error"}


def test_check_asks_what_run_and_apply_will_ask(place, new_database) -> None:
    path, file = place
    ask(
        path.source,
        "CREATE TABLE t (id int PRIMARY KEY, v text, n numeric(10,2));"
        "CREATE TABLE u (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'one', 1.25)",
    )
    path.start()
    path.catch_up()
    path.stop()
    text = file.read_text()

    # Another key; a target that somebody altered.
    file.write_text(text.replace("[kafka]", '[kafka]\nkey = "primary-key"'))
    ask(path.target, "ALTER TABLE t ALTER n TYPE numeric(10,1); ALTER TABLE u DROP COLUMN v")
    found = errors(file)
    assert "what decides which rows exist differs" in found["run"]
    assert "does not hold the source's values" in found["table public.t"]
    assert "source=numeric(10,2), target=numeric(10,1)" in found["table public.t"]
    assert "lacks columns of the source's (table=public.u, columns=v)" in found["table public.u"]

    # Another source; a table that is gone at the target.
    elsewhere = new_database()
    ask(elsewhere, "CREATE TABLE t (id int PRIMARY KEY)")
    file.write_text(text.replace(path.source, elsewhere))
    ask(path.target, "DROP TABLE t; ALTER TABLE u ADD v text")
    found = errors(file)
    assert "the prefix belongs to another database" in found["run"]
    assert "does not have a table of the stream" in found["table public.t"]
    file.write_text(text)

    # A topic and a slot that are gone.
    admin = AdminClient(path.options.client)
    topic = f"{path.prefix}.public.t"
    admin.delete_topics([topic])[topic].result()
    topics = TopicAdmin(path.options.client, path.options.topic_settings)
    assert poll(lambda: topic not in topics.list_below(path.prefix), 60)
    assert f"a topic was deleted or made again (topic={topic})" in errors(file)["run"]
    ask(path.source, "SELECT pg_drop_replication_slot(%s)", path.prefix)
    said = errors(file)["run"]
    assert "the replication slot does not" in said
    assert "--accept-gap" in said


def test_a_table_that_cannot_hold_the_sources_values_is_refused_by_check_and_by_apply(
    place,
) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id bigint PRIMARY KEY, v text)")
    ask(path.target, "CREATE TABLE t (id int PRIMARY KEY, v varchar(10))")

    found = json.loads(command(file, "check", "--json").stdout)

    said = [f["what"] for f in found if f["subject"] == "table public.t" and f["level"] == "error"]
    assert ["column=id" in said[0], "column=v" in said[1]] == [True, True]
    path.start()
    with pytest.raises(NotExpressible) as caught:
        path.catch_up()
    assert caught.value.what in said[0]


def test_a_table_is_asked_for_and_the_request_taken_back(place) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    wanted = ("snapshot", "--table", "public.t")

    assert command(file, "snapshot").stdout == ""
    assert json.loads(command(file, *wanted).stdout)["table"] == "public.t"
    assert json.loads(command(file, "snapshot").stdout)["table"] == "public.t"
    assert command(file, *wanted, "--cancel").stdout == ""
    assert "nobody asks" in str(command(file, *wanted, "--cancel").exception)


@pytest.mark.parametrize("name", ["public.T", "PUBLIC.t", "public.t ", "public.v", "public.p_key"])
def test_a_name_that_no_table_has_is_not_asked_for(place, name) -> None:
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY); CREATE VIEW v AS TABLE t")

    asked = command(file, "snapshot", "--table", name)

    assert isinstance(asked.exception, click.UsageError)
    assert f"the source has no table {name};" in str(asked.exception)
    assert command(file, "snapshot").stdout == ""


def test_it_is_said_that_a_table_is_not_captured_by_its_name(place) -> None:
    """A partition is sent as its root."""
    path, file = place
    ask(path.source, "CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id)")
    ask(path.source, "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (0) TO (9)")
    path.start()
    path.catch_up()

    assert command(file, "snapshot", "--table", "public.p_1").exception is None

    until(lambda: command(file, "snapshot").stdout == "", "its answer", pause)
    assert path.notes[-1] == "public.p_1 is not read, as it is not captured by this name"


def test_a_table_is_not_read_whose_request_could_not_be_removed(place) -> None:
    """It would be read again and again, and each time the session would end."""
    path, file = place
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY)")
    path.start()
    path.catch_up()
    path.stop()
    command(file, "snapshot", "--table", "public.t")
    setting = f"ALTER DATABASE {parse_dsn(path.source).dbname} SET default_transaction_read_only"
    ask(path.source, f"{setting} = on")
    path.notes.clear()

    path.start()
    until(lambda: any("re-reads are not read" in note for note in path.notes), "a note", pause)
    path.catch_up()
    assert not [note for note in path.notes if "retrying" in note]

    path.stop()
    ask(path.source, f"SET TRANSACTION READ WRITE; {setting} = off")
    path.start()
    until(lambda: command(file, "snapshot").stdout == "", "its answer", pause)


def test_a_slot_without_a_load_leaves_older_rows_behind(place) -> None:
    path, file = place
    for name in ("t", "still"):
        ask(path.source, f"CREATE TABLE {name} (id int PRIMARY KEY); INSERT INTO {name} VALUES (1)")

    assert command(file, "slot", "create").exit_code == 0
    path.start()
    ask(path.source, "INSERT INTO t VALUES (2)")
    ledger = path.catch_up()

    assert ask(path.target, "SELECT id FROM t") == [(2,)]
    # One that nobody writes to is not there at all.
    assert ledger.inexact.keys() == {"public.t", "public.still"}
    path.stop()
    assert command(file, "slot", "drop", "--yes").exit_code == 0
    assert command(file, "slot", "show").exception.code == 13
