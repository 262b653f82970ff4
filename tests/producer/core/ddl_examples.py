"""DDL as documents say that servers print it: a document, and the SQL that comes of it.

OPENGAUSS: from openGauss' own regression outputs and from a live 7.0.0-RC2.
GAUSSDB: GaussDB manual, "DDL in logical decoding".  Where a source elides part of a
document (`…`), the rest was completed after its other examples.
"""

import json
from typing import Any

WITH = [
    {
        "fmt": "%{label}s = %{value}L",
        "label": {"fmt": "%{label}I", "label": "orientation"},
        "value": "row",
    },
    {
        "fmt": "%{label}s = %{value}L",
        "label": {"fmt": "%{label}I", "label": "compression"},
        "value": "no",
    },
]
DD1 = {"objname": "dd1", "schemaname": "public"}
DD1R = {"objname": "dd1r", "schemaname": "public"}
NO_DEFAULT = {"fmt": "DEFAULT %{default}s", "present": False}
NO_COLLATION = {"fmt": "COLLATE %{name}D", "present": False}
NOT_GENERATED = {"fmt": "GENERATED ALWAYS AS (%{generation_expr}s) STORED", "present": False}
NOT_CASCADE = {"fmt": "CASCADE", "present": False}
COLLATED = {
    "fmt": "COLLATE %{name}D",
    "name": {"objname": "default", "schemaname": "pg_catalog"},
}


def og_type(name: str, typmod: str = "", *, schema: str = "pg_catalog", array: bool = False) -> Any:
    return {"typmod": typmod, "typarray": array, "typename": name, "schemaname": schema}


def og_column(name: str, coltype: Any, **rest: Any) -> Any:
    words = "%{name}I %{coltype}T %{collation}s %{default}s "
    words += "%{not_null}s " * ("not_null" in rest) + "%{generated_column}s"
    parts = {
        "fmt": words,
        "name": name,
        "type": "column",
        "coltype": coltype,
        "default": NO_DEFAULT,
        "collation": NO_COLLATION,
        "generated_column": NOT_GENERATED,
    }
    return parts | rest


def og_constraint(name: str, kind: str, definition: str) -> Any:
    return {
        "fmt": "CONSTRAINT %{name}I %{definition}s",
        "name": name,
        "type": "constraint",
        "contype": kind,
        "definition": definition,
    }


def og_table(name: str, elements: list[Any], *, partition_by: str | None = None) -> Any:
    fmt = (
        "CREATE %{persistence}s TABLE %{if_not_exists}s %{identity}D %{table_elements}s"
        " %{inherits}s WITH (%{with:, }s)"
    )
    document = {
        "fmt": fmt,
        "with": WITH,
        "myowner": "gauss",
        "identity": {"objname": name, "schemaname": "public"},
        "inherits": {"fmt": "INHERITS (%{parents:, }D)", "present": False},
        "persistence": "",
        "if_not_exists": "",
        "table_elements": {"fmt": "(%{elements:, }s)", "elements": elements},
    }
    if partition_by is not None:
        document |= {"fmt": f"{fmt} %{{partition_by}}s", "partition_by": partition_by}
    return document


def og_alter(*subcmds: Any, identity: Any = None) -> Any:
    return {
        "fmt": "ALTER %{objtype}s %{only}s %{identity}D %{subcmds:, }s",
        "only": "",
        "objtype": "TABLE",
        "subcmds": list(subcmds),
        "identity": identity or DD1,
    }


def og_add_column(definition: Any) -> Any:
    return {
        "fmt": "ADD %{objtype}s %{if_not_exists}s %{definition}s %{cascade}s",
        "type": "add column",
        "objtype": "COLUMN",
        "if_not_exists": "",
        "definition": definition,
        "cascade": NOT_CASCADE,
    }


def comment(objtype: str, identity: str, text: str | None) -> Any:
    return {
        "fmt": "COMMENT ON %{objtype}s %{identity}s IS %{comment}s",
        "comment": {
            "fmt": "%{null}s %{literal}s",
            "null": {"fmt": "NULL", "present": text is None},
            "literal": {"fmt": "%{value}L", "value": text or "", "present": text is not None},
        },
        "objtype": objtype,
        "identity": identity,
    }


PARTITION_BY = (
    "\nPARTITION BY RANGE (a)\n( \n    PARTITION p1 VALUES LESS THAN (10),\n"
    "    PARTITION p2 VALUES LESS THAN (MAXVALUE)\n)\nENABLE ROW MOVEMENT"
)

T4 = (
    '{"fmt": "CREATE %{persistence}s TABLE %{if_not_exists}s %{identity}D (%{table_elements:, }s)'
    ' WITH (%{with:, }s)", "with": [{"fmt": "%{label}s = %{value}L", "label": {"fmt": "%{label}I",'
    ' "label": "orientation"}, "value": "row"}, {"fmt": "%{label}s = %{value}L", "label": {"fmt":'
    ' "%{label}I", "label": "compression"}, "value": "no"}], "myowner": "omm", "identity":'
    ' {"objname": "t4", "schemaname": "ddl_publication"}, "persistence": "", "if_not_exists": "",'
    ' "table_elements": [{"fmt": "%{name}I %{coltype}T", "name": "a", "type": "column", "coltype":'
    ' {"typmod": "", "typarray": false, "typename": "int4", "schemaname": "pg_catalog"}}, {"fmt":'
    ' "%{name}I %{coltype}T COLLATE %{collate}D", "name": "b", "type": "column", "collate":'
    ' {"objname": "default", "schemaname": "pg_catalog"}, "coltype": {"typmod": "", "typarray":'
    ' false, "typename": "text", "schemaname": "pg_catalog"}}]}'
)

OPENGAUSS: dict[str, tuple[Any, str]] = {
    "create table, first shape": (
        json.loads(T4),
        (
            "CREATE  TABLE  ddl_publication.t4 (a pg_catalog.int4, b pg_catalog.text COLLATE"
            " pg_catalog.\"default\") WITH (orientation = 'row', compression = 'no')"
        ),
    ),
    "create index, first shape": (
        {
            "fmt": "CREATE %{unique}s INDEX %{concurrently}s %{name}I ON %{table}D USING"
            " %{index_am}s %{definition}s",
            "name": "idx_t4_1",
            "table": {"objname": "t4", "schemaname": "ddl_publication"},
            "unique": "",
            "myowner": "omm",
            "index_am": "btree",
            "definition": "(a pg_catalog.int4_ops)",
            "concurrently": "",
        },
        "CREATE  INDEX  idx_t4_1 ON ddl_publication.t4 USING btree (a pg_catalog.int4_ops)",
    ),
    "drop table": (
        {
            "fmt": "DROP %{objtype}s %{concurrently}s %{if_exists}s %{objidentity}s %{cascade}s",
            "cascade": "",
            "objtype": "table",
            "if_exists": "",
            "objidentity": "ddl_publication.t4",
            "concurrently": "",
        },
        "DROP table   ddl_publication.t4 ",
    ),
    "create table": (
        og_table(
            "dd1",
            [
                og_column("id", og_type("int4")),
                og_column(
                    "a",
                    og_type("varchar", "(20)"),
                    default={
                        "fmt": "DEFAULT %{default}s",
                        "default": "'x''y'::character varying",
                    },
                    not_null="NOT NULL",
                    collation=COLLATED,
                ),
                og_column("b", og_type("numeric", "(10,2)")),
                og_column("c", og_type("TIMESTAMP", "(3) without time zone", schema="")),
                og_column("d", og_type("int4", array=True)),
                og_constraint("dd1_b_key", "unique", "UNIQUE (b)"),
                og_constraint("dd1_pkey", "primary key", "PRIMARY KEY (id)"),
                og_constraint("dd1_id_check", "check", "CHECK ((id OPERATOR(pg_catalog.>) 0))"),
            ],
        ),
        (
            'CREATE  TABLE  public.dd1 (id pg_catalog.int4   , a pg_catalog."varchar"(20) COLLATE'
            " pg_catalog.\"default\" DEFAULT 'x''y'::character varying NOT NULL , b"
            ' pg_catalog."numeric"(10,2)   , c TIMESTAMP(3) without time zone   , d'
            " pg_catalog.int4[]   , CONSTRAINT dd1_b_key UNIQUE (b), CONSTRAINT dd1_pkey"
            " PRIMARY KEY (id), CONSTRAINT dd1_id_check CHECK ((id OPERATOR(pg_catalog.>) 0)))"
            "  WITH (orientation = 'row', compression = 'no')"
        ),
    ),
    "create partitioned table": (
        og_table("dd2", [og_column("a", og_type("int4"))], partition_by=PARTITION_BY),
        (
            "CREATE  TABLE  public.dd2 (a pg_catalog.int4   )  WITH (orientation = 'row',"
            f" compression = 'no') {PARTITION_BY}"
        ),
    ),
    "drop column": (
        og_alter(
            {
                "fmt": "DROP %{objtype}s %{if_exists}s %{column}I %{cascade}s",
                "type": "drop column",
                "column": "e",
                "cascade": NOT_CASCADE,
                "objtype": "COLUMN",
                "if_exists": "",
            }
        ),
        "ALTER TABLE  public.dd1 DROP COLUMN  e ",
    ),
    "alter type": (
        og_alter(
            {
                "fmt": "ALTER %{objtype}s %{column}I SET DATA TYPE %{datatype}T %{collation}s"
                " %{using}s",
                "type": "alter column type",
                "using": {"fmt": "USING %{expression}s", "present": False},
                "column": "b",
                "objtype": "COLUMN",
                "datatype": og_type("numeric", "(12,3)"),
                "collation": NO_COLLATION,
            }
        ),
        'ALTER TABLE  public.dd1 ALTER COLUMN b SET DATA TYPE pg_catalog."numeric"(12,3)  ',
    ),
    "rename column": (
        {
            "fmt": "ALTER %{objtype}s %{identity}D RENAME COLUMN %{colname}I TO %{newname}I",
            "colname": "a",
            "newname": "a2",
            "objtype": "TABLE",
            "identity": DD1,
        },
        "ALTER TABLE public.dd1 RENAME COLUMN a TO a2",
    ),
    "rename table": (
        {
            "fmt": "ALTER %{objtype}s %{if_exists}s %{identity}D RENAME TO %{newname}I",
            "newname": "dd1r",
            "objtype": "TABLE",
            "identity": DD1,
            "if_exists": "",
        },
        "ALTER TABLE  public.dd1 RENAME TO dd1r",
    ),
    "create index": (
        {
            "fmt": "CREATE %{unique}s INDEX %{concurrently}s %{name}I ON %{table}D USING"
            " %{index_am}s %{definition}s WHERE %{where}s",
            "name": "ix1",
            "table": DD1R,
            "unique": "UNIQUE",
            "index_am": "btree",
            "definition": '(a2 COLLATE pg_catalog."default" pg_catalog.text_ops DESC)',
            "concurrently": "",
            "where": "(id OPERATOR(pg_catalog.>) 5)",
        },
        (
            'CREATE UNIQUE INDEX  ix1 ON public.dd1r USING btree (a2 COLLATE pg_catalog."default"'
            " pg_catalog.text_ops DESC) WHERE (id OPERATOR(pg_catalog.>) 5)"
        ),
    ),
    "comment": (
        comment("TABLE", "public.dd1r", "hello 'w'"),
        "COMMENT ON TABLE public.dd1r IS  $$hello 'w'$$",
    ),
    "comment null": (
        comment("COLUMN", "public.dd1r.id", None),
        "COMMENT ON COLUMN public.dd1r.id IS NULL ",
    ),
    "add constraint": (
        og_alter(
            {
                "fmt": "ADD CONSTRAINT %{name}I %{definition}s",
                "type": "add constraint",
                "name": "ck1",
                "definition": "CHECK ((id OPERATOR(pg_catalog.<) 1000))",
            },
            identity=DD1R,
        ),
        "ALTER TABLE  public.dd1r ADD CONSTRAINT ck1 CHECK ((id OPERATOR(pg_catalog.<) 1000))",
    ),
    "drop partition": (
        og_alter(
            {"fmt": "DROP PARTITION %{name}I", "name": "p1", "type": "drop partition"},
            identity={"objname": "dd2", "schemaname": "public"},
        ),
        "ALTER TABLE  public.dd2 DROP PARTITION p1",
    ),
    "create sequence": (
        {
            "fmt": "CREATE %{persistence}s %{large}s SEQUENCE %{identity}D %{definition: }s",
            "large": "",
            "persistence": "",
            "identity": {"objname": "sq1", "schemaname": "public"},
            "definition": [
                "CACHE 1",
                "NO CYCLE",
                "INCREMENT BY 1",
                "MINVALUE 1",
                "MAXVALUE 9223372036854775807",
                {"fmt": "START WITH %{value}s", "value": "5"},
                {"fmt": "CYCLE", "present": False},
                "RESTART 5",
            ],
        },
        (
            "CREATE   SEQUENCE public.sq1 CACHE 1 NO CYCLE INCREMENT BY 1 MINVALUE 1 MAXVALUE"
            " 9223372036854775807 START WITH 5 RESTART 5"
        ),
    ),
}

JDDL = (
    '{"fmt":"CREATE %{persistence}s TABLE %{if_not_exists}s %{identity}D %{table_elements}s'
    ' %{with_clause}s %{compression}s","identity":{"object_name":"test_create_table_a",'
    '"schema_name":"public"},"compression":"NOCOMPRESS","persistence":"","with_clause":{"fmt":'
    '"WITH (%{with:, }s)","with":[{"fmt":"%{label}s = %{value}L","label":{"fmt":"%{label}I",'
    '"label":"orientation"},"value":"row"},{"fmt":"%{label}s = %{value}L","label":{"fmt":'
    '"%{label}I","label":"compression"},"value":"no"}]},"if_not_exists":"","table_elements":'
    '{"fmt":"(%{elements:, }s)","elements":[{"fmt":"%{name}I %{column_type}T","name":"a",'
    '"column_type":{"typmod":"","typarray":false,"type_name":"int4","schema_name":"pg_catalog"}}]}}'
)
TDDL = (
    "CREATE  TABLE  public.test_create_table_a (a pg_catalog.int4)"
    " WITH (orientation = 'row', compression = 'no') NOCOMPRESS"
)

GAUSSDB: dict[str, tuple[Any, str]] = {"create table": (json.loads(JDDL), TDDL)}

# What the manual shows as SQL only.
SQL: dict[str, str] = {
    "function": (
        "CREATE  FUNCTION public.func ( IN a pg_catalog.int4 ) RETURNS pg_catalog.int4 LANGUAGE"
        " plpgsql VOLATILE CALLED ON NULL INPUT SECURITY INVOKER COST 100 AS '\nBEGIN\na:= a+1;\n"
        "CREATE TABLE test(col1 INT);\nINSERT INTO test VALUES(1);\nDROP TABLE test;\nRETURN a;\n"
        "END;\n';"
    ),
    "materialized view": (
        "CREATE MATERIALIZED VIEW public.v46_4 AS SELECT a, b FROM public.t46 ORDER BY a OFFSET 10"
        " LIMIT 3"
    ),
    "reindex": 'REINDEX INDEX public."Alter_Index_Index" PARTITION "CA_ADDRESS_SK_index2"',
    "range partitions": (
        "CREATE TABLE test_create_table_partition2 (c1 INT, c2 INT)\nPARTITION BY RANGE (c2) (\n"
        "    PARTITION p1_0 VALUES LESS THAN ('1'), PARTITION p1_1 VALUES LESS THAN ('201'),"
        " PARTITION p1_2 VALUES LESS THAN ('401'), PARTITION p1_3 VALUES LESS THAN ('601'),"
        " PARTITION p1_4 VALUES LESS THAN ('801'), PARTITION p1_5 VALUES LESS    THAN ('1000'),\n"
        "    PARTITION p2 VALUES LESS THAN ('2000'),\n    PARTITION p3 VALUES LESS THAN ('2500'),\n"
        "    PARTITION p4 VALUES LESS THAN ('3000'),\n    PARTITION p5_1 VALUES LESS THAN"
        " ('4000'),\n    PARTITION p5_2 VALUES LESS THAN ('5000')\n);"
    ),
    "add a column that was there": (
        "ALTER TABLE IF EXISTS public.tb5 ADD COLUMN IF NOT EXISTS c2 pg_catalog.int4 AFTER c1;"
    ),
    "add two columns, one was there": (
        "ALTER TABLE IF EXISTS public.tb5 ADD COLUMN IF NOT EXISTS c2 pg_catalog.int4 AFTER c1,"
        " ADD COLUMN IF NOT EXISTS c3 pg_catalog.bpchar(5) AFTER c1;"
    ),
    "on update, left out": (
        "CREATE TABLE IF NOT EXISTS public.tb1 (c1 TIME) WITH (orientation = 'row', storage_type ="
        " 'ustore', compression = 'no') NOCOMPRESS;"
    ),
    "on update in MODIFY, left out": (
        "ALTER TABLE IF EXISTS ONLY public.tb2 MODIFY COLUMN c2 TIME;"
    ),
    "ILM, left out": (
        "CREATE TABLE IF NOT EXISTS public.tb3 (c1 pg_catalog.int4) WITH (storage_type = 'ustore',"
        " orientation = 'row', compression = 'no') NOCOMPRESS;"
    ),
    "comment, left out": (
        "CREATE TABLE IF NOT EXISTS public.tb6 (c1 pg_catalog.int4) WITH (storage_type = 'ustore',"
        " orientation = 'row', compression = 'no') NOCOMPRESS;"
    ),
    "create table as": (
        " CREATE  TABLE  public.tb35_1 (c1 pg_catalog.int4) WITH (storage_type = 'ustore',"
        " orientation = 'row', compression = 'no') NOCOMPRESS;"
    ),
    "package": (
        "CREATE OR REPLACE PACKAGE public.ldp_pkg1 AUTHID CURRENT_USER IS  var1 int:=1;"
        "  --公有变量\n    var2 int:=2;\n    PROCEDURE testpro1(var3 int);"
        "  --公有存储过程,可以被外部调用\nEND  ldp_pkg1; \n /"
    ),
}
