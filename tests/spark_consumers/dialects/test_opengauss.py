"""Schema changes as openGauss' statements."""

from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from schemas.control import Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema, Unique
from spark_consumers.dialects import DIALECTS, EXTRAS
from spark_consumers.dialects.base import LeftOut
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
    assert unique == DIALECTS["postgres"](create(T))[2]


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


SPECIAL = TableSchema(
    TableId("o'd\"d$gc$", "t$gc_$"),
    (Column("k'", 23, -1, "integer"), Column("u\\", 25, -1, "text")),
    key=("k'",),
    unique=(Unique("i'$gc$\"", ("u\\",)),),
)


def test_a_server_takes_them_once_and_again_whatever_the_names(postgres_url: str) -> None:
    connection = psycopg2.connect(postgres_url)
    with connection, connection.cursor() as cursor:
        for statement in statements(create(SPECIAL)) * 2:
            cursor.execute(statement)
        cursor.execute(
            "SELECT tablename, indexname FROM pg_indexes WHERE schemaname = %s ORDER BY 2",
            (SPECIAL.id.schema,),
        )
        found = cursor.fetchall()
    connection.close()

    assert found == [(SPECIAL.id.name, "i'$gc$\""), (SPECIAL.id.name, "t$gc_$_pkey")]


def deparsed(before: TableSchema | None, after: TableSchema | None, **more: Any) -> SchemaChange:
    return SchemaChange(1, 1, 0, 7, 7, 7, Origin.DEPARSED, "ALTER TABLE", before, after, **more)


ID = Column("id", 23, -1, "integer", nullable=False)
A = Column("a", 1043, 24, "character varying(20)")
D = TableSchema(TableId("public", "t"), (ID, A), key=("id",))


def test_a_deparsed_rename_is_one() -> None:
    renamed = TableSchema(D.id, (ID, Column("z", 1043, 24, "character varying(20)")), key=("id",))

    assert statements(deparsed(D, renamed, renamed={"a": "z"})) == [
        'ALTER TABLE "public"."t" RENAME COLUMN "a" TO "z"'
    ]


def test_a_deparsed_drop_and_add_is_no_rename() -> None:
    other = TableSchema(D.id, (ID, Column("z", 1043, 24, "character varying(20)")), key=("id",))

    assert statements(deparsed(D, other)) == [
        'ALTER TABLE "public"."t" DROP COLUMN IF EXISTS "a"',
        'ALTER TABLE "public"."t" ADD COLUMN "z" character varying(20)',
    ]


@pytest.mark.parametrize(
    ("how", "using"), [("", ""), ("explicit", ' USING "a"::text'), ("lost", " USING NULL")]
)
def test_a_deparsed_type_is_converted_as_the_source_did(how: str, using: str) -> None:
    other = TableSchema(D.id, (ID, Column("a", 25, -1, "text")), key=("id",))

    assert f'ALTER TABLE "public"."t" ALTER COLUMN "a" TYPE text{using}' in statements(
        deparsed(D, other, values={"a": how})
    )


def test_what_goes_beyond_rows_reaches_its_own_family_only() -> None:
    default = Column("a", 25, -1, "text", nullable=False, has_default=True, default="'x'::text")
    change = deparsed(D, TableSchema(D.id, (ID, default), key=("id",)))

    assert EXTRAS["opengauss"](change) == [
        'ALTER TABLE "public"."t" ALTER COLUMN "a" SET DEFAULT \'x\'::text',
        'ALTER TABLE "public"."t" ALTER COLUMN "a" SET NOT NULL',
    ]
    assert EXTRAS["postgres"](change) == []
    assert EXTRAS["opengauss"](replace(change, origin=Origin.TRIGGER)) == []


@pytest.mark.parametrize(
    ("kind", "tag", "said", "becomes"),
    [
        ("index", "CREATE INDEX", "CREATE INDEX i ON s.t USING btree (a)",
         ["create index i on s.t using btree(a)"]),
        ("table", "COMMENT", "COMMENT ON TABLE s.t IS 'x'", ["comment on table s.t is 'x'"]),
        ("table", "DROP TABLE", "DROP TABLE s.t", []),
        ("other", "DDL", "SAID", []),
    ],
)  # fmt: skip
def test_other_objects_are_made_by_their_own_statement(
    kind: str, tag: str, said: str, becomes: list[str]
) -> None:
    change = replace(deparsed(None, None, kind=kind, canonical=said), tag=tag)

    assert EXTRAS["opengauss"](change) == becomes
    assert EXTRAS["postgres"](change) == []


def test_a_package_is_code() -> None:
    change = deparsed(None, None, kind="package", canonical="CREATE PACKAGE p AS END")

    (left,) = EXTRAS["opengauss"](change)
    (run,) = EXTRAS["opengauss"](change, code=True)

    assert isinstance(left, LeftOut)
    assert run == "DO $gc$BEGIN EXECUTE 'CREATE PACKAGE p AS END'; END$gc$"
