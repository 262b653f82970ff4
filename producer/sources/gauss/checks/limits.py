"""Rules about limits of decoding; many cannot be checked, only stated."""

from __future__ import annotations

from collections.abc import Iterator

from producer.errors import OptionRefused
from producer.sources.gauss.checks.case import Case
from producer.sources.gauss.gaps import decoding_mode, invisible_sentence
from producer.sources.gauss.options import Decoding, judge, why_not_full
from producer.sources.gauss.point import has_windows
from producer.sources.gauss.resolver import MARKS
from schemas.findings import Finding, Level


def options(case: Case) -> Iterator[Finding]:
    """Values that are discouraged, and rules that only a server decides."""
    for advice in case.decided.warnings:
        yield Finding(Level.WARNING, "options", str(advice))
    for judged in judge(case.decided, case.readings.facts(case.options.slot)):
        if isinstance(judged, OptionRefused):
            yield Finding(Level.ERROR, "options", str(judged), judged.hint)
        else:
            yield Finding(Level.WARNING, "options", str(judged))
    if sentence := why_not_full(case.options.plugin_options):
        yield Finding(Level.WARNING, "options", sentence)


def ddl(case: Case) -> Iterator[Finding]:
    """DDL is not decoded unless requested; some DDL, and rows after it, are lost."""
    decided = case.decided
    if case.is_gaussdb and decided.get("enable-ddl-decoding") != "true":
        yield Finding(
            Level.NOTE,
            "DDL",
            "is not sent; partitions that change are suspected while `run` reads, else unnoticed",
            "enable-ddl-decoding = true; before ALTER TABLE let `run` catch up",
        )
    mode = decoding_mode(decided)
    if mode.loses_rows_behind_ddl:
        yield Finding(
            Level.NOTE, "DDL", invisible_sentence(mode), "keep DDL in transactions of its own"
        )


def page_copies(case: Case) -> Iterator[Finding]:
    """Replication of data pages is not decoded."""
    if case.readings.is_on("enable_data_replicate") is True:
        yield Finding(
            Level.WARNING,
            "enable_data_replicate",
            "is on: rows that are loaded as pages are not in the log, and are not sent",
            "enable_data_replicate = off",
        )


def subtransactions(case: Case) -> Iterator[Finding]:
    """max_files_per_process must be more than twice the subtransactions."""
    most = case.readings.number("max_files_per_process")
    if most is None:
        return
    yield Finding(
        Level.NOTE,
        "max_files_per_process",
        f"is {most}: a transaction of more than {most // 2} subtransactions that are spilled may "
        "fail to decode, and leaving takes a minute for each 300,000 (not checkable here)",
        "more than twice the subtransactions of your largest transaction",
    )


def rows(case: Case) -> Iterator[Finding]:
    """One row is at most 1 GB; 500 MB are advised, since it grows in decoding."""
    limit = case.options.max_row_bytes
    yield Finding(
        Level.NOTE,
        "rows",
        "a row beyond 500 MB may fail to decode, one beyond 1 GB does (not checkable here); "
        f"kafka.max-row-bytes stops before, at {limit:,} bytes",
    )


def plugin(case: Case) -> Iterator[Finding]:
    """The manual: "sql_decoding decodes UPDATE as DELETE + INSERT"; what SQL functions cost."""
    if case.decided.plugin == "sql_decoding" and case.decided.mode is not Decoding.PARALLEL:
        yield Finding(
            Level.NOTE, "plugin", "sql_decoding sends an UPDATE as a DELETE and an INSERT"
        )
    if case.decided.interface == "sql":
        yield Finding(
            Level.NOTE,
            "interface",
            "SQL functions decode 3 to 5 MB/s at best, and peek and advance 30 to 50 % less",
            "streaming, where it is permitted",
        )


def first_load(case: Case) -> Iterator[Finding]:
    """Rows older than the slot."""
    if has_windows(case.decided) and case.options.role == "primary":
        yield Finding(
            Level.NOTE,
            "first load",
            "the slot exports no snapshot: each table is read beside the stream, in a moment in "
            "which nobody changes it; one that is changed without a pause is locked (SHARE) for "
            "such a moment (not verified on a GaussDB)",
        )
        listed = case.decided.get("white-table-list")
        if case.decided.ordered_by == "csn" and listed and not _has_marks(listed):
            yield Finding(
                Level.ERROR,
                "first load",
                f"white-table-list leaves out {MARKS}: no table's load would end",
                f"add {MARKS} to it",
            )
    elif case.decided.interface == "sql" or case.decided.ordered_by == "csn":
        yield Finding(
            Level.WARNING,
            "first load",
            "the slot exports no snapshot: rows older than it are not copied",
            "read the primary, and a slot in the order of CSNs by interface = 'stream'",
        )
    elif case.is_gaussdb:
        yield Finding(
            Level.NOTE,
            "first load",
            "is read under the snapshot that the new slot exports; `run` reports a server that "
            "exports none: rows older than the slot are not copied then (not verified on a "
            "GaussDB)",
        )


def _has_marks(listed: str) -> bool:
    """Say whether a white-table-list has the table of marks; * stands for a whole part."""
    items = [item.strip().partition(".") for item in listed.split(",")]
    return any(s in {"*", MARKS.schema} and t in {"*", MARKS.name} for s, _, t in items)


def _protection(case: Case) -> Iterator[Finding]:
    """Settings without which a standby that is promoted may lack what was delivered.

    Manual: "with Quorum, a standby that is promoted must have the primary's log".
    """
    readings = case.readings
    if not readings.standbys:
        return
    standbys = "standbys"
    if (commit := readings.settings.get("synchronous_commit")) in {"off", "local"}:
        yield Finding(
            Level.WARNING,
            standbys,
            f"synchronous_commit is {commit}: a commit does not wait for a standby",
            "synchronous_commit = on",
        )
    if readings.settings.get("synchronous_standby_names") == "":
        yield Finding(
            Level.WARNING,
            standbys,
            "synchronous_standby_names is empty: a commit does not wait for a standby",
            "synchronous_standby_names = 'ANY 1 (…)', of those that may be promoted",
        )
    if readings.is_on("most_available_sync") is True:
        yield Finding(
            Level.WARNING,
            standbys,
            "most_available_sync is on: where the synchronous standbys fail the primary commits "
            "alone, and a switch-over to one of them is a forced one",
            "most_available_sync = off",
        )
    if readings.is_on("enable_slot_log") is False:
        yield Finding(
            Level.WARNING,
            standbys,
            "enable_slot_log is off: standbys do not have our slot, and after any switch-over all "
            "tables are read again",
            "enable_slot_log = on on every node, then restart",
        )


def switches(case: Case) -> Iterator[Finding]:
    """The manual: "A forced switch-over is not supported"; what a standby must keep to."""
    yield Finding(
        Level.NOTE,
        "switch-over",
        "after a forced switch-over all rows must be read again: `run --accept-switch` does, "
        "beside the stream. `run` detects what it can (timeline, system identifier, a position, "
        "CSN or transaction id that went back, a slot that is gone) and stops; one that it cannot "
        "detect is for you to say",
    )
    yield from _protection(case)
    if case.options.role != "primary":
        yield Finding(
            Level.NOTE,
            "standby",
            "until our first confirmation the slot counts as unused at the primary, which may "
            "invalidate it; with Quorum only a synchronous standby may be promoted",
        )
