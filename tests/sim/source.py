"""A server: committed transactions, a slot, and what pgoutput or GaussDB's decoding would say.

Tables (the sink must handle each kind):

    public.a   keyed, two partitions
    public.b   keyed, `big` is TOASTed: an update may leave it unsent
    public.c   no key, REPLICA IDENTITY FULL
    public.d   keyed, made while the stream runs
    public.x   not captured, unless somebody adds it to [tables]
    public.y   keyed, made while the stream runs; nothing of it is sent until it is published

Columns are added to the first three.

`Source.states[i]` is what a reader sees after the first i transactions, and
what must be delivered depends on the tables that are hidden: `Transaction.survives`.
"""

from __future__ import annotations

import copy
from collections import Counter, deque
from collections.abc import Callable, Collection, Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

from producer.core.changes import (
    Begin,
    Commit,
    Delete,
    Insert,
    Logical,
    Message,
    Relation,
    RelationColumn,
    Truncate,
    Undecoded,
    Update,
)
from producer.core.key_ranges import Key
from schemas.positions import Lsn
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from tests.sim.gauss import Decoding, MarkRow, Piece, Stated
from tests.sim.payloads import payload
from tests.sim.world import Move, World

TEXT = 25
Row = dict[str, str]  # column -> value; NULL columns are left out
NAMES = {1: "a", 2: "b", 3: "c", 4: "d", 5: "y", 9: "x"}  # relation id -> table
EVERYTHING = "*"  # the table of a gap that may be anybody's
_FIRST_CSN = 10  # far below the positions of the log
_CREATE = (
    "CREATE TABLE public.d (id pg_catalog.text NOT NULL, v pg_catalog.text,"
    " CONSTRAINT d_pkey PRIMARY KEY (id)) WITH (orientation = 'row') NOCOMPRESS"
)
KEYED = {"a", "b", "d", "x", "y"}
READS = 1.0  # how often a reader goes on
LARGE = 1000  # bytes of a value: with it a row has more than a topic takes


def table_id(name: str) -> TableId:
    """The full name of a table."""
    return TableId("public", name)


@dataclass
class Table:
    """One table as of one commit."""

    columns: list[Column]
    rows: list[Row] = field(default_factory=list)

    def __deepcopy__(self, _: object) -> Table:
        """Columns do not change: a history spends a tenth of its time on copies."""
        return Table([*self.columns], [{**row} for row in self.rows])

    def schema(self, name: str) -> TableSchema:
        """Its shape as a catalog reading."""
        key = ("id",) if name in KEYED else ()
        full = name not in KEYED
        return TableSchema(
            table_id(name),
            tuple(self.columns),
            key,
            (),
            ReplicaIdentity.FULL if full else ReplicaIdentity.DEFAULT,
            tuple(c.name for c in self.columns) if full else key,
        )

    def content(self) -> list[tuple[tuple[str, str], ...]]:
        """The rows, comparable; a column that holds NULL everywhere does not show."""
        return sorted(tuple(sorted(row.items())) for row in self.rows)


Database = dict[str, Table]


@dataclass
class Transaction:
    """A committed transaction of the source."""

    index: int
    xid: int
    begin_lsn: int
    commit_start: int
    end_lsn: int
    changes: list[tuple[Message, dict[int, TableSchema]]]  # with the shapes in force
    expected: list[tuple[Any, ...]]  # (table, op, after) of what must be delivered, no DDL
    holes: set[str]  # tables whose older rows nobody sent
    is_shown: bool = True  # without rows: BEGIN and COMMIT are sent all the same
    is_led: bool = False  # a message that nobody can decode comes before its BEGIN
    record_start: int = 0  # of its commit record; above is what the producer takes for it
    record_end: int = 0
    csn: int = 0
    is_own: bool = False  # the producer's: what the catalog showed

    def __post_init__(self) -> None:
        self.record_start = self.record_start or self.commit_start
        self.record_end = self.record_end or self.end_lsn
        self.csn = self.csn or self.commit_start

    def rows(self) -> set[tuple[object, ...]]:
        """What it changed: rows by their keys; of tables without one, the table."""
        found = set[tuple[object, ...]]()
        for change, shapes in self.changes:
            if isinstance(change, Insert | Update | Delete):
                shape = shapes[change.relation]
                for cells in (getattr(change, "old", None), getattr(change, "new", None)):
                    if cells:
                        keys = (cells[shape.names().index(name)] for name in shape.key)
                        found.add((shape.id.name, *keys))
        return found

    def put_aside(self, hidden: Container[str]) -> list[int]:
        """Positions of the messages that nobody can decode, and of rows that are too large."""
        inside = [
            self.begin_lsn + 4 * at
            for at, (change, shapes) in enumerate(self.changes, 1)
            if isinstance(change, Undecoded) or is_unfit(change, shapes, hidden)
        ]
        return [*([self.begin_lsn] if self.is_led else []), *inside]

    def survives(self, hidden: Collection[str]) -> bool:
        """Say whether it gets a seq while some tables are hidden."""
        made = self.makes()
        told = any(
            isinstance(change, Logical)
            or (isinstance(change, Stated) and NAMES[change.relation] not in {*hidden} - made)
            for change, _ in self.changes
        )
        lacks_rows = any(is_unfit(change, shapes, hidden) for change, shapes in self.changes)
        has_rows = any(name not in hidden for name, *_ in self.expected)
        return has_rows or told or EVERYTHING in self.holes or lacks_rows

    def makes(self) -> set[str]:
        """Tables whose creation a statement reports: nothing of them is missing."""
        stated = [change for change, _ in self.changes if isinstance(change, Stated)]
        return {NAMES[change.relation] for change in stated if change.sql.startswith("CREATE")}

    @property
    def is_lone_message(self) -> bool:
        """Say whether it is a message outside of transactions, which ends at its position."""
        return not self.xid and not self.is_own


def is_unfit(message: Message, shapes: dict[int, TableSchema], hidden: Container[str] = ()) -> bool:
    """Say whether a delivered row is larger than a topic takes."""
    if not isinstance(message, Insert | Update | Delete):
        return False
    cells = [*(getattr(message, "old", None) or ()), *(getattr(message, "new", None) or ())]
    is_large = any(isinstance(cell, bytes) and len(cell) >= LARGE for cell in cells)
    return is_large and shapes[message.relation].id.name not in hidden


@dataclass(frozen=True)
class Silent:
    """A change of a table that the stream does not show, and the catalog does."""

    table: str
    at: int  # commits before it
    entry: int  # what the table's entry in the publication was then
    file: int  # and its storage file


class Reader(Protocol):
    """Who reads ranges in sessions of its own."""

    name: str  # of the table

    def go_on(self) -> None:
        """Take a snapshot, or hand on what it shows."""


class Source:
    """The server."""

    def __init__(self, world: World, *, planned: int, lossy: bool) -> None:
        self.world = world
        self.planned = planned
        self.giants = False  # most transactions are large
        self.strange = False  # messages come that nobody can decode; they say nothing
        self.unfit = False  # some rows are larger than a topic takes
        self.reads_ranges = False  # tables are read beside the stream
        self.readers: list[Reader] = []  # of ranges that were asked for and have not come
        self.reader_drops = 2  # sessions of theirs that may still break
        self.looked_upto = 0  # commits in the log when a snapshot of a range was taken last
        self.unseen: frozenset[int] = frozenset()  # those of them that it did not show
        self.void: set[int] = set()  # commits that say that the log has come so far
        self.talks = False  # logical messages are written
        self.decoding: Decoding | None = None  # of GaussDB; None: pgoutput
        self.lossy = lossy  # ADD COLUMN may be NOT NULL with an unknown default
        self.wal: list[Transaction] = []
        self.wal_end = 100
        self.next_value = 0
        self.system_id, self.timeline = "sys-1", 1
        self.ends: dict[int, int] = {}  # of former timelines
        self.copies = 0  # times that an older copy took its place
        self.is_standby = False  # which sends on when it is promoted
        self.former: dict[int, tuple[list[Transaction], list[Database]]] = {}
        columns = {"a": "id v", "b": "id v big", "c": "v w", "x": "id v"}
        self.tables: Database = {
            name: Table([Column(c, TEXT, nullable=c != "id") for c in text.split()])
            for name, text in columns.items()
        }
        for name in ("a", "b", "c"):
            for _ in range(world.rng.randrange(3)):
                self._insert(name)
        self.states: list[Database] = [copy.deepcopy(self.tables)]
        self.visible = 0  # of the commits in the log, to new snapshots
        self.lags = False  # commits are visible later than in the log
        self.hides = False  # transactions without changes are not always sent
        self.slot: dict[str, int] | None = None
        self.told: list[int] = []  # where readers confirmed it
        self.is_foreign = False  # somebody else made it
        self.owner: Connection | None = None
        self.lock: Connection | None = None
        self.snapshots: dict[str, tuple[int, Database]] = {}
        self.captured = {"a", "b", "c", "d", "y"}  # [tables]
        self.published = {"a", "b", "c", "d", "x"}
        self.made = 0  # times that y was made
        self.hushed: set[str] = set()  # tables of which the publication leaves everything out
        self.silent: list[Silent] = []
        self.entries: Counter[str] = Counter()  # times that the publication was altered
        self.removed: Counter[str] = Counter()  # times that a table of the name was dropped
        self.files: Counter[str] = Counter()  # times that all rows were written elsewhere
        self.written: dict[str, tuple[int, bool]] = {}  # xid, and whether it was a TRUNCATE
        self.held: set[str] = set()  # tables that are protected from DDL
        # number -> table, where WAL ended then, for whom
        self.asked: dict[int, tuple[str, int, str]] = {}
        self.asked_of: dict[tuple[str, int], int] = {}  # which entry in the publication it was
        self.named: dict[int, tuple[Key, ...]] = {}  # requests for some keys alone
        self.requests = 0
        self.tokens = 0  # of marks
        self.on_answered: Callable[[str, int, str], None] = lambda *_: None
        self.connections: list[Connection] = []
        self.window = world.rng.choice([12, 60])  # messages that a session may be ahead
        self.drop_weight = 0.03
        self.drops = 0  # connections that the server may still drop
        self.limit: Callable[[], int] = lambda: self.planned  # transactions up to now
        self.on_confirmed: Callable[[int], None] = lambda _: None
        world.sources_of_moves.append(self._moves)

    def read_in_ranges(self) -> None:
        """Have tables of some ranges, which are read beside the stream."""
        self.reads_ranges = True
        for name in ("a", "b"):
            for _ in range(6):
                self._insert(name)
        self.states = [copy.deepcopy(self.tables)]

    def make_unpublished(self) -> None:
        """A table appears that matches [tables], with rows; nobody publishes it by itself."""
        self.made += 1
        self.tables["y"] = Table([Column("id", TEXT, nullable=False), Column("v", TEXT)])
        for _ in range(self.world.rng.randrange(3)):
            self._insert("y")
        self.states[-1]["y"] = copy.deepcopy(self.tables["y"])

    def remove(self, name: str) -> None:
        """Drop a table, which pgoutput does not tell."""
        self.commit_nothing()
        self.removed[name] += 1
        del self.tables[name]
        self.states[-1] = copy.deepcopy(self.tables)

    def make_again(self, name: str, *, is_published: bool) -> None:
        """Drop a table and make another one of its name, with rows that nobody sends."""
        self.remove(name)
        self.commit_nothing()
        self.tables[name] = Table([Column(c, TEXT, nullable=c != "id") for c in ("v", "w")])
        for _ in range(self.world.rng.randrange(3)):
            self._insert(name)
        self.states[-1] = copy.deepcopy(self.tables)
        if not is_published:
            self.published.discard(name)

    def hush(self, name: str, *, is_on: bool) -> None:
        """ALTER PUBLICATION leaves a table out, or takes that back."""
        self.entries[name] += 1
        self.commit_nothing()
        if is_on:
            self.hushed.add(name)
        else:
            self.hushed.remove(name)

    def rewrite(self, name: str) -> None:
        """Compute all rows of a table anew, or remove them out of the log: no row is sent."""
        xid = self.commit_nothing()
        self.files[name] += 1
        self.written[name] = xid, False
        had_rows = bool(self.tables[name].rows)
        for row in self.tables[name].rows:
            row["v"] = self._value()
        if self.files[name] % 3 == 0:  # as SET UNLOGGED, DELETE, SET LOGGED does
            self.tables[name].rows.clear()
        self.states[-1] = copy.deepcopy(self.tables)
        if had_rows:
            self._hide(name, len(self.wal))

    def vacuum(self, name: str) -> None:
        """Put the rows of a table into another file, as they are."""
        self.commit_nothing()
        self.files[name] += 1

    def _hide(self, name: str, at: int) -> None:
        self.silent.append(Silent(name, at, self.entries[name], self.files[name]))

    def connect(self, name: str) -> Connection:
        """A new session."""
        connection = Connection(self, name)
        self.connections.append(connection)
        return connection

    @property
    def end(self) -> int:
        """Where a slot that is made now begins."""
        if self.decoding is not None and self.decoding.by_csn:
            return self.wal[-1].csn if self.wal else _FIRST_CSN
        return self.wal_end

    # ------------------------------------------------------------ transactions
    def _value(self) -> str:
        self.next_value += 1
        return f"v{self.next_value}"

    def _insert(self, name: str) -> Row:
        table = self.tables[name]
        row = {
            c.name: self._value() for c in table.columns if self.world.chance(0.8) or not c.nullable
        }
        if name in KEYED:
            used = {r["id"] for r in table.rows}
            row["id"] = next(str(i) for i in range(100) if str(i) not in used)
        else:
            row["v"] = self.world.rng.choice("pq")  # so that equal rows exist
            if self.world.chance(0.5):
                row.pop("w", None)
        table.rows.append(row)
        return row

    def commit_one(self) -> None:
        """Make and commit one more transaction."""
        rng, world = self.world.rng, self.world
        kind = rng.choices(
            ["rows", "empty", "filtered", "giant", "ddl", "truncate", "create"],
            [10, 2, 2, 30 if self.giants else 1, 2, 1, 1],
        )[0]
        if len(self.wal) == self.planned - 1:
            kind = "rows"  # so that there is something to confirm
        decoding = self.decoding
        if kind == "truncate" and decoding is not None and not decoding.tells_truncate:
            kind = "rows"  # nobody could see it
        if self.talks and kind != "rows" and world.chance(0.5):
            self._speak()
            return
        changes: list[tuple[Message, dict[int, TableSchema]]] = []
        expected: list[tuple[Any, ...]] = []
        holes: set[str] = set()
        names = [n for n in ("a", "b", "c", "d", "y") if n in self.tables]
        if kind == "filtered":
            self._change("x", changes, expected)
        elif kind == "create" and "d" not in self.tables:
            self.tables["d"] = Table([Column("id", TEXT, nullable=False), Column("v", TEXT)])
            if decoding is not None and decoding.tells_ddl:
                self._state("d", _CREATE, changes)
            else:
                self._change("d", changes, expected)
        elif kind != "empty":
            for _ in range(rng.randrange(8, 14) if kind == "giant" else rng.randrange(1, 4)):
                self._change(self._some(names), changes, expected)
            if kind == "ddl":
                self._add_column(changes, holes)
                for _ in range(rng.randrange(3)):
                    if decoding is None or not decoding.loses_rows:
                        self._change(rng.choice(names), changes, expected)
            if kind == "truncate":
                self._truncate(rng.sample(names, 2), changes, expected)
                if world.chance(0.5):
                    self._change(rng.choice(names), changes, expected)
            is_over = kind == "ddl" and decoding is not None and decoding.loses_rows
            if world.chance(0.2) and not is_over:
                self._change("x", changes, expected)
        if self.talks and world.chance(0.2):
            told = Logical(True, Lsn(self.wal_end), "p", self._value().encode())
            changes.insert(rng.randint(0, len(changes)), (told, self._shapes()))
        is_led = self.strange and world.chance(0.2)
        if self.strange and world.chance(0.2):
            at = rng.randint(0, len(changes))
            changes.insert(at, (Undecoded(b"?", "a message of no known kind"), self._shapes()))
        if is_led or any(isinstance(change, Undecoded) for change, _ in changes):
            holes.add(EVERYTHING)
        index = len(self.wal)
        begin = self.wal_end
        # Nothing may lie between two commit records: positions that are compared may be equal.
        start = begin + (4 * len(changes) + 4 if world.chance(0.5) else 0)
        end = start + 8
        self.wal_end = end + rng.choice([0, 0, 8])
        made = Transaction(
            *(index, self._xid(index), begin, start, end, changes, expected, holes),
            is_shown=EVERYTHING in holes or world.chance(0.5),
            is_led=is_led,
        )
        if decoding is not None:
            # A CSN is taken before the commit record is written: neighbours may descend.
            made.csn = _FIRST_CSN + 3 * (index + 1 if decoding.by_csn else (index ^ 1) + 1)
            made.commit_start, made.end_lsn = decoding.position(start, end, made.csn)
            made.is_shown = made.is_shown or decoding.sends_empty
        self.wal.append(made)
        self.states.append(copy.deepcopy(self.tables))
        if not (self.lags and world.chance(0.4)):
            self.visible = len(self.wal)

    def _some(self, names: list[str]) -> str:
        """A table, mostly one that is being read in ranges."""
        read = [reader.name for reader in self.readers if reader.name in names]
        return self.world.rng.choice(read if read and self.world.chance(0.7) else names)

    def commit_nothing(self, *, token: int | None = None) -> int:
        """Commit a transaction without changes of anybody's tables; return its id.

        `token`: it has a row of the producer's own, which is sent in every style; as a fault, not.
        """
        index, start = len(self.wal), self.wal_end
        self.wal_end = start + 8
        changes: list[Any] = []
        made = Transaction(index, self._xid(index), start, start, self.wal_end, changes, [], set())
        if self.decoding is not None:
            made.csn = _FIRST_CSN + 3 * (index + 1 if self.decoding.by_csn else (index ^ 1) + 1)
            made.commit_start, made.end_lsn = self.decoding.position(start, self.wal_end, made.csn)
            is_hidden = self.hides and not self.world.calm and self.world.chance(0.3)
            made.is_shown = self.decoding.sends_empty and not is_hidden
            if token is not None and not is_hidden:
                changes.append((MarkRow(token), {}))
        self.wal.append(made)
        self.states.append(copy.deepcopy(self.tables))
        if not self.lags:
            self.visible = len(self.wal)
        return made.xid

    # ------------------------------------------------------------ snapshots of ranges
    def unshown(self, name: str) -> frozenset[int]:
        """Choose which commits in the log a new snapshot does not show, behind a table's lock.

        The log's order is not that in which transactions become visible.  What was visible stays
        so, no table changes unseen behind its lock, and who waited for a row saw who had it.
        """
        count = first = len(self.wal)
        for _ in range(self.world.rng.randrange(8)):
            if not first or not (first - 1 in self.void or self._may_be_unseen(first - 1, name)):
                break
            first -= 1
        hidden: set[int] = set()
        is_newest = self.world.chance(0.5)
        for index in range(first, count):
            if index in self.void:
                continue
            if index < self.looked_upto and index not in self.unseen:
                waited = [one for one in hidden if self.wal[one].rows() & self.wal[index].rows()]
                hidden -= self._before(hidden, waited)
            elif (
                is_newest
                or self.world.chance(0.5)
                or any(self.wal[one].rows() & self.wal[index].rows() for one in hidden)
            ):
                hidden.add(index)
        self.looked_upto, self.unseen = count, frozenset(hidden)
        return self.unseen

    def _before(self, hidden: set[int], waited: list[int]) -> set[int]:
        """Those, and whom they waited for themselves."""
        shown = set(waited)
        while more := {
            one
            for one in hidden - shown
            for other in shown
            if one < other and self.wal[one].rows() & self.wal[other].rows()
        }:
            shown |= more
        return shown

    def _may_be_unseen(self, index: int, name: str) -> bool:
        changes, there = self.wal[index].changes, self.states[index].get(name)
        return (
            bool(changes)
            and all(isinstance(change, Insert | Update | Delete) for change, _ in changes)
            and there is not None
            and there.columns == self.tables[name].columns
        )

    def rows_under(self, name: str, hidden: frozenset[int]) -> list[Row]:
        """Rows of a table with a key, as a snapshot shows them."""
        first = min(hidden, default=len(self.wal))
        rows = {row["id"]: row for row in self.states[first][name].rows}
        for index in range(first, len(self.wal)):
            if index not in hidden:
                was, is_ = (
                    {row["id"]: row for row in state[name].rows}
                    for state in self.states[index : index + 2]
                )
                for key in was.keys() | is_.keys():
                    if was.get(key) != is_.get(key):
                        rows.pop(key, None)
                        rows |= {key: is_[key]} if key in is_ else {}
        return [rows[key] for key in sorted(rows)]

    # ------------------------------------------------------------ promotion
    def may_lose(self) -> int:
        """How many of the newest transactions may be lost: no table is, with its name."""
        since = self.ends.get(self.timeline - 1, 0)
        kept = [
            state.keys() == self.tables.keys() and t.begin_lsn >= since
            for t, state in zip(reversed(self.wal), reversed(self.states[:-1]), strict=True)
        ]
        return kept.index(False) if False in kept else len(kept)

    def promote(self, lost: int, *, keeps_slot: bool, lag: int) -> None:
        """A standby that had not received the last `lost` transactions becomes the primary.

        Its slot was synchronized `lag` transactions ago.
        """
        count, since = len(self.wal) - lost, self.ends.get(self.timeline - 1, 100)
        self.former[self.timeline] = self.wal, self.states
        if self.is_standby:  # what it had not replayed it has sent to nobody
            self.wal, self.states = [*self.wal], [*self.states]
            self.ends[self.timeline] = self.wal_end
            self.timeline += 1
            return
        self.wal, self.states = self.wal[:count], self.states[: count + 1]
        self.tables = copy.deepcopy(self.states[-1])
        if lost or self.world.chance(0.5):  # nor had it the end of the log, which holds no commit
            self.wal_end = max(since, self.wal[-1].record_end if self.wal else 0)
        self.ends[self.timeline] = self.wal_end
        self.timeline += 1
        for connection in self.connections:
            connection.statuses.clear()
            connection.is_linked = False
        self.owner = self.lock = None
        self.asked = {n: (t, min(end, self.wal_end), w) for n, (t, end, w) in self.asked.items()}
        self.visible = min(self.visible, count) if self.lags else count
        self._forget(count)
        if self.slot is None or not keeps_slot or self.slot["made"] > self.end:
            self.slot = None
            return
        known = [t.commit_start for t in self.wal[-1 - lag :]]
        self._set_slot_back(min(self.end, *known))

    def _forget(self, count: int) -> None:
        self.looked_upto = min(self.looked_upto, count)
        self.unseen = frozenset(index for index in self.unseen if index < count)
        self.void = {index for index in self.void if index < count}

    def come_back(self, lag: int, *, lost: int | None = None, since: int = 0) -> None:
        """Crash, and start with the slot as it was written `lag` transactions ago.

        `lost`: from an older copy of all files, which lacks so many of the newest transactions, and
        what was written after the last one that it has, from `since` on.
        """
        for connection in self.connections:
            connection.statuses.clear()
            connection.is_linked = False
        self.owner = self.lock = None
        if lost is not None:
            self.copies += 1
            count = len(self.wal) - lost
            self.wal, self.states = self.wal[:count], self.states[: count + 1]
            self.wal_end = max(since, self.wal[-1].record_end if self.wal else 0)
            self.tables = copy.deepcopy(self.states[-1])
            self.visible = min(self.visible, len(self.wal))
            self._forget(count)
        if self.slot is not None:
            by_csn = self.decoding is not None and self.decoding.by_csn
            ends = [t.csn if by_csn else t.record_end for t in self.wal[: len(self.wal) - lag]]
            self._set_slot_back(ends[-1] if ends else 0)

    def _set_slot_back(self, upto: int) -> None:
        """It stands where a reader confirmed it before, or where it was made."""
        assert self.slot is not None
        self.told = [self.slot["made"], *(lsn for lsn in self.told if lsn <= upto)]
        self.slot = {**self.slot, "confirmed": max(self.told)}

    def put_slot(self, *, is_ours: bool = False) -> None:
        """Make it at the end of the log, where the making leaves a record that is no commit."""
        self.wal_end += 0 if is_ours else 1
        self.slot, self.told = {"confirmed": self.end, "made": self.end}, []
        self.is_foreign = not is_ours

    def _xid(self, index: int) -> int:
        return 700 * self.timeline + 10_000 * self.copies + index

    def _speak(self) -> None:
        """Write a message outside of transactions: the next commit may begin where it ends."""
        self.wal_end += 24
        end, text = self.wal_end, self._value().encode()
        told = Logical(False, Lsn(end), "p", text), self._shapes()
        self.wal.append(Transaction(len(self.wal), 0, end - 24, end - 1, end, [told], [], set()))
        self.states.append(copy.deepcopy(self.tables))

    def _shapes(self) -> dict[int, TableSchema]:
        return {
            number: self.tables[name].schema(name)
            for number, name in NAMES.items()
            if name in self.tables
        }

    def _cells(self, name: str, row: Row, *, only: set[str] | None = None) -> list[Any]:
        return [
            row[c.name].encode() if c.name in row and (only is None or c.name in only) else None
            for c in self.tables[name].columns
        ]

    def _change(self, name: str, changes: list[Any], expected: list[Any]) -> None:
        """One INSERT, UPDATE or DELETE, as pgoutput would send it."""
        if name not in self.published or name in self.hushed:
            changes, expected = [], []
        if name in self.hushed:
            self._hide(name, len(self.wal) + 1)
        rng = self.world.rng
        table = self.tables[name]
        number = next(n for n, t in NAMES.items() if t == name)
        often = [4, 8, 2, 2] if self.reads_ranges else [5, 4, 1, 2]
        if name not in KEYED:
            often[2] = 0
        op = rng.choices(["c", "u", "k", "d"], often)[0]
        if op == "c" or not table.rows:
            row = self._insert(name)
            if self.unfit and self.world.chance(0.1):
                row["v"] = self._value().ljust(LARGE)
            message: Message = Insert(number, self._cells(name, row))
            said: tuple[Any, ...] = ("c", tuple(self._cells(name, row)))
        elif op == "d":
            row = table.rows.pop(rng.randrange(len(table.rows)))
            if name in KEYED:
                message = Delete(number, "K", self._cells(name, row, only={"id"}))
            else:
                message = Delete(number, "O", self._cells(name, row))
            said = ("d", None)
        else:
            row = rng.choice(table.rows)
            old = dict(row)
            column = rng.choice([c.name for c in table.columns if c.name not in ("id", "big")])
            row[column] = self._value()
            if self.unfit and self.world.chance(0.1):
                row[column] = row[column].ljust(LARGE)
            if name == "b" and self.world.chance(0.2 if self.reads_ranges else 0.4):
                row["big"] = self._value()
            if op == "k":
                used = {r["id"] for r in table.rows}
                row["id"] = next(str(i) for i in range(100) if str(i) not in used)
            cells = self._cells(name, row)
            is_toast = name == "b" and self.decoding is None
            if is_toast and row.get("big") == old.get("big") and "big" in row:
                cells[[c.name for c in table.columns].index("big")] = UNCHANGED
            if name not in KEYED:
                message = Update(number, "O", self._cells(name, old), cells)
            elif op == "k":
                message = Update(number, "K", self._cells(name, old, only={"id"}), cells)
            else:
                message = Update(number, "", None, cells)
            said = ("u", tuple(cells))
        shapes = self._shapes()
        changes.append((message, shapes))
        if not is_unfit(message, shapes):
            expected.append((name, *said))
            if op == "k" and name == "a" and isinstance(message, Update):
                expected.append((name, "d", None))  # placed by key: the old one goes, too

    def _state(self, name: str, sql: str, changes: list[Any]) -> None:
        """A statement, as GaussDB prints it."""
        number = next(n for n, t in NAMES.items() if t == name)
        changes.append((Stated(number, sql), self._shapes()))

    def _add_column(self, changes: list[Any], holes: set[str]) -> None:
        """ADD COLUMN, perhaps NOT NULL with a default that nobody tells: a hole."""
        name = self.world.rng.choice("abc")
        if name not in self.tables:
            return
        if self.decoding is not None and name not in KEYED:
            return  # an old row of it may be older than what the catalog shows
        table = self.tables[name]
        if len(table.columns) >= 5:
            return
        column = f"n{len(table.columns)}"
        is_told = self.decoding is not None and self.decoding.tells_ddl
        is_lossy = self.lossy and self.world.chance(0.5) and not is_told
        table.columns = [*table.columns, Column(column, TEXT, nullable=not is_lossy)]
        if is_told:
            # Rows behind a statement are not sent: where there are rows, more may have been lost.
            there = [shapes[message.relation].id.name for message, shapes in changes]
            holes |= {f"public.{touched}" for touched in (*there, name) if there}
            self._state(
                name, f"ALTER TABLE public.{name} ADD COLUMN {column} pg_catalog.text", changes
            )
        if is_lossy:
            holes.add(f"public.{name}")
            for row in table.rows:
                row[column] = "default"

    def _truncate(self, names: list[str], changes: list[Any], expected: list[Any]) -> None:
        for name in names:
            self.tables[name].rows.clear()
            self.files[name] += 1
            self.written[name] = 700 * self.timeline + len(self.wal), True
            if name in self.hushed:
                self._hide(name, len(self.wal) + 1)
        names = [name for name in names if name in self.published - self.hushed]
        numbers = tuple(n for n, t in NAMES.items() if t in names)
        if not numbers:
            return
        changes.append((Truncate(numbers, cascade=False, restart_identity=False), self._shapes()))
        expected.extend((NAMES[n], "t", None) for n in numbers)

    # ------------------------------------------------------------ slot
    def make_slot(self) -> str:
        """Make the slot at the end of WAL with an exported snapshot; return the snapshot's name."""
        assert self.slot is None
        self.put_slot(is_ours=True)
        name = f"snap-{len(self.snapshots)}"
        self.snapshots[name] = (self.end, copy.deepcopy(self.tables))
        return name

    def drop_connection(self, connection: Connection) -> None:
        """The server's side of a session ends; what was sent stays in its socket."""
        if self.world.chance(0.5):
            connection.statuses.clear()
        while connection.statuses:
            connection.take_status()
        connection.is_linked = False
        if self.owner is connection:
            self.owner = None
        if self.lock is connection:
            self.lock = None

    def _show(self) -> None:
        self.visible = len(self.wal)

    def _drop(self, connection: Connection) -> None:
        self.drops -= 1
        self.drop_connection(connection)

    def _moves(self, out: list[Move]) -> None:
        if len(self.wal) < self.limit():
            out.append(Move(1.5, f"source: commits T{len(self.wal)}", self.commit_one))
        reads = 8.0 if self.world.calm else READS
        out.extend(Move(reads, "source: a reader goes on", r.go_on) for r in self.readers)
        if self.lags and self.visible < len(self.wal):
            out.append(Move(2.0, "source: shows its commits", self._show))
        for c in self.connections:
            if not c.is_linked:
                continue
            if self.owner is c and len(c.socket) < self.window:
                if c.has_more():
                    out.append(Move(4.0, f"source: sends to {c.name}", c.send_some))
                out.append(Move(0.4, f"source: keepalive to {c.name}", c.send_keepalive))
            if c.statuses:
                out.append(Move(3.0, f"source: hears {c.name} confirm", c.take_status))
            if self.drops and not self.world.calm:
                label = f"source: drops the connection of {c.name}"
                out.append(Move(self.drop_weight, label, lambda c=c: self._drop(c)))


class Connection:
    """A replication session: the lock, the slot and the stream live in it."""

    def __init__(self, source: Source, name: str) -> None:
        self.source, self.name, self.timeline = source, name, source.timeline
        self.is_linked = True
        self.socket: deque[tuple[str, int, Any]] = deque()  # messages as pgoutput's bytes
        self.statuses: deque[int] = deque()
        self._at = 0  # next transaction
        self._steps: deque[list[Piece]] = deque()  # what of it was not sent
        self._described: dict[int, TableSchema] = {}
        self._reached = 0

    def start(self) -> bool:
        """START_REPLICATION at 0/0; False while another session has the slot."""
        source = self.source
        if source.owner is not None or source.slot is None:
            return False
        source.owner = self
        confirmed = source.slot["confirmed"]
        if source.decoding is not None and not source.decoding.by_csn:
            self._at = sum(t.record_start < confirmed for t in source.wal)
        else:
            self._at = sum(t.commit_start < confirmed for t in source.wal)
        self._reached = max(0, confirmed - source.world.rng.choice([0, 0, 16, 40]))
        return True

    def has_more(self) -> bool:
        """Say whether a commit is to be sent."""
        return self._at < len(self.source.wal)

    def send_some(self) -> None:
        """Put the next messages into the socket."""
        source, pieces = self.source, []
        for _ in range(source.world.rng.choice([1, 2, 4, 12, source.window])):
            if not self.has_more():
                break
            pieces += self._next_step()
        messages: Iterable[tuple[int, bytes]] = ((piece.lsn, piece.record) for piece in pieces)
        if source.decoding is not None:
            messages = source.decoding.packed(pieces, source.world)
        self.socket.extend(("message", lsn, record) for lsn, record in messages)

    def _next_step(self) -> list[Piece]:
        t = self.source.wal[self._at]
        if not self._steps:
            decoding = self.source.decoding
            self._steps.extend(self._messages(t) if decoding is None else decoding.steps(t))
        step = self._steps.popleft()
        if not self._steps:
            self._at += 1
            self._reached = t.record_end
        return step

    def _messages(self, t: Transaction) -> Iterator[list[Piece]]:
        """A transaction as pgoutput sends it, step by step."""
        if t.is_lone_message:
            yield [Piece(t.end_lsn, payload(t.changes[0][0]))]
            return
        if not t.changes and not t.is_shown:
            yield []
            return
        led = [Piece(t.begin_lsn, payload(Undecoded(b"?", "no known kind")))] if t.is_led else []
        yield [*led, Piece(t.begin_lsn, payload(Begin(Lsn(t.commit_start), 0, t.xid)))]
        for at, (message, shapes) in enumerate(t.changes, 1):
            lsn = t.begin_lsn + 4 * at
            yield [*self._news(t, message, shapes), Piece(lsn, payload(message))]
        commit = payload(Commit(Lsn(t.commit_start), Lsn(t.end_lsn), 0))
        yield [Piece(t.begin_lsn + 4 * len(t.changes) + 4, commit)]

    def _news(
        self, t: Transaction, message: Message, shapes: dict[int, TableSchema]
    ) -> Iterator[Piece]:
        """Relations that the session was not told of."""
        ids: tuple[int, ...] = ()
        if isinstance(message, Truncate):
            ids = message.relations
        elif isinstance(message, Insert | Update | Delete):
            ids = (message.relation,)
        for number in ids:
            if self._described.get(number) != shapes[number]:
                self._described[number] = shapes[number]
                yield Piece(t.begin_lsn, payload(_describe(number, shapes[number])))

    def send_keepalive(self) -> None:
        """Tell how far decoding is: up to the very start of the next commit record.

        Where threads decode it is how far the log was read, ahead of what is sent.
        """
        source = self.source
        ask = int(source.world.chance(0.3))
        is_parallel = source.decoding is not None and source.decoding.is_parallel
        if is_parallel or not self.has_more():
            self._reached = max(self._reached, source.wal_end)
        elif not self._steps and source.world.chance(0.5):
            self._reached = max(self._reached, source.wal[self._at].record_start)
        self.socket.append(("keepalive", self._reached, ask))

    def take_status(self) -> None:
        """A status message reaches the server."""
        lsn = self.statuses.popleft()
        source = self.source
        if source.owner is self and source.slot is not None and lsn:
            source.slot["confirmed"] = max(source.slot["confirmed"], lsn)
            source.told.append(source.slot["confirmed"])
            source.on_confirmed(lsn)


def _describe(number: int, table: TableSchema) -> Relation:
    return Relation(
        number,
        table.id.schema,
        table.id.name,
        table.replica_identity,
        tuple(
            RelationColumn(c.name, c.type_oid, c.type_mod, c.name in table.identity_columns)
            for c in table.columns
        ),
    )
