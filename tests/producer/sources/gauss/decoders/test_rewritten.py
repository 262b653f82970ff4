"""Nothing is hard-wired to the captures: other names and values come out as other ones."""

from dataclasses import replace

import pytest

from tests.producer.sources.gauss.decoders import rewriting
from tests.producer.sources.gauss.decoders.ledgers import (
    CAPTURES,
    Capture,
    Row,
    Wanted,
    capture,
    document,
    expected,
    matches,
    reported,
    transactions,
)
from tests.producer.sources.gauss.decoders.rewriting import Rewriter


def digits(read: Capture) -> bytes:
    return rewriting.SAME if read.is_sql else rewriting.DIGITS  # sql_decoding rounds floats


def rewritten(read: Capture) -> Capture:
    rewriter = Rewriter(read.written.encoding, digits(read))
    style = read.written.style or read.written.plugin
    change = {
        "j": rewriter.json,
        "t": rewriter.spaced,
        "mppdb_decoding": lambda line: (
            rewriter.dotted(line) if line.startswith(b"table") else rewriter.json(line)
        ),
        "test_decoding": rewriter.dotted,
        "sql_decoding": rewriter.sql,
    }.get(style)
    payloads = []
    for start, payload in read.payloads:
        if style == "b":
            payloads.append((start, rewriter.binary(payload)))
        elif read.written.batch:
            payloads.append((start, rewriter.batch(payload, change)))
        else:
            payloads.append((start, change(payload)))
    return replace(read, payloads=payloads, rename=rewriting.name)


def bare_columns(read: Capture) -> set[tuple[str, str]]:
    return {
        (table["table"], column["name"])
        for table in document(f"tables_{read.workload}.json.gz")["tables"]
        for column in table["columns"]
        if column["type"] in rewriting.BARE
    }


def renamed(wanted: Wanted, bare: set[tuple[str, str]], mapping: bytes) -> Wanted:
    def row(values: Row | None) -> Row | None:
        if values is None:
            return None
        return tuple(
            (
                rewriting.name(name),
                rewriting.value(value, bare=(wanted.table, name) in bare, digits=mapping),
            )
            for name, value in values
        )

    return replace(
        wanted,
        schema=rewriting.name(wanted.schema),
        table=rewriting.name(wanted.table),
        after=row(wanted.after),
        before=row(wanted.before),
    )


@pytest.mark.parametrize("name", CAPTURES)
def test_other_names_and_values_come_out(name: str) -> None:
    read = capture(name)
    other = rewritten(read)
    bare = bare_columns(read)
    assert other.payloads != read.payloads
    want = [
        (xid, [renamed(change, bare, digits(read)) for change in changes])
        for xid, changes in expected(read)
    ]

    got = transactions(reported(other))

    assert len(got) == len(want)
    for (_, changes), (_, wanted) in zip(got, want, strict=True):
        assert matches(other, changes, wanted), (changes, wanted)
