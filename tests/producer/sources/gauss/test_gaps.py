"""Each case of the table is done in a source, encoded, decoded, and classed by what is received."""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from gauss_cdc_lab.emulator.model import Ddl, Item, Mode, Op, Row, Transaction, Truncate
from producer.sources.gauss.gaps import (
    BY_NAME,
    CASES,
    DecodingMode,
    Detectability,
    decoding_mode,
    invisible,
)
from producer.sources.gauss.options import Terms, Vendor, effective
from schemas.control import Hole, Origin
from schemas.positions import Lsn
from schemas.tables import Column, ReplicaIdentity, TableId
from tests.gauss_cdc_lab.emulator.formats.made import number, text
from tests.gauss_cdc_lab.emulator.losses import LOSSES, Done
from tests.gauss_cdc_lab.emulator.through import ID, TDDL, T, Through, done, row

PARALLEL = Mode(parallel_decode_num=4, decode_style="t", include_timestamp=True)
GAUSSDB, OPENGAUSS = Vendor.GAUSSDB, Vendor.OPENGAUSS


def with_ddl(mode: Mode) -> Mode:
    return replace(mode, enable_ddl_decoding=True)


WAYS = {
    "GaussDB, serial, DDL": (DecodingMode(GAUSSDB, decodes_ddl=True), with_ddl(Mode())),
    "GaussDB, serial": (DecodingMode(GAUSSDB), Mode()),
    "GaussDB, parallel, DDL": (
        DecodingMode(GAUSSDB, parallel=True, decodes_ddl=True, style="t"),
        with_ddl(PARALLEL),
    ),
    "GaussDB, parallel": (DecodingMode(GAUSSDB, parallel=True, style="t"), PARALLEL),
    "openGauss, serial, DDL": (DecodingMode(OPENGAUSS, decodes_ddl=True), Mode()),
    "openGauss, serial": (DecodingMode(OPENGAUSS), Mode()),
    "openGauss, parallel": (DecodingMode(OPENGAUSS, parallel=True, style="t"), PARALLEL),
}
UNREPORTED = Ddl(Lsn(0x110))  # DCL, or DDL that is not deparsed
B = Column("b", 23, -1, "integer", has_default=True)
WIDER = replace(T, columns=(*T.columns, B))
KEYLESS = replace(T, key=(), identity_columns=(), replica_identity=ReplicaIdentity.NOTHING)
C = replace(T, id=TableId("public", "c"))
MADE = "CREATE TABLE public.c (id pg_catalog.int4 PRIMARY KEY, a pg_catalog.text)"


def said(sql: str) -> Ddl:
    """A statement in both words."""
    content = json.dumps({"fmt": sql}).encode()
    return Ddl(Lsn(0x110), Lsn(0x118), content=content, sql=sql.encode())


def wide(value: int) -> Row:
    return row(value, text("a", "y"), number("b", 7))


def update(*, table: str = "t") -> Row:
    return Row(Lsn(0x110), Op.UPDATE, "public", table, [number("id", 1), text("a", "x")], None)


@dataclass(frozen=True)
class Deed:
    """What is done, and how to see that all of it was received."""

    transactions: tuple[Transaction, ...]
    is_whole: Callable[[Through], bool]
    known: tuple[object, ...] = (T,)
    catalog: tuple[object, ...] = ()
    wrote: bool | None = None  # what the source says of a new table


def made_with_a_row(*, wrote: bool | None) -> Deed:
    """CREATE TABLE AS, and what the source says when it is asked."""
    return Deed(
        (done(said(MADE), row(1, table="c")),),
        lambda received: received.rows == 1,
        catalog=(C,),
        wrote=wrote,
    )


OWNED = said("ALTER TABLE  public.t OWNER TO o")
NEVER: Callable[[Through], bool] = lambda _: False  # noqa: E731

DEEDS: dict[str, Callable[[DecodingMode], Deed]] = {
    "mixed": lambda _: Deed((done(row(1), OWNED, row(2)),), lambda received: received.rows == 2),
    "behind-one": lambda _: Deed((done(OWNED, row(1)),), lambda received: received.rows == 1),
    "behind-untold": lambda _: Deed(
        (done(UNREPORTED, row(1)),), lambda received: received.rows == 1
    ),
    "ctas": lambda _: made_with_a_row(wrote=True),
    "ctas-late": lambda _: made_with_a_row(wrote=None),
    "ctas-gone": lambda _: made_with_a_row(wrote=False),
    "truncate-away": lambda _: Deed(
        (done(Truncate(Lsn(0x110), (ID,))),), lambda received: received.rows == 1
    ),
    "partition": lambda _: Deed(
        (done(said("ALTER TABLE  public.t TRUNCATE PARTITION p1")),), NEVER
    ),
    "computed": lambda _: Deed(
        (
            done(said("ALTER TABLE  public.t ADD COLUMN b pg_catalog.int4 DEFAULT public.f((-1))")),
            done(wide(1), at=0x200),
        ),
        NEVER,
        catalog=(WIDER,),
    ),
    "volatile": lambda decoding: Deed(
        # openGauss refuses the statement where it replicates DDL.
        ()
        if decoding == WAYS["openGauss, serial, DDL"][0]
        else (
            done(UNREPORTED),
            done(wide(1), at=0x200),
        ),
        lambda received: not received.happened,
        catalog=(WIDER,),
    ),
    "ustore": lambda decoding: Deed(
        (
            done(
                said("ALTER TABLE  public.t ADD COLUMN b pg_catalog.int4 DEFAULT 5")
                if decoding.is_gaussdb
                else UNREPORTED
            ),
            done(wide(1), at=0x200),
        ),
        lambda received: bool(received.rows) and decoding.is_gaussdb,
        catalog=(replace(WIDER, columns=(*T.columns, replace(B, missing="5"))),)
        if decoding.is_gaussdb
        else (WIDER,),
    ),
    "untold": lambda decoding: Deed(
        (done(UNREPORTED if decoding.is_gaussdb else said(MADE)),),
        lambda received: bool(received.changes),
    ),
    "ddl": lambda _: Deed(
        (done(said("DROP TABLE public.t")),), lambda received: bool(received.changes)
    ),
    "old-row": lambda _: Deed((done(update()),), NEVER, known=(KEYLESS,)),
    "old-key": lambda _: Deed((done(update()),), NEVER),
}
# No stream shows these: the catalog does (tests/integration/test_gauss_storage.py, and
# test_gauss_catalog_writers.py).
BY_CATALOG = {
    *("truncate", "partition", "mixed", "behind-one", "behind-untold", "ctas", "made-again"),
    "types",
}
# What no encoder is given: nothing of it is in the log, or it is a matter of options.
OUTSIDE = {
    *("compile", "undecoded", "sequence", "tables", "ledger", "float", "nul", "behind-hidden"),
    *("white-list", "users", "generated", "foreign"),
}


def stream(decoding: DecodingMode, mode: Mode, deed: Deed) -> Through:
    product = "gaussdb" if decoding.is_gaussdb else "og7"
    received = Through(
        mode,
        product,
        known=deed.known,  # type: ignore[arg-type]
        catalog=deed.catalog,  # type: ignore[arg-type]
        wrote=lambda _table, _xid: deed.wrote,
    )
    return received.feed(*(_logged(decoding, each) for each in deed.transactions))


def _logged(decoding: DecodingMode, transaction: Transaction) -> Transaction:
    """Without a publication openGauss logs no DDL."""
    if decoding.is_gaussdb or decoding.decodes_ddl:
        return transaction
    items = [UNREPORTED if isinstance(item, Ddl) else item for item in transaction.items]
    return replace(transaction, items=items)


def observed(received: Through, *, is_whole: bool) -> Detectability | None:
    kinds = {gap.kind for gap in received.holes}
    if kinds:
        assert len(kinds) == 1
        return Detectability(kinds.pop())
    return None if is_whole else Detectability.INVISIBLE


@pytest.mark.parametrize("name", DEEDS)
@pytest.mark.parametrize("decoding", WAYS)
def test_a_gap_is_reported_as_the_table_says(name: str, decoding: str) -> None:
    decided, mode = WAYS[decoding]
    deed = DEEDS[name](decided)

    received = stream(decided, mode, deed)

    kind = BY_NAME[name].kind(decided)
    is_sent = name == "mixed" and decided.is_gaussdb and decided.decodes_ddl
    if name in BY_CATALOG and kind is Detectability.SUSPECTED and not is_sent:
        kind = Detectability.INVISIBLE
    assert observed(received, is_whole=deed.is_whole(received)) is kind


def test_every_case_is_done_or_is_in_no_stream() -> None:
    assert set(DEEDS) | OUTSIDE | BY_CATALOG == {case.name for case in CASES}
    assert not set(DEEDS) & OUTSIDE
    ways = [decoding for decoding, _ in WAYS.values()]
    everything = frozenset(
        {"white-table-list", "exclude-users", "skip-generated-columns", "only-local"}
    )
    ways += [replace(decoding, removing=everything) for decoding in ways]
    for name in OUTSIDE:
        assert {BY_NAME[name].kind(each) for each in ways} <= {
            None,
            Detectability.INVISIBLE,
        }


# ---- manual, "DDL in logical decoding", mixed transactions: each of its examples


def made(table: str) -> Ddl:
    return said(f"CREATE TABLE public.{table} (id pg_catalog.int4)")


ROW = row(111, table="t4")
T4 = replace(T, id=TableId("public", "t4"))

MANUAL: dict[str, tuple[list[Item], set[str], int, int]] = {
    # items; tables suspected; statements and rows received
    "a grant, then a row": ([UNREPORTED, ROW], set(), 0, 0),
    "ddl, row, ddl": ([made("t5"), ROW, made("t6")], {"t5", "t6"}, 2, 0),
    "row, ddl, row": ([ROW, made("t6"), ROW], {"t4", "t6"}, 1, 1),
    "row, ddl, ddl": ([ROW, made("t7"), made("t8")], {"t4", "t7", "t8"}, 2, 1),
    "ddl, create type, ddl": ([made("t7"), UNREPORTED, made("t8")], {"t7", "t8"}, 2, 0),
    "rows only": ([ROW, ROW, ROW], set(), 0, 3),
    "row, create type, row": ([ROW, UNREPORTED, ROW], set(), 0, 1),
    "row, create type, ddl": ([ROW, UNREPORTED, made("t9")], {"t4", "t9"}, 1, 1),
}


@pytest.mark.parametrize("decoding", ["GaussDB, serial, DDL", "GaussDB, parallel, DDL"])
@pytest.mark.parametrize(("items", "suspected", "statements", "rows"), MANUAL.values(), ids=MANUAL)
def test_a_mixed_transaction_of_the_manual(
    items: list[Item], suspected: set[str], statements: int, rows: int, decoding: str
) -> None:
    decided, mode = WAYS[decoding]

    received = stream(decided, mode, Deed((done(*items),), NEVER, known=(T4,)))

    assert {gap.table for gap in received.holes} == {f"public.{name}" for name in suspected}
    assert {gap.kind for gap in received.holes} <= {"suspected"}
    deparsed = [change for change in received.changes if change.origin is Origin.DEPARSED]
    assert (len(deparsed), received.rows) == (statements, rows)


@pytest.mark.parametrize(
    ("items", "suspected"),
    [
        # The manual shows one stream for all rows and for those that were sent; with as many rows
        # of the transaction as were sent the source may hold others.
        ([ROW, made("t7"), made("t8")], {"t4"}),
        ([made("t5"), made("t6")], set()),
        ([ROW, made("t6"), said("DROP TABLE public.t6")], {"t4"}),
        ([ROW, said("ALTER TABLE public.t4 ADD COLUMN n pg_catalog.int4")], {"t4"}),
        ([made("t5"), said("ALTER TABLE public.t4 ADD COLUMN n pg_catalog.int4")], {"t4"}),
        # The gap is told under the name that targets know at its end.
        ([ROW, said("ALTER TABLE public.t4 RENAME TO t9"), ROW], {"t9"}),
        ([ROW, said("ALTER TABLE public.t4 SET SCHEMA app")], {"app.t4"}),
    ],
)
def test_tables_of_rows_and_statements_are_suspected_unless_they_are_new_and_empty(
    items: list[Item], suspected: set[str]
) -> None:
    received = Through(TDDL, known=(T4,), wrote=lambda _table, _xid: False).feed(done(*items))

    named = {name if "." in name else f"public.{name}" for name in suspected}
    assert {gap.table for gap in received.holes} == named


def test_a_new_table_that_got_another_name_is_asked_for_by_that_one() -> None:
    asked = set()

    def wrote(table: TableId, _xid: int) -> bool:
        asked.add(table)
        return True

    items = made("t5"), said("ALTER TABLE public.t5 RENAME TO t9")
    received = Through(TDDL, known=(T4,), wrote=wrote).feed(done(*items))

    assert asked == {TableId("public", "t9")}
    assert {gap.table for gap in received.holes} == {"public.t9"}


def test_the_source_is_asked_about_new_tables_and_about_no_other() -> None:
    asked: list[tuple[TableId, int]] = []

    def wrote(table: TableId, xid: int) -> bool:
        asked.append((table, xid))
        return False

    received = Through(TDDL, known=(T,), wrote=wrote).feed(
        done(said(MADE)),
        done(
            row(1), said("ALTER TABLE public.t ADD COLUMN n pg_catalog.int4"), made("d"), at=0x200
        ),
        done(said("CREATE UNLOGGED TABLE public.u (id pg_catalog.int4)"), at=0x300),
        done(said("CREATE TABLE public.e (a int)"), said("DROP TABLE public.e"), at=0x400),
    )

    assert asked == [(TableId("public", "c"), 0x100 + 700), (TableId("public", "d"), 0x200 + 700)]
    assert {(gap.table, gap.kind) for gap in received.holes} == {("public.t", "suspected")}


def test_a_partitioned_table_is_suspected_although_it_stores_nothing_itself() -> None:
    sql = f"{MADE} PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (5))"
    received = Through(TDDL, known=(T,), wrote=lambda _table, _xid: False).feed(done(said(sql)))

    assert [(gap.table, gap.kind) for gap in received.holes] == [("public.c", "suspected")]


def test_a_statement_by_itself_raises_no_suspicion() -> None:
    decided, mode = WAYS["GaussDB, serial, DDL"]

    assert stream(decided, mode, Deed((done(OWNED),), NEVER)).holes == []


def test_suspicion_ends_with_its_transaction() -> None:
    decided, mode = WAYS["GaussDB, serial, DDL"]
    deed = Deed((done(row(1), OWNED), done(row(2), at=0x200), done(OWNED, at=0x300)), NEVER)

    received = stream(decided, mode, deed)

    assert received.holes == [
        Hole(
            "public.t",
            "suspected",
            "rows after a DDL statement of their transaction are not sent",
        )
    ]


def test_an_exchange_concerns_both_tables() -> None:
    other = replace(T, id=TableId("public", "u"))
    decided, mode = WAYS["GaussDB, serial, DDL"]
    sql = "ALTER TABLE  public.t EXCHANGE PARTITION (p1) WITH TABLE public.u"

    received = stream(decided, mode, Deed((done(said(sql)),), NEVER, known=(T, other)))

    assert {(gap.table, gap.kind) for gap in received.holes} == {
        ("public.t", "seen"),
        ("public.u", "seen"),
    }


# ---- compared with the emulator's own table, which was written independently

SAME = {
    Done.ROW_BEHIND_DDL: "behind-untold",
    Done.TRUNCATE: "truncate",
    Done.CTAS: "ctas-late",
    Done.UNDECODED: "undecoded",
    Done.OLD_ROW: "old-row",
    Done.SEQUENCE: "sequence",
    Done.FLOAT: "float",
    Done.TABLE: "tables",
}


@pytest.mark.parametrize("decoding", WAYS)
@pytest.mark.parametrize("cause", SAME)
def test_two_tables_agree_about_what_is_lost(cause: Done, decoding: str) -> None:
    decided, mode = WAYS[decoding]
    loss = next(loss for loss in LOSSES if loss.done is cause)

    is_lost = loss.lost("gaussdb" if decided.is_gaussdb else "og7", mode)

    assert (BY_NAME[SAME[cause]].kind(decided) is not None) is is_lost


def test_a_run_reports_undetectable_gaps() -> None:
    options = {"enable-ddl-decoding": "true", "white-table-list": "public.t"}
    received = effective(options, Terms(product=GAUSSDB, plugin="mppdb_decoding"))

    found = invisible(decoding_mode(received))

    assert any(word.startswith("TRUNCATE within seconds of an ALTER TABLE") for word in found)
    assert "rows of tables outside white-table-list" in found
    assert "rows of CREATE TABLE AS and SELECT INTO" not in found  # seen
    assert not any(word.startswith("DDL that shows") for word in found)


def test_opengauss_without_threads_sends_rows_behind_ddl() -> None:
    received = effective({}, Terms(product=OPENGAUSS, plugin="mppdb_decoding"))

    found = invisible(decoding_mode(received))

    assert not any("behind" in word for word in found)
    assert not any(word.startswith("TRUNCATE") for word in found)
