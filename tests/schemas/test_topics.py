import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.envelope import envelope_schema
from schemas.tables import Column, TableId, TableSchema
from schemas.topics import (
    MAX_TOPIC,
    Topics,
    escape,
    key_subject,
    unescape,
    unified,
    value_subject,
)

TOPICS = Topics("bank")
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(NAMES)
def test_a_name_survives_its_escape(name: str) -> None:
    assert unescape(escape(name)) == name
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", escape(name))


# From one letter to far above Kafka's limit: a character may need twelve of its letters.
LONG = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=63) | st.integers(
    1, 125
).map("x".__mul__)


@given(NAMES | LONG, NAMES | LONG)
def test_a_table_is_found_again_by_its_topic_or_by_topic_and_schema(schema: str, name: str) -> None:
    table = TableId(schema, name)
    topic = TOPICS.table(table)
    is_whole = topic == f"bank.{escape(schema)}.{escape(name)}"
    said = envelope_schema("bank", TableSchema(table, (Column("id", 23),)))

    assert len(topic) <= MAX_TOPIC
    assert TOPICS.table_of(topic) == (table if is_whole else None)
    assert TOPICS.table_by(topic, said) == table
    assert TOPICS.is_data(topic)


TOPIC = st.text("abu0dD_-.", max_size=12).map("bank.".__add__) | st.builds(
    "bank.{}.{}-{}".format,
    st.text("ab_u0.", min_size=100, max_size=120),
    st.just("x" * 110),
    st.text("0123456789abcdef", min_size=16, max_size=16),
).map(lambda topic: topic[:232] + topic[-17:])


@given(TOPIC, st.text("abu0d._", max_size=12))
def test_no_topic_is_taken_for_a_table_that_has_another_one(topic: str, space: str) -> None:
    assert (table := TOPICS.table_of(topic)) is None or TOPICS.table(table) == topic
    table = TOPICS.table_by(topic, {"namespace": f"bank.{space}"})
    assert table is None or TOPICS.table(table) == topic


def test_a_topic_that_ends_in_a_hash_is_no_table_of_a_shorter_name() -> None:
    table = TableId("账户" * 10, "交易流水" * 10)
    topic = TOPICS.table(table)

    assert TOPICS.table_of(topic) is None
    assert TOPICS.table_by(topic, {"namespace": "bank.s.t"}) is None
    assert TOPICS.table_by(topic, {}) is None


def test_a_table_cannot_be_named_like_the_topic_of_another() -> None:
    long = TOPICS.table(TableId("s", "x" * 300))
    _, schema, name = long.split(".")

    assert TOPICS.table(TableId(schema, name)) != long


@given(NAMES | LONG, NAMES | LONG)
def test_a_table_has_a_second_topic_that_is_found_again(schema: str, name: str) -> None:
    table = TableId(schema, name)
    apart = TOPICS.apart(table)
    is_cut = len(f"bank.{escape(schema)}.{escape(name)}") > MAX_TOPIC - 17
    said = envelope_schema("bank", TableSchema(table, (Column("id", 23),)))

    assert re.fullmatch(r"[a-zA-Z0-9_.-]{1,249}", apart)
    assert apart != TOPICS.table(table)
    assert TOPICS.names(table) == (apart, TOPICS.table(table))
    assert TOPICS.table_of(apart) == (None if is_cut else table)
    assert TOPICS.table_by(apart, said) == table
    assert TOPICS.is_data(apart)
    assert TOPICS.of(table, {apart, TOPICS.table(table)}) == apart
    assert TOPICS.of(table, {TOPICS.table(table)}) == TOPICS.of(table, ()) == TOPICS.table(table)


@given(NAMES, st.lists(st.booleans(), min_size=1, max_size=4))
def test_no_two_tables_may_have_one_topic_however_they_are_named(
    name: str, kinds: list[bool]
) -> None:
    """A table that is named as another's topic is spelled, and one that is named as its topic."""
    tables = [TableId("s", name)]
    for is_apart in kinds:
        topic = TOPICS.apart(tables[-1]) if is_apart else TOPICS.table(tables[-1])
        tables.append(TableId("s", unescape(topic.removeprefix("bank.s."))))
    tables = list(dict.fromkeys(tables))
    topics = [topic for table in tables for topic in TOPICS.names(table)]

    assert len(set(topics)) == len(topics)
    for table in tables:
        for topic in TOPICS.names(table):
            assert len(topic) == MAX_TOPIC or TOPICS.table_of(topic) == table


def test_a_second_topic_is_not_taken_for_another_one_by_kafka() -> None:
    one, two = TableId("app", "a_b"), TableId("app_a", "b")

    assert unified(TOPICS.table(one)) == unified(TOPICS.table(two))
    apart = {unified(TOPICS.apart(one)), unified(TOPICS.apart(two))}
    assert len({*apart, unified(TOPICS.table(one))}) == 3


def test_names_that_only_half_escape_are_not_ours() -> None:
    for topic in ("bank.s._ud800", "bank.s._u0041", "bank.s.", "bank..t", "bank.s", "bank.a.b.c"):
        assert TOPICS.table_of(topic) is None
        assert not TOPICS.is_data(topic)
    assert TOPICS.table_by("bank.s.t" * 31 + "x", {"namespace": "bank._ud800.t"}) is None


def test_control_topics_and_those_of_other_clients_are_not_tables() -> None:
    for topic in (TOPICS.cuts, TOPICS.ddl, TOPICS.transaction, TOPICS.quarantine, "x.public.t"):
        assert TOPICS.table_of(topic) is None
        assert not TOPICS.is_data(topic)


def test_long_names_end_in_a_hash_and_stay_apart() -> None:
    one, two = (TOPICS.table(TableId("s", "金" * 63 + tail)) for tail in "ab")
    assert len(one) == len(two) == MAX_TOPIC
    assert one != two


@pytest.mark.parametrize("prefix", ["", "a.b", "a b", "-a", "x" * 65])
def test_a_prefix_is_a_plain_word(prefix: str) -> None:
    with pytest.raises(ValueError, match=r"kafka\.prefix"):
        Topics(prefix)


def test_subjects() -> None:
    assert (value_subject("t"), key_subject("t")) == ("t-value", "t-key")
