"""Databases in other encodings, and one without: what arrives are the bytes that were written."""

from collections.abc import Callable

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from producer.errors import Unsupported
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from spark_consumers.errors import NotText
from tests.e2e.path import Path, ask

MAKE = """
CREATE TABLE "t 表" (
    id int PRIMARY KEY, "值" text, c char(20), j json, a text[], "key" text UNIQUE
);
CREATE TABLE keyless (v text, w varchar(20));
ALTER TABLE keyless REPLICA IDENTITY FULL;
"""
ASCII = MAKE.replace('"t 表"', "t").replace('"值"', "v")


def bytes_of(url: str, table: str, encoding: str) -> list[str]:
    """Every cell of a table as hex digits of its bytes in one encoding."""
    statement = f"SELECT encode(convert_to(t::text, '{encoding}'), 'hex') FROM {table} t ORDER BY 1"
    return [row for (row,) in ask(url, statement)]


def text(value: bytes) -> str:
    """SQL of a text of these bytes, in a database that checks none."""
    return f"convert_from('\\x{value.hex()}', 'SQL_ASCII')"


@pytest.mark.parametrize(
    ("encoding", "words"),
    [
        ("UTF8", ("金额 €", "🐘")),
        ("LATIN1", ("naïve £", "\x85ÿ")),
        ("EUC_CN", ("金额", "汉字")),
        ("EUC_JP", ("金額", "カナ")),
    ],
)
def test_text_of_any_encoding_arrives(
    addresses: Addresses,
    new_database: Callable[..., str],
    topic_prefix: str,
    encoding: str,
    words: tuple[str, str],
) -> None:
    first, second = words
    source, target = new_database(encoding), new_database()
    names = ASCII if encoding in ("LATIN1", "EUC_JP") else MAKE
    table, column = ("t", "v") if encoding in ("LATIN1", "EUC_JP") else ('"t 表"', '"值"')
    ask(source, names)
    row = f"INSERT INTO {table} VALUES (%s, %s, %s, to_json(%s::text), ARRAY[%s, NULL], %s)"
    ask(source, row, 1, first, first[:2], first, first, first)
    ask(source, "INSERT INTO keyless VALUES (%s, %s), ('x', %s)", first, second, first)
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        ask(source, row, 2, second, second[:2], second, second, second)
        ask(source, f"UPDATE {table} SET {column} = %s WHERE id = 1", second + first)
        ask(source, "UPDATE keyless SET v = %s WHERE v = 'x'", second)
        ask(source, "DELETE FROM keyless WHERE v = %s", first)
        path.catch_up()

        for name in (table, "keyless"):
            assert bytes_of(target, name, "UTF8") == bytes_of(source, name, "UTF8") != []


RAW = (b"\xff\xfe", b"a\xc3", b"\xb2\xe2\xca\xd4 GBK", "金".encode(), b"plain", b"\\ \xa4\t\n")


def test_bytes_that_are_no_text_arrive_in_a_database_without_an_encoding(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str
) -> None:
    source, target = new_database("SQL_ASCII"), new_database("SQL_ASCII")
    ask(source, ASCII)
    insert = "INSERT INTO t VALUES ({}, {v}, {v}, ('\"' || {j} || '\"')::json, ARRAY[{v}], {v})"

    def put(number: int, value: bytes) -> None:
        quotable = value.replace(b"\\", b"").replace(b"\t", b"").replace(b"\n", b"")
        ask(source, insert.format(number, v=text(value), j=text(quotable)))
        ask(source, f"INSERT INTO keyless VALUES ({text(value)}, 'w'), ({text(value)}, NULL)")

    for number, value in enumerate(RAW):
        put(number, value)
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        for number, value in enumerate(RAW, len(RAW)):
            put(number, value + b"\xfd")
        ask(source, f"UPDATE t SET v = {text(RAW[1])} WHERE id = 0")
        ask(source, f"DELETE FROM t WHERE key = {text(RAW[2])}")
        ask(source, f"UPDATE keyless SET w = {text(RAW[0])} WHERE v = {text(RAW[0])}")
        ask(source, f"DELETE FROM keyless WHERE v = {text(RAW[1])} AND w IS NULL")
        path.catch_up()

        for name in ("t", "keyless"):
            rows = bytes_of(source, name, "SQL_ASCII")
            assert len(rows) > 5
            assert bytes_of(target, name, "SQL_ASCII") == rows


@pytest.mark.parametrize("table", ["t", "keyless"])
def test_a_database_with_an_encoding_refuses_them_by_name(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str, table: str
) -> None:
    source, target = new_database("SQL_ASCII"), new_database()
    gold = text("金".encode())
    ask(source, f"{ASCII} INSERT INTO t VALUES (1, {gold}); INSERT INTO keyless VALUES ({gold})")
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        assert ask(target, "SELECT v FROM t") == ask(target, "SELECT v FROM keyless") == [("金",)]

        ask(source, f"UPDATE {table} SET v = {text(RAW[0])}")
        with pytest.raises(NotText, match=f"table=public.{table}, column=v") as caught:
            path.catch_up()
        assert "SQL_ASCII" in caught.value.hint


def test_a_name_that_is_no_text_is_refused(new_database: Callable[..., str]) -> None:
    source = new_database("SQL_ASCII")
    raw = psycopg2.connect(source)
    raw.set_client_encoding("SQL_ASCII")
    with raw, raw.cursor() as cursor:
        cursor.execute(b'CREATE TABLE "t\xff" (id int)')
        cursor.execute(b'CREATE TABLE fine (id int, "c\xff" int)')
    raw.close()

    connection = catalog.connect(parse_dsn(source))
    with pytest.raises(Unsupported, match="xff"):
        catalog.expand(connection, ["*.*"])
    (table,) = catalog.expand(connection, ["public.fine"])
    with pytest.raises(Unsupported, match="xff"):
        catalog.table_schemas(connection, [table])
    connection.close()
