"""What a PostgreSQL source does not send, and whether that is detected.

*seen* (detected): the table is known to lack rows or values; *suspected*: there is evidence;
*invisible* (undetectable): only a comparison shows it; "": the copy is exact.  `check`, the
documentation's table and the tests use this table.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Gap:
    """One thing that is not in the stream: its class with event triggers, and without."""

    case: str
    with_triggers: str
    inferred: str


GAPS: Final = (
    Gap("ADD COLUMN with a constant or stable default", "", ""),
    Gap(
        "ADD COLUMN with a constant or stable default, if a rewrite follows before a look",
        "",
        "suspected",
    ),
    Gap("ADD COLUMN in a statement that rewrites rows and has SET DEFAULT", "seen", "suspected"),
    Gap("ADD COLUMN with a volatile default: values of older rows", "seen", "suspected"),
    Gap("ALTER TYPE by assignment or a plain cast", "", "suspected"),
    Gap("ALTER TYPE of xml, regclass and its like", "seen", "suspected"),
    Gap("rename of what a regclass value names", "seen", "seen"),
    Gap("ALTER TYPE … USING, computed", "seen", "suspected"),
    Gap("ALTER TYPE within a function", "seen", "suspected"),
    Gap("attributes of a composite type: values of older rows", "seen", "seen"),
    Gap("a primary key dropped, or made later", "", "suspected"),
    Gap("rename of a column, unless its number identifies it", "", "suspected"),
    Gap("a column dropped and made again, of the same type", "", "suspected"),
    Gap("rename of a table, SET SCHEMA", "", "suspected"),
    Gap("SET SCHEMA out of a schema that is published", "suspected", "suspected"),
    Gap("CREATE TABLE AS, SELECT INTO into a schema that is published", "", "suspected"),
    Gap("CREATE TABLE AS, in a published list of tables (before 15)", "seen", "suspected"),
    Gap("a table becomes captured later: its older rows", "seen", "suspected"),
    Gap("SET UNLOGGED, or a name outside of [tables]: later rows", "seen", "seen"),
    Gap("SET UNLOGGED and LOGGED before a look", "seen", "suspected"),
    Gap("SET UNLOGGED and LOGGED of a partition of a published root", "suspected", "suspected"),
    Gap("RENAME VALUE of an enum: values of older rows", "", "seen"),
    Gap("RENAME VALUE of an enum, undone before a look", "", "suspected"),
    Gap("labels or attributes in a range or multirange: values of older rows", "seen", "seen"),
    Gap("DROP EXPRESSION: older values of a generated column", "seen", "seen"),
    Gap("a table that leaves the publication: later rows", "seen", "seen"),
    Gap("WHERE or a column list in the publication: rows, columns", "seen", "seen"),
    Gap("a kind of change that is not published", "seen", "seen"),
    Gap("a change of the publication, undone before a look", "suspected", "suspected"),
    Gap("DROP TABLE", "", ""),
    Gap("a table dropped and made again, now unpublished", "seen", "seen"),
    Gap("DETACH or DROP of a partition by range or list", "", "seen"),
    Gap("DETACH or DROP of a partition whose bounds only the source computes", "seen", "seen"),
    Gap("ATTACH of a table that was captured", "", "suspected"),
    Gap("ATTACH of a table that was not captured", "seen", "suspected"),
    Gap(
        "partitions published as their root now, or the reverse",
        "suspected",
        "suspected",
    ),
    Gap("TRUNCATE of a partition by range or list, of a published root", "", "suspected"),
    Gap("TRUNCATE of a partition whose bounds only the source computes", "seen", "suspected"),
    Gap(
        "TRUNCATE of a partition under session_replication_role = replica", "suspected", "suspected"
    ),
    Gap("a partitioned table whose key is not valid: rows equal in it", "seen", "seen"),
    Gap("a root with a foreign partition, or one of another replica identity", "seen", "seen"),
    Gap(
        "DDL while event triggers are off (ALTER SYSTEM, single-user mode)",
        "as inferred",
        "as inferred",
    ),
    Gap(
        "a TRUNCATE, rows, changes while UNLOGGED, an UPDATE of each row left: one transaction",
        "seen",
        "invisible",
    ),
    Gap("rows that pg_surgery kills, or that damage takes", "invisible", "invisible"),
    Gap("values of sequences, large objects", "invisible", "invisible"),
    Gap("rows of temporary and UNLOGGED tables: the log has none", "invisible", "invisible"),
)

# What `check` reports if there are no triggers.
WITHOUT_TRIGGERS: Final = (
    "are inferred at the first row of a new shape: not captured are new and dropped tables, "
    "renames of tables, partitions attached, detached or dropped, values that ALTER TYPE … "
    "USING or a volatile default computed, NOT NULL, defaults, unique indexes, other objects"
)
