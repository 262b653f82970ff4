import pytest

from producer.errors import DecodeError
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, RowShape
from producer.sources.gauss.decoders.sql_rows import SqlRows

UNNAMED = RowShape((), (), ())


def decoded(payload: str) -> list[NamedChange]:
    rows = SqlRows("utf-8")
    return [rows.decode(record) for record in rows.split(payload.encode())]


def test_an_update_is_a_delete_and_an_insert() -> None:
    where = RowShape(("id", "v"), (0, 0), ("", ""))

    assert decoded(
        "delete from public.t where id = 1 and v = ';insert into';insert into public.t"
        " values (2, 'it''s);', null, true, B'10');"
    ) == [
        NamedChange("d", "public", "t", None, NamedRow(where, [b"1", b";insert into"])),
        NamedChange(
            "c", "public", "t", NamedRow(UNNAMED, [b"2", b"it's);", None, b"t", b"10"]), None
        ),
    ]


def test_a_table_without_identity_has_no_old_row() -> None:
    whole = "delete from s.t where  (no-tuple-data);insert into s.t values (1);"

    assert [change.op for change in decoded(whole)] == ["d", "c"]
    assert decoded(whole)[0].old is None


def test_a_dropped_last_column_leaves_its_separator() -> None:
    assert decoded("insert into s.t values (1, 'x', );")[0].new.cells == [b"1", b"x"]
    assert decoded("delete from s.t where a = 1 and ;")[0].old.cells == [b"1"]


@pytest.mark.parametrize(
    "statement",
    [
        "insert into s.t values ();",
        "insert into s.t values (1)",
        "insert into s.t values (1);;",
        "insert into s.t values ('1);",
        "insert into s.t values (1); ",
        "insert into s.t values (one);",
        "insert into st values (1);",
        "delete from s.t where ;",
        "delete from s.t where a = 1",
        "delete from s.t where a = 1;insert into s.t values (1",
        "delete from s.t where a = 1;update s.t",
        "delete from s.t where a = 1 and a = 2;",
    ],
)
def test_what_is_no_statement_is_refused(statement: str) -> None:
    with pytest.raises(DecodeError):
        decoded(statement)


def test_a_prefix_is_refused_but_for_the_delete_of_an_update() -> None:
    delete = "delete from \"S s\".t where id = 12 and v = 'it''s';"
    whole = delete + "insert into \"S s\".t values (3, 'a''b');"

    accepted = []
    for size in range(len(whole)):
        try:
            decoded(whole[:size])
        except DecodeError:
            continue
        accepted.append(whole[:size])

    assert accepted == [delete]
