"""Which tables wait to be read, from when on each may be, and for whom.

Which they are is what `loads` say: loads that are open, tables with gaps, and what somebody asks
for.  A table that was never begun in this epoch is hidden: what the stream says of it before its
point is in the snapshot.  If the stream reports its creation, it is complete without a point.  If
it was dropped, it stays hidden up to a point that shows it gone: targets would have what the stream
says of it, and nothing of the snapshot.  One that was begun keeps what it has, and is marked as not
exact at targets, until BEGIN empties it.

A table that could not be read is tried again later.  One that gets gaps again and again rests after
it was read, each time twice as long, since all others wait while it is read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from producer.core.key_ranges import Upto
from producer.core.ports import Blocking, Clock, Source, Wish
from schemas.control import ANY, GAP, LEFT, PENDING, LoadPhase
from schemas.tables import TableId

OPEN: Final = frozenset({PENDING, LoadPhase.BEGIN, LoadPhase.CHUNK})
EVERYTHING: Final = TableId("", "")  # asked for: no table is to be read until it is taken back

_LONGEST_REST: Final = 600.0
_SHARE: Final = 20  # at least so many times what reading it took: all others waited
_CALM: Final = 4  # without a gap for so many times its last rest, it begins anew

FOR_ALL: Final = "{} is loaded for all targets, not for {} alone: {}"


@dataclass(frozen=True, slots=True)
class Due:
    """What a start finds out about loads."""

    tables: list[TableId]  # to be read again
    left: list[TableId]  # that were captured before, and are not wanted any more
    noted: dict[str, str | None]  # phases to be noted; None: there is no load any more


def asked(
    captured: Iterable[TableId],
    loads: Mapping[str, str],
    known: Iterable[TableId],
    wants: Callable[[TableId], bool],
    *,
    notes_loads: bool = True,
    renamed: Collection[TableId] = (),
    repairs: bool = False,
) -> Due:
    """Compare the tables that are captured now with the loads until now.

    To be read are those whose load did not end, and those that were not captured before, or not
    all the time; with `repairs`, those with a gap; and those that are gone, and were not begun,
    which the stream has to pass.  An epoch that does not note loads never loads
    by itself.  `renamed` are known tables with another name by now: the stream says so later, and
    their load goes with them.
    """
    there, known = {str(table): table for table in captured}, set(known)
    open_ = [name for name, phase in loads.items() if phase not in {LoadPhase.END, GAP}]
    names = {str(table) for table in known}
    unbegun = [name for name in open_ if loads[name] == PENDING and name not in names]
    # It is gone, but rows that were before may come: it is noted until the stream has passed them.
    there = {n: t for n in unbegun if wants(t := TableId.of(n))} | there
    gaps = [name for name, phase in loads.items() if phase == GAP and repairs]
    added = [name for name, table in there.items() if name not in loads and table not in known]
    added = added if notes_loads else []
    kept = {str(table) for table in renamed}
    noted: dict[str, str | None] = {
        name: None
        for name in open_
        if name not in there and name not in kept and loads[name] != LEFT
    }
    # A takeover marks all that was ever delivered; of these, some were dropped since.
    noted |= {
        name: None
        for name, phase in loads.items()
        if phase == GAP and name not in names and name not in there
    }
    left = [table for table in known if not wants(table) and loads.get(str(table)) != LEFT]
    back = [name for name in open_ if name in there and loads[name] == LEFT]
    noted |= {str(table): LEFT for table in left} | dict.fromkeys([*back, *added], PENDING)
    tables = [there[name] for name in [*open_, *gaps, *added] if name in there]
    return Due(tables, sorted(left), noted)


@dataclass(slots=True)
class _Rest:
    """When a table was read to mend a gap, and how long it is left alone after that."""

    at: float
    seconds: float


class LoadQueue:
    """The tables that are to be read in one turn."""

    def __init__(
        self,
        hidden: set[TableId],
        *,
        source: Source,
        captured: Callable[[TableId], bool],
        repairs: bool,
        look_seconds: float,
        rest_seconds: float,
        blocking: Blocking,
        clock: Clock,
        note: Callable[[str], None],
    ) -> None:
        """`hidden` tables are not delivered; they are shared with who delivers.

        `repairs`: tables with gaps are read again by
        themselves.  `look_seconds`: between two looks for requests.
        """
        self._waiting: list[TableId] = []
        self._open: dict[TableId, str] = {}  # phases; of these, some are nobody's request
        self._asked: dict[TableId, dict[str, int]] = {}  # requests by target, as of the last look
        self.loads: Mapping[str, str] = {}
        self._upto: dict[str, str] = {}  # how far open loads with commits between are
        self._targeted: dict[str, Upto] = {}  # open loads for one target
        self._hidden, self._was_hidden = hidden, set(hidden)
        self._source, self._captured, self._repairs = source, captured, repairs
        self._blocking, self._clock, self._note = blocking, clock, note
        self._look_seconds, self._look_due = look_seconds, 0.0
        self._rest_seconds = rest_seconds
        self._is_paused = False
        self._due = 0.0  # for any table
        self._not_before: dict[TableId, float] = {}
        self._rests: dict[TableId, _Rest] = {}

    def __contains__(self, table: TableId) -> bool:
        return table in self._waiting

    # ------------------------------------------------------------ loads as they are noted
    def hide(self, table: TableId) -> None:
        """Deliver nothing of a table before its point: it is noted as PENDING."""
        self._hidden.add(table)
        self._was_hidden.add(table)

    def show(self, table: TableId) -> None:
        """Take back `hide`."""
        self._hidden.discard(table)
        self._was_hidden.discard(table)

    def follow(
        self,
        loads: Mapping[str, str],
        upto: Mapping[str, str],
        targeted: Mapping[str, str],
    ) -> None:
        """Take the loads as they are noted by now, and how far they have come."""
        self.loads = loads
        self._targeted = {table: Upto.of(text) for table, text in targeted.items()}
        chunks = [table for table, phase in loads.items() if phase == LoadPhase.CHUNK]
        self._upto = {table: upto[table] for table in chunks if table in upto}
        wanted = {GAP, *OPEN} if self._repairs else OPEN
        now = {TableId.of(name): phase for name, phase in loads.items() if phase in wanted}
        for table, phase in now.items():
            if phase == GAP and table not in self._open:
                self._begin_gap(table)
        self._open = now
        self._line_up()

    def is_exact(self, table: TableId) -> bool:
        """Say whether a table is exact for all targets."""
        return self.loads.get(str(table), LoadPhase.END) == LoadPhase.END

    def is_hidden(self, table: TableId) -> bool:
        """Say whether nothing of a table is delivered."""
        return table in self._hidden

    def is_for_one(self, table: TableId) -> bool:
        """Say whether a load of a table for one target is open."""
        return str(table) in self._targeted

    def is_beside(self, table: TableId) -> bool:
        """Say whether a load of a table is open that has commits between, also if nobody reads."""
        return (self.is_for_one(table) and self.is_exact(table)) or str(table) in self._upto

    @property
    def has_any_beside(self) -> bool:
        """Say whether there is such a load of any table."""
        return bool(self._upto or self._targeted)

    def has_gap(self, table: TableId) -> bool:
        """Say whether a table is to be read because of a gap."""
        return self._open.get(table) == GAP

    def begins(self, table: TableId) -> bool:
        """Say whether a load of a table for all is to begin, or to begin again."""
        return self._open.get(table) in {PENDING, LoadPhase.BEGIN}

    def complete(self) -> Iterator[TableId]:
        """Yield tables whose creation the stream reported, before or behind a point's making.

        Nothing of them is missing, and they are not read, unless somebody asks.  Whoever shows one
        begins anew.
        """
        for table in self._was_hidden:
            if table not in self._hidden and table not in self._asked:
                yield table

    def lack(self, tables: Collection[str]) -> None:
        """Read these tables, if they are noted, though the stream shows them.

        It did not send all rows of one whose creation it reports, or it gave one that it had before
        the name of one that waits: how far that one's load is goes with it.
        """
        if ANY in tables:
            self._was_hidden.clear()
        self._was_hidden -= {table for table in self._was_hidden if str(table) in tables}

    def _begin_gap(self, table: TableId) -> None:
        """A table that was just read to mend a gap, and has one again, must wait."""
        rest, now = self._rests.get(table), self._clock.now()
        if rest is None:
            return
        if now >= rest.at + _CALM * rest.seconds:
            del self._rests[table]
        elif (left := rest.at + rest.seconds - now) > 0:
            self._not_before[table] = now + left
            self._note(
                f"{table} has a gap again, {now - rest.at:.0f} s after it was read: it is read"
                f" again in {left:.0f} s, and less often while this goes on"
            )

    def _line_up(self) -> None:
        for_one = [t for t in map(TableId.of, self._targeted) if self._captured(t)]
        wanted = {**self._open, **dict.fromkeys(for_one), **self._asked}
        waited = [table for table in self._waiting if table in wanted]
        self._waiting = list(dict.fromkeys([*waited, *wanted]))

    # ------------------------------------------------------------ requests
    def next(self) -> TableId | None:
        """Return the table that is to be read now, if there is one."""
        now = self._clock.now()
        if now >= self._look_due:
            self._look()
        if self._is_paused or now < self._due:
            return None
        return next((t for t in self._waiting if self._not_before.get(t, 0.0) <= now), None)

    def is_pause_asked(self) -> bool:
        """Look for a pause while a table is read; its load answers requests as of its beginning."""
        if self._clock.now() < self._look_due:
            return False
        self._look_due = self._clock.now() + self._look_seconds
        if any(wish.table == EVERYTHING for wish in self._blocking(self._source.requests)):
            self._look()
        return self._is_paused

    def put_off(self, table: TableId, seconds: float, *, all_others: bool = False) -> None:
        """Let a table wait; `all_others`: and whatever else is to be read."""
        self._not_before[table] = self._clock.now() + seconds
        if all_others:
            self._due = self._not_before[table]

    def put_off_looks(self, table: TableId, looks: int) -> None:
        """Let a table wait for so many looks for requests."""
        self.put_off(table, looks * self._look_seconds)

    def done(self, table: TableId, load: Upto) -> None:
        """Let go of a table, and answer the request for which it was read."""
        self.show(table)
        self._open.pop(table, None)
        self._not_before.pop(table, None)
        self._upto.pop(str(table), None)  # what comes next meets whole rows at targets
        self._targeted.pop(str(table), None)
        if load.request is not None:
            self._blocking(self._source.answer, Wish(table, load.target), load.request)
            self._look_due = 0.0  # it is not asked for any more, or again
        self._line_up()

    def mended(self, wish: Wish, number: int) -> None:
        """Answer a request for some keys, and no other."""
        self._blocking(self._source.answer, wish, number, alone=True)
        self._look_due = 0.0

    def rest(self, table: TableId, took: float) -> None:
        """Note that a gap of a table was mended, by a reading that took so many seconds."""
        before = self._rests.get(table)
        twice = 0.0 if before is None else 2 * before.seconds
        seconds = min(_LONGEST_REST, max(self._rest_seconds, _SHARE * took, twice))
        self._rests[table] = _Rest(self._clock.now(), seconds)

    def _look(self) -> None:
        """Take requests, and notice those that were taken back."""
        self._look_due = self._clock.now() + self._look_seconds
        asked: dict[TableId, dict[str, int]] = {}
        for (table, target), number in self._blocking(self._source.requests).items():
            asked.setdefault(table, {})[target] = number
        is_paused = asked.pop(EVERYTHING, None) is not None
        if is_paused != self._is_paused:
            self._is_paused = is_paused
            what = "are paused: tables wait" if is_paused else "go on"
            self._note(f"re-reads {what}, as `gauss-cdc snapshot` was told")
        for table in [table for table in asked if not self._captured(table)]:
            self._note(f"{table} is not captured, and is not read again")
            for target, number in asked.pop(table).items():
                self._blocking(self._source.answer, Wish(table, target), number)
        for table in asked.keys() - self._asked.keys():
            self._not_before.pop(table, None)
        self._asked = asked
        self._line_up()

    # ------------------------------------------------------------ for whom
    def by_keys(self, table: TableId) -> Wish | None:
        """Return whose next request may be for some keys alone; None: the table is loaded.

        Rows of some keys make no table exact, and belong to no load.
        """
        asked = self._asked.get(table, {})
        if not asked or ("" in asked and len(asked) > 1):
            return None
        if not self.is_exact(table) or self.is_for_one(table):
            return None
        return Wish(table, min(asked, key=asked.__getitem__))

    def load_of(self, table: TableId, *, is_known: bool, goes_on: bool) -> Upto:
        """Say for whom the next load of a table is; how far it is, if it goes on.

        One for a target mends nothing: a table that is not exact for all is loaded for all.  A
        table has one open load, so that its records are of that one until its END.
        """
        if (for_one := self._for_one(table)) is not None:
            if self.is_exact(table) and is_known:
                return for_one if goes_on else replace(for_one, is_void=True)
            self._note(FOR_ALL.format(table, for_one.target, "it is not exact for any"))
        if goes_on and (text := self._upto.get(str(table))) is not None:
            return Upto.of(text)
        return self.new_for_all(table)

    def _for_one(self, table: TableId) -> Upto | None:
        """Return the load for one target that is open, or, if nobody asks for all, the next."""
        asked = self._asked.get(table, {})
        if str(table) in self._targeted or not asked or "" in asked:
            return self._targeted.get(str(table))
        target = min(asked, key=asked.__getitem__)
        return Upto(request=asked[target], target=target, is_void=True)

    def new_for_all(self, table: TableId) -> Upto:
        """Return a load that answers all requests so far."""
        return Upto(request=max(self._asked.get(table, {}).values(), default=None), is_void=True)
