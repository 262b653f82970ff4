"""Held transactions: what comes out is what was done, in pgoutput's words."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest

from producer.core.changes import (
    Begin,
    Cells,
    Commit,
    Delete,
    Insert,
    Lost,
    Message,
    Relation,
    SentAgain,
    Truncate,
    Undecoded,
    Update,
)
from producer.errors import DecodeError, SourceSwitched, Unsupported
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, RowShape
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.spill import SpillFile
from producer.sources.gauss.stream import GaussStream, instant
from schemas.positions import Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from tests.producer.sources.gauss.decoders.ledgers import Capture, capture, document, documents

LETTERS = {
    "default": ReplicaIdentity.DEFAULT,
    "full": ReplicaIdentity.FULL,
    "nothing": ReplicaIdentity.NOTHING,
}


def tables(workload: str) -> list[TableSchema]:
    """Shapes as the server's catalog showed them after the workload."""
    raw = document(f"tables_{workload}.json.gz")
    return [
        TableSchema(
            TableId(table["schema"], table["table"]),
            tuple(
                Column(c["name"], c["type_oid"], type_name=c["type_with_typmod"])
                for c in table["columns"]
            ),
            tuple(table["primary_key"] or ()),
            (),
            LETTERS.get(table["replica_identity"], ReplicaIdentity.INDEX),
            tuple(table["identity_columns"] or ()),
        )
        for table in raw["tables"]
    ]


def resolver(known: list[TableSchema], **changes: Any) -> RelationResolver:
    by_id = {table.id: table for table in known}
    return RelationResolver(
        dict(by_id),
        **{
            "wanted": lambda _: True,
            "read_catalog": by_id.get,
            "oid_of": lambda _: None,
            **changes,
        },
    )


def held_for(read: Capture, relations: RelationResolver | None = None, **changes: Any) -> Any:
    relations = relations or resolver(tables(read.workload), skip_unidentified=True)
    return GaussStream(read.decoder(), relations, spill=SpillFile, **changes)


def messages_of(read: Capture) -> list[tuple[int, int, bytes]]:
    return [(start, start, payload) for start, payload in read.payloads]


def by_transaction(messages: Iterator[tuple[int, Message]]) -> Iterator[dict[str, Any]]:
    """Transactions as the ledger writes them: op, table, sent columns with their text."""
    relations: dict[int, Relation] = {}
    open_: dict[str, Any] = {}
    for _, message in messages:
        match message:
            case Begin():
                open_ = {"xid": message.xid, "csn": message.csn, "changes": [], "begin": message}
            case Commit():
                assert open_["begin"].commit_lsn < message.end_lsn
                yield open_
            case Relation():
                relations[message.relation] = message
            case Insert(relation, new):
                open_["changes"].append(change("INSERT", relations[relation], new, None, ""))
            case Update(relation, kind, old, new):
                open_["changes"].append(change("UPDATE", relations[relation], new, old, kind))
            case Delete(relation, kind, old):
                open_["changes"].append(change("DELETE", relations[relation], None, old, kind))
            case Lost():
                open_["changes"].append({"op": message.why.split()[0], "table": message.table})
            case _:
                raise AssertionError(message)


def change(
    op: str, relation: Relation, new: Cells | None, old: Cells | None, kind: str
) -> dict[str, Any]:
    names = [column.name for column in relation.columns]
    sent = [c.name for c in relation.columns if kind == "O" or c.identity]
    out: dict[str, Any] = {"op": op, "schema": relation.schema, "table": relation.table}
    if new is not None:
        out["after"] = dict(zip(names, new, strict=True))
    if old is not None:
        cells = dict(zip(names, old, strict=True))
        out["before"] = {name: cells[name] for name in sent}
    return out


MODES = ["ser_mppdb", "ser_test", "ser_mppdb_skip"]
MODES += [f"par_{style}_batch{batch}" for style in "bjt" for batch in (0, 1)]


@pytest.mark.parametrize("mode", MODES)
def test_changes_of_a_recording_stand_in_the_order_of_their_commits(mode: str) -> None:
    read = capture(f"capture_txns_{mode}")
    ledger = [
        [
            (c["op"], c["table"])
            for c in entry["changes"]
            if c["op"] in {"INSERT", "UPDATE", "DELETE"}
            and not (mode.startswith("par") and c.get("after_ddl_in_txn"))
        ]
        for entry in documents("ledger_txns.jsonl.gz")
        if entry["outcome"] == "committed"
    ]
    got = [
        [(c["op"], c["table"]) for c in transaction["changes"] if c["op"] != "TRUNCATE"]
        for transaction in by_transaction(no_truncates(held_for(read).messages(messages_of(read))))
    ]

    assert [changes for changes in got if changes] == [changes for changes in ledger if changes]


def no_truncates(messages: Iterator[tuple[int, Message]]) -> Iterator[tuple[int, Message]]:
    return (pair for pair in messages if type(pair[1]).__name__ != "Truncate")


@pytest.mark.parametrize("mode", ["ser_mppdb", "par_b_batch1", "par_j_batch0", "par_t_batch1"])
def test_old_rows_hold_the_columns_of_the_replica_identity(mode: str) -> None:
    read = capture(f"capture_identity_{mode}")
    wanted = [
        (c["op"], c["table"], {k: v and v.encode() for k, v in c["before_key"].items()})
        for entry in documents("ledger_identity.jsonl.gz")
        if entry["outcome"] == "committed"
        for c in entry["changes"]
        if c["op"] == "DELETE" and c["before_key"] and not c.get("order") and not c.get("via")
    ]
    got = [
        (c["op"], c["table"], c["before"])
        for transaction in by_transaction(held_for(read).messages(messages_of(read)))
        for c in transaction["changes"]
        if c["op"] == "DELETE" and "before" in c
    ]

    assert wanted
    for expected in wanted:
        assert expected in got


def test_rows_beyond_the_limit_go_through_a_file_and_come_back_the_same() -> None:
    read = capture("capture_bulk_par_b_batch1")

    small = list(by_transaction(held_for(read, hold_bytes=10_000).messages(messages_of(read))))

    assert small == list(by_transaction(held_for(read).messages(messages_of(read))))
    assert max(len(transaction["changes"]) for transaction in small) > 1000


def test_a_commit_with_its_end_begins_one_byte_before() -> None:
    read = capture("capture_txns_par_b_batch0")
    out = [
        m for _, m in held_for(read).messages(messages_of(read)) if isinstance(m, Begin | Commit)
    ]

    begins = [m.commit_lsn for m in out if isinstance(m, Begin)]
    ends = [m.end_lsn for m in out if isinstance(m, Commit)]

    assert [end - 1 for end in ends] == begins
    assert begins == sorted(begins)


def test_a_commit_with_its_start_ends_one_byte_after() -> None:
    read = capture("capture_txns_par_t_batch0")
    starts = [start for start, payload in read.payloads if payload.startswith(b"commit")]

    out = [m for _, m in held_for(read).messages(messages_of(read)) if isinstance(m, Commit)]

    assert [(m.commit_lsn, m.end_lsn) for m in out] == [(s, s + 1) for s in starts]


def test_a_slot_ordered_by_csn_resumes_by_csn() -> None:
    read = capture("capture_txns_par_b_batch0")

    out = [m for _, m in held_for(read, by_csn=True).messages(messages_of(read))]

    ends = [m.end_lsn for m in out if isinstance(m, Commit)]
    assert ends == [m.csn for m in out if isinstance(m, Begin)]


def test_csns_that_went_back_stop_and_neighbours_that_changed_places_do_not() -> None:
    read = capture("capture_txns_par_b_batch0")
    first = next(
        m.csn for _, m in held_for(read).messages(messages_of(read)) if isinstance(m, Begin)
    )
    assert first is not None

    list(held_for(read, newest_csn=first + 1000).messages(messages_of(read)))
    with pytest.raises(SourceSwitched, match="accept-gap"):
        list(held_for(read, newest_csn=first + 100_000).messages(messages_of(read)))
    # what was delivered before comes again after a restart, with its old CSN
    again = held_for(read, newest_csn=first + 100_000, resume=1 << 60)
    list(again.messages(messages_of(read)))


@pytest.mark.parametrize(
    "name", ["capture_txns_par_b_batch0", "capture_txns_par_t_batch0", "capture_txns_ser_mppdb"]
)
def test_a_transaction_that_is_sent_again_names_its_tables_only_if_it_is_asked(name: str) -> None:
    read = capture(name)
    names: dict[int, TableId] = {}
    wanted: list[set[TableId]] = []
    for _, message in held_for(read).messages(messages_of(read)):
        match message:
            case Begin():
                wanted.append(set())
            case Relation(relation, schema, table):
                names[relation] = TableId(schema, table)
            case Insert(relation) | Update(relation) | Delete(relation):
                wanted[-1].add(names[relation])
            case Truncate(relations):
                wanted[-1].update(names[relation] for relation in relations)
            case _:
                pass

    again = held_for(read, resume=1 << 60)
    said = [set(m.tables) for _, m in again.messages(messages_of(read)) if isinstance(m, SentAgain)]

    assert said == wanted
    assert any(wanted)
    unasked = held_for(read, resume=1 << 60)
    kinds = {type(message) for _, message in unasked.messages(messages_of(read))}
    assert kinds == {Begin, SentAgain, Commit}


def test_rows_of_tables_that_are_not_captured_are_counted_and_left_out() -> None:
    read = capture("capture_txns_ser_mppdb")
    relations = resolver(tables(read.workload), wanted=lambda table: table.schema != "tx")
    held = held_for(read, relations)

    assert not any(
        isinstance(m, Insert | Update | Delete) for _, m in held.messages(messages_of(read))
    )
    assert relations.left_out > 10


ROW = (
    b'{"table_name":"tx.acc","op_type":"%s","columns_name":[%s],"columns_type":[%s],'
    b'"columns_val":[%s],"old_keys_name":[%s],"old_keys_type":[%s],"old_keys_val":[%s]}'
)


def row(op: bytes, new: dict[bytes, bytes], old: dict[bytes, bytes]) -> bytes:
    def parts(cells: dict[bytes, bytes]) -> tuple[bytes, bytes, bytes]:
        return (
            b",".join(b'"%s"' % name for name in cells),
            b",".join(b'"integer"' if name == b"id" else b'"text"' for name in cells),
            b",".join(b'"%s"' % value for value in cells.values()),
        )

    return ROW % (op, *parts(new), *parts(old))


def play(*payloads: bytes, known: list[TableSchema], **changes: Any) -> list[Message]:
    described = resolver(known, oid_of={"integer": 23, "text": 25}.get, **changes)
    decoder = Format("mppdb_decoding")
    held = GaussStream(NAMING["mppdb_decoding", ""](decoder), described, spill=SpillFile)
    framed = [b"BEGIN 5", *payloads, b"COMMIT 5 (at 2024-05-01 08:00:00+08) CSN 77"]
    pairs = held.messages([(100 + at, 100 + at, payload) for at, payload in enumerate(framed)])
    return [message for _, message in pairs]


ACC = TableSchema(
    TableId("tx", "acc"),
    (Column("id", 23, -1, "integer", nullable=False), Column("v", 25, -1, "text")),
    ("id",),
    (),
    ReplicaIdentity.DEFAULT,
    ("id",),
)


def test_an_old_row_alone_is_placed_among_all_columns_of_the_table() -> None:
    begin, relation, delete, commit = play(row(b"DELETE", {}, {b"id": b"7"}), known=[ACC])

    assert begin == Begin(Lsn(101), instant("2024-05-01 00:00:00+00"), 5, 77)
    assert isinstance(relation, Relation)
    assert [(c.name, c.type_oid, c.identity) for c in relation.columns] == [
        ("id", 23, True), ("v", 25, False)]  # fmt: skip
    assert delete == Delete(relation.relation, "K", [b"7", None])
    assert isinstance(commit, Commit)


def test_a_row_with_another_column_describes_its_table_again() -> None:
    one = row(b"INSERT", {b"id": b"1", b"v": b"'a'"}, {})
    other = row(b"INSERT", {b"id": b"2", b"v": b"'b'", b"w": b"'c'"}, {})

    out = play(one, one, other, one, known=[ACC])

    shapes = [tuple(c.name for c in m.columns) for m in out if isinstance(m, Relation)]
    assert shapes == [("id", "v"), ("id", "v", "w"), ("id", "v")]
    ids = [m.relation for m in out if isinstance(m, Relation | Insert)]
    assert ids == [1, 1, 1, 2, 2, 3, 3]


def test_a_clob_that_is_printed_as_text_is_still_the_clob_of_the_catalog() -> None:
    columns = (Column("id", 23, -1, "integer"), Column("v", 90, -1, "clob"))
    known = TableSchema(ACC.id, columns, ("id",), (), ReplicaIdentity.DEFAULT, ("id",))

    out = play(row(b"INSERT", {b"id": b"1", b"v": b"'a'"}, {}), known=[known])

    (relation,) = [m for m in out if isinstance(m, Relation)]
    assert [c.type_oid for c in relation.columns] == [23, 90]


def described_as_t(*known: TableSchema) -> RelationResolver:
    return resolver(list(known), oid_of={"integer": 23}.get, names_run_together=True)


def blank(schema: str, name: str) -> TableSchema:
    return TableSchema(TableId(schema, name), (Column("id", 23, -1, "integer"),), ("id",))


def change_of(schema: str, table: str) -> NamedChange:
    return NamedChange(
        "c", schema, table, NamedRow(RowShape(("id",), (0,), ("integer",)), [b"1"]), None
    )


def test_a_name_with_blanks_in_style_t_is_the_table_that_exists() -> None:
    described = described_as_t(blank("my schema", "a table"))

    relation, _ = described.row(change_of("my", "schema a table"))

    assert isinstance(relation, Relation)
    assert (relation.schema, relation.table) == ("my schema", "a table")


def test_a_name_with_blanks_is_known_when_a_column_of_the_row_has_gone_since() -> None:
    described = described_as_t(blank("my schema", "a table"))
    gone = NamedRow(RowShape(("id", "v"), (23, 25), ("integer", "text")), [b"1", b"x"])

    relation, _ = described.row(NamedChange("c", "my", "schema a table", gone, None))

    assert isinstance(relation, Relation)
    assert (relation.schema, relation.table) == ("my schema", "a table")


def test_two_tables_that_style_t_writes_alike_stop() -> None:
    described = described_as_t(blank("my schema", "t"), blank("my", "schema t"))

    with pytest.raises(Unsupported, match="decode-style"):
        list(described.row(change_of("my", "schema t")))


def test_a_change_without_its_new_row_is_not_a_delete() -> None:
    described = described_as_t(ACC)
    change = NamedChange("u", "tx", "acc", None, NamedRow(RowShape(("id",), (23,), ("",)), [b"1"]))

    with pytest.raises(Unsupported, match="UPDATE without new values"):
        list(described.row(change))


def test_a_delete_after_a_new_column_has_it_too() -> None:
    wide = row(b"INSERT", {b"id": b"2", b"v": b"'b'", b"w": b"'c'"}, {})

    out = play(wide, row(b"DELETE", {}, {b"id": b"2"}), known=[ACC])

    deletes = [m for m in out if isinstance(m, Delete)]
    assert [m.old for m in deletes] == [[b"2", None, None]]


def test_a_delete_that_names_no_row_stops_or_is_reported_as_lost() -> None:
    keyless = row(b"DELETE", {}, {})
    with pytest.raises(Unsupported, match="identify its row"):
        play(keyless, known=[ACC])

    out = play(keyless, known=[ACC], skip_unidentified=True)

    assert [(m.kind, m.table) for m in out if isinstance(m, Lost)] == [("seen", "acc")]


def test_an_old_row_without_columns_names_no_row() -> None:
    described = described_as_t(blank("s", "t"))
    nothing = NamedRow(RowShape((), (), ()), [])

    with pytest.raises(Unsupported, match="identify its row"):
        list(described.row(NamedChange("d", "s", "t", None, nothing)))


def test_an_old_row_with_unknown_columns_stops_or_is_a_gap_on_request() -> None:
    with pytest.raises(Unsupported, match="skip-and-record"):
        play(row(b"DELETE", {}, {b"renamed": b"'x'"}), known=[ACC])

    renamed, insert = row(b"DELETE", {}, {b"renamed": b"'x'"}), row(b"INSERT", {b"id": b"1"}, {})
    out = play(renamed, insert, known=[ACC], skip_unidentified=True)

    assert [(m.kind, m.table) for m in out if isinstance(m, Lost)] == [("seen", "acc")]
    assert any(isinstance(m, Insert) for m in out)


def test_an_undecodable_message_is_reported_at_its_position() -> None:
    insert = row(b"INSERT", {b"id": b"1", b"v": b"'a'"}, {})

    out = play(insert, insert[:-3], insert, known=[ACC])

    assert [type(m).__name__ for m in out[2:-1]] == ["Insert", "Undecoded", "Insert"]
    assert next(m.payload for m in out if isinstance(m, Undecoded)) == insert[:-3]


def test_a_transaction_of_bytes_that_are_no_message_does_not_grow_without_end() -> None:
    held = GaussStream(
        NAMING["mppdb_decoding", ""](Format("mppdb_decoding")),
        resolver([]),
        spill=SpillFile,
        hold_bytes=10_000,
    )
    endless = itertools.chain([b"BEGIN 5"], itertools.repeat(b"?" * 100))

    with pytest.raises(DecodeError) as caught:
        list(held.messages((at, at, payload) for at, payload in enumerate(endless)))

    assert caught.value.where["messages"] == 63  # the first beyond, with 60 bytes for each


def test_a_transaction_that_nobody_reads_to_its_end_frees_its_file() -> None:
    files: list[SpillFile] = []

    def spill() -> SpillFile:
        files.append(SpillFile())
        return files[-1]

    held = GaussStream(
        NAMING["mppdb_decoding", ""](Format("mppdb_decoding")),
        resolver([ACC]),
        spill=spill,
        hold_bytes=1_000,
    )
    rows = [row(b"DELETE", {}, {b"id": b"7"})] * 50
    framed = [b"BEGIN 5", *rows, b"COMMIT 5 (at 2024-05-01 08:00:00+08) CSN 77"]
    found = held.messages([(100 + at, 100 + at, payload) for at, payload in enumerate(framed)])
    next(found)

    held.close()

    assert [file._file.closed for file in files] == [True]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2000-01-01 00:00:00+00", 0),
        ("2000-01-01 08:00:00.000001+08", 1),
        ("1999-12-31 18:29:59.25-05:30", -750_000),
        ("2000-01-01 00:00:10+00:00:10", 0),
    ],
)
def test_an_instant_is_read_in_whatever_zone_it_is_printed(text: str, wanted: int) -> None:
    assert instant(text) == wanted


@pytest.mark.parametrize("text", ["", "2000-01-01", "2000-13-01 00:00:00+00", "now"])
def test_what_is_not_an_instant_is_refused(text: str) -> None:
    with pytest.raises(DecodeError):
        instant(text)


# ---------------------------------------------------------------- rows without names
def sql_stream(catalog: dict[TableId, TableSchema], *known: TableSchema) -> GaussStream:
    described = resolver(list(known), read_catalog=catalog.get)
    decoder = NAMING["sql_decoding", ""](Format("sql_decoding"))
    return GaussStream(decoder, described, spill=SpillFile)


def sent_by_sql(*rows: bytes, at: int) -> list[tuple[int, int, bytes]]:
    lines = [b"BEGIN 5", *rows, b"COMMIT (at 2026-11-21 05:48:09.31+08) 5"]
    return [(at + number, at, line) for number, line in enumerate(lines)]


def test_a_column_added_under_sql_decoding_is_read_when_a_row_has_one_more() -> None:
    table = TableId("public", "t")
    before = TableSchema(table, (Column("a", 23),), ("a",))
    after = TableSchema(table, (Column("a", 23), Column("b", 25)), ("a",))
    catalog = {table: before}
    held = sql_stream(catalog, before)

    (first,) = by_transaction(
        held.messages(sent_by_sql(b"insert into public.t values (1);", at=100))
    )
    catalog[table] = after
    wider = b"insert into public.t values (2, 'two');"
    (second,) = by_transaction(held.messages(sent_by_sql(wider, at=200)))

    assert [c["after"] for c in first["changes"]] == [{"a": b"1"}]
    assert [c["after"] for c in second["changes"]] == [{"a": b"2", "b": b"two"}]


def test_a_row_without_names_that_the_catalog_does_not_fit_stops_with_the_way_out() -> None:
    table = TableId("public", "t")
    now = TableSchema(table, (Column("a", 23), Column("c", 25)), ("a",))  # b was dropped since
    held = sql_stream({table: now}, now)
    rows = sent_by_sql(b"insert into public.t values (1, 'b', 'c');", at=100)

    with pytest.raises(Unsupported, match=r"with \[source\] plugin = .mppdb_decoding.") as caught:
        list(held.messages(rows))

    assert (caught.value.where["sent"], caught.value.where["known"]) == (3, 2)
