"""Services that read by `gauss_cdc_reader`, in threads: they keep copies of what they are given."""

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, TypeAlias

from gauss_cdc_reader import Change, Reader
from tests.e2e.path import PATIENCE, UntilTold, ask, pause, until

Batches: TypeAlias = Iterator[Iterable[Change]]

# Members of a group hear of each other at once; one that waits for the machine is no silent one.
QUICK: Final = {"session.timeout.ms": 20_000, "heartbeat.interval.ms": 500}


class Copy:
    """A table's rows by their key; those of a table without a key, which gets INSERTs only."""

    def __init__(self) -> None:
        self.rows: dict[Hashable, dict[str, Any]] = {}
        self.gaps: list[str] = []

    def take(self, change: Change) -> None:
        """Put a change over it, as docs/subscribers.md says."""
        key, after = change.key, change.after
        if change.op == "gap":
            self.gaps.append(change.why)
        elif change.op == "t":
            self.rows.clear()
        elif key is None:
            assert change.op in "cr"
            assert after is not None
            self.rows[change.position] = after
        else:
            kept = self.rows.pop(tuple(key.values()), {})
            if after is not None:
                row = kept | after if change.unsent else after
                self.rows[tuple(row[name] for name in key)] = row

    def content(self) -> list[str]:
        """All rows, as `at_source` has them."""
        return _in_order(self.rows.values())


def at_source(url: str, table: str) -> list[str]:
    return _in_order(row for (row,) in ask(url, f"SELECT to_json(t) FROM {table} t"))


def _in_order(rows: Iterable[dict[str, Any]]) -> list[str]:
    """Rows as texts; a column that came later is NULL in older rows."""
    return sorted(str(sorted((n, v) for n, v in row.items() if v is not None)) for row in rows)


class Reading(UntilTold):
    """One service, which reads until its block ends; with what ended it before, if anything did."""

    def __init__(self, reader: Reader, batches: Callable[[Reader], Batches]) -> None:
        super().__init__()
        self.reader, self._batches = reader, batches
        self.copies: dict[str, Copy] = defaultdict(Copy)
        self.failure: Exception | None = None
        self.lock = threading.Lock()

    def run(self) -> None:
        try:
            for changes in self._batches(self.reader):
                with self.lock:
                    for change in changes:
                        self.copies[change.table.name].take(change)
                self.taken()
        except Exception as failure:  # noqa: BLE001  the test's own thread raises it
            self.failure = failure

    def taken(self) -> None:
        """Look at the copies between two commits."""

    def __exit__(self, *_: object) -> None:
        self.ended.set()
        self.reader.close()
        self.join(PATIENCE)
        assert not self.is_alive(), "a reader does not end"
        if self.failure is not None:
            raise self.failure

    def rows_of(self, table: str) -> int:
        if self.failure is not None:
            raise self.failure
        return len(self.copies[table].rows)

    def has(self, url: str, tables: Iterable[str]) -> bool:
        """Say whether its copies are what a server has."""
        if self.failure is not None:
            raise self.failure
        with self.lock:
            return all(self.copies[table].content() == at_source(url, table) for table in tables)


def commits(reader: Reader) -> Batches:
    return (commit.changes for commit in reader.commits())


def changes(*tables: str, group: str | None = None) -> Callable[[Reader], Batches]:
    return lambda reader: ([one] for _, one in reader.changes(*tables, group=group))


@contextmanager
def each_way(
    client: dict[str, Any],
    registry: str,
    prefix: str,
    tables: Iterable[str],
    group: str = "services",
    **options: Any,
) -> Iterator[dict[str, Reading]]:
    """A service for each way to read these tables of the schema `public`."""
    names = tuple(f"public.{table}" for table in tables)
    ways = {
        "commits": commits,
        "changes": changes(*names),
        "group": changes(*names, group=f"{prefix}.{group}"),
    }
    with ExitStack() as stack:
        yield {
            way: stack.enter_context(
                Reading(
                    Reader(client | QUICK, registry=registry, prefix=prefix, **options), batches
                )
            )
            for way, batches in ways.items()
        }


def equal(readings: dict[str, Reading], url: str, tables: Iterable[str]) -> None:
    """Wait until each service's copies are what a server has, which changes no more."""
    for way, reading in readings.items():
        until(lambda one=reading: one.has(url, tables), f"equal copies by {way}", pause)
