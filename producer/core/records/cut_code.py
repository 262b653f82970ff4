"""Encodes a COMMITS record as Avro without an intermediate dict.

A source of short transactions writes an entry for each of them: as dataclass, dict and
fastavro an entry took as long as its rows.  The bytes equal those of fastavro:
tests/producer/core/records/test_cut_code.py.
"""

from __future__ import annotations

import io
from functools import cache
from typing import Any, Final

import fastavro

from producer.core.records.avro import long, text
from schemas.control import PLAIN_VERSION, CommitEntry, Commits, PackedEntries, entry_from_avro
from schemas.load import CUT, avsc

_KIND: Final = b"\x02"  # COMMITS, the second of the enumeration
_VERSION: Final = long(PLAIN_VERSION)
_OF_STATES: Final = b"\x00" * 8  # identity, content, cluster_id, topics, prev … loads: null
_OF_TABLES: Final = b"\x00" * 5  # table, phase, mode, rows, as_of: null
_NO_LISTS: Final = b"\x00\x00"  # no DDL, no gaps
_INDEX: Final = [text(b"%d" % number) for number in range(256)]  # keys of `counts`


def encode_commits(cut: Commits) -> bytes:
    """Return the Avro binary of a COMMITS record, without Confluent's framing."""
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
        parts.append(long(len(cut.commits)))
        if isinstance(cut.commits, PackedEntries):
            parts.append(cut.commits.avro)
        else:
            parts += map(_entry, cut.commits)
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
    parts.append(b"\x00\x00")  # upto, reached: null
    return b"".join(parts)


def _entry(entry: CommitEntry) -> bytes:
    counts = entry.counts
    parts = [
        long(entry.seq),
        long(entry.xid),
        long(entry.csn),
        long(entry.commit_start),
        b"\x00" if entry.end_lsn is None else b"\x02" + long(entry.end_lsn),
        long(entry.committed_at),
        b"\x00" if entry.user is None else b"\x02" + text(entry.user.encode()),
        long(entry.rows),
    ]
    if counts:
        parts.append(long(len(counts)))
        for index, count in counts.items():
            parts += (_INDEX[index] if index < 256 else text(b"%d" % index), long(count))
    parts.append(b"\x00")
    if not entry.ddl and not entry.holes:
        parts.append(_NO_LISTS)
        return b"".join(parts)
    if entry.ddl:
        parts.append(long(len(entry.ddl)))
        for place in entry.ddl:
            parts += (long(place.ordinal), long(place.offset))
    parts.append(b"\x00")
    if entry.holes:
        parts.append(long(len(entry.holes)))
        for gap in entry.holes:
            parts += (text(part.encode()) for part in (gap.table, gap.kind, gap.why))
    parts.append(b"\x00")
    return b"".join(parts)


def read_entries(avro: bytes, count: int) -> tuple[CommitEntry, ...]:
    """Read entries that were written one behind the other."""
    items = io.BytesIO(b"".join((long(count), avro, b"\x00")) if count else b"\x00")
    read: Any = fastavro.schemaless_reader(items, _list_of_entries(), None)
    return tuple(map(entry_from_avro, read))


@cache
def _list_of_entries() -> dict[str, Any]:
    field = next(field for field in avsc(CUT)["fields"] if field["name"] == "commits")
    found: dict[str, Any] = field["type"][1]
    return found
