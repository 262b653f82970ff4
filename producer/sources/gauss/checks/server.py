"""Rules about the server: settings, rights, numbers, encoding."""

from __future__ import annotations

from collections.abc import Iterator

from producer.errors import CdcError, Unsupported
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.checks.case import Case
from producer.sources.gauss.options import Decoding
from schemas.findings import Finding, Level


def product(case: Case) -> Iterator[Finding]:
    """Is it the product of source.kind, and has it the requested role?"""
    server, kind = case.readings.server, case.options.kind
    if server.product != kind:
        yield Finding(
            Level.ERROR,
            "server",
            f"is {server.product} {server.version}, and source.kind says {kind}",
            f'kind = "{server.product}"',
        )
        return
    yield Finding(Level.OK, "server", f"{server.product} {server.version}")
    if not server.is_primary and case.options.role == "primary":
        yield Finding(
            Level.ERROR,
            "server",
            "is a standby, and source.role asks for the primary",
            "name all nodes in source.hosts",
        )
    if not server.is_primary and not case.has_slot:
        yield Finding(
            Level.ERROR,
            "slot",
            f"{case.options.slot} does not exist, and slots are created on a primary only",
            "the first `run` with role = primary, or `gauss-cdc slot create`, creates it",
        )


def tls(case: Case) -> Iterator[Finding]:
    """The manual requires TLS with logical decoding."""
    if case.readings.is_on("ssl") is False:
        yield Finding(
            Level.WARNING,
            "ssl",
            "is off at the server; the manual requires it with logical decoding",
            "ssl = on, and sslmode=verify-full in source.dsn",
        )
    elif not case.readings.is_encrypted:
        yield Finding(
            Level.WARNING,
            "ssl",
            "the server has it, and our connection does not use it",
            "sslmode=verify-full in source.dsn",
        )
    else:
        yield Finding(Level.OK, "ssl", "on")


def wal_level(case: Case) -> Iterator[Finding]:
    """Without it nothing is decoded."""
    level = case.readings.settings.get("wal_level", "not known")
    if level != "logical":
        yield Finding(
            Level.ERROR,
            "wal_level",
            f"is {level}",
            "gs_guc set -c wal_level=logical on every node, then restart",
        )
    else:
        yield Finding(Level.OK, "wal_level", level)


def slot_count(case: Case) -> Iterator[Finding]:
    """max_replication_slots >= physical + backup + logical, and the sum with its parts."""
    slots = case.readings.slots
    there = sum(not slot.is_logical and not slot.is_backup for slot in slots)
    physical = max(there, case.readings.standbys)
    backup = sum(slot.is_backup for slot in slots)
    logical = sum(slot.is_logical for slot in slots) + (not case.has_slot)
    needed = physical + backup + logical
    parts = f"{physical} for standbys + {backup} for backups + {logical} logical, ours among them"
    most = case.readings.number("max_replication_slots")
    if most is None:
        yield Finding(Level.NOTE, "max_replication_slots", f"unknown; {needed} needed: {parts}")
    elif needed > most:
        yield Finding(
            Level.ERROR,
            "max_replication_slots",
            f"is {most}, and {needed} are needed: {parts}",
            "raise it on every node and restart, or drop inactive slots",
        )
    else:
        yield Finding(Level.OK, "max_replication_slots", f"{needed} of {most}: {parts}")


def senders(case: Case) -> Iterator[Finding]:
    """A stream needs a walsender of its own."""
    most, used = case.readings.number("max_wal_senders"), case.readings.senders
    if most is None or case.options.interface == "sql":
        return
    ours = case.readings.slot(case.options.slot)
    needed = used + (0 if ours is not None and ours.is_active else 1)
    level = Level.OK if needed <= most else Level.ERROR
    hint = "" if needed <= most else "raise it on every node and restart"
    yield Finding(level, "max_wal_senders", f"{needed} of {most}, ours among them", hint)


def decoders(case: Case) -> Iterator[Finding]:
    """At most 20 slots are decoded at a time."""
    try:
        gauss_slots.check_decoders(case.readings.slots, case.options.slot)
    except CdcError as error:
        yield Finding(Level.ERROR, "slots", error.what, error.hint)


def rights(case: Case) -> Iterator[Finding]:
    """The initial user, or REPLICATION; administrators only while duties are not separated."""
    role = case.readings.role
    separated = case.readings.is_on("enableSeparationOfDuty") is True
    if role.is_initial or role.has_replication or role.is_member:
        yield Finding(Level.OK, "role", f"{role.name} may replicate")
    elif role.is_system_admin and not separated:
        yield Finding(
            Level.OK,
            "role",
            f"{role.name} may replicate as a system administrator, as long as "
            "duties are not separated (enableSeparationOfDuty = off)",
        )
    else:
        why = ", and duties are separated: administrators may not replicate"
        yield Finding(
            Level.ERROR,
            "role",
            f"{role.name} has no REPLICATION right{why if role.is_system_admin else ''}",
            f"ALTER ROLE {role.name} REPLICATION, as the initial user",
        )


def encoding(case: Case) -> Iterator[Finding]:
    """Values come in the encoding of the database."""
    server = case.readings.server
    try:
        codec = server.codec
    except Unsupported as error:
        yield Finding(Level.ERROR, "encoding", f"{server.encoding}: {error.what}", error.hint)
        return
    if server.encoding == "SQL_ASCII":
        yield Finding(
            Level.WARNING,
            "encoding",
            "SQL_ASCII: the encoding is unknown; text that is not ASCII travels as bytes",
            "a database in UTF8",
        )
    else:
        yield Finding(Level.OK, "encoding", f"{server.encoding}, read as {codec}")


def zero_bytes(case: Case) -> Iterator[Finding]:
    """JSON does not carry a zero byte: the value is cut off."""
    decided = case.decided
    is_json = decided.format.style == "j" or (
        decided.mode is not Decoding.PARALLEL and decided.plugin == "mppdb_decoding"
    )
    if is_json:
        yield Finding(
            Level.NOTE,
            "format",
            "JSON truncates a value at a zero byte (not checkable here: rows are not read)",
            "where texts may hold one: parallel-decode-num of 2 and more, whose format is binary",
        )
