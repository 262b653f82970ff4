"""Columns of types that users made, at a target that has them, and at one that has not."""

from collections import Counter
from dataclasses import replace
from decimal import Decimal

import pytest

from schemas.tables import Column, TableId, TableSchema, Unique, UserType
from spark_consumers.errors import NotExpressible, TargetRefused
from spark_consumers.loop.job import Applier
from tests.integration.postgres_target import Target, load, only_postgresql
from tests.spark_consumers.feed import (
    Row,
    alter,
    delete,
    insert,
    table,
    update,
)

MOOD = UserType("e", "mood", labels=("sad", "ok"))


PRICE = UserType("d", "price", "numeric(10,2)", 1700, (10 << 16 | 2) + 4)


OF_USERS = TableSchema(
    TableId("public", "of_users"),
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("m", 90001, -1, "public.mood", user_type=MOOD),
        Column("ms", 90002, -1, "public.mood[]",
               user_type=UserType("a", "_mood", "public.mood", 90001, of=MOOD)),
        Column("p", 90003, -1, "public.price", user_type=PRICE),
        Column("ps", 90004, -1, "public.price[]",
               user_type=UserType("a", "_price", "public.price", 90003, of=PRICE)),
        Column("c", 90005, -1, 'public."odd/pair 50%"', user_type=UserType("c", "odd/pair 50%")),
        Column("h", 90006, -1, "public.hstore", user_type=UserType("b", "hstore")),
        Column("gone", 90007),
    ),
    ("id",),
)  # fmt: skip


VALUES = ["1", "ok", "{sad,NULL,ok}", "1.50", "{2.25}", "(1,x)", '"a"=>"1"', "any"]


def types_of(target: Target) -> list[str]:
    return [
        kind
        for (kind,) in target.query(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attnum > 0"
            " AND attrelid = 'of_users'::regclass ORDER BY attnum"
        )
    ]


def texts_of(target: Target) -> list[str | None]:
    columns = ", ".join(f"format('%s', {c.name})" for c in OF_USERS.columns)
    return list(target.query(f"SELECT {columns} FROM of_users")[0])


def test_without_the_sources_types_columns_become_what_holds_the_values(target: Target) -> None:
    load(target, OF_USERS, VALUES)

    assert types_of(target) == [
        "integer", "text", "text[]", "numeric(10,2)", "numeric(10,2)[]", "text", "text", "text",
    ]  # fmt: skip
    assert texts_of(target) == VALUES


@only_postgresql  # openGauss has no domains
def test_with_the_sources_types_columns_have_them(target: Target) -> None:
    target.run("CREATE SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext")
    target.run("CREATE TYPE mood AS ENUM ('sad', 'ok')")
    target.run("CREATE DOMAIN price AS numeric(10,2) NOT NULL CHECK (VALUE > 0)")
    target.run('CREATE TYPE "odd/pair 50%%" AS (a int, b text)')
    load(target, OF_USERS, VALUES)

    assert types_of(target)[1:7] == [
        "mood", "mood[]", "price", "price[]", '"odd/pair 50%"', "ext.hstore",
    ]  # fmt: skip
    assert texts_of(target) == VALUES

    new = [..., "sad", "{}", ..., "{3.00}", "(2,y)", ""]
    target.apply(update(OF_USERS, "1", *new[1:], ...))
    assert texts_of(target) == ["1", "sad", "{}", "1.50", "{3.00}", "(2,y)", "", "any"]


def test_of_equal_rows_without_a_key_as_many_go_as_are_said(target: Target) -> None:
    """Far more than one statement looks for, in three patterns of NULL; some came in the batch."""
    keyless = table("keyless", "n integer, v text", key="")
    rows = [[str(n % 600), v] for n in range(1800) for v in ("x", None)]
    load(target, keyless, *rows, [None, None])

    target.apply(
        Row(keyless, "c", None, ["-1", "y"]), Row(keyless, "u", ["-1", "y"], ["-2", "y"]),
        *(Row(keyless, "d", row) for row in rows[:2400]), Row(keyless, "d", [None, None]),
        Row(keyless, "u", ["0", "x"], ["0", "z"]),
    )  # fmt: skip

    left = Counter(target.query("SELECT n::text, v FROM keyless"))
    there = Counter((n, v) for n, v in rows[2400:])
    assert left == there - Counter([("0", "x")]) + Counter([("0", "z"), ("-2", "y")])


AMOUNT = TableSchema(
    TableId("public", "d"),
    (
        Column("id", 23, -1, "integer", nullable=False),
        Column("n", 90008, -1, "public.amount",
               user_type=UserType("d", "amount", "numeric(10,2)", 1700, (10 << 16 | 2) + 4)),
    ),
    ("id",),
)  # fmt: skip


@only_postgresql
def test_a_domain_of_the_target_is_used_where_it_holds_the_values(target: Target) -> None:
    target.run("CREATE DOMAIN amount AS numeric(12,2)")

    load(target, AMOUNT, ["1", "1.25"])

    assert target.query("SELECT n, pg_typeof(n)::text FROM d") == [(Decimal("1.25"), "amount")]


@only_postgresql
@pytest.mark.parametrize("made_of", ["numeric(10,1)", "inner_amount"])
def test_a_domain_of_the_target_that_rounds_is_not_used(target: Target, made_of: str) -> None:
    target.run("CREATE DOMAIN inner_amount AS numeric(10,1)")
    target.run(f"CREATE DOMAIN amount AS {made_of}")

    load(target, AMOUNT, ["1", "1.25"])

    assert target.query("SELECT n, pg_typeof(n)::text FROM d") == [(Decimal("1.25"), "numeric")]
    target.apply(insert(AMOUNT, "2", "2.25"))
    load(target, AMOUNT, ["1", "1.25"], ["2", "2.25"])
    assert [n for (n,) in target.query("SELECT n::text FROM d ORDER BY 1")] == ["1.25", "2.25"]


@only_postgresql
def test_a_table_of_the_target_whose_domain_rounds_is_refused(target: Target) -> None:
    target.run("CREATE DOMAIN amount AS numeric(10,1)")
    target.run("CREATE TABLE d (id int PRIMARY KEY, n amount)")

    with pytest.raises(NotExpressible, match="does not hold"):
        load(target, AMOUNT, ["1", "1.25"])


@only_postgresql
def test_a_table_of_our_own_that_has_a_domain_which_rounds_is_made_again(target: Target) -> None:
    """An earlier release took the domain."""
    load(target, AMOUNT, ["1", "1.25"])
    target.run("CREATE DOMAIN amount AS numeric(10,1)")
    target.run("ALTER TABLE d ALTER n TYPE amount")

    load(target, AMOUNT, ["1", "1.25"])

    assert target.query("SELECT n::text, pg_typeof(n)::text FROM d") == [("1.25", "numeric")]


@pytest.mark.parametrize("change", ["delete", "update", "insert"])
def test_a_zero_byte_in_a_row_without_a_key_is_refused_by_name(target: Target, change: str) -> None:
    of = table("t", "id integer, v text", key="")
    load(target, of, ["1", "a"])
    old, zero = ["1", "a"], ["1", "a\0b"]
    row = {
        "delete": Row(of, "d", zero, None),
        "update": Row(of, "u", old, zero),
        "insert": Row(of, "c", None, zero),
    }[change]

    with pytest.raises(TargetRefused) as raised:
        target.apply(row)

    assert str(raised.value.where["table"]) == "public.t"
    assert raised.value.where.get("column") == "v"
    assert target.query("SELECT id, v FROM t") == [(1, "a")]


def test_a_keyless_row_is_the_one_that_reads_the_same(target: Target) -> None:
    keyless = table("keyless", "n numeric, f double precision", key="")
    load(target, keyless, ["1.0", "0"], ["1.00", "-0"], ["1.00", "0"])

    target.apply(Row(keyless, "d", ["1.00", "0"]))

    found = target.query("SELECT n::text, f::text FROM keyless ORDER BY 1, 2")
    assert found == [("1.0", "0"), ("1.00", "-0")]


def test_keyless_rows_that_a_coarser_target_makes_the_same(target: Target) -> None:
    """A load refuses such a table by name; here somebody altered it later."""
    keyless = table("keyless", "n numeric, at timestamp with time zone", key="")
    day = "2026-01-02 10:00:0"
    rows = [[f"1.23{n}", f"{day}1.{n}+00"] for n in (1, 2, 2, 3)]
    load(target, keyless, *rows, ["1.24", f"{day}1+00"], ["1.231", None])
    target.run("ALTER TABLE keyless ALTER n TYPE numeric(12,2), ALTER at TYPE timestamp(0)")
    target.sink.close()
    target.sink = target.new_sink()
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)

    target.apply(
        *(Row(keyless, "d", row) for row in rows[:3]), Row(keyless, "d", ["1.234", None]),
        Row(keyless, "u", rows[3], ["1.2351", f"{day}2.5+00"]),
    )  # fmt: skip

    left = target.query("SELECT n::text, at::text FROM keyless ORDER BY 2")
    assert left == [("1.24", f"{day}1"), ("1.24", f"{day}3")]


@pytest.mark.parametrize(
    ("type_name", "old", "new"),
    [
        ("point", "(1,2)", "(3,4)"),
        ("box[]", "{(1,1),(0,0)}", "{(2,2),(0,0)}"),
        ("box", "(1,1),(0,0)", "(2,2),(1,1)"),  # of the same area
        ("json", "{}", '{"a": 1}'),
        ("xid", "7", "8"),
    ],
)
def test_a_keyless_row_of_a_type_without_equality(
    target: Target, type_name: str, old: str, new: str
) -> None:
    keyless = replace(
        table("keyless", "id integer, v text", key=""),
        columns=(Column("per%cent", 1, -1, type_name), Column('q"', 23, -1, "integer")),
    )
    load(target, keyless, [old, "1"], [new, "2"])

    target.apply(Row(keyless, "u", [old, "1"], [new, "3"]), Row(keyless, "d", [new, "2"]))

    rows = target.query('SELECT format(\'%s\', k."per%cent"), k."q""" FROM keyless k')
    assert rows == [(new, 3)]


def test_a_composite_of_nulls_is_not_null(target: Target) -> None:
    target.run("CREATE TYPE pair AS (a int, b int)")
    pair = Column("p", 90005, -1, "public.pair", user_type=UserType("c", "pair"))
    keyless = replace(table("keyless", "id integer", key=""), columns=(pair,))
    load(target, keyless, ["(,)"], [None], ["(,)"])

    target.apply(Row(keyless, "d", [None]), Row(keyless, "u", ["(,)"], ["(1,)"]))

    assert target.query("SELECT format('%s', p) FROM keyless ORDER BY 1") == [("(,)",), ("(1,)",)]


def test_a_copied_table_is_no_type_of_other_tables(target: Target) -> None:
    """The source drops it CASCADE, and no stream says in which order their columns go."""
    art, kind = table("art", "id integer, name text"), UserType("c", "art")
    has = TableSchema(
        TableId("public", "has"),
        (
            Column("id", 23, -1, "integer", nullable=False),
            Column("r", 90008, -1, "public.art", user_type=kind),
            Column("rs", 90009, -1, "public.art[]",
                   user_type=UserType("a", "_art", "public.art", 90008, of=kind)),
        ),
        ("id",),
    )  # fmt: skip
    load(target, art, ["1", "one"])
    load(target, has, ["1", "(1,one)", '{"(1,one)"}'])
    assert target.query("SELECT r::text, rs::text FROM has") == [("(1,one)", '{"(1,one)"}')]

    target.feed.commits([alter(art, None, tag="DROP TABLE")])
    left = replace(has, columns=has.columns[:1])
    target.feed.commits([alter(has, left)])
    target.drain()

    assert target.query("SELECT to_regclass('art')") == [(None,)]
    assert target.query("SELECT * FROM has") == [(1,)]


@only_postgresql  # openGauss has no such extension
@pytest.mark.parametrize("replica_role", [True, False])
def test_keys_of_an_extensions_type_wherever_it_stands(target: Target, replica_role: bool) -> None:
    """Its `=` stands in a schema that no session of ours searches."""
    target.run("CREATE SCHEMA ext; CREATE EXTENSION hstore SCHEMA ext")
    kind = UserType("b", "hstore")
    keyed = TableSchema(
        TableId("public", "keyed"),
        (
            Column("k", 90006, -1, "public.hstore", nullable=False, user_type=kind),
            Column("u", 90006, -1, "public.hstore", user_type=kind),
            Column("v", 25, -1, "text"),
        ),
        ("k",),
        (Unique("keyed_u_key", ("u",)),),
    )
    target.sink.close()
    target.sink = target.new_sink(replica_role=replica_role)
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)
    a, b, c = ('"a"=>"1"', '"b"=>"1"', '"c"=>"1"')
    load(target, keyed, [a, a, "x"], [b, b, "y"], [c, c, "z"])
    target.run("CREATE TABLE child (k ext.hstore REFERENCES keyed ON DELETE CASCADE)")

    target.apply(update(keyed, a, b, "x2"), update(keyed, b, a, "y2"), delete(keyed, c))
    target.apply(update(keyed, a, ..., "x3"))
    target.apply(*(update(keyed, a, ..., f"x{n}") for n in range(60)), insert(keyed, c, None, "w"))

    found = target.query("SELECT k::text, u::text, v FROM keyed ORDER BY 1")
    assert found == [(a, b, "x59"), (b, a, "y2"), (c, None, "w")]
