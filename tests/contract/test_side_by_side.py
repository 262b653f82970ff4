"""What we write beside what Debezium was recorded to write for the same changes.

Each difference stands in a list below with its reason; a new one, and one that is
gone, fails.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from schemas.envelope import (
    EnvelopeOptions,
    field_name,
    key_schema,
    message_key_schema,
    message_schema,
    transaction_key_schema,
    transaction_schema,
)
from schemas.types import TypeOptions
from tests.contract.recorded import Ours, Theirs, tables
from tests.contract.topics import TopicSet

THEIRS = Theirs("default")
OURS = Ours("recdefault", EnvelopeOptions(types=TypeOptions(unknown_types="text")))
NAMES = [name for name in tables() if name not in ("Order Lines", "parent")]

# ---- schemas

# reason -> columns whose field is another one
FIELDS = {
    "Debezium leaves the column out; it travels as text here": {
        "c_tsquery", "c_lseg", "c_path", "c_box", "c_polygon", "c_line", "c_circle",
        "c_int4multirange", "c_datemultirange", "c_pg_lsn", "c_xid", "c_xid8", "c_tid",
        "c_regclass", "c_regtype", "c_jsonpath", "c_pg_snapshot", "both_of", "many",
    },
    "Debezium leaves arrays of it out; here their elements travel as the type does": {
        "a_interval", "a_money", "a_point", "a_positive", "a_xml", "a_name", "a_varbit",
    },
    "its decimal is no decimal to Avro: a negative scale is read as 2046, a scale above the"
    " precision is not allowed": {"c_numeric_3_m2", "c_numeric_3_5"},
    "the source's type stands beside, as with column.propagate.source.type, so that the value"
    " comes back as bit or hstore": {"c_bit", "c_bit_1", "c_hstore", "a_hstore", "tags",
    "c_varbit_1", "hstores"},
    "NULL is allowed among an enum array's elements": {"a_mood", "moods"},
    "an array of bit(n), which Debezium calls one bit(n) and sends as null": {"a_bit"},
    "no default in the schema: Debezium's are the catalog's of now, and not always right"
    " ('it''s' became 'it')": {
        "d_smallint", "d_int", "d_bigint", "d_real", "d_double", "d_bool", "d_numeric_10_2",
        "d_text", "d_varchar", "d_char", "d_uuid", "d_uuid_made", "d_json", "d_bit_8", "d_date",
        "d_time", "d_timestamp", "d_timestamp_3", "d_timestamptz", "d_now", "d_interval",
        "d_serial", "n_int", "n_text", "n_now",
    },
    "added by the last change": {"more"},
}  # fmt: skip
APPENDED = (
    "csn", "epoch", "seq", "ordinal", "exact", "unsent", "before_exact", "before_columns",
)  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_value_schema_is_debeziums_but_for_the_list(name: str) -> None:
    theirs = _inlined(THEIRS.schema(f"recdefault.rec.{name}-value"))
    ours = _inlined(OURS.schema(tables()[name]))
    their_rows, our_rows = (_fields(_row(schema)) for schema in (theirs, ours))

    differ = {
        column
        for column in {*their_rows, *our_rows}
        if their_rows.get(column) != our_rows.get(column)
    }
    listed = set().union(*FIELDS.values()) & {*their_rows, *our_rows}
    assert differ == listed
    assert [c for c in our_rows if c in their_rows] == [c for c in their_rows if c in our_rows]
    assert _head(_row(ours)) == _head(_row(theirs))


@pytest.mark.parametrize("name", NAMES)
def test_the_envelope_is_debeziums_and_source_has_optional_fields_behind(name: str) -> None:
    theirs = THEIRS.schema(f"recdefault.rec.{name}-value")
    ours = OURS.schema(tables()[name])
    their_source, our_source = (_fields(schema)["source"]["type"] for schema in (theirs, ours))
    behind = our_source["fields"][len(their_source["fields"]) :]

    assert our_source["fields"][: len(their_source["fields"])] == their_source["fields"]
    assert tuple(field["name"] for field in behind) == APPENDED
    assert all(field["type"][0] == "null" and field["default"] is None for field in behind)
    assert _head(our_source) == _head(their_source)
    assert _head(ours) == _head(theirs)
    for their_field, our_field in zip(theirs["fields"], ours["fields"], strict=True):
        if their_field["name"] not in ("before", "source"):
            assert our_field == their_field


KNOWN_DEFAULTS = {
    "d_smallint": "3", "d_int": "42", "d_bigint": "-7", "d_real": "1.5", "d_double": "0.1",
    "d_bool": "t", "d_numeric_10_2": "1.50", "d_varchar": "v", "d_json": "{}",
    "d_uuid": "0190163d-8694-739b-aea5-966c26f8ad91", "d_bit_8": "10101010",
    "d_date": "2024-02-29", "d_time": "12:34:56", "d_timestamp": "2024-02-29 12:34:56.5",
    "d_timestamp_3": "2024-02-29 12:34:56.5", "d_timestamptz": "2024-02-29 12:34:56.5+00",
}  # fmt: skip


def test_a_default_that_older_rows_have_is_written_as_debezium_writes_its() -> None:
    """Columns added with NOT NULL DEFAULT have one, of the value that older rows read."""
    table = tables()["defaults"]
    columns = tuple(replace(c, missing=KNOWN_DEFAULTS.get(c.name)) for c in table.columns)
    ours = _fields(_row(OURS.schema(replace(table, columns=columns))))
    theirs = _fields(_row(THEIRS.schema("recdefault.rec.defaults-value")))

    for name in KNOWN_DEFAULTS:
        assert ours[name] == theirs[name]


KEYED = [name for name in NAMES if tables()[name].key and name != "by_index"]


@pytest.mark.parametrize("name", KEYED)
def test_the_key_schema_is_debeziums(name: str) -> None:
    assert key_schema("recdefault", tables()[name]) == THEIRS.schema(f"recdefault.rec.{name}-key")


def test_with_an_index_as_replica_identity_the_key_is_the_indexs() -> None:
    """Debezium keeps the primary key, which old rows do not carry: its deletes have id 0."""
    assert [f["name"] for f in key_schema("r", tables()["by_index"])["fields"]] == ["code"]
    *_, delete, tombstone = THEIRS.records("rec.by_index")
    assert (delete[0], delete[1]["op"], tombstone[0]) == ({"id": 0}, "d", {"id": 0})


def test_names_that_avro_does_not_allow_are_spelled_without_loss() -> None:
    """Debezium: `Line_Id` and `__`; with adjustment `avro_unicode` as ours, and `_` too."""
    unicode = _fields(_row(Theirs("text").schema("rectext.rec.Order_Lines-value")))
    plain = _fields(_row(THEIRS.schema("recdefault.rec.Order_Lines-value")))
    names = tables()["Order Lines"].names()
    ours = [field_name(name) for name in names]

    assert ours == [
        "Line_u0020Id", "_u5355_u4ef7", "_u0032nd", "a_u002eb", "with_u002ddash", "under_score",
    ]  # fmt: skip
    # From the stream it reads the bytes of a name one by one: 单价 has six of them.
    garbled = "_uffe5_uff8d_uff95_uffe4_uffbb_uffb7"
    assert list(unicode) == [ours[0], garbled, *ours[2:5], "under_u005fscore"]
    assert list(plain) == ["Line_Id", "______", "_2nd", "a_b", "with_dash", "under_score"]


# ---- options, by Debezium's names: table `every` under two other configurations

OPTIONS = {
    "text": TypeOptions(
        decimal_handling="string",
        interval_handling="string",
        binary_handling="base64",
        time_precision="connect",
        hstore_handling="map",
        unknown_types="text",
    ),
    "loose": TypeOptions(
        decimal_handling="double",
        binary_handling="hex",
        time_precision="adaptive-time-microseconds",
        unknown_types="text",
    ),
}
_LEFT_OUT = "Debezium leaves the column out; it travels as text here"
_SAYS_HOW = "the schema says how to read the string"
OPTION_FIELDS = {
    "text": {
        "as above": {
            *("c_bit", "c_bit_1", "c_varbit_1", "a_mood", "a_bit", "a_xml", "a_name", "a_varbit"),
            *("a_interval", "a_money", "a_point"),
        },
        _SAYS_HOW: {"c_bytea", "a_bytea"},
        "Debezium carries an array of a domain as its bytes in base64": {"a_positive"},
    },
    "loose": {
        "as above": {
            *FIELDS[_LEFT_OUT],
            *("c_bit", "c_bit_1", "a_mood", "a_bit", "c_hstore", "a_hstore"),
            *("a_interval", "a_money", "a_point", "a_positive"),
            *("c_varbit_1", "a_xml", "a_name", "a_varbit"),
        }
        - {"both_of", "many"},
        _SAYS_HOW: {"c_bytea", "a_bytea"},
    },
}
OPTION_VALUES = {
    "text": {
        "as above": {"c_numeric_3_m2", "a_bit", "a_positive", "c_varbit_1", "a_square"},
        "Debezium sends the text of a type it does not know in base64": FIELDS[_LEFT_OUT]
        - {"both_of", "many"},
    },
    "loose": {"as above": {"a_time", "a_bit", "c_name", "c_varbit_1", "a_square"}},
}


@pytest.mark.parametrize("name", OPTIONS)
def test_options_mean_what_debezium_means(name: str) -> None:
    theirs = Theirs(name)
    ours = Ours(theirs.prefix, EnvelopeOptions(types=OPTIONS[name]))
    subject = f"{theirs.prefix}.rec.every-value"
    their_rows = {
        column.replace("_u005f", "_"): field["type"]
        for column, field in _fields(_row(_inlined(theirs.schema(subject)))).items()
    }
    our_rows = {
        column: field["type"]
        for column, field in _fields(_row(_inlined(ours.schema(tables()["every"])))).items()
    }
    differ = {c for c in {*their_rows, *our_rows} if their_rows.get(c) != our_rows.get(c)}
    values = {
        column
        for their, our in zip(_changes("every", theirs), ours.records("every"), strict=True)
        for column, value in (their["after"] or {}).items()
        if repr(our["after"].get(column.replace("_u005f", "_"), value)) != repr(value)
    }

    assert differ == set().union(*OPTION_FIELDS[name].values())
    assert {column.replace("_u005f", "_") for column in values} == set().union(
        *OPTION_VALUES[name].values()
    )


def test_connects_own_times_end_at_the_year_9999_where_debezium_goes_on() -> None:
    """Readers of Avro's date and timestamp-millis fail there; `exact` has the text."""
    theirs = Theirs("text")
    ours = Ours(theirs.prefix, EnvelopeOptions(types=OPTIONS["text"]))
    differ: Counter[str] = Counter()
    for their, our in zip(_changes("far", theirs), ours.records("far"), strict=True):
        for column, value in their["after"].items():
            name = column.replace("_u005f", "_")
            if repr(our["after"][name]) != repr(value):
                assert name in our["source"]["exact"]
                differ[name] += 1
    assert differ == {"day": 5, "day_2": 5, "stamp": 5, "stamp_3": 5, "clock": 2}  # 24:00


# ---- records

# reason -> (table, column) whose value is another one somewhere
VALUES = {
    "trailing zeros of a numeric without scale are kept": {
        ("every", "c_numeric"),
        ("unsent", "numerics"),
        ("by_numeric", "k"),
    },
    "its decimal is no decimal (see above)": {("every", "c_numeric_3_m2")},
    "Debezium cuts microseconds of times in arrays": {("every", "a_time")},
    "Debezium sends null, for a varbit(1) only in a load": {
        ("every", "a_bit"),
        ("every", "c_name"),
        ("every", "c_varbit_1"),
    },
    "a second dimension becomes nulls in Debezium; here the array is null, `exact` has its text": {
        ("every", "a_square")
    },
    "infinity and years beyond 292277 wrap around in Debezium; here they are the largest number,"
    " and `exact` has the text": {("far", "day"), ("far", "day_2"), ("far", "stamp")},
    "an old key has the type's zero where Debezium has the catalog's default": {
        ("defaults", name)
        for name in FIELDS[
            "no default in the schema: Debezium's are the catalog's of now, and not always right"
            " ('it''s' became 'it')"
        ]
        if name != "d_serial"
    },
}
SAME = ("connector", "name", "db", "schema", "table", "xmin")
OF_THE_STREAM = ("ts_ms", "ts_us", "ts_ns", "txId", "lsn", "snapshot")


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_debeziums_but_for_the_list(name: str) -> None:
    theirs, ours = list(_changes(name)), list(OURS.records(name))

    assert [value["op"] for value in ours] == [value["op"] for value in theirs]
    differ = set()
    for their, our in zip(theirs, ours, strict=True):
        for side in ("before", "after"):
            if their[side] is None or our[side] is None:
                assert their[side] is our[side]
                continue
            differ |= {
                (name, column)
                for column, value in their[side].items()
                if repr(our[side].get(column, value)) != repr(value)  # NaN and -0, too
            }
    assert differ == {place for place in set().union(*VALUES.values()) if place[0] == name}


@pytest.mark.parametrize("name", NAMES)
def test_the_source_block_says_what_debeziums_says(name: str) -> None:
    """But for: `version`; `sequence`, which begins with the commit's LSN here and with that of
    BEGIN there; and in a load `snapshot`, always `true` here, and a number for `txId`."""
    for their, our in zip(_changes(name), OURS.records(name), strict=True):
        names = SAME if our["op"] == "r" else (*SAME, *OF_THE_STREAM)
        assert {n: our["source"][n] for n in names} == {n: their["source"][n] for n in names}
        if our["op"] != "r":
            committed, lsn = our["source"]["sequence"].strip('[]"').split('","')
            assert int(lsn) == our["source"]["lsn"] == their["source"]["lsn"]
            assert int(committed) >= int(lsn)


def test_a_key_without_a_scale_has_one_spelling_as_debeziums() -> None:
    """1.50 is written 1.5 in the key, so that an update to 1.5 is of the same record."""
    theirs = [key for key, value, _ in THEIRS.records("rec.by_numeric") if not _is_load(value)]
    ours = [kept.key for kept in TopicSet("primary-key", ("by_numeric",)).topic("by_numeric")]
    assert ours == theirs


def test_without_a_primary_key_there_is_no_key_where_debezium_takes_a_unique_index() -> None:
    """Even one that allows NULL, so that its keys are not those of one row."""
    theirs = [key for key, _, _ in THEIRS.records("rec.by_unique")]
    ours = [kept.key for kept in TopicSet("primary-key", ("by_unique",)).topic("by_unique")]
    assert theirs == [{"a": 1}, {"a": None}]
    assert ours == [None, None]


def test_a_load_of_a_parent_has_its_own_rows_where_debezium_reads_its_children_twice() -> None:
    theirs = [value["after"]["id"] for _, value, _ in THEIRS.records("rec.parent")]
    ours = [value["after"]["id"] for value in OURS.records("parent")]
    assert (ours, theirs) == ([1], [1, 2])


def test_debezium_has_a_topic_for_each_partition_where_we_have_one_for_their_table() -> None:
    """By publish_via_partition_root; ours: tests/e2e/test_shapes.py."""
    assert [v["after"]["id"] for _, v, _ in THEIRS.records("rec.parted")] == [1]
    assert [v["after"]["id"] for _, v, _ in THEIRS.records("rec.parted_1")] == [1, 2]


def _is_load(value: Any) -> bool:
    return value is not None and value["op"] == "r"


# ---- logical messages


def test_logical_messages_are_debeziums() -> None:
    theirs = THEIRS.schema("recdefault.message-value")
    ours = message_schema()
    assert message_key_schema() == THEIRS.schema("recdefault.message-key")
    assert _head(ours) == _head(theirs)
    for their_field, our_field in zip(theirs["fields"], ours["fields"], strict=True):
        if their_field["name"] != "source":
            assert our_field == their_field
    their_source, our_source = (_fields(schema)["source"]["type"] for schema in (theirs, ours))
    assert our_source["fields"][: len(their_source["fields"])] == their_source["fields"]
    assert _head(our_source) == _head(their_source)

    kept = list(TopicSet("table", ()).messages())
    recorded = list(THEIRS.records("message"))
    assert [key for key, _ in kept] == [key for key, _, _ in recorded]
    for (_, our), (_, their, _) in zip(kept, recorded, strict=True):
        assert our["message"] == their["message"]
        assert (our["op"], our["transaction"]) == (their["op"], their["transaction"])
        names = ("schema", "table", "txId", "lsn", "snapshot", "connector")
        assert {n: our["source"][n] for n in names} == {n: their["source"][n] for n in names}


# ---- transaction metadata

FRAMED = Theirs("transactions")
IN_TRANSACTIONS = ("pair", "emptied", "emptied_too", "keyless")


def test_the_schemas_of_begin_and_end_are_debeziums() -> None:
    assert transaction_key_schema() == FRAMED.schema("rectransactions.transaction-key")
    assert transaction_schema() == FRAMED.schema("rectransactions.transaction-value")


def test_begin_and_end_say_what_debeziums_say() -> None:
    """But for the LSN in the id, which is the commit's in all records of a transaction here and
    that of each event there; and for the name of logical messages, an object's address there."""

    def said(key: Any, value: Any) -> Any:
        assert key == {"id": value["id"]}
        counts = {
            "message" if "DecodingMessage" in c["data_collection"] else c["data_collection"]: (
                c["event_count"]
            )
            for c in value["data_collections"] or []
        }
        xid, _, _ = value["id"].partition(":")
        return value["status"], xid, value["event_count"], value["ts_ms"], counts

    theirs = [said(key, value) for key, value, _ in FRAMED.records("transaction")]
    ours = list(TopicSet("primary-key", IN_TRANSACTIONS, framed=True).transactions())
    assert [said(key, value) for key, value in ours] == theirs
    ids = [key["id"] for key, _ in ours]
    assert ids[::2] == ids[1::2]


@pytest.mark.parametrize("name", [*IN_TRANSACTIONS, "message"])
def test_rows_have_debeziums_places_in_their_transaction(name: str) -> None:
    def place(value: Any) -> Any:
        block = value["transaction"]
        if block is None:
            return None
        xid, _, _ = block["id"].partition(":")
        return xid, block["total_order"], block["data_collection_order"]

    topic = name if name == "message" else f"rec.{name}"
    theirs = [v for _, v, _ in FRAMED.records(topic) if v is not None and v["op"] != "r"]
    topics = TopicSet("primary-key", IN_TRANSACTIONS, framed=True)
    ours = (
        [value for _, value in topics.messages()]
        if name == "message"
        else [kept.value for kept in topics.topic(name) if kept.value is not None]
    )
    assert [place(value) for value in ours] == [place(value) for value in theirs]


def _changes(name: str, theirs: Theirs = THEIRS) -> list[Any]:
    """Debezium's values of one table; the delete and the insert that it makes of a key change
    are put together again, and tombstones left out."""
    out: list[Any] = []
    for _, value, headers in theirs.records(f"rec.{name}"):
        if value is None:
            continue
        if "__debezium.oldkey" in headers:
            out[-1] = {**value, "op": "u", "before": out[-1]["before"]}
        else:
            out.append(value)
    return out


def _fields(schema: Any) -> dict[str, Any]:
    return {field["name"]: field for field in schema["fields"]}


def _row(envelope: Any) -> Any:
    return _fields(envelope)["before"]["type"][1]


def _head(schema: Any) -> dict[str, Any]:
    return {key: value for key, value in schema.items() if key != "fields"}


def _inlined(schema: Any, known: dict[str, Any] | None = None) -> Any:
    """Named types where they are used: which column defines one depends on the columns before."""
    known = {} if known is None else known
    if isinstance(schema, list):
        return [_inlined(item, known) for item in schema]
    if isinstance(schema, str):
        return known.get(schema, schema)
    if not isinstance(schema, dict):
        return schema
    out = {key: _inlined(value, known) for key, value in schema.items() if key != "default"}
    if "default" in schema:
        out["default"] = schema["default"]
    if schema.get("type") == "record" and "namespace" in schema:
        known[f"{schema['namespace']}.{schema['name']}"] = out
    return out
