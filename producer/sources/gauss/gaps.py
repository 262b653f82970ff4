"""Gaps in a stream of openGauss or GaussDB, and whether they can be detected.

One entry a case: what was done in the source, and for each decoding mode whether
the gap is

    seen        detected: the stream shows it, with its tables
    suspected   something in the stream indicates it, with the likely tables
    invisible   undetectable: only a comparison with the source shows it

Detected and suspected gaps are recorded in `holes` of their cut, by the evidence in
`by`; undetectable ones are reported once, when a run starts.  Where a case has no
class for a mode, nothing is lost.

Sources: GaussDB manual, "Logical decoding overview" and "DDL in logical decoding";
openGauss, recordings of 7.0.0-RC2.  GaussDB's entries were not verified on a server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from producer.core.catalog import catalog_rows
from producer.sources.gauss.options import Decoding, Effective, Vendor, removing
from schemas.tables import TableSchema

VIRTUAL: Final = "v"  # a generated column that is neither stored nor sent


class Detectability(StrEnum):
    """How a gap shows in the stream."""

    SEEN = "seen"
    SUSPECTED = "suspected"
    INVISIBLE = "invisible"


SEEN, SUSPECTED, INVISIBLE = Detectability.SEEN, Detectability.SUSPECTED, Detectability.INVISIBLE


@dataclass(frozen=True, slots=True)
class DecodingMode:
    """The properties of decoding that decide what is lost."""

    product: Vendor
    parallel: bool = False
    decodes_ddl: bool = False  # GaussDB: by option; openGauss: by a publication with `ddl`
    plugin: str = "mppdb_decoding"
    style: str = ""
    removing: frozenset[str] = frozenset()  # options that leave changes out

    @property
    def is_gaussdb(self) -> bool:
        """Say whether it is GaussDB, and not openGauss: they lose different things."""
        return self.product is Vendor.GAUSSDB

    @property
    def loses_rows_behind_ddl(self) -> bool:
        """GaussDB always, openGauss where threads decode."""
        return self.is_gaussdb or self.parallel


Kind: TypeAlias = Callable[[DecodingMode], Detectability | None]

_OVERVIEW: Final = "overview, constraints"
_DDL: Final = "DDL, constraints"
_MIXED: Final = "DDL, mixed transactions"
_OPENGAUSS: Final = "seen at openGauss"
_OPTIONS: Final = "options"


@dataclass(frozen=True, slots=True)
class StreamGap:
    """One thing that may be lost."""

    name: str
    what: str
    kind: Kind
    by: str  # the evidence; what one can do, where there is none
    source: str


def _behind(decoded: Detectability, otherwise: Detectability) -> Kind:
    """Rows after a statement of their transaction; `decoded` where the statement is sent."""

    def kind(mode: DecodingMode) -> Detectability | None:
        if not mode.loses_rows_behind_ddl:
            return None
        return decoded if mode.is_gaussdb and mode.decodes_ddl else otherwise

    return kind


def _by_statement(decoded: Detectability, otherwise: Detectability) -> Kind:
    """Gaps that a statement shows: `decoded` where it is sent."""
    return lambda mode: decoded if sends_statements(mode) else otherwise


def sends_statements(mode: DecodingMode) -> bool:
    """Say whether DDL is in the stream: not where threads of openGauss decode."""
    return mode.decodes_ddl and (mode.is_gaussdb or not mode.parallel)


def sends_truncate(mode: DecodingMode) -> bool:
    """Say whether TRUNCATE is in the stream: openGauss without threads."""
    return not mode.is_gaussdb and not mode.parallel


def _always(known: Detectability) -> Kind:
    return lambda _: known


def _removed(option: str) -> Kind:
    return lambda mode: INVISIBLE if option in mode.removing else None


def _volatile(mode: DecodingMode) -> Detectability | None:
    # openGauss refuses to run such a statement where it replicates DDL.
    refused = mode.decodes_ddl and not mode.is_gaussdb and not mode.parallel
    return None if refused else SUSPECTED


def _undecoded_ddl(mode: DecodingMode) -> Detectability | None:
    return _by_statement(INVISIBLE, INVISIBLE)(mode) if mode.is_gaussdb else _without_ddl(mode)


def _without_ddl(mode: DecodingMode) -> Detectability | None:
    return None if sends_statements(mode) else INVISIBLE


def _without_ddl_suspected(mode: DecodingMode) -> Detectability | None:
    return None if sends_statements(mode) else SUSPECTED


def _cuts_at_zero(mode: DecodingMode) -> Detectability | None:
    is_json = mode.style == "j" or (not mode.parallel and mode.plugin == "mppdb_decoding")
    return INVISIBLE if is_json else None


CASES: Final = (
    StreamGap(
        "mixed",
        "rows after a DDL statement, in a transaction with other rows or statements",
        _behind(SUSPECTED, SUSPECTED),
        "the statement beside other changes; its tables. Where statements are not sent: the"
        " catalog, as below",
        f"{_MIXED}; {_OVERVIEW} (DDL in transactions)",
    ),
    StreamGap(
        "behind-untold",
        "rows after DCL, or DDL that is not deparsed (CREATE TYPE), in a transaction that sent rows"
        " before",
        _behind(SUSPECTED, SUSPECTED),
        "the catalog: ids of transactions; their tables",
        f"{_MIXED}; {_OVERVIEW} (DDL and DCL in transactions)",
    ),
    StreamGap(
        "behind-one",
        "rows after a DDL or DCL statement, in a transaction without earlier ones of their table",
        _behind(SUSPECTED, SUSPECTED),
        "the catalog, and such rows at the beginning or end of their table",
        f"{_MIXED}; {_OVERVIEW} (DDL and DCL in transactions)",
    ),
    StreamGap(
        "behind-hidden",
        "rows after a DDL or DCL statement that the catalog does not show: DROP, ON COMMIT DROP,"
        " OWNER TO its owner, statements in subtransactions, about roles if `run` may not read"
        " pg_authid, or whose object changed again before a look; also rows in partitions, deleted"
        " ones, those amid a table, and all of a standby or a coordinator",
        _behind(INVISIBLE, INVISIBLE),
        "none; commit before writing rows",
        f"{_MIXED}; {_OVERVIEW} (DDL and DCL in transactions)",
    ),
    StreamGap(
        "ctas",
        "rows of CREATE TABLE AS and SELECT INTO",
        _behind(SEEN, SUSPECTED),
        "the source holds rows of that transaction. Where statements are not sent: the catalog",
        f"{_DDL} (CREATE TABLE AS)",
    ),
    StreamGap(
        "ctas-late",
        "the same, if the table is partitioned, or was changed or locked before a look",
        _behind(SUSPECTED, INVISIBLE),
        "a CREATE TABLE, which looks the same without AS",
        f"{_DDL} (CREATE TABLE AS)",
    ),
    StreamGap(
        "ctas-gone",
        "the same, if all rows were deleted and vacuumed before: copies are equal then",
        _behind(INVISIBLE, INVISIBLE),
        "none; do not let the slot fall behind",
        f"{_DDL} (CREATE TABLE AS)",
    ),
    StreamGap(
        "truncate",
        "TRUNCATE, also while no `run` reads",
        lambda mode: None if sends_truncate(mode) else SUSPECTED,
        "the catalog: another storage file, and no row from before",
        f"{_OVERVIEW} (truncate, exchange)",
    ),
    StreamGap(
        "truncate-away",
        "TRUNCATE within seconds of an ALTER TABLE that is sent, or where a standby is read",
        lambda mode: None if sends_truncate(mode) else INVISIBLE,
        "none; DELETE is decoded",
        f"{_OVERVIEW} (truncate, exchange)",
    ),
    StreamGap(
        "partition",
        "rows of partitions dropped, truncated or exchanged",
        _by_statement(SEEN, SUSPECTED),
        "the statement; its table, and the one exchanged with. Without it the catalog",
        f"{_OVERVIEW} (truncate, exchange); {_OPENGAUSS}",
    ),
    StreamGap(
        "computed",
        "values that ALTER TABLE computed: default, USING, AUTO_INCREMENT",
        _by_statement(SEEN, SUSPECTED),
        "the statement; or the first row of the new shape and the catalog's default, or another"
        " storage file",
        f"{_DDL} (ADD COLUMN, default); {_OPENGAUSS}",
    ),
    StreamGap(
        "made-again",
        "rows of a table, or values of a column, made again; rows under another name of their"
        " table; rows that were equal in a dropped key",
        _without_ddl_suspected,
        "the catalog",
        f"{_OPTIONS}, enable-ddl-decoding; {_OPENGAUSS}",
    ),
    StreamGap(
        "types",
        "values whose enum labels or composite attributes were altered",
        _always(SUSPECTED),
        "the catalog",
        f"{_DDL} (CREATE TYPE); {_OPENGAUSS}",
    ),
    StreamGap(
        "volatile",
        "values of a column added with a volatile or stable default",
        _volatile,
        "the first row of the new shape: the statement is not deparsed",
        f"{_DDL} (default of stable and volatile functions); {_OPENGAUSS}",
    ),
    StreamGap(
        "ustore",
        "values of columns added to ustore tables",
        lambda mode: SUSPECTED if not mode.is_gaussdb else None,
        "the first row of the new shape",
        _OPENGAUSS,
    ),
    StreamGap(
        "untold",
        "a table made by LIKE or with IDENTITY",
        _undecoded_ddl,
        "none; its first row makes it known",
        f"{_DDL} (LIKE, IDENTITY)",
    ),
    StreamGap(
        "ddl",
        "DDL that shows in no row: tables that stay empty, other objects",
        _without_ddl,
        "none; have DDL decoded",
        f"{_OPTIONS}, enable-ddl-decoding; {_OPENGAUSS}",
    ),
    StreamGap(
        "compile",
        "ALTER PACKAGE … COMPILE; what it executes is decoded",
        lambda mode: INVISIBLE if mode.is_gaussdb and mode.decodes_ddl else None,
        "none; a copy has no packages to compile",
        f"{_DDL} (COMPILE)",
    ),
    StreamGap(
        "undecoded",
        "rows logged before an ALTER TABLE, and not yet decoded then",
        lambda mode: INVISIBLE if mode.is_gaussdb else None,
        "none; let the slot catch up before altering",
        f"{_OVERVIEW} (alter table)",
    ),
    StreamGap(
        "old-row",
        "which row an UPDATE or DELETE changed, without replica identity",
        _always(SEEN),
        "a change without old values (a stop, unless without-identity says otherwise)",
        f"{_OVERVIEW} (REPLICA IDENTITY); {_OPENGAUSS}",
    ),
    StreamGap(
        "old-key",
        "the old key of an UPDATE, if the key is not the replica identity",
        _always(SUSPECTED),
        "an UPDATE without old values of a table with a key",
        f"{_OVERVIEW} (REPLICA IDENTITY); {_OPENGAUSS}",
    ),
    StreamGap(
        "sequence",
        "values of sequences",
        _always(INVISIBLE),
        "none; set them when switching over",
        f"{_OPTIONS}, decode-sequence",
    ),
    StreamGap(
        "tables",
        "rows of temporary, unlogged, column-store and interval-partitioned tables",
        _always(INVISIBLE),
        "none; the log has none",
        f"{_OVERVIEW} (interval partition, temporary tables); {_DDL} (temporary objects)",
    ),
    StreamGap(
        "ledger",
        "that the hash column of a ledger table, in its CREATE TABLE, is not a column",
        lambda mode: INVISIBLE if mode.is_gaussdb and mode.decodes_ddl else None,
        "none; leave ledger tables out",
        f"{_DDL} (ledger database)",
    ),
    StreamGap(
        "float",
        "digits of floats after the 15th (real: 6th)",
        lambda mode: INVISIBLE if mode.plugin == "sql_decoding" and not mode.parallel else None,
        "none; use mppdb_decoding",
        "openGauss 7.0.0-RC2, recordings of sql_decoding",
    ),
    StreamGap(
        "nul",
        "what follows a zero byte in a value",
        _cuts_at_zero,
        "none; decode-style b sends it",
        f"{_OVERVIEW} (JSON)",
    ),
    StreamGap(
        "white-list",
        "rows of tables outside white-table-list",
        _removed("white-table-list"),
        "none; it was requested",
        f"{_OPTIONS}, white-table-list",
    ),
    StreamGap(
        "users",
        "changes of excluded users",
        lambda mode: INVISIBLE if {"exclude-users", "exclude-userids"} & mode.removing else None,
        "none; it was requested",
        f"{_OPTIONS}, exclude-users, exclude-userids",
    ),
    StreamGap(
        "generated",
        "values of generated columns",
        _removed("skip-generated-columns"),
        "none; it was requested",
        f"{_OPTIONS}, skip-generated-columns",
    ),
    StreamGap(
        "foreign",
        "changes that came by replication",
        _removed("only-local"),
        "none; only-local = false sends them",
        f"{_OPTIONS}, only-local",
    ),
)

BY_NAME: Final = {case.name: case for case in CASES}


def decoding_mode(decided: Effective) -> DecodingMode:
    """Return the properties that decide which gaps are possible.

    Whether openGauss decodes DDL depends on its publications (`readings.publishes_ddl`).
    """
    sent = dict(decided.options)
    removed = set(removing(sent))
    if sent.get("skip-generated-columns") == "true":
        removed.add("skip-generated-columns")
    return DecodingMode(
        decided.product,
        parallel=decided.mode is Decoding.PARALLEL,
        decodes_ddl=sent.get("enable-ddl-decoding") == "true",
        plugin=decided.plugin,
        style=decided.format.style,
        removing=frozenset(removed),
    )


def not_sent(table: TableSchema, mode: DecodingMode) -> str:
    """Say which columns of a table no copy has; "": all are sent.

    A virtual one never is, and a stored one unless that is asked for.
    """
    skips = "skip-generated-columns" in mode.removing
    columns = tuple(c for c in table.columns if skips or c.generated == VIRTUAL)
    return catalog_rows.not_sent(replace(table, columns=columns))


def invisible(mode: DecodingMode) -> list[str]:
    """List the undetectable gaps of a decoding mode."""
    return [case.what for case in CASES if case.kind(mode) is INVISIBLE]


def invisible_sentence(mode: DecodingMode) -> str:
    """The same in one line, for `check` and for the start of `run`; "": there are none."""
    lost = invisible(mode)
    return f"not in this stream, and only a comparison shows it: {'; '.join(lost)}" if lost else ""
