"""What the facts about our tables mean; that the question finds them: integration/test_planted."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from schemas.ownership import LEDGER, REQUESTS, TRIGGERS, OwnTables, guard, look

Row = tuple[str, str, str, str]
ME: Row = ("", "role", "it's me", "")


def said(*facts: Row, tables: OwnTables = LEDGER) -> list[tuple[str, str]]:
    def ask(_: str) -> Sequence[Row]:
        return [*facts, ME]

    return [(str(found), found.way_out) for found in look(ask, tables).foreign]


def test_what_is_there_is_known_by_its_oid() -> None:
    rows: list[Row] = [("ledger", "there", "17", ""), ME]

    found = look(lambda _: rows, LEDGER)

    assert (found.oids, found.foreign) == ({"ledger": 17}, ())


def test_the_worst_is_said_first_with_a_way_out_that_can_be_pasted() -> None:
    found = said(
        ("tables", "trigger", 'a "t"', ""),
        ("ledger", "default", "x", "f()"),
        ("ledger", "owner", "eve", ""),
        ("", "schema", "eve", ""),
    )

    assert [words.partition(":")[0] for words, _ in found] == [
        "schema gauss_cdc is not ours",
        "gauss_cdc.ledger is not ours",
        "gauss_cdc.tables is not ours",
    ]
    assert found[0][1].startswith('ALTER SCHEMA gauss_cdc OWNER TO "it\'s me" if')
    assert found[1][1].startswith('ALTER TABLE gauss_cdc.ledger OWNER TO "it\'s me" if')
    assert found[2][1] == 'DROP TRIGGER "a ""t""" ON gauss_cdc.tables'


def test_a_name_of_hers_is_no_part_of_a_statement() -> None:
    ((_, way_out),) = said(("stage_; DROP TABLE x --", "rule", "r", ""))

    assert way_out == 'DROP RULE "r" ON gauss_cdc."stage_; DROP TABLE x --"'


@pytest.mark.parametrize(
    "expression",
    [
        "now()", "clock_timestamp()", "pg_current_xact_id()", "pg_systimestamp()", "SESSION_USER",
        '"session_user"()', "false", "0", "(-1)", "'0'::bigint", "'x'::character varying",
        "nextval('gauss_cdc.snapshot_requests_number_seq'::regclass)",
    ],
)  # fmt: skip
def test_defaults_of_ours(expression: str) -> None:
    """Of any release and product, as a session prints them that searches pg_catalog alone."""
    assert said(("ledger", "default", "x", expression)) == []


@pytest.mark.parametrize(
    "expression",
    [
        "hers.now()", "f(1)", "query_to_xml('SELECT f()'::text, true, true, ''::text)",
        "'x'::hers.text", "(id + 1)", "nextval('hers.s'::regclass)", "''::text || hers.f()",
        "'it''s'::text", "(SELECT hers.f())", "now() + hers.f()",
    ],
)  # fmt: skip
def test_defaults_that_may_be_others(expression: str) -> None:
    assert len(said(("ledger", "default", "x", expression))) == 1


def test_what_tables_of_ours_have_besides() -> None:
    """Staging tables have the target's types, the log has row security."""
    types, policies = ("stage_1", "type", "c0", ""), ("ddl_log", "policies", "", "")

    assert (said(types), said(policies, tables=TRIGGERS)) == ([], [])
    assert len(said(("ledger", "type", "c0", ""))) == 1
    assert len(said(("snapshot_requests", "policies", "", ""), tables=REQUESTS)) == 1


def test_a_guard_names_table_and_oid() -> None:
    text = guard("ledger", 17)

    assert text.startswith("LOCK TABLE gauss_cdc.ledger IN ACCESS SHARE MODE; ")
    assert "WHEN 17 THEN" in text


def test_tables_are_asked_for_by_name_and_by_how_they_begin() -> None:
    asked: list[str] = []

    def ask(question: str) -> Sequence[Row]:
        asked.append(question)
        return [ME]

    look(ask, replace(LEDGER, prefixes=("load_", "shadow_")))

    assert all(f"relname::text, '{begin}') = 1" in asked[0] for begin in ("load_", "shadow_"))


def test_what_runs_with_the_rights_of_a_superuser_belongs_to_one() -> None:
    asked: list[str] = []
    for superusers in (True, False):
        look(lambda question: [asked.append(question) or ME], LEDGER, superusers=superusers)  # type: ignore[func-returns-value]

    assert ["pg_database" in question for question in asked] == [False, True]
