"""The DB-API over our own client: quoting and reading against a real server."""

import io
from collections.abc import Iterator
from functools import partial

import psycopg2
import pytest
from psycopg2 import sql

from gauss_cdc.gauss_dbapi import Connection, bind, connect, quoted, read_array, render
from producer.sources.dial import parse_dsn
from producer.sources.session_settings import POSTGRES as SESSION_SETTINGS
from spark_consumers.sinks.postgres.driver import Refused

SPECIAL = ["", "NULL", "null", 'a"b', "a\\b", "{a,b}", " x ", "ü你", "it's", "%s", "a\nb", "\\"]


@pytest.fixture
def open_session(postgres_url: str) -> partial[Connection]:
    return partial(connect, parse_dsn(postgres_url), settings=SESSION_SETTINGS)


@pytest.fixture
def connection(open_session: partial[Connection]) -> Iterator[Connection]:
    one = open_session()
    yield one
    one.close()


def test_arguments_arrive_as_they_are(connection: Connection) -> None:
    with connection.cursor() as cursor:
        for value in SPECIAL:
            cursor.execute("SELECT %s::text", (value,))
            assert cursor.fetchone() == (value,)
        cursor.execute("SELECT %(a)s, %(b)s, %(a)s::int8, 5 %% 3", {"a": 7, "b": None})
        assert cursor.fetchall() == [(7, None, 7, 2)]
        cursor.execute("SELECT %s, %s", (True, False))
        assert cursor.fetchall() == [(True, False)]


def test_arrays_go_and_come(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT %s::text[], %s::text[]", ([*SPECIAL, None], []))
        assert cursor.fetchone() == ([*SPECIAL, None], [])
        cursor.execute("SELECT 5 = ANY(%s::oid[])", ([4, 5],))
        assert cursor.fetchone() == (True,)


def test_without_arguments_a_percent_sign_is_one(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("SELECT '100%s', 5 % 3")
        assert cursor.fetchall() == [("100%s", 2)]


def test_composed_statements_are_written_as_psycopg2_writes_them(postgres_url: str) -> None:
    composed = sql.SQL("SELECT {}, {} FROM {}").format(
        sql.Identifier('od"d'), sql.Identifier("s", "t"), sql.SQL(", ").join([sql.Identifier("ü")])
    )
    theirs = psycopg2.connect(postgres_url)
    expected = composed.as_string(theirs)
    theirs.close()

    assert render(composed, is_bound=False) == expected


def test_a_name_may_hold_a_percent_sign(connection: Connection) -> None:
    with connection.cursor() as cursor:
        composed = sql.SQL("SELECT %s AS {}").format(sql.Identifier("50%s"))
        cursor.execute(composed, ("x",))
        assert cursor.fetchall() == [("x",)]


@pytest.mark.parametrize(
    ("statement", "arguments", "error"),
    [
        ("%s", [], ValueError),
        ("%s", [1, 2], ValueError),
        ("%d", [1], ValueError),
        ("%(a)s", [1], TypeError),
        ("%(a)s", {"b": 1}, KeyError),
        ("%s", [1.5], TypeError),
    ],
)
def test_marks_and_arguments_must_agree(
    statement: str, arguments: object, error: type[Exception]
) -> None:
    with pytest.raises(error):
        bind(statement, arguments)


@pytest.mark.parametrize("text", ["", "{", "{a", "{{1},{2}}", "[0:1]={1,2}", '{"a}'])
def test_what_is_no_array_of_one_dimension_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="array"):
        read_array(text)


def test_a_transaction_begins_by_itself_and_ends_on_request(
    connection: Connection, open_session: partial[Connection]
) -> None:
    other = open_session()
    other.autocommit = True
    with connection.cursor() as mine, other.cursor() as theirs:
        mine.execute("CREATE TABLE public.t (id int); INSERT INTO public.t VALUES (1), (2)")
        assert mine.rowcount == 2
        theirs.execute("SELECT count(*) FROM pg_tables WHERE tablename = 't'")
        assert theirs.fetchone() == (0,)
        connection.commit()
        mine.execute("DELETE FROM public.t")
        connection.rollback()
        connection.rollback()
        theirs.execute("SELECT count(*) FROM public.t")
        assert theirs.fetchone() == (2,)
        assert theirs.fetchone() is None
    other.close()


def test_a_file_is_copied(connection: Connection) -> None:
    with connection.cursor() as cursor:
        cursor.execute("CREATE TABLE public.t (id int, v text)")
        lines = "".join(f"{at}\tü你\n" for at in range(50_000))
        cursor.copy_expert("COPY public.t FROM STDIN", io.StringIO(lines))
        assert cursor.rowcount == 50_000
        cursor.execute("SELECT sum(id), min(v) FROM public.t")
        assert cursor.fetchone() == (sum(range(50_000)), "ü你")


def test_refusals_carry_their_sqlstate_and_lost_connections_none(
    connection: Connection, open_session: partial[Connection]
) -> None:
    with connection.cursor() as cursor, pytest.raises(Refused) as refused:
        cursor.execute("SELECT 'secret'::int")
    assert refused.value.sqlstate == "22P02"
    assert "secret" not in str(refused.value)
    connection.rollback()

    other = open_session()
    with other.cursor() as cursor:
        cursor.execute("SELECT pg_terminate_backend(%s, 10000)", (connection.session.backend_pid,))
    other.close()
    with connection.cursor() as cursor, pytest.raises(Refused) as lost:
        cursor.execute("SELECT 1")
    assert lost.value.sqlstate is None


def test_another_product_is_recognised_by_what_it_does_not_have(postgres_url: str) -> None:
    with pytest.raises(Refused) as refused:
        connect(parse_dsn(postgres_url))  # with openGauss' own settings

    assert refused.value.sqlstate == "42704"
    assert "session_timeout" in refused.value.message


def test_no_listener_is_a_lost_connection() -> None:
    with pytest.raises(Refused) as lost:
        connect(parse_dsn("postgresql://nobody@127.0.0.1:1/none"))
    assert lost.value.sqlstate is None


def test_a_value_without_a_form_is_refused() -> None:
    with pytest.raises(TypeError, match="bytes"):
        quoted(b"x")
