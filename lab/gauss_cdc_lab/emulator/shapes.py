"""What PostgreSQL's stream does not say of a table, and how its values are to be printed."""

from __future__ import annotations

from collections.abc import Mapping

from gauss_cdc_lab.emulator import pgoutput
from gauss_cdc_lab.emulator.live import LiveShape
from gauss_cdc_lab.emulator.upstream import Upstream


async def shape_of_table(catalog: Upstream, relation: pgoutput.Relation) -> LiveShape:
    """Types and declared identity as they are now: DDL is not sent before its rows."""
    oids = sorted({oid for _, oid in relation.columns})
    types = (
        await catalog.rows(
            "SELECT o, gauss_compat.format_type(o, NULL) FROM unnest("  # noqa: S608  numbers
            f"ARRAY{oids}::oid[]) o"
        )
        if oids
        else []
    )
    ((identity, index),) = await catalog.rows(
        "SELECT coalesce(d.identity, c.relreplident), d.index FROM (SELECT 1) one"  # noqa: S608
        f" LEFT JOIN pg_catalog.pg_class c ON c.oid = {relation.oid}"
        f" LEFT JOIN gauss_compat.declared d ON d.relid = {relation.oid}"
    )
    kept: frozenset[str] | None
    if identity == "f":
        kept = frozenset(name for name, _ in relation.columns)
    elif identity == "n":
        kept = None
    else:
        which = f"i.indexrelid = {index}" if identity == "i" and index else "i.indisprimary"
        columns = await catalog.rows(
            "SELECT a.attname FROM pg_catalog.pg_index i JOIN pg_catalog.pg_attribute a"  # noqa: S608
            " ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)"
            f" WHERE i.indrelid = {relation.oid} AND {which}"
        )
        kept = frozenset(str(name) for (name,) in columns) or None
    return LiveShape({int(str(oid)): str(name) for oid, name in types}, kept)


def words_of(settings: Mapping[str, str], *, is_sql_decoding: bool) -> dict[str, str]:
    """How PostgreSQL is to print values: as the decoding session would."""
    chosen = {
        "datestyle": settings["DateStyle"],
        "intervalstyle": settings["IntervalStyle"],
        "timezone": settings["TimeZone"],
        "bytea_output": settings["bytea_output"],
        "extra_float_digits": "0" if is_sql_decoding else "3",
    }
    parts = (f"-c {name}={value}".replace(" ", "\\ ") for name, value in chosen.items())
    options = " ".join(part.replace("-c\\ ", "-c ", 1) for part in parts)
    return {"client_encoding": settings["server_encoding"], "options": options}


def is_sql(plugin: str) -> bool:
    """Whether the plugin prints floats with fewer digits."""
    return plugin == "sql_decoding"
