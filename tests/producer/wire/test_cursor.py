import pytest

from producer.errors import DecodeError
from producer.wire.cursor import Cursor
from schemas.positions import parse_lsn


def test_numbers_are_big_endian_and_signed_where_they_say_so() -> None:
    cur = Cursor(bytes.fromhex("ff 0102 00000003 fffffffe 00000016b374d848"))

    assert (cur.u8(), cur.u16(), cur.u32(), cur.i32()) == (255, 258, 3, -2)
    assert cur.lsn() == parse_lsn("16/B374D848")
    cur.finish()


@pytest.mark.parametrize("read", ["u8", "u16", "u32", "i32", "lsn", "cstr"])
def test_nothing_is_read_past_the_end(read: str) -> None:
    with pytest.raises(DecodeError):
        getattr(Cursor(b""), read)()


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(DecodeError, match="ends early"):
        Cursor(b"abc", 2).take(-1)


def test_bytes_left_over_are_an_error() -> None:
    cur = Cursor(b"a\0b")

    assert cur.cstr() == "a"
    with pytest.raises(DecodeError, match="left over"):
        cur.finish()


def test_text_that_is_not_utf8_is_refused_without_showing_it() -> None:
    with pytest.raises(DecodeError) as caught:
        Cursor(b"secret\xff\0").cstr()

    assert "secret" not in str(caught.value)
    assert caught.value.where["at"] == 6


def test_the_rest_may_be_taken_whole() -> None:
    cur = Cursor(b"abc")
    cur.take(1)

    assert cur.rest() == b"bc"
    cur.finish()
