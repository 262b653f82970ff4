"""Looks are judged when the stream has passed them, without a catalog or a stream."""

from dataclasses import replace

import pytest

from producer.core.catalog.catalog_differences import Described, Dropped, Finding, Unseen
from producer.core.catalog.catalog_watch import _MOVED, CatalogWatch
from producer.core.catalog.look import (
    Before,
    CatalogVersion,
    Cause,
    Doubt,
    Look,
    Rewritten,
    Told,
    Unchanged,
    since,
)
from producer.core.shape_change import ShapeChange, StatementChanges
from schemas.control import Hole, Looked, Moved, Origin
from schemas.positions import Lsn
from schemas.tables import TableId, UserType
from tests.producer.core.looks import TABLE, A, B, look, seen

FILES = {Cause.FILES: {A}}


def watch() -> CatalogWatch:
    return CatalogWatch(wanted={A, B}.__contains__, publication="p")


def test_a_reader_names_what_nobody_has_judged_yet() -> None:
    before = Before(5, "1:2", {})
    doubted = look(seen(TABLE, doubts=(Doubt(Cause.PARTS),)), publication="1:2")
    renamed = {B: replace(TABLE, id=B)}

    assert list(since(None, doubted)) == []
    assert list(since(before, look(seen(TABLE), publication="1:2"))) == []
    assert list(since(before, doubted)) == ["public.a has changed in the catalog"]
    assert list(since(before, doubted, renamed)) == ["public.b has changed in the catalog"]
    assert list(since(before, doubted, renamed, {"public.b"})) == list(since(before, doubted, {}))
    assert list(since(before, doubted, {})) == [], "the stream has not brought it"
    altered = replace(before, publication="1:3")
    assert list(since(altered, doubted)) == ["the publication was altered"]


ROOT = replace(TABLE, id=B, oid=200)
MOVED = Unseen(B, _MOVED, "suspected")
IN, OUT = CatalogVersion("9:1", name="5"), CatalogVersion("9:1", name="8")


def moved(was: CatalogVersion | None, now: CatalogVersion | None, **how) -> CatalogWatch:
    """Judge a look at a root, 200, with the partition 100 below it; None: it is not published."""
    versions = {} if was is None else {"200": str(was)}
    watching = CatalogWatch(
        wanted={A, B}.__contains__, publication="p", looked=Looked(5, "1:2", versions)
    )
    judge(watching, now, **how)
    return watching


def judge(
    watching: CatalogWatch, now: CatalogVersion | None, horizon: int = 20, unseen: int = 20
) -> list[Finding]:
    was = watching.before.versions.get(200) if watching.before else None
    is_named_anew = now is not None and (was is None or was.name != now.name)
    root = seen(
        ROOT,
        is_partitioned=True,
        is_published=now is not None,
        version=now,
        doubts=(Doubt(Cause.NAME),) if is_named_anew else (),
    )
    shown = look(
        root, seen(TABLE, is_published=False, sent_as=(B,)), publication="1:2", horizon=horizon,
        first_unseen=unseen, below={200: frozenset({100})},
    )  # fmt: skip
    watching.take(shown, {B: ROOT})
    return watching.judge(Lsn(10), {B: ROOT}, reports_ddl=True, told=told(Cause.NAME))


def told(*causes: Cause) -> Told:
    return Told(stated={cause: {A, B} for cause in causes}, described={A, B})


@pytest.mark.parametrize(("was", "now"), [(IN, OUT), (IN, None), (None, OUT)])
def test_a_root_that_was_moved_outlives_the_session_once(
    was: CatalogVersion | None, now: CatalogVersion | None
) -> None:
    """Whatever statements explain: pgoutput goes on under the former name."""
    watching = moved(was, now)

    assert watching.has_outlived
    assert watching.looked is not None
    assert watching.looked.tables == ({} if now is None else {"200": str(now)})
    judge(watching, now)
    assert not watching.has_outlived, "the next session knows it"


def test_a_root_that_stays_does_not_outlive_the_session() -> None:
    assert not moved(IN, IN).has_outlived
    assert not moved(None, None).has_outlived
    assert not moved(IN._replace(name=""), None).has_outlived, "it is published by its own name"


def test_a_root_is_suspected_until_no_transaction_knows_its_former_name() -> None:
    watching = moved(IN, IN)

    assert MOVED in judge(watching, OUT, horizon=15, unseen=20)
    assert not watching.has_outlived
    assert watching.looked is not None
    assert watching.looked.tables == {"200": str(IN)}, "a crash does not make it forget"
    assert MOVED in judge(watching, OUT, horizon=19, unseen=30)
    assert not watching.has_outlived
    assert MOVED in judge(watching, OUT, horizon=20, unseen=40)
    assert watching.has_outlived
    assert judge(watching, OUT, horizon=20, unseen=50) == []


def test_what_happened_is_said_before_the_rename_that_a_look_shows() -> None:
    """The name of the gap is the one before it; a gap of the old name behind it is nobody's."""
    watching = CatalogWatch(
        wanted={A, B}.__contains__, publication="p", looked=Looked(5, "1:2", {"100": str(IN)})
    )
    renamed = seen(replace(TABLE, id=B), version=OUT, doubts=(Doubt(Cause.NAME),))
    watching.take(look(renamed, publication="1:2"), {A: TABLE})

    gap, shape = watching.judge(Lsn(10), {A: TABLE}, reports_ddl=False)

    assert isinstance(gap, Unseen)
    assert gap.table == A
    assert isinstance(shape, Described)


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


def test_a_shape_that_the_stream_took_back_between_two_looks_is_described_again() -> None:
    """Half of the event triggers were off: DROP COLUMN is told, ADD COLUMN is not."""
    narrow = replace(TABLE, columns=TABLE.columns[:1])
    watching = watch()
    for told in (narrow, replace(narrow)):
        watching.take(look(seen(TABLE)), {A: told})
        (found,) = watching.judge(10, {A: told}, reports_ddl=True)
        assert isinstance(found, Described)

        watching.take(look(seen(TABLE)), {A: told})
        assert watching.judge(10, {A: told}, reports_ddl=True) == [], "it had no effect"


@pytest.mark.parametrize("reports_ddl", [True, False])
def test_a_table_that_is_sent_under_another_name_goes_without_a_mark(*, reports_ddl: bool) -> None:
    """Nobody could end it: no row of this name comes any more."""
    version = CatalogVersion(entries="1:5")
    was = Before(5, "1:5", {TABLE.oid: version})
    watching = CatalogWatch(wanted={A, B}.__contains__, publication="p", looked=was.looked())
    attached = seen(TABLE, is_published=False, sent_as=(B,), doubts=(Doubt(Cause.PARTS),))
    watching.take(look(attached, publication="1:6"), {A: TABLE})

    (one,) = watching.judge(10, {A: TABLE}, reports_ddl=reports_ddl)

    assert isinstance(one, Dropped)


def test_only_tables_that_are_new_are_said_to_be_missing() -> None:
    watching = watch()

    assert watching.take(look(missing=(A,)), {}) == {}
    assert watching.take(look(missing=(A, B)), {}) == {B: ""}
    assert watching.take(look(missing=(A, B)), {}) == {}


def test_a_new_table_that_is_published_in_part_is_named_and_a_known_one_has_a_mark() -> None:
    watching = watch()
    partly = seen(TABLE, is_published=False, partly="publishes only insert")

    assert watching.take(look(is_ours=True), {}) == {}
    assert watching.take(look(partly, is_ours=True), {A: TABLE}) == {}
    assert watching.take(look(replace(partly, sent_as=(B,)), is_ours=True), {}) == {}
    (why,) = watching.take(look(partly, missing=(B,), is_ours=True), {}).values()
    assert "not captured: publication p publishes only insert; it is captured once that" in why


def test_a_key_that_came_late_counts_where_rows_went_without_one() -> None:
    late = look(seen(TABLE, doubts=(Doubt(Cause.LATE_KEY),)))
    watching = watch()
    judged(watching, late)
    assert judged(watching, late, told=Told(whole={TABLE.oid})) != []
    judged(watching, late)
    assert judged(watching, late) == [], "its rows only came, by what the stream said"
    restarted = CatalogWatch(wanted={A, B}.__contains__, publication="p", looked=watching.looked)
    assert judged(restarted, late) != [], "an earlier run was told"


def test_columns_count_from_the_look_whose_shape_is_in_force() -> None:
    """Which column a name is of is read later than the look that shows it first."""
    watching = watch()
    first, second = (
        look(seen(table, version=CatalogVersion(last=last)), publication="1:2")
        for table, last in ((TABLE, "1"), (ADDED, "9"))
    )
    for now, last in ((first, "1"), (second, "1"), (first, "1")):
        judged(watching, now)
        assert watching.before is not None
        assert watching.before.versions[TABLE.oid].last == last


def judged(watching: CatalogWatch, now: Look, **how) -> list[tuple[str, str]]:
    """Take and judge a look; return table and class of each finding."""
    watching.take(now, {A: TABLE})
    how = {"reports_ddl": False, **how}
    found = watching.judge(10, {A: TABLE}, **how)
    return [(str(finding), getattr(finding, "kind", "")) for finding in found]


@pytest.mark.parametrize("cause", Cause)
@pytest.mark.parametrize("is_certain", [True, False])
@pytest.mark.parametrize("reports_ddl", [True, False])
def test_what_happened_since_the_look_before_is_a_gap_each_time(
    cause: Cause, is_certain: bool, reports_ddl: bool
) -> None:
    watching, how = watch(), {"reports_ddl": reports_ddl}
    rewritten = (Rewritten(100, 7, 500),) if cause is Cause.FILES else ()
    now = look(seen(TABLE, doubts=(Doubt(cause, is_certain, rewritten),)))

    assert judged(watching, now, **how) == [], "there is no look before"
    said = "suspected" if not is_certain else "seen"
    for _ in range(2):
        ((text, kind),) = judged(watching, now, told=Told(whole={TABLE.oid}), **how)
        assert (text, kind) == (f"public.a {cause.value.format(publication='p')}", said)
    told = Told(stated={cause: {A}}, described={A}, files={100: [(6, 7)]})
    is_explained = cause is not Cause.ENTRIES
    assert (judged(watching, now, told=told, **how) == []) is is_explained
    assert (judged(watching, now, **how) == []) is is_explained, "perhaps behind the look before"
    told = Told(whole={TABLE.oid})
    assert judged(watching, now, told=told, **how), "it was told long ago"


@pytest.mark.parametrize(
    ("each", "told", "is_explained"),
    [
        (Rewritten(100, 7, 500, is_emptied=True), Told(emptied={A: {500}}), True),
        (Rewritten(100, 7, 500, is_emptied=True), Told(emptied={A: {499}}), False),
        (Rewritten(100, 7, 500, is_emptied=True), Told(emptied={B: {500}}), False),
        (Rewritten(100, 7, 500, is_emptied=False), Told(emptied={A: {500}}), False),
        # Rows came since, and may have gone out of the log, in the same transaction.
        (Rewritten(100, 7, 500, is_emptied=True, is_void=True), Told(emptied={A: {500}}), False),
        (Rewritten(100, 7, 501, is_void=True), Told(vacant={100}), True),
        (Rewritten(100, 7, 501, is_void=True), Told(vacant={101}), False),
        (Rewritten(100, 7, 501), Told(vacant={100}), False),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(6, 7)]}), True),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(5, 6), (6, 7)]}), True),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(0, 7)]}), True),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(6, 7), (7, 8)]}), False),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={101: [(6, 7)]}), False),
        # One of them was SET LOGGED, which hides what came before it; a TRUNCATE behind it shows.
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(6, 0)]}), False),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(5, 0), (6, 7)]}), False),
        (Rewritten(100, 7, 500), Told(stated=FILES, files={100: [(6, 0), (0, 7)]}), True),
        (Rewritten(100, 7, 500), Told(stated=FILES), False),
        (Rewritten(100, 7, 500), Told(stated={Cause.FILES: {B}}, files={100: [(6, 7)]}), False),
    ],
)
def test_a_file_is_explained_by_what_replaced_it(
    each: Rewritten, told: Told, is_explained: bool
) -> None:
    now = look(seen(TABLE, doubts=(Doubt(Cause.FILES, rewritten=(each,)),)))
    watching = watch()
    watching.before = Before(1, "", {100: CatalogVersion()})
    assert (judged(watching, now, told=told) == []) is is_explained


def test_a_table_that_is_vacant_and_has_rows_in_one_file_is_doubted() -> None:
    files = (Rewritten(100, 7, is_void=True), Rewritten(101, 8))
    doubt = Doubt(Cause.FILES, rewritten=files)
    assert not Told(vacant={100}).explains(A, doubt, {}, oid=100)
    assert Told(vacant={100}).explains(A, replace(doubt, rewritten=files[:1]), {}, oid=100)


def test_an_emptied_table_is_vacant_until_a_row_comes_however_many_looks_are_judged() -> None:
    watching, told = watch(), Told()
    watching.before = Before(1, "", {100: CatalogVersion()})
    told.empty(A, 500, 100)
    void = Doubt(Cause.FILES, rewritten=(Rewritten(100, 7, 501, is_void=True),))
    for _ in range(3):
        assert judged(watching, look(seen(TABLE)), told=told) == []
        told = Told()
    assert judged(watching, look(seen(TABLE, doubts=(void,)))) == []

    told.fill(100)
    assert judged(watching, look(seen(TABLE, doubts=(void,))), told=told) != []


def test_triggers_tell_that_no_row_of_an_emptied_table_went_out_of_the_log() -> None:
    gone = Rewritten(100, 7, 500, is_emptied=True, is_void=True)
    now = replace(
        look(seen(TABLE, doubts=(Doubt(Cause.FILES, rewritten=(gone,)),))), triggers="9:1"
    )
    for triggers, files, is_explained in (
        ("9:1", {}, True),
        ("9:1", {100: [(6, 0)]}, False),
        ("8:1", {}, False),
        ("", {}, False),
    ):
        watching = watch()
        watching.before = Before(1, "", {100: CatalogVersion()}, triggers=triggers)
        told = Told(emptied={A: {500}}, files=files)
        assert (judged(watching, now, told=told) == []) is is_explained, (triggers, files)


def test_files_are_followed_from_the_one_of_the_look_before() -> None:
    now = look(seen(TABLE, doubts=(Doubt(Cause.FILES, rewritten=(Rewritten(100, 7),)),)))
    for was, is_explained in ((6, True), (5, False)):  # 5 -> 6 was told by nobody
        watching = watch()
        watching.before = Before(1, "", {100: CatalogVersion()}, {100: was})
        assert (
            judged(watching, now, told=Told(stated=FILES, files={100: [(6, 7)]})) == []
        ) is is_explained


def test_two_files_need_an_explanation_each() -> None:
    both = (Rewritten(101, 7, 500, is_emptied=True), Rewritten(102, 8, 501, is_emptied=True))
    now = look(seen(TABLE, doubts=(Doubt(Cause.FILES, rewritten=both),)))
    for xids, is_explained in (({500, 501}, True), ({500}, False)):
        watching = watch()
        watching.before = Before(1, "", {100: CatalogVersion()})
        assert (judged(watching, now, told=Told(emptied={A: xids})) == []) is is_explained


def test_an_altered_publication_concerns_all_tables_that_it_had_or_has() -> None:
    for had, has in ((True, False), (False, True), (True, True), (False, False)):
        watching = watch()
        watching.before = Before(1, "7:1", {100: CatalogVersion()} if had else {})
        now = look(seen(TABLE, is_published=has, shape=TABLE if has else None), publication="7:2")
        said = judged(watching, now, reports_ddl=True)
        assert [kind for text, kind in said if "was altered" in text] == (
            ["suspected"] if had or has else []
        )
        again = judged(watching, now, reports_ddl=True)
        assert not [text for text, _ in again if "was altered" in text]


def test_the_look_before_may_be_of_an_earlier_run() -> None:
    looked = Looked(9, "7:1", {"100": "16:5;;;;12"})
    watching = CatalogWatch(wanted={A}.__contains__, publication="p", looked=looked)
    assert watching.looked == looked
    assert watching.before == Before(9, "7:1", {100: CatalogVersion("16:5", files="12")})

    version = CatalogVersion("16:6")
    judged(watching, look(seen(TABLE, version=version, files={100: 12}), horizon=11))
    assert watching.looked == Looked(11, "", {"100": "16:6"})
    assert watching.before.files == {100: 12}
    watching.take_unchanged(Unchanged(15))
    assert watching.looked == Looked(15, "", {"100": "16:6"})
    watching.read_again(A, Before(14, "", {100: CatalogVersion("16:7")}, {100: 13}))
    assert watching.looked == Looked(15, "", {"100": "16:7"})
    assert watching.before.files == {100: 13}


def test_a_look_that_waits_keeps_what_is_told() -> None:
    watching = watch()
    watching.before = Before(1, "", {100: CatalogVersion()})
    watching.take(look(seen(TABLE, doubts=(Doubt(Cause.PARTS),)), lsn=20), {A: TABLE})
    moved = ShapeChange(TABLE, TABLE, "ALTER TABLE", moved=Moved("delete", A, "true"))
    statement = StatementChanges((moved,), Origin.TRIGGER)
    told = Told()
    told.state(statement)
    assert watching.judge(10, {A: TABLE}, reports_ddl=True, told=told) == []
    assert watching.judge(20, {A: TABLE}, reports_ddl=True) == []


ADDED = replace(TABLE, columns=(*TABLE.columns, replace(TABLE.columns[0], name="n", number=9)))
MOOD = replace(TABLE, columns=(replace(TABLE.columns[0], number=1, user_type=UserType("e", 1)),))
TWO = replace(
    TABLE, columns=tuple(replace(MOOD.columns[0], number=n, user_type=None) for n in (2, 1))
)
RENAMED = replace(TABLE, id=B)


@pytest.mark.parametrize(
    ("change", "causes"),
    [
        (ShapeChange(TABLE, TABLE, "ALTER TABLE"), set()),
        (
            ShapeChange(None, TABLE, "CREATE TABLE"),
            {Cause.NAME, Cause.LABELS, Cause.GENERATED, Cause.ADDED, Cause.AGAIN},
        ),
        (ShapeChange(TABLE, None, "DROP TABLE"), set()),
        (ShapeChange(TABLE, RENAMED, "ALTER TABLE"), {Cause.NAME}),
        (ShapeChange(TABLE, ADDED, "ALTER TABLE"), {Cause.ADDED, Cause.AGAIN}),
        (
            ShapeChange(TABLE, ADDED, "ALTER TABLE", (Hole("public.a", "seen", "why"),)),
            {Cause.PARTS, Cause.GENERATED, Cause.ADDED, Cause.AGAIN},
        ),
        (
            ShapeChange(
                replace(MOOD, columns=(replace(MOOD.columns[0], user_type=None),)), MOOD, "ALTER"
            ),
            {Cause.LABELS},
        ),
        (
            ShapeChange(TWO, replace(TWO, columns=(TWO.columns[0], *MOOD.columns)), "ALTER TABLE"),
            {Cause.LABELS},
        ),
        (
            ShapeChange(TABLE, TABLE, "ALTER TABLE", moved=Moved("delete", A, "true")),
            {Cause.PARTS},
        ),
        (
            ShapeChange(TABLE, TABLE, "ALTER TABLE", (Hole("public.a", "seen", "why"),)),
            {Cause.PARTS},
        ),
    ],
)
def test_a_described_statement_explains_its_own_change_only(
    change: ShapeChange, causes: set[Cause]
) -> None:
    told = Told()
    told.state(StatementChanges((change,), Origin.TRIGGER))
    assert set(told.stated) == causes


def test_what_explains_a_table_explains_it_under_its_next_name() -> None:
    told = Told()
    moved = ShapeChange(TABLE, TABLE, "ALTER TABLE", moved=Moved("delete", A, "true"))
    told.state(StatementChanges((moved,), Origin.TRIGGER))
    renamed = StatementChanges((ShapeChange(TABLE, RENAMED, "ALTER TABLE"),), Origin.TRIGGER)
    later = Told()
    later.state(renamed)
    assert told.with_later(later).stated[Cause.PARTS] == {A, B}
    third = A._replace(name="c")
    again = ShapeChange(RENAMED, replace(TABLE, id=third), "ALTER TABLE")
    later.state(StatementChanges((again,), Origin.TRIGGER))
    assert told.with_later(later).stated[Cause.PARTS] == {A, B, third}
    told.state(renamed)
    assert told.stated[Cause.PARTS] == {A, B}


def test_what_an_earlier_run_was_told_is_not_known_so_any_statement_counts_once() -> None:
    told = Told()
    told.state(StatementChanges((ShapeChange(TABLE, TABLE, "ALTER TABLE"),), Origin.TRIGGER))
    looked = Looked(9, "", {"100": ""}, "7:1")
    watching = CatalogWatch(wanted={A}.__contains__, publication="p", looked=looked)
    now = look(seen(TABLE, doubts=(Doubt(Cause.LABELS),)), triggers="7:1")

    assert judged(watching, now, told=told) == []
    judged(watching, look(seen(TABLE), triggers="7:1"))
    assert judged(watching, now, told=told) != []


def test_where_triggers_were_altered_nothing_is_explained() -> None:
    watching, told = watch(), Told(stated={Cause.PARTS: {A}})
    watching.before = Before(1, "", {100: CatalogVersion()}, triggers="7:1")
    steps = (("7:1", True), ("7:2", False), ("7:2", True), ("", False), ("7:3", True))
    for triggers, is_explained in steps:  # just installed, they describe what follows
        now = look(seen(TABLE, doubts=(Doubt(Cause.PARTS),)), triggers=triggers)
        assert (judged(watching, now, told=told) == []) is is_explained
    assert watching.looked.triggers == "7:3"


def test_files_that_a_statement_replaced_are_told_in_their_order() -> None:
    told = Told()

    told.state(StatementChanges((), Origin.TRIGGER, files=((100, 6, 7), (101, 1, 2), (100, 7, 8))))

    assert told.files == {100: [(6, 7), (7, 8)], 101: [(1, 2)]}


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
    assert said(then={**known, A: altered}) == ["public.a", "public.b"], "it was the same then"
    assert said(then={B: known[B]}) == ["public.b"], "the stream knows it by another name"
    assert said(told=Told(emptied={B: {5}})) == ["public.a"], "the stream told a TRUNCATE"
    assert said() == ["public.a"], "perhaps behind the look before"
    watching.take(now, known)
    watching.read_again(A, None)
    watching.read_again(B, None)
    assert watching.judge(10, known, reports_ddl=False) == [], "both were read since"


def test_what_a_look_suspects_for_a_reason_of_its_own_is_said_so_though_it_was_emptied() -> None:
    watching, known = watch(), {A: TABLE}
    gone = TableId("public", "gone")  # which nobody knows by this name
    why = {A: "has another key", B: "has rows", gone: "has another name"}
    now = Look(10, {}, is_of_files=True, suspected=why, there=frozenset({A, B}))

    def said(told: Told) -> list[tuple[str, str]]:
        found = watching.judge(10, known, reports_ddl=False, told=told)
        return [(str(each), each.gap.kind) for each in found]

    watching.take(now, known)
    assert said(Told(emptied={A: {5}})) == [
        ("public.a has another key", "suspected"),
        ("public.b has rows", "suspected"),  # the stream has not brought it yet
    ]
    watching.take(now, known)
    watching.read_again(A, None)
    watching.read_again(B, None)
    assert said(Told()) == []


@pytest.mark.parametrize("position", [10, 0])
def test_a_look_of_files_shows_names_that_no_table_has_where_its_position_is_known(
    position: int,
) -> None:
    """Else the stream may still bring rows of a dropped one, and bring a new one first."""
    watching = watch()
    now = Look(
        Lsn(position), {}, is_of_files=True, dropped=(A, B), emptied=(B,), there=frozenset({B})
    )
    watching.take(now, {A: TABLE})

    found = watching.judge(Lsn(10), {A: TABLE}, reports_ddl=False)

    expected = [("public.a", Dropped)] if position else [("public.b", Unseen)]
    assert [(str(each.table), type(each)) for each in found] == expected


def test_rows_behind_a_statement_are_suspected_until_their_table_is_read_again() -> None:
    watching, known = watch(), {A: TABLE, B: replace(TABLE, id=B, oid=101)}
    now = Look(10, {}, is_of_files=True, behind=(A, B), of_files=Before.of_files(700))
    altered = {**known, A: replace(TABLE, columns=TABLE.columns[:1])}

    def said(**how) -> list[tuple[str, str]]:
        watching.take(now, known)
        assert watching.judge(9, known, reports_ddl=False) == []
        found = watching.judge(10, altered, reports_ddl=False, **how)
        return [(finding.gap.table, finding.gap.kind) for finding in found]

    told = Told(emptied={A: {5}})
    assert said(told=told) == [("public.a", "suspected"), ("public.b", "suspected")], "each time"
    assert said(is_marked=lambda table: table == A) == [("public.b", "suspected")]
    watching.take(now, known)
    watching.read_again(A, None)
    assert [f.gap.table for f in watching.judge(10, known, reports_ddl=False)] == ["public.b"]


def test_what_a_look_of_files_showed_is_kept_and_compares_no_table() -> None:
    watching, known = watch(), {A: TABLE}
    for horizon, kept in ((0, 0), (700, 700), (0, 700), (800, 800)):
        of_files = Before.of_files(
            horizon,
            (horizon + 20, horizon + 30),
            {100: CatalogVersion(files=str(horizon))},
            parts="9f",
            since=Lsn(horizon + 1),
        )
        now = Look(10, {}, is_of_files=True, behind=(A,), of_files=of_files if horizon else None)
        watching.take(now, known)
        assert watching.judge(9, known, reports_ddl=False) == []
        watching.judge(10, known, reports_ddl=False)
        looked = watching.looked
        assert (looked.horizon if looked else 0) == kept
        assert watching.compares(5)

    assert looked is not None
    assert not looked.is_as(replace(looked, publication="files:700")), "so a STATE says it"
    again = CatalogWatch(wanted=lambda _: True, publication="p", looked=looked)
    assert again.before == of_files
    assert again.compares(5)
    assert again.looked == looked
    read = Before.of_files(0, versions={100: CatalogVersion(files="900")})
    again.take(now, known)
    again.read_again(A, read)
    assert again.judge(10, known, reports_ddl=False) == []
    assert again.before is not None
    assert again.before.versions[100].files == "900", "the table is younger than the look"
    assert again.before.horizon == 800


def test_a_state_that_lasts_behind_a_reading_is_looked_at_again() -> None:
    """Else the table is exact, and UNLOGGED, until anything in the catalog changes."""
    watching, known = watch(), {A: TABLE}
    unlogged = look(seen(TABLE, is_logged=False, is_published=False))
    for count in (1, 0):
        watching.take(unlogged, known)
        assert len(watching.judge(10, known, reports_ddl=False)) == count
    assert watching.signature == "x"

    watching.read_again(A, None)

    assert watching.signature == "", "the catalog is read again, though it is the same"
    watching.take(unlogged, known)
    assert len(watching.judge(10, known, reports_ddl=False)) == 1


@pytest.mark.parametrize("reports_ddl", [True, False])
def test_a_table_that_is_not_published_any_more_is_noticed(*, reports_ddl: bool) -> None:
    """One may come and leave between two looks; one described since the look may join behind it."""
    watching, known = watch(), {A: TABLE}
    watching.take(look(seen(TABLE, is_published=False)), {})
    assert watching.judge(10, known, reports_ddl=reports_ddl) == []
    for is_published, count in ((False, 1), (False, 0), (True, 0), (False, 1)):
        watching.take(look(seen(TABLE, is_published=is_published)), known)
        assert len(watching.judge(10, known, reports_ddl=reports_ddl)) == count


def test_a_catalog_that_is_as_it_was_is_judged_again_where_the_stream_changed_a_table() -> None:
    """A column was renamed there and back, with a row in between: the catalog does not say so."""
    watching, known = watch(), {A: TABLE}
    now = look(seen(TABLE))
    watching.take(now, known)
    assert watching.judge(10, known, reports_ddl=False) == []
    assert watching.unless(known) == watching.unless(dict(known)) == "x"

    renamed = {A: replace(TABLE, columns=(replace(TABLE.columns[0], name="n"),))}

    assert (
        watching.unless(renamed)
        == watching.unless({})
        == watching.unless({**known, B: TABLE})
        == ""
    )
    watching.take(now, renamed)
    (found,) = watching.judge(10, renamed, reports_ddl=False)
    assert isinstance(found, Described)


def test_a_look_that_waits_knows_of_a_table_what_was_read_since() -> None:
    watching = watch()
    watching.before = Before(1, "", {100: CatalogVersion("16:5"), 101: CatalogVersion()})
    doubt, other = Doubt(Cause.ENTRIES), replace(TABLE, id=B, oid=101)
    tables = [
        seen(TABLE, is_published=False, partly="has a WHERE", shape=None, doubts=(doubt,)),
        seen(other, doubts=(doubt,)),
    ]
    known = {A: TABLE, B: other}
    watching.take(look(*tables, lsn=20, horizon=11), known)

    watching.read_again(A, Before(15, "", {100: CatalogVersion("16:7")}, {100: 13}))

    found = watching.judge(20, known, reports_ddl=True)
    assert {each.table for each in found} == {B}
    assert watching.before.versions[100] == CatalogVersion("16:7")
    assert watching.before.files == {100: 13}


def test_tables_of_a_look_that_was_passed_were_there() -> None:
    watching = watch()
    judged(watching, look(seen(TABLE)))
    assert not watching.had(100)

    watching.newcomers({A: TABLE})

    assert watching.had(100)
    assert not watching.had(101)


def test_a_table_is_compared_once_findings_of_its_first_look_were_followed() -> None:
    watching = watch()
    assert watching.compares(100), "nothing is compared"
    judged(watching, look())
    watching.newcomers({})
    judged(watching, look(seen(TABLE, version=CatalogVersion())))
    assert not watching.compares(100)

    watching.newcomers({A: TABLE})

    assert watching.compares(100)
    assert not watching.compares(101)


def test_a_table_that_is_not_published_keeps_what_it_is_compared_with() -> None:
    watching = watch()
    watching.before = Before(1, "", {100: CatalogVersion("16:5"), 102: CatalogVersion("18:5")})

    judged(watching, look(seen(TABLE, is_published=False), horizon=9), reports_ddl=True)

    assert watching.before == Before(9, "", {100: CatalogVersion("16:5")})


def test_a_table_is_vacant_from_its_truncate_to_its_next_row() -> None:
    told = Told()
    told.empty(A, 500, 100)
    told.empty(B, 500, 101)
    later = Told()
    later.fill(100)
    assert told.with_later(Told()).vacant == {100, 101}
    assert told.with_later(later).vacant == {101}
    later.empty(A, 501, 100)
    assert told.with_later(later).vacant == {100, 101}
    told.fill(101)
    assert told.vacant == {100}
