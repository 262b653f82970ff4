"""Where a target stands after each record of cuts; commits have their own module.

An empty target begins with the START of the first epoch, or of one that loads all tables; earlier
records of a truncated log do not concern it.  A new epoch must name the place where the ledger
stands as the end of the one before, unless it loads all tables: then it does not matter what the
target missed.

A table's mark says why it is not exact, and of which commit its rows are where readers see those of
an earlier one: `loading; readers see commit 1/42`.  Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from schemas.accept import reloads
from schemas.control import GAP, Cut, Head, LoadPhase, Start, State, TableLoad
from schemas.errors import LOAD_AGAIN
from schemas.topics import Topics
from spark_consumers.errors import CutsGap, LedgerForeign
from spark_consumers.model import Ledger

EXACT = "EXACT"
LOADING = "LOADING"
SWITCHED = "suspected: the source lost commits that were delivered, or the slot"
LACKS_ROW = "seen: the target lacked a row that changed"
NOT_LOADED = "not loaded"  # why a table is not exact that an epoch begins without
_UNDER_WAY = "loading"
_SHOWS = "; readers see commit "


def begins(cut: Cut) -> bool:
    """Say whether an empty target may begin here: at the first epoch, or one that loads."""
    return isinstance(cut, Start) and (cut.head.n == 1 or reloads(cut))


def starts_anew(ledger: Ledger, accepted: Iterable[tuple[int, Cut]]) -> tuple[int, Start] | None:
    """Find the newest START with which everything is loaded again, whatever is before it."""
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
    return replace(
        at,
        epoch=head.epoch,
        n=head.n,
        seq=head.last_seq,
        writer=head.writer,
        instance=head.instance,
        next_offset=offset + 1,
        cluster_id=cut.cluster_id,
        topics=_topic_ids(known, cut),
        inexact=inexact,
        state=state_of(inexact),
        resume=head.resume,
    )


def stated(at: Ledger, cut: State) -> Ledger:
    """Topics made since START become known; the next step carries them into the ledger.

    A table that is not to be loaded any more was dropped, or renamed, before its load began: its
    mark goes, in a step of its own.  Where readers see rows of it, it stays marked.
    """
    _same_place(at, cut)
    inexact = {
        table: why
        for table, why in at.inexact.items()
        if why != NOT_LOADED or table in cut.loads or not cut.loads
    }
    topics = _topic_ids(at.topics, cut)
    return replace(at, topics=topics, inexact=inexact, state=state_of(inexact))


def loaded(at: Ledger, offset: int, cut: TableLoad) -> Ledger:
    """Return the ledger after a step of a load."""
    table = str(cut.table)
    inexact = dict(at.inexact)
    match cut.phase:
        case LoadPhase.BEGIN:
            inexact[table] = _UNDER_WAY  # a target that keeps its rows until END says more
        case LoadPhase.END:
            for name in (table, *Topics(at.source).names(cut.table)):
                inexact.pop(name, None)
            if cut.lossy is not None:
                inexact[table] = f"seen: {cut.lossy}"
    return replace(
        at,
        n=cut.head.n,
        next_offset=offset + 1,
        inexact=inexact,
        state=state_of(inexact),
        resume=cut.head.resume,
    )


def shown(at: Ledger, table: str) -> str:
    """Of which commit the rows are that readers see of a table, as text; '' where of none.

    >>> shown(Ledger("bank", epoch=1, seq=42), "public.t")
    '1/42'
    """
    why = at.inexact.get(table)
    if why is None:
        return f"{at.epoch}/{at.seq}" if at.epoch else ""
    said, _, commit = why.partition(_SHOWS)
    if commit or said in {_UNDER_WAY, NOT_LOADED}:
        return commit
    return f"{at.epoch}/{at.seq} ({why})"


def showing(why: str, commit: str) -> str:
    """A mark of a table whose readers see the rows of an earlier commit; '': of none.

    >>> showing("loading", "1/42")
    'loading; readers see commit 1/42'
    """
    return f"{why}{_SHOWS}{commit}" if commit else why


def remarked(before: str | None, why: str) -> str:
    """Another mark of a table: readers see what they saw."""
    return showing(why, (before or "").partition(_SHOWS)[2])


def is_unloaded(why: str) -> bool:
    """Say whether a mark is of a table that is still to be loaded, or of one under way."""
    return why.partition(_SHOWS)[0] in {_UNDER_WAY, NOT_LOADED} or _SHOWS in why


def loading_beside(commit: str) -> str:
    """The mark of a table that is loaded beside the rows that readers see."""
    return showing(_UNDER_WAY, commit)


def unshown(why: str) -> str:
    """The mark of a table whose readers do not see an earlier commit any more."""
    return why.partition(_SHOWS)[0]


def _unloaded(at: Ledger, cut: Start) -> Iterator[tuple[str, str]]:
    """Marks until the loads: before them nothing is delivered, and rows stay as they were."""
    names = Topics(at.source)
    had = {str(names.table_of(topic)) for topic in at.topics} if cut.loads else set()
    for table in _tables(at.source, cut):
        yield table, showing(NOT_LOADED, shown(at, table) if table in had else "")


def state_of(inexact: Mapping[str, str]) -> str:
    """EXACT, unless a table is marked."""
    return LOADING if inexact else EXACT


def _tables(source: str, cut: State) -> Iterator[str]:
    """Tables that an epoch begins without: those it loads; without a load, all it ever names.

    A topic whose name has no way back stands for itself.
    """
    if cut.loads:
        yield from cut.loads
        return
    names = Topics(source)
    control = {names.cuts, names.ddl, names.transaction, names.message, names.quarantine}
    for topic in cut.topics:
        if topic not in control:
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
    return {**before, **new}
