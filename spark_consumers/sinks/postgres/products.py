"""Differences between the servers that accept PostgreSQL's statements.

openGauss and GaussDB come from PostgreSQL 9.2: no ON CONFLICT, no identity
columns, no LATERAL, no FILTER, no lock_timeout.  Statements that both
understand are used wherever they cost nothing; the rest stands here.

Nothing here was run on an openGauss server: the statements were run on PostgreSQL and
follow openGauss's manual (SQL reference; system catalogs).
"""
# ruff: noqa: S608  every part of a statement is our own

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from spark_consumers.sinks.postgres.waits import LOCK_LIMIT

# Under another lc_monetary 12.34 may be read as money of 1,234.00, and with array_nulls off a NULL
# in an array as the text 'NULL'.
_SETTINGS: Final = """
SET DateStyle = 'ISO, YMD'; SET IntervalStyle = 'postgres'; SET TimeZone = 'UTC';
SET standard_conforming_strings = on; SET xmloption = content; SET client_encoding = 'UTF8';
SET lc_monetary = 'C'; SET array_nulls = on; SET statement_timeout = 0;
SET client_min_messages = warning;
"""


# The operator `=` of a column's type `ty`; an extension's stands in a schema that is not searched.
# "" where elements of type `el` cannot be compared.
EQUALITY: Final = """
       CASE WHEN el.typtype IN ('e', 'r', 'm')
         OR EXISTS (SELECT 1 FROM pg_catalog.pg_opclass o
                    WHERE o.opcintype = el.oid AND o.opcdefault AND o.opcmethod = 403)
         OR EXISTS (SELECT 1 FROM pg_catalog.pg_cast k JOIN pg_catalog.pg_opclass o
                      ON o.opcintype = k.casttarget AND o.opcdefault AND o.opcmethod = 403
                    WHERE k.castmethod = 'b' AND k.castcontext = 'i' AND k.castsource = el.oid)
       THEN coalesce((
           SELECT 'OPERATOR(' || quote_ident(s.nspname) || '.' || p.oprname || ')'
           FROM pg_catalog.pg_opclass o JOIN pg_catalog.pg_amop m
             ON m.amopfamily = o.opcfamily AND m.amopstrategy = 3
            AND m.amoplefttype = o.opcintype AND m.amoprighttype = o.opcintype
           JOIN pg_catalog.pg_operator p ON p.oid = m.amopopr
           JOIN pg_catalog.pg_namespace s ON s.oid = p.oprnamespace AND s.nspname <> 'pg_catalog'
           WHERE o.opcintype = ty.oid AND o.opcdefault AND o.opcmethod = 403), '=')
       ELSE '' END"""


@dataclass(frozen=True, slots=True)
class TargetProduct:
    """What a sink must know of its server."""

    dialect: str
    settings: str
    columns: str  # reads tables' columns: %s = schemas, %s = tables
    has_on_conflict: bool
    has_discard: bool
    may_lose_empty: bool  # may a database hold '' as NULL?
    limits: tuple[tuple[str, str], ...]  # (value, setting), where the server knows it
    has_blocking_pids: bool
    has_policies: bool  # row security that row_security_active() reports
    has_images: bool  # rows are compared as they are stored: *<>, from PostgreSQL 9.4
    session: str  # what names a session in pg_stat_activity
    end_session: str


# Keepalives at both ends: without them a server that lost us keeps the lock for two hours.
_SILENCE: Final = (
    ("30", "tcp_keepalives_idle"),  # seconds
    ("10", "tcp_keepalives_interval"),
    ("3", "tcp_keepalives_count"),
    ("60000", "tcp_user_timeout"),  # milliseconds
)
# A statement that waits for a lock blocks all later ones: it times out, and the step is tried
# again.
_LOCKS: Final = (LOCK_LIMIT, "lock_timeout")

# PostgreSQL's query of columns is next to its reader (pg_catalog).
POSTGRES: Final = TargetProduct(
    dialect="postgres",
    # A policy would hide rows from us, and run its owner's functions: an error is better.
    settings=f"{_SETTINGS} SET idle_in_transaction_session_timeout = 0; SET row_security = off;"
    " SET quote_all_identifiers = off",  # types are known by their names
    columns="",
    has_on_conflict=True,
    has_discard=True,
    may_lose_empty=False,
    has_policies=True,
    has_images=True,
    session="pid",
    end_session="SELECT pg_terminate_backend(%(pid)s)",
    limits=(*_SILENCE, _LOCKS, ("0", "transaction_timeout")),
    has_blocking_pids=True,
)

# pg_attrdef.adgencol distinguishes generated columns (`s`) from defaults; it is read from the row
# as JSON, where foreign text has its quotes escaped, since servers without generated columns
# lack it.  What its functions say of rows that a transaction wrote was not seen: they are not
# asked.  There are no domains.  An array can be compared if its elements can.
_GAUSS_COLUMNS: Final = f"""
SELECT c.oid, n.nspname, c.relname, false, a.attname, format_type(a.atttypid, a.atttypmod),
       NOT a.attnotnull,
       EXISTS (SELECT 1 FROM pg_catalog.pg_attrdef d
               WHERE d.adrelid = a.attrelid AND d.adnum = a.attnum
                 AND row_to_json(d)::text LIKE '%%"adgencol":"s"%%'),
       false,
{EQUALITY}
FROM pg_catalog.pg_class c
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN (SELECT unnest(%s::text[]) AS s, unnest(%s::text[]) AS t) AS wanted
  ON n.nspname = wanted.s AND c.relname = wanted.t
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
JOIN pg_catalog.pg_type ty ON ty.oid = a.atttypid
JOIN pg_catalog.pg_type el ON el.oid = CASE WHEN ty.typcategory = 'A' AND ty.typelem <> 0
                                            THEN ty.typelem ELSE ty.oid END
WHERE c.relkind IN ('r', 'p')
ORDER BY c.oid, a.attnum
"""

OPENGAUSS: Final = TargetProduct(
    dialect="opengauss",
    settings=_SETTINGS,  # what only it has is sent with the login (session_timeout)
    columns=_GAUSS_COLUMNS,
    has_on_conflict=False,
    has_discard=False,
    may_lose_empty=True,
    has_policies=False,
    has_images=False,
    session="sessionid",  # of a session that waits in a thread pool, pid is 0
    end_session="SELECT pg_terminate_session(%(pid)s, %(session)s)",
    limits=_SILENCE,
    has_blocking_pids=False,
)
