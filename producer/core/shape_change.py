"""One table, or one other object, as a statement changed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from schemas.control import Hole, Moved
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
