import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.tables import TableId
from schemas.topics import MAX_TOPIC, Topics, escape, key_subject, unescape, value_subject

TOPICS = Topics("bank")
NAMES = st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=20)


@given(NAMES)
def test_a_name_survives_its_escape(name: str) -> None:
    assert unescape(escape(name)) == name
    assert re.fullmatch(r"[a-zA-Z0-9_-]+", escape(name))


@given(NAMES, NAMES)
def test_a_table_is_found_again_by_its_topic(schema: str, name: str) -> None:
    table = TableId(schema, name)
    topic = TOPICS.table(table)
    assert len(topic) <= MAX_TOPIC
    if len(f"bank.{escape(schema)}.{escape(name)}") <= MAX_TOPIC:
        assert TOPICS.table_of(topic) == table


def test_control_topics_and_strangers_are_no_tables() -> None:
    for topic in (TOPICS.cuts, TOPICS.ddl, TOPICS.transaction, TOPICS.quarantine, "x.public.t"):
        assert TOPICS.table_of(topic) is None


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
