"""Bytes of COMMITS records: fastavro is the oracle."""

import io
from dataclasses import replace

import fastavro
from hypothesis import example, given
from hypothesis import strategies as some

from producer.core.records.cut_code import encode_commits, read_entries
from schemas.control import (
    CommitEntry,
    Commits,
    DdlPlace,
    Head,
    Hole,
    PackedEntries,
    Range,
    cut_from_avro,
    cut_to_avro,
)
from schemas.load import CUT, avsc

SCHEMA = fastavro.parse_schema(avsc(CUT))
_FIELDS = {field["name"]: field["type"] for field in avsc(CUT)["fields"]}
SCHEMA_OF_ENTRIES = _FIELDS["commits"][1]["items"]
longs = some.integers(-(2**63), 2**63 - 1) | some.integers(0, 300)
times = some.integers(-62_135_596_800_000_000, 253_402_300_799_999_999)  # what Python's dates hold
words = some.text(some.characters(exclude_categories=("Cs",)), max_size=20)
heads = some.builds(Head, longs, longs, longs, words, longs, longs, longs, written_at=times,
                    source_end=some.none() | longs)  # fmt: skip
entries = some.builds(
    CommitEntry,
    seq=longs,
    xid=longs,
    csn=longs,
    commit_start=longs,
    end_lsn=some.none() | longs,
    committed_at=times,
    rows=longs,
    counts=some.dictionaries(some.integers(0, 1000), longs, max_size=4),
    ddl=some.lists(some.builds(DdlPlace, longs, longs), max_size=2).map(tuple),
    holes=some.lists(some.builds(Hole, words, words, words), max_size=2).map(tuple),
    user=some.none() | words,
)
ranges = some.builds(Range, words, some.integers(0, 2**31 - 1), longs, longs)
ids = some.lists(some.integers(0, 2**31 - 1), max_size=3).map(tuple)
cuts = some.builds(
    Commits,
    heads,
    some.lists(entries, max_size=3).map(tuple),
    some.lists(ranges, max_size=3).map(tuple),
    some.dictionaries(words, ids, max_size=3),
)


def packed(cut: Commits) -> Commits:
    """The same, as native code hands its entries over."""
    items = {"type": "array", "items": SCHEMA_OF_ENTRIES}
    out = io.BytesIO()
    fastavro.schemaless_writer(out, items, cut_to_avro(cut)["commits"])
    count = io.BytesIO()
    fastavro.schemaless_writer(count, "long", len(cut.commits))
    avro = out.getvalue()[len(count.getvalue()) : -1] if cut.commits else b""
    identities = dict.fromkeys(range(len(cut.commits)), (0, 0))
    return replace(cut, commits=PackedEntries(avro, identities, 0, read_entries))


def by_fastavro(cut: Commits) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, SCHEMA, cut_to_avro(cut))
    return out.getvalue()


@given(cuts)
@example(Commits(Head(1, 1, 1, "", 0, 0, -1), (), ()))
def test_bytes_around_packed_entries_are_those_of_fastavro(cut: Commits) -> None:
    assert encode_commits(packed(cut)) == by_fastavro(cut)


@given(cuts)
def test_what_was_written_is_read_again(cut: Commits) -> None:
    for one in (cut, packed(cut)):
        read = fastavro.schemaless_reader(io.BytesIO(encode_commits(one)), SCHEMA, None)

        assert isinstance(read, dict)
        assert cut_from_avro(read) == cut
