"""Keys and partitions: what a change of key, a delete and a TRUNCATE become."""

from dataclasses import replace

import pytest

from producer.core.changes import (
    Delete,
    Truncate,
    Update,
)
from producer.core.events import (
    TransactionEnded,
)
from producer.core.router import partition_of, table_key
from schemas.tables import UNCHANGED, Column, TableId, UserType
from tests.producer.core.assembling import (
    ACCOUNT,
    ACCOUNTS,
    COLUMNS,
    ID,
    Play,
    change,
    described,
    insert,
    placed,
    position_of,
    positions,
    read,
    records,
)


def test_truncate_is_one_record_a_partition_and_numbered_like_rows() -> None:
    truncate = Truncate((ACCOUNTS,), cascade=False, restart_identity=False)

    (one,) = records(Play().transaction(truncate))
    many = records(Play(partitions=3).transaction(truncate))

    assert read(one)["op"] == "t"
    assert [(record[1], read(record)["op"]) for record in many] == [(0, "t"), (1, "t"), (2, "t")]
    assert [position_of(record[4]).ordinal for record in many] == [0, 1, 2]


def test_a_truncate_has_no_key_where_rows_have_avro_keys() -> None:
    truncate = Truncate((ACCOUNTS,), cascade=False, restart_identity=False)

    (plain,) = records(Play().transaction(truncate))
    (keyed,) = records(Play(keyed=True).transaction(truncate))

    assert (plain[2], keyed[2]) == (b"public.account", None)


def test_with_key_table_a_key_change_is_one_record() -> None:
    assert placed(Play().transaction(change(1, 2))) == [(b"public.account", 0, "u")]


@pytest.mark.parametrize("kind", ["K", "O"])
def test_a_key_change_is_the_update_and_a_delete_of_the_old_key_with_its_tombstone(
    kind: str,
) -> None:
    play = Play(keyed=True)

    happened = play.transaction(change(1, 2, kind), insert(3))

    assert placed(happened) == [(b"2", 0, "u"), (b"1", 0, "d"), (b"1", 0, None), (b"3", 0, "c")]
    assert [key.ordinal for key in positions(happened)] == [0, 1, 1, 2]
    buried = read(records(happened)[1])
    assert buried["before"] == {"id": 1, "owner": "Alice" if kind == "O" else None}
    assert buried["after"] is None
    assert isinstance(happened[-1], TransactionEnded)
    assert happened[-1].rows == 3  # a tombstone is a record, but no row


def test_an_update_that_leaves_the_key_alone_is_one_record() -> None:
    play = Play(keyed=True)

    assert placed(play.transaction(change(None, 2), change(2, 2, "O"))) == [
        (b"2", 0, "u"),
        (b"2", 0, "u"),
    ]


def test_a_delete_is_followed_by_its_tombstone() -> None:
    happened = Play(keyed=True).transaction(Delete(ACCOUNTS, "K", [b"7", None]))

    assert placed(happened) == [(b"7", 0, "d"), (b"7", 0, None)]


def test_rows_placed_by_key_change_places_with_it_and_have_no_tombstones() -> None:
    play = Play(partitions=3)

    happened = play.transaction(insert(1), change(1, 2), Delete(ACCOUNTS, "K", [b"2", None]))

    key = b"public.account"
    assert placed(happened) == [(key, 1, "c"), (key, 2, "u"), (key, 1, "d"), (key, 2, "d")]


def test_a_long_key_that_did_not_change_is_taken_from_the_old_row() -> None:
    play = Play(keyed=True)

    happened = play.transaction(Update(ACCOUNTS, "K", [b"7", None], [UNCHANGED, b"Bob"]))

    assert placed(happened) == [(b"7", 0, "u")]


@pytest.mark.parametrize(
    ("type_oid", "old", "new", "moves"),
    [
        (1700, b"1.0", b"1.00", False),
        (1700, b"1.0", b"1.01", True),
        (1042, b"a ", b"a", False),
        (25, b"a ", b"a", True),
        (99_001, b"1.0", b"1.00", False),
    ],
)
def test_a_key_that_is_equal_for_the_source_did_not_move(
    type_oid: int, old: bytes, new: bytes, moves: bool
) -> None:
    price = UserType("d", "price", "numeric", 1700) if type_oid == 99_001 else None
    columns = (Column("id", type_oid, nullable=False, user_type=price), COLUMNS[1])
    table = replace(ACCOUNT, columns=columns)
    play = Play({ID: table}, table, keyed=True)
    play.feed(described(*columns))

    happened = play.transaction(Update(ACCOUNTS, "K", [old, None], [new, b"Bob"]))

    assert len(records(happened)) == (3 if moves else 1)


# ---------------------------------------------------------------- small things
def test_partitions_are_librdkafkas() -> None:
    assert partition_of(b"public.account", 7) == 1_175_623_704 % 7  # crc32
    assert {partition_of(b"%d" % n, 4) for n in range(50)} == {0, 1, 2, 3}
    assert table_key(TableId("s", "金额")) == "s.金额".encode()
