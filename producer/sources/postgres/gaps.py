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
    Gap("the same, where its rows are written anew before anybody looks", "", "suspected"),
    Gap(
        "the same in a statement that writes rows anew and has SET DEFAULT, too",
        "seen",
        "suspected",
    ),
    Gap("ADD COLUMN with a volatile default: values of older rows", "seen", "suspected"),
    Gap("ALTER TYPE by assignment or a plain cast, in the statement's own text", "", "suspected"),
    Gap("the same of xml, or of regclass and its like", "seen", "suspected"),
    Gap("rename of what a value of regclass and its like names", "seen", "seen"),
    Gap("ALTER TYPE … USING something computed", "seen", "suspected"),
    Gap("ALTER TYPE in a function that the client's text does not show", "seen", "suspected"),
    Gap("ALTER TYPE of a composite type: its attributes in older rows", "seen", "seen"),
    Gap("a primary key dropped, and made or made again later", "", "suspected"),
    Gap(
        "rename of a column",
        "",
        "suspected, unless its column number identifies it",
    ),
    Gap("a column dropped and made again, of the same name and type", "", "suspected"),
    Gap("rename of a table, SET SCHEMA", "", "suspected"),
    Gap("SET SCHEMA out of a schema that is published whole", "suspected", "suspected"),
    Gap("CREATE TABLE AS, SELECT INTO into a schema that is published whole", "", "suspected"),
    Gap("CREATE TABLE AS into a published list of tables (before 15)", "seen", "suspected"),
    Gap("a table becomes captured later: its older rows", "seen", "suspected"),
    Gap("SET UNLOGGED, or a name outside of [tables]: later rows", "seen", "seen"),
    Gap("SET UNLOGGED and LOGGED again before anybody looks", "seen", "suspected"),
    Gap("the same of a partition whose root is published", "suspected", "suspected"),
    Gap("RENAME VALUE of an enum: values of older rows", "", "seen"),
    Gap("the same, and its name back before anybody looks", "", "suspected"),
    Gap("labels or attributes below a range or multirange: values of older rows", "seen", "seen"),
    Gap("DROP EXPRESSION: older values of a generated column", "seen", "seen"),
    Gap("a table that leaves the publication: later rows", "seen", "seen"),
    Gap("a table with WHERE or a column list in the publication: rows, columns", "seen", "seen"),
    Gap("a publication that does not publish every kind of change", "seen", "seen"),
    Gap("any of that, undone before anybody looks", "suspected", "suspected"),
    Gap("DROP TABLE", "", ""),
    Gap("a table dropped and made again that is not published any more", "seen", "seen"),
    Gap("DETACH or DROP of a partition by range or list", "", "seen"),
    Gap("DETACH or DROP of a partition whose bounds only the source can compute", "seen", "seen"),
    Gap("ATTACH of a table that was captured", "", "suspected"),
    Gap("ATTACH of a table that was not captured", "seen", "suspected"),
    Gap(
        "partitions published as their root from now on, or a root as its partitions",
        "suspected",
        "suspected",
    ),
    Gap("TRUNCATE of a partition by range or list, of a root that is published", "", "suspected"),
    Gap("TRUNCATE of a partition whose bounds only the source can compute", "seen", "suspected"),
    Gap("the same under session_replication_role = replica", "suspected", "suspected"),
    Gap("a partitioned table whose key is not valid: rows that are equal in it", "seen", "seen"),
    Gap("a root with a foreign partition, or with one of another replica identity", "seen", "seen"),
    Gap("DDL while event triggers are off (ALTER SYSTEM, single-user mode)", "as inferred", ""),
)

# What `check` reports if there are no triggers.
WITHOUT_TRIGGERS: Final = (
    "are inferred at the first row of a new shape: not captured are new and dropped tables, "
    "renames of tables, partitions attached, detached or dropped, values that ALTER TYPE … "
    "USING or a volatile default computed, NOT NULL, defaults, unique indexes, other objects"
)
