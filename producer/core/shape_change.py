"""The change of one table, or of another object, by a statement, as the source resolved it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.control import Hole, Moved, Origin, SchemaChange
from schemas.positions import NOWHERE
from schemas.tables import TableSchema


@dataclass(frozen=True, slots=True)
class ShapeChange:
    """A table was seen in a new shape; `before` None: it was not known, `after` None: dropped.

    Both None: another object, see SchemaChange, whose fields these are.
    """

    before: TableSchema | None
    after: TableSchema | None
    tag: str
    holes: tuple[Hole, ...] = ()
    lossy: str | None = None
    kind: str = "table"
    identity: str | None = None
    canonical: str | None = None
    renamed: Mapping[str, str] = field(default_factory=dict)
    values: Mapping[str, str] = field(default_factory=dict)
    moved: Moved | None = None


@dataclass(frozen=True, slots=True)
class StatementChanges:
    """The finished changes of one statement, in the order in which they apply.

    The shapes in force are those after it; `sql`, `jddl` and `settings` are SchemaChange's.
    """

    changes: tuple[ShapeChange, ...]
    origin: Origin
    sql: str | None = None
    jddl: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    # Storage files that it replaced: oid of the relation, file before, file after (0: a file whose
    # rows may be hidden).
    files: tuple[tuple[int, int, int], ...] = ()

    def record(self, change: ShapeChange) -> SchemaChange:
        """Write down one of its changes; who delivers it gives it a place."""
        return SchemaChange(
            epoch=0,
            seq=0,
            ordinal=0,
            xid=0,
            csn=0,
            lsn=NOWHERE,
            origin=self.origin,
            tag=change.tag,
            before=change.before,
            after=change.after,
            sql=self.sql,
            canonical=change.canonical,
            jddl=self.jddl,
            lossy=change.lossy,
            kind=change.kind,
            identity=change.identity,
            renamed=change.renamed,
            values=change.values,
            settings=self.settings,
            moved=change.moved,
        )
