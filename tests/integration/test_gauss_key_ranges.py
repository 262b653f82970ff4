"""Ranges of a key, read from an openGauss or a GaussDB: whichever type the key has, each row once.

The emulator keeps its data in a real PostgreSQL.
"""

from contextlib import closing
from dataclasses import replace
from functools import partial

import pytest

from producer.core.key_ranges import NamedKeys
from producer.core.ports import Tuning
from producer.errors import TableChanging
from producer.options import Options
from producer.sources.gauss import catalog, key_ranges
from producer.sources.gauss.options import effective
from producer.sources.gauss.server import Product, Server
from producer.sources.gauss.source import open_session
from producer.sources.ranges import SMALL, RangesThread
from tests.e2e.test_gauss_modes import gauss, source_of
from tests.integration.test_key_ranges import KEYS, SEVERAL, TABLE, every, keyed, make, read
from tests.services_fixtures import execute

__all__ = ["gauss"]

pytestmark = pytest.mark.parametrize("gauss", ["og7"], indirect=True)
SERVER = Server(Product.OPENGAUSS, "7.0.0", is_primary=True, database="d", encoding="UTF8")


@pytest.fixture
def url(new_database) -> str:
    return new_database()


@pytest.fixture
def options(gauss, url) -> Options:
    return replace(
        Options(
            source=source_of(gauss, url),
            slot="s",
            publication="p",
            prefix="p",
            client={},
            registry_url="",
            kind="opengauss",
            plugin="mppdb_decoding",
            include=("public.*",),
        ),
        tuning=Tuning(range_rows=7, beside_bytes=0),
    )


def opened(options: Options) -> RangesThread:
    with open_session(options) as asking:
        found = key_ranges.open_ranges(
            options,
            asking,
            TABLE,
            server=asking.server(),
            open_session=partial(open_session, options),
            least=options.tuning.beside_bytes,
        )
    assert found is not None
    return found[1]


@pytest.mark.parametrize("key", KEYS)
def test_each_row_comes_once_and_in_the_order_of_the_key(url, options, key) -> None:
    make(url, *keyed(key))
    with closing(opened(options)) as ranges:
        found = [row for some in every(ranges) for row in some.rows]
    with open_session(options) as session:
        wanted = session.query_bytes("SELECT 'v', k FROM public.t ORDER BY t.k")

    assert found == wanted


@pytest.mark.parametrize("key", KEYS)
def test_named_keys_are_found_and_those_without_a_row_are_told(url, options, key) -> None:
    make(url, *keyed(key))
    with open_session(options) as session:
        cells = session.query_bytes("SELECT k FROM public.t ORDER BY t.k LIMIT 9")
    named = [(cell,) for (cell,) in cells if cell is not None]
    execute(url, "DELETE FROM t WHERE k = (SELECT min(t.k::text) FROM t)::" + key)
    with closing(opened(options)) as ranges:
        some = read(ranges, NamedKeys(tuple(named)))
        more = read(ranges, NamedKeys(some.left)) if some.left else None
    rows = [*some.rows, *(more.rows if more else ())]
    gone = [*some.gone, *(more.gone if more else ())]

    assert {(row[1],) for row in rows} | {*gone} == {*named}
    assert len(rows) + len(gone) == len(named)


def test_a_key_of_several_columns_in_another_order(url, options) -> None:
    make(url, *SEVERAL)
    with closing(opened(options)) as ranges:
        found = list(every(ranges))

    assert [len(some.rows) for some in found] == [7] * 11 + [4]
    assert found[0].last == (b"1", b"7")


def test_a_range_ends_where_its_rows_become_large(url, options) -> None:
    make(
        url,
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, CASE WHEN n > 5 THEN repeat('x', 100000) END"
        " FROM generate_series(1, 50) n",
    )
    small = replace(options, tuning=Tuning(range_rows=50, range_bytes=200_000, beside_bytes=0))
    with closing(opened(small)) as ranges:
        found = list(every(ranges))
        named = read(ranges, NamedKeys(tuple((b"%d" % n,) for n in range(1, 61))))

    assert sum(len(some.rows) for some in found) == 50
    assert max(len(some.rows) for some in found) < 20
    assert len(named.rows) + len(named.left) == 60, "what was not read is left, not gone"


def test_who_has_an_id_is_not_shown(url, options) -> None:
    make(url, "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with open_session(options) as other, closing(opened(options)) as ranges:
        other.query("BEGIN")
        other.query("INSERT INTO public.t VALUES (2)")
        open_one = int(other.query("SELECT txid_current()::text")[0][0] or 0)
        before = read(ranges, ())
        again = read(ranges, ())
        other.query("COMMIT")
        behind = read(ranges, ())

    assert list(before.rows) == [[b"1"]]
    assert open_one in before.shown.running & again.shown.running, "by one number"
    assert not before.shown.has(open_one)
    assert list(behind.rows) == [[b"1"], [b"2"]]
    assert behind.shown.has(open_one)
    assert before.high < behind.high


def test_a_table_that_is_made_again_or_altered_before_begin_is_told(url, options) -> None:
    make(url, "CREATE TABLE t (id int PRIMARY KEY, v int)")
    with closing(opened(options)) as ranges:
        first = read(ranges, None)
        again = read(ranges, None)
        execute(url, "ALTER TABLE t ALTER v TYPE bigint")
        with pytest.raises(TableChanging, match="altered while its load waited"):
            read(ranges, None)
        make(url, "DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int)")
        with pytest.raises(TableChanging, match="renamed or altered"):
            read(ranges, ())

    assert (first.shape, first.looked) == (again.shape, again.looked)


@pytest.mark.parametrize(
    ("statement", "why"),
    [
        ("CREATE TABLE t (id int)", "it has no primary key"),
        (
            "CREATE TABLE t (id float8 PRIMARY KEY)",
            "equal values of double precision may have different texts",
        ),
        (
            "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
            "it has partitions, or inherits",
        ),
        (
            "CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE t (id int PRIMARY KEY, m mood)",
            "it has columns of types that users made",
        ),
        ("CREATE TABLE t (id int PRIMARY KEY)", ""),
    ],
)
def test_why_a_table_is_not_read_so(url, options, statement, why) -> None:
    execute(url, statement)
    with open_session(options) as session:
        (shape,) = catalog.table_schemas(session, [TABLE])
        assert key_ranges.why_not(session, shape, SERVER, 0) == why
        assert key_ranges.why_not(session, shape, SERVER, 1 << 30) == SMALL


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (replace(SERVER, compatibility="A"), ""),
        (
            replace(SERVER, compatibility="B"),
            "its key's collation takes different texts for equal",
        ),
        (replace(SERVER, encoding="GBK"), "its key has texts, in GBK"),
        (replace(SERVER, encoding="SQL_ASCII"), "the database has no encoding"),
    ],
)
def test_texts_are_a_key_where_they_are_told_apart(url, options, server, why) -> None:
    execute(url, "CREATE TABLE t (id text PRIMARY KEY)")
    with open_session(options) as session:
        (shape,) = catalog.table_schemas(session, [TABLE])
        assert key_ranges.why_not(session, shape, server, 0) == why


@pytest.mark.parametrize(
    ("more", "node", "reads"),
    [
        ({}, "", True),
        ({}, "CN", False),
        ({"plugin": "sql_decoding"}, "", False),
        ({"interface": "sql"}, "", False),
        ({"kind": "gaussdb", "plugin_options": {"output-order": "1"}}, "", False),
    ],
)
def test_which_streams_tell_enough(options, more, node, reads) -> None:
    options = replace(options, **more)
    decided = effective(options.plugin_options, options.terms)
    assert key_ranges.reads_ranges(decided, SERVER, node) == reads
