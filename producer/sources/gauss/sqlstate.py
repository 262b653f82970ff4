"""Meanings of errors of openGauss and GaussDB that differ from PostgreSQL's.

Texts are reworded and translated, codes are not; but this family uses some
codes for several things.  For those the hint names all of them, and the driver
reads the catalog on another connection to find the right one (the walsender has
closed the first):

| asked | code  | may be                                                              |
|-------|-------|---------------------------------------------------------------------|
| login | 28000 | no line in pg_hba.conf; the initial user from another host          |
| login | 57P03 | the server starts or stops; an ordinary session at the HA port      |
| start | 55000 | a slot of another database; a physical one; wal_level               |
| start | DB010 | no such slot (parallel decoding)                                    |
| any   | 57P01 | an administrator, a shutdown, or session_timeout                    |

Codes: openGauss, utils/errcodes; which are sent where: recorded sessions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from producer.errors import (
    ConnectionLost,
    DecodersBusy,
    LoginRefused,
    NotPermitted,
    OptionRefused,
    RoleDiffers,
    SlotInvalid,
    SlotMissing,
    SourceError,
    WrongPort,
)
from producer.wire.protocol import ServerError
from producer.wire.sqlstate import Asked, Meaning, error_of, meaning_of

_NO_HBA: Final = (
    "check that pg_hba.conf has a line for this database, user and address, such as"
    " `hostssl DATABASE USER ADDRESS sha256`; the initial user may not log in from another host:"
    " make a user of your own"
)
_NO_DATABASE: Final = (
    "no such database; check the dsn. If it was dropped, its slot still keeps log: drop it"
    " from another database with pg_drop_replication_slot, and use a new kafka.prefix"
)
_HA_PORT: Final = (
    "with enable_thread_pool = on replication is served at the HA port only, usually the main"
    " port + 1: name it as the replication port"
)
_MISSING_SLOT: Final = "see pg_replication_slots; if it was dropped, changes since then are gone"
_OPTION: Final = "see the table of decoding options: they differ by product and version"
_ROLE: Final = "standby-connection is for a standby; check role and hosts"
_WAL_GONE: Final = (
    "WAL that the slot needs is gone, or the server lacks the slot's plugin; for the former drop"
    " the slot and run gauss-cdc run --accept-gap to load again"
)

_MEANINGS: Final[Mapping[tuple[Asked, str], Meaning]] = {
    (Asked.LOGIN, "28000"): Meaning(LoginRefused, _NO_HBA),
    (Asked.LOGIN, "3D000"): Meaning(LoginRefused, _NO_DATABASE),
    (Asked.LOGIN, "0A000"): Meaning(
        LoginRefused, "the server does not support this protocol version: try 3.50 or 3.0"
    ),
    (Asked.LOGIN, "22023"): Meaning(SourceError, "the server does not know one of our settings"),
    (Asked.REPLICATION_LOGIN, "22023"): Meaning(WrongPort, _HA_PORT),
    (Asked.LOGIN, "57P03"): Meaning(
        ConnectionLost,
        "the server starts or stops; or this is its HA port, which accepts replication only",
    ),
    (Asked.QUERY, "25006"): Meaning(RoleDiffers, "this is a standby: nothing can be written here"),
    (Asked.CREATE_SLOT, "25006"): Meaning(RoleDiffers, "slots are created on the primary"),
    (Asked.CREATE_SLOT, "42710"): Meaning(SourceError, "a slot of this name exists already"),
    (Asked.CREATE_SLOT, "53400"): Meaning(
        DecodersBusy, "all slots are in use; raise max_replication_slots or drop an old one"
    ),
    (Asked.CREATE_SLOT, "58P01"): Meaning(SourceError, "the server lacks this output plugin"),
    (Asked.START, "22023"): Meaning(OptionRefused, _OPTION),
    (Asked.START, "42601"): Meaning(OptionRefused, _OPTION),
    (Asked.START, "42809"): Meaning(RoleDiffers, _ROLE),
    (Asked.START, "DB010"): Meaning(SlotMissing, _MISSING_SLOT),
    (Asked.START, "58P01"): Meaning(SlotInvalid, _WAL_GONE),
    # openGauss with a publication that logs DDL: the plugin expands "Drop type command start".
    (Asked.STREAM, "22P02"): Meaning(
        SourceError,
        "test_decoding and sql_decoding cannot print a DROP TYPE that a publication with ddl"
        " logged, and stop there each time: use mppdb_decoding, in a new slot made by"
        " gauss-cdc run --accept-gap",
    ),
    (Asked.STREAM, "42809"): Meaning(RoleDiffers, _ROLE),
    (Asked.STREAM, "58P01"): Meaning(SlotInvalid, _WAL_GONE),
    # The server could not read our message: a retry would not help.
    (Asked.STREAM, "08P01"): Meaning(SourceError, "is this openGauss or GaussDB?"),
}

_ANYWHERE: Final[Mapping[str, Meaning]] = {
    "42501": Meaning(
        NotPermitted,
        "ALTER ROLE the user WITH REPLICATION (or GRANT gs_role_replication TO it), and GRANT it"
        " what it is to read",
    ),
    "57P01": Meaning(
        ConnectionLost,
        "an administrator ended the session, the server stops, or session_timeout is over",
    ),
}


def refusal(error: ServerError, asked: Asked, **where: object) -> SourceError:
    """Convert a server's error into the narrowest of ours."""
    state = error.sqlstate
    general = Asked.LOGIN if asked is Asked.REPLICATION_LOGIN else asked
    meaning = (
        _MEANINGS.get((asked, state))
        or _MEANINGS.get((general, state))
        or _ANYWHERE.get(state)
        or meaning_of(error, asked)
    )
    return error_of(error, asked, meaning, **where)


def is_ambiguous(error: ServerError, asked: Asked) -> bool:
    """Is the catalog required to find the reason of an error?

    Parallel decoding refuses some things (a decoder of the last connection that is
    still ending, the twenty-first dispatcher) with undocumented codes.
    """
    state = error.sqlstate
    if asked is not Asked.START or state in {"55000", "DB010"}:
        return asked is Asked.START
    is_known = (asked, state) in _MEANINGS or state in _ANYWHERE
    is_known |= meaning_of(error, asked).error is not SourceError
    return error.module == "LOGICAL_DECODE" and not is_known
