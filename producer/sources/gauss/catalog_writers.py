"""Transactions that changed the catalog: rows behind their statement are not sent.

GaussDB, and openGauss where threads decode, send no row behind a DDL or DCL statement of the same
transaction, and many statements are not sent either: GRANT, CREATE TYPE, whatever a mode does not
decode.  Then only the catalog shows them, by the transaction's id in the rows that they wrote.
New ids are looked for every few seconds.  Once the stream has passed such a transaction, those
tables are suspected

    that had rows of it in the stream: what followed the statement is missing there
    that hold rows of it, as far as a short search finds them (`evidence.rows_of`), which goes on
    at the next look where a table is locked, or many are

without those that were judged when its statements came (`mixed`).  Which transactions were
judged stands in cuts (`horizon`, `behind_horizon`): the next run goes on there, and who waits for a
target waits for that of each transaction that changed the catalog before (`NotJudged`).

Not found are rows elsewhere in a large table, those of a subtransaction, which has an id of its
own, and a statement that leaves no row in the catalog that may be read: a DROP, one about a role,
where no superuser asks, or one whose row a later statement has written anew before the look.
All databases share some of these catalogs. A transaction of another one has no rows here.
"""
# ruff: noqa: S608  statements of our own, put together of constants

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Final, NamedTuple

from producer.core.catalog.look import Before
from producer.errors import SourceError
from producer.sources.gauss.evidence import is_gone, rows_of
from producer.sources.session import Asks
from schemas.control import Commits, Cut, identities_of
from schemas.positions import Lsn
from schemas.tables import TableId
from schemas.topics import Topics

# Whatever is made, altered or granted leaves a row in one of these; statistics are none of them.
_CATALOGS: Final = (
    *("pg_class", "pg_attribute", "pg_attrdef", "pg_constraint", "pg_partition"),
    *("pg_type", "pg_enum", "pg_proc", "pg_trigger", "pg_rewrite", "pg_namespace", "pg_index"),
    *("pg_depend", "pg_shdepend", "pg_description", "pg_default_acl", "pg_auth_members"),
    *("pg_foreign_data_wrapper", "pg_foreign_server", "pg_extension", "pg_language", "pg_cast"),
    *("pg_operator", "pg_opclass", "pg_opfamily", "pg_collation", "pg_conversion", "pg_seclabel"),
    *("pg_ts_config", "pg_ts_dict", "pg_event_trigger", "pg_publication", "pg_rlspolicy"),
    *("pg_database", "pg_db_role_setting", "pg_shdescription", "pg_tablespace", "pg_authid"),
    # What an ALTER changes there leaves no row elsewhere; of openGauss' own from pg_synonym on.
    *("pg_statistic_ext", "pg_foreign_table", "pg_user_mapping", "pg_inherits", "pg_policy"),
    *("pg_ts_config_map", "pg_publication_rel", "pg_largeobject_metadata", "pg_subscription"),
    *("pg_synonym", "gs_package", "pg_directory", "gs_db_privilege", "pg_extension_data_source"),
)
_FROZEN: Final = 2  # the id of rows that are older than any
_LOOKS: Final = 3  # until the stream has passed a transaction, where no position says so
_MOST_NAMED: Final = 10_000  # transactions whose statements came
_MOST_DELIVERED: Final = 200_000  # transactions
_MOST_CUTS: Final = 1_000  # that wait for a look
_MOST_JUDGED: Final = 1_000  # behind the oldest that runs, in a record of cuts


class _Waiting(NamedTuple):
    """A transaction that the stream may not have passed yet."""

    position: Lsn  # of the log, behind its commit; 0: not comparable
    look: int


class CatalogWriters:
    """What the catalog, the stream and the cuts tell of such transactions."""

    def __init__(self, topics: Topics, note: Callable[[str], None]) -> None:
        self._topics, self._note = topics, note
        self._catalogs: tuple[str, ...] | None = None  # those that may be read
        self._since: int | None = None  # each transaction with a lower id was seen, or is older
        self._seen: set[int] = set()  # of the others
        self._waiting: dict[int, _Waiting] = {}
        self._unsearched: dict[TableId, set[int]] = {}  # for rows of those that were passed
        self._looks = 0
        self._has_moved = False
        self._said: set[str] = set()  # why a look failed
        self._judged: dict[int, Collection[TableId]] = {}
        self._delivered: list[Commits] = []  # since the look before
        # Tables that had rows of a transaction in the stream: of those that may still be found.
        self._sent: dict[int, set[TableId]] = {}
        self._forgotten = 0  # the greatest id of those that there was no room for
        self._resume = 0

    @property
    def is_waiting(self) -> bool:
        """Say whether the stream has to pass a transaction."""
        return bool(self._waiting)

    @property
    def has_open(self) -> bool:
        """Say whether a transaction was found and not judged."""
        return bool(self._open())

    @property
    def has_moved(self) -> bool:
        """Say whether the newest look judged a transaction, or was the first one at a server."""
        return self._has_moved

    @property
    def horizon(self) -> int:
        """Each transaction with a lower id was judged, or is older; 0: nothing was looked at."""
        return min([*self._open(), self._since or 0])

    @property
    def behind_horizon(self) -> tuple[int, ...]:
        """Others that were judged: an older transaction runs, or waits; the newest ones."""
        at, open_ = self.horizon, self._open()
        return tuple(sorted(xid for xid in self._seen - open_ if xid >= at)[-_MOST_JUDGED:])

    def _open(self) -> set[int]:
        return {*self._waiting, *chain(*self._unsearched.values())}

    def begin(self, xid: int) -> None:
        """Take the newest transaction that an earlier run delivered; 0: none is known."""
        self._since = xid + 1 if xid else None

    def go_on(self, before: Before) -> None:
        """Begin where an earlier run was: it may have delivered more, and not looked behind it."""
        if not self._looks:
            self._since, self._seen = before.horizon, set(before.judged)

    def delivered(self, cuts: Sequence[Cut]) -> None:
        """Keep what is durable: which tables had rows of a transaction."""
        for cut in cuts:
            self._resume = max(self._resume, cut.head.resume)
            if isinstance(cut, Commits):
                self._delivered.append(cut)
        if len(self._delivered) > _MOST_CUTS:
            self._note_sent()

    def judged(self, xid: int, tables: Collection[TableId]) -> None:
        """Leave out tables of a transaction whose statements came, and named them."""
        self._judged[xid] = tables
        while len(self._judged) > _MOST_NAMED:
            self._judged.pop(next(iter(self._judged)))

    def suspected(
        self,
        session: Asks,
        captured: Callable[[], Iterable[TableId]],
        position: Callable[[], Lsn],
    ) -> tuple[TableId, ...]:
        """Look for new ones; return the tables that may lack rows of those that were passed.

        `position` asks where the log ends, once they were seen; 0: the stream tells none.  Raises
        ConnectionLost; after another error, which is noted once, the next look sees what this one
        did not.
        """
        self._looks += 1
        were_open, self._has_moved = self._open(), False
        try:
            if new := self._new(session):
                self._waiting.update(dict.fromkeys(new, _Waiting(position(), self._looks)))
            self._note_sent()
            passed = [xid for xid, waiting in self._waiting.items() if self._has_passed(waiting)]
            tables = tuple(captured()) if passed else ()
        except SourceError as error:
            if is_gone(error):
                raise
            if str(error) not in self._said:
                self._said.add(str(error))
                self._note(
                    f"statements that are not sent were not looked for in the catalog: {error}"
                )
            return ()
        suspected: set[TableId] = set()
        for xid in passed:
            del self._waiting[xid]
            judged = self._judged.pop(xid, ())
            # Of one that was forgotten nobody knows which ones they were.
            sent = self._sent.pop(xid, tables if xid <= self._forgotten else ())
            suspected |= set(sent) - set(judged)
            for table in tables:
                if table not in judged:
                    self._unsearched.setdefault(table, set()).add(xid)
        suspected |= {table for _, table in rows_of(session, self._unsearched)}
        self._has_moved |= bool(passed) or not were_open <= self._open()
        return tuple(sorted(suspected))

    def _has_passed(self, waiting: _Waiting) -> bool:
        if waiting.position:
            return self._resume >= waiting.position
        return self._looks >= waiting.look + _LOOKS

    def _new(self, session: Asks) -> set[int]:
        """Return ids that were not seen before; on the first look there is nothing before."""
        if self._catalogs is None:
            self._catalogs = _readable(session)
        oldest, newest = _running(session)  # first: what ended before it is in what is read then
        if self._since is None or self._since > newest:  # that of another server, before a switch
            self._since, self._has_moved = oldest, True
            return set()
        found = _writers(session, self._catalogs, self._since)
        self._since = oldest
        new = found - self._seen
        self._seen = {xid for xid in found if xid >= oldest}
        return new

    def _note_sent(self) -> None:
        """Note tables of delivered transactions that wait, or that the next looks may find.

        A look has found all with a lower id than the oldest one that runs.
        """
        oldest = self._since or 0
        self._sent = {
            xid: tables
            for xid, tables in self._sent.items()
            if xid >= oldest or xid in self._waiting
        }
        for cut in self._delivered:
            places = {
                xid: seq
                for seq, (_, xid) in identities_of(cut.commits).items()
                if xid >= oldest or xid in self._waiting
            }
            for entry in cut.commits if places else ():
                if places.get(entry.xid) == entry.seq:
                    topics = {cut.ranges[index].topic for index in entry.counts}
                    tables = filter(None, map(self._topics.table_of, topics))
                    self._sent.setdefault(entry.xid, set()).update(tables)
        self._delivered.clear()
        while len(self._sent) > _MOST_DELIVERED:
            xid = next(iter(self._sent))
            self._forgotten = max(self._forgotten, xid)
            del self._sent[xid]


def baseline(session: Asks) -> tuple[int, frozenset[int]]:
    """Return the oldest id that may run, and those behind it that have changed the catalog."""
    oldest, _ = _running(session)
    return oldest, frozenset(_writers(session, _readable(session), oldest))


def left(session: Asks, before: Before) -> set[int]:
    """Return transactions that changed the catalog and were not judged at a look."""
    return _writers(session, _readable(session), before.horizon) - before.judged


class NotJudged:
    """Transactions that changed the catalog, and behind which a `run` has not looked yet."""

    def __init__(self) -> None:
        self._of_wait: set[int] | None = None  # those that were there when it was asked first

    def begin(self) -> None:
        """Take whatever is there when it is asked next; what comes later is not waited for."""
        self._of_wait = None

    def __call__(self, session: Asks, before: Before | None) -> str:
        """Name them; "": there are none.  `before`: the look that stands in cuts."""
        _, newest = _running(session)
        if before is None or before.horizon > newest:
            return "the catalog has not been looked at for statements that are not sent"
        found = left(session, before)
        self._of_wait = found if self._of_wait is None else self._of_wait & found
        if not self._of_wait:
            return ""
        return (
            f"transaction {min(self._of_wait)} changed the catalog: rows behind its statement may"
            " be missing"
        )


def _readable(session: Asks) -> tuple[str, ...]:
    """Return the names of the catalogs that may be read."""
    names = ", ".join(f"'{name}'" for name in _CATALOGS)
    rows = session.query(
        "SELECT c.relname FROM pg_catalog.pg_class c"
        " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
        f" WHERE n.nspname = 'pg_catalog' AND c.relname IN ({names})"
        " AND has_table_privilege(c.oid, 'SELECT')"
        # In openGauss it has statistics: ANALYZE writes it.
        " AND (c.relname <> 'pg_statistic_ext' OR NOT EXISTS (SELECT 1 FROM pg_catalog.pg_class p"
        " WHERE p.relname = 'pg_partition' AND p.relnamespace = c.relnamespace))"
    )
    return tuple(name or "" for (name,) in rows)


def _running(session: Asks) -> tuple[int, int]:
    """Return the oldest id that may run, and the next one."""
    ((oldest, newest),) = session.query(
        "SELECT txid_snapshot_xmin(s)::text, txid_snapshot_xmax(s)::text"
        " FROM txid_current_snapshot() s"
    )
    return int(oldest or 0), int(newest or 0)


def _writers(session: Asks, catalogs: Iterable[str], since: int) -> set[int]:
    """Return the ids in rows of catalogs, from one on."""
    each = " UNION ALL ".join(
        f"SELECT xmin::text::bigint AS writer FROM pg_catalog.{name}" for name in catalogs
    )
    rows = session.query(
        f"SELECT DISTINCT writer::text FROM ({each}) w"
        f" WHERE writer > {_FROZEN} AND writer >= {since:d}"
    )
    return {int(writer or 0) for (writer,) in rows}
