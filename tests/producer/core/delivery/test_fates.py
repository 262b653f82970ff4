"""What a transaction of the source means for the loads of an epoch."""

import pytest

from producer.core.delivery.fates import followed, followed_for_one
from producer.core.events import Fate
from producer.core.key_ranges import Upto, voided

LOADED = {"public.a": "END", "public.b": "END"}


def test_a_table_with_a_gap_is_noted() -> None:
    assert followed(LOADED, [Fate("public.a", "public.a")]) == LOADED | {"public.a": "GAP"}


def test_a_table_that_was_made_by_the_stream_is_noted_too() -> None:
    assert followed(LOADED, [Fate("public.c", "public.c")]) == LOADED | {"public.c": "GAP"}


def test_a_load_that_is_open_reads_the_table_anyway() -> None:
    for phase in ("PENDING", "BEGIN", "LEFT"):
        assert followed({"a.b": phase}, [Fate("a.b", "a.b")]) == {"a.b": phase}


def test_a_load_with_a_gap_does_not_go_on_where_it_was() -> None:
    assert followed({"a.b": "CHUNK"}, [Fate("a.b", "a.b")]) == {"a.b": "BEGIN"}
    assert followed({"a.b": "CHUNK"}, [Fate("a.b", "a.c")]) == {"a.c": "BEGIN"}


def test_so_it_is_where_no_reading_mends_the_gap() -> None:
    loads = {"a.b": "CHUNK", "a.c": "CHUNK", "a.d": "END", "a.e": "PENDING"}

    assert followed(loads, [], {"a.b", "a.d", "a.e"}) == loads | {"a.b": "BEGIN"}
    assert followed(loads, [], {"*"}) == loads | {"a.b": "BEGIN", "a.c": "BEGIN"}
    assert followed({}, [], {"*"}) == {}


def test_a_load_goes_with_its_table() -> None:
    loads = {"public.a": "BEGIN", "public.b": "END"}

    assert followed(loads, [Fate("public.a", "public.c")]) == {
        "public.c": "BEGIN",
        "public.b": "END",
    }
    assert followed(loads, [Fate("public.a", "public.b")]) == {"public.b": "BEGIN"}
    assert followed(loads, [Fate("public.d", "public.b")]) == {"public.a": "BEGIN"}


@pytest.mark.parametrize("lacking", ["public.a", "public.b"])
def test_a_gap_by_a_name_that_passes_on_is_noted_where_targets_have_the_mark(lacking: str) -> None:
    """A mark by a name goes along the renames of its transaction, whosever the gap was."""
    renamed = Fate("public.a", "public.b")

    assert followed({"public.a": "END"}, [renamed], {lacking}) == {"public.b": "GAP"}
    assert followed({"public.a": "BEGIN"}, [renamed], {lacking}) == {"public.b": "BEGIN"}
    assert followed({"public.a": "END"}, [renamed], {"public.c"}) == {"public.b": "END"}


def test_a_table_that_left_and_comes_back_by_its_name_is_to_be_read() -> None:
    assert followed({"a.b": "LEFT"}, [Fate("a.b", "a.c")]) == {"a.c": "PENDING"}


@pytest.mark.parametrize("phase", ["GAP", "PENDING", "BEGIN", "CHUNK"])
def test_a_table_whose_rows_another_one_takes_leaves_it_what_is_not_known_of_them(
    phase: str,
) -> None:
    """A partition is attached: targets mark its root; or detached, from a root with a gap."""
    taken = [Fate("a.part", "a.root", is_of_rows=True), Fate("a.part", None)]

    assert followed({"a.part": phase, "a.root": "END"}, taken) == {"a.root": "GAP"}
    assert followed({"a.part": phase, "a.root": "CHUNK"}, taken) == {"a.root": "BEGIN"}
    assert followed({"a.part": "END", "a.root": "END"}, taken) == {"a.root": "END"}
    text = Upto((b"7",), target="lake").text
    assert followed_for_one({"a.part": text}, taken) == {"a.root": voided(text)}
    assert followed_for_one({}, taken) == {}


def test_a_dropped_table_has_none_and_one_made_again_has_its_own() -> None:
    gone = Fate("public.a", None)

    assert followed(LOADED, [gone]) == {"public.b": "END"}
    assert followed(LOADED, [gone, Fate("public.a", "public.a")])["public.a"] == "GAP"


def test_an_epoch_that_began_without_a_load_notes_nothing() -> None:
    gap = [Fate("public.a", "public.a")]
    assert followed({}, gap, notes_loads=False) == {}
    assert followed({}, gap) == {"public.a": "GAP"}, "the tables of its loads are gone"


def test_a_load_for_one_target_begins_again_by_what_meets_its_table() -> None:
    text = Upto((b"7",), target="lake").text
    loads = {"public.a": text, "public.b": text}

    assert followed_for_one(loads, [], {"public.a"}) == {**loads, "public.a": voided(text)}
    assert followed_for_one(loads, [], {"*"}) == dict.fromkeys(loads, voided(text))
    gap = Fate("public.a", "public.a")
    assert followed_for_one(loads, [gap]) == {**loads, "public.a": voided(text)}
    moved = followed_for_one(loads, [Fate("public.a", "public.b")])
    assert moved == {"public.b": voided(text)}
    assert followed_for_one(loads, [Fate("public.a", None)]) == {"public.b": text}
    assert followed_for_one(loads, [Fate("public.c", "public.b")]) == {"public.a": text}


def test_how_far_a_load_of_an_older_release_is_goes_on_for_all() -> None:
    assert Upto.of('{"key": ["7"], "lossy": null, "request": 3}') == Upto((b"7",), request=3)
