"""What a refusal of the target means for us: decided by SQLSTATE, never by text.

The server's primary message is repeated where it can only hold names; its DETAIL and CONTEXT,
which may hold values of rows, never.  By the table, what a later attempt may resolve is
TargetDown; everything else stops.  Codes: PostgreSQL manual, appendix "PostgreSQL Error Codes".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, NamedTuple

import psycopg2
from psycopg2 import errorcodes

from schemas.tables import TableId
from spark_consumers.errors import (
    MissingColumn,
    MissingTable,
    NotExpressible,
    TargetDown,
    TargetError,
    TargetLogin,
    TargetNotPermitted,
    TargetRefused,
)
from spark_consumers.sinks.postgres.driver import DRIVER_ERRORS, Refused, fields, message, sqlstate
from spark_consumers.sinks.postgres.waits import LOCK_LIMIT


class StateMeaning(NamedTuple):
    """The error a refusal becomes, and what to do about it."""

    error: type[TargetError]
    hint: str
    what: str = ""  # instead of the server's words


_AGAIN: Final = ""  # nothing to be done: it passes
_OWN: Final = (
    "the target has constraints of its own that the source's rows do not meet, or rows written by "
    "someone else: drop or defer them, or GRANT SET ON PARAMETER session_replication_role"
)
_VALUE: Final = (
    "the column's type at the target does not take a value of the source: alter it to the "
    "source's type; the value stands in the target's log only"
)
_ALTERED: Final = "another client altered the target's tables: make them as the source's"
_DEPENDENT: Final = (
    "a view or another object of the target that the source does not have stands in the way: drop"
    " what is named, and make it again when `apply` is past this commit"
)
_RIGHT: Final = "`gauss-cdc check` names each right that is missing, with its GRANT"

STATES: Final[Mapping[str, StateMeaning]] = {
    # ALTER TABLE says the same of a view over a column.
    "0A000": StateMeaning(NotExpressible, f"{_DEPENDENT}; or the target's version cannot do it"),
    "2BP01": StateMeaning(TargetRefused, _DEPENDENT),
    "25006": StateMeaning(
        TargetDown, "it takes no writes: a standby, or default_transaction_read_only is on"
    ),
    "25P03": StateMeaning(TargetDown, "raise idle_in_transaction_session_timeout of the role"),
    "25P04": StateMeaning(TargetDown, "set transaction_timeout = 0 for the role"),
    "28P01": StateMeaning(TargetLogin, "check user and password of target.dsn"),
    "28000": StateMeaning(TargetLogin, "check user and pg_hba.conf of the target"),
    "3D000": StateMeaning(TargetLogin, "the database does not exist: check target.dsn"),
    "42501": StateMeaning(TargetNotPermitted, _RIGHT),
    "42P01": StateMeaning(MissingTable, _ALTERED),
    "42703": StateMeaning(MissingColumn, _ALTERED),
    "42804": StateMeaning(TargetRefused, _VALUE),
    "53100": StateMeaning(TargetDown, "the target's disk is full: make room"),
    "53200": StateMeaning(
        TargetDown, "the target has no memory left, or no locks: raise max_locks_per_transaction"
    ),
    "53300": StateMeaning(
        TargetDown, "raise max_connections of the target, or close other clients"
    ),
    "55006": StateMeaning(TargetRefused, _OWN),  # an ALTER TABLE, where rows wait to be checked
    "55P03": StateMeaning(
        TargetDown,
        f"its holder is logged while the step waits ({LOCK_LIMIT}); it is tried again",
        "a lock at the target was not given in time",
    ),
    "57014": StateMeaning(TargetDown, "statement_timeout, or a person, cancelled the statement"),
    "57P01": StateMeaning(TargetDown, _AGAIN),
    "57P02": StateMeaning(TargetDown, _AGAIN),
    "57P03": StateMeaning(TargetDown, "the target starts or stops"),
    "57P05": StateMeaning(TargetDown, "raise idle_session_timeout of the role"),
}
CLASSES: Final[Mapping[str, StateMeaning]] = {
    "08": StateMeaning(TargetDown, _AGAIN),
    "0A": StateMeaning(NotExpressible, "the target's product or version cannot do it"),
    "22": StateMeaning(TargetRefused, _VALUE),
    "23": StateMeaning(TargetRefused, _OWN),
    "28": StateMeaning(TargetLogin, "check user and pg_hba.conf of the target"),
    "40": StateMeaning(TargetDown, _AGAIN),
    "42": StateMeaning(TargetRefused, _ALTERED),
    "53": StateMeaning(TargetDown, "the target lacks disk, memory or connections"),
    "58": StateMeaning(TargetDown, "the target's files or system fail: see its log"),
}
_OTHER: Final = StateMeaning(TargetRefused, "see the target's log for the statement")

# Messages of these classes are of names and settings only.  Data exceptions (22) quote the
# value, and what is raised by a person's own code (P0, and unknown classes) may say anything.
_NAMES_ONLY: Final = frozenset(
    {"08", "0A", "23", "25", "26", "28", "2B", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"}
)


def ours(error: psycopg2.Error | Refused, **where: object) -> TargetError:
    """Make the error of ours that a driver's error means; `where`: what it was about."""
    code = sqlstate(error)
    hint = error.hint if isinstance(error, Refused) else ""
    if code is None:
        return TargetDown(
            "the target cannot be reached, or closed the connection", hint=hint, **where
        )
    meaning = meaning_of(code)
    said = {"sqlstate": code, **fields(error), **where}
    what = meaning.what or _words(code, message(error))
    return meaning.error(what, hint=hint or meaning.hint, **said)


@contextmanager
def about(table: TableId, columns: Sequence[str]) -> Iterator[None]:
    """Statements of one table: where the server does not say which it was, the error does.

    Raises the ApplyError of what the driver raised.
    """
    try:
        yield
    except DRIVER_ERRORS as error:
        where: dict[str, object] = {"table": table}
        if (column := _column(error, columns)) is not None:
            where["column"] = column
        raise ours(error, **where) from error


def _column(error: psycopg2.Error | Refused, columns: Sequence[str]) -> str | None:
    """Find the column that the server's CONTEXT of a COPY names, in any language.

    It stands before the first colon; the value behind it is not read.
    """
    if isinstance(error, Refused) or not error.diag.context:
        return None
    before = error.diag.context.partition(":")[0].rstrip()
    staged = {f"c{at}": column for at, column in enumerate(columns)}  # as staging tables have them
    named = {**staged, **{column: column for column in columns}}
    for doubt in staged.keys() & set(columns):
        named.pop(doubt)
    found = max((name for name in named if before.endswith(name)), key=len, default=None)
    return None if found is None else named[found]


def meaning_of(code: str) -> StateMeaning:
    """What a code means, whatever statement it comes from."""
    return STATES.get(code) or CLASSES.get(code[:2]) or _OTHER


def _words(code: str, said: str) -> str:
    if said and code[:2] in _NAMES_ONLY:
        return f"the target refused: {said}"
    return f"the target refused: {condition(code)}"


def condition(code: str) -> str:
    """Name a code as the manual does, in words.

    >>> condition("22P02"), condition("ZZ999")
    ('invalid text representation', 'code ZZ999')
    """
    try:
        return errorcodes.lookup(code).replace("_", " ").lower()
    except KeyError:
        return f"code {code}"
