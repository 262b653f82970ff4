"""Whatever bytes come: messages or a DecodeError, and never anything else."""

import functools

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from producer.errors import DecodeError
from producer.sources.decoders import NAMING, Format
from tests.producer.sources.gauss.decoders.ledgers import CAPTURES, capture

FORMATS = [
    Format(plugin, style, batch, encoding)
    for plugin, style in NAMING
    for batch in (False, True)
    for encoding in ("utf-8", "gbk", "ascii")
]
SMALL = [name for name in CAPTURES if name.split("_")[1] in {"gbk", "sqlascii", "names", "txns"}]


def decode_all(written: Format, payload: bytes) -> None:
    decoder = NAMING[written.plugin, written.style](written)
    try:
        for position, record in decoder.split(0, payload):
            decoder.is_row(record)
            decoder.decode(position, record)
    except DecodeError as error:
        str(error)


def test_every_plugin_and_style_of_the_manuals_is_there() -> None:
    plugins = {"mppdb_decoding", "sql_decoding", "test_decoding"}
    named = {f"parallel_{kind}_decoding" for kind in ("binary", "json", "text")}

    assert {*NAMING} == {(plugin, style) for plugin in plugins | named for style in ("", *"bjt")}


@given(st.sampled_from(FORMATS), st.binary(max_size=120))
@example(FORMATS[0], b"")
def test_any_bytes(written: Format, payload: bytes) -> None:
    decode_all(written, payload)


@functools.cache
def payloads(name: str) -> tuple[Format, list[bytes]]:
    read = capture(name)
    return read.written, [payload for _, payload in read.payloads]


@settings(max_examples=400)
@given(st.data())
def test_damaged_payloads(data: st.DataObject) -> None:
    written, whole = payloads(data.draw(st.sampled_from(SMALL)))
    payload = bytearray(data.draw(st.sampled_from(whole)))
    for _ in range(data.draw(st.integers(1, 4))):
        if payload:
            at = data.draw(st.integers(0, len(payload) - 1))
            payload[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    decode_all(written, bytes(payload))


@pytest.mark.parametrize("name", [n for n in SMALL if "_b_" in n or "_j_" in n or "mppdb" in n])
def test_no_prefix_of_binary_or_json_is_a_payload(name: str) -> None:
    read = capture(name)
    decoder = read.decoder()
    framed = read.written.batch or read.written.style == "b"
    for start, payload in read.payloads:
        if not framed and not payload.startswith(b"{"):
            continue  # BEGIN and COMMIT are text in every style
        for size in range(0, len(payload), max(1, len(payload) // 400)):
            with pytest.raises(DecodeError):
                [decoder.decode(*record) for record in decoder.split(start, payload[:size])]
