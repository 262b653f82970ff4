import pytest

from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.model import PROFILES

OPENGAUSS, POSTGRES = (Names(PROFILES[product], "utf-8") for product in ("og7", "postgres"))


@pytest.mark.parametrize(
    ("name", "quoted"),
    [
        ("id", b"id"),
        ("_x9", b"_x9"),
        ("ID", b'"ID"'),
        ("9x", b'"9x"'),
        ("", b'""'),
        ("a b", b'"a b"'),
        ("a$", b'"a$"'),
        ('a"b', b'"a""b"'),
        ("select", b'"select"'),
        ("between", b'"between"'),
        ("left", b'"left"'),
        ("name", b"name"),
        ("é", '"é"'.encode()),
        ("x\n", b'"x\n"'),
    ],
)
def test_a_name_is_quoted_where_it_must_be(name: str, quoted: bytes) -> None:
    assert (OPENGAUSS.quoted(name), POSTGRES.quoted(name)) == (quoted, quoted)


def test_keywords_are_those_of_the_product() -> None:
    assert (OPENGAUSS.quoted("rownum"), POSTGRES.quoted("rownum")) == (b'"rownum"', b"rownum")
    assert (OPENGAUSS.quoted("lateral"), POSTGRES.quoted("lateral")) == (b"lateral", b'"lateral"')


def test_names_are_bytes_of_the_database() -> None:
    assert Names(PROFILES["og7"], "gbk").raw("名") == "名".encode("gbk")
    # Bytes that are no text, as SQL_ASCII allows them.
    assert OPENGAUSS.raw(b"\xc3\xfb".decode("utf-8", "surrogateescape")) == b"\xc3\xfb"
