"""What a sink asks of a connection that is not psycopg2's.

The shape is the DB-API's, as far as the sinks use it: `cursor()` as a context
manager with execute, fetchone, fetchall, rowcount and copy_expert; commit,
rollback, close, closed, autocommit.  The program that gives a sink its `connect`
brings the driver; of clients the sinks know only psycopg2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import psycopg2

from schemas.errors import with_objects
from schemas.system_schemas import SEARCH_PATH
from schemas.tables import TableId


class Refused(Exception):
    """The server refused a statement or a login, or (without an SQLSTATE) it was lost."""

    def __init__(self, sqlstate: str | None, *, hint: str = "", message: str = "") -> None:
        """`hint` is what to do about it where the driver knows; no values in it.

        `message` is the server's primary one, as psycopg2 has it in `diag`.
        """
        super().__init__(sqlstate or "connection lost")
        self.sqlstate, self.hint, self.message = sqlstate, hint, message


DRIVER_ERRORS: Final = (psycopg2.Error, Refused)
SET_PATH: Final = f"SET search_path = {SEARCH_PATH}"


def safely(connect: Callable[[], Any]) -> Callable[[], Any]:
    """Let sessions find no object of others by a name alone, whatever role and database prefer."""

    def opened() -> Any:
        connection = connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(SET_PATH)
            connection.commit()
        except BaseException:
            connection.close()
            raise
        return connection

    return opened


def sqlstate(error: psycopg2.Error | Refused) -> str | None:
    """The five letters; None where the server sent none."""
    return error.sqlstate if isinstance(error, Refused) else error.pgcode


def message(error: psycopg2.Error | Refused) -> str:
    """The server's primary message; CONTEXT, and DETAIL but of some, may hold values."""
    if isinstance(error, Refused):
        return error.message
    diag = error.diag
    return with_objects(diag.message_primary or "", diag.message_detail, diag.sqlstate)


def fields(error: psycopg2.Error | Refused) -> Mapping[str, str]:
    """The objects that the server's refusal names; no values."""
    if isinstance(error, Refused):
        return {}
    diag = error.diag
    schema, table = diag.schema_name, diag.table_name
    said = {
        "table": str(TableId(schema, table)) if schema and table else table,
        "column": diag.column_name,
        "constraint": diag.constraint_name,
        "type": diag.datatype_name,
    }
    return {name: value for name, value in said.items() if value}


def part(text: str) -> str:
    """Write a name or a type into a statement that has arguments: drivers read its percent signs.

    >>> part('"50%"')
    '"50%%"'
    """
    return text.replace("%", "%%")
