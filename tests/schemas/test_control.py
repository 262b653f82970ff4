"""Every record of cuts and ddl survives Avro."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pytest

from schemas.control import (
    _DEEPEST_TYPE,
    AGAIN,
    BESIDE,
    MEND,
    CommitEntry,
    Commits,
    Cut,
    DdlPlace,
    Head,
    Heartbeat,
    Hole,
    Identity,
    LoadPhase,
    Looked,
    Moved,
    Origin,
    Prev,
    Range,
    SchemaChange,
    Start,
    State,
    TableLoad,
    Topic,
    _user_type,
    change_from_avro,
    change_to_avro,
    cut_from_avro,
    cut_to_avro,
    kind_of,
    note_load,
)
from schemas.load import CUT, SCHEMA_CHANGE, avsc
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique, UserType

HEAD = Head(7, 2, 3, "abc", 5001, 0x1C0, 12, 1_714_561_200_123_456)
IDENTITY = Identity("7000", 1, "bank", "cdc", "pgoutput")
TOPICS = {"bank.public.t": Topic("uuid", 3)}
ENTRY = CommitEntry(
    5001,
    700,
    99,
    0x100,
    0x1C0,
    1_714_561_199_000_001,
    3,
    {0: 2},
    (DdlPlace(1, 17),),
    (Hole("public.t", "seen", "truncate"),),
    "ann",
)
CUTS: list[Cut] = [
    Start(HEAD, IDENTITY, "hash", "cluster", TOPICS),
    Start(HEAD, IDENTITY, "hash", "cluster", TOPICS, {"s.t": "END"}, Prev(1, 9, 4), True, "lost"),
    State(HEAD, IDENTITY, "hash", "cluster", TOPICS, {"s.t": "BEGIN"}),
    State(HEAD, IDENTITY, "hash", "cluster", TOPICS, had_loads=True),
    Start(HEAD, IDENTITY, "hash", "cluster", TOPICS, had_loads=True),
    Commits(HEAD, (ENTRY, replace(ENTRY, end_lsn=None, user=None)),
            (Range("bank.public.t", 0, 10, 12),), {"bank.public.t": (4, 5)}),
    TableLoad(HEAD, TableId("public", "t"), LoadPhase.CHUNK, "EXACT", (Range("x", 1, 0, 2),), 2, 9,
              {"x": (4,)}),
    TableLoad(HEAD, TableId("public", "t"), LoadPhase.BEGIN),
    TableLoad(HEAD, TableId("public", "t"), LoadPhase.BEGIN, looked=Looked(7, "1", {"16": "3"})),
    State(HEAD, IDENTITY, "hash", "cluster", TOPICS, {}, looked=Looked(1 << 40, "", {}, "16:7")),
    Heartbeat(HEAD),
]  # fmt: skip
TABLE = TableSchema(
    TableId("public", "金 t"),
    (
        Column("id", 20, -1, "bigint", nullable=False, identity="a"),
        Column("g", 23, -1, "integer", generated="s"),
        Column("d", 25, -1, "text", missing="x"),
        Column("e", 16400, -1, "public.mood[]", user_type=UserType(
            "a", "_mood", "public.mood", 16398, of=UserType("e", "mood", labels=("sad", "ok")))),
    ),
    ("id",),
    (Unique("u", ("g", "d")),),
    ReplicaIdentity.INDEX,
    ("g", "d"),
)  # fmt: skip


def through_avro(name: str, record: dict[str, Any]) -> Any:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avsc(name), record)
    out.seek(0)
    return fastavro.schemaless_reader(out, avsc(name), None)


@pytest.mark.parametrize("cut", CUTS, ids=kind_of)
def test_a_cut_survives_avro(cut: Cut) -> None:
    assert cut_from_avro(through_avro(CUT, cut_to_avro(cut))) == cut


def test_texts_of_tables_without_quotes_are_those_of_an_earlier_build() -> None:
    topics = dict.fromkeys(("bank.public.a_u002eb", "bank.app_u002ev2.t"), Topic("uuid", 3))
    loads = {"public.a": "END", "public.a.b": "GAP", "app.v2.t": "CHUNK", "app.v2.other": "PENDING"}
    old = State(HEAD, IDENTITY, "hash", "cluster", topics, loads, upto={"app.v2.t": "x"},
                targeted={"public.a.b": "y"})  # fmt: skip
    gap = replace(ENTRY, holes=(Hole("public.a.b", "seen", "why"), Hole("*", "seen", "why")))

    read = cut_from_avro(cut_to_avro(old))
    commits = cut_from_avro(cut_to_avro(Commits(HEAD, (gap,), ())))

    # A topic beside it shows which table was meant; else the first dot divides.
    assert isinstance(read, State)
    assert read.loads == {
        "public.a": "END",
        'public."a.b"': "GAP",
        '"app.v2".t': "CHUNK",
        'app."v2.other"': "PENDING",
    }
    assert (read.upto, read.targeted) == ({'"app.v2".t': "x"}, {'public."a.b"': "y"})
    assert isinstance(commits, Commits)
    assert [hole.table for hole in commits.commits[0].holes] == [
        "public.a.b",
        "*",
    ]  # see `rewritten`
    assert cut_from_avro(cut_to_avro(read)) == read


@pytest.mark.parametrize(("before", "after"), [(None, TABLE), (TABLE, None), (TABLE, TABLE)])
def test_a_schema_change_survives_avro(
    before: TableSchema | None, after: TableSchema | None
) -> None:
    change = SchemaChange(
        2, 5001, 1, 700, 99, 0x100, Origin.TRIGGER, "ALTER TABLE", before, after,
        "bank.public.t", "alter table t ...", None, None, "default",
    )  # fmt: skip
    assert change_from_avro(through_avro(SCHEMA_CHANGE, change_to_avro(change))) == change


def test_a_schema_change_of_before_user_types_is_read() -> None:
    change = SchemaChange(2, 1, 1, 7, 9, 1, Origin.SNAPSHOT, "CREATE TABLE", None, TABLE)
    record = change_to_avro(change)
    for column in record["after"]["columns"]:
        del column["user_type"]
    of_old = json.loads(json.dumps(avsc(SCHEMA_CHANGE)))
    table = next(f for f in of_old["fields"] if f["name"] == "before")["type"][1]
    columns = next(f for f in table["fields"] if f["name"] == "columns")["type"]["items"]
    columns["fields"] = [f for f in columns["fields"] if f["name"] != "user_type"]
    out = io.BytesIO()
    fastavro.schemaless_writer(out, of_old, record)
    without = replace(
        TABLE, columns=tuple(replace(column, user_type=None) for column in TABLE.columns)
    )

    for reader in (None, avsc(SCHEMA_CHANGE)):  # the producer's way, and the consumer's
        out.seek(0)
        read = change_from_avro(fastavro.schemaless_reader(out, of_old, reader))
        assert read.after == without


def test_changes_written_before_triggers_are_read_and_new_ones_by_older_readers() -> None:
    of_old = json.loads(Path(__file__).with_name("schema_change_0_2.avsc").read_text("utf-8"))
    reported = SchemaChange(
        2, 1, 1, 7, 9, 1, Origin.TRIGGER, "ALTER TABLE", TABLE, TABLE,
        kind="table", identity="public.t", statement=1, renamed={"a": "b"}, values={"d": "lost"},
        settings={"TimeZone": "UTC"}, moved=Moved("move", TableId("s", "p"), "id < 10"),
    )  # fmt: skip
    plain = SchemaChange(2, 1, 1, 7, 9, 1, Origin.TRIGGER, "ALTER TABLE", TABLE, TABLE)
    assert change_from_avro(through_avro(SCHEMA_CHANGE, change_to_avro(reported))) == reported

    for writer, reader in ((of_old, None), (of_old, avsc(SCHEMA_CHANGE))):
        out = io.BytesIO()
        fastavro.schemaless_writer(out, writer, change_to_avro(plain))
        out.seek(0)
        assert change_from_avro(fastavro.schemaless_reader(out, writer, reader)) == plain
    out = io.BytesIO()
    fastavro.schemaless_writer(out, avsc(SCHEMA_CHANGE), change_to_avro(reported))
    out.seek(0)
    assert fastavro.schemaless_reader(out, avsc(SCHEMA_CHANGE), of_old)["tag"] == "ALTER TABLE"


def test_a_cut_of_a_later_format_is_refused() -> None:
    with pytest.raises(ValueError, match="format 5"):
        cut_from_avro({**cut_to_avro(Heartbeat(HEAD)), "version": 5})


def test_only_loads_that_older_releases_would_misread_are_of_the_newer_format() -> None:
    load = TableLoad(HEAD, TableId("public", "t"), LoadPhase.CHUNK, BESIDE, upto="{}")

    assert cut_from_avro(cut_to_avro(load)) == load
    assert cut_to_avro(load)["version"] == 2
    assert cut_to_avro(replace(load, mode=AGAIN))["version"] == 1
    for_one = replace(load, mode=AGAIN, target="lake")
    assert cut_from_avro(cut_to_avro(for_one)) == for_one
    assert cut_to_avro(for_one)["version"] == 3
    mends = replace(load, mode=MEND, upto=None, target="lake")
    assert cut_from_avro(cut_to_avro(mends)) == mends
    assert cut_to_avro(mends)["version"] == 4


def test_rows_of_some_keys_are_of_no_load() -> None:
    mends = TableLoad(HEAD, TableId("public", "t"), LoadPhase.CHUNK, MEND)
    loads, targeted = {"public.t": "END"}, {"public.t": "{}"}
    for target in (None, "lake"):
        note_load(replace(mends, target=target), loads, {}, targeted)

    assert (loads, targeted) == ({"public.t": "END"}, {"public.t": "{}"})


def test_a_state_with_an_open_load_for_one_target_is_of_the_newest_format() -> None:
    state = State(HEAD, IDENTITY, "c", "k", {}, targeted={"public.t": "{}"})

    assert cut_from_avro(cut_to_avro(state)) == state
    assert cut_to_avro(state)["version"] == 3
    assert cut_to_avro(replace(state, targeted={}))["version"] == 1
    assert cut_to_avro(Heartbeat(HEAD))["version"] == 1


def test_a_load_that_begins_or_ends_is_no_way_on_and_one_for_a_target_leaves_it() -> None:
    load = TableLoad(HEAD, TableId("public", "t"), LoadPhase.CHUNK, BESIDE, upto="so far")
    for phase, left in (("BEGIN", {}), ("END", {}), ("CHUNK", {"public.t": "so far"})):
        loads, upto = {"public.t": "CHUNK"}, {"public.t": "before"}
        note_load(replace(load, phase=LoadPhase(phase), upto=left.get("public.t")), loads, upto, {})
        assert (loads, upto) == ({"public.t": phase}, left)

    loads, upto, targeted = {"public.t": "END"}, {}, dict[str, str]()
    note_load(replace(load, target="lake"), loads, upto, targeted)
    assert (loads, upto, targeted) == ({"public.t": "END"}, {}, {"public.t": "so far"})


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown kind"):
        cut_from_avro({**cut_to_avro(Heartbeat(HEAD)), "kind": "NEW"})


def test_a_type_made_of_hundreds_of_others_is_refused() -> None:
    """Whoever follows such a description descends as deep as it is."""
    said: UserType | None = None
    for _ in range(300):
        said = UserType("d", "d", of=said)
    table = replace(TABLE, columns=(Column("c", 20_000, -1, "s.d", user_type=said),), key=())
    change = SchemaChange(2, 1, 1, 7, 9, 1, Origin.SNAPSHOT, "CREATE TABLE", None, table)

    with pytest.raises(ValueError, match="more than 100"):
        change_from_avro(change_to_avro(change))


def test_types_are_read_to_a_depth() -> None:
    raw: dict[str, Any] | None = None
    for _ in range(_DEEPEST_TYPE + 1):
        raw = {"kind": "d", "name": "t", "labels": [], "of": raw}

    assert _user_type(raw) is not None
    with pytest.raises(ValueError, match="levels deep"):
        _user_type({"kind": "d", "name": "t", "labels": [], "of": raw})
