"""A table is dropped and made again, with a row, before it is published: in every order.

What was said of the old one must end, and the row that nobody sent must be missing loudly: the
table is loaded, or has a gap.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from math import comb

import pytest

from producer.core.catalog.catalog_watch import CatalogWatch
from producer.core.catalog.look import Look, Seen
from producer.core.events import Happened, TransactionEnded
from producer.core.stream.relations import Relations
from schemas.tables import TableId, TableSchema
from tests.producer.core.assembling import (
    ACCOUNT,
    ACCOUNTS,
    COLUMNS,
    ID,
    OTHERS,
    Play,
    described,
    insert,
)

OLD, NEW = replace(ACCOUNT, oid=ACCOUNTS), replace(ACCOUNT, oid=OTHERS)
ENDS = (1000, 1010, 1020, 1038)  # of the log: at first, made again, published, written to
ROW = 1030
SOURCE, WATCH = "mpw", "tjtj"  # made again, published, written; a look is taken, and judged


class Scene(Play):
    """The source, the stream and the looks."""

    def __init__(self, *, is_ours: bool, is_for_all: bool) -> None:
        self.is_ours, self.is_for_all = is_ours, is_for_all
        self.now, self.is_read = 0, False
        self.hidden: set[TableId] = set()  # they are loaded
        self.gaps: set[str] = set()
        self.watch = CatalogWatch(wanted=self.is_wanted, publication="p")
        super().__init__(known={ID: OLD})

    def make_relations(self) -> Relations:
        return Relations(
            self.known,
            read_catalog=lambda _: self.shape,
            name_table=lambda oid: ID if oid == self.shape.oid else None,
            wanted=self.is_wanted,
            new_tables_are_complete=self.is_for_all,
            had=self.watch.had,
        )

    def is_wanted(self, table: TableId) -> bool:
        return table == ID and table not in self.hidden

    @property
    def shape(self) -> TableSchema:
        return NEW if self.now else OLD

    @property
    def position(self) -> int:
        return ENDS[-1] if self.is_read else min(ENDS[self.now], ROW - 1)

    def do(self, what: str) -> None:
        if what == "t":
            if not self.watch.is_waiting:
                self.watch.take(self.look(), self.relations.known)
        elif what == "j":
            self.judge()
        elif what == "r":
            self.is_read = True
            row = described(*COLUMNS, relation=OTHERS), insert(2, relation=OTHERS)
            self.note(self.transaction(*row, start=ROW))
        else:
            self.now = max(self.now, SOURCE.index(what) + 1)

    def look(self) -> Look:
        is_published = self.now != 1 or self.is_for_all
        shape = self.shape
        seen = Seen(ID, shape.oid, False, True, is_published, shape if is_published else None)
        known = self.relations.known
        is_known = ID in known or any(table.oid == shape.oid for table in known.values())
        return Look(
            ENDS[self.now],
            {shape.oid: seen},
            () if is_published else (ID,),
            f"{self.now}",
            (ID,) if is_published and not is_known else (),
            self.is_ours,
        )

    def judge(self) -> None:
        """What the loop does."""
        if found := self.watch.judge(self.position, self.relations.known, reports_ddl=False):
            self.note(self.assembler.explain(found, self.position))
        came = self.watch.newcomers(self.relations.known)
        self.hidden |= {*came.published, *came.unpublished}
        if came.unpublished:
            self.now = max(self.now, SOURCE.index("p") + 1)

    def note(self, happened: list[Happened]) -> None:
        ends = [event for event in happened if isinstance(event, TransactionEnded)]
        self.gaps |= {hole.table for event in ends for hole in event.holes}


def orders(source: str) -> Iterator[str]:
    """The source, the stream and the looks take turns in every way."""
    size = len(source) + len(WATCH)
    for places in combinations(range(size), len(WATCH)):
        looks, rest = iter(WATCH), iter(source)
        yield "".join(next(looks if at in places else rest) for at in range(size))


@pytest.mark.parametrize("source", [SOURCE + "r", SOURCE[:2]], ids=["with a row", "without one"])
@pytest.mark.parametrize("publication", ["ours", "another's", "for all tables"])
def test_a_table_made_again_is_noticed_in_every_order(publication: str, source: str) -> None:
    looked = 0
    for order in orders(source):
        scene = Scene(is_ours=publication == "ours", is_for_all="all" in publication)
        for what in order + "jtjtj":
            scene.do(what)

        ended = [c for c in scene.changes if c.before is not None and c.before.oid == ACCOUNTS]
        assert ended or scene.gaps, order
        if publication != "for all tables":
            assert scene.hidden or scene.gaps == {str(ID)}, order
        looked += 1
    assert looked == comb(len(source) + len(WATCH), len(WATCH))
