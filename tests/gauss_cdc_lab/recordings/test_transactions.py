import pytest

from gauss_cdc_lab.recordings.transactions import (
    KnownTable,
    RecordedStream,
    RecordedTransaction,
    RowChange,
)
from producer.core.changes import Logical
from producer.errors import DecodeError, Unsupported
from producer.sources.decoders import Format
from producer.sources.gauss.decoders.messages import NamedTruncate
from schemas.positions import Lsn
from schemas.tables import TableId

T = TableId("public", "t")


def folded(plugin: str, *texts: str, known=None, style: str = "") -> list[RecordedTransaction]:
    stream = RecordedStream(Format(plugin, style), known or {})
    return [txn for at, text in enumerate(texts, 1) for txn in stream.feed(at, text.encode())]


def test_a_transaction_has_the_data_of_both_of_its_ends() -> None:
    (serial,) = folded("mppdb_decoding", "BEGIN 5", "COMMIT 5 (at now) CSN 6")
    (parallel,) = folded(
        "mppdb_decoding", "BEGIN CSN: 6 first_lsn: 0/1", "COMMIT XID: 5 (at now)", style="t"
    )

    assert serial == parallel == RecordedTransaction(5, 6, Lsn(2), "now", ())


def test_names_of_an_insert_come_from_the_tables() -> None:
    known = {T: KnownTable(("id", "v"), ("integer", "text"), ("id",))}
    statements = "BEGIN 1", "insert into public.t values (1, 'x');", "COMMIT (at now) 1"

    (with_them,) = folded("sql_decoding", *statements, known=known)
    (without,) = folded("sql_decoding", *statements)

    assert with_them.changes[0].after == (("id", b"1"), ("v", b"x"))
    assert without.changes[0].after == (("$1", b"1"), ("$2", b"x"))


@pytest.mark.parametrize("values", ["1", "'text', 'x'", "1, 'x', 2"])
def test_a_table_that_was_altered_since_gives_no_names(values: str) -> None:
    known = {T: KnownTable(("id", "v"), ("integer", "text"))}

    (txn,) = folded(
        "sql_decoding",
        "BEGIN 1",
        f"insert into public.t values ({values});",
        "COMMIT (at now) 1",
        known=known,
    )

    assert txn.changes[0].after[0][0] == "$1"


def test_a_row_older_than_an_added_column_has_the_names_of_the_first_ones() -> None:
    row = "BEGIN 1", "insert into public.t values (1, 'x');", "COMMIT (at now) 1"
    names, types = ("id", "v", "w"), ("integer", "text", "text")

    (gapless,) = folded("sql_decoding", *row, known={T: KnownTable(names, types, is_gapless=True)})
    (dropped,) = folded("sql_decoding", *row, known={T: KnownTable(names, types)})

    assert gapless.changes[0].after == (("id", b"1"), ("v", b"x"))
    assert dropped.changes[0].after == (("$1", b"1"), ("$2", b"x"))


def test_a_spaced_name_is_the_only_known_table_with_these_columns() -> None:
    lines = "BEGIN CSN: 6 first_lsn: 0/1", "table a b c INSERT: x[integer]:1", "commit"
    tables = {
        TableId("a b", "c"): KnownTable(("x",), ("integer",)),
        TableId("a", "b c"): KnownTable(("y",), ("integer",)),
    }

    (sure,) = folded("mppdb_decoding", *lines, known=tables, style="t")
    (unsure,) = folded("mppdb_decoding", *lines, style="t")

    assert (sure.changes[0].table, sure.changes[0].is_sure) == (TableId("a b", "c"), True)
    assert (unsure.changes[0].table, unsure.changes[0].is_sure) == (TableId("a", "b c"), False)


def test_a_spaced_name_is_known_when_a_column_of_the_row_has_gone_since() -> None:
    known = {TableId("my schema", "t"): KnownTable(("id",), ("integer",))}
    row = "table my schema t INSERT: id[integer]:1 v[text]:'x'"

    (txn,) = folded(
        "mppdb_decoding",
        *("BEGIN CSN: 6 first_lsn: 0/1", row, "commit"),
        known=known,
        style="t",
    )

    assert (txn.changes[0].table, txn.changes[0].is_sure) == (TableId("my schema", "t"), True)


def test_the_key_of_an_unidentified_update_is_known_of_postgresql_only() -> None:
    known = {T: KnownTable(("id",), ("integer",), ("id",))}
    update = "table public.t: UPDATE: id[integer]:1"

    (theirs,) = folded("test_decoding", "BEGIN 1", update, "COMMIT 1", known=known)
    (ours,) = folded("test_decoding", "BEGIN 1", update, "COMMIT 1 CSN 2", known=known)

    assert theirs.changes[0].key == ("id",)
    assert ours.changes[0].key == ()


def test_what_is_no_row_stands_in_its_place() -> None:
    (txn,) = folded(
        "test_decoding",
        "message: transactional: 0 prefix: a, sz: 1 content:x",
        "BEGIN 1",
        "message: transactional: 1 prefix: b, sz: 1 content:y",
        "table public.t: TRUNCATE: cascade",
        "table public.t: INSERT: id[integer]:1",
        "COMMIT 1",
    )

    assert [type(change) for change in txn.changes] == [Logical, NamedTruncate, RowChange]
    assert txn.has_rows


@pytest.mark.parametrize(
    "texts", [["COMMIT 1"], ["BEGIN 1", "BEGIN 2"], ["table public.t: INSERT: id[integer]:1"]]
)
def test_messages_in_disorder_are_refused(texts: list[str]) -> None:
    with pytest.raises(DecodeError, match="transaction"):
        folded("test_decoding", *texts)


def test_an_unknown_plugin_is_refused() -> None:
    with pytest.raises(Unsupported, match="wal2json"):
        RecordedStream(Format("wal2json"), {})
