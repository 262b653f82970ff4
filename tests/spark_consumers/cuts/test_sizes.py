"""Few rows while the target keeps up, many where much waits; never more than can be held."""

from dataclasses import replace

import pytest

from schemas.control import LoadPhase
from spark_consumers.cuts.complete import check_complete, promised
from spark_consumers.cuts.segments import segments
from spark_consumers.cuts.sizes import HELD_BYTES, Sizes
from spark_consumers.errors import CutsGap, KafkaDown
from spark_consumers.model import Ledger, Rows
from tests.spark_consumers.feed import Feed, alter, insert, table

A, B = table("a", "id integer, v text"), table("b", "id integer, v text")


@pytest.mark.parametrize(
    ("waiting", "at_first", "later"),
    [
        (0, 5_000, 5_000),
        (20_000, 5_000, 5_000),
        (20_001, 10_000, 50_000),
        (10**9, 10_000, 50_000),
    ],
)
def test_rows_by_lag_and_by_what_is_known_of_rows(waiting: int, at_first: int, later: int) -> None:
    sizes, always_few = Sizes(5_000, 50_000), Sizes(5_000)

    assert sizes.limit(waiting, 1) == at_first
    sizes.learn(rows_of(10))
    assert sizes.limit(waiting, 1) == later
    assert always_few.limit(waiting, 1) == 5_000
    assert (sizes.lookahead, always_few.lookahead) == (20_001, 0)


def test_rows_of_many_tables_are_taken_together() -> None:
    sizes = Sizes(5_000, 30_000)

    assert [sizes.limit(10**6, tables) for tables in (1, 100, 500)] == [10_000, 10_000, 50_000]
    assert sizes.limit(20_000, 500) == 5_000
    sizes.learn(rows_of(10))
    assert [sizes.limit(10**6, tables) for tables in (1, 100, 500)] == [30_000, 30_000, 50_000]


def rows_of(size: int, count: int = 10) -> Rows:
    feed = Feed()
    feed.start()
    feed.commits(*([insert(A, "1", "x" * size)] for _ in range(count)))
    return feed.read_rows(feed.segments(Ledger("bank"))[-1])


def test_large_rows_make_small_segments() -> None:
    sizes = Sizes(5_000, 50_000)
    sizes.learn(Rows({}))
    assert sizes.row_bytes == 0

    sizes.learn(rows_of(10_000))
    assert 10_000 < sizes.row_bytes < 11_000
    assert sizes.limit(10**6, 1) == sizes.limit(100, 1) == int(HELD_BYTES / sizes.row_bytes)

    sizes.learn(rows_of(40 << 20, 1))
    assert sizes.limit(10**6, 1) == 1


def test_segments_that_tasks_read_together_are_held_together() -> None:
    sizes = Sizes(5_000, 50_000)
    assert sizes.together(1_000) == HELD_BYTES // 1_000
    assert sizes.fit(2 * HELD_BYTES)

    sizes.learn(rows_of(10_000))
    most = int(HELD_BYTES / sizes.row_bytes)
    assert [sizes.together(most // 3), sizes.together(most), sizes.together(10**9)] == [3, 1, 1]
    assert sizes.together(0) == most
    assert sizes.fit(2 * most)
    assert not sizes.fit(2 * most + 2)
    assert not sizes.fit(sizes.everything + 1)


def test_smaller_rows_count_as_they_go_on_coming() -> None:
    sizes = Sizes(5_000)
    sizes.learn(rows_of(100_000))
    large = sizes.row_bytes
    sizes.learn(rows_of(10))
    assert large / 2 < sizes.row_bytes < large
    for _ in range(40):
        sizes.learn(rows_of(10))
    assert sizes.row_bytes < 400


def test_what_may_be_held_at_once() -> None:
    sizes = Sizes(5_000, 8_000)
    assert sizes.may_be_held(20_000, 5)
    assert not sizes.may_be_held(20_001, 5)
    assert sizes.may_be_held(100_000, 500)
    assert Sizes(5_000, 50_000).may_be_held(100_000, 5)
    assert not Sizes(5_000, 50_000).may_be_held(100_001, 5)
    assert not sizes.may_be_held(sizes.everything, 500)
    sizes.learn(rows_of(1 << 20))
    assert sizes.may_be_held(60, 5)
    assert not sizes.may_be_held(70, 5)


# ---------------------------------------------------------------- segments
def fed(*sizes: int) -> Feed:
    feed = Feed()
    feed.start()
    for at, size in enumerate(sizes):
        feed.commits([insert(A, f"{at}.{row}", "x") for row in range(size)])
    return feed


def cut(feed: Feed, sizes: Sizes) -> list[int]:
    plan = feed.segments(Ledger("bank"), sizes=sizes)
    for segment in plan:
        check_complete(promised(segment), feed.read_rows(segment))
    return [segment.rows for segment in plan if segment.rows]


def known(few: int, many: int) -> Sizes:
    """Sizes that know already what rows weigh."""
    sizes = Sizes(few, many)
    sizes.learn(rows_of(10))
    return sizes


def test_segments_grow_while_much_waits_and_are_few_rows_at_the_end() -> None:
    sizes = known(5, 50)

    assert cut(fed(*[4] * 5), sizes) == [4, 4, 4, 4, 4]
    assert cut(fed(*[1] * 118), sizes) == [50, 50, 5, 5, 5, 3]
    assert cut(fed(*[1] * 125), sizes) == [50, 50, 25]
    assert cut(fed(60, 1, 1), sizes) == [60, 2]
    assert cut(fed(*[1] * 40), Sizes(5, 50)) == [10, 10, 5, 5, 5, 5]


def test_ddl_stays_alone_however_much_waits() -> None:
    feed = fed(*[1] * 30)
    feed.commits([alter(A, B)])
    for _ in range(30):
        feed.commits([insert(A, "1", "x")])

    assert cut(feed, known(5, 50)) == [30, 1, 30]


@pytest.mark.parametrize("error", [KafkaDown, CutsGap])
def test_what_cannot_be_seen_keeps_nothing_before_it_back(error: type[Exception]) -> None:
    feed = fed(*[1] * 10)

    def accepted():
        yield from feed.records
        raise error("no")

    seen: list[int] = []
    with pytest.raises(error):
        seen.extend(one.rows for one in segments(Ledger("bank"), accepted(), sizes=Sizes(3, 50)))
    assert seen == [0, 3, 3, 3, 1]


def test_no_more_cuts_are_seen_than_tell_how_much_waits() -> None:
    feed = fed(*[1] * 100)
    seen: list[int] = []

    def accepted():
        for offset, cut in feed.records:
            seen.append(offset)
            yield offset, cut

    plan = segments(Ledger("bank"), accepted(), sizes=known(5, 50))
    next(plan)
    assert len(seen) == 1
    assert next(plan).rows == 50
    # The first, and 21 that wait behind it; the others as they are taken, and one more to see that
    # it does not fit.
    assert len(seen) == 52


def test_records_without_rows_do_not_wait() -> None:
    feed = fed(*[1] * 20)
    for _ in range(10):
        feed.heartbeat()
    feed.start()

    assert cut(feed, known(5, 50)) == [5, 5, 5, 5]


@pytest.mark.parametrize("last", [0, 1])
def test_rows_of_loads_wait_as_those_of_commits(last: int) -> None:
    feed = Feed()
    feed.start()
    feed.load(A, LoadPhase.BEGIN)
    for at in range(20):
        feed.load(A, LoadPhase.CHUNK, [str(at), "x"])
    feed.load(A, LoadPhase.CHUNK, *(["x", "x"] for _ in range(last)))

    sizes = cut(feed, known(5, 50))

    assert sizes == ([5, 5, 5, 5] if last == 0 else [21])


def test_a_chunk_is_put_to_others_by_the_smaller_limit_of_both() -> None:
    many = {f"bank.public.t{n}": (n,) for n in range(300)}
    for schemas in (many, {}), ({}, many):
        feed = Feed()
        feed.start()
        feed.load(A, LoadPhase.BEGIN)
        for at in range(30):
            feed.load(A, LoadPhase.CHUNK, [str(at), "x"])
            offset, record = feed.records[-1]
            feed.records[-1] = offset, replace(record, schema_ids=schemas[at > 0])  # type: ignore[call-arg, arg-type]

        assert cut(feed, Sizes(2, 3))[0] == 4
