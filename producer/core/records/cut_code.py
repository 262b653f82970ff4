"""Encodes a COMMITS record around entries that native code has written.

A source of short transactions has an entry for each of them.  The bytes equal those of fastavro,
which writes a record whose entries are Python's: tests/producer/core/records/test_cut_code.py.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any, Final

import fastavro

from producer.core.records.avro import long, text
from schemas.control import (
    PLAIN_VERSION,
    CommitEntry,
    Commits,
    PackedEntries,
    cut_to_avro,
    entry_from_avro,
)
from schemas.load import CUT, avsc

_KIND: Final = b"\x02"  # COMMITS, the second of the enumeration
_VERSION: Final = long(PLAIN_VERSION)
_OF_STATES: Final = b"\x00" * 8  # identity, content, cluster_id, topics, prev … loads: null
_OF_TABLES: Final = b"\x00" * 5  # table, phase, mode, rows, as_of: null


def encode_commits(cut: Commits) -> bytes:
    """Return the Avro binary of a COMMITS record, without Confluent's framing."""
    if not isinstance(cut.commits, PackedEntries):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, _schema(), cut_to_avro(cut), strict_allow_default=True)
        return out.getvalue()
    head = cut.head
    parts = [
        _KIND,
        *map(long, (head.n, head.epoch, head.writer)),
        text(head.instance.encode()),
        *map(long, (head.last_seq, head.resume, head.state_from, head.written_at)),
        _VERSION,
        _OF_STATES,
        b"\x02",
    ]
    if cut.commits:
        parts += (long(len(cut.commits)), cut.commits.avro)
    parts += (b"\x00", _OF_TABLES, b"\x02")
    if cut.ranges:
        parts.append(long(len(cut.ranges)))
        for topic, partition, start, end in cut.ranges:
            parts += (text(topic.encode()), long(partition), long(start), long(end))
    parts.append(b"\x00\x02")
    if cut.schema_ids:
        parts.append(long(len(cut.schema_ids)))
        for topic, ids in cut.schema_ids.items():
            parts.append(text(topic.encode()))
            if ids:
                parts += (long(len(ids)), *map(long, ids))
            parts.append(b"\x00")
    parts.append(b"\x00\x00\x00")  # the end of schema_ids; lossy, looked: null
    parts.append(b"\x00" if head.source_end is None else b"\x02" + long(head.source_end))
    parts.append(b"\x00\x00\x00\x00")  # upto, reached, target, targeted: null
    return b"".join(parts)


def read_entries(avro: bytes, count: int) -> tuple[CommitEntry, ...]:
    """Read entries that were written one behind the other."""
    items = io.BytesIO(b"".join((long(count), avro, b"\x00")) if count else b"\x00")
    read: Any = fastavro.schemaless_reader(items, _list_of_entries(), None)
    return tuple(map(entry_from_avro, read))


@cache
def _schema() -> Any:
    return fastavro.parse_schema(avsc(CUT))


@cache
def _list_of_entries() -> dict[str, Any]:
    field = next(field for field in avsc(CUT)["fields"] if field["name"] == "commits")
    found: dict[str, Any] = field["type"][1]
    return found
