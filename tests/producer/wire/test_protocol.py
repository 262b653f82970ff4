import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DecodeError
from producer.wire import protocol
from producer.wire.protocol import Answer, Copying, Frame, Frames, ResultColumn, ServerError

SAID = (
    protocol.frame(b"S", b"server_version\x0015.1\0")
    + protocol.frame(b"Z", b"I")
    + protocol.frame(b"D", b"\0\1\xff\xff\xff\xff")
)


def test_frames_fed_byte_by_byte_are_the_frames_fed_whole() -> None:
    whole = list(Frames().feed(SAID))
    frames = Frames()
    single = [frame for byte in SAID for frame in frames.feed(bytes([byte]))]

    assert single == whole
    assert [frame.tag for frame in whole] == ["S", "Z", "D"]
    assert frames.rest() == b""


@given(st.lists(st.tuples(st.sampled_from("ABdZ"), st.binary(max_size=40))), st.data())
def test_frames_do_not_depend_on_how_bytes_are_cut(
    bodies: list[tuple[str, bytes]], data: st.DataObject
) -> None:
    sent = b"".join(protocol.frame(tag.encode(), body) for tag, body in bodies)
    cut = data.draw(st.integers(0, len(sent)))
    frames = Frames()

    got = [*frames.feed(sent[:cut]), *frames.feed(sent[cut:])]

    assert got == [Frame(tag, body) for tag, body in bodies]


@pytest.mark.parametrize("length", [0, 3, 101, 0xFFFF_FFFF])
def test_a_length_out_of_bounds_is_refused_before_its_bytes_are_waited_for(length: int) -> None:
    with pytest.raises(DecodeError, match="length out of bounds"):
        list(Frames(max_bytes=100).feed(b"D" + struct.pack(">I", length)))


def test_unrequested_frames_are_left_as_bytes() -> None:
    frames = Frames()

    first = next(frames.feed(SAID))

    assert first.tag == "S"
    assert protocol.frame(first.tag.encode(), first.body) + frames.rest() == SAID


def test_a_frame_prints_short() -> None:
    assert repr(Frame("d", b"x" * 1000)) == "Frame(tag='d', 1000 bytes: 7878787878787878..)"


def test_what_we_say_is_what_the_manual_shows() -> None:
    assert protocol.startup({"user": "u"}) == bytes.fromhex("00000010 00030000 7573657200 7500 00")
    assert protocol.ssl_request() == bytes.fromhex("00000008 04d2162f")
    assert protocol.query("X") == b"Q\0\0\0\6X\0"
    assert protocol.password(b"p\0") == b"p\0\0\0\6p\0"
    assert protocol.copy_data(b"r") == b"d\0\0\0\5r"
    assert protocol.copy_done() == b"c\0\0\0\4"
    assert protocol.terminate() == b"X\0\0\0\4"


def test_a_zero_byte_cannot_end_a_string_early() -> None:
    with pytest.raises(ValueError, match="zero byte"):
        protocol.query("SELECT 1\0; DROP")


def test_an_error_is_read_by_its_letters_and_unknown_letters_are_skipped() -> None:
    body = b"SFEHLER\0VFATAL\0C57P01\0Mbye\0Dd\0Hh\0?x\0\0"

    assert ServerError.parse(body) == ServerError("FATAL", "57P01", "bye", "d", "h")


def test_an_error_in_another_encoding_is_still_readable() -> None:
    assert ServerError.parse(b"SFEHLER\0Mf\xfcr\0\0").message == "f\ufffdr"


def test_a_query_is_answered_by_rows_of_its_last_statement() -> None:
    answer = Answer()
    row_description = b"\0\1v\0" + bytes(6) + struct.pack(">IhiH", 25, -1, -1, 0)
    frames = [
        Frame("T", row_description),
        Frame("D", b"\0\1\0\0\0\1a"),
        Frame("C", b"SELECT 1\0"),
        Frame("T", row_description),
        Frame("D", b"\0\2\0\0\0\0\xff\xff\xff\xff"),
        Frame("C", b"SELECT 1\0"),
    ]

    assert not any(answer.take(frame) for frame in frames)
    assert answer.take(Frame("Z", b"I"))
    assert answer.rows == [["", None]]
    assert answer.columns == (ResultColumn("v", 25),)
    assert answer.command == "SELECT 1"


def test_the_first_error_of_an_answer_counts() -> None:
    answer = Answer()
    answer.take(Frame("E", b"C42601\0\0"))
    answer.take(Frame("E", b"C57P01\0\0"))

    assert answer.error is not None
    assert answer.error.sqlstate == "42601"


def test_notices_are_kept_and_streaming_ends_the_answer() -> None:
    answer = Answer()

    assert not answer.take(Frame("N", b"C00000\0Mhello\0\0"))
    assert not answer.take(Frame("S", b"TimeZone\0UTC\0"))
    assert answer.take(Frame("W", b"\0\0\0"))
    assert answer.copying is Copying.BOTH
    assert [notice.message for notice in answer.notices] == ["hello"]


def test_a_frame_that_is_no_answer_is_refused() -> None:
    with pytest.raises(DecodeError, match="unexpected frame"):
        Answer().take(Frame("d", b""))


@pytest.mark.parametrize("body", [b"", b"\0\1", b"\0\1\xff\xff\xff\xfe", b"\0\0x"])
def test_a_broken_row_is_refused(body: bytes) -> None:
    with pytest.raises(DecodeError):
        protocol.parse_cells(body)


def test_an_answer_says_what_the_connection_has_turned_to() -> None:
    sending, receiving = Answer(), Answer()

    assert sending.take(Frame("G", b"\0\0\0"))
    assert receiving.take(Frame("H", b"\0\0\0"))
    assert (sending.copying, receiving.copying) == (Copying.IN, Copying.OUT)


def test_rows_are_kept_as_bytes_until_text_is_requested() -> None:
    answer = Answer()
    answer.take(Frame("D", b"\0\1\0\0\0\2\xc4\xe3"))  # GBK in a database without an encoding

    assert answer.cells == [[b"\xc4\xe3"]]
    with pytest.raises(DecodeError, match="not UTF-8"):
        _ = answer.rows


def test_the_state_of_the_transaction_is_reported() -> None:
    answer = Answer()

    assert answer.take(Frame("Z", b"E"))
    assert answer.status == "E"


def test_startup_names_the_version_it_wants() -> None:
    assert protocol.startup({"user": "u"})[4:8] == b"\0\3\0\0"
    assert protocol.startup({"user": "u"}, version=protocol.V3_51)[4:8] == b"\0\3\0\x33"


@pytest.mark.parametrize(
    ("body", "minor"),
    [
        (b"\0\3\0\0" + b"\0\0\0\0", 0),  # PostgreSQL 15, whole number
        (b"\0\0\0\2" + b"\0\0\0\1_pq_.x\0", 2),  # as the manual has it
    ],
)
def test_a_server_may_offer_an_older_version(body: bytes, minor: int) -> None:
    assert protocol.parse_negotiated(body) == minor


def test_openGauss_has_error_fields_of_its_own() -> None:  # noqa: N802  a name
    error = ServerError.parse(b"SFATAL\0c18645\0mgone\0C42704\0dBACKEND\0\0")

    assert (error.severity, error.sqlstate, error.message) == ("FATAL", "42704", "gone")
    assert (error.number, error.module) == ("18645", "BACKEND")


def test_settings_and_process_id_are_read() -> None:
    assert protocol.parse_parameter(b"TimeZone\0UTC\0") == ("TimeZone", "UTC")
    assert protocol.parse_backend_key(b"\0\0\1\0\0\0\0\7") == 256
