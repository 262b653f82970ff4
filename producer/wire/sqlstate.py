"""What an error of the server means: by its SQLSTATE and the request.

Message texts are translated and reworded between releases; the five letters
are not.  The same code may mean different things for different requests
(42704 is a missing slot at START_REPLICATION and a missing publication once the
stream runs), hence the two columns of the table.

Codes: PostgreSQL manual, appendix "PostgreSQL Error Codes".
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final, NamedTuple

from producer.errors import (
    ConnectionLost,
    LoginRefused,
    NotPermitted,
    RoleDiffers,
    SlotMissing,
    SlotTaken,
    SourceError,
    Unsupported,
)
from producer.wire.protocol import ServerError
from schemas.errors import LOAD_AGAIN, with_objects
from schemas.quoting import identifier


class Asked(Enum):
    """The request that the server refused."""

    LOGIN = "login refused"
    REPLICATION_LOGIN = "login for replication refused"
    QUERY = "query refused"
    CREATE_SLOT = "slot not created"
    DROP_SLOT = "slot not dropped"
    START = "stream refused"
    STREAM = "stream ended by the server"


class Meaning(NamedTuple):
    """The error a refusal becomes, and what to do about it."""

    error: type[SourceError]
    hint: str = ""


_NO_HBA: Final = (
    "check that the role may log in, and that pg_hba.conf has a line for this database, user and "
    "address, such as `hostssl DATABASE USER ADDRESS scram-sha-256` (a logical stream matches the "
    "database's own line, not `replication`)"
)
_MAY_CONNECT: Final = "GRANT CONNECT ON DATABASE {dbname} TO {user}"  # names that `where` has
_NO_RIGHT: Final = (
    "ALTER ROLE the user WITH REPLICATION; at Amazon RDS and Aurora GRANT rds_replication TO it"
)
_NO_READING: Final = (
    "GRANT the user what it is to read: USAGE of the schema and SELECT on the table, or ALTER ROLE"
    " it WITH BYPASSRLS where a policy hides rows; "
    "`gauss-cdc check` names what it lacks"
)
DIRECT: Final = (
    "PgBouncer and its like keep no session and no stream: name the server's own host and port,"
    " see docs/managed.md"
)
_MISSING_SLOT: Final = (
    "`gauss-cdc slot list` shows those there are; if it was dropped, changes since then are gone: "
    + LOAD_AGAIN
)
_FULL: Final = (
    "raise max_connections or max_wal_senders, or close other clients; or give it disk or memory"
)
_WAL_LEVEL: Final = "set wal_level = logical in postgresql.conf and restart the server"

_MEANINGS: Final[Mapping[tuple[Asked, str], Meaning]] = {
    (Asked.LOGIN, "28P01"): Meaning(LoginRefused, "check user and password"),
    (Asked.LOGIN, "28000"): Meaning(LoginRefused, _NO_HBA),
    # A server says it of a broken message alone, a pooler of settings that it does not know.
    (Asked.LOGIN, "08P01"): Meaning(Unsupported, DIRECT),
    (Asked.LOGIN, "3D000"): Meaning(LoginRefused, "no such database; check the dsn"),
    (Asked.LOGIN, "55000"): Meaning(
        ConnectionLost, "the database takes no connections: ALTER DATABASE, ALLOW_CONNECTIONS true"
    ),
    (Asked.LOGIN, "42501"): Meaning(NotPermitted, _MAY_CONNECT),
    (Asked.REPLICATION_LOGIN, "42501"): Meaning(
        NotPermitted, f"ALTER ROLE {{user}} WITH REPLICATION; {_MAY_CONNECT}"
    ),
    (Asked.QUERY, "42501"): Meaning(NotPermitted, _NO_READING),
    (Asked.CREATE_SLOT, "42710"): Meaning(SourceError, "a slot of this name exists already"),
    (Asked.CREATE_SLOT, "53400"): Meaning(
        SourceError, "all slots are in use; raise max_replication_slots or drop an old one"
    ),
    (Asked.CREATE_SLOT, "55000"): Meaning(SourceError, _WAL_LEVEL),
    (Asked.CREATE_SLOT, "58P01"): Meaning(SourceError, "the server lacks this output plugin"),
    (Asked.DROP_SLOT, "42704"): Meaning(SlotMissing, _MISSING_SLOT),
    (Asked.START, "42704"): Meaning(SlotMissing, _MISSING_SLOT),
    (Asked.START, "55000"): Meaning(SourceError, _WAL_LEVEL),
    (Asked.STREAM, "42704"): Meaning(
        SourceError,
        "it was missing, or another one, when the next changes were made: make it if it is missing"
        " now, then `gauss-cdc run --accept-gap`",
    ),
}

_NO_UTF8: Final = (
    "a value has a character that has no equivalent in UTF-8: correct it at the source; a "
    f"stream cannot pass it, so then {LOAD_AGAIN}"
)

_ANYWHERE: Final[Mapping[str, Meaning]] = {
    "22P05": Meaning(SourceError, _NO_UTF8),
    "28P01": Meaning(LoginRefused, "check user and password"),
    "28000": Meaning(LoginRefused, _NO_HBA),
    "25P03": Meaning(
        ConnectionLost,
        "the server ends idle transactions; raise idle_in_transaction_session_timeout",
    ),
    "25P04": Meaning(
        ConnectionLost,
        "the server ends long transactions; set transaction_timeout = 0 for the role",
    ),
    "25006": Meaning(
        RoleDiffers,
        "the server is a standby: name the primary, too; or default_transaction_read_only is on:"
        " switch it off for the role",
    ),
    "40001": Meaning(
        ConnectionLost,
        "a concurrent update, or what a standby replays (max_standby_streaming_delay); it is"
        " tried again",
    ),
    "40P01": Meaning(ConnectionLost, "a deadlock; it is tried again"),
    "42501": Meaning(NotPermitted, _NO_RIGHT),
    "55P03": Meaning(
        ConnectionLost, "another session holds a lock, see pg_locks; it is tried again"
    ),
    "57014": Meaning(ConnectionLost, "statement_timeout or a user cancelled the statement"),
    "55006": Meaning(
        SlotTaken, "another connection uses the slot (pg_replication_slots.active_pid)"
    ),
    "57P01": Meaning(ConnectionLost, "an administrator ended the connection, or the server stops"),
    "57P02": Meaning(
        ConnectionLost, "another process of the server crashed; it recovers by itself"
    ),
    "57P03": Meaning(ConnectionLost, "the server starts or stops"),
    "57P05": Meaning(ConnectionLost, "the server ends idle sessions; raise idle_session_timeout"),
}

# Data exceptions quote the value; what a function raises (P0) may say anything.
_QUOTING: Final = frozenset({"22", "P0"})
_OF_SETTINGS: Final = frozenset({"22023"})
_IN_ITS_LOG: Final = "the message may quote a value, and stands in the server's log only"

_UNSENT: Final = {
    Asked.STREAM: "where it cannot print a row, as with a bytea above 512 MB: delete that row, or"
    " exclude its table. Where it names an unexpected duplicate, its decoder cannot pass a"
    " transaction that made or rewrote tables: nothing can be mended at the source. In both cases"
    f" {LOAD_AGAIN}",
}
_CLASSES: Final[Mapping[str, Meaning]] = {
    "08": Meaning(ConnectionLost),
    "53": Meaning(ConnectionLost, _FULL),  # no connections, memory or disk left
}


def refusal(error: ServerError, asked: Asked, **where: object) -> SourceError:
    """Convert a server's error into the narrowest of ours."""
    return error_of(error, asked, meaning_of(error, asked), **where)


def meaning_of(error: ServerError, asked: Asked) -> Meaning:
    """What a refusal of PostgreSQL means."""
    state = error.sqlstate
    general = Asked.LOGIN if asked is Asked.REPLICATION_LOGIN else asked
    return (
        _MEANINGS.get((asked, state))
        or _MEANINGS.get((general, state))
        or _ANYWHERE.get(state)
        or _CLASSES.get(state[:2])
        or Meaning(SourceError, error.hint or _UNSENT.get(asked, ""))
    )


def error_of(error: ServerError, asked: Asked, meaning: Meaning, **where: object) -> SourceError:
    """Build the error that `meaning` names.

    What may hold cell values is left out: the server's DETAIL but of some, and the messages of data
    exceptions and of functions that people wrote.
    """
    is_of_names = error.sqlstate[:2] not in _QUOTING or error.sqlstate in _OF_SETTINGS
    said = error.message if is_of_names else _IN_ITS_LOG
    what = f"{asked.value}: {with_objects(said, error.detail, error.sqlstate)}"
    hint = meaning.hint
    for name in ("user", "dbname"):
        hint = hint.replace(f"{{{name}}}", identifier(str(where.get(name) or "…")))
    return meaning.error(what, hint=hint, sqlstate=error.sqlstate, **where)
