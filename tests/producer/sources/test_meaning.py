"""A name that means another table while rows are read by it; on servers: `test_*_snapshot`."""

import pytest

from producer.errors import TableChanging
from producer.sources.meaning import Meant, MeantRows, meaning
from schemas.tables import TableId

T = TableId("s", "it's")


class Catalog:
    """What a session answers, one after the other; the last one from then on."""

    def __init__(self, *answers: tuple[str, str] | None) -> None:
        self.answers, self.asked = list(answers), list[str]()

    def query(self, sql: str) -> list[list[str | None]]:
        self.asked.append(sql)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        return [] if answer is None else [list(answer)]


def test_a_name_is_quoted() -> None:
    assert meaning(catalog := Catalog(None), T) is None
    assert "'it''s'" in catalog.asked[0]


@pytest.mark.parametrize(
    ("was", "now"),
    [
        (("5", "1"), ("6", "1")),  # another table's name before the COPY
        (None, ("5", "1")),
        (("5", "1"), None),
    ],
)
def test_a_name_that_meant_another_one_in_the_snapshot_is_refused(was, now) -> None:
    with pytest.raises(TableChanging, match="schema"):
        MeantRows(T, None if was is None else Meant(*was), Catalog(now), print)


@pytest.mark.parametrize("then", [("6", "1"), ("5", "2"), None])
def test_no_row_is_handed_on_behind_a_rename(then) -> None:
    came: list[object] = []
    rows = MeantRows(T, Meant("5", "1"), Catalog(("5", "1"), then), came.extend)
    with pytest.raises(TableChanging, match="schema"):
        rows([[b"1"]])
    assert not came


def test_it_is_looked_at_once_behind_the_begin() -> None:
    came: list[object] = []
    rows = MeantRows(T, Meant("5", "1"), now := Catalog(("5", "1")), came.extend)
    for each in (b"1", b"2"):
        rows([[each]])
    rows.check()
    assert (came, len(now.asked)) == ([[b"1"], [b"2"]], 2)
