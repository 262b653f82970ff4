import contextlib
import itertools
import struct
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DecodeError
from producer.native import MODULE
from producer.wire import protocol
from producer.wire.protocol import Frame
from producer.wire.replication import (
    NOWHERE,
    OPENGAUSS,
    POSTGRES,
    Dialect,
    Received,
    Split,
    Stream,
    split,
    status_update,
)
from schemas.positions import Lsn, parse_lsn
from tests.producer.wire.server_side import StatusUpdate, keepalive, xlog_data
from tests.producer.wire.transcripts import Conversation, all_conversations

SPLITS: list[Split] = [split] if MODULE is None else [split, MODULE.split]


def data(start: int, payload: bytes) -> bytes:
    return protocol.copy_data(xlog_data(Lsn(start), Lsn(start), payload))


def alive(end: int, *, reply: bool = False) -> bytes:
    return protocol.copy_data(keepalive(Lsn(end), reply=reply))


SAID = (
    data(0x10, b"B" * 20)
    + alive(0x18)
    + data(0x20, b"")
    + data(0, b"R" * 50)
    + alive(0x30, reply=True)
    + protocol.frame(b"N", b"\0")
    + data(0x40, b"C")
    + alive(0x48)
    + protocol.copy_done()
)


def merged(parts: list[Received]) -> Received:
    ends = [part.keepalive_end for part in parts if part.keepalive_end]
    return Received(
        [message for part in parts for message in part.messages],
        ends[-1] if ends else NOWHERE,
        any(part.reply_requested for part in parts),
    )


def test_a_read_gives_messages_in_order_and_the_newest_keepalive() -> None:
    stream = Stream()

    received = stream.feed(SAID)

    assert received.messages == [
        (0x10, 0x10, b"B" * 20),
        (0x20, 0x20, b""),
        (0, 0, b"R" * 50),
        (0x40, 0x40, b"C"),
    ]
    assert received.keepalive_end == Lsn(0x48)
    assert received.reply_requested
    assert stream.received_end == Lsn(0x48)
    assert stream.others == [Frame("N", b"\0"), Frame("c", b"")]


def test_a_stream_fed_byte_by_byte_is_the_stream_fed_whole() -> None:
    whole, single = Stream(), Stream()
    expected = whole.feed(SAID)

    assert merged([single.feed(bytes([byte])) for byte in SAID]) == expected
    assert single.others == whole.others
    assert single.received_end == whole.received_end


@given(st.lists(st.integers(0, len(SAID)), max_size=6))
def test_a_stream_does_not_depend_on_how_bytes_are_cut(cuts: list[int]) -> None:
    stream = Stream()
    edges = [0, *sorted(cuts), len(SAID)]

    parts = [stream.feed(SAID[a:b]) for a, b in itertools.pairwise(edges)]

    assert merged(parts) == Stream().feed(SAID)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_stream_or_a_decode_error(said: bytes) -> None:
    with contextlib.suppress(DecodeError):
        Stream(max_bytes=1000).feed(said)


frames = st.one_of(
    st.builds(data, st.integers(0, 2**64 - 1), st.binary(max_size=60)),
    st.builds(alive, st.integers(0, 2**64 - 1), reply=st.booleans()),
    st.builds(
        lambda body: protocol.copy_data(keepalive(Lsn(body), dialect=OPENGAUSS)), st.integers(0, 9)
    ),
    st.builds(protocol.frame, st.sampled_from([b"N", b"E", b"c", b"d", b"w"]), st.binary()),
    st.builds(  # of any length, and perhaps not there
        lambda tag, length, body: tag + struct.pack(">I", length) + body,
        st.sampled_from([b"d", b"w"]),
        st.integers(0, 40) | st.integers(0, 2**32 - 1),
        st.binary(max_size=60) | st.binary(max_size=60).map(lambda body: b"w" + body),
    ),
)


@dataclass
class Fed:
    """What a stream made of each piece, up to an error."""

    parts: list[Received]
    others: list[Frame]
    end: Lsn
    error: str

    @classmethod
    def all_of(cls, pieces: list[bytes], **options: Any) -> "Fed":
        stream, parts, error = Stream(max_bytes=1000, **options), [], ""
        try:
            for piece in pieces:
                parts.append(stream.feed(piece))  # noqa: PERF401  those before an error count, too
        except DecodeError as raised:
            error = str(raised)
        return cls(parts, stream.others, stream.received_end, error)


@given(
    st.lists(frames, max_size=8).map(b"".join),
    st.lists(st.integers(0, 600), max_size=6),
    st.sampled_from([POSTGRES, OPENGAUSS]),
)
def test_frames_cut_natively_are_those_cut_in_python(
    said: bytes, cuts: list[int], dialect: Dialect
) -> None:
    edges = [0, *sorted(min(cut, len(said)) for cut in cuts), len(said)]
    pieces = [said[a:b] for a, b in itertools.pairwise(edges)]

    expected = Fed.all_of(pieces, dialect=dialect)

    for other in SPLITS:
        assert Fed.all_of(pieces, dialect=dialect, split=other) == expected


@pytest.mark.parametrize("cut", SPLITS)
def test_splitting_begins_anywhere_and_adds_to_what_is_there(cut: Split) -> None:
    said, messages = b"N\0\0\0\4" + data(7, b"x") + data(8, b"y") + alive(9), [(1, 2, b"old")]

    assert cut(said, 5, 100, messages) == 5 + 31 + 31
    assert messages == [(1, 2, b"old"), (7, 7, b"x"), (8, 8, b"y")]
    assert cut(said, 0, 100, messages) == 0
    assert cut(said, len(said), 100, messages) == len(said)


def test_a_large_message_is_joined_when_it_is_whole() -> None:
    stream, payload = Stream(), bytes(range(256)) * 4096
    sent = data(1, payload)

    parts = [stream.feed(sent[i : i + 1000]) for i in range(0, len(sent), 1000)]

    assert all(not part.messages for part in parts[:-1])
    assert parts[-1].messages == [(1, 1, payload)]


@pytest.mark.parametrize(
    "said", [data(1, b"x" * 100), b"Z\0\0\0\3", b"d\xff\xff\xff\xff" + b"w" * 40]
)
def test_a_length_out_of_bounds_is_refused(said: bytes) -> None:
    with pytest.raises(DecodeError, match="length out of bounds"):
        Stream(max_bytes=100).feed(said)


@pytest.mark.parametrize(
    "body",
    [b"", b"x" + bytes(24), b"w" + bytes(23), b"k" + bytes(16), b"k" + bytes(18), b"w"],
)
def test_copy_data_of_another_kind_or_size_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError, match="not a message of a replication stream"):
        Stream().feed(protocol.copy_data(body) + alive(1))


def test_a_status_update_is_what_the_manual_shows() -> None:
    body = status_update(write=Lsn(0x30), flush=Lsn(0x20), sent_at_us=5, reply=True)

    assert body == bytes.fromhex(
        "72 0000000000000030 0000000000000020 0000000000000020 0000000000000005 01"
    )
    assert StatusUpdate.parse(body) == StatusUpdate(
        Lsn(0x30), Lsn(0x20), Lsn(0x20), sent_at_us=5, reply=True
    )


@pytest.mark.parametrize("body", [b"", b"r", b"h" + bytes(33), b"r" + bytes(34)])
def test_what_is_no_status_update_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        StatusUpdate.parse(body)


# ---- openGauss, as recorded


def copied(talk: Conversation, who: str) -> list[bytes]:
    """Bodies of all CopyData messages that one side sent."""
    return [message[5:] for by, message in talk.said if by == who and message[:1] == b"d"]


def test_every_recorded_stream_is_read() -> None:
    streams = [talk for talk in all_conversations() if copied(talk, "S")]

    for talk in streams:
        bodies = copied(talk, "S")
        stream = Stream(dialect=OPENGAUSS)
        received = stream.feed(b"".join(protocol.copy_data(body) for body in bodies))

        assert [payload for _, _, payload in received.messages] == [
            body[25:] for body in bodies if body[:1] == b"w"
        ]
        ends = [int.from_bytes(body[1:9], "little") for body in bodies if body[:1] == b"k"]
        assert received.keepalive_end == ends[-1]
    assert len(streams) > 20


def test_a_keepalive_is_the_servers_own_memory() -> None:
    # A worked example: end 0/CFE5E68, PRIMARY, NORMAL, reply asked for.
    body = bytes.fromhex("6B 685EFE0C00000000 02000000 01000000 00C0A3775BCC0200 01 00000000000000")
    quiet = body[:25] + b"\0" + body[26:]

    assert len(body) == 33
    asking = Stream(dialect=OPENGAUSS).feed(protocol.copy_data(body))
    assert (asking.keepalive_end, asking.reply_requested) == (parse_lsn("0/CFE5E68"), True)
    assert not Stream(dialect=OPENGAUSS).feed(protocol.copy_data(quiet)).reply_requested


@pytest.mark.parametrize("size", [17, 31, 33])
def test_a_keepalive_of_another_product_is_refused(size: int) -> None:
    with pytest.raises(DecodeError, match="not a message of a replication stream"):
        Stream(dialect=OPENGAUSS).feed(protocol.copy_data(b"k" + bytes(size)) + data(1, b""))


def test_every_recorded_status_update_is_the_one_we_would_send() -> None:
    bodies = [
        body
        for talk in all_conversations()
        for body in copied(talk, "C")
        if talk.case != "PostgreSQL-shaped status update"
    ]

    for body in bodies:
        # The recording client filled in all but applyRead and asked for a reply.
        at = Lsn(int.from_bytes(body[17:25], "little"))
        ours = status_update(
            write=at,
            flush=at,
            sent_at_us=int.from_bytes(body[49:57], "little"),
            reply=bool(body[57]),
            dialect=OPENGAUSS,
        )
        assert ours[:33] + bytes(8) + ours[41:] == body
        assert StatusUpdate.parse(body, OPENGAUSS).flush == at
    assert len(bodies) > 8


def test_a_status_update_is_what_the_specification_shows() -> None:
    at = parse_lsn("0/CFE5E68")
    shown = bytes.fromhex(
        "72 685EFE0C00000000 685EFE0C00000000 685EFE0C00000000 0000000000000000"
        "0000000000000000 00000000 00000000 00C0A3775BCC0200 00 000000 00000000"
    )
    said = StatusUpdate.parse(shown, OPENGAUSS)

    assert (said.write, said.flush, said.apply) == (at, at, 0)
    ours = status_update(write=at, flush=at, sent_at_us=said.sent_at_us, dialect=OPENGAUSS)
    assert len(ours) == 65
    assert ours[:25] == shown[:25]
    assert ours[41:] == shown[41:]


def test_a_server_reads_more_than_a_status_update_but_never_less() -> None:
    body = status_update(write=Lsn(2), flush=Lsn(1), sent_at_us=0, dialect=OPENGAUSS)

    assert StatusUpdate.parse(body + b"more", OPENGAUSS).flush == Lsn(1)
    with pytest.raises(DecodeError):
        StatusUpdate.parse(body[:-1], OPENGAUSS)
    with pytest.raises(DecodeError):
        StatusUpdate.parse(status_update(write=Lsn(2), flush=Lsn(1), sent_at_us=0), OPENGAUSS)


def test_an_emulator_builds_what_a_client_reads() -> None:
    body = keepalive(Lsn(7), reply=True, dialect=OPENGAUSS)

    received = Stream(dialect=OPENGAUSS).feed(protocol.copy_data(body))
    assert (received.keepalive_end, received.reply_requested) == (Lsn(7), True)
