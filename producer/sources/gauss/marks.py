"""Marks in a stream that is ordered by CSN, which no position in the log can be compared with.

A mark is a row of a table of ours, in a transaction of its own: rows are what every mode of
decoding shows, serial or parallel, on a data node or through a coordinator.  It is found by its
content, since each node of a distributed server gives out transaction ids of its own.
"""
# ruff: noqa: S608  every value in a statement is quoted

from __future__ import annotations

import secrets
from typing import Final

from producer.errors import NotOurs, NotPermitted
from producer.sources.gauss.resolver import MARKS
from producer.sources.rights import has_own_schema, make_own_schema, may_write_own, own_guard
from producer.sources.session import Asks
from schemas import ownership
from schemas.quoting import constant, identifier
from schemas.system_schemas import OWN_SCHEMA

_BITS: Final = 62  # of a token: a bigint, and never the same again
_IS_THERE: Final = (
    "SELECT 1 FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
    f" WHERE n.nspname = '{MARKS.schema}' AND c.relname = '{MARKS.name}'"
)
_MAKE: Final = f"CREATE TABLE {MARKS} (token bigint PRIMARY KEY, slot text NOT NULL)"


def is_there(asking: Asks) -> bool:
    """Say whether the table is made."""
    return bool(asking.query(_IS_THERE))


def missing(asking: Asks, role: str) -> tuple[str, ...]:
    """List the statements that let a role write marks; none where it may, or may make the table."""
    if may_write_own(asking, MARKS.name):
        return ()
    user = identifier(role)
    if not has_own_schema(asking):  # else somebody else may make it
        return (f"CREATE SCHEMA {OWN_SCHEMA} AUTHORIZATION {user}",)
    made = [] if is_there(asking) else [_MAKE]
    return (
        *made,
        f"GRANT USAGE ON SCHEMA {OWN_SCHEMA} TO {user}",
        f"GRANT SELECT, INSERT, DELETE ON {MARKS} TO {user}",
    )


def make(asking: Asks) -> bool:
    """Make the table; False: it is there."""
    if is_there(asking):
        return False
    make_own_schema(asking)
    asking.query(_MAKE)
    return True


def prepare(asking: Asks, slot: str) -> str:
    """Make the table, if it is not there, and remove older marks of a slot.

    Returns what stands before statements on the table.  Raises NotPermitted, NotOurs.
    """
    try:
        make(asking)
        guard = own_guard(asking, ownership.MARKS)
        asking.query(f"{guard}DELETE FROM {MARKS} WHERE slot = {constant(slot)}")
    except NotOurs:
        raise
    except NotPermitted as error:
        raise NotPermitted(
            "the role may not make or write the table of marks, by which tables are loaded",
            hint="docs/security.md has the statements for an administrator "
            '("Loads in the order of CSNs")',
        ) from error
    return guard


def commit_mark(asking: Asks, slot: str, guard: str) -> int:
    """Commit a mark; return its token.  `guard` is what `prepare` returned."""
    token = secrets.randbits(_BITS)
    asking.query(f"{guard}INSERT INTO {MARKS} (token, slot) VALUES ({token}, {constant(slot)})")
    return token
