"""Whether a new table has rows of its own transaction, by a query of the source.

GaussDB sends a CREATE TABLE and no later rows of its transaction, so
CREATE TABLE AS looks like CREATE TABLE.  The table's rows carry the id of the
transaction that wrote them, and if nothing was ever stored there was no row to
lose.  The answer is of now, and the stream may be far behind, so "nothing was
stored" counts only for the unchanged table of that transaction: ALTER and
TRUNCATE write a new version of its row in pg_class.  Otherwise the answer is
unknown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from producer.errors import ConnectionLost, SourceError
from producer.sources.meaning import NOT_THERE
from producer.sources.session import Asks
from schemas.quoting import constant, qualified
from schemas.tables import TableId

_CANCELLED: Final = {"57014", "55P03", "40P01"}  # by a timeout, a lock, a deadlock
_ROWS: Final = 1000  # of its beginning, where the first rows are stored
_LIMIT_MS: Final = 2000  # for one query
_VISIBLE_SECONDS: Final = 2.0
_PAUSE: Final = 0.01
_PAGES: Final = 8
_ROWS_OF_A_PAGE: Final = 300  # of 8 KiB: no more fit into it


def rows_of(session: Asks, wanted: dict[TableId, set[int]]) -> Iterator[tuple[int, TableId]]:
    """Yield transactions, and tables in whose beginning or last pages rows of them are found.

    A new row is put behind the last one, or where there is room.  `wanted`: the transactions of
    each table.  A table that was searched is taken out, and one that is gone; those that are
    locked, or for which there is no time, stay behind the others.  Rows of all of them may be in
    one that may not be read.  Raises ConnectionLost.
    """
    end = time.monotonic() + _LIMIT_MS / 1000
    with limited(session):
        for table, xids in [*wanted.items()]:
            if time.monotonic() > end:
                return
            said, numbers = qualified(table), ", ".join(f"{xid:d}" for xid in xids)
            del wanted[table]
            try:
                found = session.query(
                    _ROWS_OF.format(table=said, name=constant(said), wanted=numbers)
                )
            except SourceError as error:
                if is_gone(error):
                    raise
                if error.where.get("sqlstate") in _CANCELLED:
                    wanted[table] = xids
                elif error.where.get("sqlstate") not in NOT_THERE:
                    yield from ((xid, table) for xid in xids)
                continue
            for (xid,) in found:
                yield int(xid or 0), table


# A row's place is a page and a number in it; the places of the last pages are looked up.
_PAGES_OF: Final = "(pg_relation_size({name}::regclass) / current_setting('block_size')::int)"
_ROWS_OF: Final = f"""
SELECT DISTINCT writer::text FROM (
    SELECT xmin::text::bigint AS writer
    FROM (SELECT xmin FROM ONLY {{table}} LIMIT {_ROWS}) at_the_beginning
    UNION ALL
    SELECT xmin::text::bigint FROM ONLY {{table}} WHERE ctid = ANY (ARRAY(
        SELECT ('(' || page || ',' || number || ')')::tid
        FROM generate_series(greatest({_PAGES_OF} - {_PAGES}, 0), {_PAGES_OF} - 1) page,
             generate_series(1, {_ROWS_OF_A_PAGE}) number))
) r WHERE writer IN ({{wanted}})"""  # noqa: S608  quoted names, and numbers


@contextmanager
def limited(session: Asks) -> Iterator[None]:
    """Let each query take two seconds at most: it may wait for a lock."""
    session.query(f"SET statement_timeout = {_LIMIT_MS}")
    try:
        yield
    finally:
        session.query("SET statement_timeout = 0")


def is_gone(error: SourceError) -> bool:
    """Say whether the connection is lost, and not only a query of ours cancelled or blocked."""
    return isinstance(error, ConnectionLost) and error.where.get("sqlstate") not in _CANCELLED


def wrote(session: Asks, table: TableId, xid: int) -> bool | None:
    """Say whether transaction `xid`, which created `table`, wrote rows into it; None: unknown.

    Raises ConnectionLost; a query that is refused or takes too long returns None.
    """
    if not xid:
        return None  # sql_decoding has no xid
    try:
        with limited(session):
            return _asked(session, table, xid)
    except SourceError as error:
        if is_gone(error):
            raise
        return None


def _asked(session: Asks, table: TableId, xid: int) -> bool | None:
    _await_visible(session, xid)
    rows = session.query(
        "SELECT c.xmin::text, pg_catalog.pg_relation_size(c.oid)"  # noqa: S608  quoted
        " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = {constant(table.schema)} AND c.relname = {constant(table.name)}"
    )
    if not rows:
        return None  # dropped, or under another name
    if rows[0] == [str(xid), "0"]:
        return False
    found = session.query(
        f"SELECT 1 FROM (SELECT xmin AS writer FROM {qualified(table)} LIMIT {_ROWS}) r"  # noqa: S608  quoted
        f" WHERE r.writer::text = '{xid:d}' LIMIT 1"
    )
    return True if found else None


def _await_visible(session: Asks, xid: int) -> None:
    """Wait for a commit to become visible: it is sent once it is in the log, before that."""
    end = time.monotonic() + _VISIBLE_SECONDS
    while time.monotonic() < end and session.query(
        "SELECT 1 FROM pg_catalog.pg_locks WHERE locktype = 'transactionid' AND granted"  # noqa: S608  a number
        f" AND mode = 'ExclusiveLock' AND transactionid::text = '{xid:d}'"
    ):
        time.sleep(_PAUSE)
