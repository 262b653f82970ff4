import struct

import pytest

from producer.errors import DecodeError
from producer.sources.decoders import Format
from producer.sources.gauss.decoders.lines import Lines
from producer.sources.gauss.decoders.messages import (
    Ddl,
    NamedChange,
    NamedRow,
    RowShape,
    ServerHeartbeat,
    TxBegin,
    TxCommit,
)
from schemas.positions import Lsn

AT = "2023-09-14 16:03:51.394287+08"
ROW = b"table public test1 INSERT: a[integer]:3 b[integer]:4"
CHANGE = NamedChange(
    "c",
    "public",
    "test1",
    NamedRow(RowShape(("a", "b"), (0, 0), ("integer", "integer")), [b"3", b"4"]),
    None,
)


def item(lsn: int, text: bytes) -> bytes:
    return struct.pack(">IQ", len(text) + 8, lsn) + text


BATCH = (
    item(0xCFE64D0, b"BEGIN CSN: 2359 first_lsn: 0/CFE64D0")
    + item(0xCFE6500, ROW)
    + item(0xCFE6620, b"commit xid: 78110")
    + bytes(4)
)


def decoded(
    payload: bytes, *, batch: bool = True, style: str = "t", start: int = 7
) -> list[object]:
    decoder = Lines(Format("mppdb_decoding", style, batch=batch))
    return [decoder.decode(*record) for record in decoder.split(start, payload)]


def test_lines_of_a_batch_have_positions_of_their_own() -> None:
    assert decoded(BATCH) == [
        TxBegin(csn=2359, first_lsn=Lsn(0xCFE64D0)),
        CHANGE,
        TxCommit(xid=78110, end_lsn=Lsn(0xCFE6620)),
    ]


def test_a_line_alone_has_that_of_its_header() -> None:
    assert decoded(b"commit xid: 78110", batch=False) == [TxCommit(xid=78110, commit_lsn=Lsn(7))]
    assert decoded(ROW, batch=False) == [CHANGE]


@pytest.mark.parametrize("style", ["j", "t"])
@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("BEGIN CSN: 5 first_lsn: A/B", TxBegin(csn=5, first_lsn=Lsn(0xA0000000B))),
        (
            f"BEGIN CSN: 5 first_lsn: 0/B xid: 6 commit_time: {AT} origin_id: 3",
            TxBegin(6, 5, Lsn(11), AT, origin_id=3),
        ),
        ("BEGIN CSN: 5 commit_lsn: 0/B", TxBegin(csn=5)),  # openGauss 3
        ("commit", TxCommit(commit_lsn=Lsn(7))),
        (f"commit xid: 6 (at {AT})", TxCommit(6, None, AT, commit_lsn=Lsn(7))),
        (f"commit (at {AT})", TxCommit(None, None, AT, commit_lsn=Lsn(7))),
        ("COMMIT XID: 78109", TxCommit(78109, commit_lsn=Lsn(7))),  # GaussDB
        ('{"TDDL":"CREATE  TABLE a (b \\"c\\")"}', Ddl("TDDL", 'CREATE  TABLE a (b "c")')),
    ],
)
def test_lines_of_every_product(style: str, line: str, message: object) -> None:
    assert decoded(line.encode(), batch=False, style=style) == [message]


def test_heartbeats_in_every_reading_of_the_manual() -> None:
    content = b"h" + struct.pack(">QQq", 1, 2, -3)
    beat = ServerHeartbeat(1, 2, -3)

    assert decoded(content, batch=False) == [beat]
    assert decoded(content + bytes(4)) == [beat]
    assert decoded(item(9, content) + bytes(4)) == [beat]


def test_no_prefix_of_a_batch_is_one() -> None:
    for size in range(len(BATCH)):
        with pytest.raises(DecodeError):
            decoded(BATCH[:size])
    with pytest.raises(DecodeError):
        decoded(BATCH + b"\0")


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"BEGIN",
        b"BEGIN CSN: 5 first_lsn: 0/B commit_time: 2023-09-14 16:03:51.394287",
        b"BEGIN CSN: 5 first_lsn: 0/B xid:",
        b"BEGIN CSN: 5 first_lsn: 0/B  xid: 4",
        b"commit xid: 6 (at 2023-09-14",
        b"commit xid: 6 ",
        b"rollback",
        b"h",
        b"BEGIN CSN: " + b"9" * 5000 + b" first_lsn: 0/B",
    ],
)
def test_what_is_no_line_is_refused_with_its_position(line: bytes) -> None:
    with pytest.raises(DecodeError) as caught:
        decoded(line, batch=False)

    assert caught.value.where["position"] == "0/7"
