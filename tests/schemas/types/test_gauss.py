"""What openGauss printed, encoded and decoded, means the same."""

import gzip
import io
import json
import re
import struct
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import fastavro
import pytest

from schemas.tables import Column
from schemas.types import BY_OID, NotRepresentable, dumper, type_of

GOLDEN = Path(__file__).parents[2] / "golden" / "opengauss"
WORKLOADS = ("types_a", "types_pg")
# Types of the recorded database itself: an enum, a composite, a domain.
MADE_THERE = {"mood", "pair", "posint"}


class Recorded(NamedTuple):
    """A value as the database gave it to an ordinary client, and its column."""

    column: Column
    text: str


def modifier(type_name: str) -> int:
    """The type modifier that a type's text stands for, as pg_attribute has it."""
    numbers = [int(n) for n in re.findall(r"\d+", (re.search(r"\((.*?)\)", type_name) or [""])[0])]
    if type_name.startswith("numeric") and numbers:
        return (numbers[0] << 16 | numbers[1]) + 4
    if type_name.startswith(("character", "nvarchar2")) and numbers:
        return numbers[0] + 4
    return numbers[0] if numbers and not type_name.startswith("interval") else -1


def unpacked(name: str) -> bytes:
    return gzip.decompress((GOLDEN / name).read_bytes())


def recorded() -> Iterator[Recorded]:
    """Every value of both workloads, once."""
    seen: set[Recorded] = set()
    for workload in WORKLOADS:
        tables = json.loads(unpacked(f"tables_{workload}.json.gz"))["tables"]
        columns = {
            (table["table"], c["name"]): Column(
                c["name"], c["type_oid"], modifier(c["type_with_typmod"]), c["type_with_typmod"]
            )
            for table in tables
            for c in table["columns"]
        }
        for line in unpacked(f"ledger_{workload}.jsonl.gz").splitlines():
            for change in json.loads(line)["changes"]:
                for row in (change.get("after"), change.get("before")):
                    for name, value in (row or {}).items():
                        found = Recorded(columns[change["table"], name], value)
                        if value is not None and found not in seen:
                            seen.add(found)
                            yield found


VALUES = [
    pytest.param(value, id=f"{value.column.type_name}: {value.text[:30]!r}")
    for value in recorded()
    if value.column.type_name not in MADE_THERE
]


def through_avro(value: Any, avro: Any) -> Any:
    """Write and read by fastavro, by the schema with its logical types taken off."""
    schema = fastavro.parse_schema(json.loads(json.dumps(avro).replace("logicalType", "was")))
    file = io.BytesIO()
    fastavro.schemaless_writer(file, schema, value)
    file.seek(0)
    return fastavro.schemaless_reader(file, schema, None)


def meaning(text: str, type_name: str) -> object:
    """The value behind a text, for types that PostgreSQL has not or prints in another way."""
    base = re.sub(r"\(.*?\)", "", type_name)
    match base:
        case "numeric":
            return Decimal(text)
        case "real" | "double precision":
            return struct.pack("<f" if base == "real" else "<d", float(text))
        case "money":
            return Decimal(re.sub(r"[$,]", "", text))
        case "raw" | "blob":
            return bytes.fromhex(text.removeprefix("\\x"))
        case "point":
            return [float(part) for part in text.strip("()").split(",")]
        case "bytea[]":
            return text.lower()
    return text


@pytest.mark.parametrize("value", VALUES)
def test_a_recorded_value_comes_back_or_travels_as_its_text(value: Recorded) -> None:
    column, text = value
    entry = type_of(column)

    try:
        loaded = entry.load(text, column)
    except NotRepresentable:
        assert is_wide(value)
        return

    back = dumper(entry.avro(column))(through_avro(loaded, entry.avro(column)))
    if ("time zone" in column.type_name and column.type_oid == 1184) or column.type_oid == 702:
        assert instant(back) == instant(text)
    else:
        assert meaning(back, column.type_name) == meaning(text, column.type_name)


def instant(text: str) -> object:
    return datetime.fromisoformat(text)


def is_wide(value: Recorded) -> bool:
    """Is it a value that its Avro type cannot hold?"""
    column, text = value
    match re.sub(r"\(.*?\)", "", column.type_name):
        case "numeric":
            return text == "NaN"
        case "date" | "timestamp without time zone" | "timestamp with time zone":
            return "infinity" in text or text.endswith(" BC")
        case "time with time zone":
            return not text.endswith("+00")
        case "bit varying":
            return True
        case "integer[]":
            return text.startswith(("[", "{{"))
        case kind:
            return kind.startswith(("interval", "reltime")) and bool(re.search(r"[a-z]", text))


def test_every_type_of_the_recordings_is_in_the_table() -> None:
    unknown = {v.column.type_name for v in recorded() if v.column.type_oid not in BY_OID}

    assert unknown == MADE_THERE


def test_both_compatibilities_were_recorded_with_their_differences() -> None:
    dates = {v.column.type_oid for v in recorded() if v.column.name == "c_date"}

    assert dates == {1082, 1114}  # `date` of A is timestamp(0)
    assert {"", "NULL"} <= {v.text for v in recorded() if v.column.type_oid == 1043}  # of PG


@pytest.mark.parametrize(
    ("oid", "text", "value", "back"),
    [
        (5545, "255", 255, "255"),
        (34, str(-(2**127)), (-(2**127)).to_bytes(16, "big", signed=True), str(-(2**127))),
        (86, "DEADBEEF", b"\xde\xad\xbe\xef", "\\xdeadbeef"),
        (88, "", b"", "\\x"),
        (4301, "\\x484c4c", b"HLL", "\\x484c4c"),
        (9003, "2024-02-29 12:35:00", 1_709_210_100_000, "2024-02-29 12:35:00"),
        (702, "2024-01-01 08:00:00+08", "2024-01-01T00:00:00.000000Z", "2024-01-01 00:00:00+00"),
        (703, "01:00:00", 3_600_000_000, "01:00:00"),
        (3969, "国家字符", "国家字符", "国家字符"),
        (90, "clob text", "clob text", "clob text"),
        (5546, "{1,NULL,255}", [1, None, 255], "{1,NULL,255}"),
        (87, "{CAFE,NULL}", "{CAFE,NULL}", "{CAFE,NULL}"),
    ],
)
def test_values_of_gauss_types(oid: int, text: str, value: object, back: str) -> None:
    column = Column("v", oid)
    entry = type_of(column)

    assert entry.load(text, column) == value
    assert dumper(entry.avro(column))(value) == back


@pytest.mark.parametrize(
    ("oid", "array", "name", "target"),
    [
        (5545, 5546, "tinyint", "smallint"),
        (702, 1023, "abstime", "timestamp with time zone"),
        (703, 1024, "reltime", "interval"),
        (4301, 4302, "hll", "bytea"),
        (34, 1234, "int16", "numeric(39,0)"),
    ],
)
def test_what_is_like_another_type_has_a_name_and_an_array_of_its_own(
    oid: int, array: int, name: str, target: str
) -> None:
    entry = BY_OID[oid]
    assert (entry.name, entry.array_oid, entry.ddl) == (name, array, {"postgres": target})


@pytest.mark.parametrize("text", [".1", "-.5", ".0000000001"])
def test_numbers_without_a_leading_zero(text: str) -> None:
    for column in (Column("v", 1700), Column("v", 1700, (20 << 16 | 10) + 4)):
        entry = type_of(column)

        assert Decimal(entry.dump(entry.load(text, column), column)) == Decimal(text)


@pytest.mark.parametrize("text", ["", "-", ".", "-.", "1.", "x"])
def test_what_is_no_number_travels_as_text(text: str) -> None:
    for column in (Column("v", 1700), Column("v", 1700, (20 << 16 | 10) + 4)):
        with pytest.raises(NotRepresentable):
            type_of(column).load(text, column)


@pytest.mark.parametrize("sign", ["", "-"])
def test_the_greatest_double_in_sql_decodings_15_digits_is_no_infinity(sign: str) -> None:
    column = Column("v", 701)
    entry = type_of(column)

    value = entry.loader(column)(f"{sign}1.79769313486232e+308")

    assert dumper(entry.avro(column))(value) == f"{sign}1.7976931348623157e+308"
