"""`decode --sql`: what it prints, executed by a PostgreSQL, leads to the recorded final state."""

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from psycopg2.extensions import new_type, register_type

from gauss_cdc.cli import cli
from schemas.quoting import identifier
from tests.integration.private_postgres import PrivateServer, private_server
from tests.producer.sources.gauss.decoders.ledgers import CAPTURES, GOLDEN, capture, document

WORKLOADS = {"names", "identity", "bulk", "toast", "gbk"}
MODES = [
    name
    for name in CAPTURES
    if name.split("_")[1] in WORKLOADS and "skip" not in name and "batch0" not in name
]
# Without the tables nobody knows where a schema's name ends in decode-style t.
CASES = [
    pytest.param(name, with_tables, id=f"{name}-{'tables' if with_tables else 'alone'}")
    for name in MODES
    for with_tables in (True, False)
    if with_tables or "names_par_t" not in name
]
TYPES = {"clob": "text", "nvarchar2": "varchar"}
# Their changes do not say which row, and are printed as comments.
UNIDENTIFIED = {"audit_log", "ident_nothing"}


@pytest.fixture(scope="module")
def server() -> Iterator[PrivateServer]:
    with private_server() as running:
        yield running


def created(tables: list[dict[str, Any]]) -> Iterator[str]:
    for schema in sorted({table["schema"] for table in tables}):
        yield f"DROP SCHEMA IF EXISTS {identifier(schema)} CASCADE"
        yield f"CREATE SCHEMA {identifier(schema)}"
    for table in tables:
        parts = [
            f"{identifier(c['name'])} {TYPES.get(c['type_with_typmod'], c['type_with_typmod'])}"
            for c in table["columns"]
        ]
        # sql_decoding's UPDATE of an unidentified row is an INSERT with nothing deleted.
        if table["primary_key"] and table["table"] not in UNIDENTIFIED:
            parts.append(f"PRIMARY KEY ({', '.join(map(identifier, table['primary_key']))})")
        name = f"{identifier(table['schema'])}.{identifier(table['table'])}"
        yield f"CREATE TABLE {name} ({', '.join(parts)})"


def shown(value: str | None, kind: str) -> object:
    if value is None:
        return None
    if kind == "numeric":  # openGauss prints numbers below 1 without their zero
        return Decimal(value)
    # char(n) is padded to n bytes with A compatibility, to n characters by PostgreSQL.
    return value.rstrip(" ") if kind == "character" else value


@pytest.mark.parametrize(("name", "with_tables"), CASES)
def test_statements_lead_to_the_final_state(
    server: PrivateServer, name: str, with_tables: bool
) -> None:
    read = capture(name)
    tables = document(f"tables_{read.workload}.json.gz")["tables"]
    server.execute(*created(tables))
    words = ["decode", str(GOLDEN / f"{name}.jsonl.gz"), "--sql"]
    if with_tables:
        words += ["--tables", str(GOLDEN / f"tables_{read.workload}.json.gz")]

    script = CliRunner().invoke(cli, words, standalone_mode=False).stdout
    server.execute(script)

    connection = server.admin()
    register_type(
        new_type((16, 17, 23, 20, 25, 1042, 1043, 1114, 1700), "AS_SENT", as_sent), connection
    )
    kinds = {
        (table["schema"], table["table"]): [column["type"] for column in table["columns"]]
        for table in tables
    }
    try:
        with connection.cursor() as cursor:
            for state in document(f"final_state_{read.workload}.json.gz")["tables"]:
                if state["table"] in UNIDENTIFIED:
                    continue
                where = state["schema"], state["table"]
                cursor.execute(f"SELECT * FROM {identifier(where[0])}.{identifier(where[1])}")
                got = [tuple(map(shown, row, kinds[where])) for row in cursor.fetchall()]
                want = [tuple(map(shown, row.values(), kinds[where])) for row in state["rows"]]
                assert sorted(got, key=repr) == sorted(want, key=repr), where
    finally:
        connection.close()


# Of two equal rows one goes; the tables file calls all columns the identity, which is no key.
EQUAL_ROWS = """
BEGIN 7
table s.t: INSERT: n[integer]:1 j[json]:'{"a": "it''s"}' p[point[]]:'{"(1,2)"}'
table s.t: INSERT: n[integer]:1 j[json]:'{"a": "it''s"}' p[point[]]:'{"(1,2)"}'
table s.t: INSERT: n[integer]:1 j[json]:'{"a": "it''s"}' p[point[]]:'{"(1,2)"}'
table s.t: DELETE: n[integer]:1 j[json]:'{"a": "it''s"}' p[point[]]:'{"(1,2)"}'
table s.t: UPDATE: old-key: n[integer]:1 j[json]:'{"a": "it''s"}' p[point[]]:'{"(1,2)"}'\
 new-tuple: n[integer]:2 j[json]:null p[point[]]:null
COMMIT 7 CSN 9
""".replace("\\\n", "").strip()


@pytest.mark.parametrize("with_tables", [True, False])
def test_one_of_equal_rows_is_changed(
    server: PrivateServer, with_tables: bool, tmp_path: Path
) -> None:
    header = {"kind": "header", "plugin": "test_decoding", "mode": "serial", "options": []}
    frames = [b"w" + bytes(24) + line.encode() for line in EQUAL_ROWS.splitlines()]
    lines = [header, *({"type": "d", "sub": "w", "hex": frame.hex()} for frame in frames)]
    (tmp_path / "stream.jsonl").write_text("\n".join(map(json.dumps, lines)))
    columns = [("n", "integer"), ("j", "json"), ("p", "point[]")]
    table = {
        "schema": "s",
        "table": "t",
        "primary_key": [],
        "identity_columns": ["n", "j", "p"],
        "columns": [{"name": name, "type": kind} for name, kind in columns],
    }
    (tmp_path / "tables.json").write_text(json.dumps({"tables": [table]}))
    words = ["decode", str(tmp_path / "stream.jsonl"), "--sql"]
    words += ["--tables", str(tmp_path / "tables.json")] if with_tables else []
    server.execute("CREATE SCHEMA s", "CREATE TABLE s.t (n integer, j json, p point[])")

    try:
        server.execute(CliRunner().invoke(cli, words, standalone_mode=False).stdout)

        connection = server.admin()
        with connection, connection.cursor() as cursor:
            cursor.execute("SELECT n, j::text FROM s.t ORDER BY n")
            assert cursor.fetchall() == [(1, '{"a": "it\'s"}'), (2, None)]
        connection.close()
    finally:
        server.execute("DROP SCHEMA s CASCADE")


def as_sent(value: str | None, _: object) -> str | None:
    return value
