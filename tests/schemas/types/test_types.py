import json
import struct
from dataclasses import replace

import pytest

from schemas.tables import Column, UserType
from schemas.types import (
    BY_OID,
    NotRepresentable,
    TypeOptions,
    UnknownType,
    dumper,
    gauss,
    type_of,
)
from schemas.types.base import SqlType
from schemas.types.numeric import _float4, _money_double
from tests.schemas.types.values import SAMPLES, Sample, numeric_mod

PAIRS = [
    pytest.param(sample, text, id=f"{sample.type_name}: {text[:30]!r}")
    for sample in SAMPLES
    for text in sample.texts
]

# Values whose text must travel beside the Avro value, and nothing else may.
EXACT = {
    "numeric(12,2)": {"NaN"},
    "numeric(5,0)": {"NaN"},
    "numeric": {"NaN", "Infinity", "-Infinity", "9" * 20_001},
    "numeric[]": {"{NaN}", "{1,2.0,NaN}"},
    "numeric(10,2)[]": {"{NaN}"},
    "interval": {
        "1 day",
        "1 mon",
        "-1 years",
        "1 year 2 mons -3 days +04:05:06.789",
        "178000000 years",
        "3 days -00:00:00.5",
        "-1 mons +3 days",
        "-1 years -2 mons +3 days",
        "1 mon -1 days",
        "-1 days +02:03:04.5",
        "-1 years -11 mons -2 days -04:05:06",
    },
    "interval[]": {'{"1 day"}'},
    "integer[]": {"{{1,2},{3,4}}", "[0:1]={1,2}"},
    "time with time zone": {"12:00:00+02", "12:00:00.5-05:30", "01:02:03+15:59:59"},
    "bit varying": {"", "0", "0001", "1" * 40},
    "bit varying(5)": {"", "01"},
    "bit varying[]": {"{101}"},
}


def is_far(text: str) -> bool:
    """Outside the years that Spark and Python know."""
    return "infinity" in text or "BC" in text or text.startswith(("10000-", "294276-", "5874897-"))


@pytest.mark.parametrize(("sample", "text"), PAIRS)
def test_a_value_comes_back_as_its_text_or_travels_as_text(sample: Sample, text: str) -> None:
    column = sample.column()
    entry = type_of(column)
    must_be_exact = text in EXACT.get(sample.type_name, set())
    if sample.type_name.startswith(("date", "timestamp")) and "range" not in sample.type_name:
        must_be_exact = must_be_exact or is_far(text.strip("{}"))

    try:
        value = entry.load(text, column)
    except NotRepresentable:
        assert must_be_exact
        return

    assert not must_be_exact
    back = dumper(entry.avro(column))(value)
    assert back == entry.dump(value, column)
    if sample.type_name == "money":
        assert back == text.replace("$", "").replace(",", "")
    elif sample.type_name == "money[]":
        assert back == "{1.50,1000.00}"
    elif sample.oid in (700, 701, 600, 1021, 1022):
        size = "<f" if sample.oid in (700, 1021) else "<d"
        assert float_form(back, size) == float_form(text, size)  # the same bits at the server
    else:
        assert back == text


def float_form(text: str, size: str) -> list[bytes]:
    return [struct.pack(size, float(part)) for part in text.strip("(){}").split(",")]


def test_samples_cover_the_table_of_types() -> None:
    without = {entry.name for oid, entry in BY_OID.items() if oid not in {s.oid for s in SAMPLES}}

    of_gauss = {entry.name for entry in gauss.TYPES}  # test_gauss.py, with recorded values
    same_code = {  # plain strings, like others that are sampled
        "nummultirange", "tsmultirange", "tstzmultirange", "datemultirange", "int8multirange",
        "xid", "cid", "tid", "regproc", "regprocedure", "regclass", "regtype", "txid_snapshot",
        "pg_snapshot", "regoper", "regoperator", "regrole", "regnamespace", "regconfig",
        "regdictionary", "regcollation", "refcursor", "aclitem", "int2vector", "oidvector",
    }  # fmt: skip
    assert {name for name in without if not name.endswith("[]")} == {
        name for name in of_gauss | same_code if not name.endswith("[]")
    }


@pytest.mark.parametrize(
    ("sample", "text", "nearest"),
    [
        ("date", "infinity", 2**31 - 1),
        ("date", "0001-12-31 BC", -719163),
        ("date", "10000-01-01", 2932897),
        ("timestamp without time zone", "infinity", 9_223_372_036_825_200_000),
        (
            "timestamp without time zone",
            "10000-01-01 00:00:00.5",
            2932897 * 86_400_000_000 + 500_000,
        ),
        ("timestamp with time zone", "0044-03-15 01:02:03+00 BC", "-0043-03-15T01:02:03.000000Z"),
        ("timestamp with time zone", "10000-01-01 00:00:00+00", "+10000-01-01T00:00:00.000000Z"),
        ("timestamp with time zone", "infinity", "infinity"),
        ("time with time zone", "12:00:00.5-05:30", "17:30:00.5Z"),
        ("interval", "1 mon", 2629800000000),
        ("interval", "-1 days +00:00:01", -86_399_000_000),
        ("bit varying", "0110", b"\x06"),
        ("numeric", "NaN", None),
        ("integer[]", "[0:1]={1,2}", [1, 2]),
        ("integer[]", "{{1,2},{3,4}}", None),
    ],
)
def test_readers_who_look_no_further_get_what_debezium_writes(
    sample: str, text: str, nearest: object
) -> None:
    column = next(s for s in SAMPLES if s.type_name == sample).column()

    with pytest.raises(NotRepresentable) as caught:
        type_of(column).load(text, column)
    assert caught.value.nearest == nearest


def test_other_time_zones_of_a_session_mean_the_same_instant() -> None:
    column = Column("v", 1184)
    entry = type_of(column)

    assert entry.load("2024-05-01 00:30:00.5+02", column) == "2024-04-30T22:30:00.500000Z"
    assert entry.load("2024-05-01 00:30:00-03:30", column) == "2024-05-01T04:00:00.000000Z"
    assert entry.dump("2024-04-30T22:30:00.500000Z", column) == "2024-04-30 22:30:00.5+00"


def test_an_unknown_type_is_its_text_unless_the_operator_wants_an_error() -> None:
    column = Column("mood", 16385, type_name="mood")

    assert type_of(column).avro(column) == "string"
    with pytest.raises(UnknownType, match="mood") as caught:
        type_of(column, TypeOptions(unknown_types="fail"))
    assert caught.value.column is column


def test_of_one_bit_debezium_makes_a_boolean_of_varbit_too() -> None:
    column = Column("v", 1562, 1)
    entry = type_of(column)

    assert entry.avro(column) == type_of(replace(column, type_oid=1560)).avro(column)
    assert (entry.load("1", column), entry.dump(False, column)) == (True, "0")
    with pytest.raises(NotRepresentable):
        entry.load("", column)


@pytest.mark.parametrize(
    ("column", "zero"),
    [
        (Column("n", 1700), "0"),
        (Column("n", 1700, numeric_mod(10, 2)), "0.00"),
        (Column("n", 790), "0.00"),
        (
            Column("n", 99_001, user_type=UserType("d", "price", "", 1700, numeric_mod(8, 3))),
            "0.000",
        ),
    ],
)
def test_zero_as_text_is_the_servers_text_of_zero(column: Column, zero: str) -> None:
    """It stands in old keys for the columns that are not part of them."""
    assert type_of(column, TypeOptions(decimal_handling="string")).zero_of(column) == zero


MOOD = UserType("e", "mood", labels=("sad", "ok"))
PRICE = UserType("d", "price", "numeric(10,2)", 1700, numeric_mod(10, 2))


def of_user(said: UserType, options: TypeOptions | None = None) -> tuple[SqlType, Column]:
    column = Column("v", 16400, type_name="s.t", user_type=said)
    return type_of(column, options or TypeOptions(unknown_types="fail")), column


def test_an_enum_is_debeziums_with_its_labels() -> None:
    entry, column = of_user(MOOD)

    assert entry.avro(column) == {
        "type": "string",
        "connect.version": 1,
        "connect.name": "io.debezium.data.Enum",
        "connect.parameters": {"allowed": "sad,ok"},
    }
    assert entry.load("ok", column) == "ok"


@pytest.mark.parametrize(
    ("said", "like"),
    [
        (PRICE, Column("v", 1700, numeric_mod(10, 2))),
        (UserType("d", "cheap", "s.price", 16399, of=PRICE), Column("v", 1700, numeric_mod(10, 2))),
        (UserType("d", "days", "date[]", 1182), Column("v", 1182)),
        (UserType("d", "flags", "bit(3)", 1560, 3), Column("v", 1560, 3)),
        (UserType("d", "when", "timestamp(3)", 1114, 3), Column("v", 1114, 3)),
    ],
    ids=lambda value: getattr(value, "name", ""),
)
def test_a_domain_is_what_it_is_made_of(said: UserType, like: Column) -> None:
    entry, column = of_user(said)
    base = type_of(like)

    assert entry.avro(column) == base.avro(like)
    assert entry.shape is base.shape


def test_arrays_of_such_types() -> None:
    entry, column = of_user(UserType("a", "_mood", "s.mood", 16398, of=MOOD))
    assert entry.load('{sad,NULL,"ok"}', column) == ["sad", None, "ok"]
    assert entry.dump(["sad", None], column) == "{sad,NULL}"

    entry, column = of_user(UserType("a", "_price", "s.price", 16399, of=PRICE))
    assert entry.dump(entry.load("{1.50,NULL}", column), column) == "{1.50,NULL}"

    of_price = type_of(column, TypeOptions(decimal_handling="string"))
    assert of_price.load("{1.50,NULL}", column) == ["1.50", None]

    days = UserType("d", "days", "date[]", 1182)
    entry, column = of_user(UserType("a", "_days", "s.days", 16401, of=days))
    assert entry.load('{"{2024-05-01,NULL}"}', column) == [[19844, None]]
    assert entry.dump([[19844, None]], column) == '{"{2024-05-01,NULL}"}'


def test_arrays_of_built_in_types_follow_the_options_of_their_elements() -> None:
    column = Column("v", 1231)
    as_text = type_of(column, TypeOptions(decimal_handling="string"))
    assert as_text.load("{1.50}", column) == ["1.50"]
    assert type_of(column) is BY_OID[1231]


@pytest.mark.parametrize(
    ("column", "whole", "beyond"),
    [
        (Column("n", 1700, numeric_mod(3, 1)), ["-99.9", "99.9"], ["-100.0", "100.0"]),
        (Column("n", 1700), ["9" * 20_000, "-" + "9" * 19_999], ["9" * 20_001, "NaN"]),
        (
            Column("i", 1186),
            ["-2562047788:00:54.775807", "2562047788:00:54.775807"],
            ["-2562047788:00:54.775808", "2562047788:00:54.775808"],
        ),
    ],
)
def test_a_value_outside_of_its_type_is_not_cut(
    column: Column, whole: list[str], beyond: list[str]
) -> None:
    entry = type_of(column)
    assert [entry.dump(entry.load(text, column), column) for text in whole] == whole
    for text in beyond:
        with pytest.raises(NotRepresentable):
            entry.load(text, column)


@pytest.mark.parametrize("kind", ["c", "r", "m", "b"])
def test_other_types_of_users_are_their_text(kind: str) -> None:
    said = UserType(kind, "pair")
    assert of_user(said, TypeOptions())[0].load("(1,a)", Column("v", 1)) == "(1,a)"
    with pytest.raises(UnknownType):
        of_user(said)


def test_types_of_extensions_are_found_by_name_wherever_they_were_put() -> None:
    entry, column = of_user(UserType("b", "citext"))
    assert entry.avro(column) == "string"
    entry, column = of_user(UserType("b", "ltree"))
    assert entry.avro(column)["connect.name"] == "io.debezium.data.Ltree"  # type: ignore[index]
    entry, column = of_user(UserType("b", "vector"))
    assert entry.load("[1,0.1,-2e-05]", column) == [1.0, 0.1, -2e-05]
    assert entry.dump([1.0, 0.1, -2e-05], column) == "[1,0.1,-2e-05]"


@pytest.mark.parametrize(
    "text",
    ["", '"a"=>"1"', '"a"=>NULL, "b c"=>"d\\"e\\\\", "金"=>"", ""=>"NULL"', '"x"=>"a\nb, =>"'],
)
def test_an_hstore_comes_back_from_json_and_from_a_map(text: str) -> None:
    entry, column = of_user(UserType("b", "hstore"))
    value = entry.load(text, column)
    assert json.loads(value) is not None
    assert ("金" in value) is ("金" in text), "as it is: no target reads escapes for it"
    assert dumper(entry.avro(column))(value) == text

    entry, column = of_user(UserType("b", "hstore"), TypeOptions(hstore_handling="map"))
    assert dumper(entry.avro(column))(entry.load(text, column)) == text


def test_an_unknown_shape_is_an_error() -> None:
    with pytest.raises(LookupError):
        dumper({"type": "fixed", "name": "f", "size": 3})


def test_no_oid_stands_twice() -> None:
    from schemas.types import _ARRAYS, _SCALARS

    oids = [oid for entry in (*_SCALARS, *_ARRAYS) for oid in entry.oids]
    assert len(oids) == len(set(oids)) == len(BY_OID)


@pytest.mark.parametrize("entry", {entry.name: entry for entry in BY_OID.values()}.values())
def test_every_type_has_a_zero_that_its_dumper_reads(entry: SqlType) -> None:
    column = Column("v", entry.oids[0], 8)
    entry = type_of(column)

    entry.dump(entry.zero_of(column), column)


def test_bits_without_a_length_are_not_padded_to_the_longest() -> None:
    column = Column("v", 1562)  # its values always travel as text; readers may still ask

    assert dumper(type_of(column).avro(column))(b"\x06") == "110"


def test_a_forged_scale_is_refused_and_fills_no_memory() -> None:
    dump = dumper(type_of(Column("v", 1700)).avro(Column("v", 1700)))

    with pytest.raises(ValueError, match="scale"):
        dump({"scale": 2**31 - 1, "value": b"\x01"})


def test_numbers_that_no_double_or_float_holds_are_told_apart() -> None:
    for load, text in ((_money_double, "5,00 €"), (_float4, "1e39")):
        with pytest.raises(NotRepresentable):
            load(text)


@pytest.mark.parametrize(
    ("oid", "text", "nearest"),
    [
        (1082, "5874897-12-31", 2_145_042_905),
        (1082, "58748397-12-31", None),  # no server writes it: it is no int of Avro
        (1114, "300000-01-01 00:00:00", 9_223_372_036_825_200_000),
        (1114, "300000-01-01 00:00:00 BC", -9_223_372_036_832_400_000),
    ],
)
def test_a_far_day_has_the_nearest_that_avro_counts(
    oid: int, text: str, nearest: int | None
) -> None:
    column = Column("c", oid)

    with pytest.raises(NotRepresentable) as caught:
        type_of(column).load(text, column)

    assert caught.value.nearest == nearest
