"""What the DDL topic holds without the texts of statements."""

from dataclasses import replace

from producer.core.statements.disclosed import redacted, without_text
from schemas.control import Moved, Origin, SchemaChange
from schemas.tables import Column, TableId, TableSchema

T = TableId("public", "t")
ID = Column("id", 23, -1, "integer", number=1)
BEFORE = TableSchema(T, (ID, Column("a", 25, -1, "text", default="'hush'", number=2)), ("id",))
AFTER = TableSchema(
    T, (ID, Column("b", 25, -1, "text", missing="row", default="'hush 2'", number=2)), ("id",)
)


def change(before: TableSchema | None, after: TableSchema | None, **more: object) -> SchemaChange:
    return SchemaChange(
        1, 1, 0, 7, 7, 7, Origin.TRIGGER, "ALTER TABLE", before, after,
        sql="INSERT INTO other VALUES ('hush'); ALTER TABLE …",
        canonical="ALTER TABLE t ALTER a SET DEFAULT 'hush'",
        jddl='{"fmt": "hush"}',
        settings={"TimeZone": "UTC", "gauss_cdc.x": "hush"},
        **more,  # type: ignore[arg-type]
    )  # fmt: skip


def test_a_table_keeps_its_structure_and_loses_all_texts() -> None:
    published = without_text(change(BEFORE, AFTER, renamed={"a": "b"}, moved=Moved("delete", T)))

    assert "hush" not in repr(published)
    assert published.canonical == 'ALTER TABLE "public"."t" RENAME COLUMN "a" TO "b"'
    assert (published.renamed, published.moved, published.settings) == (
        {"a": "b"}, Moved("delete", T), {"TimeZone": "UTC"},
    )  # fmt: skip
    assert published.after is not None
    column = published.after.columns[1]
    assert (column.missing, column.has_default, column.number) == ("row", True, 2)
    assert published.after == AFTER or column.has_default


def test_another_object_is_its_kind_and_its_name() -> None:
    published = without_text(change(None, None, kind="function", identity="public.f(integer)"))

    assert (published.kind, published.identity) == ("function", "public.f(integer)")
    assert (published.sql, published.canonical, published.jddl) == (None, None, None)


def test_a_snapshots_shape_stays() -> None:
    published = without_text(change(None, AFTER))

    assert (
        published.canonical
        == 'CREATE TABLE "public"."t" ("id" integer, "b" text, PRIMARY KEY ("id"))'
    )


def test_parts_of_statements_are_shown_without_values() -> None:
    shown = redacted("SET DEFAULT E'hu\\'sh' || $$hush$$ || 5 || U&'hush' || 'hush")

    assert "hu" not in shown
    assert "5" not in shown
    assert shown.startswith("SET DEFAULT …")


def test_a_shape_without_values_is_published_as_it_is() -> None:
    plain = TableSchema(T, (ID,), ("id",))

    published = without_text(change(plain, plain))

    assert (published.before, published.after) == (plain, plain)


def test_a_long_part_of_a_statement_is_cut() -> None:
    assert redacted("a" * 120) == "a" * 120
    assert redacted("a" * 121) == "a" * 120 + "…"


def test_no_default_is_published_where_every_column_has_one() -> None:
    full = TableSchema(T, tuple(replace(c, default="'hush'") for c in BEFORE.columns), ("id",))

    assert "hush" not in repr(without_text(change(full, full)))
