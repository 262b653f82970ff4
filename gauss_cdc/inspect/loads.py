"""How far the tables are that are being loaded, by the records of cuts.  Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass

from producer.core.key_ranges import rows_so_far
from producer.core.loads.queue import EVERYTHING, OPEN
from producer.sources.requests import AskedAgain
from schemas.control import GAP, Head, LoadPhase, TableLoad, mends
from schemas.errors import shortened
from schemas.tables import TableId


@dataclass(frozen=True, slots=True)
class LoadStanding:
    """A table whose load has begun and not ended."""

    table: TableId
    rows: int  # in Kafka
    counted: int = 0  # of them, behind the first record that the `run` of the newest one wrote
    seconds: float = 0.0  # in which these were written
    of_about: int = 0  # the source's estimate; 0: unknown
    target: str | None = None  # that alone it is for

    @property
    def rows_per_s(self) -> int | None:
        """Rows a second of the present `run`; None before its first chunk."""
        return round(self.counted / self.seconds) if self.counted and self.seconds > 0 else None

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

    A table whose BEGIN is not among them is left out, unless its records tell its rows.
    """
    found: dict[TableId, _Counting] = {}
    for cut in records:
        if mends(cut):
            continue
        if cut.phase is LoadPhase.END:
            found.pop(cut.table, None)
        elif cut.phase is LoadPhase.BEGIN:
            found[cut.table] = _Counting(cut.head, cut, rows=0)
        else:
            found.setdefault(cut.table, _Counting(cut.head, cut)).add(cut)
    standings = (one.standing() for one in found.values())
    return tuple(standing for standing in standings if standing is not None)


@dataclass(slots=True)
class _Counting:
    """A table's load, as far as its records were read."""

    first: Head  # of the `run` that loads it
    newest: TableLoad
    rows: int | None = None  # in Kafka; None: its BEGIN was not read
    counted: int = 0

    def add(self, cut: TableLoad) -> None:
        """Take a CHUNK."""
        if self.rows is not None:
            self.rows += cut.rows
        if cut is self.newest or cut.head.instance != self.first.instance:  # others began it
            self.first, self.counted = cut.head, 0
        else:
            self.counted += cut.rows
        self.newest = cut

    def standing(self) -> LoadStanding | None:
        """Return how far it is; None: nothing tells its rows."""
        cut = self.newest
        if not (rows := rows_so_far(cut.upto)):
            if self.rows is None:
                return None
            rows = self.rows
        seconds = (cut.head.written_at - self.first.written_at) / 1e6
        return LoadStanding(cut.table, rows, self.counted, seconds, target=cut.target)


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
