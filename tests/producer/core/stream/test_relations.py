"""Which shape is in force: what the stream says, and what a catalog reading may add."""

from dataclasses import replace

import pytest

from producer.core.changes import Relation, RelationColumn
from producer.core.shape_change import StatementChanges
from producer.core.stream.inference import agrees, as_printed, difference
from producer.core.stream.relations import Relations, ShapeChange, merge
from producer.errors import DecodeError
from schemas.control import Origin
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique, UserType

INT, BIGINT, TEXT, VARCHAR, NUMERIC = 23, 20, 25, 1043, 1700
ID = TableId("public", "account")
KEY = Column("id", INT, type_name="integer", nullable=False)
OWNER = Column("owner", TEXT, type_name="text")
NOTE = Column("note", TEXT, type_name="text")
ACCOUNT = TableSchema(
    ID, (KEY, OWNER), ("id",), (Unique("u", ("owner",)),), ReplicaIdentity.DEFAULT, ("id",)
)


def said(
    *columns: Column, identity: ReplicaIdentity = ReplicaIdentity.DEFAULT, key: str = "id"
) -> Relation:
    return Relation(
        16385,
        *ID,
        identity,
        tuple(RelationColumn(c.name, c.type_oid, c.type_mod, c.name in key) for c in columns),
    )


def table(*columns: Column) -> TableSchema:
    return TableSchema(ID, columns, ("id",), (), ReplicaIdentity.DEFAULT, ("id",))


def relations(
    known: TableSchema | None, catalog: TableSchema | None, *, complete: bool = False
) -> Relations:
    return Relations(
        {} if known is None else {known.id: known},
        read_catalog=lambda _: catalog,
        wanted=lambda wanted: wanted.schema == "public",
        new_tables_are_complete=complete,
    )


def change(before: TableSchema, after: TableSchema) -> ShapeChange | None:
    return relations(before, after).resolve(said(*after.columns))[1]


def test_what_a_type_has_of_late_is_left_to_the_look_that_says_it() -> None:
    """A row brings a column, and the reading shows an attribute more: older rows have it, too."""
    pair, more = (UserType("c", "pair", labels=labels) for labels in (("1:23",), ("1:23", "2:23")))
    was = Column("p", 16500, type_name="pair", number=2, user_type=pair)
    there = table(replace(KEY, number=1), was)
    now = table(replace(KEY, number=1), replace(was, user_type=more), replace(NOTE, number=3))

    resolved, change = relations(there, now).resolve(said(*now.columns))

    assert change is not None
    assert [c.user_type for c in resolved.columns] == [None, pair, None]
    assert resolved.names() == ("id", "p", "note")


def test_a_new_relation_of_all_columns_is_told() -> None:
    known = relations(None, ACCOUNT)
    known.describe(said(*ACCOUNT.columns))
    assert known.take_told().whole == set()
    known.describe(said(*ACCOUNT.columns, identity=ReplicaIdentity.FULL))
    assert known.take_told().whole == {16385}


# ---------------------------------------------------------------- descriptions
def test_a_row_of_a_relation_that_was_not_described_is_refused() -> None:
    known = relations(ACCOUNT, ACCOUNT)
    with pytest.raises(DecodeError):
        known.look_up(16385)

    known.describe(said(KEY))
    known.describe(said(KEY, OWNER))

    assert known.look_up(16385) == said(KEY, OWNER)


def test_a_source_may_begin_and_end_to_describe_statements() -> None:
    stream = relations(ACCOUNT, ACCOUNT)
    for is_on in (True, False):
        stream.describe_statements(is_on=is_on)
        assert stream.reports_ddl is is_on


def test_wanted_is_asked_by_name() -> None:
    known = relations(None, None)

    assert known.is_wanted(said(KEY))
    assert not known.is_wanted(Relation(1, "private", "t", ReplicaIdentity.DEFAULT, ()))


# ---------------------------------------------------------------- merging with the catalog
def test_a_reading_that_fits_adds_what_the_stream_does_not_say() -> None:
    assert merge(said(KEY, OWNER), ACCOUNT, None) == ACCOUNT


@pytest.mark.parametrize("renamed", [1, 2, 1000])
def test_a_table_is_read_though_it_is_renamed_meanwhile(renamed: int) -> None:
    """Else its added column has no default: older rows get NULL, and the table is called exact."""
    known = replace(ACCOUNT, oid=16385)
    added = replace(NOTE, has_default=True, missing="5")
    now = replace(known, id=TableId("public", "swapped"), columns=(KEY, OWNER, added))
    names = iter([*[ID] * renamed, now.id])
    stream = Relations(
        {ID: known},
        read_catalog=lambda name: now if name == now.id else None,
        name_table=lambda _: next(names),
        wanted=lambda _: True,
        new_tables_are_complete=True,
    )

    table, change = stream.resolve(said(KEY, OWNER, NOTE))

    assert change is not None
    assert [gap.kind for gap in change.holes] == (["suspected"] if renamed == 1000 else [])
    assert table.columns[2].missing == (None if renamed == 1000 else "5")


@pytest.mark.parametrize("is_there", [True, False])
def test_a_column_that_is_gone_by_now_may_have_had_a_default(is_there: bool) -> None:
    """Older rows get NULL, and had a value for as long as it was there."""
    known = replace(ACCOUNT, oid=16385)
    stream = Relations(
        {ID: known},
        read_catalog=lambda _: known,
        name_table=lambda _: ID if is_there else None,
        wanted=lambda _: True,
        new_tables_are_complete=True,
    )

    _, change = stream.resolve(said(KEY, OWNER, NOTE))

    assert change is not None
    why = "columns were added, and could not be read: note"
    assert [gap.kind for gap in change.holes] == (["suspected"] if is_there else [])
    assert change.lossy == (why if is_there else None)


def test_a_table_that_was_read_may_have_rows() -> None:
    known = replace(ACCOUNT, oid=16385)
    stream = Relations(
        {}, read_catalog=lambda _: known, wanted=lambda _: True, new_tables_are_complete=True
    )

    stream.adopt(known)

    assert stream.known == {ID: known}
    assert stream.take_told().filled == {16385}


def test_the_type_of_a_column_that_is_gone_by_now_has_a_name() -> None:
    known = Relations(
        {ID: ACCOUNT},
        read_catalog=lambda _: ACCOUNT,
        name_type=lambda oid, mod: {(NUMERIC, -1): "numeric"}[oid, mod],
        wanted=lambda _: True,
        new_tables_are_complete=True,
    )

    shape, _ = known.resolve(said(KEY, OWNER, Column("score", NUMERIC)))

    assert shape.columns == (KEY, OWNER, Column("score", NUMERIC, type_name="numeric"))


def test_columns_that_the_stream_does_not_confirm_are_left_open() -> None:
    younger = table(KEY, Column("owner", VARCHAR, 24, "character varying(20)", nullable=False))

    merged = merge(said(KEY, OWNER, NOTE), younger, None)

    assert merged.columns == (KEY, Column("owner", TEXT), Column("note", TEXT))


def test_what_a_younger_reading_lacks_is_taken_from_what_was_known() -> None:
    assert merge(said(KEY, OWNER), table(KEY), table(KEY, OWNER)).columns == (KEY, OWNER)


def test_the_younger_reading_says_what_is_unique_where_it_has_the_key() -> None:
    older = replace(ACCOUNT, unique=())

    assert merge(said(KEY, OWNER), ACCOUNT, older).unique == ACCOUNT.unique


def test_an_index_over_all_columns_is_unique_and_one_over_others_is_not_known() -> None:
    all_of_them, others = Unique("all", ("id", "owner")), Unique("others", ("id", "note"))
    younger = replace(ACCOUNT, unique=(all_of_them, others))

    assert merge(said(KEY, OWNER), younger, None).unique == (all_of_them,)


def test_a_dropped_table_is_what_the_stream_says() -> None:
    merged = merge(said(KEY, OWNER), None, None)

    assert merged.columns == (Column("id", INT), Column("owner", TEXT))
    assert merged.key == ("id",)


def test_a_key_that_the_stream_does_not_confirm_is_not_taken_over() -> None:
    younger = TableSchema(ID, (KEY, OWNER), ("owner",), (), ReplicaIdentity.DEFAULT, ("owner",))

    assert merge(said(KEY, OWNER), younger, ACCOUNT).key == ("id",)
    assert merge(said(KEY, OWNER), younger, None).key == ("id",)


def test_the_order_of_a_key_is_the_catalogs() -> None:
    reading = TableSchema(ID, (KEY, OWNER), ("owner", "id"))

    assert merge(said(KEY, OWNER, key="id owner"), reading, None).key == ("owner", "id")


def test_with_a_full_identity_the_key_is_the_catalogs() -> None:
    full = said(KEY, OWNER, identity=ReplicaIdentity.FULL, key="id owner")

    assert merge(full, ACCOUNT, None).key == ("id",)


def test_a_deferrable_key_is_none_for_the_stream_but_one_for_us() -> None:
    assert merge(said(KEY, OWNER, key=""), ACCOUNT, None).key == ("id",)


def test_with_an_index_as_identity_its_columns_are_the_key() -> None:
    of_the_primary_key = replace(ACCOUNT, replica_identity=ReplicaIdentity.INDEX)

    merged = merge(
        said(KEY, OWNER, identity=ReplicaIdentity.INDEX, key="owner"), of_the_primary_key, None
    )

    assert (merged.key, merged.identity_columns) == (("owner",), ("owner",))


def test_unique_indexes_over_columns_that_are_not_there_are_left_out() -> None:
    assert merge(said(KEY), ACCOUNT, None).unique == ()


# ---------------------------------------------------------------- new tables
def test_a_table_that_joined_later_is_reported_with_a_gap() -> None:
    shape, new = relations(None, ACCOUNT).resolve(said(KEY, OWNER))

    assert new is not None
    assert (new.before, new.after, new.tag) == (None, shape, "CREATE TABLE")
    assert [(h.table, h.kind) for h in new.holes] == [("public.account", "suspected")]


def test_a_new_table_of_a_publication_for_all_tables_is_complete() -> None:
    _, new = relations(None, ACCOUNT, complete=True).resolve(said(KEY, OWNER))

    assert new is not None
    assert new.holes == ()


def test_a_known_shape_is_not_a_change_and_a_new_one_is_reported_once() -> None:
    known = relations(ACCOUNT, table(KEY, OWNER, NOTE))

    assert known.resolve(said(KEY, OWNER))[1] is None
    assert known.resolve(said(KEY, OWNER, NOTE))[1] is not None
    assert known.resolve(said(KEY, OWNER, NOTE))[1] is None


# ---------------------------------------------------------------- changes
def test_an_added_column_is_a_change_without_gaps() -> None:
    found = change(ACCOUNT, table(KEY, OWNER, NOTE))

    assert found is not None
    assert (found.tag, found.holes, found.lossy) == ("ALTER TABLE", (), None)
    assert found.before == ACCOUNT


def test_a_dropped_column_is_a_change_without_gaps() -> None:
    found = change(ACCOUNT, table(KEY))
    assert found is not None
    assert found.holes == ()


def test_an_added_column_whose_value_for_older_rows_is_known_has_no_gap() -> None:
    filled = Column("rate", INT, type_name="integer", nullable=False, missing="7")
    found = change(ACCOUNT, table(KEY, OWNER, filled))
    assert found is not None
    assert found.holes == ()


@pytest.mark.parametrize(
    "after",
    [
        pytest.param((KEY, OWNER, NOTE, Column("n", INT, nullable=False)), id="NOT NULL, no value"),
        pytest.param((KEY, NOTE, OWNER), id="dropped and made again"),
        pytest.param((KEY, Column("owner", INT), NOTE), id="another type"),
    ],
)
def test_values_of_older_rows_are_suspected_where_the_stream_does_not_have_them(
    after: tuple[Column, ...],
) -> None:
    found = change(table(KEY, OWNER, NOTE), table(*after))

    assert found is not None
    assert found.lossy
    assert [(h.table, h.kind, h.why) for h in found.holes] == [
        ("public.account", "suspected", found.lossy)
    ]


@pytest.mark.parametrize(
    ("old", "new", "keeps"),
    [
        ((INT, -1), (BIGINT, -1), True),
        ((BIGINT, -1), (INT, -1), False),
        ((VARCHAR, 24), (VARCHAR, 54), True),
        ((VARCHAR, 24), (TEXT, -1), True),
        ((VARCHAR, 24), (VARCHAR, -1), True),
        ((TEXT, -1), (VARCHAR, -1), True),
        ((TEXT, -1), (VARCHAR, 24), False),  # USING left(v, 20), say
        ((VARCHAR, 54), (VARCHAR, 24), False),
        ((VARCHAR, -1), (VARCHAR, 24), False),
        ((NUMERIC, 1000), (NUMERIC, 1002), False),
        ((TEXT, -1), (INT, -1), False),
    ],
)
def test_only_types_whose_values_read_the_same_leave_older_rows_alone(
    old: tuple[int, int], new: tuple[int, int], keeps: bool
) -> None:
    found = change(table(KEY, Column("v", *old)), table(KEY, Column("v", *new)))

    assert found is not None
    assert (not found.holes) is keeps


@pytest.mark.parametrize(
    "after",
    [
        pytest.param((KEY, Column("holder", TEXT), NOTE), id="in the middle"),
        pytest.param((KEY, Column("holder", INT), NOTE), id="in the middle, retyped"),
        pytest.param((KEY, NOTE, Column("holder", TEXT)), id="at the end, of the same type"),
    ],
)
def test_what_may_be_a_rename_is_a_gap(after: tuple[Column, ...]) -> None:
    found = change(table(KEY, OWNER, NOTE), table(*after))

    assert found is not None
    assert dict(found.renamed) == {}  # nothing is guessed
    why = "a column was renamed, or dropped and another added: owner went, holder came"
    assert [(h.table, h.kind, h.why) for h in found.holes] == [("public.account", "suspected", why)]


def test_what_may_be_the_rename_of_a_key_is_a_gap() -> None:
    found = change(table(KEY, OWNER, NOTE), table(Column("holder", INT), OWNER, NOTE))

    assert found is not None
    why = "a column was renamed, or dropped and another added: id went, holder came"
    assert [(h.kind, h.why) for h in found.holes] == [("suspected", why)]


def test_another_column_where_the_last_one_went_may_be_a_rename_and_another_type() -> None:
    """A number says what it is; else to take it for an add could lose values unnoticed."""
    rate = Column("rate", INT)
    numbered = [replace(c, number=n) for n, c in enumerate((KEY, OWNER, NOTE, rate), 1)]
    unknown = change(table(KEY, OWNER, NOTE), table(KEY, OWNER, rate))
    retyped = change(table(KEY, Column("v", VARCHAR, 24)), table(KEY, Column("w", VARCHAR, 54)))
    in_place = change(table(KEY, OWNER, NOTE), table(KEY, NOTE, rate))
    known = change(table(*numbered[:3]), table(*numbered[:2], numbered[3]))

    for one in (unknown, retyped):
        assert one is not None
        assert [gap.kind for gap in one.holes] == ["suspected"]
    for one in (in_place, known):
        assert one is not None
        assert one.holes == ()


# ---------------------------------------------------------------- nullability
def test_a_column_made_again_is_recognized_by_its_number() -> None:
    """Its name and type are the same, so the stream's description is; older rows lost it."""
    numbered = table(replace(KEY, number=1), replace(OWNER, number=2), replace(NOTE, number=3))
    again = replace(OWNER, number=4)
    after = table(replace(KEY, number=1), replace(NOTE, number=3), again)
    last = table(*numbered.columns[:2])

    made_again = change(numbered, after)
    same_place = change(last, table(last.columns[0], again))

    for one in (made_again, same_place):
        assert one is not None
        assert one.values == {"owner": "new"}
        assert [gap.kind for gap in one.holes] == ["suspected"]
    assert change(last, last) is None


def test_widening_allows_null_in_one_column_and_is_not_a_change() -> None:
    known = relations(table(KEY, Column("owner", TEXT, nullable=False)), None)

    wider = known.widen(ID, "owner")

    assert [c.nullable for c in wider.columns] == [False, True]
    assert known.resolve(said(KEY, OWNER))[1] is None


# ---------------------------------------------------------------- names and oids
OID, OTHER_OID = 16385, 16399
OTHER = TableId("public", "other")


def by_oid(
    *known: TableSchema, names: dict[int, TableId] | None = None, reports_ddl: bool = False
) -> Relations:
    """Tables known by oid; `names` is what the catalog calls tables by now."""
    return Relations(
        {table.id: table for table in known},
        read_catalog=lambda _: None,
        name_table=(names or {}).get,
        wanted=lambda wanted: wanted.schema != "private",
        new_tables_are_complete=True,
        reports_ddl=reports_ddl,
    )


def seen(oid: int, name: TableId = ID) -> Relation:
    return replace(said(KEY, OWNER), relation=oid, schema=name.schema, table=name.name)


def moves(changes: list[ShapeChange]) -> list[tuple[str | None, str | None]]:
    return [
        (c.before and str(c.before.id), c.after and str(c.after.id))  # type: ignore[misc]
        for c in changes
    ]


def test_a_name_with_another_oid_is_another_table() -> None:
    known = by_oid(replace(ACCOUNT, oid=OID))

    assert moves(known.renamed(seen(OTHER_OID))) == [("public.account", None)]
    table, change = known.resolve(seen(OTHER_OID))

    assert (table.oid, change and change.before, change and change.holes) == (OTHER_OID, None, ())
    assert known.renamed(seen(OTHER_OID)) == []


def test_an_oid_with_another_name_is_a_rename() -> None:
    known = by_oid(replace(ACCOUNT, oid=OID))

    assert moves(known.renamed(seen(OID, OTHER))) == [("public.account", "public.other")]
    assert known.resolve(seen(OID, OTHER))[1] is None


def test_a_table_that_gave_up_its_name_keeps_its_rows_under_the_new_one() -> None:
    known = by_oid(replace(ACCOUNT, oid=OID), names={OID: OTHER})

    assert moves(known.renamed(seen(OTHER_OID))) == [("public.account", "public.other")]
    assert known.renamed(seen(OID, OTHER)) == []


def test_two_tables_swap_their_names() -> None:
    other = replace(ACCOUNT, id=OTHER, oid=OTHER_OID)
    known = by_oid(replace(ACCOUNT, oid=OID), other, names={OID: OTHER, OTHER_OID: ID})

    assert moves(known.renamed(seen(OTHER_OID))) == [
        ("public.account", "public.gauss_cdc_16385"),
        ("public.other", "public.account"),
        ("public.gauss_cdc_16385", "public.other"),
    ]
    assert known.renamed(seen(OID, OTHER)) == []


def test_two_schemas_swap_their_names() -> None:
    """The name in between is of the schema that the table leaves."""
    away = TableId("away", ID.name)
    other = replace(ACCOUNT, id=away, oid=OTHER_OID)
    known = by_oid(replace(ACCOUNT, oid=OID), other, names={OID: away, OTHER_OID: ID})

    assert moves(known.renamed(seen(OID, away))) == [
        ("away.account", "away.gauss_cdc_16399"),
        ("public.account", "away.account"),
        ("away.gauss_cdc_16399", "public.account"),
    ]


def test_a_table_that_was_given_up_too_early_has_a_gap() -> None:
    known = by_oid(replace(ACCOUNT, oid=OID))
    known.renamed(seen(OTHER_OID))
    known.resolve(seen(OTHER_OID))

    assert known.renamed(seen(OID, OTHER)) == []
    _, change = known.resolve(seen(OID, OTHER))

    assert change is not None
    assert [gap.table for gap in change.holes] == ["public.other"]


def test_a_reading_is_of_the_table_that_the_stream_means_not_of_its_name() -> None:
    """Names were swapped since the row: a table that has its name now has another key."""
    mine = replace(table(KEY, OWNER, replace(NOTE, nullable=False)), oid=OID, key=("id", "note"))
    other = replace(table(KEY, OWNER, NOTE), oid=OTHER_OID)
    by_name = {OTHER: replace(mine, id=OTHER), ID: other}

    def resolved(now: TableId | None) -> TableSchema:
        known = Relations(
            {},
            read_catalog=by_name.get,
            name_table={OID: now}.get,
            wanted=lambda _: True,
            new_tables_are_complete=True,
        )
        return known.resolve(said(*mine.columns, identity=ReplicaIdentity.FULL))[0]

    assert (resolved(OTHER).id, resolved(OTHER).key) == (ID, ("id", "note"))
    assert resolved(ID).key == ()  # renamed once more meanwhile: nothing is guessed
    assert resolved(None).key == ()


def test_a_table_renamed_out_of_what_is_captured_has_a_gap() -> None:
    known = by_oid(replace(ACCOUNT, oid=OID))

    [change] = known.renamed(seen(OID, TableId("private", "account")))

    assert [gap.kind for gap in change.holes] == ["seen"]
    assert known.renamed(seen(OID, TableId("private", "account"))) == []


@pytest.mark.parametrize("reports_ddl", [False, True])
def test_a_name_that_a_table_lent_for_a_while_has_the_other_one_s_rows(reports_ddl: bool) -> None:
    """By now it has its name again.  Triggers that told all would leave nothing to see."""
    known = by_oid(replace(ACCOUNT, oid=OID), names={OID: ID}, reports_ddl=reports_ddl)

    assert moves(known.renamed(seen(OTHER_OID))) == [
        ("public.account", "public.gauss_cdc_16385"),
    ]
    table, change = known.resolve(seen(OTHER_OID))
    assert (table.oid, change and change.before) == (OTHER_OID, None)
    assert moves(known.renamed(seen(OID))) == [
        ("public.account", None),
        ("public.gauss_cdc_16385", "public.account"),
    ]


def test_names_are_not_compared_without_oids() -> None:
    assert by_oid(ACCOUNT).renamed(seen(OTHER_OID)) == []
    assert relations(replace(ACCOUNT, oid=OID), None).renamed(seen(OTHER_OID)) == []


def test_a_column_that_was_made_again_is_found_by_a_look_beside_described_statements() -> None:
    """One that the event triggers missed: they were off, and are on again."""
    numbered = table(replace(KEY, number=1), replace(OWNER, number=2))
    now = table(replace(KEY, number=1), replace(OWNER, number=3))
    known = Relations(
        {ID: numbered},
        read_catalog=lambda _: now,
        wanted=lambda _: True,
        new_tables_are_complete=True,
        reports_ddl=True,
    )
    assert known.resolve(said(KEY, OWNER)) == (numbered, None)

    after, change = known.resolve(said(KEY, OWNER), is_shown=True)

    assert (after, known.known[ID]) == (now, now)
    assert change is not None
    assert "made again" in str(change.lossy)


def test_a_described_shape_holds_unless_its_identity_is_another_one() -> None:
    known = table(KEY, OWNER)

    assert agrees(said(KEY, OWNER), known)
    assert not agrees(said(KEY, OWNER, identity=ReplicaIdentity.FULL), known)
    assert not agrees(said(KEY), known)
    assert not agrees(said(KEY, OWNER), replace(known, identity_columns=())), "the key went"
    assert not agrees(said(KEY, replace(OWNER, name="other")), known)


def test_a_table_that_had_another_name_lacks_rows() -> None:
    for had, whys in ((True, ["the table had another name, which was not captured"]), (False, [])):
        stream = Relations(
            {},
            read_catalog=lambda _: ACCOUNT,
            wanted=lambda _: True,
            new_tables_are_complete=True,
            had=lambda _oid, had=had: had,
        )

        _, made = stream.resolve(said(KEY, OWNER))

        assert made is not None
        assert [hole.why for hole in made.holes] == whys


@pytest.mark.parametrize(
    ("compares", "note", "is_there", "is_gap"),
    [
        (False, NOTE, True, True),
        (True, NOTE, True, False),
        (False, replace(NOTE, missing="5"), True, False),
        (False, NOTE, False, False),
    ],
)
def test_a_column_may_have_been_generated_that_comes_before_a_look_compared_the_table(
    *, compares: bool, note: Column, is_there: bool, is_gap: bool
) -> None:
    now = replace(table(KEY, OWNER, note), oid=OID)
    names = iter([ID, ID if is_there else None])
    stream = Relations(
        {ID: replace(table(KEY, OWNER), oid=OID)},
        read_catalog=lambda _: now,
        name_table=lambda _: next(names),
        wanted=lambda _: True,
        new_tables_are_complete=True,
        compares=lambda _oid: compares,
    )

    _, came = stream.resolve(replace(said(KEY, OWNER, NOTE), relation=OID))

    assert came is not None
    assert bool(came.holes) is is_gap


def test_a_column_that_was_made_again_is_told_by_its_number() -> None:
    key, owner = replace(KEY, number=1), replace(OWNER, number=2)

    said_so = difference(table(key, owner), table(key, replace(owner, number=3)))

    assert said_so.lossy == "a column was dropped and made again: owner"
    assert said_so.values == {"owner": "new"}
    wider = difference(table(key), table(key, replace(owner, nullable=False)))
    assert wider.lossy == "an added column has a default, and its value for older rows is not known"


def test_a_text_of_bounded_length_that_stays_as_it_was_keeps_its_values() -> None:
    short, shorter = Column("s", VARCHAR, 24), Column("s", VARCHAR, 14)

    assert difference(table(KEY, short), table(KEY, short, NOTE)).lossy is None
    assert difference(table(KEY, shorter), table(KEY, short)).lossy is None
    assert difference(table(KEY, short), table(KEY, shorter)).lossy is not None


def test_a_column_of_the_same_number_was_renamed_and_a_new_number_was_added() -> None:
    key, owner = replace(KEY, number=1), replace(OWNER, number=2)
    other = replace(owner, name="other")

    renamed = difference(table(key, owner), table(key, other))
    assert (dict(renamed.renamed), renamed.lossy) == ({"owner": "other"}, None)

    code = replace(KEY, name="code", nullable=True, number=3)
    added = difference(table(key, owner), table(key, code))
    assert (dict(added.renamed), added.lossy) == ({}, None)

    for unsure in (
        difference(table(key, owner), table(key, replace(code, number=0))),
        difference(table(KEY, owner), table(KEY, code)),
    ):
        assert unsure.lossy is not None
        assert unsure.lossy.startswith("a column was renamed, or dropped and another added")


def test_a_column_whose_name_another_one_has_now_is_a_gap() -> None:
    """`RENAME d TO e, ADD d` and the like: no name went, and values are under another one."""
    wide = replace(N2, type_oid=20, type_name="bigint")
    for before, after in (
        ((N1, N3), (N1, replace(N3, name="memo"), replace(N3, number=4))),
        ((N1, wide, N3), (N1, replace(wide, name="note"), replace(N3, name="memo"))),
        ((N1, N2, N3), (N1, replace(N2, name="note"), replace(N3, name="owner"))),
    ):
        for numbered in (True, False):
            shapes = [
                table(*(c if numbered else replace(c, number=0) for c in columns))
                for columns in (before, after)
            ]
            change = difference(*shapes)
            assert [gap.kind for gap in change.holes] == ["suspected"], (before, after, numbered)


def test_a_key_is_followed_by_its_number_whatever_has_its_name_now() -> None:
    other = replace(N1, name="former")
    change = difference(
        table(N1, N2), replace(table(other, N2, replace(N1, number=3)), key=("former",))
    )

    assert (dict(change.renamed), dict(change.values)) == ({N1.name: "former"}, {N1.name: "new"})
    assert [gap.kind for gap in change.holes] == ["suspected"]


# ---------------------------------------------------------------- column lists
N1, N2, N3 = (replace(c, number=n) for n, c in enumerate((KEY, OWNER, NOTE), 1))


@pytest.mark.parametrize(
    ("stream", "catalog", "withheld"),
    [
        pytest.param((KEY, OWNER), (N1, N2, N3), ["note"], id="still there: a list"),
        pytest.param((KEY,), (N1, N2, N3), ["owner", "note"], id="a shorter list"),
        pytest.param((KEY, OWNER), (N1, N2, replace(N3, name="memo")), ["note"], id="and renamed"),
        pytest.param((KEY, OWNER), (N1, N2), [], id="dropped"),
        pytest.param((KEY, OWNER), (N1, N2, replace(N3, number=4)), [], id="dropped, made again"),
        pytest.param((KEY, NOTE, replace(OWNER, name="b")), (N1, replace(N2, name="b"), N3), [],
                     id="renamed: it is sent"),
        pytest.param((KEY, OWNER), None, [], id="the table is gone"),
    ],
)  # fmt: skip
def test_a_column_that_is_there_and_not_sent_is_withheld(
    stream: tuple[Column, ...], catalog: tuple[Column, ...] | None, withheld: list[str]
) -> None:
    reading = None if catalog is None else table(*catalog)

    assert relations(table(N1, N2, N3), reading).withheld(said(*stream)) == withheld


def test_nothing_is_withheld_of_a_table_without_numbers_or_that_is_not_known() -> None:
    assert relations(table(KEY, OWNER, NOTE), table(KEY, OWNER, NOTE)).withheld(said(KEY)) == []
    assert relations(None, table(N1, N2, N3)).withheld(said(KEY)) == []


def test_the_catalog_is_not_read_where_all_columns_are_sent() -> None:
    known = Relations(
        {ID: table(N1, N2)},
        read_catalog=lambda table: pytest.fail(f"{table} was read"),
        wanted=lambda _: True,
        new_tables_are_complete=True,
    )

    assert known.withheld(said(KEY, OWNER, NOTE)) == []


def test_the_catalog_is_not_asked_for_the_shape_of_a_statement_until_its_table_goes() -> None:
    """A reading of now may be younger than the statement."""
    read: list[TableId] = []
    stream = Relations(
        {ID: ACCOUNT},
        read_catalog=read.append,  # type: ignore[arg-type]
        wanted=lambda _: True,
        new_tables_are_complete=True,
    )
    for change, reads in (
        (ShapeChange(None, ACCOUNT, "CREATE TABLE"), 0),
        (ShapeChange(ACCOUNT, None, "DROP TABLE"), 1),
    ):
        stream.apply(StatementChanges((change,), Origin.TRIGGER))
        stream.resolve(said(KEY, OWNER))

        assert len(read) == reads


@pytest.mark.parametrize(
    ("before", "after", "kinds"),
    [
        pytest.param((), (OWNER,), [], id="the first column"),
        pytest.param((N1, N3), (N1, replace(N2, number=4), OWNER), ["suspected"], id="one unread"),
    ],
)
def test_a_column_at_the_end_of_a_table_whose_last_one_stayed_was_added(
    before: tuple[Column, ...], after: tuple[Column, ...], kinds: list[str]
) -> None:
    found = difference(replace(table(*before), key=()), replace(table(*after), key=()))

    assert [gap.kind for gap in found.holes] == kinds


def test_one_added_column_of_several_may_be_the_last_one_with_another_name() -> None:
    key, owner = replace(KEY, number=1), replace(OWNER, number=2)
    added = replace(KEY, name="code", nullable=True, number=3)
    unread = replace(KEY, name="more", nullable=True)

    unsure = difference(table(key, owner), table(key, added, unread)).lossy

    assert unsure is not None
    assert unsure.startswith("a column was renamed, or dropped and another added")


def test_one_column_of_another_type_may_have_taken_the_name_of_one_that_went() -> None:
    after = table(KEY, replace(NOTE, type_oid=INT), Column("come", 16))

    unsure = difference(table(KEY, OWNER, NOTE), after).lossy

    assert unsure == "columns may have taken names of each other: come, id, note"


def test_an_array_keeps_the_labels_that_its_values_were_printed_with() -> None:
    """The catalog is read later than a row was written, and its elements' type has other labels."""

    def moods(*labels: str) -> TableSchema:
        mood = UserType("e", "mood", labels=labels)
        return table(Column("m", 51, number=1, user_type=UserType("a", "_mood", "", 50, of=mood)))

    assert as_printed(moods("sad", "ok"), moods("sad", "fine")) == moods("sad", "ok")
