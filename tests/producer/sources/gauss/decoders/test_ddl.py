import json

import pytest

from producer.errors import DecodeError
from producer.sources.gauss.decoders.ddl import deparsed, gauss_ddl
from tests.producer.core.ddl_examples import JDDL, TDDL


def test_the_manuals_document_comes_out_as_it_is() -> None:
    reported = gauss_ddl(b'{"JDDL":%b}' % JDDL.encode(), "utf-8")

    assert reported.form == "JDDL"
    assert json.loads(reported.content) == json.loads(JDDL)


def test_the_manuals_text_comes_out_as_it_is() -> None:
    reported = gauss_ddl(json.dumps({"TDDL": TDDL}).encode(), "utf-8")

    assert (reported.form, reported.content) == ("TDDL", TDDL)


@pytest.mark.parametrize("number", ["5", "1.10", "9223372036854775808", "1e2", "0.1000"])
def test_numbers_keep_their_digits(number: str) -> None:
    reported = gauss_ddl(b'{"JDDL":{"fmt": "%%{a}n", "a": %b}}' % number.encode(), "utf-8")

    assert reported.content == '{"fmt": "%{a}n", "a": ' + number + "}"


@pytest.mark.parametrize(
    "record",
    [
        b'{"JDDL":{"fmt":"x","fmt":"y"}}',
        b'{"JDDL":{"fmt":"x","a":{"b":1,"b":1}}}',
        b'{"TDDL":"x","TDDL":"y"}',
        b'{"JDDL":{"fmt":NaN}}',
    ],
)
def test_a_document_with_two_meanings_is_refused(record: bytes) -> None:
    with pytest.raises(DecodeError):
        gauss_ddl(record, "utf-8")


def test_opengauss_document_with_a_name_twice_is_refused() -> None:
    with pytest.raises(DecodeError):
        deparsed(
            b'prefix: deparse, lsn: 1, relid 2, cmdtype: Simple, size: 9, content: {"a":1,"a":2}'
            b"\ndecode to: x, [owner none]",
            "utf-8",
        )


def test_names_are_in_the_encoding_of_the_database() -> None:
    reported = gauss_ddl('{"JDDL":{"fmt":"%{a}I","a":"表"}}'.encode("gbk"), "gbk")

    assert json.loads(reported.content)["a"] == "表"
