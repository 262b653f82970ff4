"""Ranges of a key, read from a real server: whichever type the key has, each row once."""

import select
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from producer.core.catalog.catalog_rows import as_sent
from producer.core.key_ranges import Key, NamedKeys, RangeRead
from producer.core.ports import Tuning
from producer.errors import CdcError, TableChanging
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.postgres import key_ranges
from producer.sources.postgres.catalog import QueryingConnection, connect, table_schemas
from producer.sources.postgres.connection import ReplicationConnection
from producer.sources.postgres.key_ranges import open_ranges, why_not
from producer.sources.ranges import SMALL, RangesThread
from schemas.tables import TableId
from tests.services_fixtures import execute

TABLE = TableId("public", "t")
ALIKE = "CREATE COLLATION alike (provider = icu, locale = 'und-u-ks-level1', deterministic = false)"
KEYS = {
    "int": "SELECT (n - 50) * 7919 FROM generate_series(1, 100) n",
    "bigint": "SELECT (n - 50) * 10::bigint ^ 15 FROM generate_series(1, 100) n",
    "boolean": "SELECT n > 0 FROM generate_series(0, 1) n",
    "uuid": "SELECT md5(n::text)::uuid FROM generate_series(1, 100) n",
    "date": "SELECT date '0040-01-01 BC' + n * 400 FROM generate_series(1, 100) n"
    " UNION ALL VALUES (date 'infinity'), ('-infinity')",
    "timestamptz": "SELECT timestamptz '2000-01-01 00:00:00.000001+02' + n * interval '7 hours'"
    " FROM generate_series(1, 100) n",
    "text": "SELECT substr(md5(n::text), mod(n, 9) + 1, mod(n, 20)) || n"
    " FROM generate_series(1, 90) n"
    r" UNION ALL VALUES (''), (' '), ('\'), (E'a\tb'), (E'a\nb'), ('it''s'), ('é'), ('%%s')"
    r" UNION ALL VALUES ('\N')",
    "varchar(9)": "SELECT n FROM generate_series(1, 100) n",
    "char(5)": "SELECT n FROM generate_series(1, 100) n",
    "bytea": "SELECT decode(md5(n::text), 'hex') FROM generate_series(1, 100) n",
    "numeric(12,3)": "SELECT n * 1.5 - 70 FROM generate_series(1, 100) n",
}


SEVERAL = (  # columns of a key, in another order than the table's
    'CREATE TABLE t (b text, "A" int, v int, PRIMARY KEY ("A", b))',
    "INSERT INTO t SELECT m, n, n * m FROM generate_series(1, 9) n, generate_series(1, 9) m",
)


@pytest.fixture
def url(new_database) -> str:
    url = new_database()
    execute(url, "CREATE PUBLICATION p FOR ALL TABLES")
    return url


@pytest.fixture
def options(url) -> Options:
    source = parse_dsn(url)
    return replace(
        Options(source=source, slot="s", publication="p", prefix="p", client={}, registry_url=""),
        tuning=Tuning(range_rows=7, beside_bytes=0),
    )


def opened(options: Options) -> RangesThread:
    with (
        closing(connect(options.source)) as connection,
        ReplicationConnection.open(options.source) as wire,
    ):
        said = wire.identify()
        least = options.tuning.beside_bytes
        found = open_ranges(options, connection, TABLE, (said.system_id, said.timeline), least)
        assert found is not None
        return found[1]


def make(url: str, *statements: str) -> None:
    for statement in statements:
        execute(url, statement)


def keyed(key: str) -> tuple[str, str]:
    """Make t with a key of a type, and its rows."""
    return (
        f"CREATE TABLE t (v text, k {key} PRIMARY KEY)",
        f"INSERT INTO t SELECT 'v', * FROM ({KEYS[key]}) k",
    )


def read(ranges: RangesThread, after: Key | NamedKeys | None) -> RangeRead:
    ranges.ask(after)
    select.select([ranges.fileno], [], [], 60)
    answer = ranges.take()
    if isinstance(answer, CdcError):
        raise answer
    assert answer is not None
    return answer


def every(ranges: RangesThread) -> Iterator[RangeRead]:
    after: Key | None = ()
    while after is not None:
        found = read(ranges, after)
        yield found
        after = found.last


@pytest.mark.parametrize("key", KEYS)
def test_each_row_comes_once_and_in_the_order_of_the_key(url, options, key) -> None:
    make(
        url,
        *keyed(key),
    )
    with closing(opened(options)) as ranges:
        found = [row for some in every(ranges) for row in some.rows]
    with closing(connect(options.source)) as connection, connection.cursor() as cursor:
        cursor.execute("SELECT 'v', k::text FROM public.t ORDER BY t.k")
        wanted = [[v.encode(), k.encode()] for v, k in cursor.fetchall()]
        if key == "char(5)":
            wanted = [[v, k.ljust(5)] for v, k in wanted]
        if key == "boolean":
            wanted = [[v, k[:1]] for v, k in wanted]

    assert found == wanted


def test_a_root_is_read_in_one_order_over_its_partitions(url, options) -> None:
    make(
        url,
        "CREATE TABLE t (v int, k int PRIMARY KEY) PARTITION BY HASH (k)",
        "CREATE TABLE a PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
        " PARTITION BY RANGE (k)",
        "CREATE TABLE low PARTITION OF a FOR VALUES FROM (MINVALUE) TO (50)",
        "CREATE TABLE high PARTITION OF a DEFAULT",
        "CREATE TABLE b (k int NOT NULL, v int)",
        "ALTER TABLE t ATTACH PARTITION b FOR VALUES WITH (MODULUS 2, REMAINDER 1)",
        "INSERT INTO t SELECT -n, n FROM generate_series(1, 100) n",
        "ALTER PUBLICATION p SET (publish_via_partition_root = true)",
        "VACUUM ANALYZE",
    )
    with closing(opened(options)) as ranges:
        assert ranges.estimated_rows == 100
        found = [row for some in every(ranges) for row in some.rows]
        named = read(ranges, NamedKeys(((b"7",), (b"70",), (b"700",))))

    assert found == [[b"-%d" % n, b"%d" % n] for n in range(1, 101)]
    assert sorted(map(tuple, named.rows)) == [(b"-7", b"7"), (b"-70", b"70")]
    assert named.gone == ((b"700",),)


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ("(id int PRIMARY KEY) PARTITION BY RANGE (id)", ""),
        (
            "(id int PRIMARY KEY); CREATE TABLE child () INHERITS (t)",
            "other tables inherit from it",
        ),
    ],
)
def test_why_a_table_of_others_is_not_read_so(url, options, table, why) -> None:
    make(url, *f"CREATE TABLE t {table}".split(";"))
    with closing(connect(options.source)) as connection:
        (shape,) = table_schemas(connection, [TABLE])
        assert why_not(connection, as_sent(shape), 0) == why


@pytest.mark.parametrize("key", KEYS)
def test_named_keys_are_found_by_their_values_whatever_their_texts_are(url, options, key) -> None:
    """Each second key has a row, and is named as somebody else may print it, and twice."""
    make(
        url,
        *keyed(key),
        "CREATE TABLE named AS SELECT k, row_number() OVER (ORDER BY k) %% 2 = 0 AS stays FROM t",
        "DELETE FROM t USING named n WHERE t.k = n.k AND NOT n.stays",
    )
    with closing(connect(options.source)) as connection, connection.cursor() as cursor:
        cursor.execute("SET TimeZone = 'Asia/Tokyo'; SET bytea_output = escape")
        cursor.execute("SELECT k::text, stays FROM public.named")
        named = cursor.fetchall()
    asked = tuple((k.encode(),) for k, _ in named) * 2
    rows, gone = list[tuple[bytes, ...]](), list[Key]()
    with closing(opened(options)) as ranges:
        while asked:
            found = read(ranges, NamedKeys(asked))
            rows += [tuple(row) for row in found.rows]
            gone += found.gone
            asked = found.left
        there = {row[1] for some in every(ranges) for row in some.rows}

    assert {row[1] for row in rows} == there
    assert len({*gone}) == len(named) - len(there)
    assert not {k for (k,) in gone} & there


def test_named_keys_whose_rows_are_large_are_read_by_and_by(url, options) -> None:
    make(
        url,
        "CREATE TABLE t (k int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, '' FROM generate_series(1, 2000) n",
        "INSERT INTO t SELECT n, repeat('x', 1000) FROM generate_series(3000, 3020) n",
    )
    more = replace(options, tuning=Tuning(range_rows=100, range_bytes=600, beside_bytes=0))
    asked = tuple((b"%d" % n,) for n in range(2990, 3030))
    rows, gone = list[bytes](), list[Key]()
    with closing(opened(more)) as ranges:
        while asked:
            found = read(ranges, NamedKeys(asked))
            rows += [row[0] for row in found.rows]
            gone += found.gone
            asked = found.left

    assert sorted(map(int, rows)) == [*range(3000, 3021)]
    assert sorted(int(k) for (k,) in gone) == [*range(2990, 3000), *range(3021, 3030)]


@pytest.mark.parametrize("keys", [((b"1", b"2"),), ((b"x",),)])
def test_keys_of_another_table_are_refused(url, options, keys) -> None:
    make(url, "CREATE TABLE t (k int PRIMARY KEY)")
    with closing(opened(options)) as ranges, pytest.raises(CdcError):
        read(ranges, NamedKeys(keys))


@pytest.mark.parametrize("way", [connect, partial(ReplicationConnection.open, replication=False)])
def test_a_backslash_means_itself_whatever_the_database_prefers(url, options, way) -> None:
    """Keys are constants of our statements: with another meaning rows would be passed over."""
    name = options.source.dbname
    make(
        url,
        f'ALTER DATABASE "{name}" SET standard_conforming_strings = off',
        "CREATE TABLE t (k text PRIMARY KEY)",
        "INSERT INTO t SELECT 'a' || chr(92) || 'z' || n FROM generate_series(1, 9) n",
        "INSERT INTO t SELECT 'ab' || n FROM generate_series(1, 40) n",
    )
    with closing(opened(options)) as ranges:
        found = [row for some in every(ranges) for row in some.rows]
    assert len(found) == 49
    with closing(way(options.source)) as session:
        asks = session if hasattr(session, "query") else QueryingConnection(session)
        assert asks.query("SHOW standard_conforming_strings") == [["on"]]


def test_a_key_of_several_columns(url, options) -> None:
    make(url, *SEVERAL)
    with closing(opened(options)) as ranges:
        found = list(every(ranges))

    assert [len(some.rows) for some in found] == [7] * 11 + [4]
    assert found[0].last == (b"1", b"7")
    assert len({tuple(row) for some in found for row in some.rows}) == 81


def test_a_range_ends_where_its_rows_become_large(url, options) -> None:
    make(
        url,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "ALTER TABLE t ALTER v SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT n, CASE WHEN n > 5 THEN repeat('x', 100000) END"
        " FROM generate_series(1, 50) n",
        "ANALYZE t",
    )
    small = replace(options, tuning=Tuning(range_rows=50, range_bytes=200_000, beside_bytes=0))
    with closing(opened(small)) as ranges:
        found = list(every(ranges))

    assert sum(len(some.rows) for some in found) == 50
    assert max(len(some.rows) for some in found) < 20


def test_the_place_is_flushed_also_where_nobody_commits(url, options) -> None:
    make(url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with (
        closing(connect(options.source)) as other,
        closing(opened(options)) as ranges,
        other.cursor() as cursor,
    ):
        other.autocommit = False
        cursor.execute("INSERT INTO public.t VALUES (2)")  # not flushed
        cursor.execute("SELECT txid_current()")
        ((open_one,),) = cursor.fetchall()
        found = read(ranges, ())
        flushed = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint"
        for _ in range(600):
            cursor.execute(flushed)
            if cursor.fetchone()[0] >= found.high:
                break
            select.select([], [], [], 0.1)
        else:
            pytest.fail("it is not flushed")
        other.rollback()

    assert list(found.rows) == [[b"1"]]
    assert not found.shown.has(open_one)


def test_a_label_that_is_renamed_meanwhile_is_told(url, options, monkeypatch) -> None:
    """A row's text has the newer one: at a place before the rename, its shape is another one."""
    make(
        url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE t (id int PRIMARY KEY, v mood)",
        "INSERT INTO t SELECT n, 'sad' FROM generate_series(1, 5) n",
    )
    before = key_ranges.catalog.found_schemas

    def found_schemas(*arguments):
        found = before(*arguments)
        monkeypatch.undo()
        execute(url, "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'")
        return found

    with closing(opened(options)) as ranges:
        monkeypatch.setattr(key_ranges.catalog, "found_schemas", found_schemas)
        answer = read(ranges, ())

    assert {row[1] for row in answer.rows} == {b"glad"}
    assert answer.shape is not None
    said = answer.shape.columns[1].user_type
    assert said is not None
    assert said.labels == ("glad", "ok")


def test_a_label_that_has_another_name_for_a_moment_is_noticed(url, options, monkeypatch) -> None:
    """Its range may have been printed in that moment, and no shape has that name."""
    make(
        url,
        "CREATE TYPE mood AS ENUM ('sad', 'ok')",
        "CREATE TABLE t (id int PRIMARY KEY, v mood)",
        "INSERT INTO t VALUES (1, 'sad')",
    )
    before = key_ranges.catalog.table_schemas

    def table_schemas(*arguments):
        monkeypatch.undo()
        execute(url, "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad'")
        execute(url, "ALTER TYPE mood RENAME VALUE 'glad' TO 'sad'")
        return before(*arguments)

    with closing(opened(options)) as ranges:
        monkeypatch.setattr(key_ranges.catalog, "table_schemas", table_schemas)
        with pytest.raises(TableChanging, match="label"):
            read(ranges, ())
        assert list(read(ranges, ()).rows) == [[b"1", b"sad"]]


def test_a_schema_that_gets_another_ones_name_meanwhile_is_noticed(
    url, options, monkeypatch
) -> None:
    """The lock keeps the table's name, and not that of its schema."""
    make(
        url,
        "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)",
        "CREATE SCHEMA other; CREATE TABLE other.t (id int PRIMARY KEY);"
        "INSERT INTO other.t VALUES (2)",
    )
    swap = (
        "ALTER SCHEMA public RENAME TO away; ALTER SCHEMA other RENAME TO public;"
        "ALTER SCHEMA away RENAME TO other"
    )
    before = key_ranges.catalog.found_schemas

    def found_schemas(*arguments):
        found = before(*arguments)
        monkeypatch.undo()
        execute(url, swap)
        return found

    with closing(opened(options)) as ranges:
        monkeypatch.setattr(key_ranges.catalog, "found_schemas", found_schemas)
        with pytest.raises(TableChanging, match="schema was renamed"):
            read(ranges, ())
        execute(url, swap)
        again = read(ranges, ())

    assert list(again.rows) == [[b"1"]]


def test_a_table_that_is_gone_is_named_and_one_that_is_made_again_is_told(url, options) -> None:
    execute(url, "CREATE TABLE t (id int PRIMARY KEY)")
    with closing(opened(options)) as ranges:
        before = read(ranges, ())
        execute(url, "DROP TABLE t")
        with pytest.raises(CdcError, match="does not exist"):
            read(ranges, ())
        execute(url, "CREATE TABLE t (id int PRIMARY KEY)")
        again = read(ranges, ())

    assert before.shape == again.shape is not None
    assert before.shape.oid != again.shape.oid


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ("id int", "it has no primary key"),
        ("id numeric PRIMARY KEY", "equal values of numeric may have different texts"),
        ("id float8 PRIMARY KEY", "equal values of double precision may have different texts"),
        ("id jsonb PRIMARY KEY", "equal values of jsonb may have different texts"),
        ("id int GENERATED ALWAYS AS (7) STORED PRIMARY KEY", "it has no primary key"),
        (
            "id text COLLATE alike PRIMARY KEY",
            "its key's collation takes different texts for equal",
        ),
        ("id int PRIMARY KEY", ""),
    ],
)
def test_why_a_table_is_not_read_so(url, options, columns, why) -> None:
    make(url, ALIKE, f"CREATE TABLE t ({columns})")
    with closing(connect(options.source)) as connection:
        (shape,) = table_schemas(connection, [TABLE])
        assert why_not(connection, as_sent(shape), 0) == why
        assert why_not(connection, as_sent(shape), 1 << 20) == SMALL


def test_a_table_that_is_dropped_behind_the_snapshot_is_not_there(url, options) -> None:
    """The catalog shows it still, and its size is NULL."""
    make(url, "CREATE TABLE t (id int PRIMARY KEY)")
    with closing(connect(options.source)) as connection:
        connection.set_session(isolation_level="REPEATABLE READ", autocommit=False)
        (shape,) = table_schemas(connection, [TABLE])
        execute(url, "DROP TABLE t")
        assert why_not(connection, as_sent(shape), 0) == "it is not there"
