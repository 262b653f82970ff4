"""What the commits changed that the target's snapshot holds and the source's does not.

Read as `apply` reads: accepted cuts, exact ranges, each commit complete.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Final

from gauss_cdc import target
from gauss_cdc.config import Config
from schemas.control import ANY, Commits, Cut, SchemaChange
from schemas.positions import Lsn
from schemas.tables import TableId
from spark_consumers.cuts.segments import segments
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.model import Change, Ledger, Rows, columns_of

_ROWS: Final = 50_000  # of one reading


@dataclass(slots=True)
class Window:
    """Commits between the two snapshots, by table."""

    commits: int = 0
    changes: dict[TableId, list[Change]] = field(default_factory=dict)  # in commit order
    moved: dict[TableId, str] = field(default_factory=dict)  # cannot be compared here, and why
    gap: str = ""  # why no table can

    def why_not(self, table: TableId) -> str:
        """Say why a table cannot be compared here; "": it can."""
        return self.moved.get(table, self.gap)


def changes_between(config: Config, after: Ledger, position: Lsn, upto: Ledger) -> Window:
    """Read what the commits up to `upto` changed that begin at `position` or later.

    `after` is an earlier ledger of the same epoch, none of whose commits is one of these.
    """
    out = Window()
    client, prefix = config.kafka.client_settings(), config.kafka.prefix
    schema_of = registry_at(config.registry.url, config.registry.client())
    begins: dict[int, int] = {}  # seq -> where the commit begins at the source
    with (
        closing(CutReader(client, prefix, schema_of)) as cuts,
        closing(RangeReader(client, prefix, schema_of, native=False)) as read,
    ):
        accepted = _noted(cuts(after), begins)
        name = target.name_of(config)
        for segment in segments(after, accepted, max_rows=_ROWS, target=name):
            at = segment.after
            if at.epoch != upto.epoch or (at.seq >= upto.seq and at.n >= upto.n):
                break
            for load in segment.loads:
                out.moved[load.table] = "it is being loaded"
            if isinstance(segment.cut, Commits):
                seqs = range(at.seq + 1, min(upto.seq, segment.last_seq) + 1)
                between = {seq for seq in seqs if begins[seq] >= position}
                if between:  # else the source's snapshot holds them, too
                    _take(read(segment), between, out)
                    _take_gaps(segment.marks, out)
    out.commits = sum(begin >= position for seq, begin in begins.items() if seq <= upto.seq)
    return out


def _noted(
    accepted: Iterator[tuple[int, Cut]], begins: dict[int, int]
) -> Iterator[tuple[int, Cut]]:
    for offset, cut in accepted:
        if isinstance(cut, Commits) and cut.commits:
            columns = columns_of(cut.commits)
            for at in range(len(columns)):
                begins[columns.first + at] = columns.identity(at)[0]
        yield offset, cut


def _take(rows: Rows, between: Container[int], out: Window) -> None:
    for table, changes in rows.changes.items():
        if some := [change for change in changes if change.seq in between]:
            out.changes.setdefault(table, []).extend(some)
    for change in rows.ddl:
        if change.seq in between:
            for table in _tables_of(change):
                out.moved[table] = "its columns changed meanwhile"


def _take_gaps(marks: Mapping[str, str], out: Window) -> None:
    """What was not sent is in neither snapshot, and the source has it at this commit."""
    for name, why in marks.items():
        said = f"rows were not sent meanwhile: {why}"
        if name == ANY:
            out.gap = said
        else:
            out.moved[TableId.of(name)] = said


def _tables_of(change: SchemaChange) -> Sequence[TableId]:
    found = [shape.id for shape in (change.before, change.after) if shape is not None]
    return [*found, *([change.moved.table] if change.moved is not None else [])]
