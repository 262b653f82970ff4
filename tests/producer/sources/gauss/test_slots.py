"""Slots as openGauss and GaussDB show them, on answers written down here."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from producer.errors import (
    DecodersBusy,
    SlotAhead,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotOrphaned,
    SourceError,
)
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.slots import OpenTransaction, SlotReading
from schemas.positions import parse_lsn

Rows = list[list[str | None]]

OPENGAUSS_COLUMNS: Rows = [
    [name]
    for name in (
        *("slot_name", "plugin", "slot_type", "datoid", "database", "active", "xmin"),
        *("catalog_xmin", "restart_lsn", "dummy_standby", "confirmed_flush"),
    )
]


class Answers:
    """Answers by a word in the question; keeps what was asked."""

    def __init__(self, answers: Mapping[str, Rows]) -> None:
        self.answers = answers
        self.asked: list[str] = []

    def query(self, sql: str) -> Rows:
        self.asked.append(sql)
        for word, rows in self.answers.items():
            if word in sql:
                return rows
        raise AssertionError(sql)


def slot(**more: object) -> SlotReading:
    given: dict[str, object] = {
        "name": "bank",
        "plugin": "mppdb_decoding",
        "is_logical": True,
        "database": "shop",
        "is_active": False,
        "restart_lsn": "0/3237980",
        "confirmed": parse_lsn("0/3237A00"),
    }
    return SlotReading(**{**given, **more})  # type: ignore[arg-type]


# ---------------------------------------------------------------- reading
def test_an_opengauss_slot_is_read() -> None:
    row: list[str | None] = [
        *("bank", "mppdb_decoding", "logical", "shop", "f", "15484", "0/3237980"),
        *("0/3237A00", None),
    ]
    session = Answers({"pg_attribute": OPENGAUSS_COLUMNS, "FROM pg_catalog.pg_replic": [row]})

    assert gauss_slots.slots(session) == [slot(catalog_xmin="15484")]
    assert "confirmed_flush::text, NULL" in session.asked[-1]
    assert gauss_slots.slots(session)[0].confirmed_csn is None


def test_a_gaussdb_slot_says_what_it_is_ordered_by() -> None:
    columns: Rows = [*OPENGAUSS_COLUMNS, ["confirmed_csn"]]
    by_csn: list[str | None] = ["a", "p", "logical", "shop", "t", None, "0/1", "0/2", "2357"]
    by_lsn: list[str | None] = ["b", "p", "logical", "shop", "t", None, "0/1", "0/2", None]
    session = Answers({"pg_attribute": columns, "FROM pg_catalog.pg_replic": [by_csn, by_lsn]})

    found = gauss_slots.slots(session)

    assert [one.ordered_by for one in found] == ["csn", "lsn"]
    assert [one.confirmed_csn for one in found] == [2357, 0]


def test_a_physical_slot_has_no_plugin_and_no_database() -> None:
    row: list[str | None] = ["dn_6002", None, "physical", None, "t", None, "0/9", None, None]
    session = Answers({"pg_attribute": OPENGAUSS_COLUMNS, "FROM pg_catalog.pg_replic": [row]})

    (found,) = gauss_slots.slots(session)

    assert (found.is_logical, found.plugin, found.is_orphaned, found.is_backup) == (
        False,
        "",
        False,
        False,
    )


def test_a_slot_is_asked_for_by_name() -> None:
    session = Answers({"pg_attribute": OPENGAUSS_COLUMNS, "FROM pg_catalog.pg_replic": []})

    assert gauss_slots.find(session, "it's") is None
    assert "WHERE slot_name = 'it''s'" in session.asked[-1]


# ---------------------------------------------------------------- what is wrong with it
def usable(found: SlotReading | None) -> SlotReading:
    return gauss_slots.check_usable(found, name="bank", plugin="mppdb_decoding", database="shop")


def test_a_good_slot_is_given_back() -> None:
    assert usable(slot()).restart == parse_lsn("0/3237980")


@pytest.mark.parametrize(
    ("found", "error", "way_out"),
    [
        (None, SlotMissing, "--accept-gap"),
        (slot(database=""), SlotOrphaned, "--accept-gap"),
        (slot(database="other"), SlotMismatch, "another name"),
        (slot(plugin="sql_decoding"), SlotMismatch, "another name"),
        (slot(is_logical=False, plugin="", database=""), SlotMismatch, "another name"),
        (slot(restart_lsn="FFFFFFFF/FFFFFFFF"), SlotInvalid, "max_size_for_xlog_retention"),
        (slot(restart_lsn="7FFFFFFF/FFFFFFFF"), SlotInvalid, "max_size_for_xlog_retention"),
        (slot(restart_lsn="ffffffff/ffffffff"), SlotInvalid, "max_size_for_xlog_retention"),
    ],
)
def test_each_trouble_has_its_class_and_its_way_out(
    found: SlotReading | None, error: type[SourceError], way_out: str
) -> None:
    with pytest.raises(error) as caught:
        usable(found)

    assert caught.value.where["slot"] == "bank"
    assert way_out in caught.value.hint


def test_an_invalid_slot_keeps_no_log() -> None:
    assert slot(restart_lsn="FFFFFFFF/FFFFFFFF").restart is None


def test_a_slot_that_another_client_moved_is_detected() -> None:
    gauss_slots.check_not_moved(slot(), parse_lsn("0/3237A00"))
    with pytest.raises(SlotAhead, match="another client moved the slot"):
        gauss_slots.check_not_moved(slot(), parse_lsn("0/32379FF"))


def test_a_twenty_first_decoder_is_refused_before_the_server_does() -> None:
    busy = [slot(name=f"s{n}", is_active=True) for n in range(20)]
    idle = [slot(name="idle"), slot(name="phys", is_logical=False, is_active=True)]

    gauss_slots.check_decoders([*busy[:19], *idle], "bank")
    gauss_slots.check_decoders(busy, "s3")  # one of them is ours
    with pytest.raises(DecodersBusy, match="decodes 20 slots at a time"):
        gauss_slots.check_decoders(busy, "bank")


# ---------------------------------------------------------------- making
def test_a_slot_in_the_order_of_csns_is_made_by_sql_only() -> None:
    session = Answers({"pg_create_logical": [["bank", "0/935"]]})

    assert gauss_slots.create_by_sql(session, "bank", "mppdb_decoding", ordered_by="csn") == "0/935"
    assert "('bank', 'mppdb_decoding', 1)" in session.asked[0]
    gauss_slots.create_by_sql(session, "bank", "mppdb_decoding", ordered_by="lsn")
    assert "('bank', 'mppdb_decoding')" in session.asked[1]


def test_blockers_of_a_thread_pool_are_found_by_session() -> None:
    session = Answers(
        {
            "'sessionid'": [["2"]],
            "pg_locks l": [
                ["140", "etl", "load", "idle in transaction", "2026-11-21 05:48:09+08", "75"],
                ["141", None, None, None, None, None],
                ["99", "cdc", "", "active", None, None],
            ],
            "pg_prepared": [["tx-1", "app", "2026-11-20 01:00:00+08", "9"]],
        }
    )

    found = gauss_slots.blockers(session, but="99")

    assert "a.sessionid = l.sessionid" in session.asked[1]
    assert [blocker.seconds for blocker in found] == [75, None, 9]
    assert [str(blocker) for blocker in found] == [
        (
            "session 140, user etl, application load, idle in transaction, "
            "in a transaction since 2026-11-21 05:48:09+08"
        ),
        "session 141",
        (
            "prepared transaction tx-1, user app, prepared, "
            "in a transaction since 2026-11-20 01:00:00+08"
        ),
    ]


def test_a_session_that_grows_older_is_no_other_one() -> None:
    session = OpenTransaction(
        "140", "etl", "load", "idle in transaction", "2026-11-21 05:48:09", seconds=6
    )

    assert session == replace(session, seconds=11)
    assert session != replace(session, pid="141")


def test_a_position_comes_back_in_small_letters() -> None:
    session = Answers({"slot_advance": [["bank", "0/3237a00"]]})

    assert gauss_slots.advance(session, "bank", parse_lsn("0/3237A00")) == parse_lsn("0/3237A00")
    assert "('bank', '0/3237A00')" in session.asked[0]
