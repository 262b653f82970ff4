"""The native walker makes the records that Python makes of the same messages."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from producer.core.events import RowsAssembled, TransactionEnded, Walked, sizes_of
from producer.core.stream.walk import MAX_ROWS, Lent, Stage
from schemas.envelope import EnvelopeOptions
from schemas.tables import UNCHANGED, Column, ReplicaIdentity, TableId, TableSchema
from schemas.types import TypeOptions
from tests.producer.native import twins
from tests.producer.native.twins import Cell, World, agree, take
from tests.schemas.types.values import CHOSEN, RANDOM, SAMPLES, SURPRISING, Sample

ROOT = Path(__file__).parents[3]
GOLDEN = sorted((ROOT / "tests/golden/pgoutput").glob("*.json"))
ACCOUNT = TableSchema(
    TableId("public", "account"),
    (
        Column("id", 20, nullable=False),
        Column("owner", 25),
        Column("balance", 1700, (12 << 16 | 2) + 4),
        Column("note", 1043),
    ),
    ("id",),
    (),
    ReplicaIdentity.DEFAULT,
    ("id",),
)
AUDIT = replace(ACCOUNT, id=TableId("public", "audit"))
WORLD = World([ACCOUNT, AUDIT])
ALICE: list[Cell] = [b"7", b"Alice", b"90.00", None]
ONLY_KEY: list[Cell] = [b"7", None, None, None]
ALL = [1 << 30]  # no limit


def transaction(start: int, *payloads: bytes, xid: int = 700) -> list[bytes]:
    return [twins.begin(start, xid), *payloads, twins.commit(start, start + 8)]


def described() -> list[bytes]:
    return [twins.relation(1, ACCOUNT), twins.relation(2, AUDIT)]


def bound(first: int = 1_000) -> list[bytes]:
    """Describe both tables, and write a row of each, so that they are bound."""
    rows = [twins.insert(1, ALICE), twins.insert(2, ALICE)]
    return [*described(), *transaction(first, *rows, xid=699)]


# ---------------------------------------------------------------- any stream
KINDS: dict[str, tuple[int, int, Any]] = {
    **{
        sample.type_name: (sample.oid, sample.type_mod, st.sampled_from(sample.texts))
        for sample in SAMPLES
        if max(map(len, sample.texts)) < 1_000
    },
    **RANDOM,
}
OPTIONS = [EnvelopeOptions(), *(EnvelopeOptions(types=choice) for _, choice, _ in CHOSEN)]


def columns(draw: st.DrawFn) -> tuple[Column, ...]:
    kinds = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=5))
    return tuple(
        Column(f"c{at}", KINDS[kind][0], KINDS[kind][1], kind, draw(st.integers(0, 3)) > 0)
        for at, kind in enumerate(kinds)
    )


def table(draw: st.DrawFn, name: str) -> TableSchema:
    cols = columns(draw)
    identity = draw(st.sampled_from(list(ReplicaIdentity)))
    key = tuple(draw(st.lists(st.sampled_from([c.name for c in cols]), unique=True, max_size=2)))
    sent = key if identity is not ReplicaIdentity.NOTHING else ()
    return TableSchema(TableId("s", name), cols, key, (), identity, sent)


def cell(draw: st.DrawFn, column: Column) -> Cell:
    choice = draw(st.integers(0, 30))
    if choice < 3 and (column.nullable or not choice):
        return None
    if choice in (4, 7):
        return UNCHANGED
    if choice == 5:
        return draw(st.binary(max_size=12))
    if choice == 6 and (surprising := SURPRISING.get(column.type_name)):
        return draw(st.sampled_from(surprising)).encode()
    text: str = draw(KINDS[column.type_name][2])
    return text.encode()


def row(draw: st.DrawFn, of: TableSchema) -> list[Cell]:
    return [cell(draw, column) for column in of.columns]


def change(draw: st.DrawFn, number: int, of: TableSchema) -> bytes:
    """One payload about a table; rarely one that cannot be."""
    match draw(st.integers(0, 12)):
        case 0:
            payload = twins.truncate(number)
        case 1 | 2:
            payload = twins.delete(number, draw(st.sampled_from("KO")), row(draw, of))
        case 3 | 4:
            payload = twins.update(number, row(draw, of))
        case 5 | 6:
            kind = draw(st.sampled_from("KO"))
            payload = twins.update(number, row(draw, of), kind, row(draw, of))
        case _:
            payload = twins.insert(number, row(draw, of))
    if draw(st.integers(0, 60)) == 0:
        at = draw(st.integers(0, len(payload)))
        payload = payload[:at] + draw(st.binary(max_size=3))
    return payload


@st.composite
def histories(draw: st.DrawFn) -> tuple[World, list[bytes]]:
    tables = [table(draw, f"t{n}") for n in range(draw(st.integers(1, 3)))]
    payloads = [twins.relation(number, of) for number, of in enumerate(tables)]
    in_force = list(tables)
    lsn = draw(st.integers(300, 800))
    for xid in range(700, 700 + draw(st.integers(1, 6))):
        payloads.append(twins.begin(lsn, xid))
        for _ in range(draw(st.integers(0, 5))):
            number = draw(st.integers(0, len(tables) - 1))
            if draw(st.integers(0, 12)) == 0:  # DDL
                changed = replace(in_force[number], columns=columns(draw))
                in_force[number] = replace(changed, key=(), identity_columns=())
                payloads.append(twins.relation(number, in_force[number]))
            payloads.append(change(draw, number, in_force[number]))
        payloads.append(twins.commit(lsn, lsn + 8))
        lsn += draw(st.integers(8, 200))
    world = World(
        tables,
        {of.id: of for of in in_force},
        draw(st.sampled_from(OPTIONS)),
        resume=500,
        max_row_bytes=draw(st.sampled_from([1 << 20, 1 << 20, 400])),
        puts_aside=draw(st.booleans()),
        keyed=draw(st.booleans()),
        partitions=draw(st.sampled_from([0, 0, 1, 5])),
    )
    return world, payloads


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    histories(),
    st.lists(st.integers(0, 4), min_size=1, max_size=4).filter(any),
    st.sampled_from([1, 2, 7, 1 << 20]),
)
def test_any_stream_is_the_same_with_the_walker_wherever_it_stops(
    history: tuple[World, list[bytes]], limits: list[int], read: int
) -> None:
    world, payloads = history

    agree(world, twins.placed(payloads), limits, read)


# ---------------------------------------------------------------- every type
def one_column(column: Column, texts: Sequence[bytes], options: EnvelopeOptions) -> None:
    of = TableSchema(TableId("s", "t"), (Column("id", 23, nullable=False), column))
    of = replace(of, replica_identity=ReplicaIdentity.FULL)
    payloads = [twins.relation(1, of)]
    for at, text in enumerate([b"", *texts]):
        new: list[Cell] = [b"%d" % at, text or None]
        payloads += transaction(
            1_000 + 10 * at,
            twins.insert(1, new),
            twins.update(1, new, "O", new),
            twins.update(1, [new[0], UNCHANGED]),
            twins.delete(1, "O", new),
            xid=at,
        )
    agree(World([of], options=options), twins.placed(payloads), ALL, 1 << 20)


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.type_name)
@pytest.mark.parametrize("nullable", [True, False])
def test_every_sample_of_every_type(sample: Sample, nullable: bool) -> None:
    texts = [text.encode() for text in sample.texts]

    one_column(sample.column(nullable=nullable), texts, EnvelopeOptions())


@pytest.mark.parametrize(
    ("choice", "sample"),
    [
        pytest.param(choice, sample, id=f"{name} {sample.type_name}")
        for name, choice, sample in CHOSEN
    ],
)
def test_every_sample_of_every_type_option(choice: TypeOptions, sample: Sample) -> None:
    texts = [text.encode() for text in sample.texts]

    one_column(sample.column(), texts, EnvelopeOptions(types=choice))


@pytest.mark.parametrize(
    ("oid", "mod", "texts"),
    [
        pytest.param(16, -1, ["t", "f"], id="boolean"),
        pytest.param(21, -1, ["0", "-32768", "32767"], id="smallint"),
        pytest.param(23, -1, ["0", "-1", "2147483647", "-2147483648"], id="integer"),
        pytest.param(20, -1, ["9223372036854775807", "-9223372036854775808"], id="bigint"),
        pytest.param(25, -1, ["", "a", "naïve 金额 🐘", "x" * 9_000], id="text"),
        pytest.param(17, -1, ["\\x", "\\x00fF", "\\x" + "ab" * 9_000], id="bytea"),
        pytest.param(1082, -1, ["0001-01-01", "2000-02-29", "9999-12-31"], id="date"),
        pytest.param(701, -1, ["0", "-0", "0.1", "5e-324", "1e+16"], id="double precision"),
        pytest.param(1700, (12 << 16 | 2) + 4, ["0.00", "-1.28", "9999999999.99"], id="numeric"),
        pytest.param(
            1700,
            (1_000 << 16 | 500) + 4,
            ["-" + "9" * 500 + "." + "9" * 500, "-" + "0" * 500 + "." + "0" * 500],
            id="numeric(1000,500)",
        ),
        pytest.param(1700, -1, ["0.000", "-1.50", "1" + "0" * 400, ".5"], id="free numeric"),
        pytest.param(
            1184, -1, ["2024-05-01 12:00:00+00", "0001-01-01 23:59:59.000001+00"], id="timestamptz"
        ),
        pytest.param(1184, 0, ["2024-05-01 12:00:00+00"], id="timestamptz(0)"),
        pytest.param(1184, 2, ["2024-05-01 12:00:00.5+00"], id="timestamptz(2)"),
        pytest.param(
            1114, -1, ["1969-12-31 23:59:59.999999", "9999-12-31 00:00:00"], id="timestamp"
        ),
        pytest.param(1114, 3, ["1969-12-31 23:59:59.999"], id="timestamp(3)"),
        pytest.param(1083, -1, ["01:02:03.4"], id="time, by Python"),
    ],
)
def test_common_values_are_walked(oid: int, mod: int, texts: list[str]) -> None:
    of = TableSchema(TableId("s", "t"), (Column("v", oid, mod), Column("w", oid, mod)))
    rows = [twins.insert(1, [None, None]), *(twins.insert(1, [t.encode(), None]) for t in texts)]
    payloads = [twins.relation(1, of), *transaction(1_000, *rows)]

    taken = agree(World([of]), twins.placed(payloads), ALL, 1)

    assert taken.walked_rows == len(texts)


# ---------------------------------------------------------------- recordings
@pytest.mark.parametrize("path", GOLDEN, ids=lambda path: path.stem)
def test_recorded_streams_are_the_same(path: Path) -> None:
    payloads = [bytes.fromhex(m["hex"]) for m in json.loads(path.read_text())["messages"]]

    for limits, read in (ALL, 1 << 20), ([1], 1 << 20), ([2, 1, 0], 3):
        agree(World([], resume=0), twins.placed(payloads), limits, read)


# ---------------------------------------------------------------- one fact each
def test_rows_of_a_bound_table_are_all_walked() -> None:
    rows = [
        twins.insert(1, ALICE),
        twins.update(2, ALICE),
        twins.update(1, ALICE, "K", ONLY_KEY),
        twins.delete(2, "K", ONLY_KEY),
    ]

    taken = agree(WORLD, twins.placed(bound() + transaction(2_000, *rows)), ALL, 1 << 20)

    assert taken.walked_rows == len(rows)


def test_a_batch_ends_at_a_commit_and_what_is_behind_it_is_another() -> None:
    rows = [twins.insert(1, ALICE), twins.insert(2, ALICE), twins.insert(1, ALICE)]
    payloads = bound()
    payloads += transaction(2_000, *rows) + transaction(3_000, *rows[:1])
    payloads += transaction(4_000, *rows)[:-1]

    (*_, walk) = agree(WORLD, twins.placed(payloads), ALL, 1 << 20).walks

    first, second = walk.walked
    assert [len(first.records), len(second.records)] == [4, 3]
    assert (first.commits, first.rows, first.end_lsn) == (2, 4, 3_008)
    assert (second.commits, second.rows, second.end_lsn, second.committed_at) == (0, 0, 0, 0)
    places = {("bank.public.account", 0): 2, ("bank.public.audit", 0): 1}
    assert [counts for counts, _ in first.records.transactions()] == [
        places,
        {("bank.public.account", 0): 1},
    ]
    assert second.records.transactions() == [(places, None)]
    assert walk.open == Lent(
        Stage.NUMBERED, 44, 3, twins.NOW_US, 4_000, 800_000_000_000_000, 700, is_plain=True
    )


def test_a_transaction_whose_rows_went_before_ends_in_a_batch_without_rows() -> None:
    payloads = bound() + transaction(2_000, twins.insert(1, ALICE))
    messages = twins.placed(payloads)

    walks = take(WORLD, messages, limits=ALL, read=len(messages) - 1).walks

    (walked,) = walks[-1].walked
    assert (len(walked.records), walked.commits, walked.rows) == (0, 1, 1)
    ((counts, ended),) = walked.records.transactions()
    assert counts == {}
    assert isinstance(ended, TransactionEnded)
    assert (ended.seq, ended.rows, ended.end_lsn) == (42, 1, 2_008)


def test_numbers_of_a_batch_are_those_of_its_records() -> None:
    rows = [twins.insert(1 + n % 2, [b"%d" % n, b"x" * n, b"1.00", None]) for n in range(50)]
    payloads = bound() + transaction(2_000, *rows[:30]) + transaction(3_000, *rows[30:])[:-1]

    taken = agree(WORLD, twins.placed(payloads), [7], 1 << 20)

    batches = [event for event in taken.happened if isinstance(event, Walked)]
    assert len(batches) > 2
    for walked in batches:
        records = list(walked.records)
        assert walked.records.size == sum(len(r[2] or b"") + len(r[3] or b"") for r in records)
        assert set(walked.records.topics) == {r[0] for r in records}
        plain = RowsAssembled(records, 0)
        assert sizes_of(walked) == sizes_of(plain) != {}
        assert [walked.records[at] for at in range(len(records))] == records


@pytest.mark.parametrize(("rows", "size"), [(3 * MAX_ROWS, 1), (100, 100_000)])
def test_a_giant_transaction_comes_in_batches(rows: int, size: int) -> None:
    row = twins.insert(1, [b"7", b"x" * size, b"1.00", None])

    taken = agree(WORLD, twins.placed(bound() + transaction(2_000, *[row] * rows)), ALL, 1 << 20)

    sizes = [part.size for walk in taken.walks for part in walk.walked]
    assert taken.walked_rows >= rows - 5  # some came with what Python took before
    assert len(sizes) in (3, 4)
    assert max(sizes) < (4 << 20) + 2 * size + 1_000


def test_a_transaction_delivered_before_is_passed_over_from_its_second_message_on() -> None:
    old = transaction(400, twins.insert(1, ALICE), twins.delete(9, "O", ALICE), xid=5)

    taken = agree(WORLD, twins.placed(bound() + old + transaction(2_000)), ALL, 1 << 20)

    assert [walk.at for walk in taken.walks][-2:] == [len(bound()), len(bound()) + 6]


def test_empty_transactions_move_the_position() -> None:
    payloads = bound() + transaction(2_000) + transaction(3_000, xid=701)

    taken = agree(WORLD, twins.placed(payloads), ALL, 1 << 20)

    assert taken.walks[-1].position == 3_008
    assert taken.walks[-1].begun == [700, 701]


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(twins.update(1, [b"7", UNCHANGED, b"1.00", None]), id="no old row"),
        pytest.param(twins.update(1, [b"7", UNCHANGED, b"1.00", UNCHANGED], "K", ONLY_KEY), id="K"),
        pytest.param(twins.update(1, [UNCHANGED, UNCHANGED, UNCHANGED, None]), id="NOT NULL"),
    ],
)
def test_unchanged_toast_values_are_walked(payload: bytes) -> None:
    payloads = bound() + transaction(2_000, twins.insert(1, ALICE), payload)

    taken = agree(WORLD, twins.placed(payloads), ALL, 1 << 20)

    assert taken.walked_rows == 2


@pytest.mark.parametrize(
    "odd",
    [
        pytest.param(
            twins.update(1, [b"7", UNCHANGED, b"1.00", None], "O", ALICE), id="unsent, but known"
        ),
        pytest.param(twins.insert(1, [b"7", b"\xff", b"1.00", None]), id="no text"),
        pytest.param(twins.insert(1, [b"7", b"a", b"NaN", None]), id="NaN"),
        pytest.param(twins.insert(1, [None, b"a", b"1.00", None]), id="NULL in NOT NULL"),
        pytest.param(twins.insert(1, [b"7", b"x" * 5_000, b"1.00", None]), id="large"),
        pytest.param(twins.insert(3, ALICE), id="unbound"),
        pytest.param(twins.insert(1, ALICE[:3]), id="too few columns"),
        pytest.param(twins.insert(1, ALICE) + b"n", id="too long"),
        pytest.param(twins.insert(1, ALICE)[:-2], id="too short"),
        pytest.param(twins.delete(1, "N", ONLY_KEY), id="another kind"),
        pytest.param(twins.truncate(1), id="truncate"),
        pytest.param(twins.begin(3_000, 1), id="BEGIN inside"),
        pytest.param(b"", id="empty"),
        pytest.param(twins.commit(2_000, 2_008)[:-1], id="short COMMIT"),
        pytest.param(b"C\1" + twins.commit(2_000, 2_008)[2:], id="COMMIT with flags"),
    ],
)
def test_an_unusual_message_stops_the_walker_before_it(odd: bytes) -> None:
    world = replace(WORLD, max_row_bytes=4_000)
    payloads = bound() + transaction(2_000, twins.insert(1, ALICE), odd, twins.insert(2, ALICE))

    taken = agree(world, twins.placed(payloads), ALL, 1 << 20)

    assert len(bound()) + 2 in [walk.at for walk in taken.walks]
    at_first = agree(world, twins.placed(bound() + transaction(2_000, odd)), ALL, 1 << 20)
    assert len(bound()) + 1 in [walk.at for walk in at_first.walks]


# ---------------------------------------------------------------- by primary key
NUMBERED = replace(
    ACCOUNT,
    id=TableId("public", "numbered"),
    columns=(Column("n", 1700), Column("c", 1042), Column("v", 25)),
    key=("c", "n"),
    identity_columns=("n", "c"),
)
BY_KEY = {"key and partition": (True, 7), "key": (True, 0), "partition": (False, 7)}


@pytest.mark.parametrize(("keyed", "partitions"), BY_KEY.values(), ids=BY_KEY)
def test_rows_are_keyed_and_placed_by_primary_key_natively(keyed: bool, partitions: int) -> None:
    numbers = [b"1.50", b"1.5", b"100", b"100.00", b"-0.0", b".0", b"7"]
    rows: list[list[Cell]] = [[number, b"ab  ", b"x"] for number in numbers]
    payloads = [twins.relation(1, NUMBERED)]
    changes = [twins.insert(1, rows[0])]
    for new in rows:
        old: list[Cell] = [*new[:2], None]
        changes += [twins.insert(1, new), twins.update(1, new), twins.update(1, new, "K", old)]
        changes += [twins.delete(1, "K", old)]
    payloads += transaction(1_000, *changes)
    world = World([NUMBERED], keyed=keyed, partitions=partitions)

    taken = agree(world, twins.placed(payloads), ALL, 1)

    assert taken.walked_rows == len(rows) * (4 + keyed)  # with a tombstone behind each delete
    assert len({record[1] for record in taken.records}) == (3 if partitions else 1)
    if keyed:
        tombstones = [record for record in taken.records if record[3] is None]
        assert len({record[2] for record in tombstones}) == 4  # spellings of one value are one key
        assert len(tombstones) == len(rows)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(twins.update(1, ALICE, "K", [b"8", None, None, None]), id="another key"),
        pytest.param(twins.update(1, [UNCHANGED, *ALICE[1:]], "K", ONLY_KEY), id="unsent key"),
    ],
)
@pytest.mark.parametrize(("keyed", "partitions"), BY_KEY.values(), ids=BY_KEY)
def test_a_key_that_changed_or_was_not_sent_is_left_to_python(
    payload: bytes, keyed: bool, partitions: int
) -> None:
    world = World([ACCOUNT, AUDIT], keyed=keyed, partitions=partitions)
    payloads = bound() + transaction(2_000, twins.insert(1, ALICE), payload, twins.insert(1, ALICE))

    taken = agree(world, twins.placed(payloads), ALL, 1 << 20)

    assert len(bound()) + 2 in [walk.at for walk in taken.walks]


def test_a_table_without_primary_key_has_no_keys_where_others_have() -> None:
    of = replace(ACCOUNT, key=(), identity_columns=())
    payloads = [twins.relation(1, of), *transaction(1_000, *[twins.insert(1, ALICE)] * 3)]

    taken = agree(World([of], keyed=True, partitions=3), twins.placed(payloads), ALL, 1)

    assert taken.walked_rows == 2
    assert {(record[1], record[2]) for record in taken.records} == {(0, None)}
