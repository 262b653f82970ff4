"""Transactions built from what was done in the database, not from what was sent.

Rows, values and types come from a workload's ledger and tables; only positions,
CSNs and commit times are taken from recordings.
"""

import gzip
import json
from functools import cache
from typing import Any

from gauss_cdc_lab.emulator.model import Ddl, Field, Item, Op, Row, Transaction, Truncate
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.gauss_cdc_lab.emulator.formats.recordings import (
    GOLDEN,
    Place,
    lines,
    places,
    recording,
)

# Columns that the workload dropped: tables_*.json has a table's last shape.
DROPPED = {("tx", "acc_c", "v"): ("text", 25)}


@cache
def transactions(workload: str) -> tuple[Transaction, ...]:
    """All transactions of a workload in commit order, empty ones of other origin included."""
    types = _types(workload)
    done = {
        entry["xid"]: entry["changes"]
        for entry in lines(f"ledger_{workload}.jsonl.gz")
        if entry["outcome"] == "committed"
    }
    encoding = recording(workload, "ser_mppdb").encoding
    return tuple(
        Transaction(
            xid=place.xid,
            csn=place.csn,
            first_lsn=place.first_lsn,
            commit_lsn=place.commit_lsn,
            end_lsn=place.end_lsn,
            committed_at=place.committed_at,
            items=_items(done.get(place.xid, []), place, types, encoding),
            first_change_lsn=place.first_change_lsn,
        )
        for place in places(workload)
    )


def _types(workload: str) -> dict[tuple[str, str, str], tuple[str, int]]:
    with gzip.open(GOLDEN / f"tables_{workload}.json.gz", "rt", encoding="utf-8") as file:
        tables = json.load(file)["tables"]
    return DROPPED | {
        (table["schema"], table["table"], column["name"]): (column["type"], column["type_oid"])
        for table in tables
        for column in table["columns"]
    }


def _items(
    changes: list[dict[str, Any]],
    place: Place,
    types: dict[tuple[str, str, str], tuple[str, int]],
    encoding: str,
) -> list[Item]:
    positions = iter(place.items)
    items: list[Item] = []
    last = place.first_lsn or place.commit_lsn
    for change in changes:
        if change["op"] == "DDL":
            items.append(Ddl(last))  # logged nothing; its exact position shows nowhere
            continue
        last = next(positions)
        items.append(_item(change, last, types, encoding))
    assert next(positions, None) is None  # the stream has nothing that was not done
    return items


def _item(
    change: dict[str, Any],
    lsn: Lsn,
    types: dict[tuple[str, str, str], tuple[str, int]],
    encoding: str,
) -> Item:
    if change["op"] == "TRUNCATE":
        return Truncate(lsn, tuple(TableId(*table) for table in change["tables"]))
    schema, table = change["schema"], change["table"]

    def fields(values: dict[str, Any] | None) -> tuple[Field, ...] | None:
        return values and tuple(
            Field(name, *types[schema, table, name], _bytes(value, encoding))
            for name, value in values.items()
        )

    return Row(
        lsn,
        Op(change["op"]),
        schema,
        table,
        new=fields(change.get("after")),
        old=fields(change.get("before_key")) or None,
    )


def _bytes(value: Any, encoding: str) -> bytes | None:
    if value is None:
        return None
    return bytes.fromhex(value["bytes_hex"]) if isinstance(value, dict) else value.encode(encoding)
