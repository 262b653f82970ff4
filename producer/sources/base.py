"""The whole contract of a source: what `run`, and every command that asks it, need of it.

A source is one module or folder next to this one, and one line of `SOURCES` (kinds.py): a
`SourceKind`.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from producer.core import ports
from producer.core.catalog.look import Before, Look, Unchanged
from producer.core.key_ranges import Key
from producer.core.ports import KeyRanges
from producer.core.shape_change import ShapeChange
from producer.core.takeover.takeover import MadeSlot
from producer.errors import Unsupported
from producer.options import Options
from producer.sources.dial import ConnectionArguments
from producer.sources.section import SourceSection
from producer.sources.session import Asks
from schemas.control import Cut, Identity, Looked, Origin
from schemas.errors import LOAD_AGAIN
from schemas.findings import Finding
from schemas.positions import NOWHERE, Lsn
from schemas.tables import TableId, TableSchema
from schemas.types import BY_OID


class Source(ports.Source, Protocol):
    """A source, whatever its kind, as `run` opens and closes it."""

    @property
    def encoding(self) -> str:
        """Of cells: Python's name of a codec."""

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        """Create what the slot requires; list the tables captured now."""

    def listed(self) -> list[TableId]:
        """List the tables captured now."""

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop what this object created for a START that was not written, or name what remains."""

    def fingerprint_inputs(self) -> Mapping[str, object]:
        """Name the settings besides [tables] that decide which rows exist: the epoch's content."""

    def identity(self) -> Identity:
        """Identify the source, with slot and plugin."""

    def close(self) -> None:
        """Release slot and lock."""


class PlainSource:
    """What a `Source` is that has a log and nothing else; a kind overrides what it has besides.

    Left to the kind: `wire`, `slot`, `make_slot`, `captured`, `reading`, `messages`, `listed`,
    `identity`, and `shape`.
    """

    tables: list[TableId]
    encoding = "utf-8"
    keepalives_move = False
    new_tables_are_complete = True
    positions_are_csns = True  # there are no others
    ids_are_oids = False
    reports_ddl = False
    keeps_confirmed = False
    filters_as_then = False
    rereads = False
    tells_switches = True  # there are none

    @property
    def told_end(self) -> Lsn:
        return NOWHERE  # what comes is as old as the reading of the log

    def prepare(self, note: Callable[[str], None]) -> list[TableId]:
        del note
        return self.listed()

    def listed(self) -> list[TableId]:
        raise NotImplementedError

    def discard(self, note: Callable[[str], None]) -> None:
        del note

    def fingerprint_inputs(self) -> Mapping[str, object]:
        return {}

    def close(self) -> None:
        return None

    def try_lock(self) -> bool:
        return True

    def try_take(self) -> bool:
        return True

    def switch_point(self, timeline: int) -> Lsn | None:
        del timeline
        return None

    def lacks(self, resume: Lsn, xid: int) -> str:
        del resume, xid
        return ""

    def looked(self, made: MadeSlot) -> Looked | None:
        del made
        return None

    def start_reading(
        self,
        known: dict[TableId, TableSchema],
        *,
        resume: Lsn,
        csn: int,
        hidden: set[TableId] | None = None,
        loads: bool = True,
    ) -> None:
        del known, resume, csn, hidden, loads

    def point(self, table: TableId, *, if_gone: bool = False) -> ports.Point | None:
        del table, if_gone
        return None

    def adopt(self, table: TableSchema) -> None:
        del table

    def forget(self, table: TableId) -> None:
        del table

    def publish(self, table: TableId) -> str:
        del table
        return ""

    @property
    def reads_ranges(self) -> bool:
        return False

    def ranges(
        self, table: TableId, *, of_any_size: bool = False
    ) -> tuple[TableSchema, KeyRanges] | None:
        del table, of_any_size
        return None

    def requests(self) -> Mapping[ports.Wish, int]:
        return {}

    def named(self, wish: ports.Wish) -> tuple[int, Sequence[Key]]:
        del wish
        return 0, ()

    def answer(self, wish: ports.Wish, number: int, *, alone: bool = False) -> None:
        del wish, number, alone

    def look(
        self, known: Mapping[TableId, TableSchema], *, unless: str, before: Before | None
    ) -> Look | Unchanged | None:
        del known, unless, before
        return None

    def recalls(self, looked: Looked | None) -> Lsn:
        del looked
        return NOWHERE

    def delivered(self, cuts: Sequence[Cut]) -> None:
        del cuts

    def type_name(self, type_oid: int, modifier: int) -> str:
        del modifier
        return BY_OID[type_oid].name

    def table_name(self, oid: int) -> TableId | None:
        del oid
        return None

    def root_of(self, oid: int) -> int:
        del oid
        return 0

    def keep_alive(self, *, force: bool = False) -> None:
        del force


Opened = Callable[[Options, Callable[[list[TableId]], None]], Source]


# ---------------------------------------------------------------- check, status, wait and verify
class CatalogSession(Asks, Protocol):
    """An ordinary session with a source of any kind, by our own client."""

    @property
    def arguments(self) -> ConnectionArguments:
        """Of the server that accepted the login."""

    @property
    def is_encrypted(self) -> bool:
        """By TLS."""

    @property
    def protection(self) -> str:
        """How it is protected, for display."""

    def close(self) -> None:
        """Log out."""


OrderedBy: TypeAlias = Literal["lsn", "csn"]


@dataclass(frozen=True, slots=True)
class SourceStanding:
    """The source's own view."""

    wal_end: Lsn
    slot: str
    active: bool
    confirmed: Lsn | None
    restart: Lsn | None
    retained_bytes: int
    wal_status: str
    safe_bytes: int | None = None  # may be written until the slot is given up; None: no limit
    ordered_by: OrderedBy = "lsn"  # what `confirmed` is, and the newest record's resume


@dataclass(frozen=True, slots=True)
class ServerNow:
    """What a server says of itself."""

    system_id: str
    timeline: int
    end: Lsn  # of its log; at a standby, of what it has replayed
    is_standby: bool


class SnapshotPoint(NamedTuple):
    """Exactly the commits that begin before `position` are in the snapshot of `rows`."""

    position: Lsn
    rows: ports.Reading
    encoding: str = "utf-8"  # of its cells
    # Of a source that answers SQL: the session of `rows`, in a transaction; and one in none.
    reading: Asks | None = None
    now: Asks | None = None


class SourceInspector:
    """Reads a source's state only; a kind overrides what it can report.

    One question at a time: what a question needs is opened by the first one, and kept.
    """

    def close(self) -> None:
        """Let go of the source."""

    def session(self) -> CatalogSession:
        """Log in for queries; raise Unsupported where the source has no such sessions."""
        raise Unsupported("this kind of source answers no SQL")

    # ---- check
    def check(self, *, fix: bool) -> Iterable[Finding]:
        """What would stop a `run`; `fix` creates what may be created without harm."""
        del fix
        return ()

    def captured(self) -> list[TableSchema]:
        """Shapes of the captured tables, as the stream will describe them."""
        return []

    def selected(self) -> Mapping[TableId, str]:
        """Say of each table of [tables] why the stream does not bring it; "": it does."""
        return {shape.id: "" for shape in self.captured()}

    def replication(self) -> Iterable[Finding]:
        """Log in as the stream does, where opening the source does not show that it may."""
        return ()

    # ---- status and wait
    def log_end(self) -> Lsn:
        """Where the source's log ends now: everything committed before is below."""
        raise NotImplementedError

    def goal(self) -> Lsn:
        """The end of the log, where a stream shows that all before it was read."""
        return self.log_end()

    def standing(self) -> SourceStanding | None:
        """The slot and what it holds back; None without a slot."""
        return None

    def server(self) -> ServerNow | None:
        """Which server it is, and where it ends; None: it does not say."""
        return None

    def has_left(self, was: int, now: int) -> bool:
        """Say whether the server, on timeline `now`, was on an older one."""
        del was, now
        return False

    def estimated_rows(self, table: TableId) -> int:
        """A guess for a progress bar; 0: unknown."""
        del table
        return 0

    def notes(self, before: Before | None) -> list[str]:
        """Say what the catalog shows now, and `run` has not compared or cannot mend.

        `before`: as `run` compared it last.
        """
        del before
        return []

    def changed(self, before: Before) -> list[str]:
        """Say what the next `run` finds changed behind its last look, and marks as a gap."""
        del before
        return []

    def unexplained(
        self,
        known: Mapping[TableId, TableSchema],
        before: Before | None,
        inexact: Container[str],
        read: Container[str] | None = None,
    ) -> str:
        """Name what the catalog shows and neither the stream nor a mark explains; "": nothing.

        `known`: the tables of the stream; `inexact`: those that are marked, as schema.table;
        `read`: those whose loads have begun, None: the epoch loads none that come.
        """
        del known, before, inexact, read
        return ""

    # ---- snapshot and verify
    def asking(self) -> Asks:
        """Return the session by which requests for re-reads are written."""
        return self.session()

    def snapshot(
        self, stop: Callable[[], bool], note: Callable[[str], None]
    ) -> AbstractContextManager[SnapshotPoint | None]:
        """Read the source as of now; None: asked to stop while it waited.

        Raises Unsupported where no state of the source is known by its position.
        """
        del stop, note
        raise Unsupported("no state of this kind of source is known by its position")


# ---------------------------------------------------------------- ddl plan
STATEMENT_TIMEOUT: Final = "30s"
SEARCH_PATH_OF_STATEMENTS: Final = '"$user", public'


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """What the stream would contain of a statement."""

    statement: str
    origin: Origin
    changes: tuple[tuple[ShapeChange, Mapping[str, str]], ...]  # with the session's settings
    note: str = ""  # what it would not contain, or why `run` would stop


# ---------------------------------------------------------------- how a source is made
# Names of logins.
SQL: Final = "source, SQL"
REPLICATION: Final = "source, replication"


def _nothing(*_: object) -> str:
    return ""


def _not_captured(_: Options, table: TableId) -> str:
    return f"table {table} matches [tables] and is not captured"


def _never(*_: object) -> bool:
    return False


def _by_log(_: Options) -> OrderedBy:
    return "lsn"


def _no_sessions(_: Options) -> Mapping[str, Callable[[], CatalogSession]]:
    return {}


class SourceKind(NamedTuple):
    """A kind of source: `[source] kind`."""

    section: type[SourceSection]  # its settings
    open: Opened
    inspector: Callable[[Options], SourceInspector]
    # By name, each login that `run` makes: `check` says how it is protected.
    logins: Callable[[Options], Mapping[str, Callable[[], CatalogSession]]] = _no_sessions
    rereads: Callable[[Options], bool] = _never  # a table can be read again while the stream goes
    ordered_by: Callable[[Options], OrderedBy] = _by_log  # what positions are
    why_not_full: Callable[[Mapping[str, str]], str] = _nothing  # what the plugin's options omit
    way_out: str = LOAD_AGAIN  # where another server has taken the source's place
    advice: Callable[[Options, TableId], str] = _not_captured  # how a new table gets captured
    opens_stream: bool = False  # `open` shows that the role may replicate
    # None: the kind cannot.
    # Of a statement, undone at once; behind it the role of `run`, whoever logs in here.
    rehearse: Callable[[Options, str, str], Rehearsed] | None = None
    triggers: Callable[[Options], Any] | None = None  # logs in to install them
