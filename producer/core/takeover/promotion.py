"""What a promotion of the source's server did to what was delivered.

A promoted server begins a timeline at its *switch point*: its log is the old primary's before it,
and its own behind it.  What was delivered of commits before the switch point is true there, too.
What was delivered of later ones never happened there: the *lost tail* [H17].

Positions say which is which.  `resume` alone is too strict: an idle source moves it to the end of
a log that held no commit.  So the records of cuts behind the switch point are looked through.
Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from schemas.accept import CutReplay, Records, backwards
from schemas.control import ANY, Commits, Cut, TableLoad
from schemas.positions import Lsn
from schemas.topics import Topics


@dataclass(frozen=True, slots=True)
class Tail:
    """What was delivered of commits that end behind a position."""

    tables: frozenset[str] = frozenset()  # schema.table, of their rows and of loads made there
    is_known: bool = True  # False: it may concern any table

    @property
    def is_empty(self) -> bool:
        """Say whether nothing was."""
        return self.is_known and not self.tables


def tail_behind(
    read: Callable[[int, int], Records],
    start: int,
    end: int,
    *,
    position: Lsn,
    replay: CutReplay,
    names: Topics,
) -> Tail:
    """Look back from `end` through the cuts of an epoch, to the first that is not behind.

    `read(low, high)` returns the committed records in [low, high); `start` is the log's start.
    `replay` is what they say together.
    """
    tables: set[str] = set()
    is_known = True
    known = backwards(read, start, end, replay.n, writer=replay.writer, instance=replay.instance)
    for _, cut in known:
        if cut.head.epoch != replay.epoch:
            break
        if cut.head.resume <= position:  # it never goes back
            return Tail(frozenset(tables), is_known)
        found = _of(cut, position, names)
        tables |= found.tables
        is_known = is_known and found.is_known
    return Tail(frozenset(tables), is_known=False)


def _of(cut: Cut, position: Lsn, names: Topics) -> Tail:
    match cut:
        case TableLoad(as_of=at, table=table) if at > position:
            return Tail(frozenset({str(table)}))
        case Commits(commits=commits, ranges=ranges):
            lost = [e for e in commits if (e.end_lsn or e.commit_start) > position]
            topics = {ranges[index].topic for entry in lost for index in entry.counts}
            tables = {names.table_of(topic) for topic in topics - {names.ddl, names.message}}
            holes = {hole.table for entry in lost for hole in entry.holes}
            return Tail(
                frozenset({*(str(table) for table in tables if table is not None), *holes} - {ANY}),
                is_known=None not in tables
                and ANY not in holes
                and not any(entry.ddl for entry in lost),
            )
        case _:
            return Tail()
