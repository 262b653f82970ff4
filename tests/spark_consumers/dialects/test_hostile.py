"""No text of a record becomes SQL: any string in any field is quoted, or an error."""

import re
from collections.abc import Iterator
from dataclasses import replace

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schemas.control import Moved, Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema, Unique, UserType
from spark_consumers.dialects import DIALECTS, EXTRAS, user_types
from spark_consumers.dialects.base import LeftOut
from spark_consumers.errors import NotExpressible

MARK = "canary"
# What closes a quote, a comment, a bracket or a statement in one dialect or another.
BREAKS = ("", '"', "'", "`", "''", '""', "\\", "\\'", "$gc$", "$$", ";", "--", "/*", "*/", ")", "(",
          "\n", ",", "::", " ", ".", "[]", "E'", 'U&"', "%s", "%", "{}", "END$gc$;")  # fmt: skip
ATTACKS = (
    "canary", "DROP TABLE canary", "; DROP TABLE canary; --", "integer; DROP TABLE canary",
    "pg_catalog.int4 OWNER TO canary; COPY t TO PROGRAM 'canary'", "(SELECT canary())",
    "canary()", "public.canary", "numeric(10,2) DEFAULT canary()", "a = canary()",
    "(a = 1) OR canary(a)", "text COLLATE canary", "1=1; canary", "timestamp(3) canary",
    "interval day canary", "double precision canary", "'canary'", "'x'::canary", "canary'[]",
)  # fmt: skip
BREAK = st.sampled_from(BREAKS)
TEXT = st.builds(lambda a, b, c: a + b + c, BREAK, st.sampled_from(ATTACKS), BREAK)
MAYBE = st.none() | TEXT
NAME = st.sampled_from(["a", "b", "id"]) | TEXT
TYPE = st.sampled_from(["integer", "text", "numeric(10,2)", "public.mood", "text[]"]) | TEXT
OIDS = st.sampled_from([23, 25, 1700, 17, 1114, 5545, 99_999])
USER_TYPES = st.recursive(
    st.builds(
        UserType,
        st.sampled_from("abcdemr") | TEXT,
        NAME,
        TYPE,
        OIDS,
        delimiter=st.just(",") | TEXT,
        labels=st.lists(TEXT, max_size=2).map(tuple),
    ),
    lambda inner: st.builds(
        UserType, st.sampled_from("ade"), NAME, TYPE, OIDS, labels=st.just(()), of=inner
    ),
    max_leaves=2,
)
COLUMNS = st.builds(
    Column, NAME, OIDS, st.just(-1), TYPE, st.booleans(), missing=MAYBE, default=MAYBE,
    user_type=st.none() | USER_TYPES, number=st.integers(0, 3),
)  # fmt: skip
IDS = st.builds(TableId, NAME, NAME)
TABLES = st.builds(
    TableSchema,
    IDS,
    st.lists(COLUMNS, min_size=1, max_size=3).map(tuple),
    st.lists(NAME, max_size=1).map(tuple),
    st.lists(st.builds(Unique, NAME, st.tuples(NAME)), max_size=1).map(tuple),
)
CHANGES = st.builds(
    SchemaChange,
    *map(st.just, (1, 1, 0, 7, 7, 7)),
    st.sampled_from(Origin),
    st.sampled_from(["ALTER TABLE", "ALTER TYPE", "ALTER DOMAIN", "CREATE VIEW"]) | TEXT,
    st.none() | TABLES,
    st.none() | TABLES,
    sql=MAYBE,
    canonical=MAYBE,
    lossy=MAYBE,
    kind=st.sampled_from(["table", "type", "domain", "view", "index", "schema"]) | TEXT,
    identity=MAYBE,
    renamed=st.dictionaries(NAME, NAME, max_size=2),
    values=st.dictionaries(NAME, st.sampled_from(["new", "lost", "explicit"]) | TEXT, max_size=2),
    settings=st.dictionaries(st.sampled_from(["TimeZone", "DateStyle"]) | TEXT, TEXT, max_size=2),
    moved=st.none()
    | st.builds(Moved, st.sampled_from(["move", "delete"]) | TEXT, IDS, st.none() | TEXT),
)
QUOTED = re.compile(r""" '(?:[^']|'')*+' | "(?:[^"]|"")*+" """, re.VERBOSE)
IN_SPARK = re.compile(r""" '(?:[^'\\]|\\.)*+' | `(?:[^`]|``)*+` """, re.VERBOSE | re.DOTALL)
BLOCK = re.compile(r"DO (\$gc_*\$)(.*)\1", re.DOTALL)


def outside(statement: str, quoted: re.Pattern[str] = QUOTED) -> Iterator[str]:
    """Give what of a statement a server takes for SQL, that of blocks and EXECUTE among it."""
    if (block := BLOCK.fullmatch(statement)) is not None:
        assert block[2].count(block[1]) == 0
        for text in QUOTED.findall(block[2]):
            inner = text[1:-1].replace("''", "'")
            if text.startswith("'") and f"EXECUTE {text};" in block[2]:
                yield from outside(inner)
        yield QUOTED.sub("", block[2]).replace(";", "")
    else:
        yield quoted.sub(" ", statement)


def said(change: SchemaChange, name: str) -> list[str]:
    there = user_types.needed_names(change)
    out: list[str] = []
    for types in ((), there):
        try:
            out += DIALECTS[name](user_types.settled(change, types))
        except NotExpressible as error:
            assert str(error)  # noqa: PT017  any of the fields may be the one
    return out


@given(CHANGES)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
def test_statements_hold_a_records_texts_in_quotes_only(change: SchemaChange) -> None:
    for name in DIALECTS:
        for statement in said(change, name):
            for text in outside(statement, IN_SPARK if name == "spark" else QUOTED):
                assert MARK not in text, statement
                assert not set(";'\"`\\") & set(text), statement
                assert "--" not in text
                assert "/*" not in text


@given(CHANGES)
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
def test_what_goes_beyond_rows_is_one_statement_that_calls_nothing(change: SchemaChange) -> None:
    for extras in EXTRAS.values():
        try:
            statements = extras(change)
        except NotExpressible:
            continue
        for statement in statements:
            if isinstance(statement, LeftOut):
                continue
            for text in outside(statement):
                assert not re.search(r"canary\s*\(", text), statement
                assert not set(";'\"`\\") & set(text), statement
                assert not re.search(r"\b(?:copy|program|owner|execute)\b", text), statement


@pytest.fixture
def canary(postgres_url):
    connection = psycopg2.connect(postgres_url)
    connection.autocommit = True
    with connection.cursor() as cursor:
        cursor.execute("SET client_min_messages = error; CREATE TABLE canary (alive bool)")
        cursor.execute("CREATE TABLE called (n int)")
        cursor.execute(
            "CREATE FUNCTION canary() RETURNS int LANGUAGE sql AS"
            " 'INSERT INTO called VALUES (1) RETURNING n'"
        )
        connection.autocommit = False
        yield cursor
        connection.rollback()
        cursor.execute("DROP FUNCTION canary; DROP TABLE canary, called")
        connection.commit()
    connection.close()


def test_a_server_that_runs_them_loses_nothing(canary) -> None:
    """Each statement that the server takes was one, and none reached the other table."""
    runs = 0

    @given(CHANGES)
    @settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
    def attack(change: SchemaChange) -> None:
        nonlocal runs
        table = change.after or change.before
        statements: list[str] = []
        for name in ("postgres", "opengauss"):
            statements += said(change, name)
        if table is not None:
            sound = replace(change, origin=Origin.SNAPSHOT, after=table)
            statements += said(sound, "postgres")
        for extras in EXTRAS.values():
            try:
                statements += [s for s in extras(change) if isinstance(s, str)]
            except NotExpressible:
                continue
        for statement in statements:
            canary.execute("SAVEPOINT one")
            try:
                canary.execute(statement)
            except psycopg2.Error:
                canary.execute("ROLLBACK TO one")
            else:
                runs += 1
        canary.execute("SELECT to_regclass('public.canary'), (SELECT count(*) FROM called)")
        assert canary.fetchone() == ("canary", 0)
        canary.connection.rollback()

    attack()

    assert runs > 50
