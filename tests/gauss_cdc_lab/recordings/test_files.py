import json
from pathlib import Path

import pytest

from gauss_cdc_lab.recordings.files import Began, Closed, SentMessage, parse_options, read, written
from producer.errors import DecodeError
from producer.sources.decoders import Format
from tests.producer.sources.gauss.decoders.ledgers import GOLDEN


@pytest.mark.parametrize(
    ("plugin", "options", "style", "batch"),
    [
        ("mppdb_decoding", {}, "", False),
        ("mppdb_decoding", {"parallel-decode-num": "1", "decode-style": "t"}, "", False),
        ("sql_decoding", {"parallel-decode-num": "2"}, "b", False),
        ("mppdb_decoding", {"parallel-decode-num": "20", "decode-style": "json"}, "j", False),
        ("mppdb_decoding", {"parallel-decode-num": "3", "sending-batch": "1"}, "b", True),
        ("parallel_text_decoding", {"parallel-decode-num": "3"}, "t", False),
        ("parallel_json_decoding", {}, "j", False),
        ("parallel_json_decoding", {"parallel-decode-num": "3", "decode-style": "t"}, "t", False),
    ],
)
def test_options_say_how_a_stream_is_written(
    plugin: str, options: dict[str, str], style: str, batch: bool
) -> None:
    assert written(plugin, options, "GBK") == Format(plugin, style, batch, "gbk")


def test_an_encoding_without_codec_shows_bytes() -> None:
    assert written("mppdb_decoding", {}, "EUC_TW").encoding == "ascii"


def test_options_of_a_command() -> None:
    text = """"decode-style" 't', sending-batch '1' , "x" , "y" 'it''s, (a)'"""

    assert parse_options(text) == {
        "decode-style": "t",
        "sending-batch": "1",
        "x": "",
        "y": "it's, (a)",
    }
    assert parse_options("") == {}


def test_streams_of_a_transcript_are_distinguished() -> None:
    events = list(read(GOLDEN / "restart_par_b_batch1.jsonl.gz"))

    began = [event.stream for event in events if isinstance(event, Began)]
    assert len(began) == 3
    assert {event.stream for event in events if isinstance(event, SentMessage)} == set(began)
    assert [event.stream for event in events if isinstance(event, Closed)] == began
    assert {e.written.style for e in events if isinstance(e, Began)} == {"b"}


def test_lines_are_counted_from_one(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    header = {"kind": "header", "plugin": "test_decoding", "mode": "serial", "options": []}
    body = b"w" + bytes(24) + b"BEGIN 1"
    lines = [header, {"type": "W", "hex": "000000"}, {"type": "d", "hex": body.hex()}]
    file.write_text("\n".join(json.dumps(line) for line in lines))

    began, sent = read(file)

    assert (began.line, sent.line, sent.payload) == (1, 3, b"BEGIN 1")


@pytest.mark.parametrize(
    "line",
    [
        {"type": "d", "hex": "77"},
        {"type": "d", "hex": "zz"},
        {"type": "d"},
        {"type": "d", "hex": b"x".hex()},
        {"type": "?"},
        {"n": 5, "type": "W"},
    ],
)
def test_a_damaged_line_is_reported_with_its_number(
    line: dict[str, object], tmp_path: Path
) -> None:
    file = tmp_path / "a.jsonl"
    header = {"kind": "header", "plugin": "test_decoding", "mode": "serial", "options": []}
    file.write_text("\n".join(map(json.dumps, [header, {"n": 1, "type": "W"}, line])))

    with pytest.raises(DecodeError) as caught:
        list(read(file))

    assert caught.value.where["line"] == 3
