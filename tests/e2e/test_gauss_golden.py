"""Recordings of a real openGauss, replayed through Kafka into a target: it ends as that server did.

The tables of the recorded catalog stand empty in a scratch database; nobody had
rows before the slots were made.  Of `identity` only tables with one are compared:
other changes name no row.  Bytes of `sqlascii` mean no text that anybody knows: they arrive
in a target that has no encoding either.  Two of the streams are broken off in the middle, by
an error and without a word, and go on for the producer that comes back.
"""

import gzip
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path as File
from typing import Any

import pytest

from gauss_cdc_lab.emulator import recording
from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.emulator.product import EmulatedProduct
from gauss_cdc_lab.emulator.recording import Recording
from gauss_cdc_lab.emulator.replay import Replay
from gauss_cdc_lab.emulator.scratch import Scratch
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.slots import Activity
from gauss_cdc_lab.emulator.upstream import Address
from producer.errors import SourceError
from producer.sources.dial import parse_dsn
from producer.sources.gauss import (
    catalog as gauss_catalog,
)
from producer.sources.gauss import (
    readings as gauss_readings,
)
from producer.sources.gauss import (
    slots as gauss_slots,
)
from producer.sources.gauss.connection import GaussConnection
from schemas.positions import Lsn
from schemas.quoting import identifier
from tests.e2e.path import Path, ask
from tests.gauss_cdc_lab.emulator.running import Running
from tests.gauss_cdc_lab.emulator.transcript import GOLDEN

USER, PASSWORD = "cdc", "Gauss@123"


def document(name: str) -> Any:
    with gzip.open(GOLDEN / f"{name}.json.gz", "rt") as file:
        return json.load(file)


@contextmanager
def replayed(found: Recording, tables: str, scratch_url: str) -> Iterator[Emulator]:
    async def make() -> Emulator:
        product = EmulatedProduct(profile=found.profile, time_zone="<+08>-08")
        scratch = Scratch(Address.parse(scratch_url), product, found)
        await scratch.load(GOLDEN / tables)
        gate = Gate([Account(USER, PASSWORD, is_admin=True)])
        activity = Activity()
        replay = Replay(found, catalog=scratch, activity=activity)
        return Emulator(product, replay, gate, activity=activity)

    with Running(make) as running:
        yield running.emulator


CASES = [
    *(("bulk", mode) for mode in ("par_b_batch1", "par_t_batch0", "ser_mppdb")),
    *(("names", mode) for mode in ("par_b_batch1", "par_j_batch1", "ser_test")),
    *(("toast", mode) for mode in ("par_b_batch0", "ser_mppdb")),
    *(("txns", mode) for mode in ("ser_mppdb", "ser_test")),
    *(("types_pg", mode) for mode in ("par_b_batch1", "par_j_batch0")),
    *(("types_a", mode) for mode in ("par_b_batch1", "par_t_batch1")),
    *(("identity", mode) for mode in ("par_b_batch1", "ser_mppdb")),
    *(("gbk", mode) for mode in ("par_b_batch1", "ser_mppdb")),
    *(("sqlascii", mode) for mode in ("par_b_batch1", "ser_mppdb")),
]


BROKEN = {  # what the server says before it is gone
    ("txns", "ser_test"): b"SFATAL\0C57P01\0Mterminating connection\0\0",
    ("bulk", "par_t_batch0"): b"",
}


def broken_off(file: File, error: bytes, folder: File) -> File:
    """The same recording of a server that left in the middle, and then began anew."""
    lines = gzip.decompress(file.read_bytes()).decode().splitlines()
    middle = len(lines) // 2
    ended = json.dumps({"type": "E" if error else "EOF", "ms": 0, "hex": error.hex()})
    broken = folder / "broken.jsonl"
    broken.write_text("\n".join([*lines[:middle], ended, *lines[1:], ""]))
    return broken


@pytest.mark.parametrize(("workload", "mode"), CASES)
def test_a_target_ends_as_the_recorded_server(
    workload: str, mode: str, addresses, topic_prefix, new_database, tmp_path: File
) -> None:
    file = GOLDEN / f"capture_{workload}_{mode}.jsonl.gz"
    if (error := BROKEN.get((workload, mode))) is not None:
        file = broken_off(file, error, tmp_path)
    found = recording.load(file)
    encoding = "SQL_ASCII" if workload == "sqlascii" else None
    scratch, target = new_database(), new_database(encoding)
    options = dict(found.header["options"])
    with (
        replayed(found, f"tables_{workload}.json.gz", scratch) as emulator,
        Path(
            addresses,
            topic_prefix,
            scratch,
            target,
            kind="opengauss",
            plugin=found.plugin,
            plugin_options=options,
            include=("*.*",),
            without_identity="skip-and-record",
        ) as path,
    ):
        dsn = f"postgresql://{USER}@127.0.0.1:{emulator.port}/{found.database}?sslmode=disable"
        path.options = replace(path.options, source=parse_dsn(dsn, PASSWORD))
        path.start()
        path.catch_up_to(max(t.end_lsn for t in found.transactions if t.items))

        kinds = kinds_of(workload)
        final = document(f"final_state_{workload}")
        compared = 0
        for table in final["tables"]:
            is_there = "rows" in table  # in the end
            if is_there and (table["schema"], table["table"]) in identified(workload):
                kind = kinds[table["schema"], table["table"]]
                assert differing(rows_of(target, table, kind), expected_rows(table, kind)) == []
                compared += len(table["rows"])

        assert error is None or path.progress.takeovers > 1  # it was broken off, and went on
        check_what_is_told_beside_the_stream(path, found)

    assert compared


def check_what_is_told_beside_the_stream(path: Path, found: Recording) -> None:
    """The catalog speaks of the recorded server: `status`, `wait` and `slot` ask it."""
    with GaussConnection.open(path.options.source, replication=False) as session:
        (slot,) = gauss_slots.slots(session)
        assert (slot.name, slot.database) == (path.options.slot, found.database)
        assert slot.is_active
        assert gauss_readings.wal_end(session) == found.end
        assert session.server().database == found.database
        tables = gauss_catalog.expand(session, ("*.*",), ())
        assert {table.schema for table in tables}.isdisjoint({"gauss_compat"})

        path.stop()
        assert session.wait_released(slot.name, 10)
        with pytest.raises(SourceError, match="cannot move slot"):
            gauss_slots.advance(session, slot.name, Lsn(1))
        assert gauss_slots.advance(session, slot.name, Lsn(found.end)) == found.end
        gauss_slots.drop(session, slot.name)
        assert gauss_slots.slots(session) == []


Row = dict[str, str | None]
Kinds = dict[str, str]  # type by column


def kinds_of(workload: str) -> dict[tuple[str, str], Kinds]:
    return {
        (table["schema"], table["table"]): {c["name"]: c["type"] for c in table["columns"]}
        for table in document(f"tables_{workload}")["tables"]
    }


def identified(workload: str) -> set[tuple[str, str]]:
    """Tables whose old rows are told, or whose rows never change."""
    return {
        (table["schema"], table["table"])
        for table in document(f"tables_{workload}")["tables"]
        if table["identity_columns"] or workload != "identity"
    }


def comparable(kind: str, value: str | dict[str, str] | None) -> str | None:
    """The two servers' output texts of one value, where they differ by design."""
    if value is None:
        return None
    if isinstance(value, dict):
        value = bytes.fromhex(value["bytes_hex"]).decode("latin-1")
    if kind == "character":  # openGauss pads to n bytes, PostgreSQL to n characters
        return value.rstrip(" ")
    if kind in {"raw", "blob"}:  # the target has bytea
        return value.lower().removeprefix("\\x")
    # openGauss prints numbers below 1 without a leading zero.
    return re.sub(r"^(-?)(\.\d+)$", r"\g<1>0\2", value)


def expected_rows(table: dict[str, Any], kinds: Kinds) -> list[Row]:
    return [
        {name: comparable(kinds[name], value) for name, value in row.items()}
        for row in table["rows"]
    ]


def rows_of(url: str, table: dict[str, Any], kinds: Kinds) -> list[Row]:
    quoted = [identifier(column) for column in kinds]
    # As the type's output function prints it: a cast to text would trim char(n).
    printed = "format('%s', {})"
    is_bytes = ask(url, "SHOW server_encoding") == [("SQL_ASCII",)]
    if is_bytes:
        printed = "encode(convert_to(format('%s', {}), 'SQL_ASCII'), 'hex')"
    texts = [printed.format(column) for column in quoted]
    listed = ", ".join(
        f"CASE WHEN {c} IS NOT NULL THEN {text} END" for c, text in zip(quoted, texts, strict=True)
    )
    zone = "SET LOCAL TimeZone = '<+08>-08'"  # the recorded server's
    rows = ask(url, f'{zone}; SELECT {listed} FROM "{table["schema"]}"."{table["table"]}"')
    if is_bytes:
        rows = [[cell and bytes.fromhex(cell).decode("latin-1") for cell in row] for row in rows]
    return [
        {name: comparable(kinds[name], value) for name, value in zip(kinds, row, strict=True)}
        for row in rows
    ]


def differing(found: list[Row], expected: list[Row]) -> list[tuple]:
    """(column, found, expected) of rows that are not the same, in one order of both."""

    def in_order(rows: list[Row]) -> list[Row]:
        return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))

    if len(found) != len(expected):
        return [("rows", len(found), len(expected))]
    return [
        (name, mine.get(name), theirs.get(name))
        for mine, theirs in zip(in_order(found), in_order(expected), strict=True)
        for name in theirs
        if mine.get(name) != theirs.get(name)
    ]
