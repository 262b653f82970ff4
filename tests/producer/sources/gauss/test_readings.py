"""Readings that only openGauss and GaussDB give, on answers written down here."""

import pytest

from producer.errors import SourceError
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss.readings import Readings, RoleReading
from producer.sources.gauss.server import Product, Server
from producer.sources.gauss.slots import SlotReading
from schemas.positions import Lsn
from schemas.tables import TableId

Rows = list[list[str | None]]


class Answers:
    """Answers by the first matching word of the question; an exception is raised."""

    is_encrypted = True

    def __init__(self, *answers: tuple[str, Rows | SourceError]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def query(self, sql: str) -> Rows:
        self.asked.append(sql)
        for word, answer in self.answers:
            if word in sql:
                if isinstance(answer, SourceError):
                    raise answer
                return answer
        return []


def server(product: Product = Product.GAUSSDB, *, has_csn_slots: bool = True) -> Server:
    return Server(
        product=product,
        version="505.2.0",
        is_primary=True,
        database="shop",
        encoding="UTF8",
        has_csn_slots=has_csn_slots,
    )


# ---------------------------------------------------------------- tables
def test_how_tables_are_stored_is_read() -> None:
    rows: Rows = [
        ["public", "astore", "p", "orientation=row,compression=no", "f", "f", "f"],
        ["public", "columns", "p", "orientation=column,compression=low", "f", "f", "f"],
        ["public", "global", "g", "orientation=row", "f", "f", "f"],
        ["public", "monthly", "p", "orientation=row", "t", "f", "f"],
        ["public", "sealed", "p", "orientation=row", "f", "t", "f"],
        ["public", "system", "p", "orientation=row", "f", "f", "t"],
        ["public", "ustore", "p", "orientation=row,STORAGE_TYPE=USTORE", "f", "f", "f"],
        ["snapshot", "wdr", "p", "", "f", "f", "f"],
        ["other", "t", "p", "", "f", "f", "f"],
    ]
    session = Answers(
        ("c.relname = 'pg_partition'", [["partstrategy"]]),
        ("c.relname = 'pg_namespace'", [["nspname"], ["nspblockchain"]]),
        ("c.relkind IN ('r', 'p') ORDER BY", rows),
    )

    # What table_schemas() asks is not answered here: no captured table is asked for.
    found = gauss_readings._tables(session, ["public.columns", "public.global"], [])
    assert [table.id for table in found] == [
        TableId("public", "columns"),
        TableId("public", "global"),
    ]
    assert [table.is_columnar for table in found] == [True, False]
    assert [table.persistence for table in found] == ["p", "g"]
    (question,) = [sql for sql in session.asked if "relpersistence" in sql]
    assert "p.partstrategy = 'i'" in question
    assert "n.nspblockchain" in question


def test_catalogs_that_are_not_there_are_not_asked() -> None:
    session = Answers()

    assert gauss_readings._tables(session, ["*.*"], []) == ()
    (question,) = [sql for sql in session.asked if "relpersistence" in sql]
    assert "pg_partition" not in question
    assert "nspblockchain" not in question


# ---------------------------------------------------------------- nodes
def test_a_node_of_a_distributed_gaussdb_is_known() -> None:
    deployed = ("gs_deployment", [["Distribute"]])
    for letter, kind in (("C", "CN"), ("D", "DN")):
        session = Answers(deployed, ("pgxc_node", [[letter, "3"]]))
        assert gauss_readings.node_of(session, server()) == (kind, 3)


def test_other_deployments_have_no_nodes() -> None:
    central = Answers(("gs_deployment", [["BusinessCentralized"]]))
    assert gauss_readings.node_of(central, server()) == ("", None)
    old = Answers(("gs_deployment", SourceError("no such function")))
    assert gauss_readings.node_of(old, server()) == ("", None)
    open_gauss = Answers()
    assert gauss_readings.node_of(open_gauss, server(Product.OPENGAUSS)) == ("", None)
    assert open_gauss.asked == []


# ---------------------------------------------------------------- roles
def test_a_role_of_opengauss_is_read() -> None:
    session = Answers(
        ("c.relname = 'pg_roles'", [["rolname"], ["rolsystemadmin"]]),
        ("FROM pg_catalog.pg_roles", [["dba", "f", "f", "t"]]),
        ("gs_role_replication", [["t"]]),
    )
    assert gauss_readings._role(session) == RoleReading(
        name="dba", is_system_admin=True, is_member=True
    )


# ---------------------------------------------------------------- facts
def slot(csn: int | None) -> SlotReading:
    return SlotReading(
        name="bank",
        plugin="mppdb_decoding",
        is_logical=True,
        database="shop",
        is_active=False,
        confirmed=Lsn(1),
        confirmed_csn=csn,
    )


def readings(csn: int | None, *, has_csn_slots: bool = True) -> Readings:
    return Readings(
        server=server(has_csn_slots=has_csn_slots),
        settings={
            "max_process_memory": "12582912",
            "logical_sender_timeout": "30000",
            "logical_decode_options_default": "",
            "enable_logical_replication_ddl": "off",
        },
        role=RoleReading(name="cdc"),
        slots=(slot(csn),),
        node="DN",
        shards=3,
    )


def test_facts_are_what_the_options_rules_look_at() -> None:
    facts = readings(2357).facts("bank")

    assert (facts.version, facts.is_standby, facts.node, facts.shards) == (
        (505, 2, 0),
        False,
        "DN",
        3,
    )
    assert (facts.has_slot, facts.confirmed_csn) == (True, 2357)
    assert (facts.max_process_memory_kb, facts.sender_timeout_ms) == (12582912, 30000)
    assert (facts.default_options, facts.ddl_is_logged) == ("", False)


def test_an_unknown_csn_is_not_zero() -> None:
    assert readings(0).facts("bank").confirmed_csn == 0
    assert readings(None, has_csn_slots=False).facts("bank").confirmed_csn is None
    other = readings(0).facts("other")
    assert (other.has_slot, other.confirmed_csn) == (False, None)


# ---------------------------------------------------------------- publications
@pytest.mark.parametrize(
    ("columns", "rows", "told"),
    [
        ([["pubname"], ["pubddl"]], [["1"]], True),
        ([["pubname"], ["pubddl"]], [], False),
        ([["pubname"]], [["1"]], False),  # before version 6
    ],
)
def test_a_publication_shows_whether_ddl_is_logged(columns: Rows, rows: Rows, told: bool) -> None:
    session = Answers(("pubddl <> 0", rows), ("pg_attribute", columns))

    assert gauss_readings.publishes_ddl(session) is told
