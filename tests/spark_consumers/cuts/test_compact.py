"""The collapsed form of any history gives the rows that row-by-row application gives."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tables import UNCHANGED
from spark_consumers.cuts.compact import Collapsed, Single, by_columns, collapse, netted
from spark_consumers.model import Cell, Change

COLUMNS = ("id", "a", "b")
Table = dict[str, tuple[str, str]]


def change(op: str, before=None, after=None, columns=COLUMNS, at: list[int] = [0]) -> Change:  # noqa: B006
    at[0] += 1
    return Change(1, at[0], op, columns, before, after)


def collapsed(*changes: Change, key: tuple[str, ...] = ("id",)) -> Collapsed:
    return collapse(COLUMNS, changes, key)


def images(todo: Collapsed) -> dict[tuple[Cell, ...], tuple[list[Cell], object]]:
    return {key: (image.cells, image.origin) for key, image in todo.upserts.items()}


def old(key: str) -> list[Cell]:
    return [key, UNCHANGED, UNCHANGED]


def test_the_last_state_of_a_row_is_kept() -> None:
    todo = collapsed(
        change("c", None, ["1", "x", "y"]),
        change("u", None, ["1", "z", UNCHANGED]),
        change("c", None, ["2", "q", None]),
        change("d", old("2")),
    )

    assert images(todo) == {("1",): (["1", "z", "y"], None)}
    assert todo.deletes == [("2",)]


def test_unsent_values_are_taken_from_the_target() -> None:
    todo = collapsed(
        change("u", None, ["1", "x", UNCHANGED]), change("u", None, ["1", UNCHANGED, UNCHANGED])
    )

    assert images(todo) == {("1",): (["1", "x", UNCHANGED], ("1",))}
    assert todo.upserts["1",].unsent() == [2]


def test_a_changed_key_takes_the_place_of_its_values_along() -> None:
    todo = collapsed(
        change("u", old("1"), ["2", "x", UNCHANGED]), change("u", old("2"), ["3", "x", UNCHANGED])
    )

    assert images(todo) == {("3",): (["3", "x", UNCHANGED], ("1",))}
    assert sorted(todo.deletes) == [("1",), ("2",)]
    assert todo.moved == {("1",), ("2",)}


def test_keys_may_be_swapped() -> None:
    todo = collapsed(
        change("u", old("1"), ["9", "one", UNCHANGED]),
        change("u", old("2"), ["1", "two", UNCHANGED]),
        change("u", old("9"), ["2", "one", UNCHANGED]),
    )

    assert images(todo) == {
        ("1",): (["1", "two", UNCHANGED], ("2",)),
        ("2",): (["2", "one", UNCHANGED], ("1",)),
    }
    assert todo.deletes == [("9",)]


def test_a_truncation_forgets_what_was_before() -> None:
    todo = collapsed(
        change("c", None, ["1", "x", "y"]),
        change("d", old("5")),
        change("t"),
        change("c", None, ["2", "x", "y"]),
        change("d", old("2")),
    )

    assert (todo.is_truncated, images(todo), todo.deletes) == (True, {}, [])


def test_an_old_row_has_what_the_new_one_leaves_out() -> None:
    todo = collapsed(change("u", ["1", "x", "y"], ["1", "z", UNCHANGED]))

    assert images(todo) == {("1",): (["1", "z", "y"], ("1",))}


def test_a_null_of_an_old_row_is_no_value() -> None:
    todo = collapsed(change("u", ["1", "x", None], ["1", "z", UNCHANGED]))

    assert images(todo) == {("1",): (["1", "z", UNCHANGED], ("1",))}


def test_without_a_key_every_change_stays() -> None:
    todo = collapsed(
        change("c", None, ["1", "x", "y"]),
        change("c", None, ["1", "x", "y"]),
        change("u", ["1", "x", "y"], ["1", "z", UNCHANGED]),
        change("d", ["1", "z", "y"]),
        key=(),
    )

    assert todo.singles == [
        Single(None, ["1", "x", "y"]),
        Single(None, ["1", "x", "y"]),
        Single(["1", "x", "y"], ["1", "z", "y"]),
        Single(["1", "z", "y"], None),
    ]


def test_an_old_row_without_the_key_makes_the_table_go_row_by_row() -> None:
    todo = collapsed(change("d", [UNCHANGED, "x", UNCHANGED]), change("u", None, ["1", "x", "y"]))

    assert todo.singles == [
        Single([UNCHANGED, "x", UNCHANGED], None),
        Single(["1", UNCHANGED, UNCHANGED], ["1", "x", "y"]),
    ]


def test_a_truncation_without_a_key_forgets_what_was_before() -> None:
    todo = collapsed(change("c", None, ["1", "x", "y"]), change("t"), key=())

    assert (todo.is_truncated, todo.singles) == (True, [])


@pytest.mark.parametrize(
    ("op", "key"),  # without a key, an insert without a row is seen when it is written
    [("m", ("id",)), ("u", ("id",)), ("c", ("id",)), ("m", ()), ("u", ())],
)
def test_what_makes_no_sense_is_refused(op: str, key: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match=r"row|op"):
        collapsed(change(op), key=key)


def test_runs_are_cut_where_columns_change() -> None:
    changes = [
        change("t"),
        change("c", None, ["1", "a", "b"]),
        change("t"),
        change("c", None, ["1"], ("id",)),
        change("c", None, ["2"], ("id",)),
    ]

    runs = [(columns, len(run)) for columns, run in by_columns(changes)]

    assert runs == [(COLUMNS, 3), (("id",), 2)]
    assert list(by_columns([])) == []
    assert [columns for columns, _ in by_columns([change("t")])] == [()]


def apply_collapsed(rows: Table, todo: Collapsed) -> Table:
    """As a sink does it: take origins first, then write."""
    fetched = {key: rows[image.origin[0]] for key, image in todo.upserts.items() if image.unsent()}
    after = {} if todo.is_truncated else dict(rows)
    for (key,) in todo.deletes:
        after.pop(key, None)
    for key, image in todo.upserts.items():
        cells = image.cells
        after[key[0]] = tuple(
            fetched[key][at - 1] if cells[at] is UNCHANGED else cells[at] for at in (1, 2)
        )
    return after


KEYS = st.sampled_from("1234")
ACTIONS = st.lists(
    st.tuples(
        st.sampled_from("ccuuukkkddt"), KEYS, KEYS, st.booleans(), st.booleans(), st.booleans()
    ),
    max_size=25,
)


@given(st.sets(KEYS), ACTIONS)
def test_any_history_ends_as_if_applied_row_by_row(there: set[str], actions: list) -> None:
    before: Table = {key: (f"a{key}", f"b{key}") for key in there}
    rows, changes = dict(before), []
    for number, (op, key, other, sends_a, sends_b, sends_old) in enumerate(actions):
        full = [key, *rows[key]] if key in rows else None
        values = (f"a{number}", f"b{number}")
        match op:
            case "c" if key not in rows:
                rows[key] = values
                changes.append(change("c", None, [key, *values]))
            case "u" | "k" if full is not None:
                new = other if op == "k" and other not in rows else key
                kept = rows.pop(key)
                sent = [values[0] if sends_a else UNCHANGED, values[1] if sends_b else UNCHANGED]
                rows[new] = tuple(
                    was if cell is UNCHANGED else cell for cell, was in zip(sent, kept, strict=True)
                )
                carried = full if sends_old else None if new == key else old(key)
                changes.append(change("u", carried, [new, *sent]))
            case "d" if full is not None:
                del rows[key]
                changes.append(change("d", full if sends_old else old(key)))
            case "t":
                rows.clear()
                changes.append(change("t"))

    assert apply_collapsed(before, collapsed(*changes)) == rows


ROW = st.sampled_from([["1", "a"], ["1", None], ["2", "a"], [None, None]])


@given(st.lists(st.tuples(st.integers(0, 5), st.none() | ROW)), st.lists(ROW))
def test_what_goes_and_comes_of_whole_rows_is_what_row_by_row_leaves(
    steps: list[tuple[int, list[Cell] | None]], before: list[list[Cell]]
) -> None:
    there = [*before]
    singles = []
    for place, new in steps:
        old = there.pop(place) if place < len(there) else None
        if new is not None:
            there.append(new)
        if old is not None or new is not None:
            singles.append(Single(old, new))

    left = [*before]
    is_coming = False
    for single in netted(singles):
        if single.old is not None:
            assert not is_coming, "rows go first"
            left.remove(single.old)
        else:
            is_coming = True
            left.append(single.new or [])

    assert sorted(map(repr, left)) == sorted(map(repr, there))


def test_rows_that_are_not_known_whole_stay_in_order() -> None:
    singles = [Single(old("1"), ["1", "x", "y"]), Single(["2", "x", "y"], None)]

    assert netted(singles) == singles
