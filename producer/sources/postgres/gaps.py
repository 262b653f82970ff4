"""What a PostgreSQL source does not send, and whether anybody notices.

*seen*: the table is known to lack rows or values; *suspected*: there is evidence;
*invisible*: only a comparison can tell; "": the copy is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Row:
    """One thing that is not in the stream: its class with event triggers, and without."""

    case: str
    told: str
    inferred: str


HOLES: Final = (
    Row("ADD COLUMN with a constant or stable default", "", ""),
    Row("ADD COLUMN with a volatile default: values of older rows", "seen", "suspected"),
    Row("ALTER TYPE by assignment or a plain cast, in the statement's own text", "", "suspected"),
    Row("ALTER TYPE … USING something computed", "seen", "suspected"),
    Row("ALTER TYPE in a function that the client's text does not show", "seen", "suspected"),
    Row("ALTER TYPE of a composite type: its attributes in older rows", "seen", "seen"),
    Row("rename of a column", "", "stop, unless its number tells"),
    Row("a column dropped and made again, of the same name and type", "", "suspected"),
    Row("rename of a table, SET SCHEMA", "", "suspected"),
    Row("CREATE TABLE AS, SELECT INTO into a schema that is published whole", "", "suspected"),
    Row("CREATE TABLE AS into a published list of tables (before 15)", "seen", "suspected"),
    Row("a table becomes captured later: its older rows", "seen", "suspected"),
    Row("SET UNLOGGED, or a name outside of [tables]: later rows", "seen", "seen"),
    Row("RENAME VALUE of an enum: values of older rows", "", "seen"),
    Row("a table that leaves the publication: later rows", "seen", "seen"),
    Row("DROP TABLE", "", ""),
    Row("a table dropped and made again that is not published any more", "seen", "seen"),
    Row("DETACH or DROP of a partition by range or list", "", "seen"),
    Row("DETACH or DROP of a partition by hash, or by an expression", "seen", "seen"),
    Row("ATTACH of a table that was captured", "", "suspected"),
    Row("ATTACH of a table that was not captured", "seen", "suspected"),
    Row("TRUNCATE of a partition by range or list, of a root that is published", "", "suspected"),
    Row("TRUNCATE of a partition by hash, or by an expression", "seen", "suspected"),
    Row("the same under session_replication_role = replica", "invisible", "invisible"),
    Row("DDL while event triggers are off (ALTER SYSTEM, single-user mode)", "as inferred", ""),
)
