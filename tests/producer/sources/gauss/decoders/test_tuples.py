import pytest

from producer.errors import DecodeError
from producer.sources.gauss.decoders.messages import NamedChange, NamedRow, NamedTruncate, RowShape
from producer.sources.gauss.decoders.tuples import DottedRows, SpacedRows, emptied, readings
from schemas.tables import UNCHANGED


def dotted(line: str, encoding: str = "utf-8") -> NamedChange:
    return DottedRows(encoding).decode(line.encode(encoding))


def spaced(line: str, encoding: str = "utf-8") -> NamedChange:
    return SpacedRows(encoding).decode(line.encode(encoding))


def shape(*columns: tuple[str, str]) -> RowShape:
    names, types = zip(*columns, strict=True)
    return RowShape(names, (0,) * len(names), types)


def test_every_kind_of_literal() -> None:
    change = dotted(
        "table public.t: INSERT: a[integer]:-1 b[text]:'it''s \\' c[bit]:B'1010' d[boolean]:true"
        " e[text]:null f[text]:'null' g[double precision]:-Infinity h[numeric]:.5 i[bit]:B''"
        " j[boolean]:false k[real]:1e+22 l[text]:''''''"
    )

    assert change.new.cells == [
        *(b"-1", b"it's \\", b"1010", b"t", None, b"null", b"-Infinity", b".5", b""),
        *(b"f", b"1e+22", b"''"),
    ]


def test_an_update_whose_toast_value_was_not_sent() -> None:
    change = dotted(
        "table public.xpto: UPDATE: old-key: id[integer]:1"
        " new-tuple: id[integer]:1 toasted[text]:unchanged-toast-datum"
    )

    assert change == NamedChange(
        "u",
        "public",
        "xpto",
        NamedRow(shape(("id", "integer"), ("toasted", "text")), [b"1", UNCHANGED]),
        NamedRow(shape(("id", "integer")), [b"1"]),
    )


@pytest.mark.parametrize(
    ("written", "type_name"),
    [
        ('"char"', '"char"'),
        ("integer[]", "integer[]"),
        ("timestamp without time zone[]", "timestamp without time zone[]"),
        ('"My S"."a]:b"', '"My S"."a]:b"'),
        ('public."odd[]"[]', 'public."odd[]"[]'),
    ],
)
def test_types_of_several_words_arrays_and_quoted_ones(written: str, type_name: str) -> None:
    change = dotted(f"table s.t: INSERT: a[{written}]:'x' b[text]:'y'")

    assert change.new == NamedRow(shape(("a", type_name), ("b", "text")), [b"x", b"y"])


def test_names_that_look_like_everything_else() -> None:
    change = dotted(
        'table "a.b"."INSERT: ""x""": INSERT: "c[text]:\'1\' d"[text]:\' e[text]:\'\'2\'\'\''
    )

    assert (change.schema, change.table) == ("a.b", 'INSERT: "x"')
    assert change.new == NamedRow(shape(("c[text]:'1' d", "text")), [b" e[text]:'2'"])


@pytest.mark.parametrize("encoding", ["gbk", "gb18030"])
def test_a_character_that_ends_with_a_backslash_or_a_bracket(encoding: str) -> None:
    assert "縗".encode(encoding)[1:] == b"\\"
    bracket = bytes([0x8B, 0x5D]).decode(encoding)

    change = dotted(f'table s."縗": INSERT: "{bracket}"[text]:\'縗\'', encoding)

    assert change.table == "縗"
    assert change.new == NamedRow(shape((bracket, "text")), ["縗".encode(encoding)])


def test_rows_without_data() -> None:
    assert dotted("table s.t: DELETE: (no-tuple-data)") == NamedChange("d", "s", "t", None, None)
    assert spaced("table s t DELETE: (no-tuple-data)") == NamedChange("d", "s", "t", None, None)
    assert spaced("table s t UPDATE: (no-tuple-data)") == NamedChange("u", "s", "t", None, None)


def test_style_t_takes_the_first_blank_and_keeps_all_readings() -> None:
    change = spaced("table My Schema Upper Table INSERT: a[integer]:1")

    assert (change.schema, change.table) == ("My", "Schema Upper Table")
    assert readings(change.schema, change.table) == (
        ("My", "Schema Upper Table"),
        ("My Schema", "Upper Table"),
        ("My Schema Upper", "Table"),
    )


def test_style_t_finds_the_operation_behind_a_name_with_one_in_it() -> None:
    change = spaced("table s an INSERT: or UPDATE: DELETE: a[text]:'x INSERT: b[text]:''y'''")

    assert (change.op, change.table) == ("d", "an INSERT: or UPDATE:")
    assert change.old.cells == [b"x INSERT: b[text]:'y'"]


def test_postgresql_prints_nothing_of_an_old_row_of_nulls() -> None:
    nothing = NamedRow(RowShape((), (), ()), [])

    update = dotted("table s.t: UPDATE: old-key: new-tuple: a[text]:null")

    assert (update.old, update.new.cells) == (nothing, [None])
    assert dotted("table s.t: DELETE:").old == nothing
    assert dotted("table s.t: DELETE: (no-tuple-data)").old is None
    for line in ("table s t DELETE:", "table s t UPDATE: old-key: new-tuple: a[text]:null"):
        with pytest.raises(DecodeError):
            spaced(line)


WHOLE = (
    'table "a b".t: UPDATE: old-key: id[integer]:17 new-tuple: id[integer]:1'
    " \"V v\"[text]:'it''s'"
    " w[boolean]:true x[text]:null"
)


def test_a_prefix_that_ends_in_a_name_a_tag_or_a_quoted_value_is_refused() -> None:
    # What may end here is a number's digit, the quote before a second one, or a column.
    accepted = [size for size in range(len(WHOLE)) if is_decoded(WHOLE[:size])]

    ends = [WHOLE[:size].rpartition(":")[2] for size in accepted]
    assert ends == ["1", "'it'", "'it''s'", "true"]


@pytest.mark.parametrize(
    "row",
    [
        "table s t INSERT: v[text]:'a INSERT: b[integer]:1' w[integer]:2",
        "table s t UPDATE: old-key: i[bit]:B'0' new-tuple: v[text]:''' DELETE: b[integer]:1'",
        'table s t DELETE: "v INSERT: b[integer]:1"[text]:null',
        'table s t INSERT: i[integer]:1 v["my UPDATE: b[integer]:1"[]]:null',
    ],
)
def test_style_t_finds_no_operation_within_a_value_or_name_that_was_cut(row: str) -> None:
    size = row.index("b[integer]:1") + len("b[integer]:1")

    assert spaced(row).table == "t"
    with pytest.raises(DecodeError):
        spaced(row[:size])


def is_decoded(line: str) -> bool:
    try:
        dotted(line)
    except DecodeError:
        return False
    return True


@pytest.mark.parametrize(
    "line",
    [
        "table s.t: INSERT:",
        "table s.t: INSERT: ",
        "table s.t: INSERT: a[integer]:",
        "table s.t: INSERT: a[integer]:1 ",
        "table s.t: INSERT: a[integer]:1  b[integer]:2",
        "table s.t: INSERT: a[integer]:one",
        "table s.t: INSERT: a[integer]:'x'y",
        "table s.t: INSERT: a[bit]:B'12'",
        "table s.t: INSERT: a[text]:'x' a[text]:'y'",
        "table s.t: UPDATE: old-key: a[integer]:1",
        "table s.t: UPSERT: a[integer]:1",
        "table st: INSERT: a[integer]:1",
        'table "s.t: INSERT: a[integer]:1',
        "table s.t INSERT: a[integer]:1",
    ],
)
def test_what_is_no_row_is_refused(line: str) -> None:
    with pytest.raises(DecodeError):
        dotted(line)


def test_truncate() -> None:
    two = 'table public.a, "B, c"."d: e": TRUNCATE: restart_seqs cascade'
    tables = (("public", "a"), ("B, c", "d: e"))

    assert emptied(two.encode(), "utf-8") == NamedTruncate(
        tables, cascade=True, restart_identity=True
    )
    assert emptied(b"table a.b: TRUNCATE: (no-flags)", "utf-8") == NamedTruncate((("a", "b"),))
    assert emptied(b"table a.b: TRUNCATE: cascade", "utf-8") == NamedTruncate(
        (("a", "b"),), cascade=True
    )
    assert emptied(b"table a.b: TRUNCATE:", "utf-8") is None
    assert emptied(b"table a.b: TRUNCATE: (no-flags", "utf-8") is None
    assert not DottedRows("utf-8").is_row(two.encode())
