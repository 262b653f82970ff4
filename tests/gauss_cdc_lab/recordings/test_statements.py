import pytest

from gauss_cdc_lab.recordings.statements import statements
from gauss_cdc_lab.recordings.transactions import KnownTable, RecordedTransaction, RowChange
from producer.sources.gauss.decoders.messages import Ddl, NamedTruncate, RowShape
from schemas.tables import UNCHANGED, TableId

T = TableId('a"b', "t")


def printed(
    *changes: object, known=None, encoding: str = "utf-8", csn: int | None = None
) -> list[str]:
    begin, *between, commit = statements(
        RecordedTransaction(1, csn, None, None, changes), known or {}, encoding
    )
    assert (begin, commit) == ("BEGIN;", "COMMIT;")
    return between


def test_rows() -> None:
    new = (("id", b"1"), ("V v", b"it's \\"), ("n", None))

    assert printed(
        RowChange("INSERT", T, new, None),
        RowChange("UPDATE", T, new, (("id", b"2"),), key=("id",)),
        RowChange("UPDATE", T, (*new, ("x", UNCHANGED)), None, key=("id",)),
        RowChange("DELETE", T, None, (("id", b"2"), ("n", None))),
    ) == [
        """INSERT INTO "a""b"."t" ("id", "V v", "n") VALUES ('1', 'it''s \\', NULL);""",
        """UPDATE "a""b"."t" SET "id" = '1', "V v" = 'it''s \\', "n" = NULL WHERE "id" = '2';""",
        """UPDATE "a""b"."t" SET "id" = '1', "V v" = 'it''s \\', "n" = NULL WHERE "id" = '1';""",
        (
            """DELETE FROM "a""b"."t" WHERE (tableoid, ctid) = (SELECT tableoid, ctid"""
            """ FROM "a""b"."t" WHERE "id" = '2' AND "n" IS NULL LIMIT 1);"""
        ),
    ]


def test_what_cannot_be_executed_is_a_comment() -> None:
    for change in (
        RowChange("DELETE", T, None, None),
        RowChange("UPDATE", T, (("id", b"1"),), None),
        RowChange("INSERT", T, None, None),
        RowChange("INSERT", T, (), None),
        RowChange("DELETE", T, None, ()),
        RowChange("UPDATE", T, (("id", b"1"),), ()),
        Ddl("TDDL", "CREATE TABLE x\n(a int)"),
    ):
        assert all(line.startswith("-- ") for line in "\n".join(printed(change)).splitlines())


def test_columns_without_names_are_values_in_order() -> None:
    change = RowChange("INSERT", T, (("$1", b"1"), ("$2", b"x")), None)

    assert printed(change) == ["""INSERT INTO "a""b"."t" VALUES ('1', 'x');"""]


def test_several_tables_are_emptied_at_once() -> None:
    change = NamedTruncate((("s", "a"), ("s", "b")), cascade=True, restart_identity=True)

    assert printed(change) == ['TRUNCATE "s"."a", "s"."b" RESTART IDENTITY CASCADE;']


@pytest.mark.parametrize(("kind", "cast"), [("json", "::text"), ("point", "::text"), ("text", "")])
def test_types_without_equality_are_compared_as_text(kind: str, cast: str) -> None:
    known = {T: KnownTable(("j",), (kind,))}

    (statement,) = printed(RowChange("DELETE", T, None, (("j", b"1"),)), known=known)

    assert f"""WHERE "j"{cast} = '1' LIMIT""" in statement


@pytest.mark.parametrize(
    ("oid", "kind"), [(114, ""), (0, "json"), (0, "json[]"), (1017, ""), (0, "box")]
)
def test_types_of_the_stream_are_enough_for_that(oid: int, kind: str) -> None:
    types = RowShape(("j",), (oid,), (kind,))

    (statement,) = printed(RowChange("DELETE", T, None, (("j", b"1"),), types=types))

    assert """WHERE "j"::text = '1' LIMIT""" in statement


def test_postgresqls_test_decoding_leaves_out_nulls_of_whole_old_rows_only() -> None:
    full = {T: KnownTable(("a", "b"), ("text", "text"), identity=("a", "b"))}
    keyed = {T: KnownTable(("a", "b"), ("text", "text"))}
    delete = RowChange("DELETE", T, None, (("a", b"1"),))

    (of_all,) = printed(delete, known=full)
    (nothing_but_nulls,) = printed(RowChange("DELETE", T, None, ()), known=full)
    (of_key,) = printed(delete, known=keyed)
    (of_gauss,) = printed(delete, known=full, csn=5)

    assert """WHERE "a" = '1' AND "b" IS NULL LIMIT""" in of_all
    assert """WHERE "a" IS NULL AND "b" IS NULL LIMIT""" in nothing_but_nulls
    assert "IS NULL" not in of_key + of_gauss


def test_bytes_of_no_encoding_are_escaped() -> None:
    change = RowChange("INSERT", T, (("a", b"\xd6x"),), None)

    assert printed(change, encoding="ascii") == [
        """INSERT INTO "a""b"."t" ("a") VALUES (E'\\xd6\\x78');"""
    ]
