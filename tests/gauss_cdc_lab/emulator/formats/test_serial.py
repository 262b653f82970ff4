from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.model import PROFILES, Heartbeat, Mode, Op, Row, Truncate
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, TableId
from tests.gauss_cdc_lab.emulator.formats.made import (
    insert,
    number,
    payloads,
    sent,
    starts,
    text,
    transaction,
)

TEST = Mode(plugin="test_decoding")
SQL = Mode(plugin="sql_decoding")


def test_a_begin_that_waits_for_a_row_has_no_position() -> None:
    mode = replace(TEST, skip_empty_xacts=True)

    assert starts(sent(mode, [transaction(insert(0x110)), transaction()])) == [0, 0x110, 0x1A0]


def test_a_transaction_that_logged_nothing_but_its_commit_is_not_seen() -> None:
    assert sent(TEST, [transaction(first_lsn=None)]) == []


def test_a_filtered_row_still_brings_its_delayed_begin() -> None:
    mode = replace(TEST, skip_empty_xacts=True, white_table_list=(("public", "other"),))

    assert payloads(sent(mode, [transaction(insert(0x110))])) == [
        "BEGIN 700",
        "COMMIT 700 (at 2024-12-17 10:00:00.123456+08) CSN 2700",
    ]


@pytest.mark.parametrize(
    ("listed", "passes"),
    [
        (("public", "t"), True),
        (("*", "t"), True),
        (("public", "*"), True),
        (("public", "t*"), False),
        (("Public", "t"), False),
    ],
)
def test_a_star_stands_for_a_whole_part_only(listed: tuple[str, str], passes: bool) -> None:
    mode = replace(TEST, white_table_list=(listed,))

    assert len(sent(mode, [transaction(insert(0x110))])) == 2 + passes


def test_a_transaction_from_elsewhere_is_left_out_unless_asked_for() -> None:
    foreign = transaction(insert(0x110), origin_id=3)

    assert sent(TEST, [foreign]) == []
    assert len(sent(replace(TEST, only_local=False), [foreign])) == 3


def test_the_origin_is_sent_from_version_5_on() -> None:
    mode = replace(TEST, include_originid=True, only_local=False)
    foreign = transaction(origin_id=3)

    assert payloads(sent(mode, [foreign], "og5"))[0] == "BEGIN 700 ORIGIN_ID 3"
    assert payloads(sent(mode, [foreign], "og3"))[0] == "BEGIN 700"


def test_postgres_has_no_csn() -> None:
    assert payloads(sent(TEST, [transaction()], "postgres"))[1] == (
        "COMMIT 700 (at 2024-12-17 10:00:00.123456+08)"
    )


def test_a_value_that_postgres_did_not_log_has_a_word_of_its_own() -> None:
    new = (number("id", 1), text("v", "x")._replace(value=UNCHANGED))
    update = Row(Lsn(0x110), Op.UPDATE, "public", "t", new, None)

    assert payloads(sent(TEST, [transaction(update)], "postgres"))[1] == (
        "table public.t: UPDATE: id[integer]:1 v[text]:unchanged-toast-datum"
    )
    with pytest.raises(ErrorResponse, match=r"REPLICA IDENTITY FULL"):
        sent(Mode(), [transaction(update)])


def test_truncate_is_sent_with_its_flags_from_version_6_on() -> None:
    tables = (TableId("public", "a"), TableId("public", "select"))
    emptied = transaction(Truncate(Lsn(0x110), tables, cascade=True, restart_identity=True))

    assert payloads(sent(TEST, [emptied]))[1] == (
        'table public.a, public."select": TRUNCATE: restart_seqs cascade'
    )
    assert len(sent(TEST, [emptied], "og5")) == 2


def test_a_dropped_last_column_leaves_its_comma() -> None:
    row = insert(0x110, number("a", 1))._replace(last_dropped=True)

    assert payloads(sent(SQL, [transaction(row)]))[1] == "insert into public.t values (1, );"


def test_a_heartbeat_is_not_shown_where_its_form_is_unknown() -> None:
    mode = replace(TEST, enable_heartbeat=True)

    assert sent(mode, [Heartbeat(1, 2, 3)], "gaussdb") == []


def test_generated_columns_can_be_left_out_of_new_rows_only() -> None:
    fields = (number("a", 1), number("b", 2)._replace(generated=True))
    row = Row(Lsn(0x110), Op.UPDATE, "public", "t", fields, fields)
    mode = replace(TEST, skip_generated_columns=True)

    assert payloads(sent(mode, [transaction(row)], "gaussdb"))[1] == (
        "table public.t: UPDATE: old-key: a[integer]:1 b[integer]:2 new-tuple: a[integer]:1"
    )


@pytest.mark.parametrize(
    ("mode", "product"),
    [
        (Mode(plugin="wal2json"), "og7"),
        (Mode(plugin="mppdb_decoding"), "postgres"),
        (Mode(parallel_decode_num=2), "postgres"),
        (Mode(parallel_decode_num=2, decode_style="x"), "og7"),
    ],
)
def test_a_mode_that_the_product_has_not_is_refused(mode: Mode, product: str) -> None:
    with pytest.raises(ErrorResponse):
        encoder(mode, PROFILES[product], "utf-8")
