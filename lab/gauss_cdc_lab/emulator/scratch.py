"""A catalog for a recording: its tables, empty, in a database of a real PostgreSQL.

Types that PostgreSQL has not (tinyint, nvarchar2, …) become columns of type text
that the facade's catalog shows with the recorded OID and name.  The rows of
before the slot are not in a recording: tables start empty, and a client that has them
may put them in before the first load.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.product import Closing, EmulatedProduct, Peer
from gauss_cdc_lab.emulator.quoting import identifier, literal
from gauss_cdc_lab.emulator.recording import Recording
from gauss_cdc_lab.emulator.sql_session import OwnSlots, SqlSession
from gauss_cdc_lab.emulator.upstream import Address, Upstream

_IDENTITIES: Mapping[str, str] = {"full": "FULL", "nothing": "NOTHING"}


class Scratch:
    """SQL for a replay: the facade on a database that only holds tables."""

    def __init__(self, address: Address, product: EmulatedProduct, played: Recording) -> None:
        recorded = played.header.get("settings", {})
        names = ("sql_compatibility", "server_encoding")
        settings = {name: str(recorded[name]) for name in names if name in recorded}
        product = replace(product, settings={**product.settings, **settings})
        self._address = address
        self._facade = Facade(address, product, databases={played.database: address.database})

    async def load(self, file: Path) -> None:
        """Make the tables of a `tables_*.json`, unless they are there."""
        await self._facade.prepare(self._address.database)
        opened = gzip.open if file.suffix == ".gz" else open
        with opened(file, "rt", encoding="utf-8") as source:
            document: dict[str, Any] = json.load(source)
        session = await Upstream.open(self._address, self._address.database)
        try:
            known = {
                str(name)
                for (name,) in await session.rows(
                    "SELECT format_type(oid, NULL) FROM pg_catalog.pg_type WHERE oid < 10000"
                )
            }
            for table in document["tables"]:
                for statement in _made(table, known):
                    await session.rows(statement)
        finally:
            await session.close()

    async def sql(self, peer: Peer) -> SqlSession:
        """A session there."""
        return await self._facade.sql(peer)

    async def snapshot(self) -> tuple[str, Closing]:
        """A snapshot that its sessions can adopt, for as long as it is held."""
        session = await Upstream.open(self._address, self._address.database)
        await session.rows("BEGIN ISOLATION LEVEL REPEATABLE READ")
        ((name,),) = await session.rows("SELECT pg_export_snapshot()")
        return str(name), session

    def show(self, slots: OwnSlots) -> None:
        """Show these slots instead of PostgreSQL's."""
        self._facade.own_slots = slots

    async def close(self) -> None:
        """Close our own sessions."""
        await self._facade.close()


def _made(table: Mapping[str, Any], known: set[str]) -> list[str]:
    name = f"{identifier(table['schema'])}.{identifier(table['table'])}"
    columns: Sequence[Mapping[str, Any]] = table["columns"]
    parts = []
    foreign = []
    for column in columns:
        shown = column["type_with_typmod"] if _is_known(column, known) else "text"
        if not _is_known(column, known):
            foreign.append(column)
        filled = " NOT NULL" if column["notnull"] else ""
        parts.append(f"{identifier(column['name'])} {shown}{filled}")
    if table["primary_key"]:
        parts.append(f"PRIMARY KEY ({', '.join(map(identifier, table['primary_key']))})")
    statements = [
        f"CREATE SCHEMA IF NOT EXISTS {identifier(table['schema'])}",
        f"CREATE TABLE IF NOT EXISTS {name} ({', '.join(parts)})",
        *_identity(table, name),
    ]
    relation = f"{literal(name)}::regclass"
    for column in foreign:
        number = next(n for n, other in enumerate(columns, 1) if other is column)
        oid, shown = column["type_oid"], literal(column["type_with_typmod"])
        statements += [
            _inserted("types", f"{oid}, {shown}"),
            _inserted("column_types", f"{relation}, {number}, {oid}"),
        ]
    return statements


def _inserted(table: str, values: str) -> str:
    return f"INSERT INTO gauss_compat.{table} VALUES ({values}) ON CONFLICT DO NOTHING"  # noqa: S608


def _is_known(column: Mapping[str, Any], known: set[str]) -> bool:
    return str(column["type"]).removesuffix("[]") in known


def _identity(table: Mapping[str, Any], name: str) -> list[str]:
    kind = str(table["replica_identity"])
    if kind in _IDENTITIES:
        return [f"ALTER TABLE {name} REPLICA IDENTITY {_IDENTITIES[kind]}"]
    identity = table["identity_columns"]
    if kind == "default" or not identity:
        return []
    index = identifier(f"{table['table']}_identity"[:63])
    columns = ", ".join(map(identifier, identity))
    return [
        f"CREATE UNIQUE INDEX IF NOT EXISTS {index} ON {name} ({columns})",
        f"ALTER TABLE {name} REPLICA IDENTITY USING INDEX {index}",
    ]
