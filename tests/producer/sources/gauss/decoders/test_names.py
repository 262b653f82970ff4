import pytest

from producer.errors import DecodeError, Unsupported
from producer.sources.gauss.decoders.names import Cache, codec, reader, row_shape, unquote


def test_names_that_are_not_text_keep_their_bytes_where_there_is_no_encoding() -> None:
    read = reader(codec("SQL_ASCII"))
    names = [b"plain", "中".encode(), "中".encode("gbk"), b"\xff"]

    texts = [read(name) for name in names]

    assert texts[:2] == ["plain", "中"]
    assert [text.encode("utf-8", "surrogateescape") for text in texts] == names


@pytest.mark.parametrize(
    ("server", "text"),
    [("UTF8", "é中"), ("GBK", "縗"), ("GB18030", "縗𠀀"), ("LATIN1", "é"), ("EUC_CN", "中"),
     ("EUC_JP", "語"), ("LATIN9", "€"), ("WIN1251", "я"), ("GB18030_2022", "中")],
)  # fmt: skip
def test_encodings_of_servers(server: str, text: str) -> None:
    encoding = codec(server)

    assert reader(encoding)(text.encode(encoding)) == text


@pytest.mark.parametrize("server", ["EUC_TW", "MULE_INTERNAL", "nonsense"])
def test_an_encoding_without_codec_is_not_guessed(server: str) -> None:
    with pytest.raises(Unsupported, match=server):
        codec(server)


def test_text_of_another_encoding_is_refused() -> None:
    for raw in (b"\xff", b"", b"a\0b"):
        with pytest.raises(DecodeError):
            reader("utf-8")(raw)


def test_quotes_are_undone() -> None:
    assert unquote(b"plain") == b"plain"
    assert unquote(b'"a""b"') == b'a"b'
    assert unquote(b'""""') == b'"'
    for raw in (b'"', b'""', b'"a', b'"a"b"', b'"""'):
        with pytest.raises(DecodeError):
            unquote(raw)


def test_what_is_remembered_has_a_bound() -> None:
    made = []
    squares = Cache(lambda n: made.append(n) or n * n)

    assert [squares[3], squares[3]] == [9, 9]
    assert made == [3]
    for n in range(10_000):
        assert squares[n] == n * n
    assert len(squares) <= 4096


def test_a_row_names_each_column_once() -> None:
    with pytest.raises(DecodeError):
        row_shape(("a", "b", "a"), (0,) * 3, ("",) * 3)
