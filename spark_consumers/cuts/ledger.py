"""Where a target stands after each record of cuts; commits have their own module.

An empty target begins with the START of the first epoch, or of one that loads all tables; earlier
records of a truncated log do not concern it.  Where the log has none, it begins *late*: with the
newest STATE, without any table.  What the stream says of a table that is not here is left out until
it is loaded.  A new epoch must name the place where the ledger
stands as the end of the one before, unless it loads all tables: then it does not matter what the
target missed.

A table's mark says why it is not exact, and of which commit its rows are where readers see those of
an earlier one: `loading; readers see commit 1/42`.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TypeAlias

from schemas.accept import reloads
from schemas.control import (
    ANY,
    GAP,
    PENDING,
    Cut,
    Head,
    LoadPhase,
    Start,
    State,
    TableLoad,
    mends,
)
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.errors import CutsGap, LedgerForeign
from spark_consumers.model import Ledger

EXACT = "EXACT"
LOADING = "LOADING"
SWITCHED = "suspected: the source lost commits that were delivered, or the slot"
LACKS_ROW = "seen: the target lacked a row that changed"
ALTERED = "suspected: the target's table was altered"
LEFT_OUT = "seen: [ddl] apply = none leaves out what a schema change did to its rows"
NOT_LOADED = "not loaded"  # why a table is not exact that an epoch begins without
# Rows that are written from then on are there.
UNREAD = "not loaded: the epoch began without a load"
NOT_CAPTURED = "not loaded: a new epoch does not capture it"
LATE = "not loaded: the target came later"  # and one that was loaded before the target began
Known: TypeAlias = Callable[[int, int], Iterable[str] | None]  # (epoch, seq) -> schema.table
_UNDER_WAY = "loading"
_FOR = "loading for "  # one target alone
_SHOWS = "; readers see commit "


def begins(cut: Cut) -> bool:
    """Say whether an empty target may begin here: at the first epoch, or one that loads."""
    return isinstance(cut, Start) and (cut.head.n == 1 or reloads(cut))


def all_topics(_epoch: int, _seq: int) -> None:
    """Which tables there are is not known: every topic counts, also of one that is gone."""


def begun_late(at: Ledger, offset: int, cut: State, known: Known = all_topics) -> Ledger:
    """Return the ledger of an empty target that begins in the midst of an epoch.

    `known` names tables that are there, those too that the stream brought and nobody loaded.
    """
    head, names = cut.head, Topics(at.source)
    named = known(head.epoch, head.last_seq)
    if named is None:
        loaded = {topic for table in cut.loads for topic in _topics(names, table)}
        named = _named(names, [topic for topic in cut.topics if topic not in loaded])
    there = {*named}
    inexact = {
        # One that the stream brought is noted as pending until nothing else is read.
        table: NOT_LOADED if phase == PENDING and table not in there else LATE
        for table in sorted({*cut.loads, *there})
        for phase in (cut.loads.get(table),)
    }
    return _standing(at, offset, cut, inexact, {})


def starts_anew(ledger: Ledger, accepted: Iterable[tuple[int, Cut]]) -> tuple[int, Start] | None:
    """Find the newest START with which everything is loaded again, whatever is before it.

    With its offset; None: there is none.
    """
    found = None
    for offset, cut in accepted:
        if is_new(ledger, cut):
            assert isinstance(cut, Start)
            found = offset, cut
    return found


def is_new(at: Ledger, cut: Cut) -> bool:
    """Say whether everything is loaded again from here on, whatever the target missed."""
    return reloads(cut) and cut.head.epoch > at.epoch


def follows(at: Ledger, offset: int, head: Head, *, epoch: bool = False) -> None:
    """Raise CutsGap unless a record is the next one; `epoch`: of the same epoch."""
    if head.n != at.n + 1 or (epoch and head.epoch != at.epoch):
        raise CutsGap(
            "cuts do not continue what the target holds",
            n=head.n,
            expected=at.n + 1,
            epoch=head.epoch,
            offset=offset,
            hint=f"cuts expired or were lost: {LOAD_AGAIN}",
        )


def started(at: Ledger, offset: int, cut: Start) -> Ledger:
    """Return the ledger after a takeover; raises CutsGap and LedgerForeign."""
    head = cut.head
    if not is_new(at, cut):
        _same_place(at, cut)
    inexact, known = at.inexact, at.topics
    if head.epoch != at.epoch:
        place = (at.epoch, at.seq, at.n)
        if at.epoch and cut.prev != place and not is_new(at, cut):
            raise CutsGap(
                "an epoch does not begin where the target stands", prev=cut.prev, at=place
            )
        if cut.continues:
            gaps = [table for table, phase in cut.loads.items() if phase == GAP]
            inexact = {**dict.fromkeys(gaps, SWITCHED), **inexact}
        else:
            inexact, known = dict(_unloaded(at, cut)), {}
    elif head.last_seq != at.seq:
        raise CutsGap("a takeover knows other commits", last_seq=head.last_seq, known=at.seq)
    elif not cut.notes_loads:  # nothing is loaded by itself: a table that joins lacks rows
        joined = _named(Topics(at.source), cut.topics.keys() - at.topics.keys())
        inexact = {**dict.fromkeys(joined, UNREAD), **inexact}
    return _standing(at, offset, cut, inexact, known)


def _standing(
    at: Ledger, offset: int, cut: State, inexact: Mapping[str, str], topics: Mapping[str, str]
) -> Ledger:
    """Return the ledger behind a record that says all of where it stands; `topics` were known."""
    head = cut.head
    return replace(
        at,
        epoch=head.epoch,
        n=head.n,
        seq=head.last_seq,
        writer=head.writer,
        instance=head.instance,
        next_offset=offset + 1,
        cluster_id=cut.cluster_id,
        topics=_topic_ids(topics, cut),
        inexact=inexact,
        state=state_of(inexact),
        resume=head.resume,
    )


def stated(at: Ledger, cut: State) -> Ledger:
    """Topics made since START become known; the next step carries them into the ledger.

    A table that is not to be loaded any more was dropped, or renamed, before its load began, or
    before a takeover marked all that was ever delivered, in a step of its own.  Where the target
    may have rows of it, `doubtful` says so.
    """
    _same_place(at, cut)
    inexact = {}
    for table, why in at.inexact.items():
        is_listed = not cut.notes_loads or table in cut.loads
        if is_listed or unshown(why) not in {NOT_LOADED, SWITCHED}:
            inexact[table] = why
        elif why != NOT_LOADED:
            inexact[table] = remarked(why, NOT_CAPTURED)
    topics = _topic_ids(at.topics, cut)
    return replace(at, topics=topics, inexact=inexact, state=state_of(inexact))


def doubtful(at: Ledger, upto: Ledger, cut: State) -> dict[str, str]:
    """Marks behind START or STATE that hold where the target has the table, by schema.table.

    The source does not capture them.  It may have dropped them while no slot kept its log, and
    the stream says nothing of it; or the stream did, long ago.
    """
    names = Topics(at.source)
    marks = {
        table: why
        for table, why in upto.inexact.items()
        if unshown(why) == NOT_CAPTURED and table not in cut.loads
    }
    if isinstance(cut, Start) and cut.head.epoch != at.epoch:
        captured = {*cut.loads, *_named(names, cut.topics), ANY}
        had = {str(table) for topic in at.topics if (table := names.table_of(topic))}
        marks |= {t: showing(NOT_CAPTURED, shown(at, t)) for t in had - captured}
        marks |= {t: why for t, why in upto.inexact.items() if t not in captured}
    # A topic that stands for its table, since its name has no way back, is no name of one.
    return {table: why for table, why in marks.items() if table == str(TableId.of(table))}


def is_for(at: Ledger, cut: TableLoad, target: str) -> bool:
    """Say whether a step of a load is for a target.

    CHUNK and END of a load for one count where the mark says that its BEGIN did: a target that gets
    another name meanwhile takes no half of a load.
    """
    if cut.target is None:
        return True
    if cut.phase is LoadPhase.BEGIN or mends(cut):
        return cut.target == target
    return unshown(at.inexact.get(str(cut.table), "")) == loading(cut)


def passed(at: Ledger, offset: int, cut: TableLoad) -> Ledger:
    """Return the ledger after a step of a load for another target."""
    return replace(at, n=cut.head.n, next_offset=offset + 1, resume=cut.head.resume)


def loaded(at: Ledger, offset: int, cut: TableLoad) -> Ledger:
    """Return the ledger after a step of a load."""
    table = str(cut.table)
    inexact = dict(at.inexact)
    match cut.phase:
        case LoadPhase.BEGIN:
            inexact[table] = loading(cut)  # a target that keeps its rows until END says more
        case LoadPhase.END if not is_absent(inexact.get(table, "")):
            for name in (table, *Topics(at.source).names(cut.table)):
                inexact.pop(name, None)
            if cut.lossy is not None:
                inexact[table] = f"seen: {cut.lossy}"
    return replace(passed(at, offset, cut), inexact=inexact, state=state_of(inexact))


def shown(at: Ledger, table: str) -> str:
    """Of which commit the rows are that readers see of a table, as text; '' where of none.

    >>> shown(Ledger("bank", epoch=1, seq=42), "public.t")
    '1/42'
    """
    why = at.inexact.get(table)
    if why is None:
        return f"{at.epoch}/{at.seq}" if at.epoch else ""
    said, _, commit = why.partition(_SHOWS)
    if commit or _is_to_come(said):
        return commit
    return f"{at.epoch}/{at.seq} ({why})"


def showing(why: str, commit: str) -> str:
    """A mark of a table whose readers see the rows of an earlier commit; '': of none.

    >>> showing("loading", "1/42")
    'loading; readers see commit 1/42'
    """
    return f"{why}{_SHOWS}{commit}" if commit else why


def remarked(before: str | None, why: str) -> str:
    """Another mark of a table: readers see what they saw.

    One that is not here stays so, and one that is loaded for this target alone: its END counts.
    """
    if before is not None and (is_absent(before) or before.startswith(_FOR)):
        return before
    return showing(why, (before or "").partition(_SHOWS)[2])


def loading(cut: TableLoad) -> str:
    """The mark of a table from the BEGIN of a load on."""
    return _UNDER_WAY if cut.target is None else _FOR + cut.target


def is_unloaded(why: str) -> bool:
    """Say whether a mark is of a table that is still to be loaded, or of one under way."""
    said = unshown(why)
    return _is_to_come(said) or said not in {why, NOT_CAPTURED}


def _is_to_come(why: str) -> bool:
    return why in {_UNDER_WAY, NOT_LOADED, LATE} or why.startswith(_FOR)


def is_absent(why: str) -> bool:
    """Say whether a mark is of a table of which the target has nothing: its load is to come.

    >>> is_absent(NOT_LOADED), is_absent("not loaded; readers see commit 1/42")
    (True, False)
    """
    return why in {NOT_LOADED, LATE}


def unshown(why: str) -> str:
    """The mark of a table whose readers do not see an earlier commit any more."""
    return why.partition(_SHOWS)[0]


def _unloaded(at: Ledger, cut: Start) -> Iterator[tuple[str, str]]:
    """Marks until the loads: before them nothing is delivered, and rows stay as they were.

    Without a load, each table that the epoch knows: what is written from then on is delivered.
    """
    names = Topics(at.source)
    if not cut.notes_loads:
        yield from dict.fromkeys(_named(names, cut.topics), UNREAD).items()
        return
    had = {str(names.table_of(topic)) for topic in at.topics}
    # One that the epoch does not load, as it left the publication, is what it was.
    for table, why in at.inexact.items():
        if table == ANY or table in cut.loads or is_absent(why):
            continue
        said, _, commit = why.partition(_SHOWS)
        of_load = said == SWITCHED or _is_to_come(said)
        yield table, showing(NOT_CAPTURED, commit) if of_load else why
    for table in cut.loads:
        yield table, showing(NOT_LOADED, shown(at, table) if table in had else "")


def state_of(inexact: Mapping[str, str]) -> str:
    """EXACT, unless a table is marked."""
    return LOADING if inexact else EXACT


def left_out(at: Ledger, topics: Container[str]) -> dict[str, str]:
    """Marks of tables that are not here and of which these topics have rows: they stay marked.

    A table is noted as pending a moment longer than it is left out by the source.
    """
    names = Topics(at.source)
    waiting = [table for table, why in at.inexact.items() if why == NOT_LOADED]
    return {t: LATE for t in waiting if any(name in topics for name in _topics(names, t))}


def _topics(names: Topics, table: str) -> tuple[str, str]:
    return names.names(TableId.of(table))


def _named(names: Topics, topics: Iterable[str]) -> Iterator[str]:
    """Tables of topics; a topic whose name has no way back stands for itself."""
    for topic in topics:
        if topic not in names.control:
            table = names.table_of(topic)
            yield topic if table is None else str(table)


def _same_place(at: Ledger, cut: State) -> None:
    """Offsets mean something in one cluster and one life of a topic only."""
    hint = f"offsets of another cluster mean nothing here: {LOAD_AGAIN}"
    if at.cluster_id and cut.cluster_id != at.cluster_id:
        raise LedgerForeign(
            "the cuts are of another Kafka cluster than the target's",
            hint=hint,
            ours=at.cluster_id,
            theirs=cut.cluster_id,
        )


def _topic_ids(before: Mapping[str, str], cut: State) -> dict[str, str]:
    new = {name: topic.id for name, topic in cut.topics.items()}
    for name, known in before.items():
        if known and new.get(name, known) != known:
            raise LedgerForeign(
                "a topic was deleted and made again",
                hint=f"what stood in it is lost: {LOAD_AGAIN}",
                topic=name,
            )
    return new if isinstance(cut, Start) else {**before, **new}
