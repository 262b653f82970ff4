"""The emulator's encoders against a running PostgreSQL: its test_decoding, its quoting."""

from collections.abc import Callable

import psycopg2
import pytest

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.model import (
    PROFILES,
    Field,
    Item,
    Mode,
    Op,
    Row,
    Transaction,
    Truncate,
)
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, TableId

POSTGRES = PROFILES["postgres"]
AT = Lsn(1)  # positions are not compared here


@pytest.fixture
def url(new_database: Callable[[], str]) -> str:
    return new_database()


def field(name: str, type_name: str, oid: int, value: str | None) -> Field:
    return Field(name, type_name, oid, None if value is None else value.encode())


def wide(number: str, word: str | None) -> tuple[Field, ...]:
    return (
        field("id", "integer", 23, number),
        field("user", "text", 25, word),
        field('a "q', "character varying", 1043, word),
        field("n", "numeric", 1700, "NaN"),
        field("ok", "boolean", 16, "t"),
        field("no", "boolean", 16, "f"),
        field("bits", "bit varying", 1562, "101"),
        field("bit", "bit", 1560, "1"),
        field("f", "double precision", 701, "0.1"),
        field("raw", "bytea", 17, "\\xdead"),
        field("list", "integer[]", 1007, "{1,NULL}"),
        field("day", "date", 1082, "2024-02-29"),
    )


WIDE = """
    CREATE TABLE "My t" (id int PRIMARY KEY, "user" text, "a ""q" varchar(50), n numeric(9, 2),
    ok bool, no bool, bits varbit(9), bit bit, f float8, raw bytea, list int[], day date)
"""
INSERT = """INSERT INTO "My t" VALUES
    (%s, %s, %s, 'NaN', true, false, B'101', B'1', 0.1, '\\xdead', '{1,NULL}', '2024-02-29')"""


def row(op: Op, table: str, new: tuple[Field, ...] | None, old: tuple[Field, ...] | None) -> Row:
    return Row(AT, op, "public", table, new, old)


def key(number: str) -> tuple[Field, ...]:
    return (field("id", "integer", 23, number),)


def large(number: str, small: str, *, told: bool) -> tuple[Field, ...]:
    value = b"x" * 9000 if told else UNCHANGED
    return (
        field("id", "integer", 23, number),
        field("v", "text", 25, small),
        Field("big", "text", 25, value),
    )


WORK: list[tuple[str, tuple[object, ...], list[Item]]] = [
    (INSERT, (1, *["it's \\ é"] * 2), [row(Op.INSERT, "My t", wide("1", "it's \\ é"), None)]),
    (
        'UPDATE "My t" SET id = 2, "user" = \'x\', "a ""q" = \'x\'',
        (),
        [row(Op.UPDATE, "My t", wide("2", "x"), key("1"))],
    ),
    (
        "UPDATE \"My t\" SET n = 'NaN'",
        (),
        [row(Op.UPDATE, "My t", wide("2", "x"), None)],
    ),
    ('DELETE FROM "My t"', (), [row(Op.DELETE, "My t", None, key("2"))]),
    (
        "INSERT INTO large VALUES (1, 'a', repeat('x', 9000))",
        (),
        [row(Op.INSERT, "large", large("1", "a", told=True), None)],
    ),
    (
        "UPDATE large SET v = 'b'",
        (),
        [row(Op.UPDATE, "large", large("1", "b", told=False), None)],
    ),
    (
        "INSERT INTO nokey VALUES (7); DELETE FROM nokey",
        (),
        [row(Op.INSERT, "nokey", key("7"), None), row(Op.DELETE, "nokey", None, None)],
    ),
    (
        "INSERT INTO whole VALUES (7); UPDATE whole SET id = 8",
        (),
        [row(Op.INSERT, "whole", key("7"), None), row(Op.UPDATE, "whole", key("8"), key("7"))],
    ),
    (
        'TRUNCATE nokey, "My t" RESTART IDENTITY CASCADE',
        (),
        [
            Truncate(
                AT,
                (TableId("public", "nokey"), TableId("public", "My t")),
                cascade=True,
                restart_identity=True,
            )
        ],
    ),
    ("TRUNCATE whole", (), [Truncate(AT, (TableId("public", "whole"),))]),
]


@pytest.mark.parametrize("timestamps", [True, False], ids=["times", "no times"])
@pytest.mark.parametrize("xids", [True, False], ids=["xids", "no xids"])
def test_test_decoding_is_printed_as_postgres_prints_it(
    url: str, *, xids: bool, timestamps: bool
) -> None:
    mode = Mode(plugin="test_decoding", include_xids=xids, include_timestamp=timestamps)
    connection = psycopg2.connect(url)
    connection.autocommit = True
    done: list[tuple[int, list[Item]]] = []
    with connection.cursor() as cursor:
        cursor.execute(WIDE)
        cursor.execute("CREATE TABLE large (id int PRIMARY KEY, v text, big text)")
        cursor.execute("ALTER TABLE large ALTER big SET STORAGE EXTERNAL")
        cursor.execute("CREATE TABLE nokey (id int)")
        cursor.execute("CREATE TABLE whole (id int); ALTER TABLE whole REPLICA IDENTITY FULL")
        slot = f"emulator_{xids:d}{timestamps:d}"
        cursor.execute("SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [slot])
        for statement, values, items in WORK:
            cursor.execute("BEGIN")
            cursor.execute("SELECT txid_current()")
            xid = int(cursor.fetchall()[0][0])
            cursor.execute(statement, values or None)
            cursor.execute("COMMIT")
            done.append((xid, items))
        cursor.execute(
            "SELECT data FROM pg_logical_slot_get_changes(%s, NULL, NULL,"
            " 'include-xids', %s, 'include-timestamp', %s, 'skip-empty-xacts', '1')",
            [slot, str(xids), str(timestamps)],
        )
        printed = [line for (line,) in cursor.fetchall()]
    connection.close()

    # When it committed only the server knows; everything else is what was done above.
    times = iter([line.partition(" (at ")[2][:-1] for line in printed if "COMMIT" in line])
    stream = encoder(mode, POSTGRES, "utf-8")
    sent = [
        message.payload.decode()
        for xid, items in done
        for message in stream.feed(
            Transaction(xid, xid, AT, AT, AT, committed_at=next(times), items=items)
        )
    ]
    assert sent == printed


def test_names_are_quoted_as_postgres_quotes_them(url: str) -> None:
    names = Names(POSTGRES, "utf-8")
    connection = psycopg2.connect(url)
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT word, quote_ident(word) FROM (SELECT word FROM pg_get_keywords() UNION"
            " VALUES ('a'), ('A'), ('_1'), ('1a'), ('a$'), ('a\"b'), ('é'), (' a')) x (word)"
        )
        quoted = dict(cursor.fetchall())
    connection.close()

    assert len(quoted) > 400
    assert {word: names.quoted(word).decode() for word in quoted} == quoted
