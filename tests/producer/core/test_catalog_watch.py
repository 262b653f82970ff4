"""What the catalog shows and the stream did not tell, without a catalog or a stream."""

from dataclasses import replace

import pytest

from producer.core.catalog_watch import (
    Altered,
    CatalogWatch,
    Described,
    Dropped,
    Finding,
    Look,
    Part,
    Seen,
    Unseen,
    differences,
)
from schemas.tables import Column, TableId, TableSchema, UserType

A, B = TableId("public", "a"), TableId("public", "b")
MOOD = UserType("e", "mood", labels=("sad", "ok"))
TABLE = TableSchema(
    A,
    (Column("id", 23, number=1), Column("m", 16400, user_type=MOOD, number=2)),
    ("id",),
    identity_columns=("id",),
    oid=100,
)


def seen(table: TableSchema, **changes) -> Seen:
    made = Seen(
        table.id, table.oid, is_partitioned=False, is_logged=True, is_published=True, shape=table
    )
    return replace(made, **changes)


def look(*tables: Seen, lsn: int = 10, missing: tuple[TableId, ...] = (), signature="x") -> Look:
    return Look(lsn, {each.oid: each for each in tables}, missing, signature)


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
        ({"id": TableId("other", "a"), "is_published": False}, "it is other.a now"),
    ],
)
def test_a_table_whose_changes_do_not_come_is_unseen(changes: dict[str, object], why: str) -> None:
    (one,) = found(TABLE, look(seen(TABLE, **changes)))

    assert isinstance(one, Unseen)
    assert why in one.why
    assert one.gap.table == "public.a"


def test_a_partitioned_table_is_published_by_its_partitions() -> None:
    assert found(TABLE, look(seen(TABLE, is_published=False, is_partitioned=True))) == []


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


def watch() -> CatalogWatch:
    return CatalogWatch(wanted={A, B}.__contains__, publication="p")


def test_a_look_is_judged_when_the_stream_has_passed_it() -> None:
    watching, known = watch(), {A: TABLE}
    watching.take(look(lsn=10), known)

    assert watching.judge(9, known, reports_ddl=False) == []
    assert watching.is_waiting
    assert watching.judge(10, known, reports_ddl=False) == [Dropped(A, TABLE)]
    assert not watching.is_waiting
    assert watching.judge(11, known, reports_ddl=False) == []


def test_what_the_stream_described_since_the_look_is_left_to_the_next_one() -> None:
    watching, known = watch(), {A: TABLE}
    watching.take(look(lsn=10), known)
    altered = {A: replace(TABLE, columns=TABLE.columns[:1])}

    assert watching.judge(10, altered, reports_ddl=False) == []
    assert watching.signature == "", "the catalog is read again, though it is the same"


def test_a_finding_is_said_once_and_a_settled_look_is_remembered() -> None:
    watching, known = watch(), {A: TABLE}
    unseen = look(seen(TABLE, is_published=False))
    for count in (1, 0):
        watching.take(unseen, known)
        assert len(watching.judge(10, known, reports_ddl=False)) == count
        assert watching.signature == ("" if count else "x")
    watching.take(look(seen(TABLE)), known)
    assert watching.judge(10, known, reports_ddl=False) == []
    watching.take(unseen, known)
    assert len(watching.judge(10, known, reports_ddl=False)) == 1, "it left once more"


def test_only_tables_that_are_new_are_said_to_be_missing() -> None:
    watching = watch()

    assert watching.take(look(missing=(A,)), {}) == []
    assert watching.take(look(missing=(A, B)), {}) == [B]
    assert watching.take(look(missing=(A, B)), {}) == []


BORN = Part(1, is_empty=False, is_born=True)


@pytest.mark.parametrize(
    ("after", "why"),
    [
        ({7: BORN, 8: Part(9, is_empty=False, is_born=True)}, None),
        ({7: replace(BORN, filenode=2)}, None),
        ({7: replace(BORN, filenode=2, is_empty=True)}, "emptied"),
        ({7: BORN, 8: Part(9, is_empty=False, is_born=False)}, "attached"),
        ({}, "lost 1"),
    ],
)
def test_what_happens_to_partitions_of_a_root_shows_between_two_looks(
    after: dict[int, Part], why: str | None
) -> None:
    watching, known = watch(), {A: TABLE}
    for parts in ({7: BORN}, after):
        watching.take(look(seen(TABLE, is_partitioned=True, parts=parts)), known)
        said = watching.judge(10, known, reports_ddl=False)

    assert [str(why) in str(finding) for finding in said] == ([True] if why else [])


def test_a_table_that_left_the_publication_and_came_back_lacks_what_came_between() -> None:
    watching, known = watch(), {A: TABLE}
    for membership in (5, 5, 6):
        watching.take(look(seen(TABLE, membership=membership)), known)
        said = watching.judge(10, known, reports_ddl=False)
        assert [finding.kind for finding in said] == (["suspected"] if membership == 6 else [])


def test_a_root_that_the_stream_truncated_explains_its_empty_partitions() -> None:
    empty = {7: replace(BORN, filenode=2, is_empty=True)}
    for emptied_before in (False, True):  # the stream may be ahead of the look before
        watching, known = watch(), {A: TABLE}
        watching.take(look(seen(TABLE, is_partitioned=True, parts={7: BORN})), known)
        watching.judge(10, known, reports_ddl=False, emptied={A} if emptied_before else ())
        watching.take(look(seen(TABLE, is_partitioned=True, parts=empty)), known)

        said = watching.judge(10, known, reports_ddl=False, emptied=() if emptied_before else {A})
        assert said == []


def test_what_happens_again_is_said_again() -> None:
    watching, known = watch(), {A: TABLE}
    watching.take(look(seen(TABLE, is_partitioned=True, parts={7: BORN})), known)
    watching.judge(10, known, reports_ddl=False)
    for filenode in (2, 3):
        parts = {7: replace(BORN, filenode=filenode, is_empty=True)}
        watching.take(look(seen(TABLE, is_partitioned=True, parts=parts)), known)
        assert len(watching.judge(10, known, reports_ddl=False)) == 1, "it may be read in between"


def test_a_table_that_may_have_been_emptied_is_suspected_unless_that_is_known() -> None:
    watching, known = watch(), {A: TABLE, B: replace(TABLE, id=B, oid=101)}
    now = Look(10, {}, is_of_files=True, emptied=(A, B))

    def said(**how) -> list[str]:
        watching.take(now, known)
        found = watching.judge(10, how.pop("then", known), reports_ddl=False, **how)
        assert {finding.gap.kind for finding in found} <= {"suspected"}
        return [finding.gap.table for finding in found]

    assert said() == ["public.a", "public.b"]
    assert said(is_marked=lambda table: table == A) == ["public.b"], "it is to be read anyhow"
    altered = replace(TABLE, columns=TABLE.columns[:1])
    assert said(then={**known, A: altered}) == ["public.b"], "the stream told of it since"
    first_row = replace(TABLE, columns=tuple(replace(c, number=0) for c in TABLE.columns))
    assert said(then={**known, A: first_row}) == ["public.a", "public.b"]
    assert said(emptied={B}) == ["public.a"], "the stream told a TRUNCATE"
    assert said() == ["public.a"], "perhaps behind the look before"
    watching.take(now, known)
    watching.read_again(A)
    watching.read_again(B)
    assert watching.judge(10, known, reports_ddl=False) == [], "both were read since"


def test_with_triggers_a_table_that_leaves_the_publication_is_noticed() -> None:
    watching, known = watch(), {A: TABLE}
    unpublished = look(seen(TABLE, is_published=False))
    watching.take(unpublished, known)
    assert watching.judge(10, known, reports_ddl=True) == [], "it may be reported and not published"
    for now in (look(seen(TABLE)), unpublished):
        watching.take(now, known)
        said = watching.judge(10, known, reports_ddl=True)

    assert [type(finding) for finding in said] == [Unseen]
