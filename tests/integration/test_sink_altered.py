"""A target's table that its owner altered: what is written there may not be the source's."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from schemas.control import LoadPhase, Moved
from schemas.tables import TableId, TableSchema
from spark_consumers.cuts.ledger import ALTERED
from spark_consumers.errors import NotExpressible, TargetNotEmpty
from spark_consumers.loop.job import Applier
from tests.integration.postgres_target import Target, load, only_postgresql
from tests.spark_consumers.feed import alter, delete, insert, table, truncate, update

A = table("a", "id integer, g integer, n numeric, v text")
B = table("b", "id integer, v text")
ROWS = ["1", "1", "1.25", "a"], ["2", "2", "2.25", "b"]
LOOSE = (
    "CREATE COLLATION loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false); "
)
HARMLESS = {
    "wider": "ALTER TABLE a ALTER g TYPE bigint",
    "more": "ALTER TABLE a ADD mine int DEFAULT 7; CREATE INDEX ON a (v)",
    "rights": "GRANT SELECT ON a TO PUBLIC; GRANT UPDATE (v) ON a TO PUBLIC",
    "again": "ALTER TABLE a ALTER v SET DEFAULT 'x'; ALTER TABLE a ALTER v SET STATISTICS 3",
    "rewritten": "CLUSTER a USING a_pkey",
    "looked at": "ANALYZE a",
    "order": "ALTER TABLE a RENAME v TO w; ALTER TABLE a RENAME w TO v",
}
ALTERING = {
    "rounds": "ALTER TABLE a ALTER n TYPE numeric(10,1)",
    "another column": "ALTER TABLE a RENAME v TO w; ALTER TABLE a ADD v text",
    "columns swapped": "ALTER TABLE a RENAME v TO w; ALTER TABLE a ADD v text DEFAULT 'x'",
    "another table": "ALTER TABLE a RENAME TO c; CREATE TABLE a (LIKE c INCLUDING ALL)",
    "not logged": "ALTER TABLE a SET UNLOGGED",
    "another key": "ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (id, g)",
    "equal texts": (LOOSE + "ALTER TABLE a ALTER v TYPE text COLLATE loose"),
}


def restore(target: Target) -> None:
    """Leave a database as a dump does: all is the same, but for oids and numbers of columns."""
    for schema, name in target.query(
        "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 'gauss_cdc')"
    ):
        target.run(
            f"CREATE TABLE {schema}.copy (LIKE {schema}.{name} INCLUDING ALL);"
            f"INSERT INTO {schema}.copy TABLE {schema}.{name}; DROP TABLE {schema}.{name};"
            f"ALTER TABLE {schema}.copy RENAME TO {name};"
            f"ALTER INDEX IF EXISTS {schema}.copy_pkey RENAME TO {name}_pkey"
        )
    begin_again(target)


def begin_again(target: Target) -> None:
    """Let another program apply."""
    target.sink = target.new_sink()
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)


@pytest.fixture(params=["goes on", "is started again", "is restored"])
def altered(request: pytest.FixtureRequest, target: Target) -> Callable[[str], None]:
    load(target, A, *ROWS)
    target.apply(update(A, "1", "1", "1.25", "A"))  # from here on the table is known

    def alters(statement: str) -> None:
        if request.param != "goes on":
            target.sink.close()
        if request.param == "is restored":
            restore(target)
            target.sink.ledger()
        for one in statement.split("; "):
            target.run(one)

    return alters


@pytest.mark.parametrize("name", HARMLESS)
def test_what_holds_the_rows_as_well_is_no_difference(
    target: Target, altered: Callable[[str], None], name: str
) -> None:
    altered(HARMLESS[name])

    ledger = target.apply(insert(A, "3", "3", "3.25", "c"), delete(A, "2"))

    assert ledger.inexact == {}
    assert target.query("SELECT id, n, v FROM a ORDER BY 1")[-1][2] == "c"


@pytest.mark.parametrize("name", ALTERING)
def test_a_table_that_may_not_hold_the_rows_is_not_called_exact(
    target: Target, altered: Callable[[str], None], name: str
) -> None:
    load(target, B, ["1", "b"])
    altered(ALTERING[name])

    ledger = target.apply(insert(A, "3", "3", "3.25", "c"), insert(B, "2", "c"))

    assert ledger.inexact == {"public.a": ALTERED}
    assert len(target.query("SELECT FROM b")) == 2
    if name != "not logged":  # a load refuses it until it is
        target.run("DROP TABLE a")
        load(target, A, *ROWS)
        assert target.apply(update(A, "1", "1", "1.35", "A")).inexact == {}


@only_postgresql
def test_a_restored_table_is_no_other_and_a_ledger_restored_alone_is_not_believed(
    target: Target,
) -> None:
    load(target, A, *ROWS)
    load(target, B, ["1", "b"])
    target.sink.close()
    restore(target)
    assert target.apply(insert(A, "3", "3", "3.25", "c")).inexact == {}

    target.sink.close()
    target.run(
        "CREATE TABLE gauss_cdc.copy (LIKE gauss_cdc.ledger INCLUDING ALL);"
        "INSERT INTO gauss_cdc.copy TABLE gauss_cdc.ledger; DROP TABLE gauss_cdc.ledger;"
        "ALTER TABLE gauss_cdc.copy RENAME TO ledger"
    )
    begin_again(target)

    assert target.apply(insert(B, "2", "c")).inexact == {"public.b": ALTERED}


def test_a_load_into_a_table_that_a_crash_empties_is_refused(target: Target) -> None:
    target.run("CREATE UNLOGGED TABLE b (id int PRIMARY KEY, v text)")

    with pytest.raises(NotExpressible, match="not logged"):
        load(target, B, ["1", "b"])


@only_postgresql
def test_a_load_into_a_table_that_takes_keys_for_one_is_refused(target: Target) -> None:
    target.run(LOOSE + "CREATE TABLE t (id text COLLATE loose PRIMARY KEY, v text)")

    with pytest.raises(NotExpressible, match="would be one at the target"):
        load(target, table("t", "id text, v text"), ["a", "b"])


def test_a_load_into_a_table_that_computes_what_the_source_has_is_refused(target: Target) -> None:
    target.run("CREATE TABLE b (id int PRIMARY KEY, v text GENERATED ALWAYS AS ('x') STORED)")

    with pytest.raises(NotExpressible, match="computes a column"):
        load(target, B, ["1", "b"])


@only_postgresql
def test_an_array_of_a_domain_may_round(target: Target) -> None:
    target.run("CREATE DOMAIN d AS numeric(10,1); CREATE TABLE t (id int PRIMARY KEY, v d[])")

    with pytest.raises(NotExpressible, match="does not hold"):
        load(target, table("t", "id integer, v numeric[]"), ["1", "{1.25}"])


def test_rows_of_tables_that_inherit_are_not_touched(
    target: Target, altered: Callable[[str], None]
) -> None:
    altered("CREATE TABLE heir () INHERITS (a); INSERT INTO heir VALUES (1, 1, 1, 'mine')")

    for change in (delete(A, "1"), truncate(A), update(A, "9", "1", "1", "x", old="1")):
        with pytest.raises(NotExpressible, match="inherit"):
            target.apply(change)
        assert target.query("SELECT v FROM heir") == [("mine",)]
    target.run("ALTER TABLE heir NO INHERIT a")
    assert target.drain().inexact == {}
    assert target.query("SELECT v FROM heir") == [("mine",)]


def test_what_the_stream_alters_is_no_difference(target: Target) -> None:
    load(target, A, *ROWS)
    other = table("a", "id integer, g integer, n numeric, w text")

    target.apply(replace(alter(A, other), lossy="computed"), insert(other, "3", "3", "3.2", "c"))
    ledger = target.apply(insert(other, "4", "3", "3.2", "c"))

    assert ledger.inexact == {"public.a": "computed"}


def test_a_table_of_another_source_is_refused(target: Target) -> None:
    load(target, B)
    target.sink.close()
    other = Target(target.url, target.kind)
    other.feed.source = "other"
    other.sink = other.new_sink()
    other.applier = Applier(other.feed.read_cuts, other.read_rows, other.sink)
    try:
        with pytest.raises(TargetNotEmpty, match="another source's"):
            load(other, B)
    finally:
        other.sink.close()


P = table("p", "id numeric, v text")
C = table("c", "id integer, p numeric")


def test_a_key_that_is_written_otherwise_takes_no_children_with_it(
    target: Target, new_database: Callable[[], str]
) -> None:
    """It ends as text, and begins as text: as a number it is the same row."""
    target.sink.close()
    target = Target(new_database(), target.kind, replica_role=False)
    try:
        load(target, P, ["1.0", "a"], ["2.0", "b"])
        load(target, C, ["1", "1.0"], ["2", "2.0"])
        target.apply(update(P, "1.0", "A"), update(C, "1", "1.0"))
        target.run("ALTER TABLE c ADD FOREIGN KEY (p) REFERENCES p ON DELETE CASCADE")

        target.apply(update(P, "2.00", "B", old="2.0"))

        assert target.query("SELECT id::text FROM c ORDER BY 1") == [("1",), ("2",)]
        assert target.query("SELECT id::text, v FROM p ORDER BY 1") == [("1.0", "A"), ("2.00", "B")]
        target.sink.close()
        target.apply(delete(P, "1.0"), insert(P, "1.000", "again"), update(P, "3", "B", old="2.00"),
                     update(C, "2", "3"))  # fmt: skip
        assert target.query("SELECT id::text, v FROM p ORDER BY 1") == [
            ("1.000", "again"), ("3", "B"),
        ]  # fmt: skip
        assert target.query("SELECT id::text FROM c ORDER BY 1") == [("1",), ("2",)]
    finally:
        target.sink.close()


# ---------------------------------------------------------------- what keeps another shape
MORE = table("a", "id integer, g integer, n numeric, v text, w text")
ELSEWHERE = table("moved", "id integer, g integer, n numeric, v text")
ROUNDS = ALTERING["rounds"]
SOURCES = [("1.25",), ("2.25",)]


def is_true(target: Target, inexact: Mapping[str, str], name: str = "a") -> bool:
    """Rows are the source's, or the table is marked."""
    there = target.query(f"SELECT n::text FROM {name} WHERE id < 3 ORDER BY id")
    return f"public.{name}" in inexact or there == SOURCES


@pytest.mark.parametrize("after", [A, MORE, ELSEWHERE], ids=["nothing", "a column", "a name"])
@pytest.mark.parametrize("has_row", [False, True])
def test_a_schema_change_of_the_stream_does_not_hide_it(
    target: Target, altered: Callable[[str], None], after: TableSchema, *, has_row: bool
) -> None:
    altered(ROUNDS)
    more = ["d"] if after is MORE else []
    row = [insert(after, "3", "3", "3.5", "c", *more)] if has_row else []

    target.apply(alter(A, after), *row)
    ledger = target.apply(insert(after, "4", "4", "4.5", "d", *more))

    assert is_true(target, ledger.inexact, after.id.name)


def test_rows_that_a_statement_moves_do_not_leave_it_behind(
    target: Target, altered: Callable[[str], None]
) -> None:
    root = replace(A, id=TableId("public", "root"))
    load(target, root)
    altered(ROUNDS)

    target.apply(replace(alter(root, root), moved=Moved("move", A.id)), alter(A, None))

    ledger = target.apply(insert(root, "4", "4", "4.5", "d"))
    assert is_true(target, ledger.inexact, "root")


@pytest.mark.parametrize("mode", ["AGAIN", "BESIDE"])
@pytest.mark.parametrize(
    "altering",
    [
        ROUNDS,
        "ALTER TABLE a ALTER n TYPE integer",
        "DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, g int, n numeric(10,1), v text)",
    ],
)
def test_a_load_looks_at_it_anew(
    target: Target, altered: Callable[[str], None], mode: str, altering: str
) -> None:
    """`gauss-cdc snapshot --table`, as the hint says, without altering it back."""
    altered(altering)
    target.feed.load(A, LoadPhase.BEGIN, mode=mode)
    target.feed.load(A, LoadPhase.CHUNK, *ROWS, mode=mode, first=1 << 61)
    target.feed.load(A, LoadPhase.END, mode=mode)
    try:
        target.drain()
    except NotExpressible:
        return

    assert is_true(target, target.apply(insert(A, "4", "4", "4.5", "d")).inexact)


def test_a_load_refuses_one_that_computes_a_column_by_now(
    target: Target, altered: Callable[[str], None]
) -> None:
    altered("ALTER TABLE a DROP n; ALTER TABLE a ADD n numeric GENERATED ALWAYS AS (7) STORED")

    with pytest.raises(NotExpressible, match="computes a column"):
        load(target, A, *ROWS)


def test_a_load_refuses_one_that_is_not_logged(
    target: Target, altered: Callable[[str], None]
) -> None:
    altered(ALTERING["not logged"])

    with pytest.raises(NotExpressible, match="not logged"):
        load(target, A, *ROWS)


@pytest.mark.parametrize("first", [False, True], ids=["again", "first"])
@pytest.mark.parametrize("mode", ["AGAIN", "BESIDE"])
@pytest.mark.parametrize("then", ["nothing", "a column", "a name", "another run"])
def test_an_end_says_that_it_was_altered_during_its_load(
    target: Target, mode: str, then: str, *, first: bool
) -> None:
    if not first:
        load(target, A, *ROWS)
        target.apply(update(A, "1", "1", "1.25", "A"))
    target.feed.load(A, LoadPhase.BEGIN, mode=mode)
    target.feed.load(A, LoadPhase.CHUNK, ROWS[0], mode=mode, first=1 << 61)
    target.drain()
    target.run(ROUNDS)
    after = {"a column": MORE, "a name": ELSEWHERE}.get(then, A)
    if after is not A:
        target.apply(alter(A, after))
    if then == "another run":
        target.sink.close()
    more = ["d"] if after is MORE else []
    target.feed.load(after, LoadPhase.CHUNK, [*ROWS[1], *more], mode=mode, first=(1 << 61) + 1)
    target.feed.load(after, LoadPhase.END, mode=mode)

    assert target.drain().inexact == {str(after.id): ALTERED}
    ledger = target.apply(insert(after, "4", "4", "4.5", "d", *more))
    assert ledger.inexact == {str(after.id): ALTERED}
    load(target, after, *([*row, *more] for row in ROWS))
    assert target.apply(insert(after, "4", "4", "4.5", "d", *more)).inexact == {}
    assert is_true(target, {}, after.id.name)


def test_a_column_that_the_source_makes_again_is_made_again_by_us(
    target: Target, altered: Callable[[str], None]
) -> None:
    altered("SELECT 1")
    target.apply(replace(alter(A, A), values={"v": "new"}))

    assert target.apply(insert(A, "3", "3", "3.5", "c")).inexact == {}
    assert target.query("SELECT v FROM a ORDER BY id") == [(None,), (None,), ("c",)]
