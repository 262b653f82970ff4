import codecs

import pytest

from producer.errors import DecodeError, Unsupported
from producer.sources.gauss.server import (
    CODECS,
    Product,
    Server,
    codec,
    parse_server,
    parse_version,
)

# As the servers say it; the third from GaussDB's manuals and drivers, the last from PostgreSQL.
SAID = {
    "(openGauss 5.0.0 build a07d57c3) compiled at 2023-03-29 03:07:56 commit 0 last mr   on"
    " x86_64-unknown-linux-gnu, compiled by g++ (GCC) 7.3.0, 64-bit": (
        Product.OPENGAUSS,
        "5.0.0",
        (5, 0, 0),
    ),
    "(openGauss 7.0.0-RC2 build ) compiled at 2026-11-20 20:36:50 commit 0 last mr  release on"
    " x86_64-linux-gnu, compiled by g++ (Debian 12.2.0-14+deb12u1) 12.2.0, 64-bit": (
        Product.OPENGAUSS,
        "7.0.0-RC2",
        (7, 0, 0),
    ),
    "gaussdb (GaussDB Kernel 505.2.0 build 81ea1a5e) compiled at 2024-10-10 on"
    " aarch64-unknown-linux-gnu, 64-bit": (Product.GAUSSDB, "505.2.0", (505, 2, 0)),
    "PostgreSQL 15.14 (Debian 15.14-0+deb12u1) on x86_64-pc-linux-gnu, compiled by gcc": (
        Product.POSTGRES,
        "15.14",
        (15, 14),
    ),
}


@pytest.mark.parametrize("said", SAID)
def test_the_product_is_identified_by_version(said: str) -> None:
    product, version, number = SAID[said]

    assert parse_version(said) == (product, version)
    server = parse_server([[said, "t", "shop", "gbk", "PG", "f"]])
    assert (server.product, server.number, server.is_primary) == (product, number, False)
    assert server.codec == "gbk"


def test_a_version_without_a_number_compares_as_none() -> None:
    server = parse_server([["(GaussDB Kernel V500R002C00 build 1)", "f", "d", "UTF8", "A", "t"]])

    assert server == Server(Product.GAUSSDB, "V500R002C00", True, "d", "UTF8", "A", True)
    assert server.number == ()


def test_another_product_is_refused_with_what_it_said() -> None:
    with pytest.raises(Unsupported, match=r"neither.*8\.0\.36-MySQL"):
        parse_version("8.0.36-MySQL")


@pytest.mark.parametrize("rows", [[], [["x"]], [[None] * 6, [None] * 6]])
def test_an_answer_of_another_shape_is_refused(rows: list[list[str | None]]) -> None:
    with pytest.raises(DecodeError):
        parse_server(rows)


@pytest.mark.parametrize("name", [name for name, codec in CODECS.items() if codec])
def test_every_codec_is_one_that_python_has(name: str) -> None:
    assert codecs.lookup(codec(name)).name
    assert codec(name.lower()) == codec(name)


@pytest.mark.parametrize(
    ("name", "raw", "text"),
    [
        ("UTF8", "e4bda0", "你"),
        ("GBK", "c4e3", "你"),
        ("GBK", "815c", "乗"),  # its second byte is a backslash
        ("GB18030", "81308130", "\x80"),
        ("EUC_CN", "c4e3", "你"),
        ("EUC_JP", "a4a2", "あ"),
        ("SJIS", "82a0", "あ"),
        ("BIG5", "a741", "你"),
        ("UHC", "b0a1", "가"),
        ("LATIN9", "a4", "€"),
        ("LATIN10", "aa", "Ș"),
        ("WIN1252", "80", "€"),
        ("WIN866", "80", "А"),
        ("KOI8R", "e1", "А"),
    ],
)
def test_encodings_are_read_as_the_server_means_them(name: str, raw: str, text: str) -> None:
    assert bytes.fromhex(raw).decode(codec(name)) == text


@pytest.mark.parametrize("name", ["EUC_TW", "MULE_INTERNAL", "NO_SUCH", ""])
def test_an_encoding_without_a_codec_is_refused(name: str) -> None:
    with pytest.raises(Unsupported, match="encoding"):
        codec(name)
