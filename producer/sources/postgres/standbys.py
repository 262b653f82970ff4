"""Whether a promoted standby would have the slot, as far as the primary shows it (17 and newer).

Manual: "Logical Replication Failover", "Replication Slot Synchronization".
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, Literal

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.sources.postgres import catalog
from schemas.findings import Finding, Level

FAILOVER: Final = 170_000  # from here on standbys synchronize slots
_SUBJECT: Final = "standbys"
# Who follows by a physical slot: with hot_standby_feedback the slot holds an xmin.
_FOLLOWERS: Final = """
SELECT slot_name, active, xmin IS NOT NULL OR catalog_xmin IS NOT NULL
FROM pg_replication_slots WHERE slot_type = 'physical' AND NOT temporary ORDER BY 1
"""


def check_standbys(
    connection: Connection, slot: str, *, asked: Literal["auto", "on", "off"], is_cluster: bool
) -> Iterator[Finding]:
    """Say what to set where hosts, `failover-slot` or the slot say that promotions are meant."""
    state = catalog.slot_state(connection, slot)
    has_failover = state is not None and state.failover
    is_asked = asked == "on" or (asked == "auto" and is_cluster)
    if not has_failover and not is_asked:
        return
    if connection.server_version < FAILOVER:
        yield Finding(
            Level.WARNING,
            _SUBJECT,
            "before 17 a slot stays on its server",
            "after a promotion `gauss-cdc run --accept-switch` reads all tables again",
        )
        return
    if state is not None and not has_failover:
        hint = "the next `run` makes it one"
        yield Finding(Level.NOTE, _SUBJECT, f"{slot} is no failover slot yet", hint)
    with catalog.asking(connection) as cursor:
        cursor.execute(_FOLLOWERS)
        followers = {name: (active, holds) for name, active, holds in cursor.fetchall()}
        cursor.execute("SHOW synchronized_standby_slots")
        named = [name.strip().strip('"') for name in cursor.fetchone()[0].split(",")]
    yield from _problems([name for name in named if name], followers)


def _problems(named: list[str], followers: dict[str, tuple[bool, bool]]) -> Iterator[Finding]:
    if not followers:
        yield Finding(
            Level.WARNING,
            _SUBJECT,
            "none has a physical slot here, so none synchronizes ours",
            "make one for each, and set primary_slot_name, hot_standby_feedback = on, "
            "sync_replication_slots = on and a dbname in primary_conninfo there",
        )
        return
    if not named:
        yield Finding(
            Level.WARNING,
            _SUBJECT,
            "synchronized_standby_slots is empty: commits may be delivered that a standby lacks",
            f"set it here to the slots of those that may be promoted, of {', '.join(followers)}",
        )
    for name in named:
        is_active, holds = followers.get(name, (False, False))
        if not is_active:
            what = "is not active" if name in followers else "does not exist"
            yield Finding(
                Level.WARNING,
                _SUBJECT,
                f"slot {name} {what}, and is in synchronized_standby_slots: `run` gets nothing",
                "start that standby (primary_slot_name), or take the name out",
            )
        elif not holds:
            yield Finding(
                Level.WARNING,
                _SUBJECT,
                f"the standby of slot {name} sends no feedback: it synchronizes no slots",
                "set hot_standby_feedback = on and sync_replication_slots = on there",
            )
        else:
            what = f"slot {name} is followed, with feedback"
            hint = "sync_replication_slots = on there is not seen from here"
            yield Finding(Level.OK, _SUBJECT, what, hint)
