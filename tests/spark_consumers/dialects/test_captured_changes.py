"""Changes captured by event triggers: columns by number, values as the source made them."""

from dataclasses import replace

import pytest

from schemas.control import Moved, SchemaChange
from schemas.tables import Column, TableId, TableSchema, UserType
from spark_consumers.dialects import opengauss
from spark_consumers.dialects.postgres import extras, statements
from tests.spark_consumers.feed import alter

ID = TableId("public", "t")
KEY = Column("id", 23, -1, "integer", nullable=False, number=1)
A = Column("a", 25, -1, "text", number=2)
B = Column("b", 1114, -1, "timestamp without time zone", number=3)
T = TableSchema(ID, (KEY, A, B), ("id",))
HEAD = 'ALTER TABLE "public"."t" '


def captured(
    after: TableSchema | None, before: TableSchema | None = T, **more: object
) -> SchemaChange:
    return replace(alter(before, after, sql=None), **more)


def test_a_rename_is_what_the_numbers_say() -> None:
    after = replace(T, columns=(KEY, replace(A, name="b"), replace(B, name="a")))
    one = replace(T, columns=(KEY, replace(A, name="z"), B))

    assert statements(captured(one, renamed={"a": "z"})) == [HEAD + 'RENAME COLUMN "a" TO "z"']
    # Never two in one statement; without a rename these are other types under old names.
    assert [s for s in statements(captured(after)) if "RENAME" in s] == []


def test_a_column_made_again_is_dropped_and_added() -> None:
    after = replace(T, columns=(KEY, B, replace(A, number=4)))

    assert statements(captured(after, values={"a": "new"})) == [
        HEAD + 'DROP COLUMN IF EXISTS "a"',
        HEAD + 'ADD COLUMN "a" text',
    ]


def test_a_key_over_a_column_made_again_empties_the_table_first() -> None:
    again = replace(KEY, number=4)
    after = replace(T, columns=(A, B, again))

    said = statements(captured(after, values={"id": "new"}))

    assert said[1:] == [
        HEAD + 'DROP COLUMN IF EXISTS "id"',
        HEAD + 'ADD COLUMN "id" integer',
        'DELETE FROM "public"."t"',
        HEAD + 'ADD PRIMARY KEY ("id")',
    ]


@pytest.mark.parametrize(
    ("how", "using"), [("", ""), ("explicit", ' USING "a"::integer'), ("lost", " USING NULL")]
)
def test_values_are_converted_as_the_source_did_or_not_at_all(how: str, using: str) -> None:
    number = replace(A, type_oid=23, type_name="integer")
    values = {"a": how} if how else {}

    said = statements(captured(replace(T, columns=(KEY, number, B)), values=values))

    assert said == [HEAD + f'ALTER COLUMN "a" TYPE integer{using}']


def test_a_computed_key_leaves_no_row() -> None:
    number = replace(KEY, type_oid=20, type_name="bigint")

    said = statements(captured(replace(T, columns=(number, A, B)), values={"id": "lost"}))

    assert said == ['DELETE FROM "public"."t"', HEAD + 'ALTER COLUMN "id" TYPE bigint USING NULL']


def test_casts_run_under_the_settings_of_the_sources_session() -> None:
    zoned = replace(B, type_oid=1184, type_name="timestamp with time zone")

    said = statements(
        captured(replace(T, columns=(KEY, A, zoned)), settings={"TimeZone": "Asia/Shanghai"})
    )

    assert said[1:3] == [
        "SET LOCAL TimeZone TO 'Asia/Shanghai'",
        HEAD + 'ALTER COLUMN "b" TYPE timestamp with time zone',
    ]
    assert "set_config('TimeZone', current_setting('gauss_cdc.TimeZone'), true)" in said[3]


def test_rows_of_partitions_move_by_their_bounds() -> None:
    part = replace(T, id=TableId("public", "p"))
    detached = captured(part, None, moved=Moved("move", ID, "(id < 10)"))
    attached = captured(T, moved=Moved("move", part.id))
    dropped = captured(T, moved=Moved("delete", ID, "(id < 10)"))
    names = '"id", "a", "b"'

    assert statements(detached)[2:] == [
        f'INSERT INTO "public"."p" ({names}) SELECT {names} FROM "public"."t" WHERE ("id" < 10)',
        'DELETE FROM "public"."t" WHERE ("id" < 10)',
    ]
    assert statements(attached) == [
        f'INSERT INTO "public"."t" ({names}) SELECT {names} FROM "public"."p"',
        'DELETE FROM "public"."p"',
    ]
    assert statements(dropped) == ['DELETE FROM "public"."t" WHERE ("id" < 10)']


def test_labels_of_an_enum() -> None:
    def mood(*labels: str, type_name: str = "public.mood") -> TableSchema:
        column = Column(
            "m", 99999, -1, type_name, user_type=UserType("e", "mood", labels=labels), number=2
        )
        return replace(T, columns=(KEY, column))

    added = captured(mood("sad", "fine", "ok"), mood("sad", "ok"))
    renamed = captured(mood("low", "ok"), mood("sad", "ok"))
    as_text = captured(mood("low", "ok", type_name="text"), mood("sad", "ok", type_name="text"))

    assert statements(added) == [
        """ALTER TYPE "public"."mood" ADD VALUE IF NOT EXISTS 'fine' AFTER 'sad'"""
    ]
    assert "RENAME VALUE 'sad' TO 'low'" in statements(renamed)[0]
    assert statements(as_text) == [
        """UPDATE "public"."t" SET "m" = CASE "m" WHEN 'sad' THEN 'low' END WHERE "m" IN ('sad')"""
    ]


def test_labels_of_an_enum_in_arrays_and_domains() -> None:
    def moods(*labels: str, type_name: str, kind: str = "a") -> TableSchema:
        inner = UserType("e", "mood", labels=labels)
        outer = UserType(kind, "_mood", "public.mood", 99999, of=inner)
        return replace(
            T, columns=(KEY, Column("m", 99998, -1, type_name, user_type=outer, number=2))
        )

    def both(type_name: str, kind: str = "a") -> tuple[list[str], list[str]]:
        was = moods("sad", "ok", type_name=type_name, kind=kind)
        more = moods("sad", "ok", "low", type_name=type_name, kind=kind)
        other = moods("blue", "ok", type_name=type_name, kind=kind)
        return statements(captured(more, was)), statements(captured(other, was))

    added, renamed = both("public.mood[]")
    assert added == ["""ALTER TYPE "public"."mood" ADD VALUE IF NOT EXISTS 'low' AFTER 'ok'"""]
    assert """ALTER TYPE "public"."mood" RENAME VALUE 'sad' TO 'blue'""" in renamed[0]
    assert both("public.of_mood", "d")[0] == added
    assert both("text[]")[0] == []
    assert both("text[]")[1][0].split(" SET ")[1] == (
        """"m" = array_replace("m", 'sad', 'blue') WHERE "m" && ARRAY['sad']"""
    )
    assert "CASE" in both("text", "d")[1][0]


def test_types_without_tables_are_followed() -> None:
    """A table may get a column of them later; by then they have labels, and fewer checks."""
    other = {"before": None, "after": None}
    made = replace(
        captured(T),
        **other,
        tag="ALTER TYPE",
        kind="type",
        identity="public.mood",
        canonical="CREATE TYPE public.mood AS ENUM ('it''s', 'a, b', 'c')",
    )
    domain = replace(made, tag="ALTER DOMAIN", kind="domain", identity="public.d", canonical="x")

    assert extras(made) == [
        """ALTER TYPE "public"."mood" ADD VALUE IF NOT EXISTS 'it''s'""",
        """ALTER TYPE "public"."mood" ADD VALUE IF NOT EXISTS 'a, b' AFTER 'it''s'""",
        """ALTER TYPE "public"."mood" ADD VALUE IF NOT EXISTS 'c' AFTER 'a, b'""",
    ]
    (unchecked,) = extras(domain)
    assert "DROP CONSTRAINT" in unchecked
    assert "DROP NOT NULL" in unchecked


def test_what_goes_beyond_rows() -> None:
    firm = replace(A, nullable=False, default="'x'::text")
    view = replace(captured(None, None), kind="view", canonical="CREATE VIEW v AS SELECT 1")

    assert extras(captured(replace(T, columns=(KEY, firm, B)))) == [
        HEAD + "ALTER COLUMN \"a\" SET DEFAULT 'x'::text",
        HEAD + 'ALTER COLUMN "a" SET NOT NULL',
    ]
    assert extras(captured(T, replace(T, columns=(KEY, firm, B)))) == [
        HEAD + 'ALTER COLUMN "a" DROP DEFAULT'
    ]
    assert extras(view) == ["create view v as select 1"]
    assert extras(replace(view, kind="user mapping")) == []
    assert statements(view) == []


def test_opengauss_says_the_same() -> None:
    one = captured(replace(T, columns=(KEY, replace(A, name="z"), B)), renamed={"a": "z"})

    assert opengauss.statements(one) == statements(one)
