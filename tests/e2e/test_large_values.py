"""Large values pass with raised limits, or stop with an error that says so.

`GAUSS_CDC_LARGE_MB` (96) is the size of the largest row.
"""

import os
import tracemalloc
from collections.abc import Callable
from dataclasses import replace

import pytest

from gauss_cdc_lab.services import Addresses
from producer.core.records.encode import TransactionConstants, compile_encoder
from producer.core.stream.unfit import WHY
from producer.errors import RowTooLarge
from producer.kafka.topics import TopicSettings
from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.decode import RowDecoder, split
from tests.e2e.path import Path, ask

MB = 1 << 20
MEGABYTES = int(os.environ.get("GAUSS_CDC_LARGE_MB", "96"))
TX = TransactionConstants(700, 99, 1, 1, 0, 0, 1)


def huge(seed: str, megabytes: int) -> str:
    """SQL of a text."""
    return f"repeat(md5('{seed}'), {megabytes} * 32768)"


def sums(url: str) -> list[tuple[object, ...]]:
    return ask(
        url, "SELECT id, md5(t), length(t), md5(b), length(b), md5(a::text) FROM big ORDER BY id"
    )


def test_rows_of_many_megabytes_arrive_with_raised_limits(
    addresses: Addresses, new_database: Callable[[], str], topic_prefix: str
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE big (id int PRIMARY KEY, t text, b bytea, a text[])")
    part = MEGABYTES // 4
    row = f"{huge('a', 2 * part)}, {huge('b', part)}::bytea, ARRAY[{huge('c', part)}, NULL]"
    ask(source, f"INSERT INTO big VALUES (1, {row})")
    limit = 100_000_000 + 2 * MB  # a broker takes requests of 104,857,600 bytes by default
    settings = TopicSettings(max_message_bytes=limit + MB)
    with Path(
        addresses, topic_prefix, source, target, max_row_bytes=limit, topic_settings=settings
    ) as path:
        path.start()
        path.catch_up()
        assert sums(target) == sums(source) != []

        ask(source, f"INSERT INTO big VALUES (2, {huge('d', MEGABYTES)})")
        ask(source, "UPDATE big SET a = ARRAY['small'] WHERE id = 1")
        path.catch_up()
        assert sums(target) == sums(source)


def test_a_larger_row_stops_with_an_error_that_names_it(
    addresses: Addresses, new_database: Callable[[], str], topic_prefix: str
) -> None:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE big (id int PRIMARY KEY, t text)")
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        ask(source, f"INSERT INTO big VALUES (1, {huge('a', 100)})")
        with pytest.raises(RowTooLarge, match=r"table=public\.big") as caught:
            path.catch_up()
        assert "max-row-bytes" in str(caught.value)
        path.failure = None  # it was expected


def test_unfit_rows_are_put_aside_and_everything_else_flows(
    addresses: Addresses, new_database: Callable[[], str], topic_prefix: str
) -> None:
    source, target = new_database(), new_database()
    large = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 60000) i)"

    def commit(*statements: str) -> None:
        for statement in statements:
            ask(source, statement)

    commit(
        "CREATE TABLE big (id int PRIMARY KEY, t text)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        f"INSERT INTO big VALUES (1, 'small'), (2, {large}), (3, 'small')",
    )

    def ids(url: str, table: str) -> list[int]:
        return [row[0] for row in ask(url, f"SELECT id FROM {table} ORDER BY id")]

    with Path(
        addresses, topic_prefix, source, target, max_row_bytes=MB, unfit_row="quarantine"
    ) as path:
        path.start()
        assert path.catch_up().inexact == {"public.big": f"seen: {WHY}"}
        assert ids(target, "big") == [1, 3]

        commit(
            "INSERT INTO other VALUES (1)",
            f"INSERT INTO big VALUES (4, {large}); INSERT INTO other VALUES (2); "
            f"INSERT INTO big VALUES (5, 'small'), (6, {large})",
            "UPDATE big SET id = 40 WHERE id = 4",
            "UPDATE big SET t = 'small' WHERE id = 3",
            "DELETE FROM big WHERE id = 2",
            "INSERT INTO other VALUES (3)",
        )
        ledger = path.catch_up()
        assert ledger.inexact == {"public.big": f"seen: {WHY}"}
        assert ids(target, "other") == [1, 2, 3]
        assert {1, 3, 5} <= set(ids(target, "big"))
        path.stop()

        path.options = replace(path.options, unfit_row="stop")
        path.start()
        commit(f"INSERT INTO big VALUES (7, {large})", "INSERT INTO other VALUES (4)")
        with pytest.raises(RowTooLarge, match="unfit-row"):
            path.catch_up()
        with pytest.raises(RowTooLarge):
            path.stop()
        path.failure = None

        path.options = replace(path.options, accept_gap=True)
        path.start()
        assert set(path.catch_up().inexact) == {"public.big"}
        assert ids(target, "other") == [1, 2, 3, 4]
        assert ids(target, "big") == [1, 3, 5]


@pytest.mark.parametrize(("oid", "begin", "each"), [(25, b"", b"x"), (17, b"\\x", b"ab")])
def test_a_value_takes_few_times_its_size_on_its_way(oid: int, begin: bytes, each: bytes) -> None:
    cell = begin + each * 100 * MB
    table = TableSchema(TableId("s", "t"), (Column("v", oid),))
    encoder = compile_encoder(table, prefix="p", schema_id=1, database="d")
    decoder = RowDecoder(envelope_schema("p", replace(table)))

    tracemalloc.start()
    value = encoder.encode("c", "", None, [cell], TX, 1, 0)
    after = decoder.decode(split(value)[1]).after
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert after == [cell.decode()]
    assert peak < 6 * 100 * MB + 2 * len(cell)
