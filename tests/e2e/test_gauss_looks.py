"""openGauss and GaussDB: what is done to a table that no row of the stream shows.

Every test ends with the same claim: what `wait` calls exact is equal.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace

import psycopg2
import pytest

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from producer.core.catalog.look import Before
from producer.core.ports import Tuning, Wish
from producer.sources import requests
from producer.sources.gauss import point as gauss_point
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.source import open_session
from schemas.control import Looked
from schemas.tables import TableId
from tests.e2e.commands import command, configured
from tests.e2e.gauss_facade import PASSWORD
from tests.e2e.path import PATIENCE, ask, content, until
from tests.e2e.test_ddl_gaps import Watched
from tests.e2e.test_gauss_modes import caught_up, gauss, is_streaming, source_of

__all__ = ["gauss"]

# server, kind, decoding options
DECODED = ("gaussdb", {"enable-ddl-decoding": "true"})
PLAIN = ("gaussdb", {})
OG = ("opengauss", {})
OG_PARALLEL = ("opengauss", {"parallel-decode-num": "3", "sending-batch": "1"})
MODES = {
    "og serial": ("og7", OG),
    "og parallel": ("og7", OG_PARALLEL),
    "gaussdb": ("gaussdb", PLAIN),
    "gaussdb ddl": ("gaussdb", DECODED),
}
PROBE = "CREATE TABLE exact (id int PRIMARY KEY); CREATE TABLE probe (id int PRIMARY KEY);"


def in_modes(*names: str) -> pytest.MarkDecorator:
    """Run a test in several modes of decoding, each at its server."""
    modes = [MODES[name] for name in names]
    return pytest.mark.parametrize(("gauss", "mode"), modes, ids=names, indirect=["gauss"])


@dataclass
class Play:
    path: Watched
    places: Endpoints
    source: str
    target: str
    notes: list[str] = field(default_factory=list)

    def start(self) -> None:
        self.path.notes.clear()
        self.path.start()
        until(lambda: is_streaming(self.path), "streaming", self.path._stop.wait)

    def wait(self, limit: float = PATIENCE) -> AbstractSet[str]:
        """As `gauss-cdc wait`; the tables that are marked when it ends."""
        end = time.monotonic() + limit

        def pause(seconds: float) -> bool:
            self.path.applier.drain()
            if self.path.failure is not None:
                raise self.path.failure
            return self.path._stop.wait(min(seconds, 0.05)) or time.monotonic() > end

        goal = self.places.source().goal()
        standing = self.places.wait(goal, pause, lambda _: None, self.notes.append)
        assert standing is not None, f"wait does not end: {self.notes[-2:]}"
        assert standing.target is not None
        return set(standing.target.inexact)

    def probe(self) -> None:
        """Wait for a look behind this place: there is a row that it has to find; once."""
        ask(self.source, "GRANT SELECT ON probe TO public; INSERT INTO probe VALUES (1)")

        def is_found() -> bool:
            self.path.applier.drain()
            if self.path.failure is not None:
                raise self.path.failure
            return ("public.probe", "suspected") in self.path.holes

        until(is_found, "a look", self.path._stop.wait)

    def assert_honest(self, marks: AbstractSet[str], *tables: str) -> None:
        """What is not marked is equal."""
        lies = {}
        for table in tables:
            if f"public.{table}" in marks:
                continue
            there = content(self.source, table)
            is_here = ask(self.target, "SELECT to_regclass(%s) IS NOT NULL", table) == [(True,)]
            here = content(self.target, table) if is_here else None
            if here != there:
                lies[table] = (there[:3], len(there), here and here[:3], here and len(here))
        assert lies == {}, f"FALSE EXACT: table -> source, rows, target, rows: {lies}"


@contextmanager
def playing(
    addresses, prefix, new_database, gauss, tmp_path, monkeypatch, mode, sql, **how
) -> Iterator[Play]:
    kind, options = mode
    source, target = new_database(), new_database()
    ask(source, sql)
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    dsn = f"{gauss}/{source.rsplit('/', 1)[1]}?sslmode=disable"
    plugin = how.pop("plugin", "mppdb_decoding")
    keys = {"kind": kind, "plugin": plugin}
    keys |= {name: how[name] for name in ("role",) if name in how}
    file = configured(tmp_path, addresses, prefix, dsn, target, **keys)
    lines = "".join(f'"{name}" = "{value}"\n' for name, value in options.items())
    include = list(how.get("include", ("public.*",)))
    text = file.read_text().replace(
        "[kafka]\n",
        f"[source.options]\n{lines}[tables]\ninclude = {json.dumps(include)}\n[kafka]\n",
        1,
    )
    file.write_text(text)
    with (
        Watched(
            addresses, prefix, source, target, kind=kind, plugin=plugin,
            plugin_options=options, **{"include": ("public.*",), **how},
        ) as path,
        Endpoints(load(file)) as places,
    ):  # fmt: skip
        path.watch()
        path.options = replace(path.options, source=source_of(gauss, source))
        yield Play(path, places, source, target)


@pytest.fixture
def play(addresses, topic_prefix, new_database, gauss, tmp_path, monkeypatch):
    def make(mode, sql, **how):
        return playing(
            addresses, topic_prefix, new_database, gauss, tmp_path, monkeypatch, mode, sql, **how
        )

    return make


def once(table: str, do: Callable[[], object]) -> Callable[[TableId, int, int], None]:
    """Do something when the first rows of a table were loaded: its COPY holds its lock."""
    done = []

    def on_load(loaded: TableId, _done: int, _expected: int) -> None:
        if loaded.name == table and not done:
            done.append(True)
            do()

    return on_load


SMALL = Tuning(chunk_rows=50, load_steps=1)
FIRST = f"""{PROBE}
CREATE TABLE a (id int PRIMARY KEY, v text);
INSERT INTO a SELECT g, repeat('x', 500) FROM generate_series(1, 4000) g;
CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'loaded');
CREATE TABLE y (id int PRIMARY KEY, v text);
INSERT INTO y SELECT g, repeat('x', 500) FROM generate_series(1, 4000) g;
CREATE TABLE z (id int PRIMARY KEY, v int); INSERT INTO z SELECT g, g FROM generate_series(1, 9) g;
"""


@in_modes("og serial", "gaussdb ddl")
def test_a_table_that_is_rewritten_between_slot_and_copy_is_not_loaded_empty(
    gauss, mode, play, monkeypatch
) -> None:
    """ALTER TYPE by assignment, before the load comes to its table: COPY sees no row of it."""
    with play(mode, FIRST, tuning=SMALL) as p:
        hold, done = gauss_snapshot.hold, []

        def late(reading, now, tables):
            if not done:
                done.append(ask(p.source, "ALTER TABLE z ALTER v TYPE bigint"))
            return hold(reading, now, tables)

        monkeypatch.setattr(gauss_snapshot, "hold", late)
        p.start()
        p.assert_honest(p.wait(), "a", "t", "y", "z")
        ask(p.source, "INSERT INTO z VALUES (100, 100)")  # nor is it noticed later
        p.assert_honest(p.wait(), "z")


@in_modes("gaussdb", "og parallel")
def test_a_truncate_that_waits_for_the_first_load_is_noticed(gauss, mode, play) -> None:
    """It waits for COPY's lock, which ends with the load, and comes before the first look."""
    with play(mode, FIRST, tuning=SMALL) as p:
        ended = threading.Event()

        def truncate() -> None:
            ask(p.source, "TRUNCATE a")
            ended.set()

        def begin() -> None:
            threading.Thread(target=truncate, daemon=True).start()
            until(
                lambda: ask(p.source, "SELECT count(*) FROM pg_locks WHERE NOT granted")[0][0] > 0,
                "TRUNCATE waits", time.sleep, 20,
            )  # fmt: skip

        p.path.on_load = once("y", begin)
        p.start()
        assert ended.wait(60)
        p.assert_honest(p.wait(), "a")


@in_modes("gaussdb ddl", "og parallel")
def test_rows_behind_a_grant_during_the_first_load_are_noticed(gauss, mode, play) -> None:
    """The first look takes for granted what ended before it; it comes behind the load."""
    with play(mode, FIRST, tuning=SMALL) as p:
        lost = (
            "INSERT INTO t VALUES (2, 'sent'); GRANT SELECT ON t TO public;"
            "INSERT INTO t VALUES (3, 'lost')"
        )
        p.path.on_load = once("a", lambda: ask(p.source, lost))
        p.start()
        p.assert_honest(p.wait(), "t")


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_row_of_ones_own_that_is_changed_behind_create_table_is_noticed(gauss, play) -> None:
    """The source has as many rows of the transaction as were sent, with other values."""
    sql = (
        f"{PROBE} CREATE TABLE t (id int PRIMARY KEY, v text);CREATE TABLE u (LIKE t INCLUDING ALL)"
    )
    with play(DECODED, sql) as p:
        p.start()
        ask(p.source, "INSERT INTO t VALUES (0, 'before'); INSERT INTO u VALUES (0, 'before')")
        p.wait()
        ask(
            p.source,
            "INSERT INTO t VALUES (1, 'sent'); CREATE TABLE n1 (id int PRIMARY KEY);"
            "UPDATE t SET v = 'lost' WHERE id = 1",
        )
        ask(
            p.source,
            "INSERT INTO u VALUES (1, 'sent'); CREATE TABLE n2 (id int PRIMARY KEY);"
            "DELETE FROM u WHERE id = 1; INSERT INTO u VALUES (2, 'lost')",
        )
        p.assert_honest(p.wait(), "t", "u")


@pytest.mark.parametrize("gauss", ["og7"], indirect=True)
def test_values_that_using_computed_are_suspected_at_opengauss(gauss, play) -> None:
    """TRUNCATE is sent; rows show neither the same type nor a wider one."""
    sql = (
        f"{PROBE} CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2);"
        "CREATE TABLE u (id int PRIMARY KEY, v int); INSERT INTO u VALUES (1, 1), (2, 2);"
        "CREATE TABLE w (id int PRIMARY KEY, v numeric(10,2)); INSERT INTO w VALUES (1, 1.25)"
    )
    with play(OG, sql) as p:
        p.start()
        ask(p.source, "INSERT INTO t VALUES (3, 3); INSERT INTO u VALUES (3, 3)")
        ask(p.source, "INSERT INTO w VALUES (3, 3.75)")
        p.wait()
        ask(p.source, "ALTER TABLE t ALTER v TYPE int USING v + 1000")
        ask(p.source, "ALTER TABLE u ALTER v TYPE bigint USING v * 10")
        ask(p.source, "ALTER TABLE w ALTER v TYPE numeric(10,1)")
        for table in ("t", "u", "w"):
            ask(p.source, f"INSERT INTO {table} VALUES (4, 4)")
        p.assert_honest(p.wait(), "t", "u", "w")


@in_modes("og serial", "gaussdb")
def test_a_last_column_dropped_and_made_again_is_noticed(gauss, mode, play) -> None:
    """No number of columns is known here, and no row shows it: older values are gone."""
    sql = f"{PROBE} CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 1), (2, 2)"
    with play(mode, sql) as p:
        p.start()
        ask(p.source, "INSERT INTO t VALUES (3, 3)")
        p.wait()
        ask(p.source, "ALTER TABLE t DROP COLUMN v; ALTER TABLE t ADD COLUMN v int")
        ask(p.source, "INSERT INTO t VALUES (4, 4)")
        p.assert_honest(p.wait(), "t")


@in_modes("gaussdb", "og parallel")
def test_a_table_made_filled_and_truncated_between_two_looks_is_noticed(gauss, mode, play) -> None:
    with play(mode, PROBE) as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        p.wait()
        for n in range(4):  # a look may come in between
            ask(p.source, f"CREATE TABLE n{n} (id int PRIMARY KEY)")
            ask(p.source, f"INSERT INTO n{n} VALUES (1)")
            ask(p.source, f"TRUNCATE n{n}")
            ask(p.source, f"INSERT INTO n{n} VALUES (2)")
        p.assert_honest(p.wait(), *(f"n{n}" for n in range(4)))


@in_modes("gaussdb ddl", "og parallel")
def test_a_load_for_another_target_hides_no_truncate_from_the_others(gauss, mode, play) -> None:
    """The load that follows mends one target only.

    Looks are rare here, as at a large catalog: 100 times as long as one takes.
    """
    sql = f"{PROBE} CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)"
    with play(mode, sql, repair="auto", look_seconds=0.2, tuning=Tuning(look_share=100)) as p:
        p.start()
        caught_up(p.path, "t")
        p.probe()  # the next look is seconds away
        ask(p.source, "TRUNCATE t")
        ask(p.source, "INSERT INTO t VALUES (3)")
        with open_session(p.path.options) as session:
            requests.ask(session, p.path.options.slot, [Wish(TableId("public", "t"), "second")])

            def is_answered() -> bool:
                p.path.applier.drain()
                if p.path.failure is not None:
                    raise p.path.failure
                return not requests.requests(session, p.path.options.slot)

            until(is_answered, "the load for the second one", p.path._stop.wait)
        p.assert_honest(p.wait(), "t")


BIG = f"""{PROBE} CREATE TABLE t (id int PRIMARY KEY, v text) WITH (fillfactor = 50);
INSERT INTO t SELECT g, 'v' || g FROM generate_series(1, 20000) g;"""
LOST = (
    "UPDATE t SET v = 'sent' WHERE id = 10000; GRANT SELECT ON exact TO public;"
    "UPDATE t SET v = 'lost' WHERE id = 10001"
)


@in_modes("gaussdb ddl", "og parallel")
def test_a_restart_before_the_look_does_not_forget_the_rows_that_were_sent(
    gauss, mode, play
) -> None:
    """As test_what_one_run_had_no_time_to_look_for…, amid a table that did send rows before."""
    with play(mode, BIG, look_seconds=3_600.0) as p:
        p.start()
        caught_up(p.path, "t")
        until(lambda: has_looked(p), "a look", p.path._stop.wait)
        ask(p.source, LOST)
        ask(p.source, "INSERT INTO exact VALUES (2)")
        caught_up(p.path, "exact")
        p.path.stop()
        p.path.options = replace(p.path.options, look_seconds=1.0)
        p.start()
        p.assert_honest(p.wait(), "t")


@in_modes("gaussdb", "og parallel")
def test_a_truncate_while_no_run_reads_is_named_by_check_and_found_by_the_next_run(
    gauss, mode, play
) -> None:
    sql = f"{PROBE} CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2)"
    with play(mode, sql) as p:
        p.start()
        assert p.wait() == set()
        p.path.stop()
        ask(p.source, "TRUNCATE t")
        ask(p.source, "INSERT INTO t VALUES (3)")

        assert p.path.looked is not None
        assert p.places.source().changed(Before.of(p.path.looked)) == [
            "public.t has other storage files"
        ]
        p.start()
        assert p.wait() == {"public.t"}


def has_looked(p: Play, *, since: Looked | None = None) -> bool:
    """Say whether a look stands in cuts, and is not the one that stood there."""
    p.path.applier.drain()
    return p.path.looked != since


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
@pytest.mark.parametrize("case", ["renamed", "killed"])
def test_a_truncate_that_is_seen_while_the_stream_lags_is_not_forgotten(gauss, case, play) -> None:
    """A look compares files of now with tables that the stream, far behind, knows."""
    sql = f"""{PROBE} CREATE TABLE filler (id bigserial PRIMARY KEY, v text);
    CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2);"""
    with play(DECODED, sql, look_seconds=0.2, tuning=Tuning(look_share=1)) as p:
        p.start()
        caught_up(p.path, "t")
        p.wait()
        table, lags = "t", False
        for more in (10, 25, 50, 100):  # the machine may hold this thread up, and not the stream
            p.path.stop()
            for _ in range(more):
                ask(
                    p.source,
                    "INSERT INTO filler (v) SELECT repeat('x', 100) FROM generate_series(1, 20000)",
                )
            if case == "renamed":
                table, before = ("t2", "t") if table == "t" else ("t", "t2")
                ask(p.source, f"ALTER TABLE {before} RENAME TO {table}")
            p.start()
            pause_until_looked = threading.Event()
            pause_until_looked.wait(1)  # a look came, and the stream is amid the filler
            ask(p.source, f"TRUNCATE {table}")
            (seen_at,) = ask(p.source, "SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint")[0]
            pause_until_looked.wait(1)
            if lags := p.path.progress.resume < seen_at:
                break
            p.assert_honest(p.wait(), table)
            ask(p.source, f"INSERT INTO {table} VALUES (1), (2)")
            p.wait()
        assert lags, "the stream does not lag: more filler is needed"
        if case == "killed":  # what was seen is in memory until the stream comes there
            p.path.stop()
            p.start()
        p.assert_honest(p.wait(), table)


@in_modes("og serial", "og parallel")
def test_a_wait_holds_for_commits_that_are_not_yet_written(gauss, mode, play) -> None:
    """synchronous_commit = off: they are visible, and in the log's buffers."""
    with play(mode, PROBE) as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (0)")
        p.wait()
        for n in range(1, 10):
            ask(p.source, f"SET LOCAL synchronous_commit = off; INSERT INTO exact VALUES ({n})")
            marks = p.wait()
            p.assert_honest(marks, "exact")


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_gap_of_a_table_that_its_transaction_renames_is_read_again(gauss, play) -> None:
    """The target's mark goes along to the new name."""
    sql = f"{PROBE} CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1), (2), (3)"
    with play(DECODED, sql, repair="auto", look_seconds=0.5, tuning=Tuning(rest_seconds=0.1)) as p:
        p.start()
        p.wait()
        ask(
            p.source,
            "DELETE FROM t WHERE id = 1; ALTER TABLE t RENAME TO t2; DELETE FROM t2 WHERE id = 2",
        )
        until(lambda: p.wait() == set(), "EXACT again", p.path._stop.wait, 60)
        p.assert_honest(set(), "t2")


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
@pytest.mark.parametrize("what", ["rows", "truncate"])
def test_what_is_committed_between_two_questions_of_a_look_is_not_passed_yet(
    gauss, what, play, monkeypatch
) -> None:
    """A look's position is behind all that it shows; the moment is made wider here."""
    armed: list[Callable[[], object]] = []
    log_end = gauss_point.log_end

    def slowly(asking):
        at = log_end(asking)
        if armed and p.path.progress.resume >= at:
            armed[0]()
            armed.clear()  # not before: the test closes the session then
        return at

    monkeypatch.setattr(gauss_point, "log_end", slowly)
    with play(DECODED, BIG, look_seconds=2.0) as p:
        p.start()
        caught_up(p.path, "t")
        p.wait()
        with closing(psycopg2.connect(p.source)) as owner, owner.cursor() as cursor:
            if what == "rows":
                cursor.execute(LOST)
                armed.append(owner.commit)
            else:
                armed.append(lambda: (cursor.execute("TRUNCATE t"), owner.commit()))
            until(lambda: not armed, "a look in an idle moment", p.path._stop.wait)
        p.assert_honest(p.wait(), "t")


@in_modes("og serial", "gaussdb")
@pytest.mark.parametrize("how", ["another key", "none"])
def test_rows_that_are_equal_in_a_key_that_went_are_noticed(gauss, mode, how, play) -> None:
    """Inserts have the shape of before, and no old row: the target's key is the old one still."""
    sql = (
        f"{PROBE} CREATE TABLE t (id int PRIMARY KEY, c int NOT NULL); INSERT INTO t VALUES (1, 1)"
    )
    with play(mode, sql) as p:
        p.start()
        ask(p.source, "INSERT INTO t VALUES (2, 2)")
        p.wait()
        if how == "none":
            ask(p.source, "ALTER TABLE t REPLICA IDENTITY FULL")
            ask(p.source, "ALTER TABLE t DROP CONSTRAINT t_pkey")
        else:
            ask(p.source, "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (c)")
        ask(p.source, "INSERT INTO t VALUES (1, 3)")
        p.assert_honest(p.wait(), "t")


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_schema_that_gets_a_captured_name_brings_no_table_that_counts_as_complete(
    gauss, play
) -> None:
    sql = f"""{PROBE} CREATE SCHEMA hidden; CREATE TABLE hidden.t (id int PRIMARY KEY);
    INSERT INTO hidden.t VALUES (1);"""
    with play(DECODED, sql, include=("public.*", "app.*")) as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        p.wait()
        ask(p.source, "ALTER SCHEMA hidden RENAME TO app")
        ask(p.source, "INSERT INTO app.t VALUES (2)")
        marks = p.wait()
        if "app.t" not in marks:
            assert content(p.target, "app.t") == content(p.source, "app.t"), "FALSE EXACT"


@pytest.mark.parametrize("gauss", ["gaussdb of 3"], indirect=True)
def test_a_type_that_is_altered_in_another_zone_is_noticed(
    addresses, topic_prefix, new_database, gauss
) -> None:
    """A statement that is sent has no settings of its session; the target casts in UTC."""
    source, target = new_database(), new_database()
    ask(
        source,
        f"{PROBE} CREATE TABLE t (id int PRIMARY KEY, at timestamp);"
        "INSERT INTO t VALUES (1, '2024-01-01 12:00')",
    )
    options = {
        "parallel-decode-num": "2", "sending-batch": "1", "output-order": "1",
        "logical-receiver-num": "2", "enable-ddl-decoding": "true",
    }  # fmt: skip
    with Watched(
        addresses, topic_prefix, source, target, kind="gaussdb", plugin="mppdb_decoding",
        plugin_options=options, include=("public.*",), look_seconds=0.5,
    ) as path:  # fmt: skip
        path.watch()
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        for table in ("t", "exact"):
            caught_up(path, table)
        until(lambda: not path.applier.drain().inexact, "EXACT", path._stop.wait)
        ask(source, "SET LOCAL timezone = 'Asia/Shanghai'; ALTER TABLE t ALTER at TYPE timestamptz")
        ask(source, "INSERT INTO exact VALUES (1)")
        caught_up(path, "exact")
        marks = set(path.applier.drain().inexact)
        Play(path, None, source, target).assert_honest(marks, "t")  # type: ignore[arg-type]


@in_modes("og serial", "og parallel", "gaussdb")
def test_values_that_are_finer_than_a_target_knows_are_noticed(gauss, mode, play) -> None:
    """No file is written, and no row names a modifier: the target rounds them."""
    sql = f"""{PROBE} CREATE TABLE t (id int PRIMARY KEY, at timestamp(0), n numeric(10,2));
    INSERT INTO t VALUES (1, '2024-01-01 00:00:00', 1.25)"""
    with play(mode, sql) as p:
        p.start()
        ask(p.source, "INSERT INTO t VALUES (2, '2024-01-02 00:00:00', 2.25)")
        p.wait()
        ask(p.source, "ALTER TABLE t ALTER at TYPE timestamp, ALTER n TYPE numeric")
        ask(p.source, "INSERT INTO t VALUES (3, '2024-01-01 00:00:00.123456', 1.2345)")
        p.assert_honest(p.wait(), "t")
        ask(p.source, "INSERT INTO t VALUES (4, '2024-01-01 00:00:00.6', 0.005)")
        p.assert_honest(p.wait(), "t")


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_wait_ends_behind_the_look_where_any_role_will_do(gauss, play) -> None:
    tables = "".join(f"CREATE TABLE t{n} (id int PRIMARY KEY);" for n in range(5))
    with play(DECODED, PROBE + tables, role="any") as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        p.wait()
        for n in range(5):  # at any time between two looks
            ask(p.source, f"GRANT SELECT ON t{n} TO public; INSERT INTO t{n} VALUES (1)")
            p.assert_honest(p.wait(), f"t{n}")


@pytest.mark.parametrize("gauss", ["og7"], indirect=True)
def test_a_wait_ends_at_an_idle_source_where_any_role_will_do(gauss, play) -> None:
    with play(OG_PARALLEL, PROBE, role="any") as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        caught_up(p.path, "exact")
        ask(p.source, "SELECT pg_switch_wal()")  # the log goes on, and nothing commits
        p.assert_honest(p.wait(), "exact")


@in_modes("gaussdb", "og parallel")
@pytest.mark.parametrize("is_away", [True, False])
def test_a_partition_that_came_and_was_truncated_since_the_look_before(
    gauss, mode, is_away, play
) -> None:
    """As ADD PARTITION, EXCHANGE PARTITION … WITH TABLE, which PostgreSQL has not."""
    sql = f"""{PROBE} CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
    CREATE TABLE p_0 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1);"""
    with play(mode, sql, look_seconds=5.0) as p:
        p.start()
        caught_up(p.path, "p")
        p.wait()
        if is_away:
            p.path.stop()
        else:
            p.probe()  # the next look is seconds away
        ask(p.source, "CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (10) TO (20)")
        ask(p.source, "INSERT INTO p VALUES (11)")
        ask(p.source, "TRUNCATE p_1")
        ask(p.source, "INSERT INTO p VALUES (12)")
        if is_away:
            p.start()
        p.assert_honest(p.wait(), "p")


@in_modes("gaussdb ddl", "og parallel")
def test_a_restart_between_the_look_that_sees_a_statement_and_the_one_that_judges_it(
    gauss, mode, play
) -> None:
    """The first one stands in a STATE, and judges nothing."""
    with play(mode, BIG, look_seconds=5.0) as p:
        p.start()
        caught_up(p.path, "t")
        p.wait()
        before = p.path.looked
        ask(p.source, LOST)
        ask(p.source, "SELECT pg_switch_wal()")  # the log's end is behind all that is delivered
        until(
            lambda: has_looked(p, since=before), "a look that saw the statement", p.path._stop.wait
        )
        p.path.stop()  # the next look is seconds away
        p.start()
        p.assert_honest(p.wait(), "t")


@in_modes("gaussdb", "og parallel")
def test_a_dropped_table_does_not_stay_not_exact_for_ever(gauss, mode, play) -> None:
    sql = f"{PROBE} CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)"
    how = {"repair": "auto", "look_seconds": 0.3, "tuning": Tuning(rest_seconds=0.1)}
    with play(mode, sql, **how) as p:
        p.start()
        p.wait()
        ask(p.source, "DROP TABLE t")
        until(lambda: p.wait() == set(), "EXACT again", p.path._stop.wait, 60)
        assert ask(p.target, "SELECT to_regclass('t') IS NULL") == [(True,)]
        p.path.stop()
        p.start()
        ask(p.source, "GRANT SELECT ON exact TO public")  # with a name that only the stream has
        assert p.wait() == set()


@in_modes("gaussdb", "og parallel")
def test_a_new_table_that_had_rows_under_a_name_that_is_not_captured(gauss, mode, play) -> None:
    """Its rows are younger than the look before: no row is from before it."""
    with play(mode, f"{PROBE} CREATE SCHEMA staging;", look_seconds=5.0) as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        p.wait()
        p.probe()
        ask(p.source, "CREATE TABLE staging.t (id int PRIMARY KEY)")
        ask(p.source, "INSERT INTO staging.t VALUES (1)")
        ask(p.source, "ALTER TABLE staging.t SET SCHEMA public")
        ask(p.source, "INSERT INTO t VALUES (2)")
        p.assert_honest(p.wait(), "t")


@in_modes("gaussdb", "og parallel")
def test_a_table_that_had_another_name_for_a_while_when_no_run_read(gauss, mode, play) -> None:
    """The first look comes before the stream brings that name, and the next one sees no change."""
    sql = f"{PROBE} CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)"
    with play(mode, sql) as p:
        p.start()
        p.wait()
        p.path.stop()
        ask(p.source, "ALTER TABLE t RENAME TO x")
        ask(p.source, "INSERT INTO x VALUES (2)")
        ask(p.source, "ALTER TABLE x RENAME TO t")
        p.start()
        p.assert_honest(p.wait(), "t")


UNDONE = {
    "a": ["ALTER TABLE a SET SCHEMA hidden", "UPDATE hidden.a SET v = 2",
          "ALTER TABLE hidden.a SET SCHEMA public"],
    "p": ["SELECT gauss_compat.exchange('p', 'p_0', 'x')", "INSERT INTO x VALUES (2)",
          "SELECT gauss_compat.exchange('p', 'p_0', 'x')"],
    "t": ["ALTER TYPE pair DROP ATTRIBUTE b", "ALTER TYPE pair ADD ATTRIBUTE b int"],
    "m": ["ALTER TYPE mood RENAME VALUE 'sad' TO 'low'"],
}  # fmt: skip


@in_modes("og serial", "gaussdb", "gaussdb ddl")
def test_what_is_undone_between_two_looks_is_noticed_and_read_again(gauss, mode, play) -> None:
    """Ids of transactions in the catalog show it; a re-read gives targets the values of now."""
    sql = f"""{PROBE} CREATE SCHEMA hidden; CREATE TYPE pair AS (a int, b int);
    CREATE TYPE mood AS ENUM ('sad', 'ok');
    CREATE TABLE a (id int PRIMARY KEY, v int); INSERT INTO a VALUES (1, 1);
    CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
    CREATE TABLE p_0 PARTITION OF p FOR VALUES FROM (0) TO (10); INSERT INTO p VALUES (1);
    CREATE TABLE x (id int PRIMARY KEY);
    CREATE TABLE t (id int PRIMARY KEY, v pair); INSERT INTO t VALUES (1, (1, 2));
    CREATE TABLE m (id int PRIMARY KEY, v mood); INSERT INTO m VALUES (1, 'sad');"""
    with play(mode, sql) as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        assert p.wait() == set()
        for statements in UNDONE.values():
            for statement in statements:
                ask(p.source, statement)
        p.assert_honest(p.wait(), *UNDONE)
        p.path.stop()
        p.path.options = replace(p.path.options, repair="auto", tuning=Tuning(rest_seconds=0.1))
        p.start()
        until(lambda: p.wait() == set(), "EXACT again", p.path._stop.wait, 60)
        p.assert_honest(set(), "exact", *UNDONE)


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_columns_that_are_left_out_are_named(gauss, play, tmp_path) -> None:
    sql = f"""{PROBE} CREATE TABLE t (id int PRIMARY KEY,
    g int GENERATED ALWAYS AS (id * 2) STORED);"""
    with play(("gaussdb", {"skip-generated-columns": "true"}), sql) as p:
        p.start()
        ask(p.source, "INSERT INTO t VALUES (1)")
        assert p.wait() == set()

        said = "generated columns are not sent by the source, and not copied: g"
        checked = command(tmp_path / "gauss-cdc.toml", "check").output
        assert f"table public.t: {said}" in " ".join(checked.split())
        assert p.places.source().notes(None) == [f"public.t: {said}"]


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_table_of_a_type_of_users_that_is_gone_stops_no_target(gauss, play) -> None:
    """Its CREATE TABLE is decoded, and the catalog cannot say what the type is."""
    with play(DECODED, f"{PROBE} CREATE TYPE mood AS ENUM ('ok');", repair="auto") as p:
        p.start()
        ask(p.source, "INSERT INTO exact VALUES (1)")
        assert p.wait() == set()
        p.path.stop()
        ask(p.source, "CREATE TABLE t (id int PRIMARY KEY, v mood)")
        ask(p.source, "INSERT INTO t VALUES (1, 'ok')")
        ask(p.source, "DROP TABLE t")
        ask(p.source, "CREATE TABLE u (id int PRIMARY KEY, v mood)")
        ask(p.source, "INSERT INTO u VALUES (1, 'ok')")
        p.start()
        until(lambda: p.wait() == set(), "EXACT again", p.path._stop.wait, 60)
        assert ask(p.target, "SELECT to_regclass('t') IS NULL") == [(True,)]
        p.assert_honest(set(), "exact", "u")
