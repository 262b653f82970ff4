"""Recordings as an operator reads them: `gauss-cdc decode`."""

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from gauss_cdc.cli import cli
from producer.errors import DecodeError
from tests.producer.sources.gauss.decoders.ledgers import (
    CAPTURES,
    GOLDEN,
    ROWS,
    Capture,
    capture,
    documents,
    same_float,
)

KEEPALIVE = b'"sub": "k", "hex": "' + b"6b" + b"00" * 31 + b'"'  # a byte too short
PGOUTPUT = GOLDEN.parent / "pgoutput"


def decode(file: Path, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines(file, *words)]


def lines(file: Path, *words: str) -> list[str]:
    result = CliRunner().invoke(cli, ["decode", str(file), *words], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return result.stdout.splitlines()


def golden(name: str) -> Path:
    return GOLDEN / f"{name}.jsonl.gz"


def tables(read: Capture) -> tuple[str, str]:
    return "--tables", str(GOLDEN / f"{read.header['tables']}.gz")


# ---- against the ledgers


def expected(read: Capture) -> list[dict[str, Any]]:
    found = []
    for txn in documents(read.header["ledger"] + ".gz"):
        changes = [] if txn["outcome"] != "committed" else shown(read, txn["changes"])
        if any(change["op"] in ROWS for change in changes):
            found.append({"xid": txn["xid"], "changes": changes})
    return found


def shown(read: Capture, changes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found = []
    for change in changes:
        if change["op"] == "DDL" or (read.is_parallel and change.get("after_ddl_in_txn")):
            continue
        if change["op"] == "TRUNCATE":
            pairs = [] if read.is_parallel else change["tables"]
            found += [wanted("TRUNCATE", *pair, None, None, None) for pair in pairs]
            continue
        where = change["schema"], change["table"]
        order = change.get("order")
        after, before = change.get("after"), change.get("before_key") or None
        if read.is_sql and change["op"] == "UPDATE":
            found.append(wanted("DELETE", *where, None, before, order))
            found.append(wanted("INSERT", *where, after, None, order))
        else:
            found.append(wanted(change["op"], *where, after, before, order))
    return found


def wanted(*values: Any) -> dict[str, Any]:
    names = ("op", "schema", "table", "after", "before", "order")
    return dict(zip(names, values, strict=True))


def is_same(read: Capture, got: dict[str, Any], want: dict[str, Any]) -> bool:
    if any(got[name] != want[name] for name in ("op", "schema", "table")):
        return False
    return all(is_same_row(read, got[name], want[name]) for name in ("after", "before"))


def is_same_row(read: Capture, got: dict[str, Any] | None, want: dict[str, Any] | None) -> bool:
    if got is None or want is None:
        return got is want
    names = list(want)
    if read.is_sql and read.workload == "txns" and "$1" in got:
        # The tables file has only the final form of a table, and says so by not fitting.
        names = [f"${number}" for number in range(1, len(want) + 1)]
    return list(got) == names and all(
        value == other or (isinstance(value, str) and is_rounded(read, name, value, other))
        for (name, other), value in zip(want.items(), got.values(), strict=True)
    )


def is_rounded(read: Capture, name: str, value: str, other: str) -> bool:
    digits = read.float_digits.get(name, 0)
    return bool(digits) and same_float(value.encode(), other.encode(), digits)


@pytest.mark.parametrize("name", CAPTURES)
def test_a_capture_is_printed_as_its_ledger_says(name: str) -> None:
    read = capture(name)
    want = expected(read)

    got = decode(golden(name), *tables(read))

    assert len(got) == len(want)
    for txn, wanted_txn in zip(got, want, strict=True):
        assert list(txn) == ["xid", "csn", "commit_lsn", "committed_at", "changes"]
        assert txn["xid"] == (None if read.is_sql or name.endswith("skip") else wanted_txn["xid"])
        assert txn["csn"] is not None
        assert txn["commit_lsn"] is not None
        assert (txn["committed_at"] is None) is name.endswith("skip")
        assert len(txn["changes"]) == len(wanted_txn["changes"])
        loose = [change for change in wanted_txn["changes"] if change["order"]]
        for change, other in zip(txn["changes"], wanted_txn["changes"], strict=True):
            if not other["order"]:
                assert is_same(read, change, other), (change, other)
                continue
            twins = [twin for twin in loose if is_same(read, change, twin)]
            assert twins, change
            loose.remove(twins[0])


# ---- what a mode does not tell


def test_style_t_needs_the_tables_to_find_the_end_of_a_schema() -> None:
    name = "capture_names_par_t_batch1"

    with_tables = {
        c["table"] for t in decode(golden(name), *tables(capture(name))) for c in t["changes"]
    }
    result = CliRunner().invoke(cli, ["decode", str(golden(name))], standalone_mode=False)
    without = {
        c["table"] for line in result.stdout.splitlines() for c in json.loads(line)["changes"]
    }

    assert "Upper Table" in with_tables
    assert "Schema Upper Table" in without
    assert "decode-style t does not mark" in result.stderr


def test_an_insert_of_sql_decoding_has_numbers_for_names() -> None:
    (first, *_), *_ = (txn["changes"] for txn in decode(golden("capture_gbk_ser_sql")))

    assert first["after"] == {"$1": "0", "$2": "中文数据库", "$3": "中文数    ", "$4": "中文数据库"}


@pytest.mark.parametrize(("numbers", "names"), [((1, 2), ["a"]), ((1, 3), ["$1"])])
def test_a_row_older_than_an_added_column_is_named_if_none_was_dropped(
    numbers: tuple[int, int], names: list[str], tmp_path: Path
) -> None:
    columns = [{"name": n, "attnum": at} for n, at in zip("ab", numbers, strict=True)]
    file = tmp_path / "tables.json"
    file.write_text(json.dumps({"tables": [{"schema": "s", "table": "t", "columns": columns}]}))
    header = {"kind": "header", "plugin": "sql_decoding", "mode": "serial", "options": []}
    texts = ("BEGIN 1", "insert into s.t values ('x');", "COMMIT (at 2026-01-01 00:00:00+00) 1")

    (txn,) = decode(written(tmp_path, header, serial(*texts)), "--tables", str(file))

    assert list(txn["changes"][0]["after"]) == names


def test_transactions_without_rows_are_printed_when_asked_for() -> None:
    name = "capture_txns_ser_mppdb"

    some, everything = decode(golden(name)), decode(golden(name), "--all")

    ledger = {txn["xid"]: txn["label"] for txn in documents("ledger_txns.jsonl.gz")}
    more = [txn for txn in everything if txn not in some]
    assert [(ledger[txn["xid"]], [c["op"] for c in txn["changes"]]) for txn in more] == [
        ("everything in a savepoint is rolled back", []),
        ("drop column", []),
        ("truncate alone", ["TRUNCATE"]),
    ]


# ---- transcripts


RESTARTS = sorted(path.name.removesuffix(".jsonl.gz") for path in GOLDEN.glob("restart_*"))


@pytest.mark.parametrize("name", RESTARTS)
def test_what_came_again_after_a_restart_is_printed_once(name: str) -> None:
    want = [t["changes"] for t in documents("ledger_restart.jsonl.gz") if t["changes"]]

    got = decode(golden(name), "--tables", str(GOLDEN / "tables_restart.json.gz"))

    assert [[change["after"] for change in txn["changes"]] for txn in got] == [
        [change["after"] for change in changes] for changes in want
    ]
    if "par_b" in name or "batch1" in name or "serial" in name:
        header, *_ = documents(f"{name}.jsonl.gz")
        assert [txn["commit_lsn"] for txn in got] == header["commit_positions"]["connection1"]


@pytest.mark.parametrize(
    "name", ["session_serial", "session_parallel_b_batch1", "session_parallel_t_batch0"]
)
def test_a_session_is_decoded_by_its_own_start_replication(name: str) -> None:
    header, *_ = documents(f"{name}.jsonl.gz")

    got = decode(golden(name))

    assert [(txn["xid"], [c["after"] for c in txn["changes"]]) for txn in got] == [
        (txn["xid"], [c["after"] for c in txn["changes"]]) for txn in header["transactions"]
    ]


def test_a_session_of_errors_holds_no_transaction() -> None:
    assert decode(golden("session_errors")) == []


# ---- PostgreSQL


def recorded(vector: str, tmp_path: Path) -> Path:
    """A file as `record` writes it, of messages that a PostgreSQL sent."""
    messages = json.loads((PGOUTPUT / f"{vector}.json").read_text(encoding="utf-8"))["messages"]
    frames = [b"w" + (9).to_bytes(8, "big") * 3 + bytes.fromhex(m["hex"]) for m in messages]
    header = {"kind": "header", "plugin": "pgoutput", "mode": "serial", "options": []}
    return written(tmp_path, header, frames)


def written(tmp_path: Path, header: dict[str, Any], frames: list[bytes]) -> Path:
    file = tmp_path / "recording.jsonl"
    messages = [
        {"n": n, "ms": n, "type": "d", "sub": chr(frame[0]), "hex": frame.hex()}
        for n, frame in enumerate(frames, 1)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in (header, *messages)))
    return file


def test_pgoutput_old_rows_are_what_was_sent(tmp_path: Path) -> None:
    (plain,) = decode(recorded("update_plain", tmp_path))
    (key,) = decode(recorded("update_of_the_key", tmp_path))
    (full,) = decode(recorded("update_identity_full", tmp_path))
    (toast, *_) = decode(recorded("unchanged_toast", tmp_path))[-1:]

    assert [change["before"] for change in plain["changes"]] == [None]
    (before,) = [change["before"] for change in key["changes"]]
    assert len(before) == 1
    assert set(full["changes"][0]["before"]) == set(full["changes"][0]["after"])
    assert {"unchanged_toast": True} in toast["changes"][-1]["after"].values()
    assert plain["csn"] is None
    assert plain["committed_at"].endswith("+00")


# ---- damage


def cut(tmp_path: Path, raw: bytes, name: str = "cut.jsonl") -> Path:
    file = tmp_path / name
    file.write_bytes(raw)
    return file


def damaged(file: Path) -> tuple[list[dict[str, Any]], DecodeError]:
    result = CliRunner().invoke(cli, ["decode", str(file)], standalone_mode=False)
    assert isinstance(result.exception, DecodeError), result.exception
    assert result.exception.exit_code == 3
    return [json.loads(line) for line in result.stdout.splitlines()], result.exception


@pytest.mark.parametrize("name", ["capture_txns_ser_mppdb", "capture_identity_par_b_batch0"])
def test_a_file_cut_anywhere_gives_what_was_before(name: str, tmp_path: Path) -> None:
    raw = gzip.decompress(golden(name).read_bytes())
    whole = decode(golden(name))

    for part in (0.3, 0.5, 0.7, 0.9):
        size = int(len(raw) * part)
        found, error = damaged(cut(tmp_path, raw[:size]))
        assert found == whole[: len(found)]
        assert len(found) < len(whole)
        assert error.where["line"] == raw[:size].count(b"\n") + 1


def test_a_compressed_file_cut_short_gives_what_was_before(tmp_path: Path) -> None:
    raw = golden("capture_bulk_par_t_batch0").read_bytes()
    whole = decode(golden("capture_bulk_par_t_batch0"))

    found, error = damaged(cut(tmp_path, raw[: len(raw) * 9 // 10], "cut.jsonl.gz"))

    assert found
    assert found == whole[: len(found)]
    assert "damaged or truncated" in error.what


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda line: line.replace(b'"hex": "77', b'"hex": "7x', 1), "no bytes in hex"),
        (lambda line: line.replace(b'"hex"', b'"hax"', 1), "no bytes in hex"),
        (lambda line: b"{" + line, "not JSON"),
        (lambda line: b"[1]\n", "not a JSON object"),
        (lambda line: b"", "missing"),
        (lambda line: line.replace(b'"}', b'00"}', 1), "ends"),
        (lambda line: line.replace(b'"type": "d"', b'"type": "q"', 1), "of an unknown type"),
        (lambda line: line.replace(b'"hex": "77', b'"hex": "6b', 1), "contradicts its bytes"),
        (lambda line: re.sub(b'"sub": "w", "hex": ".*"', KEEPALIVE, line), "with a wrong length"),
    ],
)
def test_damage_in_a_line_is_reported_with_its_number(damage, what: str, tmp_path: Path) -> None:
    raw = gzip.decompress(golden("capture_identity_par_b_batch0").read_bytes())
    all_lines = raw.splitlines(keepends=True)
    whole = decode(golden("capture_identity_par_b_batch0"))
    at = next(
        n for n in range(len(all_lines) // 2, len(all_lines)) if b'"sub": "w"' in all_lines[n]
    )
    all_lines[at] = damage(all_lines[at])

    found, error = damaged(cut(tmp_path, b"".join(all_lines)))

    assert 0 < len(found) < len(whole)
    assert found == whole[: len(found)]
    assert error.where["line"] == at + 1
    assert what in str(error) or what == "ends"


def test_a_damaged_row_is_reported_with_its_line_and_not_with_its_commit(tmp_path: Path) -> None:
    header = {"kind": "header", "plugin": "test_decoding", "mode": "serial", "options": []}
    rows = ("table public.t: INSERT: id[integer]:1", "table public.t: INSERT: id[integer")
    whole = ("BEGIN 1", rows[0], "COMMIT 1")

    file = written(tmp_path, header, serial(*whole, "BEGIN 2", *rows, rows[0], "COMMIT 2"))
    found, error = damaged(file)

    assert ([txn["xid"] for txn in found], error.where["line"]) == ([1], 7)


@pytest.mark.parametrize("style", ["b", "j", "t"])
def test_damage_within_a_batch_leaves_the_transactions_before_it(
    style: str, tmp_path: Path
) -> None:
    name = f"capture_names_par_{style}_batch1"
    whole = decode(golden(name))
    header, *messages = documents(f"{name}.jsonl.gz")
    body, *_ = [bytes.fromhex(line["hex"]) for line in messages if line.get("sub") == "w"]
    assert len(whole) > 10

    short = written(tmp_path, header, [body[: len(body) // 2]])
    found, error = damaged(short)

    assert 3 < len(found) < len(whole)
    assert found == whole[: len(found)]
    assert error.where["line"] == 2


@pytest.mark.parametrize(
    ("begin", "commit"),
    [
        ("BEGIN 15", "COMMIT 16 (at 2026-01-01 00:00:00+00) CSN 7"),
        ("BEGIN 15", "COMMIT 1 (at 2026-01-01 00:00:00+00) CSN 7"),
        ("BEGIN 15", "COMMIT"),
    ],
)
def test_a_commit_of_another_transaction_is_damage(begin: str, commit: str, tmp_path: Path) -> None:
    header = {"kind": "header", "plugin": "test_decoding", "mode": "serial", "options": []}
    row = "table public.t: INSERT: id[integer]:1"

    found, error = damaged(written(tmp_path, header, serial(begin, row, commit)))

    assert (found, error.where["line"]) == ([], 4)


@pytest.mark.parametrize("cut_short", ["COMMIT 2 (at 2026-01-01 00:00:00+00)", "COMMIT 2"])
def test_a_commit_that_is_cut_short_is_damage(cut_short: str, tmp_path: Path) -> None:
    header = {"kind": "header", "plugin": "test_decoding", "mode": "serial", "options": []}
    row = "table public.t: INSERT: id[integer]:1"
    whole = ("BEGIN 1", row, "COMMIT 1 (at 2026-01-01 00:00:00+00) CSN 7")

    file = written(tmp_path, header, serial(*whole, "BEGIN 2", row, cut_short))
    found, error = damaged(file)

    assert ([txn["xid"] for txn in found], error.where["line"]) == ([1], 7)


def test_statements_come_with_the_style_in_which_times_were_printed(tmp_path: Path) -> None:
    header = {
        "kind": "header",
        "plugin": "test_decoding",
        "options": [],
        "settings": {"DateStyle": "SQL, DMY", "IntervalStyle": "x'; DROP", "TimeZone": "UTC"},
    }
    row = "table public.t: INSERT: d[timestamp without time zone]:'02/01/2026 00:00:00'"

    found = lines(written(tmp_path, header, serial("BEGIN 1", row, "COMMIT 1 CSN 7")), "--sql")

    assert found[:2] == [
        "SET client_encoding = 'UTF8';",
        "SET standard_conforming_strings = on;",  # a backslash in a value is only that
    ]
    assert found[2:4] == ["SET DateStyle = 'SQL, DMY';", "BEGIN;"]


def serial(*texts: str) -> list[bytes]:
    return [b"w" + n.to_bytes(8, "big") * 3 + t.encode() for n, t in enumerate(texts, 1)]


def test_a_reader_that_came_back_reads_the_same_transactions_once(tmp_path: Path) -> None:
    header, *lines_ = documents("capture_txns_ser_mppdb.jsonl.gz")
    whole = decode(golden("capture_txns_ser_mppdb"))
    half = len(lines_) // 2
    error = {"type": "E", "hex": b"SFATAL\0C57P01\0Mgone\0\0".hex()}
    again = [header, *lines_[:half], error, {"type": "EOF", "hex": ""}, *lines_]
    numbered = [again[0], *({**line, "n": n} for n, line in enumerate(again[1:], 1))]
    raw = "".join(json.dumps(line) + "\n" for line in numbered).encode()

    file = cut(tmp_path, raw)
    result = CliRunner().invoke(cli, ["decode", str(file)], standalone_mode=False)

    assert result.exception is None
    assert [json.loads(line) for line in result.stdout.splitlines()] == whole
    assert f"line {half + 2}: the server ended the stream: FATAL 57P01 gone" in result.stderr


@pytest.mark.parametrize("plugin", ["wal2json", "mppdb_decodinh"])
def test_an_unsupported_plugin_is_reported_with_its_line(plugin: str, tmp_path: Path) -> None:
    header = {"kind": "header", "plugin": plugin, "mode": "serial", "options": []}

    found, error = damaged(written(tmp_path, header, serial("BEGIN 1")))

    assert (found, error.where["line"]) == ([], 1)
    assert plugin in str(error)


def test_a_file_that_ends_within_a_transaction_is_damaged(tmp_path: Path) -> None:
    raw = gzip.decompress(golden("capture_gbk_ser_test").read_bytes())
    all_lines = raw.splitlines(keepends=True)
    last = max(n for n, line in enumerate(all_lines) if b'"sub": "w"' in line)

    found, error = damaged(cut(tmp_path, b"".join(all_lines[:last])))

    assert len(found) == 1
    assert "within a transaction" in error.what


@pytest.mark.parametrize(
    "raw", [b"", b"\n", b"{}\n", b"\x1f\x8bnonsense", b'{"kind": "header"}\n{}']
)
def test_what_is_no_recording_is_refused(raw: bytes, tmp_path: Path) -> None:
    damaged(cut(tmp_path, raw))


def test_names_of_a_database_without_encoding_keep_their_bytes(tmp_path: Path) -> None:
    name = "中".encode("gbk")
    texts = [b"BEGIN 1", b'table public.t: INSERT: "' + name + b"\"[text]:'\xd6\xd0'",
             b"COMMIT 1 CSN 2"]  # fmt: skip
    header = {
        "kind": "header",
        "plugin": "test_decoding",
        "mode": "serial",
        "options": [],
        "database_encoding": "SQL_ASCII",
    }
    frames = [b"w" + (9).to_bytes(8, "big") * 3 + text for text in texts]

    (txn,) = decode(written(tmp_path, header, frames))

    ((column, value),) = txn["changes"][0]["after"].items()
    assert column.encode("utf-8", "surrogateescape") == name
    assert value == {"bytes_hex": "d6d0"}
