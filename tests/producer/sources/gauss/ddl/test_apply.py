import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from producer.sources.gauss.ddl import jddl, tddl
from producer.sources.gauss.ddl.apply import Applied, altered, created
from producer.sources.gauss.ddl.columns import type_spec
from producer.sources.gauss.ddl.defaults import value_of
from producer.sources.gauss.ddl.types import column_of
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique
from tests.producer.core.ddl_examples import OPENGAUSS, SQL, TDDL

GOLDEN = Path(__file__).parents[4] / "golden" / "opengauss"
ID = TableId("public", "t")
T = TableSchema(
    ID,
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("a", 1043, 24, "character varying(20)"),
        Column("b", 1700, 655366, "numeric(10,2)"),
    ),
    key=("id",),
    unique=(Unique("t_b_key", ("b",)),),
    identity_columns=("id",),
)


def after(actions: str, before: TableSchema = T) -> Applied:
    return altered(before, tddl.statement(f"ALTER TABLE  public.t {actions}").actions)


def test_a_created_table_is_what_opengauss_catalog_says() -> None:
    made = created(jddl.statement(OPENGAUSS["create table"][0]), TableId("public", "dd1"))

    assert made.unknown == ()
    assert made.after.columns == (
        Column("id", 23, -1, "integer", nullable=False),
        Column("a", 1043, 24, "character varying(20)", nullable=False, has_default=True),
        Column("b", 1700, 655366, "numeric(10,2)"),
        Column("c", 1114, 3, "timestamp(3) without time zone"),
        Column("d", 1007, -1, "integer[]"),
    )
    assert made.after.key == ("id",)
    assert made.after.unique == (Unique("dd1_b_key", ("b",)),)
    assert made.after.identity_columns == ("id",)


def test_the_manuals_table() -> None:
    made = created(tddl.statement(TDDL), TableId("public", "test_create_table_a"))

    assert made == Applied(
        TableSchema(TableId("public", "test_create_table_a"), (Column("a", 23, -1, "integer"),))
    )


def test_the_manuals_added_columns() -> None:
    """IF NOT EXISTS of a column that is there changes nothing, whatever type was asked for."""
    before = TableSchema(
        TableId("public", "tb5"), (Column("c1", 23, -1, "integer"), Column("c2", 23, -1, "integer"))
    )

    one = altered(before, tddl.statement(SQL["add a column that was there"]).actions)
    two = altered(before, tddl.statement(SQL["add two columns, one was there"]).actions)

    assert one == Applied(before)
    assert two.after.names() == ("c1", "c3", "c2")
    assert two.after.columns[1] == Column("c3", 1042, 9, "character(5)")


def test_a_column_is_added_with_the_value_of_older_rows() -> None:
    made = after("ADD COLUMN c pg_catalog.text DEFAULT 'it''s'::text NOT NULL FIRST")

    assert made.after.names() == ("c", "id", "a", "b")
    assert made.after.columns[0] == Column(
        "c", 25, -1, "text", nullable=False, missing="it's", has_default=True
    )
    assert made.lost == ()


@pytest.mark.parametrize(
    ("definition", "missing"),
    [
        ("c INT DEFAULT ABS(1)", "1"),  # the manual's
        ("c pg_catalog.int4 DEFAULT (1.7)::integer", "2"),
        ("c pg_catalog.int4 DEFAULT 1.5", "2"),
        ("c pg_catalog.numeric(6,1) DEFAULT 1e2", "100.0"),
        ("c pg_catalog.numeric(6,1) DEFAULT '2.25'", "2.3"),
        ("c pg_catalog.text DEFAULT $$it's$$", "it's"),
        ("c pg_catalog.text DEFAULT E'a\\tb'", "a\tb"),
        ("c pg_catalog.bit(3) DEFAULT B'101'", "101"),
        ("c pg_catalog.bool DEFAULT NULL", None),
    ],
)
def test_a_constant_of_any_notation_is_the_value_of_older_rows(
    definition: str, missing: str | None
) -> None:
    made = after(f"ADD COLUMN {definition}")

    assert (made.lost, made.unknown, made.values) == ((), (), {})
    assert made.after.columns[-1].missing == missing


@pytest.mark.parametrize(
    "definition",
    [
        "c pg_catalog.int4 DEFAULT public.f(1)",
        "c pg_catalog.text DEFAULT 'it's'",
        "c pg_catalog.varchar(2) DEFAULT 'abc'::pg_catalog.text",
        "c pg_catalog.int4 GENERATED ALWAYS AS ((id * 2)) STORED",
        "c pg_catalog.int4 AUTO_INCREMENT",
    ],
)
def test_a_value_that_the_source_computed_is_reported_as_lost(definition: str) -> None:
    made = after(f"ADD COLUMN {definition}")

    assert made.values == {"c": "lost"}
    assert made.lost == ("column c: the source computed it for older rows",)


def test_a_dropped_column_takes_key_and_indexes_along() -> None:
    made = after("DROP COLUMN id, DROP COLUMN IF EXISTS nothing, DROP COLUMN b").after

    assert (made.names(), made.key, made.unique, made.identity_columns) == (("a",), (), (), ())


def test_a_dropped_column_that_comes_back_is_another_one() -> None:
    assert after("DROP COLUMN a, ADD COLUMN a pg_catalog.text").values == {"a": "new"}


def test_a_renamed_column_stays_key() -> None:
    made = after("RENAME COLUMN id TO n")

    assert made.renamed == {"id": "n"}
    assert (made.after.key, made.after.identity_columns) == (("n",), ("n",))


@pytest.mark.parametrize(
    ("using", "values", "lost"),
    [
        ("", {}, 0),
        ("USING (a)::bigint", {"a": "explicit"}, 0),
        ("USING a::pg_catalog.int8", {"a": "explicit"}, 0),
        ("USING length(a)", {"a": "lost"}, 1),
        ("USING (a)::bigint + 1", {"a": "lost"}, 1),
        ("USING b::bigint", {"a": "lost"}, 1),
    ],
)
def test_a_type_changes(using: str, values: dict[str, str], lost: int) -> None:
    made = after(f"ALTER COLUMN a SET DATA TYPE pg_catalog.int8 {using}")

    assert made.after.columns[1] == Column("a", 20, -1, "bigint")
    assert (made.values, len(made.lost)) == (values, lost)


@pytest.mark.parametrize(
    ("oid", "shown", "new", "is_lost"),
    [
        (1114, "timestamp without time zone", "timestamptz", True),
        (1184, "timestamp with time zone", "date", True),
        (1184, "timestamp with time zone", "timestamptz(3)", False),
        (1114, "timestamp without time zone", "text", True),
        (25, "text", "date", True),
        (1114, "timestamp without time zone", "date", False),
        (701, "double precision", "text", True),
        (23, "integer", "text", False),
    ],
)
@pytest.mark.parametrize("how", ["ALTER COLUMN a SET DATA TYPE {}", "MODIFY COLUMN a {}"])
def test_what_the_sessions_settings_decide_is_converted_by_the_source_alone(
    oid: int, shown: str, new: str, is_lost: bool, how: str
) -> None:
    columns = (T.columns[0], replace(T.columns[1], type_oid=oid, type_name=shown))

    made = after(how.format(f"pg_catalog.{new}"), replace(T, columns=columns))

    assert (made.values.get("a") == "lost", len(made.lost)) == (is_lost, int(is_lost))


def test_what_is_only_printed_is_converted_by_the_source_alone() -> None:
    """A name of a table depends on what a session searches."""
    columns = (T.columns[0], replace(T.columns[1], type_oid=2205, type_name="regclass"))

    made = after("ALTER COLUMN a SET DATA TYPE pg_catalog.text", replace(T, columns=columns))

    assert (made.values, len(made.lost)) == ({"a": "lost"}, 1)


def test_modify_keeps_what_it_does_not_say() -> None:
    made = after("MODIFY COLUMN id pg_catalog.int8").after

    assert made.columns[0] == Column("id", 20, -1, "bigint", nullable=False)


def test_change_renames_and_retypes() -> None:
    made = after("CHANGE a z pg_catalog.text NOT NULL AFTER b")

    assert made.renamed == {"a": "z"}
    assert made.after.columns[2] == Column("z", 25, -1, "text", nullable=False)


def test_a_table_gets_another_name_and_schema() -> None:
    made = altered(
        T,
        (
            *tddl.statement("ALTER TABLE public.t RENAME TO u").actions,
            *tddl.statement("ALTER TABLE public.u SET SCHEMA s").actions,
        ),
    )

    assert made.after.id == TableId("s", "u")


def test_constraints_change_key_and_indexes() -> None:
    made = after("DROP CONSTRAINT t_pkey, DROP CONSTRAINT t_b_key, ADD UNIQUE (a)").after
    again = after("ADD CONSTRAINT k PRIMARY KEY USING btree  (a, b)", replace(made, key=())).after

    assert (made.key, made.unique) == ((), (Unique("t_a_key", ("a",)),))
    assert (again.key, again.identity_columns) == (("a", "b"), ("a", "b"))
    assert [c.nullable for c in again.columns] == [False, False, False]


def test_a_constraint_that_takes_over_an_index_has_its_columns() -> None:
    key = after("ADD CONSTRAINT k PRIMARY KEY USING INDEX t_b_key", replace(T, key=()))
    unique = after("ADD CONSTRAINT u UNIQUE USING INDEX t_b_key NOT DEFERRABLE")

    assert (key.after.key, key.after.unique, key.unknown) == (("b",), (), ())
    assert (unique.after.unique, unique.unknown) == ((Unique("u", ("b",)),), ())


def test_identity_decides_what_old_rows_carry() -> None:
    full = after("REPLICA IDENTITY FULL").after
    index = after("REPLICA IDENTITY USING INDEX t_b_key").after

    assert (full.replica_identity, full.identity_columns) == (
        ReplicaIdentity.FULL,
        ("id", "a", "b"),
    )
    assert (index.key, index.identity_columns) == (("b",), ("b",))


@pytest.mark.parametrize("verb", ["DROP", "TRUNCATE"])
def test_rows_of_a_partition_are_lost(verb: str) -> None:
    assert after(f"{verb} PARTITION p1").lost == (f"{verb} PARTITION p1: its rows are not sent",)


@pytest.mark.parametrize(
    ("actions", "unknown"),
    [
        ("ADD COLUMN m public.mood", "column m: type public.mood"),
        ("ADD COLUMN a pg_catalog.text", "column a: it is added and was there"),
        ("ALTER COLUMN z TYPE pg_catalog.text", "column z: its type changes, and it is not known"),
        ("DROP CONSTRAINT c", "whether a constraint was a key: c"),
        ("ADD CONSTRAINT p PRIMARY KEY USING INDEX i", "columns of a constraint: CONSTRAINT p"),
        ("REPLICA IDENTITY USING INDEX i", "columns of index i, which identifies rows"),
        ("RENAME COLUMN z TO y", "column z: its new name y"),
        ("FROBNICATE", "what was done: FROBNICATE"),
    ],
)
def test_what_the_statement_does_not_contain_is_reported(actions: str, unknown: str) -> None:
    [said] = after(actions).unknown

    assert said.startswith(unknown)


@pytest.mark.parametrize("actions", ["ADD PARTITION p VALUES LESS THAN (5)", "OWNER TO o"])
def test_what_no_copy_has_changes_nothing(actions: str) -> None:
    assert after(actions) == Applied(T)


@pytest.mark.parametrize(
    ("default", "value"),
    [
        ("5", (True, "5")),
        ("'-5'::integer", (True, "-5")),
        ("true", (True, "true")),
        ("NULL::character varying", (True, None)),
        ("'a'::character varying(20)", (True, "a")),
        ("'2020-01-01'::timestamp without time zone", (True, "2020-01-01")),
        ("'{}'::pg_catalog.int4[]", (True, "{}")),
        ("'a' || 'b'", (False, None)),
        ("'it's'", (False, None)),
        ("E'a\\nb\\'\\x41\\\\'", (True, "a\nb'A\\")),
        ("E'\\xe9'", (False, None)),
        ("$$it's $ 5 %$$::text", (True, "it's $ 5 %")),
        ("$a$x$$y$a$", (True, "x$$y")),
        ("B'101'::\"bit\"", (True, "101")),
        ("B'101'::bit(5)", (True, "10100")),
        ("X'1f'::bit varying(6)", (True, "000111")),
        ("1e2", (True, "100")),
        ("-1.5E-3", (True, "-0.0015")),
        ("(1.7)::integer", (True, "2")),
        ("(-2.5)::pg_catalog.int8", (True, "-3")),
        ("CAST(1.755 AS numeric(5,2))", (True, "1.76")),
        ("(1.755)::numeric(5,2)::integer", (True, "2")),
        ("99999::smallint", (False, None)),
        ("1000::numeric(5,2)", (False, None)),
        ("-123456789012345678901234567890.12", (True, "-123456789012345678901234567890.12")),
        ("ABS(1)", (True, "1")),
        ("pg_catalog.abs((-1.5))", (True, "1.5")),
        ("public.abs(1)", (False, None)),
        ("upper('a'::text)", (True, "A")),
        ("upper('é'::text)", (False, None)),
        ("'abc'::character varying(2)", (False, None)),
        ("'now'::timestamp without time zone", (False, None)),
        ("date '2024-01-01'", (True, "2024-01-01")),
        ("ARRAY[1.7, 2]::integer[]", (True, "{2,2}")),
        ("1.5::double precision::integer", (False, None)),
        ("1::numeric(2,5)", (False, None)),
        ("'sad'::public.mood", (True, "sad")),
        ("5::public.mood", (False, None)),
        # Doubled where standard_conforming_strings is off, so one alone is itself.
        ("'a\\b'::text", (True, "a\\b")),
        ("'\\x00ff'::bytea", (True, "\\x00ff")),
        ("'ab'::bytea", (True, "\\x6162")),
        ("'ä'::bytea", (False, None)),  # its bytes are those of the source's encoding
        ("'a\\101'::bytea", (False, None)),
        ("'a\\\\b'", (False, None)),
        ("'x'::timestamp(3) without time zone", (True, "x")),
        ("ARRAY[1, NULL::integer]", (True, "{1,NULL}")),
        (
            "ARRAY['a b'::text, 'c\"\\d', 'null', '']::character varying(7)[]",
            (True, r"""{"a b","c\"\\d","null",""}"""),
        ),
        ("ARRAY[ARRAY[1]]", (False, None)),
        ("ARRAY['{1}'::integer[]]", (False, None)),
        ("ARRAY[now()]", (False, None)),
        ("nextval('s'::regclass)", (False, None)),
        ("CURRENT_TIMESTAMP", (False, None)),
    ],
)
def test_a_constant_is_distinguished_from_an_expression(
    default: str, value: tuple[bool, str | None]
) -> None:
    assert value_of(default) == value


@pytest.mark.parametrize("compatibility", ["a", "pg"])
def test_types_are_named_as_the_catalog_of_a_server_named_them(compatibility: str) -> None:
    path = GOLDEN / f"tables_types_{compatibility}.json.gz"
    raw = json.loads(gzip.decompress(path.read_bytes()))
    columns = [column for table in raw["tables"] for column in table["columns"]]
    assert len(columns) > 40

    for said in columns:
        spec = type_spec(said["type_with_typmod"])
        found = column_of("c", spec) if spec is not None else None
        if found is not None:
            assert (found.type_oid, found.type_name) == (
                said["type_oid"],
                said["type_with_typmod"],
            )
    named = [c for c in columns if (s := type_spec(c["type_with_typmod"])) and column_of("c", s)]
    assert len(named) > len(columns) * 0.9
