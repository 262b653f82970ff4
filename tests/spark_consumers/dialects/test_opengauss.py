"""Schema changes as openGauss' statements."""

import psycopg2
import pytest

from schemas.tables import Column, TableId, TableSchema, Unique
from spark_consumers.dialects import DIALECTS
from spark_consumers.dialects.opengauss import statements
from tests.spark_consumers.feed import alter, create, table

T = table("t", "id integer, a text", unique="a")


def test_what_may_be_there_already_is_looked_for_first() -> None:
    schema, made, unique = statements(create(T))

    assert schema == (
        "DO $gc$BEGIN IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_namespace"
        " WHERE nspname = 'public') THEN EXECUTE 'CREATE SCHEMA \"public\"'; END IF; END$gc$"
    )
    assert made.startswith('CREATE TABLE IF NOT EXISTS "public"."t" ("id" integer NOT NULL')
    assert 'CREATE UNIQUE INDEX "t_a_key" ON "public"."t" ("a")\'' in unique
    assert "n.nspname = 'public' AND c.relname = 't_a_key'" in unique


def test_all_else_is_said_as_to_postgresql() -> None:
    wider = table("t", "id integer, a text, b text", unique="a")

    for change in (alter(T, wider), alter(wider, T), alter(T, None)):
        assert statements(change) == DIALECTS["postgres"](change)


@pytest.mark.parametrize(
    ("type_name", "target"),
    [
        ("macaddr8", "text"),
        ("int4multirange[]", "text[]"),
        ("pg_lsn", "text"),
        ("numeric(10,2)", "numeric(10,2)"),
        ("jsonb", "jsonb"),
    ],
)
def test_types_of_postgresql_alone_become_text(type_name: str, target: str) -> None:
    one = TableSchema(TableId("public", "x"), (Column("c", 1, -1, type_name),))

    assert statements(create(one))[1].endswith(f'("c" {target})')


ODD = TableSchema(
    TableId("o'd\"d$gc$", "t$gc_$"),
    (Column("k'", 23, -1, "integer"), Column("u\\", 25, -1, "text")),
    key=("k'",),
    unique=(Unique("i'$gc$\"", ("u\\",)),),
)


def test_a_server_takes_them_once_and_again_whatever_the_names(postgres_url: str) -> None:
    connection = psycopg2.connect(postgres_url)
    with connection, connection.cursor() as cursor:
        for statement in statements(create(ODD)) * 2:
            cursor.execute(statement)
        cursor.execute(
            "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = %s ORDER BY 2",
            (ODD.id.schema,),
        )
        found = cursor.fetchall()
    connection.close()

    assert found == [(ODD.id.name, "i'$gc$\""), (ODD.id.name, "t$gc_$_pkey")]
