"""The sink contract, against a real PostgreSQL: by psycopg2, and as openGauss' sink speaks.

No openGauss runs here: its statements and its client meet a PostgreSQL.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from schemas.control import Hole
from schemas.tables import UNCHANGED, Column, TableId, TableSchema
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.errors import (
    MissingColumn,
    MissingTable,
    NotExpressible,
    TargetDown,
    TargetNotPermitted,
    TargetRefused,
)
from spark_consumers.loop.job import Applier
from tests.integration.postgres_target import ACCOUNT, Target, load, only_postgresql, rows
from tests.spark_consumers.feed import (
    Row,
    Tx,
    alter,
    delete,
    insert,
    table,
    truncate,
    update,
)


def test_a_load_creates_the_table_and_commits_change_it(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"], ["2", "b", None])

    ledger = target.apply(
        insert(ACCOUNT, "3", "c\t\n\\", "z"), update(ACCOUNT, "1", "A", ...), delete(ACCOUNT, "2")
    )

    assert target.query("SELECT * FROM account ORDER BY id") == [
        (1, "A", "x"),
        (3, "c\t\n\\", "z"),
    ]
    assert (ledger.n, ledger.seq, ledger.state, ledger.inexact) == (5, 1, "EXACT", {})


@only_postgresql
def test_a_key_that_the_target_checks_late_may_name_two_rows_for_a_moment(target: Target) -> None:
    target.run("CREATE TABLE late (id int PRIMARY KEY DEFERRABLE INITIALLY DEFERRED, v text)")
    late = table("late", "id integer, v text", key="")
    load(target, late, ["1", "a"], ["2", "b"])

    target.apply(insert(late, "1", "twice"), Row(late, "d", ["1", "a"]))
    target.apply(insert(late, "2", "for a moment"), Row(late, "d", ["2", "for a moment"]))

    assert rows(target, "late") == [(1, "twice"), (2, "b")]


def test_a_table_may_be_called_as_sql_calls_the_row_that_was_refused(target: Target) -> None:
    excluded = table("excluded", "id integer, excluded text")
    load(target, excluded, ["1", "a"])

    target.apply(update(excluded, "1", "b"), insert(excluded, "2", "c"))

    assert rows(target, "excluded") == [(1, "b"), (2, "c")]


def test_unique_values_of_a_table_without_a_key_pass_each_other(target: Target) -> None:
    shift = table("shift", "n integer, v text", key="", unique="n")
    load(target, shift, ["1", "a"], ["2", "b"], ["3", "c"])

    # The source's constraint was DEFERRABLE: checked when all rows had moved.
    target.apply(
        *(Row(shift, "u", [str(n), v], [str(n + 1), v]) for n, v in ((1, "a"), (2, "b"), (3, "c"))),
        Row(shift, "u", ["2", "a"], ["9", "a"]),
        insert(shift, "2", "new"),
        Row(shift, "d", ["9", "a"]),
    )

    assert rows(target, "shift") == [(2, "new"), (3, "b"), (4, "c")]


def test_keys_change_and_swap_and_keep_what_was_not_sent(target: Target) -> None:
    load(target, ACCOUNT, ["1", "one", "long 1"], ["2", "two", "long 2"], ["3", "x", "long 3"])

    target.apply(
        update(ACCOUNT, "9", "one", ..., old="1"),
        update(ACCOUNT, "1", "two", ..., old="2"),
        update(ACCOUNT, "2", "one", ..., old="9"),
        update(ACCOUNT, "30", ..., ..., old="3"),
    )

    assert rows(target, "account") == [
        (1, "two", "long 2"),
        (2, "one", "long 1"),
        (30, "x", "long 3"),
    ]


@pytest.mark.parametrize("width", [1597, 1598, 1600])
def test_as_many_columns_as_a_table_can_have(target: Target, width: int) -> None:
    """From 1,598 on a staging table would have more."""
    wide = table("wide", "id integer, " + ", ".join(f"c{n} integer" for n in range(1, width)))
    rest = ["1"] * (width - 2)
    load(target, wide, ["1", "0", *rest], ["2", "0", *rest])

    target.apply(
        insert(wide, "3", "0", *rest),
        update(wide, "1", "7", *[...] * (width - 2)),
        update(wide, "20", "8", *[...] * (width - 2), old="2"),
        delete(wide, "3"),
    )

    assert target.query("SELECT id, c1, c2 FROM wide ORDER BY id") == [(1, 7, 1), (20, 8, 1)]


def test_a_row_that_only_the_target_could_know_and_does_not_marks_its_table(
    target: Target,
) -> None:
    load(target, ACCOUNT)

    ledger = target.apply(update(ACCOUNT, "1", "a", ...), insert(ACCOUNT, "2", "b", "y"))

    assert rows(target, "account") == [(2, "b", "y")]
    assert ledger.inexact == {"public.account": LACKS_ROW}


def test_an_inexact_table_may_lack_rows(target: Target) -> None:
    load(target, ACCOUNT, ["2", "b", "y"])
    hole = Hole("public.account", "seen", "rows after DDL")
    target.feed.commits(
        Tx([update(ACCOUNT, "1", "a", ...), update(ACCOUNT, "2", "B", ...)], (hole,))
    )

    ledger = target.drain()

    assert rows(target, "account") == [(2, "B", "y")]
    assert (ledger.state, dict(ledger.inexact)) == (
        "LOADING",
        {"public.account": "seen: rows after DDL"},
    )


def test_truncation_in_the_middle(target: Target) -> None:
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "x"), truncate(ACCOUNT), insert(ACCOUNT, "3", "c", "x"))

    assert rows(target, "account") == [(3, "c", "x")]


def test_a_table_without_a_key_keeps_its_duplicates(target: Target) -> None:
    log = table("log", "a integer, b text, c json, d double precision", key="")
    load(target, log, *[["1", "x", '{"k": 1}', "NaN"]] * 3, ["2", None, None, None])
    full = ["1", "x", '{"k": 1}', "NaN"]

    target.apply(
        Row(log, "d", full),
        Row(log, "u", full, ["1", "changed", UNCHANGED, "0.5"]),
        insert(log, "3", "\\N", "[]", "1e300"),
        Row(log, "u", ["2", None, None, None], ["2", "now", None, None]),
    )

    assert target.query("SELECT a, b, c::text, d::text FROM log ORDER BY a, b") == [
        (1, "changed", '{"k": 1}', "0.5"),
        (1, "x", '{"k": 1}', "NaN"),
        (2, "now", None, None),
        (3, "\\N", "[]", "1e+300"),
    ]


def test_a_keyless_row_that_is_not_there_marks_its_table(target: Target) -> None:
    log = table("log", "a integer", key="")
    load(target, log)

    assert target.apply(Row(log, "d", ["1"])).inexact == {"public.log": LACKS_ROW}


def test_values_of_every_kind_arrive_as_they_were_written(target: Target) -> None:
    kinds = {
        "bytea": "\\x00ff5c",
        "numeric(40,10)": "123456789012345678901234567890.0123456789",
        "timestamp with time zone": "2024-02-29 23:59:59.999999+00",
        "timestamp without time zone": "infinity",
        "interval": "1 year 2 mons -3 days +04:05:06.7",
        "text[]": '{a,"b,c",NULL,"\\"q\\\\"}',
        "jsonb": '{"a": [1, null]}',
        "uuid": "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
        "inet": "10.0.0.0/8",
        "point": "(1.5,-2)",
        "character(5)": "ab   ",
        "double precision": "0.1",
        "money": "$1,234.50",
        "int4range": "[1,5)",
    }
    all_kinds = table("kinds", "id integer, x text", key="id")
    columns = (
        all_kinds.columns[0],
        *(Column(f"Col {at}", at, -1, kind) for at, kind in enumerate(kinds)),
    )
    all_kinds = TableSchema(TableId("public", 'Odd "name'), columns, ("id",))
    load(target, all_kinds)

    target.apply(insert(all_kinds, "1", *kinds.values()), insert(all_kinds, "2", *[None] * 14))
    target.apply(update(all_kinds, "2", *kinds.values()))

    cells = ", ".join(f'"Col {at}"::text' for at in range(14))
    expected = tuple(v.rstrip() if k.startswith("char") else v for k, v in kinds.items())
    target.run("ALTER ROLE postgres SET TimeZone = 'UTC'")
    assert target.query(f'SELECT {cells} FROM "Odd ""name"') == [expected, expected]


def test_money_is_read_alike_whatever_the_target_prefers(target: Target) -> None:
    """Under de_DE, say, 1234.50 is read as 123,450.00; each server has POSIX at least."""
    (name,) = target.query("SELECT current_database()")[0]
    target.run(f"ALTER DATABASE {name} SET lc_monetary = 'POSIX'")
    target.run(
        "CREATE TABLE account (id integer PRIMARY KEY, name text, note text,"
        " under text DEFAULT current_setting('lc_monetary'))"
    )
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "y"))

    assert rows(target, "account") == [(1, "a", "x", "C"), (2, "b", "y", "C")]


def test_null_within_an_array_stays_null_whatever_the_target_prefers(target: Target) -> None:
    (name,) = target.query("SELECT current_database()")[0]
    target.run(f"ALTER DATABASE {name} SET array_nulls = off")
    texts = table("texts", "id integer, x text[]")
    load(target, texts, ["1", "{a,NULL}"])

    target.apply(insert(texts, "2", '{NULL,"NULL"}'))

    assert rows(target, "texts") == [(1, ["a", None]), (2, [None, "NULL"])]


@only_postgresql  # what openGauss does was not seen
def test_types_are_known_whatever_the_target_quotes(target: Target) -> None:
    """`"text"[]` was taken for another type than text[], and the load refused."""
    (name,) = target.query("SELECT current_database()")[0]
    target.run(f"ALTER DATABASE {name} SET quote_all_identifiers = on")
    target.run("CREATE TABLE texts (id integer PRIMARY KEY, x text[])")
    texts = table("texts", "id integer, x text[]")

    load(target, texts, ["1", "{a}"])

    assert rows(target, "texts") == [(1, ["a"])]


@only_postgresql  # openGauss has no identity columns
def test_generated_and_identity_columns_of_the_target(target: Target) -> None:
    target.run(
        "CREATE TABLE account (id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY, name text,"
        " note text, up text GENERATED ALWAYS AS (upper(name)) STORED, extra text DEFAULT 'mine')"
    )
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "y"), update(ACCOUNT, "1", "c", ...))

    assert rows(target, "account") == [(1, "c", "x", "C", "mine"), (2, "b", "y", "B", "mine")]


def test_generated_columns_of_the_target_are_not_written(target: Target) -> None:
    target.run(
        "CREATE TABLE account (id integer PRIMARY KEY, name text, note text,"
        " up text GENERATED ALWAYS AS (upper(name)) STORED, extra text DEFAULT 'mine')"
    )
    load(target, ACCOUNT, ["1", "a", "x"])

    target.apply(insert(ACCOUNT, "2", "b", "y"), update(ACCOUNT, "1", "c", ...))

    assert rows(target, "account") == [(1, "c", "x", "C", "mine"), (2, "b", "y", "B", "mine")]


def test_triggers_of_the_target_do_not_run_in_a_copy(target: Target) -> None:
    load(target, ACCOUNT)
    target.run(
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS"
        " 'BEGIN RAISE EXCEPTION ''no''; END';"
        "CREATE TRIGGER no BEFORE INSERT ON account FOR EACH ROW EXECUTE FUNCTION no()"
    )

    target.apply(insert(ACCOUNT, "1", "a", "x"))

    assert len(rows(target, "account")) == 1


def test_a_refusal_names_the_constraint_and_no_value(target: Target) -> None:
    load(target, ACCOUNT)
    target.run("ALTER TABLE account ADD CONSTRAINT short CHECK (length(name) < 5)")
    target.feed.commits([insert(ACCOUNT, "1", "secret value", "x")])

    # openGauss does not say which constraint, but in a text that may hold values.
    what = "short" if target.kind == "postgres" else "sqlstate=23514"
    with pytest.raises(TargetRefused, match=what) as refused:
        target.drain()

    assert "secret" not in str(refused.value)
    target.run("ALTER TABLE account DROP CONSTRAINT short")
    assert target.drain().seq == 1


def test_a_value_that_does_not_fit_names_table_and_column(
    new_database: Callable[[], str],
) -> None:
    target = Target(new_database(), "postgres")
    load(target, ACCOUNT)
    target.run("ALTER TABLE account ALTER note TYPE integer USING 0")
    target.feed.commits([insert(ACCOUNT, "1", "a", "secret: note")])

    with pytest.raises(TargetRefused) as refused:
        target.drain()

    said = str(refused.value)
    assert "invalid text representation" in said
    assert "table=public.account, column=note" in said
    assert "secret" not in said
    target.sink.close()


def test_a_missing_column_or_table_says_which(new_database: Callable[[], str]) -> None:
    target = Target(new_database(), "postgres")
    load(target, ACCOUNT)
    target.run("ALTER TABLE account DROP COLUMN note")
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])
    with pytest.raises(MissingColumn, match="note"):
        target.drain()
    target.run("DROP TABLE account")
    with pytest.raises(MissingTable, match=r"public\.account"):
        target.drain()
    target.sink.close()


def test_a_missing_right_comes_with_the_statement_that_gives_it(
    new_database: Callable[[], str],
) -> None:
    target = Target(new_database(), "postgres")
    role = f"r_{target.url.rpartition('/')[2]}"
    target.run(f"CREATE ROLE {role} LOGIN; GRANT CREATE ON SCHEMA public TO {role}")
    target.run(f'GRANT CREATE ON DATABASE "{target.url.rpartition("/")[2]}" TO {role}')
    owner, target.url = target.url, target.url.replace("postgres@", f"{role}@")
    target.sink.close()
    target.sink = target.new_sink(replica_role=False)
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)
    load(target, ACCOUNT)
    target.url = owner
    target.run("ALTER TABLE account OWNER TO CURRENT_USER")
    target.feed.commits([insert(ACCOUNT, "1", "a", "x")])

    try:
        with pytest.raises(TargetNotPermitted) as refused:
            target.drain()

        assert "permission denied" in refused.value.what
        assert refused.value.where["table"] == ACCOUNT.id
        assert f'ALTER TABLE "public"."account" OWNER TO "{role}"' in refused.value.hint
        target.run(refused.value.hint.partition(": ")[2])
        assert target.drain().seq == 1
    finally:
        target.sink.close()
        target.run(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


@only_postgresql
def test_a_time_zone_that_the_target_does_not_know_is_named(target: Target) -> None:
    """JDBC sends its machine's zone; the target's system may lack names of the past."""
    whole = table("t", "id integer, at timestamp without time zone", key="id")
    numbered = tuple(replace(c, number=n) for n, c in enumerate(whole.columns, 1))
    before = replace(whole, columns=numbered)
    zoned = replace(before.columns[1], type_oid=1184, type_name="timestamp with time zone")
    after = replace(before, columns=(before.columns[0], zoned))
    load(target, before, ["1", "2026-01-01 00:00:00"])

    with pytest.raises(NotExpressible, match=r"TimeZone TO 'Nowhere/Unknown'.*--accept-gap"):
        target.apply(replace(alter(before, after), settings={"TimeZone": "Nowhere/Unknown"}))


@only_postgresql
def test_a_target_that_takes_no_writes_yet_is_waited_for_at_a_reconnect_too(target: Target) -> None:
    """The address leads to a standby that is about to be promoted."""
    one = table("one", "id integer, v text")
    load(target, one)
    name = target.url.rsplit("/", 1)[1]
    target.run(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    target.sink.close()

    with pytest.raises(TargetDown, match="takes no writes"):
        target.apply(insert(one, "1", "a"))

    target.run(
        "SET transaction_read_only = off;"
        f"ALTER DATABASE {name} SET default_transaction_read_only = off"
    )
    assert target.drain().state == "EXACT"
    assert target.query("SELECT id FROM one") == [(1,)]
