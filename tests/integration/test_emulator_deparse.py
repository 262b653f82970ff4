"""DDL done at the facade, as GaussDB's manual has it: what is deparsed, and in which words."""

import json
from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest

from producer.sources.decoders import Format
from producer.sources.gauss.ddl import jddl, tddl
from producer.sources.gauss.ddl.format import expand
from tests.e2e.gauss_facade import Front, Streamed, facade

START = """
CREATE TABLE item (id int PRIMARY KEY, name text);
CREATE TABLE tbl_28 (id int); CREATE TABLE test1 (col1 int); CREATE TABLE t4 (id int);
CREATE SCHEMA other;
CREATE TABLE parted (id int) PARTITION BY RANGE (id);
CREATE TABLE "P 1" PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE p2 PARTITION OF parted FOR VALUES FROM (10) TO (20);
"""
WITH = "WITH (orientation = 'row', compression = 'no') NOCOMPRESS"
# A transaction at the source -> what is told of it; a row by its table.
REPORTED: dict[str, list[str]] = {
    "CREATE TABLE a (id int PRIMARY KEY, v varchar(20) NOT NULL DEFAULT 'it''s', n numeric(9,2)[],"
    " t timestamp(3), g int GENERATED ALWAYS AS (1 + 1) STORED)": [
        (
            'CREATE  TABLE  public.a (id pg_catalog.int4 NOT NULL, v pg_catalog."varchar"(20)'
            " DEFAULT 'it''s'::character varying NOT NULL, n pg_catalog.\"numeric\"(9,2)[],"
            " t TIMESTAMP(3) without time zone,"
            " g pg_catalog.int4 GENERATED ALWAYS AS ((1 + 1)) STORED,"
            f" CONSTRAINT a_pkey PRIMARY KEY (id)) {WITH}"
        )
    ],
    "CREATE UNLOGGED TABLE u (id int)": [
        f"CREATE UNLOGGED TABLE  public.u (id pg_catalog.int4) {WITH}"
    ],
    "CREATE TABLE IF NOT EXISTS item (x int)": [],
    "DROP TABLE IF EXISTS nothing": [],
    "CREATE TABLE al (LIKE item)": [],
    "CREATE TABLE ai (id int GENERATED ALWAYS AS IDENTITY)": [],
    "CREATE TEMP TABLE tmp (id int)": [],
    # The manual: only CREATE TABLE, and the rows behind it are not decoded.
    "CREATE TABLE b AS SELECT 1 AS x": [f"CREATE  TABLE  public.b (x pg_catalog.int4) {WITH}"],
    "INSERT INTO t4 VALUES (1); SELECT 1 AS x INTO c": [
        "t4",
        f"CREATE  TABLE  public.c (x pg_catalog.int4) {WITH}",
    ],
    "ALTER TABLE tbl_28 ADD COLUMN b1 TIMESTAMP DEFAULT NOW()": [],
    "ALTER TABLE tbl_28 ADD COLUMN b2 float DEFAULT RANDOM(), ADD b4 int": [],
    "ALTER TABLE tbl_28 ADD COLUMN b3 INT DEFAULT ABS(1)": [
        "ALTER TABLE   public.tbl_28 ADD COLUMN  b3 pg_catalog.int4 DEFAULT abs(1) "
    ],
    "ALTER TABLE IF EXISTS tbl_28 * ADD COLUMN IF NOT EXISTS b3 char(5)": [
        (
            "ALTER TABLE IF EXISTS  public.tbl_28 ADD COLUMN IF NOT EXISTS b3 pg_catalog.int4"
            " DEFAULT abs(1) "
        )
    ],
    "ALTER TABLE tbl_28 ALTER b3 TYPE text USING (b3 || ','), DROP b1 CASCADE": [
        (
            "ALTER TABLE   public.tbl_28 ALTER COLUMN b3 SET DATA TYPE pg_catalog.text USING"
            " (b3 || ','), DROP COLUMN  b1 CASCADE"
        )
    ],
    "ALTER TABLE tbl_28 ADD CONSTRAINT k CHECK (id > 0)": [
        "ALTER TABLE   public.tbl_28 ADD CONSTRAINT k CHECK ((id > 0))"
    ],
    'ALTER TABLE tbl_28 RENAME CONSTRAINT k TO "K"': [
        'ALTER TABLE public.tbl_28 RENAME CONSTRAINT k TO "K"'
    ],
    'ALTER TABLE tbl_28 RENAME b3 TO "100 %"': [
        'ALTER TABLE public.tbl_28 RENAME COLUMN b3 TO "100 %"'
    ],
    "ALTER TABLE tbl_28 SET SCHEMA other": ["ALTER TABLE public.tbl_28 SET SCHEMA other"],
    "ALTER TABLE other.tbl_28 RENAME TO d": ["ALTER TABLE  other.tbl_28 RENAME TO d"],
    "CREATE UNIQUE INDEX i ON item (lower(name) DESC)": [
        "CREATE UNIQUE INDEX  i ON public.item USING btree (lower(name) DESC)"
    ],
    "ALTER INDEX i RENAME TO j; DROP INDEX j": [
        "ALTER INDEX public.i RENAME TO j",
        "DROP index   public.j ",
    ],
    "CREATE SEQUENCE s START 5; ALTER SEQUENCE s MAXVALUE 9; DROP SEQUENCE s": [
        "CREATE  SEQUENCE public.s START 5",
        "ALTER SEQUENCE public.s MAXVALUE 9",
        "DROP sequence   public.s ",
    ],
    "DROP TABLE b": ["DROP table   public.b "],
    # A table to PostgreSQL; GaussDB's partitions are parts of theirs.
    'DROP TABLE "P 1", p2': ['ALTER TABLE   public.parted DROP PARTITION "P 1", DROP PARTITION p2'],
    "DROP TABLE parted": ["DROP table   public.parted "],
    # The manual's mixed transactions, in its order.
    "GRANT SELECT ON test1 TO public; INSERT INTO test1 VALUES (1)": [],
    "CREATE TABLE mix_tran_t4(id int); INSERT INTO mix_tran_t4 VALUES(111);"
    "CREATE TABLE mix_tran_t5(id int)": [
        f"CREATE  TABLE  public.mix_tran_t4 (id pg_catalog.int4) {WITH}",
        f"CREATE  TABLE  public.mix_tran_t5 (id pg_catalog.int4) {WITH}",
    ],
    "INSERT INTO t4 VALUES(111); CREATE TABLE mix_tran_t6(id int); INSERT INTO t4 VALUES(111)": [
        "t4",
        f"CREATE  TABLE  public.mix_tran_t6 (id pg_catalog.int4) {WITH}",
    ],
    "INSERT INTO t4 VALUES(111); CREATE TABLE m7(id int); CREATE TABLE m8(id int)": [
        "t4",
        f"CREATE  TABLE  public.m7 (id pg_catalog.int4) {WITH}",
        f"CREATE  TABLE  public.m8 (id pg_catalog.int4) {WITH}",
    ],
    "CREATE TABLE m9(id int); CREATE TYPE compfoo AS (f1 int, f2 text); CREATE TABLE m10(id int)": [
        f"CREATE  TABLE  public.m9 (id pg_catalog.int4) {WITH}",
        f"CREATE  TABLE  public.m10 (id pg_catalog.int4) {WITH}",
    ],
    "INSERT INTO t4 VALUES(1); INSERT INTO t4 VALUES(1); INSERT INTO t4 VALUES(1)": ["t4"] * 3,
    "INSERT INTO t4 VALUES(1); CREATE TYPE foo AS (f1 int); INSERT INTO t4 VALUES(1)": ["t4"],
    "INSERT INTO t4 VALUES(1); CREATE TYPE foo2 AS (f1 int); CREATE TABLE m11(id int)": [
        "t4",
        f"CREATE  TABLE  public.m11 (id pg_catalog.int4) {WITH}",
    ],
    "DO $$ BEGIN CREATE TABLE m12 (id int); INSERT INTO t4 VALUES (1); END $$": [
        f"CREATE  TABLE  public.m12 (id pg_catalog.int4) {WITH}"
    ],
}
LAST = "INSERT INTO item VALUES (999, 'end')"


@pytest.fixture
def front(postgres_url: str) -> Iterator[Front]:
    with facade(postgres_url, profile="gaussdb") as found:
        do(postgres_url, START)
        yield found


def do(url: str, *transactions: str) -> None:
    with closing(psycopg2.connect(url)) as connection:
        for text in transactions:
            with connection, connection.cursor() as cursor:
                cursor.execute(text)


def read(front: Front, slot: str, **options: str) -> list[list[str]]:
    """By transaction: statements as they are told, and tables of rows."""
    asked = {name.replace("_", "-"): value for name, value in options.items()}
    form = Format("mppdb_decoding", asked.get("decode-style", ""))
    with front.open(replication=True) as session:
        stream = Streamed(session, slot, form, {"enable-ddl-decoding": "true", **asked})
        stream.until(lambda found: any(t.rows()[0][1] == "item" for t in found.finished))
    return [[str(row[1]) for row in reported.rows()] for reported in stream.finished[:-1]]


def test_what_the_manual_says_is_deparsed(front: Front, postgres_url: str) -> None:
    for slot in ("sql", "json", "parallel"):
        front.make_slot(slot)
    do(postgres_url, *REPORTED, LAST)

    as_sql = read(front, "sql")
    as_json = read(front, "json", enable_ddl_json_format="true")
    in_parallel = read(front, "parallel", parallel_decode_num="3", decode_style="t")

    assert as_sql == in_parallel == [reported for reported in REPORTED.values() if reported]
    assert [[_sql(text) for text in reported] for reported in as_json] == as_sql
    for texts, documents in zip(as_sql, as_json, strict=True):
        for text, document in zip(texts, documents, strict=True):
            if document.startswith("{"):
                said = jddl.statement(json.loads(document))
                assert said == tddl.statement(text)
                assert said.unread == ()


def _sql(text: str) -> str:
    return expand(json.loads(text)) if text.startswith("{") else text
