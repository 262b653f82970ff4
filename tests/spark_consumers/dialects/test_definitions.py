"""Which definitions of the source a target may run without trusting its users."""

from dataclasses import replace

import pytest

from schemas.control import Origin, SchemaChange
from schemas.sql_text import NotRead
from schemas.tables import Column, TableId, TableSchema
from spark_consumers.dialects import EXTRAS
from spark_consumers.dialects.base import LeftOut
from spark_consumers.dialects.definitions import RunsCode, expression, statement

DEFAULTS = [
    "nextval('public.felt_id_seq'::regclass)",
    "now()",
    "'{}'::jsonb",
    "'x'::character varying(20)",
    "'new'::public.mood",
    "array[1, 2, 3]::integer[]",
    "(lower('A'::text) || '-1'::text)",
    "timezone('utc'::text, now())",
    "gen_random_uuid()",
    "(now() + '1 day'::interval)",
    "pg_catalog.lower('A'::text)",
]
CODE = [
    "public.f(1)",
    "f()",
    "pg_sleep(1000)",
    "pg_read_file('/etc/passwd')",
    "pg_catalog.pg_ls_dir('/')",
    "lo_import('/etc/passwd')",
    "query_to_xml('DROP TABLE t', true, true, '')",
    "set_config('a', 'b', false)",
    "dblink('', 'x')",
    "'a'::text::public.evil",
    "(1)::public.evil",
    "1 OPERATOR(public.+) 1",
    '"evil"(1)',
    "public . f (1)",
    "(x).f(1)",
    "pg_terminate_backend(1)",
]
BROKEN = [
    "1, x = 2",
    "1; DROP TABLE t",
    "1) ; DROP TABLE t; (1",
    "1 -- so",
    "1 /* so */",
    "$$a$$",
    "$a$x$a$",
    "'\\",
    "E'\\x41'",
    "U&'\\0041'",
    'U&"\\0041"(1)',
    "B'101'",
    "(SELECT 1)",
    "'a",
    "",
]


@pytest.mark.parametrize("text", DEFAULTS)
def test_a_default_of_the_servers_own_is_printed_again(text: str) -> None:
    assert expression(text) == text.replace("public.mood", '"public"."mood"')


@pytest.mark.parametrize("text", CODE)
def test_a_default_that_calls_others_is_code(text: str) -> None:
    with pytest.raises(RunsCode):
        expression(text)


@pytest.mark.parametrize("text", BROKEN)
def test_a_default_that_is_no_plain_expression_is_not_read(text: str) -> None:
    with pytest.raises(NotRead):
        expression(text)


OBJECTS = [
    ("index", "create index i on public.felt using btree(at desc) where (p > 3)"),
    ("index", 'create unique index i on only t using gist(lower(a) collate "C", b) include (c)'),
    ("view", "create or replace view public.v as select felt.m, felt.p from public.felt"),
    ("view", "create view v as select count(*) as n, sum(a) over (order by c) from f"),
    ("view", "create view v as select a from public.g where (a = any (array[1, 2]))"),
    ("view", "create view public.v(a, b) as select u.a, 1 as b from (values (1)) u(a)"),
    ("materialized view", "create materialized view public.m as select 1 as a with no data"),
    ("sequence", "create sequence if not exists s as bigint increment by 1 minvalue 1 cycle"),
    ("domain", "create domain public.p as integer constraint c check ((value > 0))"),
    ("domain", "create domain public.p as numeric(10, 2) not null"),
    ("type", "create type public.pair as (a integer, b character varying(20))"),
    ("view", "drop view if exists public.v"),
    ("function", "drop function if exists public.f(integer, character varying)"),
    ("trigger", "drop trigger if exists t on public.x"),
    ("view", "alter view public.v rename to w"),
    ("type", 'alter type public.v set schema "W x"'),
    ("table", "comment on table public.felt is 'hello; DROP TABLE felt'"),
    ("table column", "comment on column public.felt.a is null"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "text"), OBJECTS)
def test_what_only_computes_is_run(kind: str, text: str) -> None:
    assert statement(kind, text) == text
    assert statement(kind, text.upper().replace('"W X"', '"W x"') + " ;") != ""


REFUSED = [
    ("index", "CREATE INDEX i ON t USING btree (public.f(a))"),
    ("index", "CREATE INDEX i ON t USING evil (a)"),
    ("index", "CREATE INDEX i ON t USING btree (a public.evil_ops)"),
    ("view", "CREATE VIEW v (a) AS SELECT f(a) FROM t"),
    ("view", "CREATE VIEW v WITH (x = f(1)) AS SELECT 1"),
    ("index", "CREATE INDEX i ON t USING btree (a); DROP TABLE t"),
    ("index", "CREATE TABLE t (a int)"),
    ("view", "CREATE VIEW v AS SELECT pg_read_file('/etc/passwd')"),
    ("view", "CREATE VIEW v AS SELECT rolpassword FROM pg_authid"),
    ("view", "CREATE VIEW v AS SELECT * FROM pg_catalog.pg_shadow"),
    ("view", "CREATE VIEW v AS SELECT a INTO t FROM b"),
    ("view", "CREATE VIEW v AS SELECT * FROM dblink('x', 'y') d(a integer)"),
    ("view", "CREATE VIEW v AS SELECT nextval('s')"),
    ("view", "CREATE VIEW v AS SELECT 1 OPERATOR (public.+) 1"),
    ("view", "CREATE VIEW v AS SELECT (a.b)::public.evil FROM a"),
    ("view", "COPY t TO PROGRAM 'x'"),
    ("view", "ALTER VIEW v OWNER TO postgres"),
    ("view", "DROP TABLE t"),
    ("table", "DROP TABLE t"),
    ("table", "COMMENT ON TABLE t IS 'a' || f()"),
    ("schema", "CREATE SCHEMA s CREATE TABLE t (a int)"),
    ("schema", "DROP SCHEMA gauss_cdc CASCADE"),
    ("schema", 'ALTER SCHEMA "gauss_cdc" RENAME TO s'),
    ("schema", "CREATE SCHEMA pg_mine"),
    ("view", "CREATE OR REPLACE VIEW gauss_cdc.ledger AS SELECT 1"),
    ("view", "CREATE VIEW v AS SELECT * FROM gauss_cdc.ledger"),
    ("type", "ALTER TYPE pg_catalog.int4 RENAME TO int5"),
    ("domain", "CREATE DOMAIN d AS int CHECK (public.f(VALUE))"),
    ("type", "CREATE TYPE t (INPUT = f, OUTPUT = g)"),
    ("type", "CREATE TYPE t AS RANGE (SUBTYPE = int, CANONICAL = f)"),
    ("function", "CREATE FUNCTION f() RETURNS int LANGUAGE sql AS 'SELECT 1'"),
    ("procedure", "CREATE PROCEDURE f() LANGUAGE sql AS 'SELECT 1'"),
    ("trigger", "CREATE TRIGGER t BEFORE INSERT ON x FOR EACH ROW EXECUTE FUNCTION f()"),
    ("aggregate", "CREATE AGGREGATE a (int) (SFUNC = f, STYPE = int)"),
    ("event trigger", "CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION f()"),
    ("extension", "CREATE EXTENSION dblink"),
]


@pytest.mark.parametrize(("kind", "text"), REFUSED)
def test_what_may_run_code_is_not_run(kind: str, text: str) -> None:
    with pytest.raises((RunsCode, NotRead)):
        statement(kind, text)


def test_a_drop_takes_nothing_with_it_that_the_source_does_not_know() -> None:
    assert statement("schema", "DROP SCHEMA s CASCADE") == "drop schema s"
    assert statement("view", "DROP VIEW IF EXISTS v RESTRICT") == "drop view if exists v restrict"


def test_code_is_left_out_and_runs_only_where_it_is_trusted() -> None:
    table = TableId("public", "t")
    change = SchemaChange(1, 1, 0, 7, 7, 7, Origin.TRIGGER, "CREATE INDEX", None, None)
    index = replace(change, kind="index", canonical="CREATE INDEX i ON t USING btree (f(a))")
    after = TableSchema(table, (Column("a", 23, -1, "integer", default="f(1)"),))

    for one in (index, replace(change, after=after)):
        (left,) = EXTRAS["postgres"](one)
        (run,) = EXTRAS["postgres"](one, code=True)
        assert isinstance(left, LeftOut)
        assert "f()" in left.why
        assert run.startswith("DO $gc$BEGIN EXECUTE '")


@pytest.mark.parametrize("text", ["(integer ; drop table canary)", "1;", "ARRAY[1 ; 2]"])
def test_no_bracket_hides_a_second_statement_in_a_default(text: str) -> None:
    with pytest.raises(NotRead):
        expression(text)
