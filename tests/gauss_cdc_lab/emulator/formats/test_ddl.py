import json
from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.model import Ddl, Item, Mode, Row
from producer.errors import DecodeError
from producer.sources.gauss.decoders import messages as messages_of_decoders
from schemas.positions import Lsn
from tests.gauss_cdc_lab.emulator.formats.made import (
    insert,
    number,
    payloads,
    sent,
    transaction,
)
from tests.gauss_cdc_lab.emulator.formats.reread import naming

REPORTED = Mode(enable_ddl_decoding=True, include_timestamp=False)
SQL = (
    b"CREATE  TABLE  public.test_create_table_a (a pg_catalog.int4)"
    b" WITH (orientation = 'row', compression = 'no') NOCOMPRESS"
)
RENAME = Ddl(
    Lsn(0x110),
    end_lsn=Lsn(40060152),
    content=(
        b'{"fmt": "ALTER %{objtype}s %{if_exists}s %{identity}D RENAME TO %{newname}I",'
        b' "newname": "dd1r", "objtype": "TABLE",'
        b' "identity": {"objname": "dd1", "schemaname": "public"}, "if_exists": ""}'
    ),
    sql=b"ALTER TABLE  public.dd1 RENAME TO dd1r",
    relation=16507,
)
START = Ddl(
    Lsn(0x110), Lsn(0x118), content=b"Drop table command start", command="Drop Table", relation=7
)


def reported(mode: Mode, *items: Item, product: str = "gaussdb") -> list[str]:
    """What stands between BEGIN and COMMIT."""
    return payloads(sent(mode, [transaction(*items)], product))[1:-1]


def test_opengauss_prints_what_a_publication_logged() -> None:
    # The whole message of a live server.
    assert RENAME.content is not None
    assert reported(Mode(), RENAME, product="og7") == [
        "prefix: deparse, lsn: 40060152, relid 16507, cmdtype: Simple, size: 190, content: "
        + RENAME.content.decode()
        + "\ndecode to: ALTER TABLE  public.dd1 RENAME TO dd1r, [owner none]"
    ]


def test_other_plugins_of_opengauss_word_it_otherwise() -> None:
    owned = replace(RENAME, content=b"{}", owner="gauss")

    assert reported(Mode(plugin="test_decoding"), owned, product="og6") == [
        (
            "message: prefix deparse, relid 16507, cmdtype: Simple, sz: 3 content: {}"
            "\ndecode to : ALTER TABLE  public.dd1 RENAME TO dd1r, [owner gauss]"
        )
    ]


def test_the_start_of_a_drop_has_no_second_line() -> None:
    assert reported(Mode(), START, product="og7") == [
        (
            "prefix: deparse, lsn: 280, relid 7, cmdtype: Drop Table, size: 25,"
            " content: Drop table command start"
        )
    ]


@pytest.mark.parametrize("product", ["og3", "og5", "og7"])
def test_ddl_that_no_publication_logged_is_silent(product: str) -> None:
    assert reported(Mode(), Ddl(Lsn(0x110)), product=product) == []


def test_gaussdb_sends_sql_or_a_document() -> None:
    ddl = Ddl(Lsn(0x110), content=b'{"fmt":"CREATE"}', sql=SQL)

    assert reported(REPORTED, ddl) == [json.dumps({"TDDL": SQL.decode()}, separators=(",", ":"))]
    assert reported(replace(REPORTED, enable_ddl_json_format=True), ddl) == [
        '{"JDDL":{"fmt":"CREATE"}}'
    ]
    assert reported(Mode(), ddl) == []


def test_sql_decoding_has_no_document() -> None:
    mode = replace(REPORTED, plugin="sql_decoding", enable_ddl_json_format=True)

    assert reported(mode, Ddl(Lsn(0x110), content=b"{}", sql=b"DROP x")) == ['{"TDDL":"DROP x"}']


def ddl(word: str) -> Ddl:
    return Ddl(Lsn(0x110), sql=word.encode())


def dml(value: int) -> Row:
    return insert(0x110, number("a", value))


UNSUPPORTED = Ddl(Lsn(0x110))  # CREATE TYPE, GRANT

# The manual's examples ("DDL in logical decoding", mixed transactions): what of it is told.
MIXED = {
    "a grant, then a row": ([UNSUPPORTED, dml(1)], []),
    "ddl, row, ddl": ([ddl("x"), dml(1), ddl("y")], [0, 2]),
    "row, ddl, row": ([dml(1), ddl("x"), dml(2)], [0, 1]),
    "row, ddl, ddl": ([dml(1), ddl("x"), ddl("y")], [0, 1, 2]),
    "ddl, create type, ddl": ([ddl("x"), UNSUPPORTED, ddl("y")], [0, 2]),
    "rows only": ([dml(1), dml(2), dml(3)], [0, 1, 2]),
    "row, create type, row": ([dml(1), UNSUPPORTED, dml(2)], [0]),
    "row, create type, ddl": ([dml(1), UNSUPPORTED, ddl("x")], [0, 2]),
}


@pytest.mark.parametrize("parallel", [1, 2], ids=["serial", "parallel"])
@pytest.mark.parametrize(("done", "decoded"), MIXED.values(), ids=MIXED)
def test_a_mixed_transaction_is_sent_as_the_manual_says(
    done: list[Item], decoded: list[int], parallel: int
) -> None:
    mode = replace(
        REPORTED, plugin="mppdb_decoding", parallel_decode_num=parallel, decode_style="t"
    )
    alone = [reported(mode, done[number]) for number in decoded]

    assert reported(mode, *done) == [line for lines in alone for line in lines]


@pytest.mark.parametrize("json_format", [False, True])
@pytest.mark.parametrize("batch", [False, True])
@pytest.mark.parametrize("style", "jt")
def test_what_the_manual_shows_of_ddl_is_what_the_producer_reads(
    style: str, batch: bool, json_format: bool
) -> None:
    mode = replace(REPORTED, parallel_decode_num=2, decode_style=style, sending_batch=batch)
    mode = replace(mode, enable_ddl_json_format=json_format)
    decoder = naming(mode, "utf-8")
    made = Ddl(Lsn(0x110), content=b'{"fmt": "x"}', sql=b'DROP TABLE "a\nb"')

    messages = sent(mode, [transaction(made)], "gaussdb")
    read = [
        decoder.decode(position, record)
        for message in messages
        for position, record in decoder.split(*message)
    ]

    is_json = json_format or style == "j"
    assert read[1] == messages_of_decoders.Ddl(
        "JDDL" if is_json else "TDDL", '{"fmt": "x"}' if is_json else 'DROP TABLE "a\nb"'
    )


def test_ddl_in_style_b_is_known_by_what_it_holds() -> None:
    mode = replace(REPORTED, parallel_decode_num=2, decode_style="b")
    decoder = naming(mode, "utf-8")

    payload = sent(mode, [transaction(ddl("DROP x"))], "gaussdb")[1].payload

    assert payload.endswith(b'{"TDDL":"DROP x"}F')
    [(position, record)] = decoder.split(0, payload)
    assert decoder.decode(position, record) == messages_of_decoders.Ddl("TDDL", "DROP x")


@pytest.mark.parametrize(
    "body", [b'\0\0\0\x05{"TDDL":"x"}', b'\0\0\0\x0c["TDDL","x"]', b"", b'{"TDDL":"x"}']
)
def test_another_layout_of_ddl_in_style_b_stops_the_stream(body: bytes) -> None:
    decoder = naming(replace(REPORTED, parallel_decode_num=2, decode_style="b"), "utf-8")

    with pytest.raises(DecodeError):
        decoder.decode(7, bytes(8) + b"L" + body)
