"""What bookkeeping of cuts costs apply: CPU milliseconds per 1,000 commits, without any row.

    python benchmarks/cuts.py [ranges a commit]

Records of 1,000 commits are read, accepted and cut into segments.  Best of five rounds.
"""

# ruff: noqa: INP001, T201  a command, not a package

from __future__ import annotations

import io
import sys
import time
from collections.abc import Iterator

import fastavro

from schemas.accept import CutReplay
from schemas.control import (
    CommitEntry,
    Commits,
    Cut,
    Head,
    Identity,
    Range,
    Start,
    cut_to_avro,
)
from schemas.load import avsc
from schemas.positions import NOWHERE, Lsn
from spark_consumers.cuts.segments import segments
from spark_consumers.decode.control import decode_cut
from spark_consumers.model import Ledger
from spark_consumers.native import IS_BUILT

ROUNDS, RECORDS, COMMITS = 5, 50, 1_000
FRAME = b"\x00\x00\x00\x00\x09"
START = Start(
    Head(1, 1, 1, "i1", 0, NOWHERE, -1),
    Identity("7000", 1, "bank", "s", "pgoutput"),
    "",
    "cluster",
    {},
)


def records(width: int) -> list[bytes]:
    """COMMITS records as a producer of short transactions writes them."""
    parsed = fastavro.parse_schema(avsc("cut"))
    out = []
    for number in range(RECORDS):
        first = number * COMMITS
        ranges = tuple(
            Range(f"bank.public.t{at}", 0, first, first + COMMITS) for at in range(width)
        )
        entries = tuple(
            CommitEntry(
                seq, seq + 700, 0, Lsn(seq * 1000), Lsn(seq * 1000 + 900), seq * 10**6, width,
                dict.fromkeys(range(width), 1),
            )
            for seq in range(first + 1, first + COMMITS + 1)
        )  # fmt: skip
        last = first + COMMITS
        cut = Commits(Head(number + 2, 1, 1, "i1", last, Lsn(last * 1000), -1), entries, ranges)
        file = io.BytesIO()
        fastavro.schemaless_writer(file, parsed, cut_to_avro(cut))
        out.append(FRAME + file.getvalue())
    return out


def once(values: list[bytes], *, native: bool, strict: bool) -> float:
    """CPU seconds of one walk."""
    schema = avsc("cut")

    def accepted() -> Iterator[tuple[int, Cut]]:
        replay = CutReplay.from_nobody()
        replay.follow(0, START)
        yield 0, START
        for offset, value in enumerate(values, 1):
            cut = replay.follow(offset, decode_cut(value, lambda _: schema, native=native))
            assert cut is not None
            yield offset, cut

    began = time.process_time()
    found = sum(len(one.commit_rows) for one in segments(Ledger("bank"), accepted(), strict=strict))
    assert found == RECORDS * COMMITS
    return time.process_time() - began


def main(width: int) -> None:
    """Print a line for each way."""
    values = records(width)
    for name, native, strict in (
        ("packed", True, False),
        ("packed, read by Python", False, False),
        ("strict", True, True),
    ):
        if native and not IS_BUILT:
            continue
        seconds = min(once(values, native=native, strict=strict) for _ in range(ROUNDS))
        print(f"{name:24} {seconds * 1e3 / RECORDS:7.3f} CPU-ms per 1,000 commits")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5)
