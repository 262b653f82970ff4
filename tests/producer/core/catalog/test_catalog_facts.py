"""What the catalog says of a table, and what the look before makes of it."""

from dataclasses import replace

import pytest

from producer.core.catalog.catalog_facts import Facts, Leaf, UsedType
from producer.core.catalog.look import CatalogVersion, Cause

OID = 100
BEFORE, NOW = 8, 11  # horizons of the look before and of this one
MOOD = UsedType(((20, 5), (22, 5)))
PAIR = UsedType(((1, 0), (2, 0)))


def plain(**more) -> Facts:
    return Facts(OID, is_root=False, **{"leaves": {OID: Leaf(OID)}, **more})


def root(**leaves: Leaf) -> Facts:
    return Facts(OID, is_root=True, leaves={int(oid[1:]): leaf for oid, leaf in leaves.items()})


def causes(facts: Facts, was: Facts | None, files: dict[int, int] | None = None) -> list[Cause]:
    version = None if was is None else CatalogVersion.parse(str(was.version(BEFORE)))
    return [doubt.cause for doubt in facts.doubts(version, files or {}, BEFORE)]


def test_a_plain_table_says_nothing_that_need_be_written() -> None:
    assert str(plain().version(NOW)) == ""
    assert causes(plain(), plain()) == causes(plain(), None) == []


@pytest.mark.parametrize(
    ("was", "now", "is_doubted"),
    [
        ("16:1", "16:1", False),
        ("16:1", "16:1,17:2", False),
        ("16:1,17:2", "17:2", False),
        ("16:1", "16:2", True),
        ("16:1", "17:1", True),
        ("16:1", "", True),
        ("", "16:1", True),
    ],
)
def test_a_table_must_be_published_by_one_entry_all_the_time(
    was: str, now: str, is_doubted: bool
) -> None:
    found = causes(plain(entries=now), plain(entries=was))
    assert found == ([Cause.ENTRIES] if is_doubted else [])


def test_a_name_counts_where_the_schema_publishes() -> None:
    assert causes(plain(name="6"), plain(name="5")) == [Cause.NAME]
    assert causes(plain(name=""), plain(name="5")) == causes(plain(name="5"), plain()) == []
    assert causes(plain(name="6", is_renamed=True), None) == [Cause.NAME]
    assert causes(plain(is_renamed=True), None) == [Cause.NAME], "all tables are published"
    assert causes(plain(entries="16:1", is_renamed=True), None) == []
    assert causes(plain(name="6"), None) == []


def test_a_new_table_had_perhaps_no_key_at_first() -> None:
    assert causes(plain(key=(7, 0), has_late_key=True), None) == [Cause.LATE_KEY]
    assert causes(plain(key=(7, 0)), None) == []
    assert causes(plain(key=(7, 0), has_late_key=True), plain(key=(7, 0))) == []


@pytest.mark.parametrize(
    ("gone", "newest", "is_doubted"),
    [((), 3, False), ((3,), 2, False), ((3,), 4, True), ((2,), 4, False), ((2, 4), 3, False)],
)
def test_a_column_that_came_and_went_before_another_may_have_had_its_name(
    gone: tuple[int, ...], newest: int, *, is_doubted: bool
) -> None:
    was = plain(ordinary=frozenset({1}), gone=frozenset({2}))
    now = plain(ordinary=frozenset({1, newest}), gone=frozenset(gone))
    assert causes(now, was) == ([Cause.AGAIN] if is_doubted else [])


def test_a_type_of_a_new_column_is_compared_with_what_made_it() -> None:
    was = plain(types={7: MOOD})
    for altered, found in (((), []), ((BEFORE - 1,), []), ((BEFORE,), [Cause.LABELS])):
        now = plain(types={7: MOOD, 8: replace(PAIR, altered=altered)})
        assert causes(now, was) == found


def test_labels_may_come_and_not_change() -> None:
    was = plain(types={7: MOOD})
    more = replace(MOOD, parts=(*MOOD.parts, (24, 9)), altered=(9,))
    for types in ({7: MOOD}, {7: more}, {7: MOOD, 8: UsedType(((30, 9),))}):
        assert causes(plain(types=types), was) == []
    for parts in (((20, 6), (22, 5)), ((20, 5), (22, 6), (24, 6)), ((20, 5),)):
        assert causes(plain(types={7: replace(MOOD, parts=parts)}), was) == [Cause.LABELS]
    assert causes(plain(types={8: MOOD}), was) == [], "it has no column of that enum now"


def test_the_order_in_which_the_catalog_is_read_is_no_difference() -> None:
    one, two = {7: MOOD, 8: PAIR}, {8: PAIR, 7: MOOD}
    assert plain(types=one).version(NOW) == plain(types=two).version(NOW)
    a, b = Leaf(1, (5,)), Leaf(2, (5,))
    assert root(_1=a, _2=b).version(NOW) == root(_2=b, _1=a).version(NOW)


def test_an_attribute_may_neither_come_nor_go() -> None:
    was = plain(types={7: PAIR})
    for parts in ((*PAIR.parts, (3, 0)), (*PAIR.parts, (3, 1)), ((1, 0), (2, 1))):
        now = plain(types={7: replace(PAIR, parts=parts)})
        assert causes(now, was) == [Cause.LABELS]
        assert causes(now, now) == [], "it was so then"


def test_of_a_new_table_a_part_counts_that_was_written_after_its_type_was_made() -> None:
    for altered, is_doubted in (((), False), ((7,), False), ((7, 9), True)):
        used = replace(MOOD, altered=altered)
        assert causes(plain(types={7: PAIR, 8: used}), None) == (
            [Cause.LABELS] if is_doubted else []
        )


@pytest.mark.parametrize(
    ("file", "without", "is_doubted"),
    [
        (OID, {3}, False),  # older rows have NULL, as nothing wrote them anew
        (OID + 1, {3}, True),
        (OID + 1, {4}, True),
        (OID + 1, {2}, False),  # it was there, so targets have its values
        (OID + 1, set(), False),  # the catalog keeps what older rows have
    ],
)
def test_what_older_rows_have_in_a_new_column_is_not_known_once_they_are_written_anew(
    file: int, without: set[int], is_doubted: bool
) -> None:
    was = plain(ordinary=frozenset({1, 2}))
    now = plain(
        ordinary=frozenset({1, 2, 3, 4}),
        leaves={OID: Leaf(file)},
        without_missing=frozenset(without),
    )
    assert (Cause.ADDED in causes(now, was, {OID: OID})) is is_doubted
    assert Cause.ADDED not in causes(now, plain(), {OID: OID}), "an earlier release did not look"


@pytest.mark.parametrize(
    ("was", "now", "is_doubted"),
    [
        ((7, 0), (7, 0), False),
        ((7, 0), (8, 0), True),
        ((7, 0), (0, 0), True),
        ((0, 0), (7, 0), True),
        ((0, 7), (0, 8), True),
        ((0, 7), (0, 0), False),  # from then on rows are told apart by all they have
        ((0, 0), (0, 7), False),
        (None, (7, 0), False),  # an earlier release did not look
        ((7, 0), None, False),
    ],
)
def test_a_key_must_be_the_same_all_the_time(was, now, is_doubted: bool) -> None:
    found = causes(plain(key=now), plain(key=was))
    assert found == ([Cause.KEY] if is_doubted else [])


def test_a_column_that_was_generated_lacks_its_older_values() -> None:
    was = plain(generated=frozenset({3}), ordinary=frozenset({1, 2}))
    assert causes(was, was) == causes(replace(was, ordinary=frozenset({1, 2, 4})), was) == []
    assert plain(generated=frozenset({16, 3})).version(BEFORE).generated == "3,16"
    dropped = plain(ordinary=frozenset({1, 2}))
    assert causes(dropped, was) == []
    (doubt,) = plain(ordinary=frozenset({1, 2, 3})).doubts(was.version(BEFORE), {}, BEFORE)
    assert (doubt.cause, doubt.is_certain) == (Cause.GENERATED, True)


def test_partitions_that_are_made_are_no_doubt_and_others_are() -> None:
    a, b = Leaf(1, (5,)), Leaf(2, (5,))
    born, attached = Leaf(3, (9,)), Leaf(3, (9,), is_born=False)
    was = root(_1=a, _2=b)
    assert causes(root(_1=a, _2=b, _3=born), was) == causes(root(_3=born), None) == []
    assert causes(root(_1=a, _2=b, _3=attached), was) == [Cause.PARTS]
    assert causes(root(_3=attached), None) == [Cause.PARTS]
    again = root(_1=a, _2=replace(b, is_born=False, joined=(9,)))
    for facts, is_certain in ((root(_1=a), True), (again, True)):
        (doubt,) = facts.doubts(was.version(BEFORE), {1: 1, 2: 2}, BEFORE)
        assert (doubt.cause, doubt.is_certain) == (Cause.PARTS, is_certain)
    moved = root(_1=a, _2=replace(b, joined=(6,)))
    (doubt,) = moved.doubts(was.version(BEFORE), {1: 1, 2: 2}, BEFORE)
    assert (doubt.cause, doubt.is_certain) == (Cause.PARTS, False)


def test_a_partition_that_is_younger_than_the_horizon_is_looked_at_once() -> None:
    """Else a reader, who has only the version, would doubt it for as long as nothing changes."""
    a, young = Leaf(1, (5,)), Leaf(9, (9,), is_born=False)
    was, now = root(_1=a), root(_1=a, _2=young)
    assert causes(now, was) == [Cause.PARTS, Cause.FILES]
    assert causes(now, now) == causes(root(_1=a, _2=young, _3=Leaf(3, (10,))), now) == []
    assert now.version(NOW, now.version(BEFORE)) == now.version(BEFORE)
    assert Cause.PARTS in causes(was, now), "it was detached"
    assert Cause.PARTS in causes(root(_1=a, _2=replace(young, joined=(10,))), now), "and again"
    assert Cause.FILES in causes(root(_1=a, _2=replace(young, file=10)), now)


def test_partitions_are_compared_as_of_the_horizon_of_their_own_version() -> None:
    """A table that was read behind the look before has a later one."""
    both = root(_1=Leaf(1, (5,)), _2=Leaf(2, (9,)))
    was = both.version(NOW)
    assert list(both.doubts(was, {}, BEFORE)) == []
    assert both.version(NOW + 5, was) == was, "a look that shows the same is not another version"
    more = root(_1=Leaf(1, (5,)), _2=Leaf(2, (9,)), _3=Leaf(3, (13,)))
    assert more.version(NOW + 5, was) == more.version(NOW + 5) != was
    assert root(_1=Leaf(1, (5,)), _2=Leaf(2, (10,))).version(NOW + 5, was) != was


@pytest.mark.parametrize(
    ("was", "now", "files", "suspected"),
    [
        ({OID: Leaf(OID)}, {OID: Leaf(9)}, {}, [OID]),
        ({OID: Leaf(9)}, {OID: Leaf(9)}, {}, []),
        ({OID: Leaf(9)}, {OID: Leaf(8)}, {OID: 9}, [OID]),
        (None, {OID: Leaf(9)}, {}, [OID]),
        (None, {OID: Leaf(OID)}, {}, []),
        ({1: Leaf(1), 2: Leaf(2)}, {1: Leaf(1), 2: Leaf(9)}, {}, [1, 2]),
        ({1: Leaf(1), 2: Leaf(2)}, {1: Leaf(1), 2: Leaf(9)}, {1: 1, 2: 2}, [2]),
        ({1: Leaf(1)}, {1: Leaf(1), 3: Leaf(3, (9,))}, {}, []),
        ({1: Leaf(1)}, {1: Leaf(1), 3: Leaf(9, (9,))}, {}, [3]),
    ],
)
def test_a_file_is_suspected_where_it_is_not_the_one_before_or_the_first_one(
    was: dict[int, Leaf] | None, now: dict[int, Leaf], files: dict[int, int], suspected: list[int]
) -> None:
    def facts(leaves: dict[int, Leaf]) -> Facts:
        return Facts(OID, is_root=OID not in leaves, leaves=leaves)

    before = None if was is None else facts(was).version(BEFORE)
    found = [
        each.leaf
        for doubt in facts(now).doubts(before, files, BEFORE)
        if doubt.cause is Cause.FILES
        for each in doubt.rewritten
    ]
    assert found == suspected
