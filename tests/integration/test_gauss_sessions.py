"""GaussConnection's ordinary sessions against a real server, whose SQL and COPY are the same.

PostgreSQL does not speak protocol 3.51: it says so, and the session goes on with 3.0.
"""

import threading
from collections.abc import Callable, Iterator

import pytest

from gauss_cdc_lab.services import Addresses
from producer.errors import (
    CdcError,
    ConnectionLost,
    DecodeError,
    RoleDiffers,
    SourceError,
)
from producer.sources.gauss.connection import ConnectionArguments, GaussConnection
from producer.sources.gauss.server import Product
from producer.sources.postgres.connection import parse_dsn
from producer.sources.session_settings import POSTGRES as SESSION_SETTINGS
from producer.wire import protocol
from schemas import quoting
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.services_fixtures import drop_database, execute

SETTINGS = {**SESSION_SETTINGS, "search_path": "public"}


@pytest.fixture
def arguments(postgres_url: str) -> ConnectionArguments:
    return parse_dsn(postgres_url)


@pytest.fixture
def connect(arguments: ConnectionArguments) -> Iterator[Callable[..., GaussConnection]]:
    opened: list[GaussConnection] = []

    def connect(**more: object) -> GaussConnection:
        settings = {"replication": False, "settings": SETTINGS, **more}
        opened.append(GaussConnection.open(arguments, **settings))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


@pytest.fixture
def session(connect: Callable[..., GaussConnection]) -> GaussConnection:
    return connect()


@pytest.mark.parametrize("version", [protocol.V3_0, protocol.V3_50, protocol.V3_51])
def test_a_server_that_speaks_an_older_version_is_followed(
    connect: Callable[..., GaussConnection], version: int
) -> None:
    assert connect(version=version).query("SELECT 1, NULL, 'ü你'") == [["1", None, "ü你"]]


def test_the_server_is_asked_who_it_is(session: GaussConnection) -> None:
    server = session.server()

    assert server.product is Product.POSTGRES
    assert server.number >= (13,)
    assert (server.is_primary, server.codec, server.compatibility) == (True, "utf-8", "")
    assert not server.has_csn_slots
    assert session.backend_pid > 0


def test_a_refused_question_leaves_an_ordinary_session_alive(session: GaussConnection) -> None:
    with pytest.raises(SourceError, match="sqlstate=22012"):
        session.query("SELECT 1/0")

    assert session.query("SELECT 1") == [["1"]]


def test_rows_may_be_had_as_bytes(session: GaussConnection) -> None:
    assert session.query_bytes("SELECT 'ü', NULL, ''") == [["ü".encode(), None, b""]]


def test_bytes_of_a_database_without_an_encoding_come_and_go_as_they_are(
    addresses: Addresses, topic_prefix: str
) -> None:
    execute(
        addresses.postgres_url(),
        f"CREATE DATABASE {topic_prefix} ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C'"
        " TEMPLATE template0",
    )
    try:
        arguments = parse_dsn(addresses.postgres_url(topic_prefix))
        with GaussConnection.open(arguments, replication=False, settings=SETTINGS) as session:
            session.query("CREATE TABLE t (v text)")
            assert session.copy_in("COPY t FROM STDIN", [b"\xc4\xe3\n"]) == 1  # GBK
            assert session.query_bytes("SELECT v FROM t") == [[b"\xc4\xe3"]]
            assert list(session.copy_out("COPY t TO STDOUT")) == [b"\xc4\xe3\n"]
            with pytest.raises(DecodeError, match="not UTF-8"):
                session.query("SELECT v FROM t")
    finally:
        drop_database(addresses.postgres_url(), topic_prefix)


def test_a_transaction_is_all_or_nothing(session: GaussConnection) -> None:
    session.query("CREATE TABLE t (id int PRIMARY KEY)")
    with session.transaction():
        session.query("INSERT INTO t VALUES (1)")
        assert session.in_transaction
    with pytest.raises(SourceError), session.transaction(how="ISOLATION LEVEL REPEATABLE READ"):
        session.query("INSERT INTO t VALUES (2); INSERT INTO t VALUES (1)")

    assert not session.in_transaction
    assert session.query("SELECT id FROM t") == [["1"]]


def test_rows_are_copied_out_and_in(session: GaussConnection) -> None:
    session.query("CREATE TABLE a (id int, v text); CREATE TABLE b (LIKE a)")
    made = "SELECT i, repeat('wide\\row 你 ', i % 50) FROM generate_series(1, 20000) i"
    session.query(f"INSERT INTO a {made}")

    copied = list(session.copy_out("COPY a TO STDOUT"))
    assert session.copy_in("COPY b FROM STDIN", copied) == 20_000
    assert len(copied) == 20_000
    assert session.query("SELECT count(*) FROM (TABLE a EXCEPT ALL TABLE b) d") == [["0"]]


def test_nothing_may_be_copied_and_anything_in_any_pieces(session: GaussConnection) -> None:
    session.query("CREATE TABLE t (v bytea)")
    assert session.copy_in("COPY t FROM STDIN", []) == 0
    assert list(session.copy_out("COPY t TO STDOUT")) == []

    line = b"\\\\x" + b"ab" * 300_000 + b"\n"
    pieces = (line * 2)[:100_001], (line * 2)[100_001:]
    assert session.copy_in("COPY t FROM STDIN", pieces) == 2
    assert session.query("SELECT DISTINCT length(v) FROM t") == [["300000"]]


def test_a_broken_line_is_refused_and_the_session_goes_on(session: GaussConnection) -> None:
    session.query("CREATE TABLE t (id int)")
    lines = (b"%d\n" % i if i != 5 else b"five\n" for i in range(200_000))

    with pytest.raises(SourceError, match="sqlstate=22P02"):
        session.copy_in("COPY t FROM STDIN", lines)
    assert session.query("SELECT count(*) FROM t") == [["0"]]


def test_what_the_rows_raise_takes_the_copy_back(session: GaussConnection) -> None:
    session.query("CREATE TABLE t (id int)")

    def lines() -> Iterator[bytes]:
        yield b"1\n"
        raise KeyError("a cell value")

    with pytest.raises(KeyError):
        session.copy_in("COPY t FROM STDIN", lines())
    assert session.query("SELECT count(*) FROM t") == [["0"]]


def test_a_server_that_says_much_during_a_copy_is_heard(session: GaussConnection) -> None:
    # Without reading between the chunks both sides would wait for each other.
    session.query(
        "CREATE TABLE t (id int);"
        "CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN RAISE NOTICE '%', repeat('x', 4000); RETURN NEW; END$$;"
        "CREATE TRIGGER tell BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION tell()"
    )

    assert session.copy_in("COPY t FROM STDIN", (b"%d\n" % i for i in range(3000))) == 3000


def test_a_copy_out_that_fails_in_the_middle_reports_why(session: GaussConnection) -> None:
    rows = session.copy_out("COPY (SELECT 1/(3-i) FROM generate_series(1,5) i) TO STDOUT")

    with pytest.raises(SourceError, match="sqlstate=22012"):
        list(rows)
    assert session.query("SELECT 1") == [["1"]]


def test_a_copy_out_given_up_ends_the_session(session: GaussConnection) -> None:
    rows = session.copy_out("COPY (SELECT * FROM generate_series(1,100000)) TO STDOUT")
    assert next(iter(rows)) == b"1\n"
    rows.close()

    with pytest.raises(ConnectionLost, match="abandoned"):
        session.query("SELECT 1")


@pytest.mark.parametrize(
    "statement", ["SELECT 1", "COPY (SELECT 1) TO STDOUT", "COPY nowhere FROM STDIN"]
)
def test_what_is_no_copy_to_the_server_is_refused(session: GaussConnection, statement: str) -> None:
    with pytest.raises((SourceError, DecodeError)):
        session.copy_in(statement, [b"1\n"])


def test_a_copy_is_no_query(session: GaussConnection) -> None:
    with pytest.raises(DecodeError, match="unexpected answer"):
        session.query("COPY (SELECT 1) TO STDOUT")
    with pytest.raises(ConnectionLost, match="session is over"):
        session.query("SELECT 1")


VALUES = [
    "",
    "it's",
    "back\\slash",
    "\\",
    "'",
    "\\'",
    "a\nb\t\x01",
    "ü你😀",
    '"',
    "E'x'",
    "$$",
    "%s",
]


@pytest.mark.parametrize("conforming", ["on", "off"])
def test_literals_read_back_as_they_were_whatever_the_setting(
    session: GaussConnection, conforming: str
) -> None:
    session.query("SET escape_string_warning = off")
    session.query(f"SET standard_conforming_strings = {conforming}")

    written = ", ".join(quoting.constant(value) for value in [*VALUES, None])
    assert session.query(f"SELECT {written}") == [[*VALUES, None]]


def test_identifiers_name_what_they_say(session: GaussConnection) -> None:
    name = 'od"d ; 表\\'
    table = quoting.qualified(TableId("public", name))
    session.query(f"CREATE TABLE {table} ({quoting.identifier(name)} int)")

    assert session.query("SELECT relname FROM pg_class WHERE relname LIKE 'od%'") == [[name]]


def test_an_administrators_end_is_a_lost_connection(
    connect: Callable[..., GaussConnection],
) -> None:
    victim, other = connect(), connect()
    other.query(f"SELECT pg_terminate_backend({victim.backend_pid}, 10000)")

    with pytest.raises(ConnectionLost):
        victim.query("SELECT 1")


def test_a_session_waits_for_a_lock_while_copying(
    connect: Callable[..., GaussConnection],
) -> None:
    session, other = connect(), connect()
    session.query("CREATE TABLE t (id int)")
    other.query("BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
    made: list[int] = []
    copying = threading.Thread(
        target=lambda: made.append(session.copy_in("COPY t FROM STDIN", [b"1\n"] * 10))
    )
    copying.start()
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 't'::regclass"
    while other.query(waiting) == [["0"]]:
        pass
    other.query("COMMIT")
    copying.join()

    assert made == [10]


def test_the_role_is_looked_at(connect: Callable[..., GaussConnection]) -> None:
    assert connect(role="primary").query("SELECT 1") == [["1"]]
    with pytest.raises(RoleDiffers, match="is a primary"):
        connect(role="standby")


def test_a_setting_the_server_does_not_know_is_reported(
    connect: Callable[..., GaussConnection],
) -> None:
    with pytest.raises(CdcError, match="no_such_setting"):
        connect(settings={"no_such_setting": "1"})


def test_a_stream_of_postgresql_is_read_too(
    connect: Callable[..., GaussConnection], session: GaussConnection, topic_prefix: str
) -> None:
    session.query("CREATE TABLE t (id int PRIMARY KEY); CREATE PUBLICATION p FOR TABLE t")
    stream = connect(replication=True)
    made = stream.create_slot(topic_prefix, "pgoutput")
    session.query("INSERT INTO t VALUES (1)")
    stream.start(topic_prefix, {"proto_version": "1", "publication_names": "p"})
    messages = []
    while not any(payload[:1] == b"C" for _, _, payload in messages):
        messages += stream.receive(10).messages
    stream.send_status(Lsn(messages[-1][1]))
    stream.close()

    assert made.snapshot
    assert [payload[:1] for _, _, payload in messages] == [b"B", b"R", b"I", b"C"]
    assert session.wait_released(topic_prefix, 60)
