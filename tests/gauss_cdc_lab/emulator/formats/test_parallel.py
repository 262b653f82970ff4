from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.model import Ddl, Heartbeat, Mode, Truncate
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.gauss_cdc_lab.emulator.formats.made import (
    insert,
    payloads,
    sent,
    starts,
    text,
    transaction,
)

TEXT = Mode(parallel_decode_num=2, decode_style="t", include_timestamp=False)
BATCH = replace(TEXT, sending_batch=True)
SKIP = replace(TEXT, skip_empty_xacts=True)
BINARY = replace(TEXT, decode_style="b")


def test_positions_never_go_back_once_there_is_one() -> None:
    early = transaction(insert(0x110), insert(0x120), at=0x100)
    late = transaction(insert(0x108), insert(0x1F0), at=0x180)

    # The first BEGIN has the commit record of its own transaction, having nothing else.
    assert starts(sent(TEXT, [early, late])) == [
        *(0x180, 0x110, 0x120, 0x180),
        *(0x180, 0x180, 0x1F0, 0x200),
    ]


def test_a_delayed_begin_has_reached_its_first_row() -> None:
    assert starts(sent(SKIP, [transaction(), transaction(insert(0x110))])) == [0x110, 0x110, 0x180]


def test_filtered_rows_are_as_if_they_were_not_there() -> None:
    mode = replace(SKIP, white_table_list=(("public", "t"),))
    other = transaction(insert(0x110, table="other"))

    assert sent(mode, [other]) == []
    # An empty transaction starts at its commit record.
    assert payloads(sent(replace(mode, skip_empty_xacts=False), [other])) == [
        "BEGIN CSN: 2700 first_lsn: 0/180 xid: 700",
        "commit xid: 700",
    ]


@pytest.mark.parametrize(
    "change",
    [Ddl(Lsn(0x118)), Truncate(Lsn(0x118), (TableId("public", "t"),))],
    ids=["ddl", "truncate"],
)
def test_rows_after_ddl_are_lost_and_ddl_is_not_sent(change: Ddl | Truncate) -> None:
    done = transaction(insert(0x110), change, insert(0x120))

    assert payloads(sent(TEXT, [done])) == [
        "BEGIN CSN: 2700 first_lsn: 0/110 xid: 700",
        "table public t INSERT: a[integer]:1",
        "commit xid: 700",
    ]


def test_a_batch_goes_when_it_is_longer_than_a_mebibyte_with_its_header() -> None:
    begin, row = (
        12 + len("BEGIN CSN: 2700 first_lsn: 0/110 xid: 700"),
        12 + len("table public t INSERT: v[text]:''"),
    )
    commit, end = 12 + len("commit xid: 700"), 4
    limit = (1 << 20) - 25

    def first(length: int) -> int:
        big = insert(0x110, text("v", "x" * (length - begin - row)))
        return len(sent(BATCH, [transaction(big)])[0].payload)

    assert first(limit) == limit + commit + end
    assert first(limit + 1) == limit + 1 + end


def test_a_full_batch_has_the_last_position_and_a_paused_one_its_first_commit() -> None:
    big = text("v", "x" * (1 << 20))
    first, second = transaction(insert(0x110, big)), transaction(insert(0x210), at=0x200)

    full, paused = sent(BATCH, [first, second])

    assert (full.start, paused.start) == (0x110, 0x180)


def test_nothing_waits_after_a_pause() -> None:
    assert sent(BATCH, []) == []


@pytest.mark.parametrize(
    ("mode", "ends"),
    [
        (BINARY, (b"F", b"F")),
        (replace(BINARY, sending_batch=True), (b"P\0\0\0\0", b"F")),
        (TEXT, (b"commit xid: 700", b"")),
        (BATCH, (b"commit xid: 700\0\0\0\0", b"\0\0\0\0")),
    ],
    ids=["b", "b batched", "t", "t batched"],
)
def test_a_heartbeat_goes_alone_behind_what_waits(mode: Mode, ends: tuple[bytes, bytes]) -> None:
    beat = Heartbeat(0x200, 0x1F0, 5)
    reported = replace(mode, enable_heartbeat=True)

    messages = sent(reported, [transaction(), beat], "gaussdb")

    content = bytes.fromhex("68 0000000000000200 00000000000001f0 0000000000000005")
    assert messages[-1].start == 0x200
    assert messages[-1].payload.endswith(content + ends[1])
    assert messages[-2].payload.lower().endswith(ends[0].lower())
    assert sent(reported, [beat], "og7") == []


def test_csn_order_keeps_batches_to_one_transaction() -> None:
    mode = replace(BINARY, sending_batch=True, output_order=1)
    done = [transaction(insert(0x110), insert(0x118)), transaction(xid=701)]

    messages = sent(mode, done, "gaussdb")

    assert starts(messages) == [2700, 2700, 2700, 2701, 2701]
    assert [each.payload[12:13] for each in messages] == [b"B", b"I", b"C", b"B", b"C"]
    assert [each.payload[-5:] for each in messages[:2]] == [
        messages[0].payload[-5:-1] + b"F",
        b"P\0\0\0\0",
    ]


def test_an_excluded_user_changed_nothing() -> None:
    mode = replace(SKIP, exclude_users=frozenset({"sync"}))

    assert sent(mode, [transaction(insert(0x110), user="sync")], "gaussdb") == []
    assert len(sent(mode, [transaction(insert(0x110), user="app")], "gaussdb")) == 3


def test_version_3_named_the_first_position_otherwise() -> None:
    assert payloads(sent(TEXT, [transaction()], "og3")) == [
        "BEGIN CSN: 2700 commit_lsn: 0/180",
        "commit xid: 700",
    ]


def test_everything_that_a_begin_can_have() -> None:
    mode = replace(TEXT, include_timestamp=True, include_originid=True)

    assert payloads(sent(mode, [transaction()])) == [
        (
            "BEGIN CSN: 2700 first_lsn: 0/180 xid: 700"
            " commit_time: 2024-12-17 10:00:00.123456+08 origin_id: 0"
        ),
        "commit xid: 700 (at 2024-12-17 10:00:00.123456+08)",
    ]


def test_nothing_that_a_begin_need_not_have() -> None:
    mode = replace(TEXT, include_xids=False)

    assert payloads(sent(mode, [transaction()])) == ["BEGIN CSN: 2700 first_lsn: 0/180", "commit"]
