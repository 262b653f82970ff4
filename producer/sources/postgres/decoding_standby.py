"""Whether a standby can be read for long, as far as it and its primary show it (16 and newer).

Manual: "Logical Decoding Concepts, Replication Slots": a standby's slot is invalidated when the
primary removes rows of the catalog that it needs, or lowers wal_level.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import CdcError, SourceSwitched
from producer.sources.postgres import catalog
from producer.sources.postgres.primary import Primary
from schemas.findings import Finding, Level, refused

_SUBJECT: Final = "standby"
_HERE: Final = (
    "SELECT current_setting('hot_standby_feedback')::bool, current_setting('primary_slot_name')"
)
_THERE: Final = (
    "SELECT current_setting('wal_level'),"
    " has_function_privilege('pg_log_standby_snapshot()', 'EXECUTE')"
)


def check_standby(connection: Connection, primary: Primary) -> Iterator[Finding]:
    """Say what to set at the server that is read, where it is a standby, and at its primary."""
    if primary.is_read:
        return
    with catalog.asking(connection) as cursor:
        cursor.execute(_HERE)
        has_feedback, physical = cursor.fetchone()
    if not has_feedback:
        yield Finding(
            Level.ERROR,
            _SUBJECT,
            "hot_standby_feedback is off: the primary's VACUUM invalidates the slot",
            "ALTER SYSTEM SET hot_standby_feedback = on, and reload, at the standby",
        )
    elif not physical:
        yield Finding(
            Level.WARNING,
            _SUBJECT,
            "has no primary_slot_name: while it is down, VACUUM may invalidate the slot",
            "make a physical slot at the primary, and set primary_slot_name at the standby",
        )
    else:
        yield Finding(Level.OK, _SUBJECT, f"is read; it sends feedback by slot {physical}")
    try:
        with catalog.asking(primary.connection) as cursor:
            cursor.execute(_THERE)
            wal_level, may_log = cursor.fetchone()
    except SourceSwitched as error:
        yield refused(_SUBJECT, error)
        return
    except CdcError as error:
        yield Finding(
            Level.WARNING,
            _SUBJECT,
            f"no primary to write to ({error.what}): new tables are not published, `snapshot` and "
            "`ddl install` are refused, and a new slot waits up to 15 s",
            "name the primary, too, in [source] hosts",
        )
        return
    if wal_level != "logical":
        yield Finding(
            Level.ERROR,
            _SUBJECT,
            f"wal_level is {wal_level} at its primary",
            "ALTER SYSTEM SET wal_level = logical there, then restart it",
        )
    if not may_log:
        yield Finding(
            Level.NOTE,
            _SUBJECT,
            "the role may not have running transactions logged: a new slot, so each re-read, "
            "waits up to 15 s for the primary",
            "GRANT EXECUTE ON FUNCTION pg_log_standby_snapshot() to it at the primary",
        )
