import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.errors import DdlMalformed
from producer.sources.gauss.ddl import jddl, tddl
from producer.sources.gauss.ddl.format import expand
from producer.sources.gauss.ddl.model import (
    AddColumn,
    AddConstraint,
    AlterType,
    Aside,
    ChangeColumn,
    DropColumn,
    DropConstraint,
    Name,
    OnPartition,
    Partition,
    Rename,
    RenameColumn,
    SetDefault,
    SetIdentity,
    SetNotNull,
    Statement,
    Unread,
)
from producer.sources.gauss.decoders.messages import Ddl
from tests.producer.core.ddl_examples import (
    GAUSSDB,
    JDDL,
    NOT_CASCADE,
    OPENGAUSS,
    SQL,
    TDDL,
    og_add_column,
    og_alter,
    og_column,
    og_table,
    og_type,
)

DOCUMENTS = {**OPENGAUSS, "gaussdb: create table": GAUSSDB["create table"]}


@pytest.mark.parametrize(("document", "sql"), DOCUMENTS.values(), ids=DOCUMENTS)
def test_a_document_says_what_its_text_says(document: Any, sql: str) -> None:
    reported = jddl.statement(document)

    assert reported == tddl.statement(sql)
    assert reported.tag
    assert reported.names
    assert reported.unread == ()


@pytest.mark.parametrize("sql", SQL.values(), ids=SQL)
def test_the_manuals_text_is_read_whole(sql: str) -> None:
    reported = tddl.statement(sql)

    assert reported.tag
    assert reported.names
    assert reported.unread == ()
    assert all(column.rest == "" for column in reported.columns)
    assert not any(isinstance(action, Unread) for action in reported.actions)


# Manual, "DDL in logical decoding", table 1: each kind of statement, as deparsing prints it.
TABLE_1 = {
    "CREATE TABLE public.t (a pg_catalog.int4)": ("CREATE TABLE", "table"),
    "CREATE TABLE public.t (a pg_catalog.int4) PARTITION BY HASH (a) (PARTITION p)": (
        "CREATE TABLE",
        "table",
    ),
    "ALTER TABLE public.t ADD COLUMN b pg_catalog.text": ("ALTER TABLE", "table"),
    "DROP TABLE public.t": ("DROP TABLE", "table"),
    "CREATE UNIQUE INDEX i ON public.t USING ubtree (a)": ("CREATE INDEX", "index"),
    "ALTER INDEX public.i RENAME TO j": ("ALTER INDEX", "index"),
    "DROP INDEX public.i": ("DROP INDEX", "index"),
    "REINDEX INDEX public.i": ("REINDEX", "index"),
    "REINDEX TABLE public.i": ("REINDEX", "table"),
    "CREATE FUNCTION public.f (IN a pg_catalog.int4) RETURNS pg_catalog.int4 AS '';": (
        "CREATE FUNCTION",
        "function",
    ),
    "ALTER FUNCTION public.f(pg_catalog.int4) OWNER TO o": ("ALTER FUNCTION", "function"),
    "DROP FUNCTION public.f(pg_catalog.int4, pg_catalog.text)": ("DROP FUNCTION", "function"),
    "CREATE OR REPLACE PROCEDURE public.p () AS BEGIN NULL; END": (
        "CREATE PROCEDURE",
        "procedure",
    ),
    "ALTER PROCEDURE public.p() COST 5": ("ALTER PROCEDURE", "procedure"),
    "DROP PROCEDURE public.p": ("DROP PROCEDURE", "procedure"),
    "CREATE TRIGGER g BEFORE INSERT ON public.t FOR EACH ROW EXECUTE PROCEDURE f()": (
        "CREATE TRIGGER",
        "trigger",
    ),
    "ALTER TRIGGER g ON public.t RENAME TO h": ("ALTER TRIGGER", "trigger"),
    "DROP TRIGGER g ON public.t": ("DROP TRIGGER", "trigger"),
    "CREATE DEFINER =u TRIGGER IF NOT EXISTS g AFTER UPDATE OF a, b ON public.t FOR EACH ROW": (
        "CREATE TRIGGER",
        "trigger",
    ),
    "CREATE LARGE SEQUENCE public.s START 5": ("CREATE SEQUENCE", "sequence"),
    "ALTER LARGE SEQUENCE public.s MAXVALUE 9": ("ALTER SEQUENCE", "sequence"),
    "DROP LARGE SEQUENCE public.s": ("DROP SEQUENCE", "sequence"),
    'CREATE OR REPLACE DEFINER = "u" SQL SECURITY INVOKER VIEW public.v AS SELECT 1': (
        "CREATE VIEW",
        "view",
    ),
    "ALTER SEQUENCE public.s MAXVALUE 9": ("ALTER SEQUENCE", "sequence"),
    "DROP SEQUENCE public.s": ("DROP SEQUENCE", "sequence"),
    "CREATE OR REPLACE VIEW public.v AS SELECT 1": ("CREATE VIEW", "view"),
    "ALTER VIEW public.v RENAME TO w": ("ALTER VIEW", "view"),
    "DROP VIEW public.v CASCADE": ("DROP VIEW", "view"),
    "CREATE MATERIALIZED VIEW public.m AS SELECT 1": (
        "CREATE MATERIALIZED VIEW",
        "materialized view",
    ),
    "CREATE INCREMENTAL MATERIALIZED VIEW public.m AS SELECT 1": (
        "CREATE MATERIALIZED VIEW",
        "materialized view",
    ),
    "ALTER MATERIALIZED VIEW public.m RENAME TO n": (
        "ALTER MATERIALIZED VIEW",
        "materialized view",
    ),
    "DROP MATERIALIZED VIEW public.m": ("DROP MATERIALIZED VIEW", "materialized view"),
    "CREATE PACKAGE public.k IS a int; END k": ("CREATE PACKAGE", "package"),
    "CREATE OR REPLACE PACKAGE BODY public.k IS a int; END k": (
        "CREATE PACKAGE BODY",
        "package body",
    ),
    "ALTER PACKAGE public.k OWNER TO o": ("ALTER PACKAGE", "package"),
    "DROP PACKAGE public.k": ("DROP PACKAGE", "package"),
    "CREATE SCHEMA IF NOT EXISTS s AUTHORIZATION o": ("CREATE SCHEMA", "schema"),
    "ALTER SCHEMA s RENAME TO r": ("ALTER SCHEMA", "schema"),
    "DROP SCHEMA s CASCADE": ("DROP SCHEMA", "schema"),
}


@pytest.mark.parametrize(("sql", "said"), TABLE_1.items(), ids=TABLE_1)
def test_every_kind_of_statement_is_known(sql: str, said: tuple[str, str]) -> None:
    reported = tddl.statement(sql)

    assert (reported.tag, reported.kind) == said
    assert reported.names
    assert reported.unread == ()


@pytest.mark.parametrize(
    "sql",
    [
        "CREATE TRIGGER g BEFORE INSERT OR UPDATE OF a, b ON public.t FOR EACH ROW",
        "ALTER TRIGGER g ON public.t RENAME TO h",
        "DROP TRIGGER IF EXISTS g ON public.t CASCADE",
        "COMMENT ON TRIGGER g ON public.t IS NULL",
        "COMMENT ON CONSTRAINT g ON public.t IS 'x'",
    ],
)
def test_what_belongs_to_a_table_has_its_schema(sql: str) -> None:
    assert tddl.statement(sql).names == (Name("public", "g"),)


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("CREATE SCHEMA AUTHORIZATION u", "u"),
        ('CREATE SCHEMA  "" AUTHORIZATION u ', "u"),
        ('CREATE SCHEMA "authorization"', "authorization"),
    ],
)
def test_a_schema_may_be_named_after_its_owner(sql: str, name: str) -> None:
    assert tddl.statement(sql).names == (Name(None, name),)


@pytest.mark.parametrize("kind", ["FUNCTION", "PROCEDURE"])
def test_a_function_is_renamed_behind_its_arguments(kind: str) -> None:
    reported = tddl.statement(
        f"ALTER {kind} public.f(pg_catalog.int4, pg_catalog.text) RENAME TO g"
    )

    assert reported.actions == (Rename(Name("public", "f"), Name("public", "g")),)


def test_the_key_of_b_compatibility_has_a_name() -> None:
    [found] = tddl.statement(
        "CREATE TABLE public.t (a int, UNIQUE KEY u USING btree (a))"
    ).constraints

    assert (found.name, found.columns) == ("u", ("a",))


T = Name("public", "t")

ACTIONS = {
    "DROP COLUMN IF EXISTS e CASCADE": DropColumn("e", if_exists=True),
    "ALTER COLUMN a SET DEFAULT 'x'::text": SetDefault("a", "'x'::text"),
    "ALTER COLUMN a DROP DEFAULT": SetDefault("a", None),
    "ALTER COLUMN a SET NOT NULL": SetNotNull("a", not_null=True),
    "ALTER COLUMN a DROP NOT NULL": SetNotNull("a", not_null=False),
    "MODIFY a NOT NULL": SetNotNull("a", not_null=True),
    "ALTER COLUMN a SET STATISTICS 5": Aside("ALTER COLUMN a SET STATISTICS 5"),
    'RENAME COLUMN "A b" TO c': RenameColumn("A b", "c"),
    "RENAME TO u": Rename(T, Name("public", "u")),
    "RENAME CONSTRAINT a TO b": Aside("RENAME CONSTRAINT a TO b"),
    "SET SCHEMA s": Rename(T, Name("s", "t")),
    "SET TABLESPACE x": Aside("SET TABLESPACE x"),
    "SET (fillfactor = 5)": Aside("SET (fillfactor = 5)"),
    "OWNER TO o": Aside("OWNER TO o"),
    "ENABLE TRIGGER ALL": Aside("ENABLE TRIGGER ALL"),
    "DROP CONSTRAINT IF EXISTS c RESTRICT": DropConstraint("c"),
    "DROP PRIMARY KEY": DropConstraint(None),
    "REPLICA IDENTITY FULL": SetIdentity("f"),
    "REPLICA IDENTITY USING INDEX i": SetIdentity("i", "i"),
    "ADD PARTITION p3 VALUES LESS THAN (100)": OnPartition(
        "add", ("p3",), "ADD PARTITION p3 VALUES LESS THAN (100)"
    ),
    "TRUNCATE PARTITION p1 UPDATE GLOBAL INDEX": OnPartition(
        "truncate", ("p1",), "TRUNCATE PARTITION p1 UPDATE GLOBAL INDEX"
    ),
    "DROP PARTITION FOR (5)": OnPartition("drop", (), "DROP PARTITION FOR (5)"),
    "EXCHANGE PARTITION (p1) WITH TABLE public.u": OnPartition(
        "exchange", ("p1",), "EXCHANGE PARTITION (p1) WITH TABLE public.u"
    ),
    "MERGE PARTITIONS p1, p2 INTO PARTITION p8": OnPartition(
        "merge", ("p1", "p2"), "MERGE PARTITIONS p1, p2 INTO PARTITION p8"
    ),
    "RENAME PARTITION p1 TO p2": OnPartition("rename", ("p1",), "RENAME PARTITION p1 TO p2"),
    "ADD STATISTICS ((a, b))": Aside("ADD STATISTICS ((a, b))"),
    "NOT OF": Aside("NOT OF"),
    "FROBNICATE a": Unread("FROBNICATE a"),
}


@pytest.mark.parametrize(("text", "action"), ACTIONS.items(), ids=ACTIONS)
def test_an_action_is_read(text: str, action: Any) -> None:
    assert tddl.statement(f"ALTER TABLE  public.t {text}").actions == (action,)


def test_actions_stand_side_by_side() -> None:
    reported = tddl.statement(
        'ALTER TABLE IF EXISTS ONLY public.t ADD COLUMN b pg_catalog."numeric"(10,2) DEFAULT 0.5'
        " NOT NULL AFTER a, DROP COLUMN c, ALTER COLUMN d TYPE pg_catalog.int8 USING (d)::bigint,"
        " CHANGE e f pg_catalog.text, TRUNCATE PARTITION p1, p2"
    )

    add, drop, retype, change, *partitions = reported.actions
    assert isinstance(add, AddColumn)
    assert (add.column.default, add.column.not_null, add.column.place) == ("0.5", True, "a")
    assert drop == DropColumn("c")
    assert isinstance(retype, AlterType)
    assert retype.using == "(d)::bigint"
    assert isinstance(change, ChangeColumn)
    assert (change.name, change.column.name) == ("e", "f")
    assert [p.names for p in partitions if isinstance(p, OnPartition)] == [("p1",), ("p2",)]


# openGauss' public sources, deparsing of ALTER TABLE: the types of subcommands, and their keys.
SUBCOMMANDS: dict[str, tuple[dict[str, Any], Any]] = {
    "set default": (
        {"fmt": "ALTER COLUMN %{column}I SET DEFAULT %{definition}s", "definition": "now()"},
        SetDefault("a B", "now()"),
    ),
    "drop default": ({"fmt": "ALTER COLUMN %{column}I DROP DEFAULT"}, SetDefault("a B", None)),
    "drop primary key": ({"fmt": "DROP PRIMARY KEY"}, DropConstraint(None)),
    "truncate partition": (
        {"fmt": "TRUNCATE PARTITION %{partition}s", "partition": "P 1"},
        OnPartition("truncate", ("P 1",), "TRUNCATE PARTITION P 1"),
    ),
    "truncate subpartition": (
        {"fmt": "TRUNCATE SUBPARTITION FOR (%{v:, }s) %{gpi}s", "v": ["5"], "gpi": ""},
        OnPartition("truncate", (), "TRUNCATE SUBPARTITION FOR (5) "),
    ),
    "merge partition": (
        {
            "fmt": "MERGE PARTITIONS %{name_list:, }s INTO PARTITION %{partition}s",
            "name_list": ["A", "b, c"],
            "partition": "D",
        },
        OnPartition("merge", ("A", "b, c"), "MERGE PARTITIONS A, b, c INTO PARTITION D"),
    ),
    "exchange partition": (
        {
            "fmt": "EXCHANGE %{issub}s (%{partition}I) WITH TABLE %{other}D WITHOUT VALIDATION",
            "issub": "PARTITION",
            "partition": "P1",
            "other": {"schemaname": "public", "objname": "u"},
        },
        OnPartition(
            "exchange",
            ("P1",),
            'EXCHANGE PARTITION ("P1") WITH TABLE public.u WITHOUT VALIDATION',
        ),
    ),
}


@pytest.mark.parametrize(("kind", "said"), SUBCOMMANDS.items(), ids=SUBCOMMANDS)
def test_a_subcommand_is_read_by_its_keys(kind: str, said: tuple[dict[str, Any], Any]) -> None:
    command, action = said

    reported = jddl.statement(og_alter({"type": kind, "column": "a B"} | command))

    assert reported.actions == (action,)


@pytest.mark.parametrize("kind", [None, 5, [], {}, ["add column"]])
def test_a_type_of_another_type_is_no_type(kind: Any) -> None:
    command = {"fmt": "DROP COLUMN %{column}I", "type": kind, "column": "a"}

    assert jddl.statement(og_alter(command)).actions == (DropColumn("a"),)


def test_a_default_sent_as_a_literal_is_sql() -> None:
    default = {"fmt": "DEFAULT %{default}L", "default": "it's"}
    flat = {
        "fmt": "%{name}I %{coltype}T DEFAULT %{default}L",
        "name": "b",
        "coltype": og_type("text"),
        "default": "x",
    }

    reported = jddl.statement(
        og_table("t", [og_column("a", og_type("text"), default=default), flat])
    )

    assert [column.default for column in reported.columns] == ["$$it's$$", "'x'"]


def test_partitions_are_kept() -> None:
    divided = tddl.statement(SQL["range partitions"]).partitioning

    assert divided is not None
    assert (divided.by, divided.key) == ("RANGE", "c2")
    assert len(divided.partitions) == 11
    assert divided.partitions[6] == Partition("p2", "VALUES LESS THAN ('2000')")


def test_constraints_are_kept() -> None:
    reported = jddl.statement(OPENGAUSS["create table"][0])

    assert [(c.kind, c.name, c.columns) for c in reported.constraints] == [
        ("unique", "dd1_b_key", ("b",)),
        ("primary key", "dd1_pkey", ("id",)),
        ("check", "dd1_id_check", None),
    ]
    assert reported.options == {"orientation": "row", "compression": "no"}


def test_a_default_that_is_not_sql_affects_only_itself() -> None:
    """OpenGauss prints the default of ADD COLUMN without escaping it."""
    column = og_column(
        "e", og_type("text"), default={"fmt": "DEFAULT %{default}s", "default": "'it's'"}
    )

    [add] = jddl.statement(og_alter(og_add_column(column))).actions

    assert isinstance(add, AddColumn)
    assert (add.column.name, add.column.type.name) == ("e", "text")
    assert add.column.default == "'it's'"


def test_a_default_that_is_not_sql_affects_no_other_column() -> None:
    broken = og_column(
        "a",
        og_type("text"),
        default={"fmt": "DEFAULT %{default}s", "default": "'it's'"},
        not_null="NOT NULL",
    )

    reported = jddl.statement(og_table("t", [broken, og_column("b", og_type("int8"))]))

    assert [(c.name, c.type.name, c.not_null) for c in reported.columns] == [
        ("a", "text", True),
        ("b", "int8", False),
    ]


def test_the_start_of_a_drop_is_not_a_statement() -> None:
    assert jddl.read(Ddl("deparse", "Drop table command start", None, "Drop Table", 5)) is None


def test_opengauss_own_sql_is_kept_as_it_was_sent() -> None:
    document, sql = OPENGAUSS["rename table"]

    reported = jddl.read(Ddl("deparse", json.dumps(document), sql + " ", "Simple", 5, "none"))

    assert reported is not None
    assert reported.sql == sql + " "
    assert [type(action).__name__ for action in reported.actions] == ["Rename"]


def test_each_form_is_read() -> None:
    assert jddl.read(Ddl("JDDL", JDDL)) == jddl.read(Ddl("TDDL", TDDL))


def test_a_document_that_is_none_is_refused() -> None:
    with pytest.raises(DdlMalformed):
        jddl.read(Ddl("JDDL", '{"fmt": "%{a}s"}'))


def test_what_is_unknown_is_reported_as_such() -> None:
    reported = jddl.statement({"fmt": "VACUUM %{t}D", "t": {"objname": "t"}})

    assert (reported.tag, reported.unread) == ("", ("VACUUM t",))


# ---- documents that nobody wrote by hand

NAMES = st.text(
    st.sampled_from(["a", "B", "_", "1", " ", '"', "é", "表", ".", ",", "(", "'", ";"]),
    min_size=1,
    max_size=6,
)
TYPES = st.sampled_from(
    [
        ("int4", "", "pg_catalog"),
        ("varchar", "(20)", "pg_catalog"),
        ("numeric", "(10,2)", "pg_catalog"),
        ("TIMESTAMP", "(3) without time zone", ""),
        ("TIMESTAMP WITH TIME ZONE", "", ""),
        ("INTERVAL", " DAY TO SECOND(3)", ""),
        ("Mood", "", "my schema"),
    ]
)
DEFAULTS = st.sampled_from([None, "5", "'x, y'::text", "('a'::text || ')'::text)", "abs((-1))"])


@st.composite
def columns(draw: st.DrawFn, *, gaussdb: bool) -> dict[str, Any]:
    name, (type_name, typmod, schema) = draw(NAMES), draw(TYPES)
    said = {"typmod": typmod, "typarray": draw(st.booleans())}
    said |= (
        {"type_name": type_name, "schema_name": schema}
        if gaussdb
        else {"typename": type_name, "schemaname": schema}
    )
    key = "column_type" if gaussdb else "coltype"
    default, not_null = draw(DEFAULTS), draw(st.booleans())
    return {
        "fmt": f"%{{name}}I %{{{key}}}T %{{default}}s %{{not_null}}s",
        "name": name,
        key: said,
        "default": {
            "fmt": "DEFAULT %{default}s",
            **({"default": default} if default else {"present": False}),
        },
        "not_null": "NOT NULL" if not_null else "",
    }


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    gaussdb = draw(st.booleans())
    schema, table = draw(NAMES), draw(NAMES)
    identity = (
        {"schema_name": schema, "object_name": table}
        if gaussdb
        else {"schemaname": schema, "objname": table}
    )
    made = draw(st.lists(columns(gaussdb=gaussdb), min_size=1, max_size=4))
    if draw(st.booleans()):
        return {
            "fmt": "CREATE %{persistence}s TABLE %{if_not_exists}s %{identity}D"
            " %{table_elements}s WITH (%{with:, }s)",
            "persistence": draw(st.sampled_from(["", "UNLOGGED"])),
            "if_not_exists": draw(st.sampled_from(["", "IF NOT EXISTS"])),
            "identity": identity,
            "table_elements": {"fmt": "(%{elements:, }s)", "elements": made},
            "with": ["orientation = 'row'"],
        }
    commands: list[dict[str, Any]] = [
        {
            "fmt": "ADD %{objtype}s %{if_not_exists}s %{definition}s %{cascade}s %{place}s",
            "type": "add column",
            "objtype": "COLUMN",
            "if_not_exists": draw(st.sampled_from(["", "IF NOT EXISTS"])),
            "definition": column,
            "cascade": NOT_CASCADE,
            "place": draw(st.sampled_from(["", "FIRST", "AFTER z"])),
        }
        for column in made
    ]
    commands.append(
        {
            "fmt": "DROP %{objtype}s %{if_exists}s %{column}I %{cascade}s",
            "type": draw(st.sampled_from(["drop column", "a word of tomorrow"])),
            "objtype": "COLUMN",
            "if_exists": "",
            "column": draw(NAMES),
            "cascade": {"fmt": "CASCADE", "present": draw(st.booleans())},
        }
    )
    return {
        "fmt": "ALTER TABLE %{only}s %{identity}D %{subcmds:, }s",
        "only": draw(st.sampled_from(["", "ONLY"])),
        "identity": identity,
        "subcmds": commands,
    }


@given(documents())
def test_any_document_says_what_its_text_says(document: dict[str, Any]) -> None:
    reported = jddl.statement(document)

    assert reported == tddl.statement(expand(document))
    assert reported.unread == ()
    names = [c["name"] for c in document.get("table_elements", {}).get("elements", ())]
    names += [c["definition"]["name"] for c in document.get("subcmds", ()) if "definition" in c]
    added = [a.column.name for a in reported.actions if isinstance(a, AddColumn)]
    assert [*(c.name for c in reported.columns), *added] == names


WORDS = re.findall(r"\w+|\W", "".join(SQL.values()))


@given(st.text() | st.lists(st.sampled_from(WORDS)).map("".join))
def test_any_text_is_a_statement(sql: str) -> None:
    reported = tddl.statement(sql)

    assert isinstance(reported, Statement)
    assert reported.sql == sql


def test_constraints_of_a_column_are_the_tables() -> None:
    reported = tddl.statement("ALTER TABLE public.t ADD COLUMN k pg_catalog.int4 PRIMARY KEY")

    assert [a.constraint.columns for a in reported.actions if isinstance(a, AddConstraint)] == [
        ("k",)
    ]
