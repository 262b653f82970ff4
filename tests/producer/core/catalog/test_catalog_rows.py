"""What a catalog's rows amount to."""

from dataclasses import replace

import pytest

from producer.core.catalog.catalog_rows import (
    PlainIndex,
    TypeRow,
    as_sent,
    attributes_changed,
    not_sent,
    reads_otherwise,
    table_schema,
    user_types,
)
from schemas.tables import Column, ReplicaIdentity, TableId, Unique, UserType
from schemas.types import unseen_renames

ID = TableId("public", "t")
COLUMNS = [Column("v", 25), Column("id", 23, nullable=False), Column("code", 25, nullable=False)]
PRIMARY = PlainIndex("t_pkey", ("id",), is_primary=True, is_unique=True, is_identity=False)
CODE = PlainIndex("t_code", ("code",), is_primary=False, is_unique=True, is_identity=True)


@pytest.mark.parametrize(
    ("identity", "indexes", "key", "unique", "carried"),
    [
        (ReplicaIdentity.DEFAULT, [PRIMARY, CODE], ("id",), ["t_code"], ("id",)),
        (ReplicaIdentity.FULL, [PRIMARY, CODE], ("id",), ["t_code"], ("v", "id", "code")),
        (ReplicaIdentity.NOTHING, [PRIMARY, CODE], ("id",), ["t_code"], ()),
        # The stream names rows by the index alone, whatever the primary key is.
        (ReplicaIdentity.INDEX, [PRIMARY, CODE], ("code",), [], ("code",)),
        (ReplicaIdentity.INDEX, [CODE], ("code",), [], ("code",)),
        (ReplicaIdentity.DEFAULT, [CODE], (), ["t_code"], ()),
    ],
)
def test_the_key_is_what_names_a_row_in_the_stream(
    identity: ReplicaIdentity,
    indexes: list[PlainIndex],
    key: tuple[str, ...],
    unique: list[str],
    carried: tuple[str, ...],
) -> None:
    shape = table_schema(ID, identity, COLUMNS, indexes)

    assert (shape.key, shape.identity_columns) == (key, carried)
    assert shape.unique == tuple(Unique(name, ("code",)) for name in unique)


def test_types_of_thousands_of_types_are_described_all_the_same() -> None:
    """Any role may create a domain over a domain …, or a composite of two of the one before."""
    domains = {
        20_000 + n: ("d", f"d{n}", f"d{n - 1}", 19_999 + n, -1, ",", ()) for n in range(3000)
    }
    pairs = {
        30_000 + n: ("c", f"c{n}", "", 0, -1, ",", (f"1:{29_999 + n}:-1", f"2:{29_999 + n}:-1"))
        for n in range(1, 300)
    }
    first = {30_000: ("c", "c0", "", 0, -1, ",", ("1:23:-1",))}
    altered = {30_000: ("c", "c0", "", 0, -1, ",", ("1:20:-1",))}

    found = user_types(domains | pairs | first, [22_999, 30_020])
    after = user_types(domains | pairs | altered, [22_999, 30_020])

    depth, at = 0, found[22_999]
    while at.of is not None:
        depth, at = depth + 1, at.of
    assert depth < 100
    assert at.kind == "b"
    assert len(found[30_020].labels) < 5000
    assert found[22_999] == after[22_999]
    assert found[30_020] != after[30_020]  # what changed far below is noticed


def test_a_key_that_is_not_checked_at_once_or_an_index_that_is_not_unique_names_no_row() -> None:
    late = PlainIndex("t_late", ("id",), is_primary=False, is_unique=False, is_identity=False)

    shape = table_schema(ID, ReplicaIdentity.DEFAULT, COLUMNS, [late, CODE])

    assert (shape.key, [unique.name for unique in shape.unique]) == ((), ["t_code"])


def test_generated_columns_are_in_no_shape_that_is_sent() -> None:
    made = Column("made", 23, generated=True)
    sent = table_schema(ID, ReplicaIdentity.FULL, [*COLUMNS, made], [PRIMARY, CODE])
    assert sent.identity_columns == ("v", "id", "code")
    plain = table_schema(ID, ReplicaIdentity.DEFAULT, COLUMNS, [PRIMARY, CODE])
    assert as_sent(plain) is plain

    of_made = replace(
        plain,
        columns=(*plain.columns, made),
        unique=(Unique("u", ("made", "v")), Unique("t_code", ("code",))),
        identity_columns=("id", "made"),
    )
    shape = as_sent(of_made)
    assert shape.columns == plain.columns
    assert (shape.key, shape.identity_columns) == (("id",), ("id",))
    assert [unique.name for unique in shape.unique] == ["t_code"]
    assert as_sent(replace(of_made, key=("id", "made"))).key == ()
    assert not_sent(plain) == ""
    assert not_sent(of_made).endswith("not copied: made")


MOOD = ("e", "mood", "", 0, -1, ",", ("sad", "ok"))
MOODS = ("a", "_mood", "", 50, -1, ";", ())
PAIR = ("c", "pair", "", 0, -1, ",", ("1:23:-1", "2:50:-1"))
SMALL = ("d", "small", "integer", 23, 7, ",", ())
INTEGERS = ("a", "_int4", "integer", 23, -1, ",", ())  # built in: its oid says all
ALL = {50: MOOD, 51: MOODS, 52: PAIR, 53: SMALL, 1007: INTEGERS}


def test_types_are_described_by_what_they_are_made_of() -> None:
    found = user_types(ALL, [23, 50, 51, 52, 53, 99, 1007])

    mood = UserType("e", "mood", labels=("sad", "ok"))
    assert found == {
        50: mood,
        51: UserType("a", "_mood", "", 50, -1, ";", (), mood),
        52: UserType("c", "pair", "", 0, -1, ",", ("1:23:-1", "2:50:-1", "=sad", "=ok")),
        53: UserType("d", "small", "integer", 23, 7, ",", ()),
    }


@pytest.mark.parametrize(
    ("kind", "inner", "is_naming"),
    [("d", 2205, True), ("a", 2206, True), ("r", 24, True), ("d", 25, False)],
)
def test_a_composite_says_that_a_type_of_users_in_it_names_objects(
    kind: str, inner: int, is_naming: bool
) -> None:
    said: dict[int, TypeRow] = {
        30_001: (kind, "hidden", "", inner, -1, ",", ()),
        30_002: ("d", "over", "", 30_001, -1, ",", ()),
        30_003: ("c", "of_it", "", 0, -1, ",", ("1:30001:-1",)),
        30_004: ("c", "of_over", "", 0, -1, ",", ("1:30002:-1",)),
        30_005: ("c", "of_both", "", 0, -1, ",", ("1:30003:-1", "2:30004:-1")),
    }

    for oid in (30_003, 30_004, 30_005):
        assert bool(unseen_renames([typed(oid, said)])) == is_naming


def attributes(column: Column) -> tuple[str, ...]:
    """What the composites in a column's values are made of."""
    said = column.user_type
    while said is not None and said.kind != "c":
        said = said.of
    return () if said is None else said.labels


def typed(oid: int, types: dict[int, TypeRow]) -> Column:
    return Column("v", oid, user_type=user_types(types, [oid])[oid])


def parts(*said: str) -> dict[int, TypeRow]:
    return {**ALL, 52: (*PAIR[:6], said), 54: ("a", "_pair", "", 52, -1, ",", ())}


def moods(*labels: str) -> dict[int, TypeRow]:
    return {**parts(*PAIR[6]), 50: (*MOOD[:6], labels)}


@pytest.mark.parametrize(
    ("now", "is_otherwise"),
    [
        (parts("1:23:-1", "2:50:-1"), False),
        (parts("1:23:-1", "2:50:-1", "3:25:-1"), True),
        (parts("1:23:-1"), True),
        (parts("2:50:-1", "1:23:-1"), True),
        (moods("sad", "ok", "glad"), False),
        (moods("ok", "sad"), False),  # the labels are still there; their order is not printed
        (moods("sad"), True),
    ],
)
def test_a_composite_reads_otherwise_where_its_attributes_changed_or_a_label_went(
    now: dict[int, TypeRow], is_otherwise: bool
) -> None:
    for oid in (52, 54):
        was = typed(oid, parts("1:23:-1", "2:50:-1"))
        assert attributes(was) == ("1:23:-1", "2:50:-1", "=sad", "=ok")
        assert reads_otherwise(was, typed(oid, now)) is is_otherwise
    assert not reads_otherwise(Column("v", 23), typed(52, now)), "nothing is known of it"
    assert attributes_changed(("1:23:-1",), ())


def test_labels_below_arrays_and_domains_of_an_attribute_count() -> None:
    types = {**ALL, 55: ("c", "deep", "", 0, -1, ",", ("1:51:-1", "2:53:-1", "3:52:-1"))}

    assert attributes(typed(55, types)) == (
        *("1:51:-1", "2:53:-1", "3:52:-1", "=sad", "=ok"),
        *("1:23:-1", "2:50:-1", "=sad", "=ok"),
    )
    assert attributes(Column("v", 23)) == ()
    assert attributes(typed(50, types)) == ()


@pytest.mark.parametrize(("count", "is_digest"), [(2_000, False), (2_001, True)])
def test_too_many_attributes_are_a_digest(count: int, is_digest: bool) -> None:
    wide = {60: ("c", "wide", "", 0, -1, ",", tuple(f"{n}:23:-1" for n in range(count)))}

    (first, *rest) = attributes(typed(60, wide))

    assert first.startswith("#") is is_digest
    assert len(rest) == (0 if is_digest else count - 1)
    labels = tuple(map(str, range(count)))
    said = typed(60, {60: (*MOOD[:6], labels)}).user_type
    assert said is not None
    assert said.labels == labels, "their order is needed"


@pytest.mark.parametrize(("depth", "kind"), [(40, "b"), (39, "d")])
def test_a_type_that_is_nested_too_deep_is_text(depth: int, kind: str) -> None:
    domains = {n: ("d", f"d{n}", "", n - 1, -1, ",", ()) for n in range(20_001, 20_100)}
    domains[20_000] = ("d", "d20000", "integer", 23, -1, ",", ())

    at = user_types(domains, [20_000 + depth])[20_000 + depth]
    while at.of is not None:
        at = at.of

    assert (at.name, at.kind) == ("d20000", kind)
    composites = {
        n: ("c", f"c{n}", "", 0, -1, ",", (f"1:{n - 1}:-1",)) for n in range(20_001, 30_000)
    }
    composites[20_000] = ("c", "c20000", "", 0, -1, ",", ("1:23:-1",))
    parts = attributes(typed(20_000 + depth, composites))
    assert len(parts) == (40 if kind == "b" else depth + 1)
    assert user_types(composites, [29_999])
