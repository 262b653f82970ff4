"""pgbench's TPC-B: tellers, branches, accounts, and a history without a key.

`pgbench` itself may be missing, so its transaction is written out here: three
updates and an insert, the same delta in all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from gauss_cdc_lab.demo.load import Act, Cursor, Event, LoadSession

BRANCHES: Final = 4
TELLERS: Final = 10 * BRANCHES
ACCOUNTS: Final = 20_000

# As `pgbench -i` makes them, with fewer accounts.
_TABLES: Final = f"""
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE pgbench_history (
    tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
INSERT INTO pgbench_branches SELECT n, 0, '' FROM generate_series(1, {BRANCHES}) n;
INSERT INTO pgbench_tellers SELECT n, (n - 1) / 10 + 1, 0, ''
    FROM generate_series(1, {TELLERS}) n;
INSERT INTO pgbench_accounts SELECT n, (n - 1) % {BRANCHES} + 1, 0, ''
    FROM generate_series(1, {ACCOUNTS}) n;
"""  # noqa: S608  numbers of ours


class Tpcb:
    """The sums of accounts, tellers and branches are those of the history, always."""

    name = "tpcb"
    expected = (0, 0, 0)
    sums: Mapping[str, str] = {
        "pgbench_accounts": "sum(abalance) AS accounts",
        "pgbench_tellers": "sum(tbalance) AS tellers",
        "pgbench_branches": "sum(bbalance) AS branches",
        "pgbench_history": "sum(delta) AS moved",
    }
    told = (
        "accounts - coalesce(moved, 0), tellers - coalesce(moved, 0), branches - coalesce(moved, 0)"
    )

    def create(self, cursor: Cursor) -> None:
        cursor.execute(_TABLES)

    def session(self, number: int, random: Random) -> LoadSession:
        del number
        return _Client(random)

    def events(self, turn: int) -> Sequence[Event]:
        del turn
        return ()


class _Client:
    def __init__(self, random: Random) -> None:
        self._random = random

    def act(self) -> Act:
        return self._transaction

    def remember(self) -> object:
        return None

    def restore(self, memory: object) -> None:
        del memory

    def _transaction(self, cursor: Cursor) -> int:
        draw = self._random.randint
        delta, account = draw(-5000, 5000), draw(1, ACCOUNTS)
        branch, teller = draw(1, BRANCHES), draw(1, TELLERS)
        cursor.execute(
            "UPDATE pgbench_accounts SET abalance = abalance + %s WHERE aid = %s", (delta, account)
        )
        cursor.execute("SELECT abalance FROM pgbench_accounts WHERE aid = %s", (account,))
        cursor.execute(
            "UPDATE pgbench_tellers SET tbalance = tbalance + %s WHERE tid = %s", (delta, teller)
        )
        cursor.execute(
            "UPDATE pgbench_branches SET bbalance = bbalance + %s WHERE bid = %s", (delta, branch)
        )
        cursor.execute(
            "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime)"
            " VALUES (%s, %s, %s, %s, CURRENT_TIMESTAMP)",
            (teller, branch, account, delta),
        )
        return 4
