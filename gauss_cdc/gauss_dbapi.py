"""openGauss for sinks and look-ups: the DB-API, over the producer's own client.

psycopg2 cannot log in to openGauss or GaussDB, and the halves do not import each
other: here, above both, the client of the one becomes the `connect` of the
other (its protocol is in `spark_consumers.sinks.postgres.driver`).  Only the simple
protocol is used, so arguments are written into the statement, quoted by
`schemas.quoting`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Protocol, TypeAlias

from psycopg2 import sql

from producer.errors import CdcError, ConnectionLost
from producer.sources.dial import ConnectionArguments
from producer.sources.gauss.connection import GaussConnection
from schemas.errors import Explained
from schemas.quoting import constant, identifier
from spark_consumers.sinks.postgres.driver import Refused

Value: TypeAlias = str | int | bool | list["Value"] | None
Arguments: TypeAlias = Sequence[object] | Mapping[str, object]

_MARK: Final = re.compile(r"%(?:\((\w+)\))?(.)", re.DOTALL)
_NONE_LEFT: Final = object()
_LOGIN, _UNKNOWN = "28000", "XX000"  # where no server sent a code
_READ_CHARACTERS: Final = 1 << 16


class Readable(Protocol):
    """A file of text or of UTF-8, as far as a copy needs one."""

    def read(self, size: int, /) -> str | bytes:
        """Some of it; nothing at the end."""


def connect(
    arguments: ConnectionArguments, *, settings: Mapping[str, str] | None = None
) -> Connection:
    """Log in to the primary; raise Refused."""
    try:
        session = GaussConnection.open(
            arguments, replication=False, role="primary", settings=settings
        )
    except ConnectionLost as error:
        raise Refused(None, hint=str(error)) from error
    except CdcError as error:  # no row was read yet: the error contains no values
        raise login_refused(error) from error
    return Connection(session)


def login_refused(error: CdcError) -> Refused:
    """Convert a permanent failure of a login (server, TLS, files) into a sink's error."""
    where = {name: value for name, value in error.where.items() if name != "sqlstate"}
    message = str(Explained(error.what, hint="", **where))
    return Refused(str(error.where.get("sqlstate", _LOGIN)), message=message, hint=error.hint)


class Connection:
    """One session; a transaction begins with the first statement unless `autocommit`."""

    def __init__(self, session: GaussConnection) -> None:
        self.session = session
        self.autocommit = False
        self.closed = False

    @contextmanager
    def cursor(self) -> Iterator[GaussCursor]:
        """Give a cursor (PEP 249); leaving the block ends no transaction."""
        yield GaussCursor(self)

    def commit(self) -> None:
        """Commit; where a statement had failed that rolls back, as everywhere."""
        self._end("COMMIT")

    def rollback(self) -> None:
        """Roll back; without an open transaction nothing is sent. Raises Refused."""
        self._end("ROLLBACK")

    def close(self) -> None:
        """Close; the server rolls back what was open."""
        self.closed = True
        self.session.close()

    def begin(self) -> None:
        """Begin a transaction where one is needed."""
        if not self.autocommit and not self.session.in_transaction:
            self.session.ask("BEGIN")

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Convert the producer's errors into the sinks'; neither contains a value.

        Raises Refused, without a code where the connection is lost.
        """
        try:
            yield
        except ConnectionLost as error:
            self.close()  # who asks again needs another one, also where no transaction was open
            raise Refused(None) from error
        except CdcError as error:
            code = str(error.where.get("sqlstate", _UNKNOWN))
            raise Refused(code, message=error.what) from error

    def _end(self, how: str) -> None:
        with self.refusals():
            if self.session.in_transaction:
                self.session.ask(how)


class GaussCursor:
    """Runs statements, keeps the rows of the last one."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.rowcount = -1
        self._rows: list[tuple[Value, ...]] = []

    def execute(self, statement: str | sql.Composable, arguments: Arguments | None = None) -> None:
        """Run one statement or several; `%s` and `%(name)s` stand for arguments, if there are."""
        query = render(statement, is_bound=arguments is not None)
        if arguments is not None:
            query = bind(query, arguments)
        with self.connection.refusals():
            self.connection.begin()
            answer = self.connection.session.ask(query)
        readers = [_READERS.get(column.type_oid, str) for column in answer.columns]
        self._rows = [
            tuple(
                None if cell is None else read(cell)
                for read, cell in zip(readers, row, strict=True)
            )
            for row in answer.rows
        ]
        self.rowcount = _count(answer.command)

    def fetchone(self) -> tuple[Value, ...] | None:
        """Return the next row of the last statement; None where there is none, or no more."""
        return self._rows.pop(0) if self._rows else None

    def fetchall(self) -> list[tuple[Value, ...]]:
        """Return the rows not fetched yet; [] where it gives none: PEP 249 would raise there."""
        rows, self._rows = self._rows, []
        return rows

    def copy_expert(self, statement: str, file: Readable) -> None:
        """Run a COPY … FROM STDIN with the file's text."""
        with self.connection.refusals():
            self.connection.begin()
            chunks = iter(lambda: _encoded(file.read(_READ_CHARACTERS)), b"")
            self.rowcount = self.connection.session.copy_in(statement, chunks)
        self._rows = []


def _encoded(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode()


# ---- arguments


def render(statement: str | sql.Composable, *, is_bound: bool) -> str:
    """Write out what was composed; a `%` in a name is doubled where arguments follow.

    Raises TypeError for other parts than identifiers and SQL.
    """
    match statement:
        case str():
            return statement
        case sql.Composed():
            return "".join(render(part, is_bound=is_bound) for part in statement.seq)
        case sql.Identifier():
            name = ".".join(identifier(part) for part in statement.strings)
            return name.replace("%", "%%") if is_bound else name
        case sql.SQL():
            return statement.string
        case _:
            raise TypeError(f"cannot be composed: {type(statement).__name__}")


def bind(statement: str, arguments: Arguments) -> str:
    """Write arguments into a statement.

    Raises ValueError or TypeError where marks and arguments do not match.

    >>> bind("SELECT %s", ["it's"]), bind("LIKE '%%' || %(a)s", {"a": None})
    ("SELECT 'it''s'", "LIKE '%' || NULL")
    """
    left = iter(()) if isinstance(arguments, Mapping) else iter(arguments)

    def one(found: re.Match[str]) -> str:
        name, kind = found.groups()
        if kind == "%" and name is None:
            return "%"
        if kind != "s":
            raise ValueError("a mark that is neither %s nor %%")
        if name is None:
            if (value := next(left, _NONE_LEFT)) is _NONE_LEFT:
                raise ValueError("more marks than arguments")
            return quoted(value)
        if not isinstance(arguments, Mapping):
            raise TypeError("named marks need named arguments")
        return quoted(arguments[name])

    bound = _MARK.sub(one, statement)
    if next(left, _NONE_LEFT) is not _NONE_LEFT:
        raise ValueError("more arguments than marks")
    return bound


def quoted(value: object) -> str:
    """Write a value as SQL.

    Raises TypeError for any other type.

    >>> quoted(True), quoted(-1), quoted(["a", None])
    ('true', '-1', "ARRAY['a', NULL]")
    """
    match value:
        case None:
            return "NULL"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case str():
            return constant(value)
        case list() | tuple():
            return f"ARRAY[{', '.join(map(quoted, value))}]" if value else "'{}'"
        case _:
            raise TypeError(f"cannot be written as SQL: {type(value).__name__}")


# ---- results


def read_array(text: str) -> list[Value]:
    r"""Read an array of one dimension, whose elements are texts.

    >>> read_array('{a,"b,\\"c",NULL,"NULL",""}')
    ['a', 'b,"c', None, 'NULL', '']
    """
    if text == "{}":
        return []
    if not (text.startswith("{") and text.endswith("}") and len(text) > 2):
        raise ValueError("not an array of one dimension")
    found: list[Value] = []
    at = 1
    while at < len(text):
        if (match := _ELEMENT.match(text, at)) is None:
            raise ValueError("not an array of one dimension")
        inside, bare = match.groups()
        if bare is None:
            found.append(re.sub(r"\\(.)", r"\1", inside, flags=re.DOTALL))
        else:
            found.append(None if bare == "NULL" else bare)
        at = match.end()
    return found


_ELEMENT: Final = re.compile(r'(?:"((?:[^"\\]|\\.)*)"|([^",{}\\]+))[,}]', re.DOTALL)

# By type oid; all else is text.
_READERS: Final[Mapping[int, Callable[[str], Value]]] = {
    16: lambda text: text == "t",
    **dict.fromkeys((20, 21, 23, 26, 28), int),  # int8, int2, int4, oid, xid
    **dict.fromkeys((1002, 1003, 1009, 1015), read_array),  # "char"[], name[], text[], varchar[]
}


def _count(command: str) -> int:
    count = command.rpartition(" ")[2]
    return int(count) if count.isascii() and count.isdigit() else -1
