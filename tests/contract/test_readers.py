"""What readers of Debezium's records ask of a topic, held against ours.

Each rule is what the named source file of the reader does; the files were read, the readers
were not run (Debezium's JDBC sink is: tests/e2e/test_debezium_sink.py).
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.topics import Kept, TopicSet

TABLES = ("every", "defaults", "pair", "toasted", "toasted_full", "by_index", "emptied", "far")
UNKEYED = (*TABLES, "keyless")
BY_KEY = TopicSet("primary-key", TABLES)
BY_TABLE = TopicSet("table", UNKEYED)


def changes(topics: TopicSet, table: str) -> list[Kept]:
    return [record for record in topics.topic(table) if record.value is not None]


# ---- Flink, `debezium-avro-confluent`
# flink-formats/flink-avro-confluent-registry/.../debezium/DebeziumAvroDeserializationSchema.java


@pytest.mark.parametrize("topics", [BY_KEY, BY_TABLE], ids=["by key", "by table"])
@pytest.mark.parametrize("table", ["pair", "toasted_full"])
def test_flink_resolves_before_after_and_op_by_name(topics: TopicSet, table: str) -> None:
    """Its reader's schema has these three fields and a row type of its own names."""
    writer = topics.subject(table, "value")
    assert writer is not None
    row = {**writer["fields"][0]["type"][1], "name": "Value"}
    reader = {
        "type": "record",
        "name": "Envelope",
        "fields": [
            {"name": "op", "type": "string"},
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", "Value"], "default": None},
        ],
    }
    names = [column["name"] for column in row["fields"]]

    def as_of_now(side: Any) -> Any:  # a column that came later is its default in older rows
        return None if side is None else {name: side.get(name) for name in names}

    whole = [record.value for record in changes(topics, table)]
    assert whole
    assert list(topics.resolved(table, reader)) == [
        {"op": v["op"], "before": as_of_now(v["before"]), "after": as_of_now(v["after"])}
        for v in whole
    ]


def test_flink_and_paimon_want_old_rows_which_a_full_identity_sends() -> None:
    for table in ("toasted_full", "keyless"):
        updates = [r.value for r in changes(BY_TABLE, table) if r.value["op"] == "u"]
        assert updates
        assert all(value["before"] is not None for value in updates)
    default = [r.value for r in changes(BY_TABLE, "pair") if r.value["op"] == "u"]
    assert any(value["before"] is None for value in default)  # so they stop at these


def test_flink_skips_tombstones_which_stand_behind_deletes() -> None:
    kept = list(BY_KEY.topic("pair"))
    for record, behind in zip(kept, [*kept[1:], None], strict=True):
        if record.value is not None and record.value["op"] == "d":
            assert behind is not None
            assert (behind.key, behind.value) == (record.key, None)


# ---- Hudi, PostgresDebeziumSource
# hudi-utilities/.../sources/debezium/PostgresDebeziumSource.java: it selects these by name


@pytest.mark.parametrize("table", UNKEYED)
def test_hudi_finds_its_meta_fields(table: str) -> None:
    for record in changes(BY_TABLE, table):
        source = record.value["source"]
        assert isinstance(record.value["ts_ms"], int)
        assert isinstance(source["name"], str)
        assert isinstance(source["schema"], str)
        for field in ("ts_ms", "txId", "lsn"):
            assert isinstance(source[field], int)
        assert source["xmin"] is None or isinstance(source["xmin"], int)
        if record.value["op"] != "t":  # the row is flattened out of this side
            side = "before" if record.value["op"] == "d" else "after"
            assert record.value[side] is not None


def test_hudi_orders_by_lsn_which_grows_within_a_table() -> None:
    """PostgresDebeziumAvroPayload: the later LSN wins."""
    for table in ("pair", "toasted", "by_index"):
        lsns = [record.value["source"]["lsn"] for record in changes(BY_TABLE, table)]
        assert lsns == sorted(lsns)


def test_hudi_knows_unsent_values_by_debeziums_placeholder() -> None:
    (first, *_) = changes(BY_TABLE, "toasted")
    held = "__debezium_unavailable_value"
    assert (first.value["after"]["words"], first.value["after"]["raw"]) == (held, held.encode())


# ---- Paimon, kafka_sync_* with `debezium-avro`
# paimon-flink/paimon-flink-cdc/.../format/debezium/DebeziumAvroRecordParser.java


@pytest.mark.parametrize("table", TABLES)
def test_paimon_takes_keys_for_records_and_reads_the_primary_key_from_them(table: str) -> None:
    schema = BY_KEY.subject(table, "key")
    assert schema is not None
    names = [field["name"] for field in schema["fields"]]
    for record in BY_KEY.topic(table):
        if record.key is None:
            assert record.value["op"] == "t"  # which it skips
            continue
        assert list(record.key) == names
        if record.value is not None:
            row = record.value["after"] or record.value["before"]
            assert {name: row[name] for name in names} == record.key


def test_paimon_reads_fields_by_their_source_name_where_a_parameter_says_one() -> None:
    """So a column whose name Avro does not allow is NULL to it; others have no parameter."""

    def says(column: Any) -> Any:
        kinds = column["type"] if isinstance(column["type"], list) else [column["type"]]
        parameters = [k.get("connect.parameters", {}) for k in kinds if isinstance(k, dict)]
        return [p["__debezium.source.column.name"] for p in parameters if len(p) and
                "__debezium.source.column.name" in p]  # fmt: skip

    for table in UNKEYED:
        schema = BY_TABLE.subject(table, "value")
        assert schema is not None
        assert not any(map(says, schema["fields"][0]["type"][1]["fields"]))


# ---- RisingWave, FORMAT DEBEZIUM ENCODE AVRO
# src/connector/src/parser/debezium/avro_parser.rs


@pytest.mark.parametrize("table", TABLES)
def test_risingwave_finds_both_subjects_and_columns_below_before(table: str) -> None:
    key, value = (BY_KEY.subject(table, side) for side in ("key", "value"))
    assert key is not None
    assert value is not None
    (before,) = (field for field in value["fields"] if field["name"] == "before")
    columns = {field["name"] for field in before["type"][1]["fields"]}
    assert {field["name"] for field in key["fields"]} <= columns


def test_risingwave_deletes_by_the_key_of_a_tombstone() -> None:
    tombstones = [record for record in BY_KEY.topic("pair") if record.value is None]
    assert tombstones
    assert all(record.key is not None for record in tombstones)
    assert not [r for r in BY_TABLE.topic("pair") if r.value is None]  # none without such keys


# ---- Materialize, ENVELOPE DEBEZIUM: an upsert by key
# materialize.com/docs/sql/create-source/kafka


@pytest.mark.parametrize("table", ["pair", "toasted", "by_index", "every"])
def test_the_last_record_of_each_key_is_the_row_of_that_key(table: str) -> None:
    """Also behind key changes, which are an update under the new key and a delete of the old."""
    by_key: dict[tuple[Any, ...], Any] = {}
    for record in BY_KEY.topic(table):
        assert record.key is not None
        after = None if record.value is None else record.value["after"]
        by_key[tuple(record.key.values())] = after
    rows: dict[tuple[Any, ...], Any] = {}
    for record in changes(BY_TABLE, table):
        value, key = record.value, [f["name"] for f in BY_KEY.subject(table, "key")["fields"]]
        if value["before"] is not None:
            rows[tuple(value["before"][name] for name in key)] = None
        if value["after"] is not None:
            rows[tuple(value["after"][name] for name in key)] = value["after"]

    assert by_key == rows


# ---- Iceberg's DebeziumTransform
# kafka-connect/kafka-connect-transforms/.../transforms/DebeziumTransform.java


@pytest.mark.parametrize("table", TABLES)
def test_iceberg_takes_the_row_the_time_and_the_table(table: str) -> None:
    for record in changes(BY_KEY, table):
        value = record.value
        assert isinstance(value["ts_ms"], int)
        assert (value["source"]["schema"], value["source"]["table"]) == ("rec", table)
        row = value["before"] if value["op"] == "d" else value["after"]
        # Any op but u and d is an insert to it, and an insert without a row stops it.
        assert (row is None) == (value["op"] == "t")


def test_truncates_are_the_only_records_that_some_readers_stop_at() -> None:
    """Flink: `Unknown "op" value`; Iceberg: no row. Debezium leaves them out by default."""
    ops = {(table, r.value["op"]) for table in UNKEYED for r in changes(BY_TABLE, table)}
    assert {op for _, op in ops} == {"c", "u", "d", "t"}
    assert {table for table, op in ops if op == "t"} == {"emptied"}
