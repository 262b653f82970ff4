"""Random tables and random transactions through everything, compared cell by cell by the servers.

`GAUSS_CDC_PROPERTY_SECONDS` (30) bounds the cases, `GAUSS_CDC_PROPERTY_SEED` replays one,
`GAUSS_CDC_PROPERTY_FROM` moves the seeds that are tried.  A case that fails is made
smaller: tables, transactions and statements are left out as long as it still fails.
"""

import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from tests.e2e.path import Path, ask
from tests.e2e.random_tables import MADE, Case, Table, make
from tests.integration.postgres_target import sink_of
from tests.services_fixtures import drop_database

SECONDS = float(os.environ.get("GAUSS_CDC_PROPERTY_SECONDS", "30"))
FIRST = int(os.environ.get("GAUSS_CDC_PROPERTY_FROM", "0"))
REPLAY = os.environ.get("GAUSS_CDC_PROPERTY_SEED")
TRIES = 60  # runs for making a failing case smaller
T = TypeVar("T")


def run_transactions(url: str, transactions: Sequence[Sequence[str]]) -> int:
    """Run them one after the other; statements that fail are undone alone; how many did not."""
    done = 0
    connection = psycopg2.connect(url)
    try:
        with connection.cursor() as cursor:
            for transaction in transactions:
                for statement in transaction:
                    try:
                        if statement.split()[0] in ("SAVEPOINT", "ROLLBACK", "RELEASE"):
                            cursor.execute(statement)
                            continue
                        cursor.execute("SAVEPOINT own")
                        cursor.execute(statement)
                        done += 1
                    except psycopg2.errors.InvalidSavepointSpecification:
                        connection.rollback()  # what it named was undone before
                    except psycopg2.Error:
                        cursor.execute("ROLLBACK TO own")
                connection.commit()
    finally:
        connection.close()
    return done


def cells(url: str, table: Table, columns: Sequence[str]) -> list[tuple[str | None, ...]]:
    """Every row as the texts that the types' own output functions write, sorted."""
    # A composite of NULLs is a value, though it `IS NULL`.
    texts = ", ".join(
        f"CASE WHEN {c} IS DISTINCT FROM NULL THEN format('%s', {c}) END" for c in columns
    )
    connection = psycopg2.connect(url)
    try:
        with connection.cursor() as cursor:
            cursor.execute("SET TimeZone = 'UTC'; SET search_path = pg_catalog")
            name = f"public.{table.name}"
            cursor.execute(f"SELECT {texts} FROM {name}")
            return sorted(cursor.fetchall(), key=repr)
    finally:
        connection.close()


def columns_of(url: str, table: Table) -> list[str]:
    rows = ask(
        url,
        "SELECT quote_ident(attname) FROM pg_attribute WHERE attnum > 0 AND NOT attisdropped"
        " AND attrelid = %s::regclass AND attgenerated = '' ORDER BY attname",
        f"public.{table.name}",
    )
    return [name for (name,) in rows]


def difference(case: Case, source: str, target: str) -> str | None:
    """The first cell that is not the same, told."""
    for table in case.tables:
        ours, theirs = columns_of(target, table), columns_of(source, table)
        if ours != theirs:
            return f"{table.name}: columns {ours}, at the source {theirs}"
        want, got = cells(source, table, theirs), cells(target, table, theirs)
        if want == got:
            continue
        missing = [row for row in want if row not in got]
        extra = [row for row in got if row not in want]
        for wanted, found in zip(missing, extra, strict=False):
            for column, a, b in zip(theirs, wanted, found, strict=True):
                if a != b:
                    return f"{table.name}.{column}: {b!r:.300}, at the source {a!r:.300}"
        return f"{table.name}: {len(got)} rows, at the source {len(want)}; {missing} {extra}"[:600]
    return None


class Trial:
    """Runs cases, each in databases and below a prefix of its own."""

    def __init__(self, addresses: Addresses, new_database: Callable[[], str], prefix: str) -> None:
        self._addresses, self._new_database, self._prefix = addresses, new_database, prefix
        self.runs = self.statements = 0

    def __call__(self, case: Case) -> str | None:
        """Say what went wrong, or None."""
        self.runs += 1
        source, target = self._new_database(), self._new_database()
        ask(source, MADE + "".join(table.create for table in case.tables))
        if case.target_has_types:
            ask(target, MADE)
        self.statements += run_transactions(source, case.before)
        prefix = f"{self._prefix}_{self.runs}"
        changes = {"types": case.options, **case.changes}
        try:
            sink = sink_of(target, prefix, case.target)
            with Path(self._addresses, prefix, source, target, sink, **changes) as path:
                path.start()
                half = len(case.after) // 2
                for part in (case.after[:half], case.after[half:]):
                    self.statements += run_transactions(source, part)
                    path.catch_up()
                    if (found := difference(case, source, target)) is not None:
                        return found
        except Exception as error:  # noqa: BLE001  whatever stops it is a finding
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{frame.name}, {frame.filename.rpartition('/')[2]}:{frame.lineno}"
            return f"{type(error).__name__}: {error} ({place})"[:600]
        finally:
            for url in (source, target):  # slots are few
                drop_database(self._addresses.postgres_url(), url.rpartition("/")[2])
        return None

    def like(self, found: str) -> Callable[[Case], bool]:
        """Say of other cases whether they fail in the same way, for so many runs."""
        last = self.runs + TRIES

        def fails(case: Case) -> bool:
            if self.runs >= last or not case.tables:
                return False
            other = self(case)
            return other is not None and kind(other) == kind(found)

        return fails


def kind(found: str) -> str:
    """An error's name and place, or that something differs."""
    match = re.match(r"(\w+): .*(\(.*?\))", found, re.DOTALL)
    return f"{match[1]} {match[2]}" if match else "a difference"


def smaller(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Leave out what the failure does not need."""

    def without(parts: Sequence[T], put: Callable[[list[T]], Case]) -> Case:
        nonlocal case
        kept, size = list(parts), max(1, len(parts) // 2)
        while size:
            at = 0
            while at < len(kept):
                fewer = kept[:at] + kept[at + size :]
                if fails(put(fewer)):
                    kept = fewer
                else:
                    at += size
            size //= 2
        case = put(kept)
        return case

    def with_tables(tables: list[Table]) -> Case:
        names = {table.name for table in tables}
        gone = [f" {t.name} " for t in case.tables if t.name not in names]
        part = [
            [
                [s for s in transaction if not any(name in f"{s} " for name in gone)]
                for transaction in side
            ]
            for side in (case.before, case.after)
        ]
        return replace(case, tables=tables, before=part[0], after=part[1])

    without(case.tables, with_tables)
    without(case.after, lambda kept: replace(case, after=kept))
    without(case.before, lambda kept: replace(case, before=kept))
    for at in range(len(case.after)):
        without(
            case.after[at],
            lambda kept, at=at: replace(  # type: ignore[misc]
                case, after=[*case.after[:at], kept, *case.after[at + 1 :]]
            ),
        )
    return case


def lines(case: Case) -> Iterator[str]:
    """A case as a person reads it."""
    yield f"options: {case.options}, {case.changes}; types at the target: {case.target_has_types}"
    yield f"target: {case.target}"
    yield from (table.create for table in case.tables)
    for head, side in (("before the load", case.before), ("after it", case.after)):
        yield f"-- {head}"
        for transaction in side:
            if transaction:
                yield "BEGIN; " + "; ".join(s[:2000] for s in transaction) + "; COMMIT"


def test_a_random_database_arrives(
    addresses: Addresses, new_database: Callable[[], str], topic_prefix: str, capsys
) -> None:
    trial = Trial(addresses, new_database, topic_prefix)
    began, seed = time.monotonic(), FIRST if REPLAY is None else int(REPLAY)
    first = seed
    while True:
        case = make(seed)
        if (found := trial(case)) is not None:
            shrunk = smaller(case, trial.like(found))
            pytest.fail(
                "\n".join(lines(shrunk))
                + f"\n\nseed {seed}: {found}\nafter making it smaller: {trial(shrunk)}\n"
                + f"replay: GAUSS_CDC_PROPERTY_SEED={seed} pytest tests/e2e/test_property.py",
                pytrace=False,
            )
        seed += 1
        if REPLAY is not None or time.monotonic() - began > SECONDS:
            break
    with capsys.disabled():
        sys.stdout.write(
            f"\nproperty: seeds {first}..{seed - 1}, {trial.statements} statements,"
            f" {time.monotonic() - began:.0f} s\n"
        )
    assert trial.statements > 0
