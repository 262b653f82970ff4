"""How far the tables are that are being loaded, by the records of cuts.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from producer.core.loads.queue import EVERYTHING, OPEN
from producer.sources.requests import AskedAgain
from schemas.control import GAP, LoadPhase, TableLoad
from schemas.errors import shortened
from schemas.tables import TableId


@dataclass(frozen=True, slots=True)
class LoadStanding:
    """A table whose load has begun and not ended."""

    table: TableId
    rows: int  # in Kafka
    seconds: float  # from its BEGIN to its newest record
    of_about: int = 0  # the source's estimate; 0: unknown
    target: str | None = None  # that alone it is for

    @property
    def rows_per_s(self) -> int | None:
        """Rows a second; None before the first chunk."""
        return round(self.rows / self.seconds) if self.rows and self.seconds > 0 else None

    @property
    def left_s(self) -> int | None:
        """Seconds until its end, by the estimate; None: unknown."""
        if not self.rows_per_s or self.of_about <= self.rows:
            return None
        return round((self.of_about - self.rows) / self.rows_per_s)

    def as_json(self) -> dict[str, object]:
        """Plain values."""
        return {
            "table": str(self.table),
            **({"target": self.target} if self.target else {}),
            "rows": self.rows,
            "of_about": self.of_about or None,
            "rows_per_s": self.rows_per_s,
            "left_s": self.left_s,
        }

    def __str__(self) -> str:
        about = f" of about {self.of_about:,}" if self.of_about else ""
        rate = f", {self.rows_per_s:,} rows/s" if self.rows_per_s is not None else ""
        left = f", {self.left_s:,} s left" if self.left_s is not None else ""
        whose = f" for {self.target}" if self.target else ""
        return f"{self.table}{whose}: {self.rows:,} rows{about}{rate}{left}"


def loads_under_way(records: Iterable[TableLoad]) -> tuple[LoadStanding, ...]:
    """Count rows by table, from each one's newest BEGIN on; `records` are in their order.

    A table whose BEGIN is not among them is left out: its rows are not known.
    """
    begun: dict[TableId, int] = {}  # µs since 1970
    found: dict[TableId, LoadStanding] = {}
    for cut in records:
        match cut.phase:
            case LoadPhase.BEGIN:
                begun[cut.table] = cut.head.written_at
                found[cut.table] = LoadStanding(cut.table, 0, 0, target=cut.target)
            case LoadPhase.CHUNK if cut.table in found:
                seconds = (cut.head.written_at - begun[cut.table]) / 1e6
                rows = found[cut.table].rows + cut.rows
                found[cut.table] = replace(found[cut.table], rows=rows, seconds=seconds)
            case LoadPhase.END:
                found.pop(cut.table, None)
            case _:
                pass
    return tuple(found.values())


def waiting_lines(
    asked: Iterable[AskedAgain],
    loads: Mapping[str, str],
    under_way: Collection[str],
    *,
    by_marks: bool = False,
) -> Iterator[str]:
    """Say what waits to be read, for whom, and whether it is held back.

    `loads`: phases of tables, as cuts have them; `under_way`: names of those that are being read.
    `by_marks`: a table is read once the stream has shown two transactions of `run`'s own.
    """
    requested = set()
    for request in asked:
        since = f"{request.asked_at:%Y-%m-%d %H:%M:%S} UTC"
        by = f" by {request.asked_by}" if request.asked_by else ""
        table, target = request.wish
        if table == EVERYTHING:
            yield f"re-reads are paused since {since}{by}; `gauss-cdc snapshot --resume`"
            continue
        requested.add(str(table))
        does = "is being read" if str(table) in under_way else "waits to be read"
        whose = f" for {target}" if target else ""
        yield f"{table} {does} again{whose}, asked for at {since}{by}"
    skipped = {*requested, *under_way}
    for what, phases in (("to be loaded", OPEN), ("to be read again, with gaps", {GAP})):
        names = [name for name, phase in loads.items() if phase in phases and name not in skipped]
        if names:
            yield f"{what}: {shortened(sorted(names))}"
            requested.update(names)
    if by_marks and requested - {*under_way}:
        yield (
            "each once the stream shows its two marks, rows of `run` in schema gauss_cdc; how"
            " long one has been waited for is `waits_for` in `run`'s line of each minute"
        )
