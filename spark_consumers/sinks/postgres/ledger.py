"""The ledger in a PostgreSQL target: one row per source, and the tables that are ours."""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from spark_consumers.cuts.ledger import state_of
from spark_consumers.errors import Superseded
from spark_consumers.model import Ledger
from spark_consumers.sinks.postgres.rights import our_tables
from spark_consumers.sinks.step import COMPARED

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS gauss_cdc.ledger (
    source text PRIMARY KEY, epoch bigint NOT NULL, n bigint NOT NULL, seq bigint NOT NULL,
    writer bigint NOT NULL, instance text NOT NULL, next_offset bigint NOT NULL,
    cluster_id text NOT NULL, fence bigint NOT NULL, state text NOT NULL,
    inexact text NOT NULL, topics text NOT NULL, resume bigint NOT NULL, csn bigint NOT NULL,
    commit_lsn bigint NOT NULL, committed_at bigint NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT now());
CREATE TABLE IF NOT EXISTS gauss_cdc.tables (
    source text, table_schema text, table_name text,
    made boolean NOT NULL DEFAULT false,  -- by us, not found: a load may create it again
    PRIMARY KEY (source, table_schema, table_name));
CREATE TABLE IF NOT EXISTS gauss_cdc.loads (  -- that began and did not end
    source text, table_schema text, table_name text,
    loaded bigint NOT NULL,  -- rows: all that the table may hold
    PRIMARY KEY (source, table_schema, table_name));
CREATE TABLE IF NOT EXISTS gauss_cdc.shadows (  -- loads whose rows readers see from END on
    source text, table_schema text, table_name text,
    shadow text NOT NULL,  -- a table of this schema, with the rows
    PRIMARY KEY (source, table_schema, table_name));
CREATE TABLE IF NOT EXISTS gauss_cdc.conflicts (  -- with what others changed, since its load
    source text, table_schema text, table_name text,
    overwritten bigint NOT NULL, missing bigint NOT NULL,  -- rows
    last_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, table_schema, table_name));
CREATE TABLE IF NOT EXISTS gauss_cdc.shapes (  -- as the source's rows were written into them
    source text, table_schema text, table_name text,
    shape text NOT NULL,
    PRIMARY KEY (source, table_schema, table_name));
CREATE TABLE IF NOT EXISTS gauss_cdc.lease (  -- who applies; all others wait
    source text PRIMARY KEY, holder text NOT NULL, expires timestamptz NOT NULL,
    keeper bigint, keeper_since timestamptz,  -- the session that renews it
    worker bigint, worker_since timestamptz)  -- the session of the steps
"""
_FIELDS: Final = (
    "source", "epoch", "n", "seq", "writer", "instance", "next_offset", "cluster_id", "fence",
    "state", "inexact", "topics", "resume", "csn", "commit_lsn", "committed_at",
)  # fmt: skip
_SELECT: Final = f"SELECT {', '.join(_FIELDS)} FROM gauss_cdc.ledger WHERE source = %s"
_MOVED: Final = tuple(f for f in _FIELDS if f not in ("source", "fence", "inexact", "topics"))
_UPDATE: Final = "UPDATE gauss_cdc.ledger SET {}, applied_at = now() WHERE source = %s" + "".join(
    f" AND {field} = %s" for field in COMPARED
)


def make_tables(cursor: Any) -> Mapping[str, int]:
    """Make schema and tables where they are missing; return the tables' oids."""
    # Looked for first: not every product knows IF NOT EXISTS of a schema.
    cursor.execute("SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = 'gauss_cdc'")
    if cursor.fetchone() is None:
        cursor.execute("CREATE SCHEMA gauss_cdc")
    cursor.execute(_TABLES)
    return our_tables(cursor)  # now: somebody may have been faster


def take_fence(cursor: Any, source: str, guard: str) -> Ledger:
    """Make the row where it is missing; return the ledger with the next fence."""
    ledger = lock_ledger(cursor, source, guard)
    if ledger is None:
        ledger = Ledger(source)
        marks = ", ".join(["%s"] * len(_FIELDS))
        cursor.execute(
            f"INSERT INTO gauss_cdc.ledger ({', '.join(_FIELDS)}) VALUES ({marks})",
            [_cell(ledger, f) for f in _FIELDS],
        )
    ledger = replace(ledger, fence=ledger.fence + 1)
    cursor.execute(
        "UPDATE gauss_cdc.ledger SET fence = %s WHERE source = %s", (ledger.fence, source)
    )
    return ledger


def lock_ledger(cursor: Any, source: str, guard: str) -> Ledger | None:
    """Read the row and hold it until the transaction ends; `guard`: see `ownership.guard`."""
    cursor.execute(f"{guard}{_SELECT} FOR UPDATE", (source,))
    row = cursor.fetchone()
    return None if row is None else _ledger(row)


def mark_taken(cursor: Any, ledger: Ledger, table: str, *, by: str) -> None:
    """Say in another source's ledger, whose lock is held, that its table is not its own.

    Its applier may have been silent for a while: it writes no more, by the next fence.
    """
    inexact = {**ledger.inexact, table: f"was taken by source {by}, with `apply --replace`"}
    taken = replace(ledger, inexact=inexact, state=state_of(inexact))
    cursor.execute(
        "UPDATE gauss_cdc.ledger SET inexact = %s, state = %s, fence = fence + 1 WHERE source = %s",
        (_cell(taken, "inexact"), taken.state, ledger.source),
    )


def read_ledger(connection: Any, source: str) -> Ledger | None:
    """Look at a target's ledger without taking part; None where nothing was applied yet."""
    with connection.cursor() as cursor:
        if "ledger" not in our_tables(cursor):
            return None
        cursor.execute(_SELECT, (source,))
        row = cursor.fetchone()
    return None if row is None else _ledger(row)


def move_ledger(cursor: Any, before: Ledger, upto: Ledger) -> None:
    """Write what changed; raise Superseded where the ledger is not `before`."""
    cursor.execute(*_moving(before, upto))
    if cursor.rowcount != 1:
        raise Superseded("the ledger moved", built_on=before.seq)


def move_or_fail(
    before: Ledger, upto: Ledger, guard: str, more: str = ""
) -> tuple[str, list[object]]:
    """Return a statement that writes what changed, and fails where the ledger is not `before`.

    `more`: what else to evaluate, behind a comma.
    """
    update, values = _moving(before, upto)
    text = f"{guard}WITH moved AS ({update} RETURNING 1)"
    return f"{text} SELECT 1 / count(*){more} FROM moved", values


def _moving(before: Ledger, upto: Ledger) -> tuple[str, list[object]]:
    """The long fields are written only if they changed."""
    long = [f for f in ("inexact", "topics") if getattr(before, f) != getattr(upto, f)]
    fields = [*_MOVED, *long]
    known = [getattr(before, field) for field in COMPARED]
    return (
        _UPDATE.format(", ".join(f"{f} = %s" for f in fields)),
        [*(_cell(upto, f) for f in fields), upto.source, *known],
    )


def _cell(ledger: Ledger, field: str) -> object:
    value = getattr(ledger, field)
    return json.dumps(dict(value), ensure_ascii=False) if isinstance(value, Mapping) else value


def _ledger(row: Sequence[Any]) -> Ledger:
    raw = dict(zip(_FIELDS, row, strict=True))
    return Ledger.read(raw | {f: json.loads(raw[f]) for f in ("inexact", "topics")})
