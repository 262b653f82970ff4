"""One step of a target that has transactions: compare, apply in commit order, move the ledger.

    lock     the ledger, until the transaction ends
    compare  its fence: is this applier the one that counts?  Fenced.  Its place, (epoch, n, seq):
             is it what the segment was built on?  Superseded
    check    the rows are exactly what the cuts promise.  Incomplete
    apply    pieces of loads; or the marks that a START or STATE brings; or rows and schema changes,
             in the order of (seq, ordinal)
    move     the ledger, to the segment's end; the caller commits

What is raised before the commit leaves the target as it was.  After it the target has whole commits
and the ledger that names the last one [I5, I6].  The fence and the comparison are what makes a step
safe, also when a lock was lost with its connection or when a commit's outcome is unknown: the
ledger is locked again, and decides.  A step that was committed is never applied twice, since the
ledger is at another place then.

The ledger has a mark for each table that may not equal the source's.  A schema change takes it
along, or ends it (`followed`); changes of a table of which the target has nothing are left out.

Pure over `TargetTransaction`, so that every such target keeps the same rules, and the simulation
runs them.  A transaction may also collect what is to be done, and do it at once: it then gives
as its ledger what the target is known to hold, and moves it only where that is so.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from schemas.control import LoadPhase, Origin, SchemaChange, State, TableLoad
from schemas.tables import TableId
from spark_consumers.cuts.ledger import (
    ALTERED,
    doubtful,
    is_absent,
    loading,
    remarked,
    showing,
    shown,
    state_of,
    unshown,
)
from spark_consumers.errors import Fenced, Superseded
from spark_consumers.model import Change, Ledger, Segment

Place: TypeAlias = tuple[int, int]  # (seq, ordinal)
FIRST: Final[Place] = (-1, -1)
LAST: Final[Place] = (1 << 62, 1 << 62)
OVERTAKEN: Final = (
    "it was stopped, suspended or cut off from the target, and another one waited; nothing is "
    "lost, and what it still did does not count. Started again, it waits for the other's end"
)
COMPARED: Final = ("fence", "epoch", "n", "seq")  # of a ledger: is it the one that is known?
_NONE: Final[Mapping[str, str]] = {}
_NOT_BROUGHT: Final = "seen: rows came from a table that is not loaded here"


class TargetTransaction(Protocol):
    """One transaction of a target, with what was staged: all of it becomes visible, or nothing."""

    @property
    def ddl(self) -> Sequence[SchemaChange]:
        """The schema changes of what is staged."""

    def lock_ledger(self) -> Ledger | None:
        """Read the source's ledger and hold it until the transaction ends; None: there is none.

        Or say what it is known to hold: `move_ledger` compares.
        """

    def check_staged(self, segment: Segment) -> None:
        """Raise Incomplete unless the staged rows are exactly what the cut promises."""

    def parts(self) -> Iterator[None]:
        """Stage what follows of commits, part by part; `ddl` and `write` are of that part.

        Each commit's parts, put together, have its changes in an order that leads to the same
        rows.  Raises Incomplete at the end where they are not all of it.
        """

    def alter(self, change: SchemaChange, *, is_exact: bool) -> bool:
        """Run a schema change; `is_exact`: its table's rows are known to be the source's.

        Say whether rows had to go that readers saw, of a table that is loaded beside them.
        """

    def write(self, after: Place, before: Place, inexact: Mapping[str, str]) -> None:
        """Apply the staged changes between two places, in commit order.

        A table that `inexact` names may lack rows that a change needs, or be none that is
        `present`.

        No change stands at either place.
        """

    def load(self, cut: TableLoad, *, keeps: bool) -> bool:
        """Begin a table's load by its staged shape, add all its staged rows to it, or end it.

        At BEGIN, `keeps`: readers see rows of a commit.  A target that can leaves them until END,
        writes the load and all changes of the table beside them, and returns True.  At END: say
        whether the table was altered since BEGIN, so that it may have other rows than were loaded.
        """

    def there(self, tables: Collection[TableId]) -> Collection[TableId]:
        """Return those of some tables that the target has."""

    def move_ledger(self, before: Ledger, upto: Ledger) -> None:
        """Write the ledger; change nothing at all where it is not `before` in what is COMPARED."""


def step(
    transaction: TargetTransaction,
    segment: Segment,
    *,
    fence: int | None,
    on_step: Callable[[str], None] = lambda _: None,
) -> Ledger:
    """Apply a segment and move the ledger; the caller commits, or rolls back what raised.

    Returns the ledger then: a step may learn of marks that `segment.upto` lacks.  `fence`: this
    applier's.  Raises Fenced, Superseded, Incomplete, and what the transaction raises.
    """
    ledger = check_fence(transaction.lock_ledger(), segment.after.source, fence)
    check_place(ledger, segment)
    on_step("ledger locked")
    upto = replace(segment.upto, fence=ledger.fence)
    transaction.check_staged(segment)
    if segment.loads:
        beside: dict[str, str] = {}
        absent = absent_of(ledger.inexact)
        for load in by_table(segment.loads):
            table, is_begin = str(load.table), load.phase is LoadPhase.BEGIN
            if is_begin:
                absent.discard(table)
            elif table in absent:
                continue  # of a load that began before this target
            commit = shown(ledger, table) if is_begin else ""
            if transaction.load(load, keeps=bool(commit)):
                beside[table] = showing(loading(load), commit) if is_begin else ALTERED
            elif load.phase is LoadPhase.END:
                beside.pop(table, None)
        inexact = {**upto.inexact, **beside}
        upto = replace(upto, inexact=inexact, state=state_of(inexact))
    elif isinstance(segment.cut, State):
        upto = _settled(transaction, segment.cut, segment.after, upto)
    else:
        upto = _apply(transaction, segment, upto)
    on_step("rows applied")
    transaction.move_ledger(ledger, upto)
    on_step("ledger moved")
    return upto


def check_fence(ledger: Ledger | None, source: str, fence: int | None) -> Ledger:
    """Raise Fenced unless the ledger is still this applier's, which has the number `fence`."""
    if ledger is None or ledger.fence != fence:
        raise Fenced(
            "another applier took over this target",
            source=source,
            fence=None if ledger is None else ledger.fence,
            ours=fence,
            hint=OVERTAKEN,
        )
    return ledger


def check_place(ledger: Ledger, segment: Segment) -> None:
    """Raise Superseded unless the ledger is where the segment was built on."""
    if _place(ledger) != _place(segment.after):
        raise Superseded("the ledger moved", built_on=_place(segment.after), is_at=_place(ledger))


def _place(ledger: Ledger) -> tuple[int, int, int]:
    """What a step is compared by; the fence was compared when the ledger was locked."""
    return ledger.epoch, ledger.n, ledger.seq


def by_table(loads: Sequence[TableLoad]) -> Sequence[TableLoad]:
    """Steps of loads in order, a table's chunks as one, in the place of the first."""
    out: list[TableLoad] = []
    chunks: dict[TableId, int] = {}
    for load in loads:
        at = chunks.get(load.table) if load.phase is LoadPhase.CHUNK else None
        if at is not None:
            first = out[at]
            out[at] = replace(
                first, rows=first.rows + load.rows, ranges=(*first.ranges, *load.ranges)
            )
            continue
        if load.phase is LoadPhase.CHUNK:
            chunks[load.table] = len(out)
        out.append(load)
    return out


def absent_of(inexact: Mapping[str, str]) -> set[str]:
    """Tables of which a target has nothing yet.

    >>> absent_of({"shop.item": "not loaded", "shop.sale": ALTERED})
    {'shop.item'}
    """
    return {table for table, why in inexact.items() if is_absent(why)}


def present(
    changes: Mapping[TableId, Sequence[Change]], inexact: Mapping[str, str]
) -> Mapping[TableId, Sequence[Change]]:
    """Leave out changes of tables of which the target has nothing: their load brings them.

    >>> present({TableId("shop", "item"): ()}, {"shop.item": "not loaded"})
    {}
    """
    absent = absent_of(inexact)
    if not absent:
        return changes
    return {table: rows for table, rows in changes.items() if str(table) not in absent}


def shapes_of(ddl: Iterable[SchemaChange], table: TableId) -> Iterator[SchemaChange]:
    """What the load of a table begins with, of several loads."""
    return (change for change in ddl if change.after is not None and change.after.id == table)


def _settled(transaction: TargetTransaction, cut: State, after: Ledger, upto: Ledger) -> Ledger:
    """A table that the source does not capture is marked for as long as it is here."""
    marks = doubtful(after, upto, cut)
    if not marks:
        return upto
    there = {str(table) for table in transaction.there([TableId.of(name) for name in marks])}
    inexact = {table: why for table, why in upto.inexact.items() if table not in marks}
    inexact |= {table: why for table, why in marks.items() if table in there}
    return replace(upto, inexact=inexact, state=state_of(inexact))


def _apply(transaction: TargetTransaction, segment: Segment, upto: Ledger) -> Ledger:
    """Rows and schema changes in commit order."""
    for _ in transaction.parts():
        after = FIRST
        for change in sorted(transaction.ddl, key=lambda d: (d.seq, d.ordinal)):
            place = (change.seq, change.ordinal)
            transaction.write(after, place, upto.inexact)
            is_exact = not _fences(change) and _marks(change).isdisjoint(upto.inexact)
            is_lost = False
            if (taken := _of_present(change, upto.inexact)) is not None:
                is_lost = transaction.alter(taken, is_exact=is_exact)
            after = place
            inexact = followed(upto.inexact, change, segment.marks)
            name = "" if change.after is None else str(change.after.id)
            if is_lost and name in inexact:
                inexact[name] = unshown(inexact[name])
            upto = replace(upto, inexact=inexact)
        transaction.write(after, LAST, upto.inexact)
    return replace(upto, state=state_of(upto.inexact))


def _of_present(change: SchemaChange, inexact: Mapping[str, str]) -> SchemaChange | None:
    """A schema change as a target takes it; None: it has nothing of the table."""
    absent = absent_of(inexact)
    if change.before is not None and str(change.before.id) in absent:
        return None
    if change.moved is not None and str(change.moved.table) in absent:
        return replace(change, moved=None)  # `followed` marks where the rows should come to
    return change


def _marks(change: SchemaChange) -> set[str]:
    """Tables whose rows a schema change may meet."""
    named = {str(table.id) for table in (change.before, change.after) if table is not None}
    return named if change.moved is None else named | {str(change.moved.table)}


def _fences(change: SchemaChange) -> str | None:
    """Why rows of the table are not exact any more.

    A deparsed statement says in `lossy` also what no copy has; rows that it lost are gaps.
    """
    return None if change.origin is Origin.DEPARSED else change.lossy


def divided(
    changes: Mapping[TableId, Sequence[Change]], places: Sequence[Place]
) -> Sequence[Mapping[TableId, Sequence[Change]]]:
    """Divide changes in commit order at places that ascend: up to the first, …, behind the last.

    Each one is looked at once, however many places there are.

    >>> rows = {TableId("shop", "item"): [Change(seq, 0, "d", (), [], None) for seq in (1, 2, 3)]}
    >>> [[row.seq for one in part.values() for row in one] for part in divided(rows, [(2, 0)])]
    [[1, 2], [3]]
    """
    if not places:
        return [changes]
    out: list[dict[TableId, Sequence[Change]]] = [{} for _ in range(len(places) + 1)]
    for table, rows in changes.items():
        start = 0
        while start < len(rows):
            first = rows[start]
            at = bisect_left(places, (first.seq, first.ordinal))
            end = len(rows)
            if at < len(places):
                end = bisect_right(rows, places[at], lo=start, key=lambda c: (c.seq, c.ordinal))
            out[at][table] = rows if end - start == len(rows) else rows[start:end]
            start = end
    return out


def followed(
    inexact: Mapping[str, str], change: SchemaChange, marks: Mapping[str, str] = _NONE
) -> dict[str, str]:
    """Tables that are not exact, after a schema change: a mark moves and goes with its table.

    `marks` are those that this very step marks, and why: if one of them is dropped and made
    again in it, the mark is the new table's.
    """
    out = dict(inexact)
    before, after = change.before, change.after
    name = str(after.id) if after is not None else ""
    # A table that its first row brings may be marked: the catalog has shown it before.
    is_shown = before is None and change.origin is Origin.INFERRED
    is_shown = is_shown and name in out and not is_absent(out[name])
    if not is_shown and (before is None or str(before.id) != name):
        out.pop(name, None)  # of an older table that had this name
        if name in marks:
            out[name] = marks[name]
    if change.moved is not None and change.moved.op == "move" and after is not None:
        mark = out.get(str(change.moved.table))  # rows take along what is not known of them
        if mark is not None:
            out.setdefault(str(after.id), _NOT_BROUGHT if is_absent(mark) else mark)
    if before is not None:
        mark = out.pop(str(before.id), None)
        if after is not None and mark is not None:
            out[str(after.id)] = mark
    if (lossy := _fences(change)) and after is not None:
        out[name] = remarked(out.get(name), lossy)
    return out
