"""Finds changes that the catalog shows and the stream did not report.

Without event triggers the stream describes a table with its next row only.  It does not report
dropped tables, renamed labels, or changes of a publication.  So the catalog is read every few
seconds, by a *look*:

    taken    with its place in the log, and the tables as the stream has described them by then
    waiting  until the stream has passed that place: it has reported by then what it reports of it
    judged   what a look shows by itself is compared in `catalog_differences`; what happened since
             the look before, and may be undone by now, in `look`.  Each finding is said once
    noted    in cuts, with or behind its findings: after a crash before that, the next look is
             compared with an older one, and finds them again [H49]

One look waits at a time.  A table of which the stream reported more since is left to the next look,
which judges it even if the catalog is the same.  One that was read again is compared with what was
there when it was read.  A table that is published under other names (a partition as its root, a
root as its partitions) counts as by a described ATTACH.

A session of pgoutput keeps the name under which it sends a partition's rows, until something of
that partition is altered.  A root that is moved out of a published schema, or into one, does not
alter its partitions: rows may come under the former name, or under none.  So root and partitions
are suspected, and another session is needed (`has_outlived`), of which no transaction knows the
root as it was.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from producer.core.catalog.catalog_differences import (
    Described,
    Dropped,
    Finding,
    Known,
    Unseen,
    differences,
    left_out,
)
from producer.core.catalog.look import Before, Cause, Look, Seen, Told, Unchanged
from schemas.control import Looked
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema

_EMPTIED: Final = "has other storage files: TRUNCATE, or what is done to partitions, is not sent"
_BEHIND: Final = "has rows behind a statement that is not sent (GRANT, CREATE TYPE, …), perhaps"
_MOVED: Final = (
    "has a root that was moved from or to a published schema: rows may have come under the former"
    " name"
)
_ALTERED: Final = "publication {publication} was altered: changes may not have been sent meanwhile"


@dataclass(frozen=True, slots=True)
class Newcomers:
    """Tables that are to be captured from now on."""

    published: tuple[TableId, ...] = ()
    unpublished: tuple[TableId, ...] = ()


class CatalogWatch:
    """The look that waits for the stream, and the findings of earlier ones."""

    def __init__(
        self,
        *,
        wanted: Callable[[TableId], bool],
        publication: str,
        looked: Looked | None = None,
    ) -> None:
        """`looked`: what an earlier run, or the slot's snapshot, saw last.

        `wanted`: [tables] has it.  `publication`: its name, for what is said of it.
        """
        self._wanted, self._publication = wanted, publication
        self._look: Look | None = None
        self._known: Known = {}
        self._said: dict[Finding, TableSchema | None] = {}  # of which table, as it was known
        self._missing: frozenset[TableId] | None = None  # of the newest look
        self._told = Told()  # before the look that waits was taken, or since
        self.before = None if looked is None else Before.of(looked)  # the newest that was judged
        self._is_first = looked is not None  # no look of this run was judged
        self._fresh: Look | None = None  # the same, until its newcomers were taken
        self._earlier: Before | None = None  # than that look
        self._passed: Collection[int] = ()  # oids of a look behind which the stream is
        self._judged: Known = {}  # the tables then
        # Roots that were moved, by oid: no transaction from this id on knows the former name.  Each
        # look finds them again, until all transactions below it have ended.
        self._moved: Mapping[int, int] = {}
        self.has_outlived = False  # the session of the stream what it knows: another one is needed
        self.signature = ""  # of a look whose findings are all reported; "": look again

    @property
    def is_waiting(self) -> bool:
        """Say whether a look waits for the stream to reach it."""
        return self._look is not None

    @property
    def due_at(self) -> int:
        """The place in the log that the stream must reach; 0 where no look waits."""
        return self._look.lsn if self._look is not None else 0

    @property
    def looked(self) -> Looked | None:
        """What was looked at last, for a record of cuts; None: nothing yet."""
        return None if self.before is None else self.before.looked()

    def take(self, look: Look, known: Known) -> dict[TableId, str]:
        """Take a look, with what was known then; return tables that are new and not captured.

        With the reason, or "" where nothing of them is published.
        """
        self._look, self._known = look, dict(known)
        oids = {table.oid for table in known.values()}
        missing = left_out(look, oids, self._wanted, self._publication)
        if not look.is_ours:
            missing |= dict.fromkeys(look.missing, "")
        was, self._missing = self._missing, frozenset(missing)
        return {} if was is None else {t: missing[t] for t in sorted(missing.keys() - was)}

    def unless(self, known: Known) -> str:
        """Return the signature of the catalog with which nothing is to be judged; "": none.

        The stream may have described a statement since, and its opposite without a row behind it:
        the catalog is the same again, and the known table is not.
        """
        is_same = all(self._judged.get(name) is table for name, table in known.items())
        return self.signature if is_same and len(known) == len(self._judged) else ""

    def take_unchanged(self, now: Unchanged) -> None:
        """Take it that the look before holds still: what it clears is younger now."""
        if self.before is not None:
            self.before = replace(self.before, horizon=now.horizon)

    def newcomers(self, known: Known) -> Newcomers:
        """Return the tables of the look just judged that the stream did not bring; once."""
        look, self._fresh, self._earlier = self._fresh, None, None
        if look is None:
            return Newcomers()
        self._passed = look.tables.keys()
        unpublished = look.missing if look.is_ours else ()
        return Newcomers(
            *(tuple(t for t in s if t not in known) for s in (look.arrived, unpublished))
        )

    def look_again(self) -> None:
        """Judge the next look, though nothing may have changed until then."""
        self.signature = ""

    def read_again(self, table: TableId, at: Before | None) -> None:
        """Take note that a table was read since the look: nothing that it suspects is missing.

        `at`: the catalog at the place where it was read; None: it is not compared.
        """
        self._said = {finding: of for finding, of in self._said.items() if finding.table != table}
        self.look_again()  # what lasts is said again, though nothing has changed
        if self._look is not None:
            emptied, behind = (
                tuple(each for each in tables if each != table)
                for tables in (self._look.emptied, self._look.behind)
            )
            suspected = {t: why for t, why in self._look.suspected.items() if t != table}
            self._look = replace(self._look, emptied=emptied, behind=behind, suspected=suspected)
        if at is None:
            return
        if self._look is not None and (of_files := self._look.of_files) is not None:
            self._look = replace(self._look, of_files=of_files.with_tables(at))
        if self._look is not None:  # it is older
            tables = {
                oid: replace(
                    seen,
                    is_published=True,
                    partly="",
                    version=at.versions[oid],
                    files=at.files,
                    doubts=(),
                )
                for oid, seen in self._look.tables.items()
                if oid in at.versions
            }
            self._look = replace(self._look, tables={**self._look.tables, **tables})
        if self.before is not None:
            self.before = self.before.with_tables(at)

    def had(self, oid: int) -> bool:
        """Say whether there was a table with this oid at a place that the stream has passed."""
        return oid in self._passed

    def compares(self, oid: int) -> bool:
        """Say whether the look before has a table: what the next one compares with it is noticed.

        As long as findings of a look are followed, it is the one before that look.
        """
        before = self._earlier or self.before
        return before is None or not before.has_tables or oid in before.versions

    def judge(
        self,
        position: Lsn,
        known: Known,
        *,
        reports_ddl: bool,
        told: Told | None = None,
        is_marked: Callable[[TableId], bool] = lambda _: False,
    ) -> list[Finding]:
        """Return what the look shows and the stream, now at `position`, did not report; each once.

        `known`: the tables in force; `reports_ddl`: event triggers report each statement.  `told`:
        what the stream said since the call before.  `is_marked`: a table is noted to be read again.
        """
        look, told = self._look, told or Told()
        if look is None or position < look.lsn:
            self._told = self._told.with_later(told)
            return []
        self._look = None
        settled = {name: t for name, t in self._known.items() if known.get(name) is t}
        found: list[Finding] = []
        happened: list[Finding] = []
        explained = self._told.with_later(told)
        if look.is_of_files:
            self.before = look.of_files or self.before
            named = [
                *((table, _EMPTIED) for table in look.emptied if table not in explained.emptied),
                # Targets may know a table by its former name, and one that is new not at all.
                *look.suspected.items(),
            ]
            suspected = [
                (table, why)
                for table, why in named
                if self._wanted(table) and (table in known or self._is_to_come(table, look))
            ]
            suspected += ((table, _BEHIND) for table in look.behind)
            happened += [
                Unseen(table, why, "suspected") for table, why in suspected if not is_marked(table)
            ]
            if look.lsn:  # else the stream may still bring rows of them
                happened += [Dropped(name, known[name]) for name in look.dropped if name in known]
        else:
            found += differences(
                settled,
                look,
                wanted=self._wanted,
                publication=self._publication,
                reports_ddl=reports_ddl,
            )
            if self.before is not None:
                gone = {finding.table for finding in found if isinstance(finding, Dropped)}
                there = {name: table for name, table in known.items() if name not in gone}
                happened += self._since(self.before, look, there, explained)
                happened += self._below_moved(self.before, look, there)
            self._earlier = self.before
            # Of the others, whose columns are which is read from the catalog later.
            described = {finding.table for finding in found if isinstance(finding, Described)}
            same = {t.oid for t in settled.values() if t.id not in described}
            self.before = self._next(look, settled, same, reports_ddl=reports_ddl)
            self._is_first = False
        # Perhaps behind this look, so before the next one; what is vacant is so until a row comes.
        self._told = replace(told, vacant=explained.vacant)
        # What happened is said of the names before this look, so before a rename that it shows.  A
        # state is reported once for as long as it holds, and again if it comes back.
        new = happened + [finding for finding in found if not self._was_said(finding, known)]
        self._said = {finding: known.get(finding.table) for finding in found}
        self._fresh = look
        is_complete = len(settled) == len(self._known) == len(known)
        self._judged, self.signature = (
            dict(known),
            look.signature if is_complete and not new else "",
        )
        return new

    def _was_said(self, finding: Finding, known: Known) -> bool:
        """Say whether a finding was reported, and all that came of it still holds.

        What is no gap changes the known table.  The stream may change it back between two looks:
        the same shape is to be described again then.
        """
        if finding not in self._said:
            return False
        return isinstance(finding, Unseen) or self._said[finding] is known.get(finding.table)

    @staticmethod
    def _is_to_come(table: TableId, look: Look) -> bool:
        """Say whether the stream may bring a table for the first time behind a look."""
        return table in look.there and (table in look.suspected or not look.lsn)

    def _captured(self, look: Look, known: Known) -> Iterator[tuple[TableId, Seen]]:
        by_name = {seen.id: seen for seen in look.tables.values()}
        for table in known.values():
            seen = look.tables.get(table.oid) if table.oid else by_name.get(table.id)
            if seen is not None and self._wanted(table.id):
                yield table.id, seen

    def _since(self, before: Before, look: Look, known: Known, told: Told) -> Iterator[Finding]:
        """Compare with the look before: what happened between the two, which one cannot show."""
        if before.triggers not in {"", look.triggers}:  # they may have been off for a while
            told = Told(emptied=told.emptied, vacant=told.vacant)
        reports_ddl = before.triggers == look.triggers != ""
        for table, seen in self._captured(look, known):
            was_seen = seen.oid in before.versions
            if before.publication != look.publication and (was_seen or seen.is_published):
                why = _ALTERED.format(publication=self._publication)
                yield Unseen(table, why, "suspected")
            elif seen.is_published:
                for doubt in seen.doubts:
                    if not told.explains(
                        table,
                        doubt,
                        before.files,
                        oid=seen.oid,
                        is_first=self._is_first,
                        reports_ddl=reports_ddl,
                    ):
                        why = doubt.cause.value.format(publication=self._publication)
                        yield Unseen(table, why, "seen" if doubt.is_certain else "suspected")

    def _below_moved(self, before: Before, look: Look, known: Known) -> Iterator[Unseen]:
        """Suspect what a session may send under a former name; see the module."""
        self._moved = {
            root: self._moved.get(root, look.first_unseen)
            for root in look.below
            if _was_moved(look.tables[root], before)
        }
        behind = max(self._moved.values(), default=0)
        self.has_outlived = 0 < behind <= look.horizon
        found = self._moved.keys() | {oid for root in self._moved for oid in look.below[root]}
        for table, seen in self._captured(look, known):
            if seen.is_published and seen.oid in found:
                yield Unseen(table, _MOVED, "suspected")

    def _next(
        self, look: Look, settled: Known, same: Collection[int], *, reports_ddl: bool
    ) -> Before:
        """Return what the next look is compared with; a table that is not published keeps its own.

        It may be altered by the stream just now, and then nothing is found of it in this look.  A
        new one is new to the next look, too: what this one shows may be behind its statements.
        """
        now = Before.at(look.horizon, look.publication, look.tables.values(), look.triggers)
        if self.before is None:
            return now
        moved = self._moved.keys()
        left = moved - now.versions.keys() if self.has_outlived else ()
        kept = {
            oid: v
            for oid, v in self.before.versions.items()
            if oid in look.tables and oid not in left
        }
        firm = {table.oid for table in settled.values()} | kept.keys()
        came = {
            oid: v
            for oid, v in now.versions.items()
            if (self.has_outlived if oid in moved else reports_ddl or oid in firm)
        }
        for oid in came.keys() - same:
            came[oid] = came[oid]._replace(last=kept[oid].last if oid in kept else "")
        return replace(now, versions={**kept, **came})


def _was_moved(root: Seen, before: Before) -> bool:
    """Say whether a partitioned table, published with its schema, was moved since the look before.

    A new one was, too, unless it stands where it was made.
    """
    if root.is_published:
        return any(doubt.cause is Cause.NAME for doubt in root.doubts)
    was = before.versions.get(root.oid)
    return was is not None and bool(was.name) and not root.partly
