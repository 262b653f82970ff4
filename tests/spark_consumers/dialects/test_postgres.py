"""Schema changes as PostgreSQL's statements."""

from dataclasses import replace

import pytest

from schemas.control import Moved, Origin
from schemas.tables import Column, TableId, TableSchema, Unique
from spark_consumers.dialects import DIALECTS
from spark_consumers.dialects.base import literal, quote
from spark_consumers.dialects.postgres import OF_SOURCE, statements
from spark_consumers.errors import NotExpressible
from tests.spark_consumers.feed import alter, create, table

T = table("t", "id integer, a text, b character varying(9)", unique="a")
HEAD = 'ALTER TABLE "public"."t" '


def made_unique(column: str) -> str:
    """What makes a unique index: it may be there, and the rows may not meet it any more."""
    return (
        f'DO $gc$BEGIN CREATE UNIQUE INDEX "t_{column}_key" ON "public"."t" ("{column}");'
        f' COMMENT ON INDEX "public"."t_{column}_key" IS \'{OF_SOURCE}\';'
        " EXCEPTION WHEN duplicate_table OR unique_violation THEN NULL; END$gc$"
    )


def with_columns(*columns: Column, of: TableSchema = T, **more: object) -> TableSchema:
    return replace(of, columns=columns, **more)


def test_a_new_table_gets_columns_key_and_unique_indexes_only() -> None:
    for change in (create(T), alter(None, T), replace(create(T), before=T)):
        assert statements(change) == [
            'CREATE SCHEMA IF NOT EXISTS "public"',
            (
                'CREATE TABLE IF NOT EXISTS "public"."t" ("id" integer NOT NULL, "a" text,'
                ' "b" character varying(9), PRIMARY KEY ("id"))'
            ),
            made_unique("a"),
        ]


def test_names_are_quoted_whatever_they_hold() -> None:
    hard = TableSchema(TableId("s", 'a"b'), (Column('x"; --', 1, -1, "text"),))

    assert statements(create(hard))[1] == 'CREATE TABLE IF NOT EXISTS "s"."a""b" ("x""; --" text)'
    for text in (quote, literal):
        with pytest.raises(NotExpressible, match="zero byte"):
            text("\0")


@pytest.mark.parametrize("type_name", ["", "text; DROP TABLE x", "text --", "text'"])
def test_a_type_that_is_no_type_is_refused(type_name: str) -> None:
    with pytest.raises(NotExpressible, match="--accept-gap"):
        statements(create(with_columns(Column("id", 1, -1, type_name))))


def test_names_of_objects_that_a_target_may_not_have_are_text() -> None:
    many = with_columns(
        Column("c", 3734, -1, "regconfig"), Column("d", 2210, -1, "regclass[]"), key=()
    )

    assert '("c" text, "d" text[])' in statements(create(many))[1]


def test_a_dropped_table() -> None:
    assert statements(alter(T, None)) == ['DROP TABLE IF EXISTS "public"."t"']
    assert statements(alter(None, None, tag="CREATE SCHEMA")) == []


def test_the_same_table_is_no_change() -> None:
    assert statements(alter(T, T)) == []


def test_an_added_column_gives_old_rows_its_value() -> None:
    plain = Column("c", 23, -1, "integer")
    added = replace(T, columns=(*T.columns, plain, replace(plain, name="d", missing="it's")))

    assert statements(alter(T, added)) == [
        HEAD + 'ADD COLUMN "c" integer',
        HEAD + """ADD COLUMN "d" integer DEFAULT 'it''s'""",
        HEAD + 'ALTER COLUMN "d" DROP DEFAULT',
    ]


def test_a_dropped_column_takes_its_unique_index_along() -> None:
    slim = with_columns(T.columns[0], T.columns[2], unique=())

    assert statements(alter(T, slim)) == [
        HEAD + 'DROP CONSTRAINT IF EXISTS "t_a_key"',
        'DROP INDEX IF EXISTS "public"."t_a_key"',
        HEAD + 'DROP COLUMN IF EXISTS "a"',
    ]


@pytest.mark.parametrize(
    "sql", ["ALTER TABLE t RENAME COLUMN a TO z", 'alter table t rename "a" to "z"']
)
def test_a_rename_that_the_source_reports(sql: str) -> None:
    renamed = with_columns(
        T.columns[0], replace(T.columns[1], name="z"), T.columns[2],
        unique=(Unique("t_a_key", ("z",)),),
    )  # fmt: skip

    assert statements(alter(T, renamed, sql=sql)) == [HEAD + 'RENAME COLUMN "a" TO "z"']
    with pytest.raises(NotExpressible):
        statements(alter(T, renamed, sql="ALTER TABLE t RENAME b TO y"))


@pytest.mark.parametrize("lossy", ["a column was renamed, or", None])
def test_without_its_text_what_may_be_a_rename_is_a_drop_and_an_add(lossy: str | None) -> None:
    """The source's half marks what may have been one; to judge it again would stop all tables."""
    renamed = with_columns(T.columns[0], replace(T.columns[1], name="z"), T.columns[2], unique=())
    change = replace(alter(T, renamed, origin=Origin.INFERRED), lossy=lossy)

    assert statements(change)[2:] == [
        HEAD + 'DROP COLUMN IF EXISTS "a"',
        HEAD + f'ADD COLUMN "z" {T.columns[1].type_name}',
    ]


@pytest.mark.parametrize(
    ("type_name", "sql", "is_told"),
    [
        ("text", None, True),
        ("character varying(20)", None, True),
        ("integer", None, False),
        ("integer", "ALTER TABLE t ALTER b TYPE integer", True),
        ("integer", "ALTER TABLE t ALTER b TYPE integer USING length(b)", False),
    ],
)
def test_a_type_changes_only_where_values_stay(
    type_name: str, sql: str | None, is_told: bool
) -> None:
    column = Column("b", 99, 5, type_name)
    change = alter(T, with_columns(*T.columns[:2], column), sql=sql)

    if is_told:
        assert statements(change) == [HEAD + f'ALTER COLUMN "b" TYPE {type_name}']
    else:
        with pytest.raises(NotExpressible):
            statements(change)


def test_text_becomes_varchar_though_nothing_was_marked() -> None:
    """The source's half takes values to stay where no length is given."""
    change = alter(T, with_columns(T.columns[0], Column("a", 1043, -1, "character varying")))

    assert HEAD + 'ALTER COLUMN "a" TYPE character varying' in statements(change)


def test_an_inferred_type_change_keeps_what_reads_as_the_new_type() -> None:
    """The table is marked as not exact by then; to stop would hold up all the others."""
    column = Column("b", 99, 5, "integer")
    change = replace(
        alter(T, with_columns(*T.columns[:2], column), origin=Origin.INFERRED),
        lossy="a column has another type: its values in older rows were computed by the source",
    )

    assert statements(change) == [
        HEAD + 'ALTER COLUMN "b" TYPE integer USING "b"::text::integer',
    ]


def test_a_column_that_may_be_null_now() -> None:
    firm = with_columns(T.columns[0], replace(T.columns[1], nullable=False), T.columns[2])

    assert statements(alter(firm, T)) == [HEAD + 'ALTER COLUMN "a" DROP NOT NULL']
    assert statements(alter(T, firm)) == []


def test_a_column_that_leaves_the_key_may_be_null() -> None:
    """Without triggers a catalog is read late: of another column, which has its name by now."""
    loose = with_columns(replace(T.columns[0], nullable=True), *T.columns[1:])

    said = statements(alter(loose, replace(loose, key=("a",)), origin=Origin.INFERRED))

    assert HEAD + 'ALTER COLUMN "id" DROP NOT NULL' in said


def test_a_key_and_unique_indexes_that_change() -> None:
    other = replace(T, key=("id", "a"), unique=(Unique("t_b_key", ("b",)),))

    key_goes = statements(alter(T, other))[2]
    assert "contype = 'p'" in key_goes
    assert """'"public"."t"'::regclass""" in key_goes  # by table: a renamed one's key has its name
    assert statements(alter(T, other)) == [
        HEAD + 'DROP CONSTRAINT IF EXISTS "t_a_key"',
        'DROP INDEX IF EXISTS "public"."t_a_key"',
        key_goes,
        HEAD + 'ADD PRIMARY KEY ("id", "a")',
        made_unique("b"),
    ]


def test_rows_go_where_a_column_without_values_becomes_the_key() -> None:
    other = Column("n", 23, -1, "integer")
    after = replace(with_columns(other, *T.columns[1:]), key=("n",))
    known = replace(with_columns(replace(other, missing="1"), *T.columns[1:]), key=("n",))

    emptied = statements(alter(T, after, origin=Origin.INFERRED))

    assert emptied[-2:] == ['DELETE FROM "public"."t"', HEAD + 'ADD PRIMARY KEY ("n")']
    kept = statements(alter(T, known, origin=Origin.INFERRED))
    assert 'DELETE FROM "public"."t"' not in kept


def test_a_table_that_moves() -> None:
    moved = replace(T, id=TableId("s", "u"))

    made, apart, *others = statements(alter(T, moved))
    assert made == 'CREATE SCHEMA IF NOT EXISTS "s"'
    assert "ALTER INDEX" in apart
    assert others == [
        'ALTER TABLE "public"."t" RENAME TO "gauss_cdc_moves"',
        'ALTER TABLE "public"."gauss_cdc_moves" SET SCHEMA "s"',
        'ALTER TABLE "s"."gauss_cdc_moves" RENAME TO "u"',
    ]
    moved = replace(T, id=TableId("s", "t"))
    assert statements(alter(T, moved))[-1] == 'ALTER TABLE "public"."t" SET SCHEMA "s"'


def test_every_dialect_creates_a_table() -> None:
    for dialect in DIALECTS.values():
        assert dialect(create(T))


def test_types_of_gauss_are_written_as_those_of_postgresql() -> None:
    narrow = with_columns(Column("id", 5545, -1, "tinyint"), Column("n", 3969, 24, "nvarchar2(20)"))
    wide = with_columns(Column("id", 21, -1, "smallint"), Column("n", 3969, 44, "nvarchar2(40)"))

    assert '("id" smallint NOT NULL, "n" character varying(20)' in statements(create(narrow))[1]
    assert statements(alter(narrow, wide)) == [
        HEAD + 'ALTER COLUMN "n" TYPE character varying(40)'  # tinyint was a smallint there
    ]


@pytest.mark.parametrize("schema", ["gauss_cdc", "pg_catalog", "pg_toast", "information_schema"])
def test_tables_of_the_server_and_of_the_ledger_are_nobodys_copy(schema: str) -> None:
    ours = TableSchema(TableId(schema, "ledger"), (Column("a", 25, -1, "text"),))
    theirs = replace(ours, id=TableId("public", "t"))
    moved = replace(alter(theirs, theirs), moved=Moved("delete", ours.id))

    for change in (create(ours), alter(ours, None), alter(theirs, ours), moved):
        with pytest.raises(NotExpressible, match="belongs to the target"):
            statements(change)
