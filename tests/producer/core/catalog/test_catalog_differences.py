"""What a look shows and the stream did not describe, without a catalog or a stream."""

from dataclasses import replace

import pytest

from producer.core.catalog.catalog_differences import (
    Altered,
    Described,
    Dropped,
    Finding,
    Unseen,
    differences,
    relation_of,
)
from producer.core.catalog.look import Look
from schemas.tables import Column, TableId, TableSchema, UserType
from tests.producer.core.looks import MOOD, TABLE, A, B, look, seen


def found(table: TableSchema, now: Look, *, reports_ddl: bool = False) -> list[Finding]:
    wanted = {A, B}.__contains__
    return [
        *differences(
            {table.id: table}, now, wanted=wanted, publication="p", reports_ddl=reports_ddl
        ),
    ]


def labelled(*labels: str) -> TableSchema:
    column = replace(TABLE.columns[1], user_type=replace(MOOD, labels=labels))
    return replace(TABLE, columns=(TABLE.columns[0], column))


@pytest.mark.parametrize("reports_ddl", [True, False])
def test_what_is_as_the_stream_described_it_is_not_a_finding(reports_ddl: bool) -> None:
    assert found(TABLE, look(seen(TABLE)), reports_ddl=reports_ddl) == []
    unnumbered = replace(TABLE, columns=tuple(replace(c, number=0) for c in TABLE.columns), oid=0)
    assert found(unnumbered, look(seen(TABLE)), reports_ddl=reports_ddl) == []


def test_a_table_that_is_gone_was_dropped() -> None:
    assert found(TABLE, look()) == [Dropped(A, TABLE)]


def test_a_table_made_again_is_unseen_where_it_is_not_published() -> None:
    again = replace(TABLE, oid=200)

    (one,) = found(TABLE, look(seen(again, is_published=False, shape=None)))
    assert isinstance(one, Unseen)
    assert 'ALTER PUBLICATION "p" ADD TABLE "public"."a"' in one.why
    (two,) = found(TABLE, look(seen(again)))
    assert isinstance(two, Described)
    assert two.relation.relation == 200
    (three,) = found(TABLE, look(seen(again)), reports_ddl=True)
    assert isinstance(three, Unseen)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"is_logged": False, "is_published": False}, "UNLOGGED"),
        ({"is_published": False}, "is not in publication p"),
        ({"is_published": False, "partly": "has a WHERE for it"}, "p has a WHERE for it"),
        ({"id": TableId("other", "a"), "is_published": False}, "it is other.a now"),
    ],
)
def test_a_table_whose_changes_do_not_come_is_unseen(changes: dict[str, object], why: str) -> None:
    (one,) = found(TABLE, look(seen(TABLE, **changes)))

    assert isinstance(one, Unseen)
    assert why in one.why
    assert one.gap.table == "public.a"


@pytest.mark.parametrize(
    ("changes", "way"),
    [
        ({}, "as those of its root, which [tables] does not name"),
        ({"is_partitioned": True}, "SET (publish_via_partition_root = true)"),
        ({"is_logged": False}, 'ALTER TABLE "public"."a" SET LOGGED'),
    ],
)
def test_nothing_is_added_to_a_publication_of_all_tables(
    changes: dict[str, object], way: str
) -> None:
    again = seen(replace(TABLE, oid=200), is_published=False, shape=None, **changes)

    (one,) = found(TABLE, look(again, all_tables=True))

    assert isinstance(one, Unseen)
    assert way in one.why
    assert "ADD TABLE" not in one.why


def test_a_partitioned_table_that_is_sent_as_no_table_is_unseen() -> None:
    (one,) = found(TABLE, look(seen(TABLE, is_published=False, is_partitioned=True)))

    assert isinstance(one, Unseen)
    assert "ADD TABLE" in one.why


@pytest.mark.parametrize("reports_ddl", [True, False])
@pytest.mark.parametrize(
    "changes", [{"sent_as": (B,)}, {"sent_as": (A, B), "is_partitioned": True}, {"sent_as": ()}]
)
def test_a_table_that_is_sent_under_other_names_goes(
    changes: dict[str, object], *, reports_ddl: bool
) -> None:
    now = look(seen(TABLE, is_published=False, **changes))

    (one,) = found(TABLE, now, reports_ddl=reports_ddl)

    assert isinstance(one, Dropped)
    assert one.known is TABLE
    assert "targets drop its own table" in str(one)


@pytest.mark.parametrize("reports_ddl", [False, True])
def test_a_table_in_whose_place_a_partitioned_one_was_made_is_dropped(*, reports_ddl: bool) -> None:
    """A publication of all tables sends its partitions: nobody could end a mark of its own name."""
    root = seen(TABLE, oid=200, is_published=False, is_partitioned=True, sent_as=(B,))

    (one,) = found(TABLE, look(root, all_tables=True), reports_ddl=reports_ddl)

    assert isinstance(one, Dropped)
    assert "is sent as public.b now" in str(one)


def test_a_table_that_is_sent_as_one_that_is_not_captured_has_a_gap() -> None:
    now = look(seen(TABLE, is_published=False, sent_as=(TableId("other", "root"),)))

    (one,) = found(TABLE, now)

    assert isinstance(one, Unseen)


@pytest.mark.parametrize(
    "now",
    [
        replace(TABLE, columns=(*TABLE.columns, Column("n", 23, number=3))),
        replace(TABLE, columns=TABLE.columns[:1]),
        replace(TABLE, key=(), identity_columns=()),
        replace(TABLE, id=B),
        replace(TABLE, columns=(TABLE.columns[0], replace(TABLE.columns[1], number=3))),
    ],
)
def test_another_shape_is_described_as_the_next_row_would(now: TableSchema) -> None:
    (one,) = found(TABLE, look(seen(now)))

    assert isinstance(one, Described)
    assert one.relation.table == now.id.name
    assert str(one) == "public.a " + ("is public.b now" if now.id == B else "has another shape")
    assert [c.name for c in one.relation.columns] == list(now.names())
    assert [c.name for c in one.relation.columns if c.identity] == list(now.identity_columns)


def test_a_table_that_left_tables_and_has_a_name_of_theirs_is_described() -> None:
    left = replace(TABLE, id=TableId("public", "left"))
    hidden = seen(replace(TABLE, id=TableId("public", "hidden")))

    assert found(left, look(seen(TABLE))) == [Described(left.id, relation_of(TABLE))]
    assert found(left, look(seen(TABLE, is_published=False))) == []
    assert found(left, look(hidden)) == found(left, look(seen(left))) == []


def test_labels_may_be_added_and_not_renamed() -> None:
    for labels in (("sad", "ok", "glad"), ("worse", "sad", "so so", "ok")):
        assert found(TABLE, look(seen(labelled(*labels)))) == []
    for labels in (("glad", "ok"), ("ok", "sad"), ("sad",)):
        now = labelled(*labels)
        (one,) = found(TABLE, look(seen(now)))
        assert isinstance(one, Altered)
        assert (one.before, one.after) == (TABLE, now)


def test_labels_below_an_array_or_domain_and_attributes_count() -> None:
    def column(kind: str, labels: tuple[str, ...], of: UserType | None) -> TableSchema:
        made = UserType(kind, "t", type_oid=5, labels=labels, of=of)
        return replace(TABLE, columns=(Column("v", 16500, user_type=made),), key=())

    other = replace(MOOD, labels=("glad", "ok"))
    for before, after in (
        (column("a", (), MOOD), column("a", (), other)),
        (column("c", ("1:23:-1",), None), column("c", ("1:23:-1", "2:23:-1"), None)),
    ):
        assert found(before, look(seen(before))) == []
        (one,) = found(before, look(seen(after)))
        assert isinstance(one, Altered)


def test_an_enum_of_a_composite_may_get_labels_too() -> None:
    def holds(*labels: str) -> TableSchema:
        made = UserType("c", "pair", labels=("1:16400:-1", *labels, "2:23:-1"))
        return replace(TABLE, columns=(Column("p", 16500, user_type=made),), key=())

    assert found(holds("=sad"), look(seen(holds("=sad", "=ok")))) == []
    (one,) = found(holds("=sad"), look(seen(holds("=glad"))))
    assert isinstance(one, Altered)


def test_a_type_that_was_made_again_is_another_column_and_no_matter_of_labels() -> None:
    for made in (replace(MOOD, labels=("glad",), type_oid=7), replace(MOOD, kind="d", labels=())):
        now = replace(TABLE.columns[1], user_type=made)
        assert found(TABLE, look(seen(replace(TABLE, columns=(TABLE.columns[0], now))))) == []


def test_findings_say_what_became_of_a_table() -> None:
    assert str(Dropped(A, TABLE)) == f"{A} was dropped"
    assert str(Altered(A, TABLE, TABLE, "another type")) == f"{A}: another type"
