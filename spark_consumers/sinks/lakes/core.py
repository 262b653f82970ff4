"""Several tables at one source commit, where each table has versions of its own and nothing else.

A lake has no transaction over two tables.  What stands in for it is the *watermark*: a row that
names, for one commit of the source, the version of each table, and holds the ledger.  It is
written last, and only if it directly follows the one that the step was built on.

    newest watermark ─▶ each table: head = what it names?  ── no ─▶ put back
                                         │ yes
                                         ▼
                              one write, directly behind the head ─▶ … ─▶ the next watermark

Whatever a version holds that no watermark names counts for nothing: an attempt that ended in the
middle, or an applier that was overtaken and still writes.  So a table is never continued from its
head but from the version that the watermark names, and a version is named only if it directly
follows the one that it was built on.  Who reads the versions that a watermark names sees whole
commits over all tables.

Each version says by its stamp of which step it is.  An attempt that is made again finds what the
one before wrote, names it, and does not write it twice.  Who takes over writes a watermark with a
greater fence first: the next one of an overtaken applier does not follow it, and is refused.

Pure over `TableVersions` and `Marks`.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, count
from typing import Any, Final, Protocol, TypeAlias

from schemas.control import LoadPhase, SchemaChange, TableLoad, is_beside
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId, TableSchema
from spark_consumers.errors import (
    MissingTable,
    NotExpressible,
    RowMissing,
    Superseded,
    TargetNotEmpty,
    TargetRefused,
)
from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks.lakes.joined import Joined, joined
from spark_consumers.sinks.step import FIRST, LAST, Place, absent_of, check_fence, shapes_of

At: TypeAlias = tuple[int, int, int]  # (epoch, n, seq): grows with every step
SOURCE: Final = "gauss-cdc.source"  # a table's property: whose it is


# ---------------------------------------------------------------- versions
@dataclass(frozen=True, slots=True)
class Stamp:
    """What a version says of itself, in the lake's own metadata."""

    at: At | None = None  # the end of its step
    # The version that it was built on, as the watermark or step named it.  Of a table that is new
    # there is none: -1 of the second one that its step makes in one place, -2 of the third.
    base: int | None = None
    same_as: int | None = None  # it repeats the rows of this version
    note: str = ""  # of a watermark: all of it; of a table: what was written


def stamp_text(stamp: Stamp, **more: object) -> str:
    """Write a stamp for the metadata of a version."""
    return json.dumps({"gauss_cdc": asdict(stamp) | more})


def stamp_of(text: str | None) -> tuple[Stamp, Mapping[str, Any]]:
    """Read what `stamp_text` wrote, and all that was said with it; anything else is no stamp.

    >>> stamp_of(stamp_text(Stamp(at=(2, 90, 5001))))[0].at, stamp_of("another program's")
    ((2, 90, 5001), (Stamp(at=None, base=None, same_as=None, note=''), {}))
    """
    try:
        read = json.loads(text or "")["gauss_cdc"]
    except (ValueError, KeyError, TypeError):
        return Stamp(), {}
    at = tuple(read["at"]) if read["at"] else None
    return Stamp(at, read["base"], read["same_as"], read["note"]), read


@dataclass(frozen=True, slots=True)
class TableVersion:
    """A version of one table."""

    id: int
    stamp: Stamp = Stamp()
    follows: bool = True  # directly behind the version that its writer had looked at
    # Of the table, not of the version: the source that it says it is of, and what tells it from
    # others that are made in its place, where these begin to count anew.
    source: str | None = field(default=None, compare=False)
    made: str = field(default="", compare=False)
    is_ours: bool = field(default=False, compare=False)  # its properties are those of an applier

    @property
    def content(self) -> int:
        """The version whose rows these are."""
        same_as = self.stamp.same_as
        return self.id if same_as is None or not self.follows else same_as


@dataclass(frozen=True, slots=True)
class TableMark:
    """What a watermark says of one table."""

    version: int
    key: tuple[str, ...]
    place: TableId  # what the lake calls it: the name that it had when it was made
    mode: str = ""  # [target] mode; '': a release wrote it that did not say so
    made: str = ""  # see `TableVersion`


@dataclass(frozen=True, slots=True)
class Watermark:
    """The ledger, and the version of each table at its commit."""

    number: int  # counts watermarks of the source
    ledger: Ledger
    tables: Mapping[str, TableMark] = field(default_factory=dict)  # schema.table -> version
    written_at: int = 0  # µs since 1970
    cared_at: int = 0  # when the lake was last maintained, µs since 1970


# ---------------------------------------------------------------- work
@dataclass(frozen=True, slots=True)
class Begin:
    """An empty table of this shape, whatever was there before."""

    schema: TableSchema
    source: str = ""  # whose table it is from now on


@dataclass(frozen=True, slots=True)
class Add:
    """Rows of a load."""

    rows: Any
    key: tuple[str, ...]
    count: int = 0  # about: those of the segment


@dataclass(frozen=True, slots=True)
class Apply:
    """Changes, in the order of the source's commits."""

    rows: Any
    key: tuple[str, ...]
    is_exact: bool
    count: int = 0  # about: those of the segment
    kinds: Any = None  # what `SegmentContent.kinds` knows of the rows


@dataclass(frozen=True, slots=True)
class Alter:
    """A schema change."""

    change: SchemaChange


Work: TypeAlias = Begin | Add | Apply | Alter


def noted(work: Work) -> str:
    """Return what a version's stamp says of it.

    Rows that may have been left out are said: who finds the version may not know of them.

    >>> noted(Add(None, ("id",))), noted(Apply(None, ("id",), is_exact=False))
    ('Add', 'Apply, not exact')
    """
    is_exact = not isinstance(work, Apply) or work.is_exact
    return type(work).__name__ + ("" if is_exact else ", not exact")


def described(table: TableId, work: Work) -> str:
    """Say what is written, for logs.

    >>> described(TableId("public", "t"), Add(None, ("id",), 2500))
    'writes 2,500 rows to public.t'
    """
    match work:
        case Begin():
            return f"makes {table}"
        case Alter():
            return f"alters {table}"
        case Add(count=count) | Apply(count=count):
            return f"writes {count:,} rows to {table}"


# ---------------------------------------------------------------- ports
class TableVersions(Protocol):
    """The tables of a lake, one at a time."""

    def head(self, table: TableId) -> TableVersion | None:
        """The newest version, whoever wrote it; None: there is no such table."""

    def made(self, table: TableId, version: int) -> str:
        """What told the table from others at a version; '' where that is not there."""

    def put_back(self, table: TableId, head: TableVersion, content: int) -> TableVersion:
        """Make a version behind `head` that repeats `content`; its stamp says so.

        Raise MissingTable where that is not there any more.
        """

    def write(
        self, table: TableId, head: TableVersion | None, work: Work, stamp: Stamp
    ) -> TableVersion:
        """Make one version of what `head` holds and the work; `head` itself if it holds that.

        `stamp`: what it says of itself.  `head` None: there is no table.  Like `put_back` it may
        raise Superseded instead, and must say by `follows` whether the version stands directly
        behind `head`.
        """


class Care(Protocol):
    """What a table needs from time to time; it changes no rows."""

    def compact(self, table: TableId, head: TableVersion, keep: float) -> TableVersion:
        """Write small files as large ones, as the version behind `head`, or return `head`.

        `keep`: seconds for which a version must stay readable after it was replaced.
        """

    def expire(self, table: TableId, oldest: int, keep: float) -> None:
        """Remove what only versions before `oldest` need.  `keep`: seconds, as of `compact`."""


class Marks(Protocol):
    """The watermarks of one source."""

    def newest(self) -> Watermark | None:
        """The last one; None: nothing was ever applied."""

    def append(self, before: Watermark | None, mark: Watermark) -> None:
        """Write the next one; raise Superseded, and write nothing, unless `before` is the last."""


class KeptMarks(Marks, Protocol):
    """Watermarks, and what removes old ones; there may be more than a driver holds."""

    def around(self, since: int) -> tuple[int | None, int | None]:
        """Numbers of the last one written before `since` (µs), and of the first one since then."""

    def keep(self, first: int) -> Iterable[Watermark]:
        """Remove those before number `first`, and return of the rest the first for each place.

        Raise Superseded, and remove nothing, where another one was added.
        """


class SegmentContent(Protocol):
    """A segment's content."""

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        """Its schema changes."""

    @property
    def tables(self) -> Iterable[TableId]:
        """Tables with rows in it."""

    def check(self, segment: Segment, keys: Mapping[str, tuple[str, ...]]) -> None:
        """Raise Incomplete unless the rows are exactly what the cut promises.

        `keys`: of tables whose changes go by their key, by schema.table.
        """

    def count(self, table: TableId) -> int:
        """How many rows it has of a table, once it was checked."""

    def kinds(self, table: TableId, key: tuple[str, ...]) -> Any | None:
        """What the check found out of all rows of a table, by this key; None: it did not."""

    def between(
        self, table: TableId, after: Place, before: Place, shape: Joined | None = None
    ) -> Any | None:
        """The table's rows between two places, in one shape; None: there are none.

        No row stands at either place.  `shape`: what they are to have; None: the one that all have.
        """


# ---------------------------------------------------------------- rules
class LakeTransaction:
    """`step.TargetTransaction` of a lake: what it writes becomes visible by the watermark only."""

    def __init__(
        self,
        tables: TableVersions,
        marks: Marks,
        staged: SegmentContent,
        *,
        needs_key: bool,
        keeps_columns: bool = False,
        mode: str = "",
        replaces: bool = False,
        on_step: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`needs_key`: changes go by the table's key; `keeps_columns`: what went stays there.

        `mode`: of the tables that it makes; it writes to no others.  `replaces`: to make a table,
        it takes one that is another source's or nobody's.
        `on_step` is told each write, which takes seconds: a table, and about how many rows.

        A table's changes are written at the end, and before a change of its own schema that they
        cannot be joined over: each write costs seconds, and the order of two tables is nobody's to
        see.
        """
        self._tables, self._marks, self._staged = tables, marks, staged
        self._needs_key, self._keeps_columns = needs_key, keeps_columns
        self._mode, self._replaces = mode, replaces
        self._on_step = on_step
        self._mark: Watermark | None = None
        self._named: dict[str, TableMark] = {}
        self._segment: Segment | None = None
        self._upto: Place = FIRST  # changes before it may be written
        self._inexact: Mapping[str, str] = {}
        self._written: dict[TableId, Place] = {}
        self._left_out: set[TableId] = set()  # of which the lake had nothing, at some place
        self._shapes: dict[TableId, Joined] = {}  # of changes that wait, behind schema changes
        self._made = Counter[TableId]()  # new tables in each place

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        return self._staged.ddl

    def lock_ledger(self) -> Ledger | None:
        """Nothing is locked: `move_ledger` compares.  None: there is no watermark."""
        self._mark = self._marks.newest()
        if self._mark is None:
            return None
        self._named = dict(self._mark.tables)
        return self._mark.ledger

    def check_staged(self, segment: Segment) -> None:
        self._segment = segment
        keys = {name: mark.key for name, mark in self._named.items()} if self._needs_key else {}
        self._staged.check(segment, keys)

    def parts(self) -> Iterator[None]:
        yield  # frames hold everything

    def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
        self._alter(change, is_exact=is_exact)
        return False

    def _alter(self, change: SchemaChange, *, is_exact: bool) -> None:
        before, after = change.before, change.after
        if before is not None:
            waiting = self._shapes.get(before.id)
            shape = joined(waiting, change, keeps_columns=self._keeps_columns)
            if shape is not None and is_exact:
                self._shapes[before.id] = shape
            else:
                self._flush(before.id)
        if after is None:
            if before is not None:  # older watermarks name its versions: it only goes from here
                self._named.pop(str(before.id), None)
            return
        if before is None:
            if str(after.id) not in self._named:
                self._write(after.id, Begin(after), key=after.key)
            return
        named = self._named.pop(str(before.id), None)
        if named is None:
            raise MissingTable(
                "the lake does not have a table of the stream", table=before.id, hint=LOAD_AGAIN
            )
        # Its versions stay where they are: older watermarks name them there.
        self._named[str(after.id)] = replace(named, key=after.key)
        if replace(before, id=after.id) != after or change.moved is not None:
            self._write(after.id, Alter(change), key=after.key)

    def write(self, after: Place, before: Place, inexact: Mapping[str, str]) -> None:
        del after
        self._upto, self._inexact = before, inexact
        absent = absent_of(inexact)
        left_out = [table for table in self._staged.tables if str(table) in absent]
        self._written |= dict.fromkeys(left_out, before)
        self._left_out |= set(left_out)
        if before == LAST:
            for table in self._staged.tables:
                if table not in left_out:
                    self._flush(table)

    def load(self, cut: TableLoad, *, keeps: bool) -> bool:
        del keeps  # readers find the older versions by their watermark
        match cut.phase:
            case LoadPhase.BEGIN:
                for change in shapes_of(self.ddl, cut.table):
                    if change.after is not None:
                        self._check_key(cut.table, change.after.key)
                        self._write(cut.table, Begin(change.after), key=change.after.key)
            case LoadPhase.CHUNK:
                if cut.table in self._staged.tables:
                    rows = self._staged.between(cut.table, FIRST, LAST)
                    if rows is not None:
                        key, count = self._named[str(cut.table)].key, self._staged.count(cut.table)
                        work: Work = Add(rows, key, count)
                        if is_beside(cut):  # over what the commits between brought
                            kinds = self._staged.kinds(cut.table, key)
                            work = Apply(rows, key, is_exact=False, count=count, kinds=kinds)
                        self._write(cut.table, work, key=key)
            case LoadPhase.END:
                pass
        return False

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        named = {table: self._named.get(str(table)) for table in tables}
        return {t for t, mark in named.items() if mark and self._tables.head(mark.place)}

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        del before
        self._marks.append(self._mark, following(self._mark, upto, self._named))

    def _check_key(self, table: TableId, key: tuple[str, ...]) -> None:
        """Refuse rows that nothing names; a table may be without a key from one commit to another.

        What lost its key may have another one before its next row comes.
        """
        if self._needs_key and not key:
            raise NotExpressible(
                "a table without a key cannot be followed row by row in a lake",
                table=table,
                hint=f"give it a primary key, or leave it out of [tables]; then {LOAD_AGAIN}",
            )

    def _flush(self, table: TableId) -> None:
        """Write the changes of a table that wait."""
        after, self._written[table] = self._written.get(table, FIRST), self._upto
        shape, rows = self._shapes.pop(table, None), None
        if table in self._staged.tables:
            rows = self._staged.between(table, after, self._upto, shape)
        if rows is None:
            return
        named = self._named.get(str(table))
        if named is None and table in self._left_out:
            return  # it has another name by now
        if named is None:
            raise MissingTable(
                "the lake does not have a table of the stream", table=table, hint=LOAD_AGAIN
            )
        self._check_key(table, named.key)
        is_exact = str(table) not in self._inexact
        is_all = (after, self._upto, shape) == (FIRST, LAST, None)
        kinds = self._staged.kinds(table, named.key) if is_all else None
        work = Apply(rows, named.key, is_exact, self._staged.count(table), kinds)
        self._write(table, work, key=named.key)

    def _write(self, table: TableId, work: Work, *, key: tuple[str, ...]) -> None:
        """One version more, built on the one that the watermark names."""
        segment, name = self._segment, str(table)
        assert segment is not None
        named = self._named.get(name)
        base, place = (None, self._free(table)) if named is None else (named.version, named.place)
        is_whole = isinstance(work, Begin)  # it keeps nothing of what is there
        if isinstance(work, Begin):
            work = replace(work, source=segment.after.source)
        elif named is not None:
            check_mode(named.mode, self._mode, table)
        self._on_step(described(table, work))
        note = f"{noted(work)} {self._mode}".rstrip()
        stamp = replace(self._stamp(segment, place, base), note=note)
        head = self._tables.head(place)
        if head is None or not _is_done(head, stamp):
            is_named = named is not None and head is not None and self._is(named, head)
            if is_whole and head is not None and not self._replaces:
                _check_owner(head, segment.after.source, table, is_known=is_named)
            if not is_whole:
                if head is None or base is None or not is_named:
                    raise MissingTable("a table of the lake is gone", table=table, hint=LOAD_AGAIN)
                if head.content != base:
                    head = self._put_back(place, head, base)
            try:
                head = _followed(self._tables.write(place, head, work, stamp), table)
            except RowMissing as error:  # a table is marked by the name that it has at the source
                error.where["table"] = table
                raise
        # It may be a version that was put back, where there was nothing to write.
        self._named[name] = TableMark(head.content, key, place, self._mode, head.made)

    def _is(self, named: TableMark, head: TableVersion) -> bool:
        """Say whether a table is the named one, or was replaced by others and can be put back."""
        return is_same(named, head) or self._tables.made(named.place, named.version) == named.made

    def _put_back(self, place: TableId, head: TableVersion, content: int) -> TableVersion:
        try:
            return _followed(self._tables.put_back(place, head, content), place)
        except MissingTable as error:
            if self._marks.newest() != self._mark:  # whoever took over has expired it
                raise Superseded("another applier wrote a watermark") from error
            raise

    def _stamp(self, segment: Segment, place: TableId, base: int | None) -> Stamp:
        """What tells this version from all others, also those of the same step."""
        if base is None:
            if made := self._made[place]:
                base = -made
            self._made[place] += 1
        return Stamp(at=place_of(segment.upto), base=base)

    def _free(self, table: TableId) -> TableId:
        """Where a new table goes: to its own name, unless one that was renamed stands there."""
        taken = {mark.place for mark in self._named.values()}
        more = (TableId(table.schema, f"{table.name}__{number}") for number in count(2))
        return next(place for place in chain([table], more) if place not in taken)


def take_fence(marks: Marks, source: str, known: int | None) -> Ledger | None:
    """Keep every earlier applier out: the next watermark carries a fence of our own.

    None: the newest fence is another one than is `known`, so another applier came in between.
    """
    mark = marks.newest()
    if (mark and mark.ledger.fence) != known:
        return None
    ledger = mark.ledger if mark is not None else Ledger(source)
    ledger = replace(ledger, fence=ledger.fence + 1)
    marks.append(mark, following(mark, ledger, mark.tables if mark is not None else {}))
    return ledger


def ledger_of(marks: Marks, source: str, fence: int | None) -> Ledger:
    """Where the lake stands; raises Fenced where the fence is another applier's."""
    mark = marks.newest()
    return check_fence(None if mark is None else mark.ledger, source, fence)


def maintain(tables: TableVersions, care: Care, marks: KeptMarks, *, now: int, keep: float) -> None:
    """Compact tables, name what came of it, and remove what no promised watermark names.

    Watermarks are promised for `keep` seconds before `now` (µs); others go first, so that no
    reader finds one whose versions go.  A head that nobody names is put back: what it replaced
    would expire although it is named.  A table for which that fails is left to its next step.
    """
    mark = marks.newest()
    if mark is None:
        return
    named, there = dict(mark.tables), set()
    for name, one in mark.tables.items():
        with suppress(Superseded, MissingTable):
            head = tables.head(one.place)
            if head is None or not is_same(one, head):
                continue
            if head.content != one.version:
                head = _followed(tables.put_back(one.place, head, one.version), one.place)
            version = _followed(care.compact(one.place, head, keep), one.place)
            named[name] = replace(one, version=version.content)  # nothing may have been compacted
            there.add(one.place)
    marks.append(mark, replace(following(mark, mark.ledger, named), cared_at=now))
    first = oldest(marks.keep(promised(*marks.around(now - int(keep * 1e6)))))
    for one in named.values():
        if one.place in first and one.place in there:
            care.expire(one.place, first[one.place], keep)


def following(
    before: Watermark | None, ledger: Ledger, tables: Mapping[str, TableMark]
) -> Watermark:
    """The watermark after `before`."""
    if before is None:
        return Watermark(1, ledger, dict(tables))
    return Watermark(before.number + 1, ledger, dict(tables), cared_at=before.cared_at)


def place_of(ledger: Ledger) -> At:
    """What orders the steps of a source: each one makes it greater."""
    return ledger.epoch, ledger.n, ledger.seq


def promised(last: int | None, first: int | None) -> int:
    """Return the first watermark whose versions must stay readable: some time it was the newest.

    `last` is the last one written before that time, `first` the first one since: clocks of
    appliers may differ.

    >>> promised(7, 8), promised(None, 1), promised(7, None), promised(7, 5)
    (7, 1, 7, 5)
    """
    return min(number for number in (last, first, 1 << 62) if number is not None)


def oldest(marks: Iterable[Watermark]) -> dict[TableId, int]:
    """The oldest version in each place that these watermarks name; whatever is older may go.

    Whoever asks may be overtaken: newer watermarks name these versions, or newer ones.

    >>> mark = Watermark(1, Ledger("bank"), {"shop.item": TableMark(4, (), TableId("shop", "i"))})
    >>> list(oldest([mark, replace(mark, number=2, tables={})]).values())
    [4]
    """
    out: dict[TableId, int] = {}
    for mark in sorted(marks, key=lambda mark: mark.number):
        for table in mark.tables.values():
            out.setdefault(table.place, table.version)
    return out


def is_same(mark: TableMark, head: TableVersion) -> bool:
    """Say whether a table is the one that a watermark names, and not another one in its place."""
    return mark.made in ("", head.made)


def check_mode(was: str, mode: str, table: TableId) -> None:
    """Refuse a table that was loaded in another mode; "": an earlier build did not note it."""
    if was not in ("", mode):
        raise TargetRefused(
            "a table of the lake was loaded in another [target] mode",
            table=table,
            mode=was,
            hint=f'set [target] mode = "{was}" again; for "{mode}", {LOAD_AGAIN}',
        )


def _check_owner(head: TableVersion, source: str, table: TableId, *, is_known: bool) -> None:
    """Refuse to make a table where one is that is not the source's.

    `is_known`: the watermark names it, which may be of a release that wrote no source.
    """
    if head.source and head.source != source:
        raise TargetNotEmpty(
            "a table that is to be loaded is another source's in the lake",
            table=table,
            source=head.source,
            hint="apply into another lake, or with --replace if that source is no more",
        )
    if not (head.source or head.is_ours or is_known or head.stamp.at is not None):
        raise TargetNotEmpty(
            "a table that is to be loaded is in the lake, and no apply made it",
            table=table,
            hint="apply with --replace, or drop it",
        )


def _is_done(head: TableVersion, stamp: Stamp) -> bool:
    """Say whether an earlier attempt has written this very step."""
    return stamp.at is not None and head.follows and head.stamp == stamp


def _followed(version: TableVersion, table: TableId) -> TableVersion:
    """Refuse a version that another writer came before."""
    if not version.follows:
        raise Superseded("another writer came between two versions of a table", table=table)
    return version
