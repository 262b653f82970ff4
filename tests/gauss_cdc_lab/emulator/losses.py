"""What a stream does not carry, by product and mode: the holes that a copy would have.

The encoders lose what this table says they lose (a test holds them together); rows
about tables and statements that never reach an encoder stand here for `check` and
for whoever has to close the holes.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from gauss_cdc_lab.emulator.model import PROFILES, DdlOutput, Mode


class Done(StrEnum):
    """What was done in the source."""

    ROW_BEHIND_DDL = "a row changed behind DDL, DCL or TRUNCATE of its own transaction"
    TRUNCATE = "TRUNCATE"
    DDL = "DDL"
    CTAS = "rows of CREATE TABLE AS and SELECT INTO"
    PARTITION = "EXCHANGE, DROP, TRUNCATE, SPLIT or MERGE PARTITION"
    REWRITE = "rows that an ALTER TABLE rewrote or filled"
    UNDECODED = "rows that were logged before an ALTER TABLE and not yet decoded then"
    OLD_ROW = "which row an UPDATE or DELETE changed, on a table without replica identity"
    SEQUENCE = "values of sequences"
    FLOAT = "digits of floats after the 15th (real: 6th)"
    COLUMN_NAMES = "column names of an INSERT; that an UPDATE was one"
    NUL = "what follows a NUL in a value"
    GENERATED = "generated columns"
    TABLE = "rows of unlogged, temporary, column-store and interval-partitioned tables"
    FOREIGN = "changes that came by replication"
    NOT_LISTED = "rows of tables outside white-table-list"
    EXCLUDED = "changes of excluded users"


@dataclass(frozen=True, slots=True)
class Loss:
    """One thing that is not in the stream, where, and who says so."""

    done: Done
    lost: Callable[[str, Mode], bool]
    source: str


def _gauss(product: str) -> bool:
    return PROFILES[product].gauss


def _hides_rows(product: str, mode: Mode) -> bool:
    return mode.parallel or not PROFILES[product].rows_after_ddl


def _untold_ddl(product: str, mode: Mode) -> bool:
    match PROFILES[product].ddl:
        case DdlOutput.TAGGED:
            return not mode.enable_ddl_decoding
        case DdlOutput.DEPARSE:  # told if a publication with ddl exists
            return mode.parallel
        case DdlOutput.NONE:
            return True


LOSSES: Final = (
    Loss(
        Done.ROW_BEHIND_DDL,
        _hides_rows,
        "manual, logical decoding overview, constraints (DDL and DCL in transactions); manual,"
        " DDL in logical decoding, mixed transactions",
    ),
    Loss(
        Done.TRUNCATE,
        lambda product, mode: mode.parallel or not PROFILES[product].truncate,
        "manual, logical decoding overview, constraints (truncate, exchange)",
    ),
    Loss(Done.DDL, _untold_ddl, "manual, option enable-ddl-decoding"),
    Loss(
        Done.CTAS,
        _hides_rows,
        "manual, DDL in logical decoding, constraints (CREATE TABLE AS)",
    ),
    Loss(
        Done.PARTITION,
        lambda product, _: _gauss(product),
        "manual, logical decoding overview, constraints (exchange)",
    ),
    Loss(
        Done.REWRITE,
        lambda _product, _mode: True,
        "manual, logical decoding overview, constraints (DDL)",
    ),
    Loss(
        Done.UNDECODED,
        lambda product, _: product == "gaussdb",
        "manual, logical decoding overview, constraints (alter table)",
    ),
    Loss(
        Done.OLD_ROW,
        lambda _product, _mode: True,
        "manual, logical decoding overview, constraints (REPLICA IDENTITY)",
    ),
    Loss(
        Done.SEQUENCE,
        lambda _product, _mode: True,
        "manual, option decode-sequence",
    ),
    Loss(
        Done.FLOAT,
        lambda _, mode: not mode.parallel and mode.plugin == "sql_decoding",
        "recordings of sql_decoding",
    ),
    Loss(
        Done.COLUMN_NAMES,
        lambda _, mode: not mode.parallel and mode.plugin == "sql_decoding",
        "manual, logical decoding overview, constraints (sql_decoding)",
    ),
    Loss(
        Done.NUL,
        lambda _, mode: (mode.style or mode.plugin) in {"j", "mppdb_decoding"},
        "manual, logical decoding overview, constraints (JSON)",
    ),
    Loss(
        Done.GENERATED,
        lambda _, mode: mode.skip_generated_columns,
        "manual, option skip-generated-columns",
    ),
    Loss(
        Done.TABLE,
        lambda _product, _mode: True,
        "manual, logical decoding overview, constraints (interval partition, temporary tables)",
    ),
    Loss(
        Done.FOREIGN,
        lambda product, mode: _gauss(product) and mode.only_local,
        "manual, option only-local",
    ),
    Loss(
        Done.NOT_LISTED,
        lambda _, mode: bool(mode.white_table_list),
        "manual, option white-table-list",
    ),
    Loss(
        Done.EXCLUDED,
        lambda _, mode: bool(mode.exclude_users),
        "manual, options exclude-users, exclude-userids",
    ),
)


def losses(product: str, mode: Mode) -> tuple[Loss, ...]:
    """What a stream of this product and mode does not carry.

    >>> loss, *_ = losses("og7", Mode(parallel_decode_num=4))
    >>> loss.done.value
    'a row changed behind DDL, DCL or TRUNCATE of its own transaction'
    """
    return tuple(loss for loss in LOSSES if loss.lost(product, mode))
