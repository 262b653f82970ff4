"""A small load over three tables that keeps the truth of what it committed, in commit order."""

from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Self

import psycopg2

Row = tuple[str, str, Any]  # table, op, key (of keyless tables: the text)

TABLES = """
CREATE TABLE account (id int PRIMARY KEY, balance numeric(12,2) NOT NULL, note text);
CREATE TABLE transfer (id int PRIMARY KEY, payer int, payee int, amount numeric(12,2));
CREATE TABLE journal (what text);
INSERT INTO account SELECT i, 100, 'früher 以前' FROM generate_series(1, 10) i
"""
WIDE = 1_000  # bytes of a row of a large transaction
TOTAL = 1000  # of all balances, at each commit


@dataclass
class Truth:
    """One transaction of the source."""

    xid: int
    rows: list[Row] = field(default_factory=list)
    has_ddl: bool = False


class Bank:
    """Transactions of two sessions; some are open at the same time."""

    def __init__(self, url: str, *, keyed: bool, partitions: int) -> None:
        """`keyed`: a key change is two records; TRUNCATE of a keyed table is one a partition."""
        self._url, self._keyed, self._partitions = url, keyed, partitions
        self._sessions = [psycopg2.connect(url) for _ in range(2)]
        self.committed: list[Truth] = []
        self._number = 0
        self._moved = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for session in self._sessions:
            session.close()

    def transfers(self, count: int) -> None:
        """Commit transfers, every other one across another; each fifth transaction is undone."""
        for _ in range(count // 2):
            late, early = self._transfer(0, (1, 2)), self._transfer(1, (3, 4))
            self._end(1, early)
            if self._number % 5 == 0:
                self._sessions[0].rollback()
            else:
                self._end(0, late)

    def large(self, rows: int) -> None:
        """Commit one transaction that is longer than what sockets hold."""
        truth = self._begin(0)
        self._do(
            0, truth, "UPDATE account SET balance = balance - 1 WHERE id = 5", "account", "u", 5
        )
        self._number += 1
        start = self._number * 1_000_000
        with self._sessions[0].cursor() as cursor:
            cursor.execute(
                "INSERT INTO journal SELECT lpad(i::text, %s, '0') FROM generate_series(%s, %s) i",
                (WIDE, start, start + rows - 1),
            )
        truth.rows += [("journal", "c", str(start + i).zfill(WIDE)) for i in range(rows)]
        self._do(
            0, truth, "UPDATE account SET balance = balance + 1 WHERE id = 6", "account", "u", 6
        )
        self._end(0, truth)

    def reopen(self) -> None:
        """Move an account to another key, and replace another one by a new row."""
        self._moved += 1
        old, new = self._moved % 2, (self._moved + 1) % 2  # 700 and 701 take turns
        truth = self._begin(0)
        was = 7 if self._moved == 1 else 700 + old
        move = f"UPDATE account SET id = {700 + new} WHERE id = {was}"
        self._do(0, truth, move, "account", "u", 700 + new)
        if self._keyed:
            truth.rows.append(("account", "d", was))
        self._do(0, truth, "DELETE FROM account WHERE id = 8", "account", "d", 8)
        again = "INSERT INTO account VALUES (8, 100, 'wieder: 又')"
        self._do(0, truth, again, "account", "c", 8)
        self._end(0, truth)

    def truncate(self) -> None:
        """Empty a table, and write into it in the same transaction."""
        truth = self._begin(0)
        with self._sessions[0].cursor() as cursor:
            cursor.execute("TRUNCATE transfer")
        truth.rows += [("transfer", "t", None)] * self._partitions
        self._do(0, truth, "INSERT INTO transfer VALUES (0, 1, 1, 0)", "transfer", "c", 0)
        self._end(0, truth)

    def add_column(self, name: str) -> None:
        """Add a column and use it, between two rows of one transaction."""
        truth = self._begin(0)
        self._do(0, truth, "UPDATE account SET note = 'old' WHERE id = 1", "account", "u", 1)
        with self._sessions[0].cursor() as cursor:
            cursor.execute(f"ALTER TABLE account ADD COLUMN {name} int")
        truth.has_ddl = True
        self._do(0, truth, f"UPDATE account SET {name} = 1 WHERE id = 2", "account", "u", 2)
        self._end(0, truth)

    def content(self, table: str) -> dict[Any, dict[str, Any]]:
        """A table of the source now, by key."""
        with closing(psycopg2.connect(self._url)) as session, session.cursor() as cursor:
            cursor.execute(f"SELECT * FROM {table}")
            names = [column.name for column in cursor.description]
            rows = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        return {next(iter(row.values())): row for row in rows}

    def _transfer(self, session: int, between: tuple[int, int]) -> Truth:
        payer, payee = between
        truth = self._begin(session)
        self._number += 1
        take = f"UPDATE account SET balance = balance - 1 WHERE id = {payer}"
        give = f"UPDATE account SET balance = balance + 1 WHERE id = {payee}"
        entry = f"INSERT INTO transfer VALUES ({self._number}, {payer}, {payee}, 1)"
        self._do(session, truth, take, "account", "u", payer)
        self._do(session, truth, entry, "transfer", "c", self._number)
        self._do(session, truth, give, "account", "u", payee)
        return truth

    def _begin(self, session: int) -> Truth:
        with self._sessions[session].cursor() as cursor:
            cursor.execute("SELECT txid_current()")
            return Truth(cursor.fetchone()[0])

    def _do(self, session: int, truth: Truth, statement: str, *row: Any) -> None:
        with self._sessions[session].cursor() as cursor:
            cursor.execute(statement)
            assert cursor.rowcount == 1
        truth.rows.append(row)

    def _end(self, session: int, truth: Truth) -> None:
        self._sessions[session].commit()
        self.committed.append(truth)
