"""Finds the rows of one table that differ between two snapshots.

Both servers hash groups of rows at the same time; of groups that differ, keys and hashes of rows
are fetched and compared here.  A group is a range of keys, where keys are of types with one
order and both servers have an index; else the rows of one bucket of the key's hash, which no
collation changes, or of the row's, where there is no key.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, TypeAlias

from gauss_cdc.verify.request import ALL
from gauss_cdc.verify.sides import ComparedServer, ComparisonStopped
from gauss_cdc.verify.text import (
    ComparedColumn,
    RowText,
    Spelling,
    beyond,
    bucket,
    bucket_of,
    digest,
)
from schemas.quoting import identifier
from schemas.tables import TableId

Key: TypeAlias = tuple[str | None, ...]  # cells of the key's columns; without a key, a row's hash
Hashes: TypeAlias = tuple[list[str], list[str]]  # of the rows of one key: source's, target's
RANGE_ROWS: Final = 50_000
_BUCKET_ROWS: Final = 8_192  # whose keys and hashes are held of each side
_BUCKET_BYTES: Final = 1 << 20  # where no estimate says how many rows that is
_MOST_BITS: Final = 16


@dataclass(frozen=True, slots=True)
class TablePlan:
    """How a table is compared."""

    id: TableId
    columns: tuple[ComparedColumn, ...]
    key: tuple[ComparedColumn, ...]  # (): as a multiset of rows
    spellings: tuple[Spelling, Spelling]
    has_index: bool  # of the key, at both servers
    expected: int  # rows, estimated; 0: unknown
    size: int  # bytes of all rows, about
    sample: int = ALL  # rows are compared whose key's bucket is below

    @property
    def is_ranged(self) -> bool:
        """Say whether its groups are ranges of keys."""
        return self.has_index and bool(self.key) and all(c.is_ordered for c in self.key)

    @property
    def names_rows(self) -> bool:
        """Say whether the source finds a row by its key as either server prints it."""
        is_one_type = all(c.source_type == c.target_type for c in self.key)
        is_plain = not any(one.converts or one.has_gauss for one in self.spellings)
        return self.has_index and self.sample == ALL and is_one_type and is_plain

    def text(self, *, is_source: bool) -> RowText:
        """Give its expressions at one server."""
        spelling = self.spellings[not is_source]
        return RowText(self.columns, self.key, spelling, is_source)

    def is_sampled(self, key_hash: str) -> bool:
        """Say whether a row is compared."""
        return bucket_of(key_hash) < self.sample


@dataclass(slots=True)
class Differing:
    """What the two snapshots hold differently."""

    source_rows: int = 0
    target_rows: int = 0
    rows: dict[Key, Hashes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class HeldTable:
    """One table under both snapshots, while no DDL can change it."""

    plan: TablePlan
    source: ComparedServer
    target: ComparedServer
    source_from: str  # the FROM item of its rows
    target_from: str

    def side(self, *, is_source: bool) -> tuple[ComparedServer, str, RowText]:
        """Give server, FROM item and expressions of one server."""
        text = self.plan.text(is_source=is_source)
        if is_source:
            return self.source, self.source_from, text
        return self.target, self.target_from, text


@dataclass(slots=True)
class RowComparison:
    """Compares the groups of rows of one table."""

    table: HeldTable
    on_rows: Callable[[int], None]
    stop: Callable[[], bool]
    range_rows: int = RANGE_ROWS
    _found: Differing = field(default_factory=Differing)

    def run(self) -> Differing:
        """Compare all groups; raise ComparisonStopped."""
        with ThreadPoolExecutor(1, thread_name_prefix="target") as pool:
            if self.table.plan.is_ranged:
                self._by_ranges(pool)
            else:
                self._by_buckets(pool)
        return self._found

    # ---- ranges of keys

    def _by_ranges(self, pool: ThreadPoolExecutor) -> None:
        low: Key | None = None
        while True:
            if self.stop():
                raise ComparisonStopped
            high = self._boundary(low)
            theirs = pool.submit(self._digest, low, high, is_source=False)
            ours = self._digest(low, high, is_source=True)
            self._count(ours, theirs.result())
            if ours != theirs.result():
                listed = pool.submit(self._list, low, high, is_source=False)
                mine = self._list(low, high, is_source=True)
                self._compare(mine, listed.result())
            if high is None:
                return
            low = high

    def _boundary(self, low: Key | None) -> Key | None:
        """Return the key that ends the range behind `low`; None: it is the last one."""
        text, names = self.table.plan.text(is_source=True), self._names()
        rows = self.table.source.reading.query(
            f"SELECT {text.cells(self.table.plan.key)} FROM {self.table.source_from}"
            f"{self._where(low, None, is_source=True, is_sample=False)}"
            f" ORDER BY {', '.join(f't.{identifier(n)}' for n in names)}"
            f" OFFSET {self.range_rows} LIMIT 1"
        )
        return tuple(rows[0]) if rows else None

    def _digest(self, low: Key | None, high: Key | None, *, is_source: bool) -> tuple[int, str]:
        server, start, text = self.table.side(is_source=is_source)
        ((count, total),) = server.reading.query(
            f"SELECT count(*)::text, {digest(text.row())} FROM {start}"
            f"{self._where(low, high, is_source=is_source)}"
        )
        return int(count or 0), total or ""

    def _list(
        self, low: Key | None, high: Key | None, *, is_source: bool
    ) -> list[list[str | None]]:
        server, start, text = self.table.side(is_source=is_source)
        return server.reading.query(
            f"SELECT {text.cells(self.table.plan.key)}, {text.row()} FROM {start}"
            f"{self._where(low, high, is_source=is_source)}"
        )

    def _where(
        self, low: Key | None, high: Key | None, *, is_source: bool, is_sample: bool = True
    ) -> str:
        text, names = self.table.plan.text(is_source=is_source), self._names()
        types = [text.type_of(column) for column in self.table.plan.key]
        said = [beyond(names, key, types, sign) for key, sign in ((low, ">"), (high, "<="))
                if key is not None]  # fmt: skip
        if is_sample and self.table.plan.sample < ALL:
            said.append(f"{bucket(text.key_hash())} < {self.table.plan.sample}")
        return f" WHERE {' AND '.join(said)}" if said else ""

    # ---- buckets

    def _by_buckets(self, pool: ThreadPoolExecutor) -> None:
        plan = self.table.plan
        wanted = max(plan.expected // _BUCKET_ROWS, plan.size // _BUCKET_BYTES, 1)
        bits = min((wanted - 1).bit_length(), _MOST_BITS)
        theirs = pool.submit(self._digests, bits, is_source=False)
        ours = self._digests(bits, is_source=True)
        there = theirs.result()
        none = (0, "0")
        for at in ours.keys() | there.keys():
            self._count(ours.get(at, none), there.get(at, none))
        differing = {at for at in ours.keys() | there.keys() if ours.get(at) != there.get(at)}
        if not differing:
            return
        sides = (self._listed(bits, differing, is_source=True),
                 self._listed(bits, differing, is_source=False))  # fmt: skip
        for mine, theirs_listed in _side_by_side(*sides):
            if self.stop():
                raise ComparisonStopped
            self._compare(mine, theirs_listed)

    def _digests(self, bits: int, *, is_source: bool) -> dict[str | None, tuple[int, str]]:
        server, start, text = self.table.side(is_source=is_source)
        rows = server.reading.query(
            f"SELECT b::text, count(*)::text, {digest('h')}"
            f" FROM ({self._hashed(bits, start, text)}) AS r GROUP BY b"
        )
        return {at: (int(count or 0), total or "") for at, count, total in rows}

    def _listed(
        self, bits: int, buckets: set[str | None], *, is_source: bool
    ) -> Iterator[list[str | None]]:
        """(bucket, key…, hash), in the order of buckets."""
        server, start, text = self.table.side(is_source=is_source)
        cells = f"{text.cells(self.table.plan.key)}, " if self.table.plan.key else ""
        some = "" if len(buckets) == 1 << bits else (
            f" WHERE b IN ({', '.join(sorted(str(at) for at in buckets))})"
        )  # fmt: skip
        names = "".join(f"k{at}, " for at in range(len(self.table.plan.key)))
        inner = self._hashed(bits, start, text, cells=cells, names=names)
        return server.rows(f"SELECT b::text, {names}h FROM ({inner}) AS r{some} ORDER BY r.b")

    def _hashed(
        self, bits: int, start: str, text: RowText, *, cells: str = "", names: str = ""
    ) -> str:
        """Rows as their bucket, their key and their hash, each computed once."""
        where = ""
        if self.table.plan.sample < ALL:
            where = f" WHERE {bucket(text.key_hash())} < {self.table.plan.sample}"
        if self.table.plan.key:
            listed = "".join(
                f"{text.cell(c, f't.{identifier(c.name)}')} AS k{at}, "
                for at, c in enumerate(self.table.plan.key)
            ) if cells else ""  # fmt: skip
            return (
                f"SELECT {bucket(text.key_hash(), bits) if bits else 0} AS b,"
                f" {listed}{text.row()} AS h FROM {start}{where}"
            )
        rows = f"SELECT {text.row()} AS h FROM {start}{where} OFFSET 0"
        return f"SELECT {bucket('h', bits) if bits else 0} AS b, {names}h FROM ({rows}) AS q"

    # ---- both

    def _names(self) -> list[str]:
        return [column.name for column in self.table.plan.key]

    def _count(self, ours: tuple[int, str], theirs: tuple[int, str]) -> None:
        self._found.source_rows += ours[0]
        self._found.target_rows += theirs[0]
        self.on_rows(self._found.source_rows)

    def _compare(
        self, mine: Iterable[Sequence[str | None]], theirs: Iterable[Sequence[str | None]]
    ) -> None:
        rows: dict[Key, Hashes] = defaultdict(lambda: ([], []))
        for side, listed in enumerate((mine, theirs)):
            for *key, row in listed:
                rows[tuple(key) or (row,)][side].append(row or "")
        for found, (ours, there) in rows.items():
            if sorted(ours) != sorted(there):
                self._found.rows[found] = (ours, there)


def _side_by_side(
    left: Iterator[list[str | None]], right: Iterator[list[str | None]]
) -> Iterator[tuple[list[list[str | None]], list[list[str | None]]]]:
    """Pair the rows of each bucket; both come in the order of buckets."""
    pairs = [
        ((int(at or 0), [row[1:] for row in rows]) for at, rows in groupby(side, lambda r: r[0]))
        for side in (left, right)
    ]
    heads = [next(pair, None) for pair in pairs]
    while any(head is not None for head in heads):
        at = min(head[0] for head in heads if head is not None)
        out: list[list[list[str | None]]] = []
        for side, head in enumerate(heads):
            if head is not None and head[0] == at:
                out.append(head[1])
                heads[side] = next(pairs[side], None)
            else:
                out.append([])
        yield out[0], out[1]
