"""What openGauss printed, carried by our Avro, is read by PostgreSQL as the same value."""

from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from schemas.tables import Column, TableId, TableSchema
from schemas.types import TypeOptions
from schemas.types.names import oid_of
from spark_consumers.dialects.postgres import statements
from tests.integration.test_types_server import travelled
from tests.schemas.types.test_gauss import MADE_THERE, Recorded, recorded
from tests.spark_consumers.feed import create

if TYPE_CHECKING:
    from psycopg2.extensions import cursor as Cursor  # noqa: N812  it is a class

# Compared as text: PostgreSQL has no equality for them.
NO_EQUALITY = {"json", "xml", "point", "box", "path", "polygon", "circle", "lseg"}


@pytest.fixture
def cursor(addresses: Addresses) -> "Iterator[Cursor]":
    """A session like that of a sink, in a transaction that is undone."""
    connection = psycopg2.connect(addresses.postgres_url())
    with connection.cursor() as cur:
        cur.execute("SET TimeZone = 'UTC'; SET search_path = pg_catalog; SET lc_monetary = 'C'")
        yield cur
    connection.rollback()
    connection.close()


def by_type() -> list[tuple[Column, list[str]]]:
    values = sorted(
        (v for v in recorded() if v.column.type_name not in MADE_THERE),
        key=lambda v: (v.column.type_oid, v.column.type_name),
    )
    groups = groupby(values, key=lambda v: (v.column.type_oid, v.column.type_name))
    return [(found[0].column, [v.text for v in found]) for found in (list(g) for _, g in groups)]


def as_postgres_writes(value: Recorded) -> str:
    """The value for PostgreSQL's input function, made of the recorded text by hand."""
    is_bare_hex = value.column.type_name in ("raw", "blob")
    return "\\x" + value.text if is_bare_hex else value.text


CHOICES = (
    TypeOptions(),
    *(TypeOptions(decimal_handling=choice) for choice in ("string", "double")),
    *(TypeOptions(binary_handling=choice) for choice in ("base64", "base64-url-safe", "hex")),
    *(TypeOptions(time_precision=c) for c in ("adaptive-time-microseconds", "connect")),
    TypeOptions(interval_handling="string"),
)


@pytest.mark.parametrize(
    ("column", "texts"), [pytest.param(*p, id=p[0].type_name) for p in by_type()]
)
def test_a_target_made_by_the_dialect_holds_the_same_values(
    cursor: "Cursor", column: Column, texts: list[str]
) -> None:
    table = TableSchema(TableId("gauss_types", "t"), (column,))
    for statement in statements(create(table)):
        cursor.execute(statement)
    cursor.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'gauss_types.t'::regclass AND attnum = 1"
    )
    ((type_name,),) = cursor.fetchall()
    sent = [as_postgres_writes(Recorded(column, text)) for text in texts]

    text = "::text" if type_name.split("(")[0] in NO_EQUALITY else ""
    for options in CHOICES:
        got = travelled(column, texts, options)
        cursor.execute(
            "SELECT sent, got FROM unnest(%s::text[], %s::text[]) AS pairs(sent, got)"
            f" WHERE got::{type_name}{text} IS DISTINCT FROM sent::{type_name}{text}",
            (sent, got),
        )
        assert cursor.fetchall() == [], options


def test_each_gauss_type_becomes_one_that_postgresql_has(cursor: "Cursor") -> None:
    from schemas.types import gauss

    columns = tuple(
        Column(f"c{at}", entry.oids[0], -1, f"{entry.name}(7)" if "{}" in entry.ddl["postgres"]
               else entry.name)
        for at, entry in enumerate(gauss.TYPES)
    )  # fmt: skip
    for statement in statements(create(TableSchema(TableId("gauss_types", "all"), columns))):
        cursor.execute(statement)
    cursor.execute(
        "SELECT format_type(atttypid, atttypmod) FROM pg_attribute"
        " WHERE attrelid = 'gauss_types.\"all\"'::regclass AND attnum > 0 ORDER BY attnum"
    )

    made = [row[0] for row in cursor.fetchall()]
    assert made == [e.ddl["postgres"].replace("{}", "(7)") for e in gauss.TYPES]


def test_every_built_in_type_is_found_by_both_of_its_names(cursor: "Cursor") -> None:
    cursor.execute(
        "SELECT t.oid::int8, format_type(t.oid, NULL), t.typname FROM pg_type t"
        " WHERE t.oid < 10000 AND t.typtype IN ('b', 'r', 'm')"
        " AND t.typname !~ '^_?(gtsvector|pg_(brin|mcv|dep|ndist|node))'"
        " AND t.typelem NOT IN (SELECT oid FROM pg_type WHERE typtype = 'c')"
    )
    wrong = [
        (oid, name)
        for oid, shown, name in cursor.fetchall()
        for known in (shown, f"pg_catalog.{name}")
        # "char" is the catalog's name of another type than SQL's char
        if oid_of(known) != oid and name not in ("char", "_char")
    ]

    assert wrong == []
