"""Deparsed DDL, from the wire to the schema change at its place."""

import json
from dataclasses import replace
from typing import Any

import pytest

from gauss_cdc_lab.emulator.model import Ddl, Mode
from producer.errors import DecodeError
from producer.sources.gauss.ddl import tddl
from producer.sources.gauss.ddl.format import expand
from producer.sources.gauss.ddl.model import Statement
from schemas.control import Hole, Origin
from schemas.positions import Lsn
from schemas.tables import Column, TableId, TableSchema, Unique
from tests.gauss_cdc_lab.emulator.formats.made import number, text
from tests.gauss_cdc_lab.emulator.through import (
    ID,
    JDDL,
    SERIAL,
    TDDL,
    T,
    Through,
    ddl,
    done,
    row,
)
from tests.producer.core.ddl_examples import (
    GAUSSDB,
    OPENGAUSS,
    og_add_column,
    og_alter,
    og_column,
    og_type,
)
from tests.producer.core.ddl_examples import JDDL as DOCUMENT
from tests.producer.core.ddl_examples import TDDL as STATEMENT

ADD = "ALTER TABLE  public.t ADD COLUMN b pg_catalog.int4 DEFAULT 5"


def test_the_manuals_statement_is_a_change_with_all_that_is_known() -> None:
    reported = Through().feed(done(ddl(STATEMENT)))

    [change] = reported.changes
    assert (change.origin, change.tag, change.kind) == (Origin.DEPARSED, "CREATE TABLE", "table")
    assert (change.sql, change.canonical, change.jddl) == (STATEMENT, STATEMENT, None)
    assert (change.before, change.xid, change.csn, change.ordinal) == (None, 956, 2956, 0)
    assert change.after == TableSchema(
        TableId("public", "test_create_table_a"), (Column("a", 23, -1, "integer"),)
    )


def test_a_statement_that_was_delivered_before_is_not_followed_again() -> None:
    """The tables known are those after it: it would be done to another table."""
    reported = Through(resume=0x200)

    reported.feed(
        done(ddl("DROP TABLE public.t CASCADE"), row(1), at=0x100), done(row(2), at=0x200)
    )

    assert reported.changes == []
    assert reported.rows == 1


@pytest.mark.parametrize("product", ["gaussdb", "og7"])
def test_a_statement_is_read_once(product: str, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []

    def statement(sql: str) -> Statement:
        read.append(sql)
        return as_shipped(sql)

    as_shipped = tddl.statement
    monkeypatch.setattr(tddl, "statement", statement)

    if product == "gaussdb":
        reported = Through().feed(done(ddl(ADD)))
    else:
        reported = stream().feed(done(START, dropped("t")))

    assert len(reported.changes) == 1
    assert len(read) == 1


def test_the_manuals_document_is_a_change_with_its_document() -> None:
    reported = Through(JDDL).feed(done(ddl(content=DOCUMENT)))

    [change] = reported.changes
    assert change.jddl is not None
    assert json.loads(change.jddl) == GAUSSDB["create table"][0]
    assert (change.sql, change.canonical) == (None, STATEMENT)


def test_rows_behind_a_statement_stand_in_the_new_shape_without_a_second_change() -> None:
    reported = Through()
    reported.feed(
        done(row(1)),
        done(ddl(ADD), at=0x200),
        done(row(2, text("a", "y"), number("b", 7)), at=0x300),
    )

    [change] = reported.changes
    assert change.before == T
    assert change.after is not None
    assert change.after.columns[2] == Column("b", 23, -1, "integer", missing="5", has_default=True)
    assert [len(table.columns) for table in reported.published] == [2, 3, 3]
    assert (reported.rows, reported.holes) == (2, [])


def test_a_rename_is_one_and_rows_follow_it() -> None:
    reported = Through()
    reported.feed(
        done(ddl("ALTER TABLE public.t RENAME COLUMN a TO z")),
        done(ddl("ALTER TABLE  public.t RENAME TO u"), at=0x200),
        done(row(1, text("z", "x"), table="u"), at=0x300),
    )

    columns, table = reported.changes
    assert columns.renamed == {"a": "z"}
    assert table.before is not None
    assert table.after is not None
    assert (table.before.id.name, table.after.id.name) == ("t", "u")
    assert reported.rows == 1


def test_a_key_that_changes_is_in_force_for_the_next_row() -> None:
    reported = Through()
    reported.feed(
        done(row(1)),
        done(ddl("ALTER TABLE public.t DROP CONSTRAINT t_pkey, ADD CONSTRAINT k PRIMARY KEY (a)")),
        done(row(2), at=0x300),
    )

    [change] = reported.changes
    assert change.after is not None
    assert change.after.key == ("a",)
    assert reported.published[-1].key == ("a",)


def test_several_tables_of_one_statement_are_one_statement() -> None:
    other = replace(T, id=TableId("public", "u"))
    reported = Through(known=(T, other)).feed(done(ddl("DROP TABLE public.t, public.u")))

    assert [(c.before, c.after, c.statement) for c in reported.changes] == [
        (T, None, 0),
        (other, None, 0),
    ]


def test_a_type_of_users_is_read_from_the_catalog() -> None:
    mood = Column("m", 90001, -1, "public.mood")
    reported = Through(catalog=(replace(T, columns=(*T.columns, mood)),))
    reported.feed(done(ddl("ALTER TABLE public.t ADD COLUMN m public.mood")))

    [change] = reported.changes
    assert change.after is not None
    assert change.after.columns[2] == mood


def test_an_unknown_type_is_reported() -> None:
    reported = Through().feed(done(ddl("ALTER TABLE public.t ADD COLUMN m public.mood")))

    [change] = reported.changes
    assert "column m: type public.mood" in (change.lossy or "")
    assert change.after is not None
    assert (change.after.columns[2].type_oid, change.after.columns[2].type_name) == (25, "text")
    assert [(hole.table, hole.kind) for hole in reported.holes] == [("public.t", "suspected")]


def test_a_unique_index_is_the_tables_and_goes_with_its_name() -> None:
    reported = Through()
    reported.feed(
        done(ddl("CREATE UNIQUE INDEX i ON public.t USING btree (a)")),
        done(ddl("ALTER INDEX public.i RENAME TO j"), at=0x200),
        done(ddl("DROP INDEX public.j"), at=0x300),
        done(ddl("CREATE INDEX k ON public.t USING btree (a)"), at=0x400),
    )

    *three, other = reported.changes
    assert [c.after and c.after.unique for c in three] == [
        (Unique("i", ("a",)),),
        (Unique("j", ("a",)),),
        (),
    ]
    assert (other.kind, other.identity, other.after) == ("index", "public.k", None)


def test_a_schema_takes_its_tables_along() -> None:
    reported = Through()
    reported.feed(
        done(ddl("ALTER SCHEMA public RENAME TO p")), done(ddl("DROP SCHEMA p CASCADE"), at=0x200)
    )

    renamed, dropped = (c for c in reported.changes if c.kind == "table")
    assert renamed.after is not None
    assert renamed.after.id == TableId("p", "t")
    assert (dropped.before, dropped.after) == (renamed.after, None)


def test_a_table_whose_schema_gets_a_name_that_is_not_captured_is_a_gap() -> None:
    reported = Through().feed(done(ddl("ALTER SCHEMA public RENAME TO not_ours")))

    _, change = reported.changes
    assert (change.before, change.after) == (T, T)
    assert reported.holes == [
        Hole("public.t", "seen", "is not captured any more: it is not_ours.t now")
    ]


def test_other_objects_are_reported_by_name() -> None:
    reported = Through().feed(done(ddl("CREATE OR REPLACE PACKAGE public.k IS a int; END k")))

    [change] = reported.changes
    assert (change.kind, change.identity, change.tag) == ("package", "public.k", "CREATE PACKAGE")


@pytest.mark.parametrize("schema", ["pg_catalog", "dbe_pldeveloper", "pg_temp_3"])
def test_the_servers_own_objects_are_not_reported(schema: str) -> None:
    reported = Through().feed(done(ddl(f"CREATE TABLE {schema}.x (a pg_catalog.int4)")))

    assert reported.changes == []


def test_tables_that_are_not_captured_are_not_reported() -> None:
    reported = Through().feed(done(ddl("CREATE TABLE not_ours.x (a pg_catalog.int4)")))

    assert reported.changes == []


def test_a_table_made_twice_was_dropped_unseen() -> None:
    reported = Through().feed(done(ddl("CREATE TABLE public.t (z pg_catalog.text)")))

    dropped, made = reported.changes
    assert (dropped.after, made.before) == (None, None)
    assert reported.holes[0].kind == "suspected"


def test_clauses_that_are_never_deparsed_are_said() -> None:
    reported = Through().feed(
        done(ddl("ALTER TABLE IF EXISTS ONLY public.t MODIFY COLUMN a TIME WITHOUT TIME ZONE"))
    )

    assert reported.changes[0].lossy == (
        "not deparsed, if there: ON UPDATE, comments within the definition"
    )


def test_a_truncate_sent_as_ddl_empties_the_table() -> None:
    reported = Through().feed(done(ddl("TRUNCATE TABLE public.t")))

    assert (reported.changes, reported.rows) == ([], 1)


def test_a_document_that_is_none_stops_the_stream() -> None:
    with pytest.raises(DecodeError, match='missing element "a" in JSON object'):
        Through(JDDL).feed(done(ddl(content='{"fmt": "%{a}s"}')))


@pytest.mark.parametrize("style", "bjt")
@pytest.mark.parametrize("batch", [False, True])
def test_parallel_styles_send_the_same(style: str, batch: bool) -> None:
    mode = Mode(
        parallel_decode_num=4, decode_style=style, sending_batch=batch, enable_ddl_decoding=True,
        enable_ddl_json_format=True, include_timestamp=True,
    )  # fmt: skip
    reported = Through(mode).feed(done(ddl(content=DOCUMENT)))

    assert reported.changes[0].canonical == STATEMENT


# ---- openGauss


def og(document: Any, *, command: str = "Simple", sql: str | None = None) -> Ddl:
    return Ddl(
        Lsn(0x110),
        end_lsn=Lsn(0x118),
        content=json.dumps(document).encode(),
        sql=(expand(document) if sql is None else sql).encode(),
        command=command,
        relation=5,
    )


def stream(**known: Any) -> Through:
    return Through(SERIAL, "og7", **known)


START = Ddl(
    Lsn(0x110), Lsn(0x118), content=b"Drop table command start", command="Drop Table", relation=5
)


def dropped(name: str) -> Ddl:
    document = OPENGAUSS["drop table"][0] | {"objidentity": f"public.{name}"}
    return og(document, command="Drop Table End")


@pytest.mark.parametrize("document", [d for d, _ in OPENGAUSS.values()], ids=OPENGAUSS)
@pytest.mark.parametrize("plugin", ["mppdb_decoding", "sql_decoding", "test_decoding"])
def test_every_documented_message_of_opengauss_is_reported(document: Any, plugin: str) -> None:
    dd1 = TableSchema(
        TableId("public", "dd1"),
        (Column("id", 23), Column("a", 25), Column("b", 1700), Column("e", 25)),
    )
    known = (dd1, *(replace(dd1, id=TableId("public", name)) for name in ("dd1r", "dd2")))

    reported = Through(Mode(plugin=plugin), "og7", known=known).feed(done(og(document)))

    assert reported.changes
    assert {c.origin for c in reported.changes} == {Origin.DEPARSED}
    assert reported.changes[-1].canonical == expand(document)


def test_the_two_messages_of_a_drop_are_one_change() -> None:
    reported = stream().feed(done(START, dropped("t")))

    assert [(c.tag, c.before) for c in reported.changes] == [("DROP TABLE", T)]


def test_a_drop_of_two_tables_is_one_message_of_start_and_two_of_end() -> None:
    other = replace(T, id=TableId("public", "u"))
    reported = stream(known=(T, other)).feed(done(START, dropped("t"), dropped("u")))

    assert [c.before for c in reported.changes] == [T, other]


WITH_E = row(7, text("a", "y"), text("e", "z"))


def default(text_: str) -> Any:
    return {"fmt": "DEFAULT %{default}s", "default": text_}


def added(text_: str) -> Ddl:
    column = og_column("e", og_type("text"), default=default(text_))
    identity = {"objname": "t", "schemaname": "public"}
    return og(og_alter(og_add_column(column), identity=identity), command="Alter Table")


def set_default(text_: str, column: str = "e") -> Ddl:
    command = {
        "fmt": "ALTER %{objtype}s %{column}I SET DEFAULT %{definition}s",
        "objtype": "COLUMN",
        "column": column,
        "definition": text_,
    }
    identity = {"objname": "t", "schemaname": "public"}
    return og(og_alter(command, identity=identity), command="Alter Table")


def test_the_second_message_of_a_default_corrects_the_first() -> None:
    """Live: the first says `DEFAULT 'it's'`, which is no SQL, the second is what it means."""
    reported = stream().feed(done(added("'it's'"), set_default("'it''s'::text"), WITH_E))

    [change] = reported.changes
    assert change.after is not None
    assert change.after.columns[2] == Column("e", 25, -1, "text", missing="it's", has_default=True)
    assert (
        change.sql == "ALTER TABLE  public.t ADD COLUMN  e pg_catalog.text  DEFAULT 'it''s'::text  "
    )
    assert reported.holes == []


def set_defaults(**texts: str) -> Ddl:
    """As openGauss' sources print it: the columns before are named once more."""
    commands = [
        {"fmt": "ALTER COLUMN %{name}I SET DEFAULT %{default}s", "name": name, "default": said}
        for name, said in texts.items()
    ]
    return og(og_alter(*commands, identity={"objname": "t", "schemaname": "public"}))


def added_two() -> Ddl:
    columns = [
        og_add_column(og_column(name, og_type("text"), default=default(said)))
        for name, said in (("e", "'it's'"), ("f", "'he's'"))
    ]
    return og(og_alter(*columns, identity={"objname": "t", "schemaname": "public"}))


def test_each_of_several_defaults_is_corrected() -> None:
    reported = stream().feed(
        done(added_two(), set_defaults(e="'it''s'"), set_defaults(e="'it''s'", f="'he''s'"))
    )

    [change] = reported.changes
    assert change.after is not None
    assert [column.missing for column in change.after.columns[2:]] == ["it's", "he's"]
    assert reported.holes == []


def test_a_default_that_is_set_later_is_for_new_rows() -> None:
    reported = stream().feed(
        done(added("'it's'"), set_default("'it''s'::text"), set_default("'new'::text"))
    )

    first, second = reported.changes
    assert first.after is not None
    assert second.after is not None
    assert [c.after.columns[2].missing for c in reported.changes if c.after] == ["it's", "it's"]
    assert second.after.columns[2].default == "'new'::text"


def test_values_that_a_statement_computed_are_a_detected_gap() -> None:
    """OpenGauss has the copy run an UPDATE where a new column's default is computed once."""
    update = {
        "fmt": "UPDATE %{identity}D SET %{name}I = %{default}s WHERE %{name}I IS NULL",
        "identity": {"objname": "t", "schemaname": "public"},
        "name": "e",
        "default": "now()",
    }
    reported = stream().feed(done(og(update, command="Alter Table")))

    [change] = reported.changes
    assert (change.tag, change.before, change.after) == ("UPDATE", T, T)
    assert [(hole.table, hole.kind) for hole in reported.holes] == [("public.t", "seen")]


def test_an_unknown_statement_makes_its_table_suspect() -> None:
    block = {
        "fmt": "DECLARE\nn pg_catalog.int4;\nBEGIN\nUPDATE %{identity}D SET a = n;\nEND;\n",
        "identity": {"objname": "t", "schemaname": "public"},
    }
    reported = stream().feed(done(og(block, command="Alter Table"), row(1)))

    assert reported.changes[0].lossy == "an unknown statement affects it"
    assert [(hole.table, hole.kind) for hole in reported.holes] == [("public.t", "suspected")]
    assert reported.rows == 1


@pytest.mark.parametrize(("schema", "count"), [("public", 1), ("not_mine", 0)])
def test_a_trigger_is_reported_with_its_table(schema: str, count: int) -> None:
    reported = Through().feed(
        done(ddl(f"CREATE TRIGGER not_now BEFORE INSERT ON {schema}.t FOR EACH ROW"))
    )

    assert [c.identity for c in reported.changes] == [f"{schema}.not_now"] * count


def test_a_default_without_its_second_message_is_not_believed() -> None:
    reported = stream().feed(done(added("'it's'")))

    assert reported.changes[0].values == {"e": "lost"}
    assert reported.holes == [
        Hole("public.t", "seen", "column e: the source computed it for older rows")
    ]


@pytest.mark.parametrize("second", [set_default("5", "a"), dropped("u")])
def test_a_message_that_does_not_belong_to_the_first_is_its_own(second: Ddl) -> None:
    reported = stream().feed(done(added("'x'::text"), second))

    assert len(reported.changes) == 2


def test_rows_between_two_statements_stay_between_them() -> None:
    """OpenGauss' serial decoding sends rows behind DDL of their own transaction."""
    reported = stream().feed(
        done(row(1), added("'x'::text"), set_default("'x'::text"), WITH_E, WITH_E)
    )

    assert [c.ordinal for c in reported.changes] == [1]
    assert reported.rows == 3


def test_rows_of_the_servers_own_schema_are_left_out() -> None:
    reported = stream().feed(done(row(1, table="gs_source", schema="dbe_pldeveloper"), row(2)))

    assert reported.rows == 1
    assert reported.holes == []


def test_where_no_ddl_is_sent_the_first_row_of_a_new_shape_is_an_inferred_change() -> None:
    """Tables of ustore are not deparsed at all."""
    wider = replace(T, columns=(*T.columns, Column("b", 23, -1, "integer")))
    reported = stream(catalog=(wider,)).feed(
        done(row(1)), done(row(2, text("a", "y"), number("b", 7)), at=0x200)
    )

    assert [c.origin for c in reported.changes] == [Origin.INFERRED]
    assert reported.rows == 2


def test_an_undecoded_default_makes_its_table_suspect() -> None:
    """A volatile default is not deparsed: what older rows have nobody tells."""
    b = Column("b", 23, -1, "integer", has_default=True)
    reported = Through(TDDL, catalog=(replace(T, columns=(*T.columns, b)),))
    reported.feed(done(row(1)), done(row(2, text("a", "y"), number("b", 7)), at=0x200))

    assert [(hole.table, hole.kind) for hole in reported.holes] == [(str(ID), "suspected")]


DROPPED = "ALTER TABLE  public.t DROP CONSTRAINT odd_name"


@pytest.mark.parametrize(
    ("catalog", "key", "is_suspected"),
    [
        ((replace(T, key=(), identity_columns=()),), (), False),  # it was the key
        ((T,), ("id",), False),  # another constraint
        ((replace(T, key=("a",)),), ("id",), True),  # something happened since
        ((replace(T, id=TableId("public", "other")),), ("id",), True),  # it is gone by now
    ],
)
def test_a_key_of_any_name_that_is_dropped_is_noticed(
    catalog: tuple[TableSchema, ...], key: tuple[str, ...], *, is_suspected: bool
) -> None:
    """Two rows that are alike in what was the key would be one at the target."""
    through = Through(catalog=catalog)
    if T.id not in {table.id for table in catalog}:
        through._catalog.pop(T.id)

    reported = through.feed(done(ddl(DROPPED)))

    [change] = reported.changes
    assert change.after is not None
    assert change.after.key == key
    assert [hole.kind for hole in reported.holes] == ["suspected"] * is_suspected
