"""A table is bound once, and again when the stream or the catalog shows another shape of it."""

from dataclasses import replace

from producer.core.catalog.catalog_differences import Altered, Described, Dropped, Unseen
from producer.core.changes import (
    Insert,
)
from producer.core.events import (
    Fate,
    RowsAssembled,
    SchemaUsed,
    TransactionEnded,
)
from producer.core.shape_change import ShapeChange, StatementChanges
from schemas.control import Hole, Origin
from schemas.positions import CommitKey
from schemas.tables import Column, TableId, Unique, UserType
from tests.producer.core.assembling import (
    ACCOUNT,
    ACCOUNTS,
    COLUMNS,
    DDL,
    ID,
    OTHERS,
    TOPIC,
    Play,
    begin,
    commit,
    described,
    insert,
    kinds,
    positions,
    records,
)


def test_a_table_is_bound_once_and_again_after_it_is_described_again() -> None:
    play = Play()
    play.transaction(insert(1), insert(2))
    play.transaction(insert(3), start=2000)
    assert len(play.published) == 1

    happened = play.transaction(described(*COLUMNS), insert(4), start=3000)

    assert len(play.published) == 2
    assert happened[0] == SchemaUsed(TOPIC, 2)


def test_a_new_shape_goes_out_as_ddl_before_its_first_row() -> None:
    play = Play()
    play.catalog = wider = replace(ACCOUNT, columns=(*COLUMNS, Column("note", 25)))

    happened = play.transaction(
        insert(1), described(*wider.columns), Insert(ACCOUNTS, [b"2", b"Bob", None])
    )

    assert [record[0] for record in records(happened)] == [TOPIC, DDL, TOPIC]
    assert positions(happened) == [CommitKey(2, 41, n) for n in range(3)]
    (change,) = play.changes
    assert (change.seq, change.ordinal, change.tag) == (41, 1, "ALTER TABLE")
    assert (change.before, change.after) == (ACCOUNT, wider)
    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert (ended.rows, ended.ddl_ordinals, ended.holes) == (3, (1,), ())
    used = [event.schema_id for event in happened if isinstance(event, SchemaUsed)]
    assert used == [1, 2]


def test_gaps_of_a_change_are_in_its_transaction_only() -> None:
    play = Play()
    need = Column("rate", 23, nullable=False)
    play.catalog = replace(ACCOUNT, columns=(*COLUMNS, need))

    first = play.transaction(described(*COLUMNS, need), Insert(ACCOUNTS, [b"2", b"Bob", b"1"]))
    second = play.transaction(Insert(ACCOUNTS, [b"3", b"Eve", b"1"]), start=2000)

    assert isinstance(first[-1], TransactionEnded)
    assert isinstance(second[-1], TransactionEnded)
    assert [gap.table for gap in first[-1].holes] == ["public.account"]
    assert second[-1].holes == ()
    assert second[-1].ddl_ordinals == ()


def test_columns_whose_values_change_with_names_are_a_gap_when_they_come() -> None:
    play = Play()
    regclass = Column("of", 2205, type_name="regclass", number=7)
    play.catalog = replace(ACCOUNT, columns=(*COLUMNS, regclass))

    first = play.transaction(described(*COLUMNS, regclass), Insert(ACCOUNTS, [b"2", b"Bob", b"t"]))
    second = play.transaction(Insert(ACCOUNTS, [b"3", b"Eve", b"t"]), start=2000)

    why = "values of of name objects of the source, and change with their names unseen"
    assert isinstance(first[-1], TransactionEnded)
    assert Hole("public.account", "seen", why) in first[-1].holes
    assert isinstance(second[-1], TransactionEnded)
    assert second[-1].holes == ()
    assert play.changes[0].lossy


def test_so_they_are_beside_a_gap_of_the_same_change() -> None:
    play = Play()
    regclass = Column("of", 2205, type_name="regclass", number=7)
    play.catalog = replace(ACCOUNT, columns=(*COLUMNS[:-1], regclass))

    happened = play.transaction(
        insert(1), described(*COLUMNS[:-1], regclass), Insert(ACCOUNTS, [b"2", b"t"])
    )

    assert isinstance(happened[-1], TransactionEnded)
    assert [gap.kind for gap in happened[-1].holes] == ["suspected", "seen"]


def test_a_composite_that_gets_an_attribute_whose_values_change_with_names_is_a_gap() -> None:
    pair = Column("of", 30_000, user_type=UserType("c", "pair", labels=("1:23:-1",)))
    named = replace(pair, user_type=UserType("c", "pair", labels=("1:23:-1", "2:2205:-1")))
    narrow, wide = (replace(ACCOUNT, columns=(*COLUMNS, one)) for one in (pair, named))
    play = Play({ID: narrow}, narrow)
    altered = ShapeChange(narrow, wide, "ALTER TYPE")

    ended = play.transaction(StatementChanges((altered,), Origin.TRIGGER))[-1]

    assert isinstance(ended, TransactionEnded)
    assert ["name objects of the source" in hole.why for hole in ended.holes] == [True]


def test_null_in_a_column_that_was_called_not_null_widens_the_schema() -> None:
    strict = (COLUMNS[0], replace(COLUMNS[1], nullable=False))
    play = Play({ID: replace(ACCOUNT, columns=strict)}, replace(ACCOUNT, columns=strict))

    happened = play.transaction(insert(1), insert(2, None), insert(3, None))

    assert kinds(happened) == [
        SchemaUsed,
        RowsAssembled,
        SchemaUsed,
        RowsAssembled,
        TransactionEnded,
    ]
    assert [table.columns[1].nullable for table in play.published] == [False, True]
    assert [len(event.records) for event in happened if isinstance(event, RowsAssembled)] == [1, 2]
    assert positions(happened) == [CommitKey(2, 41, n) for n in range(3)]
    assert play.changes == []


def test_what_the_catalog_shows_is_a_transaction_of_its_own_between_two_others() -> None:
    play = Play()
    play.feed(described(*COLUMNS), begin(1000), insert(1), commit(1000))
    unseen = Unseen(ID, "was dropped and made again")

    happened = play.assembler.explain([unseen, unseen], 2000)

    (ended,) = happened
    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows, ended.commit_start, ended.end_lsn) == (42, 0, 2000, 2000)
    assert ended.holes == (unseen.gap,)
    assert not play.assembler.is_open
    # The next commit may begin just there: it comes again after a restart, and counts.
    assert positions(play.feed(begin(2000), insert(2), commit(2000))) == [CommitKey(2, 43, 0)]
    again = Play()
    again.assembler._resume = 2000  # as a new self goes on
    assert len(records(again.feed(described(*COLUMNS), begin(2000), insert(2), commit(2000)))) == 1


def test_a_shape_of_the_catalog_is_reported_as_the_next_row_would_and_once() -> None:
    wide = replace(ACCOUNT, columns=(*COLUMNS, Column("more", 23, type_name="integer")))
    play = Play(catalog=wide)
    play.feed(described(*COLUMNS), begin(1000), insert(1), commit(1000))
    shown = Described(ID, described(*wide.columns))

    first = play.assembler.explain([shown], 2000)
    assert [change.after for change in play.changes] == [play.relations.known[ID]]
    assert play.relations.known[ID].names() == ("id", "owner", "more")
    assert (first[-1].rows, first[-1].ddl_ordinals, first[-1].holes) == (1, (0,), ())
    assert play.assembler.explain([shown], 2000)[-1:] != [first[-1]]
    assert len(play.changes) == 1, "the same again is not a change"


def test_a_table_that_is_gone_is_dropped_and_may_come_back() -> None:
    play = Play()

    happened = play.assembler.explain([Dropped(ID, ACCOUNT)], 2000)

    assert [(c.tag, c.before, c.after) for c in play.changes] == [("DROP TABLE", ACCOUNT, None)]
    assert happened[-1].ddl_ordinals == (0,)
    assert play.relations.known == {}
    play.feed(described(*COLUMNS), begin(3000), insert(1), commit(3000))
    assert [c.tag for c in play.changes] == ["DROP TABLE", "CREATE TABLE"]


def test_values_that_read_otherwise_are_a_gap_and_a_shape() -> None:
    play = Play()
    after = replace(ACCOUNT, columns=(COLUMNS[0], replace(COLUMNS[1], type_name="citext")))

    happened = play.assembler.explain([Altered(ID, ACCOUNT, after, "labels")], 2000)

    assert happened[-1].holes == (Hole("public.account", "seen", "labels"),)
    assert play.relations.known == {ID: after}
    assert play.changes[0].lossy == "labels"


def test_rows_that_a_column_list_cuts_are_a_gap_and_not_delivered() -> None:
    numbered = replace(
        ACCOUNT, columns=tuple(replace(c, number=n) for n, c in enumerate(COLUMNS, 1))
    )
    play = Play(known={ID: numbered}, catalog=numbered)

    happened = play.transaction(described(COLUMNS[0]), Insert(ACCOUNTS, [b"1"]))

    assert records(happened) == []
    assert isinstance(ended := happened[-1], TransactionEnded)
    why = f"a column list leaves out columns of its rows: {COLUMNS[1].name}"
    assert ended.holes == (Hole(str(ID), "seen", why),)
    later = play.transaction(Insert(ACCOUNTS, [b"2"]), start=2000)
    assert records(later) == []
    assert [
        hole for each in later if isinstance(each, TransactionEnded) for hole in each.holes
    ] == []


def test_rows_behind_a_statement_are_of_its_shape_though_nothing_describes_it_again() -> None:
    play = Play()
    play.transaction(insert(1))
    play.known[ID] = stated = replace(ACCOUNT, unique=(Unique("u", ("owner",)),))
    statement = StatementChanges((ShapeChange(ACCOUNT, stated, "ALTER TABLE"),), Origin.DEPARSED)

    _, row = records(play.transaction(statement, insert(2), start=2000))

    assert play.published[1:] == [stated, stated]
    assert row[3] is not None
    assert row[3][:5] == b"\x00" + (3).to_bytes(4)


def test_who_wants_a_table_is_asked_once_for_all_its_rows() -> None:
    play, asked = Play(), list[TableId]()
    other = ID._replace(name="other")
    play.relations._wanted = asked.append  # type: ignore[assignment]
    play.feed(described(*COLUMNS, relation=OTHERS, table=other))

    play.transaction(insert(1, relation=OTHERS), insert(2, relation=OTHERS))

    assert asked == [other]


def test_a_statement_longer_than_a_row_may_be_is_left_out_and_its_shapes_are_kept() -> None:
    play = Play(max_row_bytes=5)
    wider = replace(ACCOUNT, columns=(*COLUMNS, Column("note", 25)))
    altered = ShapeChange(ACCOUNT, wider, "ALTER TABLE", canonical="a canonical one")

    happened = play.transaction(
        StatementChanges((altered,), Origin.TRIGGER, sql="a long one", jddl="{}")
    )

    assert len(records(happened)) == 1
    said, kept = play.changes
    assert (said.sql, said.canonical, said.jddl, said.lossy) == (
        *("a long one", "a canonical one", "{}"),
        None,
    )
    assert (kept.sql, kept.canonical, kept.jddl, kept.before, kept.after) == (
        *(None, None, None),
        *(ACCOUNT, wider),
    )
    why = "the statement is longer than kafka.max-row-bytes, and left out"
    ended = happened[-1]
    assert isinstance(ended, TransactionEnded)
    assert (kept.lossy, ended.holes) == (why, (Hole(str(ID), "seen", why),)), "it is read again"
    assert ended.fates == (Fate(str(ID), str(ID)),)
    gone = play.transaction(
        StatementChanges((ShapeChange(wider, None, "DROP TABLE"),), Origin.TRIGGER, sql="long")
    )
    assert isinstance(gone[-1], TransactionEnded)
    assert gone[-1].holes == ()


def test_what_is_noted_of_a_table_ends_with_it_or_goes_along_to_its_new_name() -> None:
    play, other = Play(), ID._replace(name="other")
    for after, now in ((None, None), (replace(ACCOUNT, id=other), str(other))):
        change = ShapeChange(ACCOUNT, after, "ALTER TABLE")

        ended = play.transaction(StatementChanges((change,), Origin.TRIGGER))[-1]

        assert isinstance(ended, TransactionEnded)
        assert ended.fates == (Fate(str(ID), now),)
