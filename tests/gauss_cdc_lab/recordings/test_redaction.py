"""Redacted recordings: the same structure, and nothing of the values."""

import re
from dataclasses import replace

import pytest

from gauss_cdc_lab.recordings.masks import MaskKind, Masks
from gauss_cdc_lab.recordings.redaction import Redaction
from producer.sources.decoders import Format
from producer.sources.gauss.decoders.messages import DecodedMessage, NamedChange
from tests.producer.sources.gauss.decoders.ledgers import CAPTURES, Capture, capture, reported

SECRET = b"of a test"
WORD = re.compile(rb"[A-Za-z0-9\x80-\xff]{4,}")
LETTERS = re.compile(rb"[A-Za-z]{6,}")


def redacted(read: Capture, *, names: bool = False) -> Capture:
    redaction = Redaction(read.written, names=names, secret=SECRET)
    payloads = [(start, redaction.payload(start, payload)) for start, payload in read.payloads]
    assert redaction.blanked == 0
    return replace(read, payloads=payloads)


def values(messages: list[DecodedMessage]) -> list[bytes | None]:
    cells: list[bytes | None] = []
    for message in messages:
        if isinstance(message, NamedChange):
            for row in (message.new, message.old):
                cells += row.cells if row is not None else [b"-"]
    return cells


def structure(messages: list[DecodedMessage]) -> list[object]:
    """All but the values: where they are, how long, and which are NULL."""
    found: list[object] = []
    for message in messages:
        if not isinstance(message, NamedChange):
            found.append(message)
            continue
        rows = [
            None if row is None else (row.shape, [c if c is None else len(c) for c in row.cells])
            for row in (message.new, message.old)
        ]
        found.append((message.op, message.schema, message.table, rows))
    return found


@pytest.mark.parametrize("name", CAPTURES)
def test_structure_and_lengths_stay_and_values_go(name: str) -> None:
    read = capture(name)

    other = redacted(read)

    assert [len(p) for _, p in other.payloads] == [len(p) for _, p in read.payloads]
    before, after = reported(read), reported(other)
    assert structure(after) == structure(before)
    pairs = [
        (old, new)
        for old, new in zip(values(before), values(after), strict=True)
        if old and WORD.search(old)
    ]
    assert pairs
    assert sum(old == new for old, new in pairs) <= len(pairs) // 20  # a word of numbers, chance
    words = {word for old, _ in pairs for word in LETTERS.findall(old)} - {b"Infinity"}
    assert not words & {word for _, new in pairs for word in LETTERS.findall(new)}


@pytest.mark.parametrize(
    "name", [n for n in CAPTURES if n.split("_")[1] in {"names", "txns", "gbk"}]
)
def test_names_go_when_asked_for_and_stay_apart(name: str) -> None:
    read = capture(name)

    other = redacted(read, names=True)

    before, after = (
        {
            (m.schema, m.table, *(m.new or m.old).shape.names)
            for m in reported(r)
            if isinstance(m, NamedChange) and (m.new or m.old)
        }
        for r in (read, other)
    )
    assert len(before) == len(after)
    assert not before & after
    assert [len(p) for _, p in other.payloads] == [len(p) for _, p in read.payloads]


def test_equal_values_stay_equal_and_short_ones_apart() -> None:
    masks = Masks("utf-8", SECRET)
    keys = [str(number).encode() for number in range(1000)]

    made = [masks.value(key) for key in keys]

    assert len(set(made)) == len(keys)
    assert [masks.value(key) for key in keys] == made
    assert [len(value) for value in made] == [len(key) for key in keys]
    assert all(value.isdigit() and (len(value) == 1 or value[:1] != b"0") for value in made)


def test_another_recording_gets_other_values() -> None:
    text = b"The quick brown fox jumps over 13 lazy dogs"

    assert Masks("utf-8").value(text) != Masks("utf-8").value(text)


@pytest.mark.parametrize(
    ("encoding", "raw"),
    [
        ("utf-8", "é中😀я, it's".encode()),
        ("gbk", "縗中文\\".encode("gbk")),
        ("gb18030", "縗中文𠀀".encode("gb18030")),
        ("iso8859_1", b"\xe9\xff"),
        ("euc_jp", "日本語".encode("euc_jp")),
        ("ascii", b"\xd6\xd0 abc \xff"),
    ],
)
def test_characters_stay_as_long_as_they_were(encoding: str, raw: bytes) -> None:
    made = Masks(encoding, SECRET).value(raw)

    assert len(made) == len(raw)
    assert made != raw
    assert [byte for byte in made if byte in b"'\\ ,"] == [b for b in raw if b in b"'\\ ,"]
    if encoding != "ascii":
        assert len(made.decode(encoding)) == len(raw.decode(encoding))


def test_kinds_of_values_stay_what_they_are() -> None:
    masks = Masks("utf-8", SECRET)

    assert {masks.value(value, MaskKind.BOOL) for value in (b"t", b"f")} <= {b"t", b"f"}
    assert set(masks.value(b"0110" * 20, MaskKind.BITS)) == set(b"01")
    assert re.fullmatch(rb"\\x[0-9a-f]{40}", masks.value(b"\\x" + b"de" * 20))
    assert re.fullmatch(rb"-\d\.\d{2}e\+\d{2}", masks.value(b"-1.25e+10"))
    assert masks.value(b"") == b""


def test_what_cannot_be_taken_apart_is_blanked() -> None:
    redaction = Redaction(Format("mppdb_decoding", "b"), secret=SECRET)

    assert redaction.payload(1, b"some secret of 21 byt") == bytes(21)
    assert redaction.blanked == 1


def test_strings_in_ddl_go_and_its_words_stay() -> None:
    redaction = Redaction(Format("mppdb_decoding"), secret=SECRET)
    line = b'{"TDDL":"ALTER TABLE a ADD b text DEFAULT \'pass\\n word\'"}'

    other = redaction.payload(1, line)

    assert other.startswith(b'{"TDDL":"ALTER TABLE a ADD b text DEFAULT \'')
    assert b"pass" not in other
    assert len(other) == len(line)


def test_literals_of_ddl_documents_and_dollar_quotes_go() -> None:
    redaction = Redaction(Format("mppdb_decoding"), secret=SECRET)
    line = (
        b'prefix: deparse, lsn: 40, relid 16507, cmdtype: Simple, size: 190, content: {"fmt":'
        b' "%{a}s %{values:, }L", "a": {"fmt": "%{value}L", "value": "sorrow \'s"}, "values":'
        b' ["gladly", "sadly"]}\ndecode to: COMMENT ON TABLE t IS $$sorrow \'s$$, [owner none]'
    )

    other = redaction.payload(1, line)

    assert redaction.blanked == 0
    assert len(other) == len(line)
    assert b'"fmt": "%{value}L", "value": "' in other
    assert not any(word in other for word in (b"sorrow", b"gladly", b"sadly"))


def test_rows_behind_a_heartbeat_without_length_and_ddl_of_style_b_go() -> None:
    redaction = Redaction(Format("mppdb_decoding", "b", batch=True), secret=SECRET)
    text = b'{"TDDL":"ALTER TABLE a ADD b text DEFAULT \'password\'"}'
    column = b"\0\1a" + (25).to_bytes(4, "big") + b"\0\0\0\10password"
    row = bytes(8) + b"I\0\1s\0\1tN\0\1" + column
    ddl = bytes(8) + b"L" + len(text).to_bytes(4, "big") + text
    message = b"h" + bytes(24) + b"P"
    message += b"P".join(len(record).to_bytes(4, "big") + record for record in (row, ddl)) + b"F"

    other = redaction.payload(1, message)

    assert redaction.blanked == 0
    assert len(other) == len(message)
    assert other[:26] == message[:26]
    assert b"password" not in other
    assert b"ALTER TABLE a ADD b text DEFAULT" in other
