"""The whole contract of a target: what the loop, `check` and `status` ask of it.

A sink is one module or folder next to this one, and one line of `SINKS` (kinds.py): a `Kind`.
A target that has transactions gets its rules from `step.py`.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, TypeAlias

from schemas.encodings import from_exact
from schemas.findings import Finding
from schemas.tables import TableId, TableSchema
from schemas.types import AvroType, dumper
from spark_consumers.model import Asked, Ledger, Segment


class Sink(Protocol):
    """A target that moves from one commit of the source to a later one.

    The promise: after `step` returns, or after a crash inside it, `ledger()`
    and the rows agree; a ledger that is not `segment.after` changes nothing.
    """

    def start(self) -> Ledger | None:
        """Keep every other applier of the source out; return what the target holds now.

        None: another one is there.  It is asked again, several times a second.
        """

    def check(self) -> None:
        """Raise Fenced where another applier is known to have taken over; asks nobody."""

    def ledger(self) -> Ledger:
        """What the target holds now; what was staged before is given up, and removed."""

    def stage(self, segment: Segment, rows: Any) -> Any:
        """Make of what was read what `step` takes; may be repeated.

        `rows` are `model.Rows` or `model.Parts`; frames of Spark where the kind takes these.
        """

    def step(self, segment: Segment, staged: Any) -> Ledger:
        """Apply rows and DDL and move the ledger, all or nothing; return the ledger then.

        Raises Superseded where the ledger is not `segment.after`.
        """

    def close(self) -> None:
        """Let go of the target; `start` may follow."""


# ---------------------------------------------------------------- check and status
class Met(NamedTuple):
    """Rows of a table that others changed at the target, as changes of the stream met them."""

    overwritten: int = 0  # rows that begin met others with their keys
    missing: int = 0  # rows that change or end were not there


class Inspector:
    """Reads a target's state only; a sink overrides what it can report."""

    def ledger(self) -> Ledger | None:
        """Read the source's ledger; None where nothing was applied yet."""
        return None

    def conflicts(self) -> Mapping[str, Met]:
        """What `apply` met since the load of each table, by schema.table."""
        return {}

    def reach(self) -> Iterable[Finding]:
        """Which server it is, and whether it lets the role in; an error hides the ledger."""
        return ()

    def rights(self, tables: Sequence[TableId], *, has_ledger: bool) -> Iterable[Finding]:
        """What the role lacks for these tables; `has_ledger`: the first load is behind us."""
        del tables, has_ledger
        return ()

    def tables(self, shapes: Sequence[TableSchema], *, are_loaded: bool) -> Iterable[Finding]:
        """Tables that cannot hold the source's; `are_loaded`: they hold its rows already."""
        del shapes, are_loaded
        return ()

    def close(self) -> None:
        """Let go of the target."""


# ---------------------------------------------------------------- verify
# Physical Avro value, and its text in `source.exact`, where there is one -> what the target holds:
# a tuple with that text where a column's type cannot, and the text stands beside it.
ValueOf: TypeAlias = Callable[[Any, str | None], Any]


def text_of(avro: AvroType) -> ValueOf:
    """Return what makes the source's text again, as a sink of `Rows` is given it."""
    dump = dumper(avro)
    return lambda value, exact: dump(value) if exact is None else from_exact(exact)


class TargetReading:
    """A target's rows at one of the source's commits; `verify` may read a table several times."""

    def ledger(self) -> Ledger | None:
        """Which commit it is; None: nothing was applied yet."""
        raise NotImplementedError

    def values(
        self, table: TableSchema, avro: Mapping[str, AvroType]
    ) -> Mapping[str, ValueOf] | None:
        """By column, what the target holds of a value; None: there is no such table.

        `avro` are the types of the stream; a column that the target lacks is left out.
        """
        del table
        return {name: text_of(kind) for name, kind in avro.items()}

    def rows(self, table: TableSchema) -> Iterable[Sequence[Any]]:
        """Yield the table's rows, their values in the order of its columns."""
        raise NotImplementedError

    def shown(self, table: TableSchema, name: str, value: Any) -> str:
        """Write a value of a column for people."""
        del table, name
        return str(value)

    def close(self) -> None:
        """Let go of the target."""


# ---------------------------------------------------------------- how a sink is made
def _no_client() -> Any:
    raise NotImplementedError("the program brings no client for this kind of target")


def _ignore(_: str) -> None:
    return None


@dataclass(frozen=True, slots=True)
class Setup:
    """What a sink is made with; a kind takes what it needs."""

    source: str  # kafka.prefix: the name of its ledger
    dsn: str = ""  # [target] dsn, as it is written
    host: str = ""  # for messages
    label: str = ""  # of one of several targets, as commands name it
    connect: Callable[[], Any] = field(default=_no_client, repr=False)  # where we bring the client
    replace: bool = False  # rows that a table holds before its first load go
    ddl: str = "tables"  # [ddl] apply
    code: bool = False  # [ddl] code
    mode: str = "scd1"  # [target] mode
    keep: float = 7 * 86_400  # [target] keep, seconds
    spark: Callable[[], Any] = field(default=_no_client, repr=False)  # the session of the program
    asked: Asked = field(default_factory=dict)  # of packed rows: tasks answer it next
    on_step: Callable[[str], None] = field(default=_ignore, repr=False)
    on_wait: Callable[[str], None] = field(default=_ignore, repr=False)
    on_note: Callable[[str], None] = field(default=_ignore, repr=False)


@dataclass(frozen=True, slots=True)
class Pace:
    """How `apply` takes its steps into a kind of target; see `sizes.py` and `job.PassOptions`."""

    few_rows: int = 5_000  # of a segment, where the target keeps up
    many_rows: int = 50_000  # where much waits
    by_commit: bool = True  # steps may end at each commit, and at each statement of DDL
    by_interval: bool = False  # a step costs by table: steps are [target] interval apart
    takes_frames: bool = False  # `stage` is given frames of Spark, not rows


class Kind(NamedTuple):
    """A kind of target: `[target] kind`."""

    sink: Callable[[Setup], Sink]
    inspector: Callable[[Setup], Inspector]
    settings: Callable[[str], Mapping[str, str]] | None = None  # Spark's, by [target] dsn
    jars: str = ""  # the lock of the archives that it needs besides
    pace: Pace = Pace()
    # "postgres" or "opengauss": whose client the program brings, and whose SQL `verify` compares.
    client: str = ""
    reading: Callable[[Setup], TargetReading] | None = None  # what `verify` compares; None: nothing
