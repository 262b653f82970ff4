"""What a stream of openGauss or GaussDB does not carry, and whether anybody can tell.

One row a case: what was done in the source, and for each way of decoding whether
the loss is

    seen        the stream shows it: the tables are known
    suspected   something in the stream speaks for it, and for which tables
    invisible   nothing does: only a comparison with the source can tell

Seen and suspected ones become holes of their cut, where `by` says; invisible ones
are told once, when a run starts.  Where a row has no entry for a way, nothing is
lost there.

Sources: GaussDB manual, "Logical decoding overview" and "DDL in logical decoding";
openGauss, recordings of 7.0.0-RC2.  GaussDB's rows were never seen on a server.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, TypeAlias

from producer.sources.gauss.options import Effective, Mode, Product, removing


class Detectability(StrEnum):
    """How much of a loss the stream shows."""

    SEEN = "seen"
    SUSPECTED = "suspected"
    INVISIBLE = "invisible"


SEEN, SUSPECTED, INVISIBLE = Detectability.SEEN, Detectability.SUSPECTED, Detectability.INVISIBLE


@dataclass(frozen=True, slots=True)
class DecodingMode:
    """How a source is decoded, as far as it decides what is lost."""

    product: Product
    parallel: bool = False
    tells_ddl: bool = False  # GaussDB: by option; openGauss: by a publication with `ddl`
    plugin: str = "mppdb_decoding"
    style: str = ""
    removing: frozenset[str] = frozenset()  # options that leave changes out

    @property
    def is_gaussdb(self) -> bool:
        return self.product is Product.GAUSSDB

    @property
    def loses_rows_behind_ddl(self) -> bool:
        """GaussDB always, openGauss where threads decode."""
        return self.is_gaussdb or self.parallel


Kind: TypeAlias = Callable[[DecodingMode], Detectability | None]

_OVERVIEW: Final = "GaussDB manual, logical decoding overview, constraints"
_DDL: Final = "GaussDB manual, DDL in logical decoding, constraints"
_MIXED: Final = "GaussDB manual, DDL in logical decoding, mixed transactions"
_OPENGAUSS: Final = "openGauss 7.0.0-RC2, observed"
_OPTIONS: Final = "GaussDB manual, logical decoding options"


@dataclass(frozen=True, slots=True)
class StreamGap:
    """One thing that may be lost."""

    name: str
    what: str
    kind: Kind
    by: str  # the evidence; what one can do, where there is none
    source: str


def _behind(told: Detectability) -> Kind:
    """Rows behind a statement of their transaction; `told` where the statement itself is."""

    def kind(way: DecodingMode) -> Detectability | None:
        if not way.loses_rows_behind_ddl:
            return None
        return told if way.is_gaussdb and way.tells_ddl else INVISIBLE

    return kind


def _by_statement(told: Detectability, otherwise: Detectability) -> Kind:
    """What the statement itself tells."""

    def kind(way: DecodingMode) -> Detectability:
        is_told = way.tells_ddl and (way.is_gaussdb or not way.parallel)
        return told if is_told else otherwise

    return kind


def _always(told: Detectability) -> Kind:
    return lambda _: told


def _removed(option: str) -> Kind:
    return lambda way: INVISIBLE if option in way.removing else None


def _volatile(way: DecodingMode) -> Detectability | None:
    # openGauss refuses to run such a statement where it replicates DDL.
    refused = way.tells_ddl and not way.is_gaussdb and not way.parallel
    return None if refused else SUSPECTED


def _untold_ddl(way: DecodingMode) -> Detectability | None:
    return _by_statement(INVISIBLE, INVISIBLE)(way) if way.is_gaussdb else _without_ddl(way)


def _without_ddl(way: DecodingMode) -> Detectability | None:
    is_told = way.tells_ddl and (way.is_gaussdb or not way.parallel)
    return None if is_told else INVISIBLE


def _cuts_at_zero(way: DecodingMode) -> Detectability | None:
    is_json = way.style == "j" or (not way.parallel and way.plugin == "mppdb_decoding")
    return INVISIBLE if is_json else None


CASES: Final = (
    StreamGap(
        "mixed",
        "rows behind a DDL statement, in a transaction that has rows or another statement beside",
        _behind(SUSPECTED),
        "a statement and something beside it in one transaction; its tables. After inserted rows"
        " and nothing but CREATE TABLE, only if the source does not hold just what was sent",
        f"{_MIXED}; {_OVERVIEW} (DDL in transactions)",
    ),
    StreamGap(
        "behind-one",
        "rows behind a DDL statement, in a transaction that shows nothing else",
        _behind(INVISIBLE),
        "none: it looks like any DDL that is committed at once; commit before writing rows",
        f"{_MIXED}; {_OVERVIEW} (DDL in transactions)",
    ),
    StreamGap(
        "behind-untold",
        "rows behind DCL (GRANT), or behind DDL that is not deparsed (CREATE TYPE)",
        _behind(INVISIBLE),
        "none; commit before writing rows",
        f"{_MIXED}; {_OVERVIEW} (DDL and DCL in transactions)",
    ),
    StreamGap(
        "ctas",
        "rows of CREATE TABLE AS and SELECT INTO",
        _behind(SEEN),
        "the source, asked at the CREATE TABLE: its table holds rows of that transaction",
        f"{_DDL} (CREATE TABLE AS)",
    ),
    StreamGap(
        "ctas-late",
        "the same, where the source cannot say: the table was written to, altered, dropped or"
        " locked by then, or is partitioned",
        _behind(SUSPECTED),
        "a CREATE TABLE, which looks the same without AS; its table",
        f"{_DDL} (CREATE TABLE AS)",
    ),
    StreamGap(
        "ctas-gone",
        "the same, where all rows were deleted and vacuumed away before the source was asked;"
        " behind those deletes the copy is equal again",
        _behind(INVISIBLE),
        "none; do not let the slot fall behind",
        f"{_DDL} (CREATE TABLE AS)",
    ),
    StreamGap(
        "truncate",
        "TRUNCATE",
        lambda way: INVISIBLE if way.is_gaussdb or way.parallel else None,
        "none; DELETE is decoded",
        f"{_OVERVIEW} (truncate, exchange)",
    ),
    StreamGap(
        "partition",
        "rows of partitions that are dropped, truncated or exchanged",
        _by_statement(SEEN, INVISIBLE),
        "the statement; its table, and the one exchanged with",
        f"{_OVERVIEW} (truncate, exchange); {_OPENGAUSS}",
    ),
    StreamGap(
        "computed",
        "values that an ALTER TABLE computed: default by expression, USING, AUTO_INCREMENT",
        _by_statement(SEEN, SUSPECTED),
        "the statement; without it, the first row of the new shape and the catalog's default",
        f"{_DDL} (ADD COLUMN, default); {_OPENGAUSS}",
    ),
    StreamGap(
        "volatile",
        "values of a column added with a volatile or stable default",
        _volatile,
        "the first row of the new shape: the statement is not deparsed; its table",
        f"{_DDL} (default of stable and volatile functions); {_OPENGAUSS}",
    ),
    StreamGap(
        "ustore",
        "values of columns added to ustore tables, whose DDL openGauss does not tell",
        lambda way: SUSPECTED if not way.is_gaussdb else None,
        "the first row of the new shape; its table",
        _OPENGAUSS,
    ),
    StreamGap(
        "untold",
        "that a table was made by LIKE or with IDENTITY, until its first row",
        _untold_ddl,
        "none; the first row makes it known",
        f"{_DDL} (LIKE, IDENTITY)",
    ),
    StreamGap(
        "ddl",
        "DDL that shows in no row: DROP, RENAME, CREATE of a table that stays empty, other objects",
        _without_ddl,
        "none; have DDL decoded (GaussDB: enable-ddl-decoding; openGauss: a publication with ddl)",
        f"{_OPTIONS}, enable-ddl-decoding; {_OPENGAUSS}",
    ),
    StreamGap(
        "compile",
        "ALTER PACKAGE … COMPILE itself; what it executes is decoded",
        lambda way: INVISIBLE if way.is_gaussdb and way.tells_ddl else None,
        "none; a copy has no packages to compile",
        f"{_DDL} (COMPILE)",
    ),
    StreamGap(
        "undecoded",
        "rows that were logged before an ALTER TABLE and not yet decoded then",
        lambda way: INVISIBLE if way.is_gaussdb else None,
        "none; let the slot catch up before altering",
        f"{_OVERVIEW} (alter table)",
    ),
    StreamGap(
        "old-row",
        "which row an UPDATE or DELETE met, on a table without replica identity",
        _always(SEEN),
        "a change without old values; its table (a stop, unless without-identity says otherwise)",
        f"{_OVERVIEW} (REPLICA IDENTITY); {_OPENGAUSS}",
    ),
    StreamGap(
        "old-key",
        "the old key of an UPDATE, on a table with a key that is not its replica identity",
        _always(SUSPECTED),
        "an UPDATE without old values of a table with a key; its table",
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
        "none; they are not in the log as rows",
        f"{_OVERVIEW} (interval partition, temporary tables); {_DDL} (temporary objects)",
    ),
    StreamGap(
        "ledger",
        "that the hash column of a ledger table, printed with its CREATE TABLE, is no column",
        lambda way: INVISIBLE if way.is_gaussdb and way.tells_ddl else None,
        "none; leave ledger tables out",
        f"{_DDL} (ledger database)",
    ),
    StreamGap(
        "float",
        "digits of floats behind the 15th (real: 6th)",
        lambda way: INVISIBLE if way.plugin == "sql_decoding" and not way.parallel else None,
        "none; use mppdb_decoding",
        "openGauss 7.0.0-RC2, recordings of sql_decoding",
    ),
    StreamGap(
        "nul",
        "what follows a zero byte in a value",
        _cuts_at_zero,
        "none; decode-style b has it",
        f"{_OVERVIEW} (JSON)",
    ),
    StreamGap(
        "white-list",
        "rows of tables outside white-table-list",
        _removed("white-table-list"),
        "none; it was asked for",
        f"{_OPTIONS}, white-table-list",
    ),
    StreamGap(
        "users",
        "changes of excluded users",
        lambda way: INVISIBLE if {"exclude-users", "exclude-userids"} & way.removing else None,
        "none; it was asked for",
        f"{_OPTIONS}, exclude-users, exclude-userids",
    ),
    StreamGap(
        "generated",
        "values of generated columns",
        _removed("skip-generated-columns"),
        "none; it was asked for",
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
    """Say what decides about losses.

    Whether openGauss tells DDL only its publications know (`gauss_readings.publishes_ddl`).
    """
    sent = dict(decided.options)
    removed = set(removing(sent))
    if sent.get("skip-generated-columns") == "true":
        removed.add("skip-generated-columns")
    return DecodingMode(
        decided.product,
        parallel=decided.mode is Mode.PARALLEL,
        tells_ddl=sent.get("enable-ddl-decoding") == "true",
        plugin=decided.plugin,
        style=decided.format.style,
        removing=frozenset(removed),
    )


def invisible(way: DecodingMode) -> list[str]:
    """Say what a run of this kind may lose without anybody noticing."""
    return [case.what for case in CASES if case.kind(way) is INVISIBLE]


def invisible_sentence(way: DecodingMode) -> str:
    """Say it in one line, for `check` and for the start of `run`; "": nothing is lost so."""
    lost = invisible(way)
    return f"not in this stream, and only a comparison can tell: {'; '.join(lost)}" if lost else ""
