import struct

import pytest

from schemas.tables import Column
from schemas.types import BY_OID, NotRepresentable, UnknownType, dumper, gauss, type_of
from schemas.types.base import SqlType
from tests.schemas.types.values import SAMPLES, Sample

PAIRS = [
    pytest.param(sample, text, id=f"{sample.type_name}: {text[:30]!r}")
    for sample in SAMPLES
    for text in sample.texts
]

# Values whose text must travel beside the Avro value, and nothing else may.
EXACT = {
    "numeric(12,2)": {"NaN"},
    "numeric(5,0)": {"NaN"},
    "numeric": {"NaN", "Infinity", "-Infinity", "9" * 5000 + "." + "9" * 5000},
    "numeric[]": {"{NaN}", "{1,2.0,NaN}"},
    "numeric(10,2)[]": {"{NaN}"},
    "interval": {
        "1 day",
        "1 mon",
        "-1 years",
        "1 year 2 mons -3 days +04:05:06.789",
        "178000000 years",
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
        "pg_snapshot",
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
        ("timestamp with time zone", "0044-03-15 01:02:03+00 BC", "-0043-03-15T01:02:03Z"),
        ("timestamp with time zone", "10000-01-01 00:00:00+00", "+10000-01-01T00:00:00Z"),
        ("timestamp with time zone", "infinity", "infinity"),
        ("time with time zone", "12:00:00.5-05:30", "17:30:00.5Z"),
        ("interval", "1 mon", 2629800000000),
        ("interval", "-1 days +00:00:01", -86_399_000_000),
        ("bit varying", "0110", b"\x06"),
        ("numeric", "NaN", None),
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

    assert entry.load("2024-05-01 00:30:00.5+02", column) == "2024-04-30T22:30:00.5Z"
    assert entry.load("2024-05-01 00:30:00-03:30", column) == "2024-05-01T04:00:00Z"
    assert entry.dump("2024-04-30T22:30:00.5Z", column) == "2024-04-30 22:30:00.5+00"


def test_an_unknown_type_is_an_error_unless_the_operator_wants_text() -> None:
    column = Column("mood", 16385, type_name="mood")

    with pytest.raises(UnknownType, match="mood") as caught:
        type_of(column)
    assert caught.value.column is column
    assert type_of(column, unknown="text").avro(column) == "string"


def test_types_of_extensions_are_found_by_name() -> None:
    assert type_of(Column("v", 16400, type_name="citext")).avro(Column("v", 1)) == "string"
    with pytest.raises(UnknownType):
        type_of(Column("v", 16400, type_name=""))


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
