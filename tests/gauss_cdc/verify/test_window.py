"""What lies between the two snapshots, by the records of cuts."""

from collections.abc import Callable
from typing import Any

import pytest

from gauss_cdc.verify import window
from schemas.control import ANY, Hole
from schemas.positions import Lsn
from schemas.tables import TableId
from tests.gauss_cdc.verify.test_rounds import configured
from tests.spark_consumers.feed import Tx, insert, started, table

A, B = TableId("public", "a"), TableId("public", "b")


class Reads:
    """Stands for a reader of cuts, or of rows."""

    def __init__(self, read: Callable[[Any], Any]) -> None:
        self.read = read

    def __call__(self, at: Any) -> Any:
        return self.read(at)

    def close(self) -> None:
        pass


@pytest.mark.parametrize(
    ("position", "gap", "moved"),
    [(5, "public.a", {A}), (5, ANY, {A, B}), (10_000, "public.a", set())],
)
def test_a_table_of_which_rows_were_not_sent_meanwhile_is_compared_in_another_round(
    position: int, gap: str, moved: set[TableId], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither snapshot has the row, and the source has it at the commit that is compared."""
    feed, ledger = started()
    hole = Hole(gap, "seen", "a row in quarantine")
    feed.commits(Tx([insert(table("b", "id integer, v text"), "1", "x")], (hole,)))
    upto = feed.segments(ledger)[-1].upto
    monkeypatch.setattr(window, "registry_at", lambda *_: None)
    monkeypatch.setattr(window, "CutReader", lambda *_: Reads(lambda at: iter(feed.read_cuts(at))))
    monkeypatch.setattr(window, "RangeReader", lambda *_, **__: Reads(feed.read_rows))
    config = configured("postgres", "postgresql://cdc@127.0.0.1:1/copy")

    found = window.changes_between(config, ledger, Lsn(position), upto)

    assert {one for one in (A, B) if found.why_not(one)} == moved
