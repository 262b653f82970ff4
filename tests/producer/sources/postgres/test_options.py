"""Options of pgoutput: what is taken, what is ours, and what each server is sent."""

import pytest

from producer.errors import OptionRefused
from producer.sources.postgres.options import (
    BY_NAME,
    OPTIONS,
    effective,
    problems,
    removing,
    why_not_full,
)


def refusal(name: str, text: str, version: int | None = None) -> OptionRefused:
    (found,) = problems({name: text}, version=version)
    assert found.where["option"] == name
    return found


def test_another_publication_is_refused_with_the_way_out() -> None:
    found = refusal("publication_names", "second")

    assert "would silently lose its tables" in str(found)
    assert "[source]" in found.hint


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("streaming", "on", "interleaved"),
        ("streaming", "parallel", "interleaved"),
        ("binary", "true", "read as text"),
        ("proto_version", "2", "set by us"),
        ("two_phase", "true", "rolled back"),
        ("messages", "false", "set by us"),
        ("origin", "elsewhere", "not one of its values"),
    ],
)
def test_what_would_change_the_stream_is_refused(name: str, text: str, why: str) -> None:
    assert why in refusal(name, text).what


@pytest.mark.parametrize("name", ["publication-names", "slot", "", "Streaming"])
def test_an_unknown_option_is_refused(name: str) -> None:
    assert "unknown option" in refusal(name, "x").what


def test_a_misspelt_option_gets_a_suggestion() -> None:
    assert refusal("publication-names", "x").hint == "did you mean publication_names?"


def test_every_problem_is_found_at_once() -> None:
    assert len(list(problems({"binary": "on", "streaming": "on", "nothing": ""}))) == 3


@pytest.mark.parametrize("text", ["false", "OFF"])
def test_what_happens_anyway_may_be_said_and_is_not_sent(text: str) -> None:
    options = {"binary": text, "streaming": text, "two_phase": text, "proto_version": "1"}

    sent = effective(options, publication="gauss_cdc", version=100_000)

    assert sent == {"proto_version": "1", "publication_names": '"gauss_cdc"'}


def test_messages_are_asked_for_where_the_server_has_them() -> None:
    sent = effective({"messages": "on"}, publication='a"b', version=140_000)

    assert sent == {"proto_version": "1", "publication_names": '"a""b"', "messages": "true"}
    assert "does not have the option" in refusal("messages", "on", 130_000).what


def test_an_origin_is_sent_and_makes_the_target_no_full_copy() -> None:
    options = {"origin": "NONE"}

    assert effective(options, publication="p", version=160_000)["origin"] == "none"
    assert removing(options) == {"origin": "none"}
    assert "not a full copy" in why_not_full(options)


def test_any_origin_is_what_happens_anyway() -> None:
    options = {"origin": "any"}

    assert "origin" not in effective(options, publication="p", version=150_000)
    assert removing(options) == {}
    assert not why_not_full(options)


def test_a_server_without_the_option_is_identified_by_its_version() -> None:
    found = refusal("origin", "none", 150_018)

    assert (found.where["server"], found.where["since"]) == (15, 16)
    with pytest.raises(OptionRefused):
        effective({"origin": "none"}, publication="p", version=150_018)


def test_the_table_says_a_way_out_for_whatever_is_not_the_operators() -> None:
    assert len(BY_NAME) == len(OPTIONS)
    for option in OPTIONS:
        assert option.meaning
        assert option.treatment == "yours" or (option.why and option.instead)
