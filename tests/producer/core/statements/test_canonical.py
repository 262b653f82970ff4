"""A changed table as one statement."""

from dataclasses import replace

import pytest

from producer.core.shape_change import ShapeChange
from producer.core.statements.canonical import canonical
from schemas.tables import Column, TableId, TableSchema

ID = Column("id", 23, type_name="integer", nullable=False)
NOTE = Column("note", 25, type_name="text")
T = TableSchema(TableId("app", "t"), (ID, NOTE), ("id",))


def said(
    before: TableSchema | None, after: TableSchema | None, **how: dict[str, str]
) -> str | None:
    return canonical(ShapeChange(before, after, "ALTER TABLE", **how))  # type: ignore[arg-type]


def columns(*made: Column) -> TableSchema:
    return replace(T, columns=made)


def test_a_table_that_comes_and_goes() -> None:
    order = Column('or"der', 23, type_name="integer", default="7", nullable=False)

    assert said(None, T) == (
        'CREATE TABLE "app"."t" ("id" integer NOT NULL, "note" text, PRIMARY KEY ("id"))'
    )
    assert said(None, replace(T, columns=(order, NOTE), key=())) == (
        'CREATE TABLE "app"."t" ("or""der" integer DEFAULT 7 NOT NULL, "note" text)'
    )
    assert said(T, None) == 'DROP TABLE "app"."t"'
    assert said(None, None) is None
    assert said(T, T) is None


@pytest.mark.parametrize(
    ("to", "statement"),
    [
        (TableId("app", "u"), 'ALTER TABLE "app"."t" RENAME TO "u"'),
        (TableId("other", "t"), 'ALTER TABLE "app"."t" SET SCHEMA "other"'),
        (
            TableId("other", "u"),
            'ALTER TABLE "app"."t" SET SCHEMA "other"; ALTER TABLE "other"."t" RENAME TO "u"',
        ),
    ],
)
def test_a_table_that_gets_another_name(to: TableId, statement: str) -> None:
    assert said(T, replace(T, id=to)) == statement


@pytest.mark.parametrize(
    ("before", "after", "how", "actions"),
    [
        (T, columns(ID, NOTE, Column("n", 23, type_name="integer", default="1")), {},
         'ADD COLUMN "n" integer DEFAULT 1'),
        (T, columns(ID), {}, 'DROP COLUMN "note"'),
        (T, columns(ID, replace(NOTE, number=9)), {"values": {"note": "new"}},
         'DROP COLUMN "note", ADD COLUMN "note" text'),
        (T, columns(ID, replace(NOTE, type_oid=23, type_name="integer")), {},
         'ALTER COLUMN "note" TYPE integer'),
        (T, columns(ID, replace(NOTE, type_mod=14, type_name="varchar(10)")), {},
         'ALTER COLUMN "note" TYPE varchar(10)'),
        (T, columns(ID, replace(NOTE, type_oid=23, type_name="integer")),
         {"values": {"note": "explicit"}},
         'ALTER COLUMN "note" TYPE integer USING "note"::integer'),
        (T, columns(ID, replace(NOTE, nullable=False)), {}, 'ALTER COLUMN "note" SET NOT NULL'),
        (T, columns(replace(ID, nullable=True), NOTE), {}, 'ALTER COLUMN "id" DROP NOT NULL'),
        (T, columns(ID, replace(NOTE, default="'x'")), {},
         "ALTER COLUMN \"note\" SET DEFAULT 'x'"),
        (columns(ID, replace(NOTE, default="'x'")), T, {}, 'ALTER COLUMN "note" DROP DEFAULT'),
        (T, replace(T, key=()), {}, "DROP PRIMARY KEY"),
        (replace(T, key=()), T, {}, 'ADD PRIMARY KEY ("id")'),
        (T, replace(T, key=("id", "note")), {},
         'DROP PRIMARY KEY, ADD PRIMARY KEY ("id", "note")'),
    ],
)  # fmt: skip
def test_what_changes_is_one_statement(
    before: TableSchema, after: TableSchema, how: dict[str, dict[str, str]], actions: str
) -> None:
    assert said(before, after, **how) == f'ALTER TABLE "app"."t" {actions}'


def test_a_column_that_is_renamed_stays_what_it_is_also_in_the_key() -> None:
    after = replace(T, columns=(replace(ID, name="no"), replace(NOTE, nullable=False)), key=("no",))

    assert said(T, after, renamed={"id": "no"}) == (
        'ALTER TABLE "app"."t" RENAME COLUMN "id" TO "no"; '
        'ALTER TABLE "app"."t" ALTER COLUMN "note" SET NOT NULL'
    )
    gone = replace(T, columns=(replace(NOTE, name="text"),), key=())
    assert said(replace(T, key=()), gone, renamed={"note": "text"}) == (
        'ALTER TABLE "app"."t" RENAME COLUMN "note" TO "text"; '
        'ALTER TABLE "app"."t" DROP COLUMN "id"'
    )
