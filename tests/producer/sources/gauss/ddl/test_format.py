import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DdlMalformed
from producer.sources.gauss.ddl import format as ddl_format
from producer.sources.gauss.ddl.format import expand, parse
from tests.producer.core.ddl_examples import GAUSSDB, JDDL, OPENGAUSS, TDDL


@pytest.mark.parametrize(("document", "sql"), OPENGAUSS.values(), ids=OPENGAUSS)
def test_what_opengauss_expands_we_expand(document: Any, sql: str) -> None:
    assert expand(parse(json.dumps(document))) == sql


@pytest.mark.parametrize(("document", "sql"), GAUSSDB.values(), ids=GAUSSDB)
def test_what_gaussdb_expands_we_expand(document: Any, sql: str) -> None:
    assert expand(parse(json.dumps(document))) == sql


def test_the_manuals_document_is_its_text() -> None:
    assert expand(parse(JDDL)) == TDDL


@pytest.mark.parametrize(
    ("fmt", "members", "sql"),
    [
        ("100%%", {}, "100%"),
        ("%%%{a}s%%", {"a": "x"}, "%x%"),
        ("%{a}I", {"a": "id"}, "id"),
        ("%{a}I", {"a": "Id"}, '"Id"'),
        ("%{a}I", {"a": ""}, '""'),
        ("%{a}I", {"a": "select"}, '"select"'),
        ("%{a:}s", {"a": ["x", "y"]}, "xy"),
        ("%{a: AND }I", {"a": ["x", "Y"]}, 'x AND "Y"'),
        ("%{a:, }s", {"a": []}, ""),
        ("%{a:, }L", {"a": ["sad", "it's"]}, "'sad', $$it's$$"),
        ("%{a:, }D", {"a": [{"objname": "t"}, {"objname": "u", "schemaname": "s"}]}, "t, s.u"),
        (
            "%{a}D",
            {"a": {"schema_name": "S", "object_name": "t", "attr_name": "c d"}},
            '"S".t."c d"',
        ),
        ("%{a}D", {"a": {"objname": "t", "attrname": "user"}}, 't."user"'),
        ("%{a}L", {"a": "plain"}, "'plain'"),
        ("%{a}L", {"a": 'back\\slash "'}, '$$back\\slash "$$'),
        ("%{a}L", {"a": "it's $"}, "$_$it's $$_$"),
        ("%{a}L", {"a": "' $_XYZZYX_ $_X"}, "$_XYZZYX__$' $_XYZZYX_ $_X$_XYZZYX__$"),
        ("%{a}n", {"a": 5}, "5"),
        ("%{a}n", {"a": 9223372036854775808}, "9223372036854775808"),
        ("%{a}n", {"a": -1.25}, "-1.25"),
        (
            "%{a}T",
            {"a": {"typename": "Mood", "typarray": False}},
            '"Mood"',
        ),
        (
            "%{a}T",
            {"a": {"type_name": "INTERVAL", "schema_name": "", "typmod": " DAY", "typarray": True}},
            "INTERVAL DAY[]",
        ),
        ("%{a}s", {"a": {"fmt": "never", "present": False}}, ""),
        ("%{a}s", {"a": {"fmt": "%{b}s", "b": "deep", "present": True}}, "deep"),
        ("(%{a:, }s)", {"a": ["", {"fmt": "x", "present": False}, "y"]}, "(, y)"),
    ],
)
def test_each_conversion(fmt: str, members: dict[str, Any], sql: str) -> None:
    assert expand(parse(json.dumps({"fmt": fmt, **members}))) == sql


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({}, 'missing element "fmt" in JSON object'),
        ({"fmt": 1}, 'element "fmt" is not of type string'),
        ({"fmt": "%"}, "unterminated format specifier"),
        ({"fmt": "%{a"}, "unterminated format specifier"),
        ({"fmt": "%{a:, "}, "unterminated format specifier"),
        ({"fmt": "%{a}", "a": "x"}, "unterminated format specifier"),
        ({"fmt": "%s"}, "missing conversion name in conversion specifier"),
        ({"fmt": "%{}s"}, "missing conversion name in conversion specifier"),
        ({"fmt": "%{a}x", "a": "x"}, 'invalid conversion specifier "x"'),
        ({"fmt": "%{a}O", "a": "="}, 'invalid conversion specifier "O"'),
        ({"fmt": "%{a::}s", "a": ["x"]}, 'invalid conversion specifier ":"'),
        ({"fmt": "%{a}s"}, 'missing element "a" in JSON object'),
        ({"fmt": "%{a:, }s", "a": "x"}, 'element "a" is not a JSON array'),
        ({"fmt": "%{a:, }s", "a": {"fmt": "x"}}, 'element "a" is not a JSON array'),
        ({"fmt": "%{a}s", "a": ["x"]}, 'expected JSON string or struct for %s element "a"'),
        ({"fmt": "%{a}s", "a": None}, 'expected JSON string or struct for %s element "a"'),
        ({"fmt": "%{a}I", "a": 5}, 'expected JSON string for %I element "a", got numeric'),
        ({"fmt": "%{a}L", "a": {"fmt": "x"}}, 'expected JSON string for %L element "a"'),
        ({"fmt": "%{a}n", "a": "5"}, 'expected JSON numeric for %n element "a", got string'),
        ({"fmt": "%{a}n", "a": True}, 'expected JSON numeric for %n element "a", got boolean'),
        ({"fmt": "%{a}D", "a": "t"}, 'expected JSON struct for %D element "a"'),
        ({"fmt": "%{a}D", "a": {"schemaname": "s"}}, 'missing element "objname"'),
        ({"fmt": "%{a}D", "a": {"objname": 1}}, 'element "objname" is not of type string'),
        ({"fmt": "%{a}D", "a": {"objname": "t", "object_name": "u"}}, 'element "object_name"'),
        ({"fmt": "%{a}T", "a": "int4"}, 'expected JSON struct for %T element "a"'),
        ({"fmt": "%{a}T", "a": {"typename": "int4"}}, "missing typarray element"),
        ({"fmt": "%{a}T", "a": {"typarray": False}}, 'missing element "typename"'),
        (
            {"fmt": "%{a}T", "a": {"typename": "int4", "typarray": "no"}},
            'element "typarray" is not of type boolean',
        ),
        (
            {"fmt": "%{a}s", "a": {"fmt": "x", "present": "no"}},
            'element "present" is not of type boolean',
        ),
        ({"fmt": "%{a}s", "a": {"b": "x"}}, 'missing element "fmt" in JSON object'),
        ({"fmt": "a\0b"}, "zero byte"),
    ],
)
def test_errors_are_the_servers(document: Any, message: str) -> None:
    with pytest.raises(DdlMalformed) as caught:
        expand(parse(json.dumps(document)))

    assert message in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["", "[]", '"x"', "{", '{"fmt": NaN}', '{"fmt": "x", "fmt": "y"}', '{"a": {"b": 1, "b": 1}}'],
)
def test_what_is_not_a_document_is_refused(text: str) -> None:
    with pytest.raises(DdlMalformed):
        parse(text)


def test_a_document_that_multiplies_is_refused() -> None:
    document: dict[str, Any] = {"fmt": "ha"}
    for _ in range(40):
        document = {"fmt": "%{a}s%{a}s", "a": document}

    with pytest.raises(DdlMalformed, match="beyond the limit"):
        expand(document)


def test_a_document_that_multiplies_nothing_is_refused() -> None:
    document: dict[str, Any] = {"fmt": ""}
    for _ in range(40):
        document = {"fmt": "%{a}s%{a}s", "a": document}

    with pytest.raises(DdlMalformed, match="beyond the limit"):
        expand(document)


@pytest.mark.parametrize("depth", [100, 100_000])
def test_a_document_of_any_depth_ends(depth: int) -> None:
    text = '{"fmt": "%{a}s", "a": ' * depth + '"x"' + "}" * depth

    with pytest.raises(DdlMalformed, match="too deeply"):
        expand(parse(text))


FMT = st.lists(
    st.sampled_from(
        ["%", "%%", "%{a}", "%{b:", ", ", "}", "{", ":", *"sIDLTnOR", "SELECT", "%{a}s", "%{b:,}s"]
    )
).map("".join)
LEAVES = st.one_of(
    st.text(max_size=8), st.booleans(), st.none(), st.integers(), st.floats(allow_nan=False)
)
NAMES = st.sampled_from(
    ["a", "b", "present", "objname", "schema_name", "typename", "typmod", "typarray", "fmt"]
)
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.builds(
            lambda fmt, rest: {**rest, "fmt": fmt},
            FMT,
            st.dictionaries(NAMES, inner, max_size=4),
        ),
    ),
    max_leaves=12,
)


@given(st.builds(lambda fmt, a, b: {"fmt": fmt, "a": a, "b": b}, FMT, DOCUMENTS, DOCUMENTS))
def test_anything_is_text_or_the_error(document: Any) -> None:
    try:
        text = expand(document)
    except DdlMalformed:
        return
    assert isinstance(text, str)


@given(st.text())
def test_any_text_is_a_document_or_the_error(text: str) -> None:
    try:
        document = parse(text)
    except DdlMalformed:
        return
    assert isinstance(document, dict)


@given(st.text(alphabet="$_XYZ'\\ ", max_size=40))
def test_a_literal_is_quoted_by_the_servers_loop(text: str) -> None:
    """The loop as documented: one more character while the text holds the delimiter."""
    delimiter, at = "$", 0
    while delimiter in text:
        delimiter += "_XYZZYX_"[at % 8]
        at += 1
    dollars = f"{delimiter}${text}{delimiter}$"

    quoted = expand({"fmt": "%{a}L", "a": text})

    assert quoted == (dollars if set(text) & set("'\\") else f"'{text}'")


def test_parts_expand_by_themselves() -> None:
    assert ddl_format.fragment({"fmt": "x", "present": False}) == ""
    assert ddl_format.fragment({"fmt": "%{a}I", "a": "B"}) == '"B"'
