"""Changes made at PostgreSQL, read through the facade by our own client, in every format."""

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from producer.sources.decoders import Format
from schemas.positions import Lsn
from tests.e2e.gauss_facade import Front, Streamed, Told, facade

MODES = {
    "mppdb": ("mppdb_decoding", Format("mppdb_decoding"), {"include-xids": "true"}),
    "mppdb_skip": ("mppdb_decoding", Format("mppdb_decoding"), {"skip-empty-xacts": "true"}),
    "sql": ("sql_decoding", Format("sql_decoding"), {}),
    "test": ("test_decoding", Format("test_decoding"), {}),
    **{
        f"{style}{batch}": (
            "mppdb_decoding",
            Format("mppdb_decoding", style, batch=bool(batch)),
            {
                "parallel-decode-num": "4",
                "decode-style": style,
                "sending-batch": str(batch),
                "include-timestamp": "true",
            },
        )
        for style in "bjt"
        for batch in (0, 1)
    },
}
SERIAL = {"mppdb", "mppdb_skip", "sql", "test"}

TABLES = """
CREATE TABLE item (id int PRIMARY KEY, name text, price numeric(10, 2), body text, done bool);
ALTER TABLE item ALTER COLUMN body SET STORAGE EXTERNAL;
CREATE TABLE visit (who text, happened_at timestamptz);
CREATE TABLE pair (a int, b int, v bytea);
ALTER TABLE pair REPLICA IDENTITY FULL;
"""
BODY = "x" * 9000
# Each string is a transaction.
WORK = (
    f"INSERT INTO item VALUES (1, 'it''s', 1.50, '{BODY}', true), (2, NULL, NULL, '', false)",
    "UPDATE item SET name = 'two' WHERE id = 1",
    "UPDATE item SET id = 3 WHERE id = 2; DELETE FROM item WHERE id = 3",
    """INSERT INTO visit VALUES ('me', '2026-01-02 03:04:05.678+00');
    UPDATE visit SET who = 'you'; DELETE FROM visit""",
    "INSERT INTO pair VALUES (1, 2, '\\x00ff'); UPDATE pair SET b = 3; DELETE FROM pair",
)
ONE = {"id": "1", "name": "it's", "price": "1.50", "body": BODY, "done": "t"}
TWO = {"id": "2", "name": None, "price": None, "body": "", "done": "f"}
THREE = {**TWO, "id": "3"}
ME = {"who": "me", "happened_at": "2026-01-02 03:04:05.678+00"}
PAIR = {"a": "1", "b": "2", "v": "\\x00ff"}
DONE = [
    [("c", "item", None, ONE), ("c", "item", None, TWO)],
    [("u", "item", {"id": "1"}, {**ONE, "name": "two"})],
    [("u", "item", {"id": "2"}, THREE), ("d", "item", {"id": "3"}, None)],
    # Without a key openGauss sends no old part: neither for UPDATE nor for DELETE.
    [
        ("c", "visit", None, ME),
        ("u", "visit", None, {**ME, "who": "you"}),
        ("d", "visit", None, None),
    ],
    [
        ("c", "pair", None, PAIR),
        ("u", "pair", PAIR, {**PAIR, "b": "3"}),
        ("d", "pair", {**PAIR, "b": "3"}, None),
    ],
]


@pytest.fixture
def front(postgres_url: str) -> Iterator[Front]:
    with facade(postgres_url) as found:
        do(postgres_url, TABLES)
        yield found


def do(url: str, *transactions: str) -> None:
    with closing(psycopg2.connect(url)) as connection:
        for text in transactions:
            with connection, connection.cursor() as cursor:
                cursor.execute(text)


def as_sql(done: list[tuple]) -> list[tuple]:
    """What sql_decoding makes of it: no names in an INSERT, an UPDATE in two parts."""
    reported: list[tuple] = []
    for op, table, old, new in done:
        if op != "c":
            reported.append(("d", table, old, None))
        if op != "d":
            reported.append(("c", table, None, list(new.values())))
    return reported


@pytest.mark.parametrize("mode", MODES)
def test_what_was_done_is_what_is_decoded(mode: str, front: Front, postgres_url: str) -> None:
    plugin, style, options = MODES[mode]
    front.make_slot("live", plugin)
    do(postgres_url, *WORK)

    with front.open(replication=True) as session:
        found = Streamed(session, "live", style, options).read(len(WORK))

    expected = [as_sql(done) for done in DONE] if mode == "sql" else DONE
    assert [reported.rows() for reported in found] == expected
    assert_ascending([csn(reported) for reported in found])


def csn(reported: Told) -> int:
    assert reported.ended is not None
    number = reported.begun.csn or reported.ended.csn
    assert number is not None
    return number


def assert_ascending(numbers: list[int]) -> None:
    assert numbers == sorted(set(numbers))


def position(reported: Told) -> Lsn:
    """What a client confirms, and what excludes the transaction from then on."""
    assert reported.ended is not None
    if reported.ended.end_lsn is not None:
        return reported.ended.end_lsn
    assert reported.ended.commit_lsn is not None
    return Lsn(reported.ended.commit_lsn + 1)


@pytest.mark.parametrize("mode", MODES)
def test_a_restart_brings_exactly_what_was_not_confirmed(
    mode: str, front: Front, postgres_url: str
) -> None:
    plugin, style, options = MODES[mode]
    front.make_slot("live", plugin)
    do(postgres_url, *WORK)
    with front.open(replication=True) as session:
        stream = Streamed(session, "live", style, options)
        first = list(stream.read(len(WORK)))
        session.send_status(position(first[1]))

    with front.open(replication=True) as session:
        second = list(Streamed(session, "live", style, options).read(3))
    with front.open(replication=True) as session:
        third = list(Streamed(session, "live", style, options, position(first[3])).read(1))

    assert [reported.rows() for reported in second] == [reported.rows() for reported in first[2:]]
    assert [csn(reported) for reported in second] == [csn(reported) for reported in first[2:]]
    assert [reported.rows() for reported in third] == [first[4].rows()]
