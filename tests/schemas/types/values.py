"""Values of every type, as PostgreSQL writes them, and random ones of the common types."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal

from hypothesis import strategies as st

from schemas.tables import Column
from schemas.types import TypeOptions


def numeric_mod(precision: int, scale: int) -> int:
    return (precision << 16 | scale & 0x7FF) + 4


@dataclass(frozen=True)
class Sample:
    """A column's type, and texts that the server writes for it."""

    type_name: str
    oid: int
    type_mod: int
    texts: tuple[str, ...]

    def column(self, name: str = "v", *, nullable: bool = True) -> Column:
        return Column(name, self.oid, self.type_mod, self.type_name, nullable)


def sample(type_name: str, oid: int, *texts: str, mod: int = -1) -> Sample:
    return Sample(type_name, oid, mod, texts)


TEXTS = (
    "",
    "a",
    " spaces ",
    "naïve 金额 🐘",
    "line\nbreak\ttab",
    "quote \" ' \\ {,}",
    "NULL",
    "__debezium_unavailable_value",
    "x" * 10_000,
)
STAMPS = (
    "2024-05-01 12:00:00",
    "2024-05-01 12:00:00.1",
    "1970-01-01 00:00:00",
    "1969-12-31 23:59:59.999999",
    "0001-01-01 00:00:00",
    "9999-12-31 23:59:59.999999",
    "0044-03-15 01:02:03 BC",
    "0001-12-31 00:00:00 BC",
    "10000-01-01 00:00:00.5",
    "294276-12-31 23:59:59.999999",
    "infinity",
    "-infinity",
)
JSONS = ('{"a": 1.50, "b": [null, "金"]}', "[]", '"text"', "null", "12345678901234567890.123")

SAMPLES = (
    sample("smallint", 21, "0", "-1", "32767", "-32768"),
    sample("integer", 23, "0", "1", "-1", "8191", "8192", "-8192", "2147483647", "-2147483648"),
    sample("bigint", 20, "0", "9223372036854775807", "-9223372036854775808", "134217728"),
    sample("oid", 26, "0", "4294967295"),
    sample("real", 700, "0", "-0", "0.1", "1e-45", "3.4028235e+38", "NaN", "Infinity", "-Infinity",
           "1.6777216e+07", "1.1754944e-38", "0.3333333", "103378.016"),
    sample("double precision", 701, "0", "-0", "0.1", "5e-324", "1.7976931348623157e+308", "NaN",
           "Infinity", "-Infinity", "0.30000000000000004", "1e+16", "123456789.123"),
    sample("boolean", 16, "t", "f"),
    sample("numeric(12,2)", 1700, "0.00", "-0.01", "9999999999.99", "-9999999999.99", "1.28",
           "-1.28", "2.56", "NaN", mod=numeric_mod(12, 2)),
    sample("numeric(5,0)", 1700, "0", "-128", "127", "99999", "NaN", mod=numeric_mod(5, 0)),
    sample("numeric(60,30)", 1700, "0." + "0" * 29 + "1", "-" + "9" * 30 + "." + "9" * 30,
           mod=numeric_mod(60, 30)),
    sample("numeric(3,5)", 1700, "0.00999", "-0.00001", mod=numeric_mod(3, 5)),
    sample("numeric(3,-2)", 1700, "99900", "-100", "0", mod=numeric_mod(3, -2)),
    sample("numeric", 1700, "0", "0.000", "1.500", "-123456789012345678901234567890.1234567890",
           "1" + "0" * 400, "0." + "0" * 200 + "1", "NaN", "Infinity", "-Infinity",
           "9" * 5000 + "." + "9" * 5000, "9" * 20_001),
    sample("money", 790, "$0.00", "-$1,234,567.89", "$92,233,720,368,547,758.07"),
    sample("text", 25, *TEXTS),
    sample("character varying", 1043, *TEXTS),
    sample("character varying(20)", 1043, "", "abc", "金额", mod=24),
    sample("character(5)", 1042, "ab   ", "     ", "金额   ", mod=9),
    sample("name", 19, "a name", ""),
    sample('"char"', 18, "a", ""),
    sample("uuid", 2950, "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11"),
    sample("xml", 142, "<a>金</a>", "content"),
    sample("json", 114, *JSONS, ' { "kept" : 1 , "kept" : 2 } '),
    sample("jsonb", 3802, *JSONS),
    sample("tsvector", 3614, "'a':1A 'b c':2,3", ""),
    sample("tsquery", 3615, "'a' & !'b' <-> 'c':*"),
    sample("int4range", 3904, "[1,5)", "(,)", "empty", "[1,)"),
    sample("int8range", 3926, "[1,5)", "empty"),
    sample("numrange", 3906, "[1.0,2.50]", "(,2)"),
    sample("tsrange", 3908, '["2024-05-01 12:00:00","2024-05-02 00:00:00.5")', "(,infinity)"),
    sample("tstzrange", 3910, '["2024-05-01 12:00:00+00",)', "empty"),
    sample("daterange", 3912, "[2024-05-01,2024-05-03)"),
    sample("int4multirange", 4451, "{[1,3),[5,)}", "{}"),
    sample("pg_lsn", 3220, "16/B374D848", "0/0"),
    sample("xid8", 5069, "18446744073709551615"),
    sample("jsonpath", 4072, '$."a"[*]?(@ > 1)'),
    sample("date", 1082, "2024-05-01", "1970-01-01", "0001-01-01", "9999-12-31", "0001-12-31 BC",
           "4713-01-01 BC", "10000-01-01", "5874897-12-31", "infinity", "-infinity"),
    sample("time without time zone", 1083, "00:00:00", "23:59:59.999999", "24:00:00", "01:02:03.4"),
    sample("time(3) without time zone", 1083, "00:00:00", "23:59:59.999", "24:00:00", mod=3),
    sample("time with time zone", 1266, "00:00:00+00", "23:59:59.999999+00", "12:00:00+02",
           "12:00:00.5-05:30", "24:00:00+00", "01:02:03+15:59:59"),
    sample("timestamp without time zone", 1114, *STAMPS),
    sample("timestamp(3) without time zone", 1114, "2024-05-01 12:00:00.123", "infinity",
           "1969-12-31 23:59:59.999", "0044-03-15 01:02:03 BC", mod=3),
    sample("timestamp(0) without time zone", 1114, "2024-05-01 12:00:00", mod=0),
    sample("timestamp with time zone", 1184,
           *(f"{s.removesuffix(' BC')}+00{' BC' * s.endswith(' BC')}" if s[-1] != "y" else s
             for s in STAMPS)),
    sample("interval", 1186, "3 days -00:00:00.5", "-1 mons +3 days", "-1 years -2 mons +3 days",
           "1 mon -1 days", "-00:00:00.000001",
           "-1 days +02:03:04.5", "-1 years -11 mons -2 days -04:05:06",
           "00:00:00", "1 day", "1 mon", "-1 years",
           "1 year 2 mons -3 days +04:05:06.789", "123456:00:00", "2562047788:00:54.775807",
           "-2562047788:00:54.775807", "178000000 years"),
    sample("bytea", 17, "\\x", "\\x00ff", "\\x5f5f", "\\x" + "ab" * 9000),
    sample("bit(1)", 1560, "0", "1", mod=1),
    sample("bit(11)", 1560, "00000000000", "10000000001", "00101001100", mod=11),
    sample("bit varying", 1562, "", "0", "0001", "1" * 40),
    sample("bit varying(5)", 1562, "", "01", mod=5),
    sample("inet", 869, "192.168.0.1", "10.0.0.0/8", "::1", "2001:db8::/32"),
    sample("cidr", 650, "10.0.0.0/8", "::/0"),
    sample("macaddr", 829, "08:00:2b:01:02:03"),
    sample("macaddr8", 774, "08:00:2b:01:02:03:04:05"),
    sample("point", 600, "(0,0)", "(1.5,-2e-300)", "(NaN,Infinity)", "(-0,0.1)"),
    sample("lseg", 601, "[(0,0),(1,1)]"),
    sample("path", 602, "((0,0),(1,1))", "[(0,0),(1,1)]"),
    sample("box", 603, "(1,1),(0,0)"),
    sample("polygon", 604, "((0,0),(1,0),(1,1))"),
    sample("line", 628, "{1,-1,0}"),
    sample("circle", 718, "<(0,0),1.5>"),
    sample("integer[]", 1007, "{}", "{1,NULL,-3}", "{{1,2},{3,4}}", "[0:1]={1,2}", "{NULL}"),
    sample("bigint[]", 1016, "{9223372036854775807}"),
    sample("smallint[]", 1005, "{1,2}"),
    sample("boolean[]", 1000, "{t,f,NULL}"),
    sample("text[]", 1009, '{a,"","NULL",NULL,"a b","q\\"\\\\","{x}",",",金}', "{null2}",
           '{"null"}', "{__debezium_unavailable_value}"),
    sample("character varying[]", 1015, "{a}"),
    sample("numeric[]", 1231, "{1.50,NULL,-2}", "{NaN}", "{1,2.0,NaN}"),
    sample("numeric(10,2)[]", 1231, "{1.50,NULL,-2.00}", "{NaN}", mod=numeric_mod(10, 2)),
    sample("numeric(60,30)[]", 1231, "{NULL,-0." + "0" * 29 + "1}", mod=numeric_mod(60, 30)),
    sample("real[]", 1021, "{0.1,NaN}"),
    sample("double precision[]", 1022, "{0.1,Infinity}"),
    sample("date[]", 1182, "{2024-05-01,NULL}", '{"0044-03-15 BC"}', "{infinity,2024-05-01}"),
    sample("timestamp without time zone[]", 1115, '{"2024-05-01 12:00:00.5"}'),
    sample("timestamp with time zone[]", 1185, '{"2024-05-01 12:00:00.5+00",NULL}', "{infinity}"),
    sample("time without time zone[]", 1183, "{01:02:03}"),
    sample("interval[]", 1187, "{01:00:00}", '{"1 day"}'),
    sample("uuid[]", 2951, "{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}"),
    sample("jsonb[]", 3807, '{"{\\"a\\": 1}",NULL}'),
    sample("bytea[]", 1001, '{"\\\\x00ff",NULL}'),
    sample("bit(3)[]", 1561, "{101,NULL}", mod=3),
    sample("bit(1)[]", 1561, "{1,NULL,0}", mod=1),
    sample("bit varying[]", 1563, "{101}"),
    sample("inet[]", 1041, "{10.0.0.1}"),
    sample("point[]", 1017, '{"(1,2)","(3,4)"}'),
    sample("money[]", 791, '{$1.50,"$1,000.00"}'),
    sample("box[]", 1020, "{(1,1),(0,0);(3,3),(2,2)}"),
)  # fmt: skip


def _zones(value: datetime) -> str:
    text = value.isoformat(" ")
    text = text.rstrip("0") if "." in text else text
    return text + "+00"


def _stamp(value: datetime) -> str:
    return _zones(value)[:-3]


def _clock(value: time) -> str:
    return value.isoformat().rstrip("0") if value.microsecond else value.isoformat()


def _decimal(scale: int) -> st.SearchStrategy[str]:
    limit = 10 ** (10 + scale) - 1
    if not scale:
        return st.integers(-limit, limit).map(str)
    return st.integers(-limit, limit).map(lambda n: f"{Decimal(n).scaleb(-scale):.{scale}f}")


# Every choice of [types] but the defaults, and which samples it is for.
CHOICES: tuple[tuple[TypeOptions, str], ...] = (
    (TypeOptions(decimal_handling="string"), "numeric|money"),
    (TypeOptions(decimal_handling="double"), "numeric|money"),
    (TypeOptions(interval_handling="string"), "interval"),
    (TypeOptions(binary_handling="base64"), "bytea"),
    (TypeOptions(binary_handling="base64-url-safe"), "bytea"),
    (TypeOptions(binary_handling="hex"), "bytea"),
    (TypeOptions(time_precision="adaptive-time-microseconds"), "time|date"),
    (TypeOptions(time_precision="connect"), "time|date"),
)
CHOSEN: tuple[tuple[str, TypeOptions, Sample], ...] = tuple(
    (next(c for c in choice.chosen() if c not in TypeOptions().chosen()), choice, sample)
    for choice, names in CHOICES
    for sample in SAMPLES
    if re.match(names, sample.type_name)
)

ANY_TEXT = st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\0"), max_size=30)

# Texts that the server writes, of the common types.
RANDOM: dict[str, tuple[int, int, st.SearchStrategy[str]]] = {
    "smallint": (21, -1, st.integers(-(2**15), 2**15 - 1).map(str)),
    "integer": (23, -1, st.integers(-(2**31), 2**31 - 1).map(str)),
    "bigint": (20, -1, st.integers(-(2**63), 2**63 - 1).map(str)),
    "boolean": (16, -1, st.sampled_from(["t", "f"])),
    "text": (25, -1, ANY_TEXT),
    "character varying(30)": (1043, 34, ANY_TEXT),
    "numeric(10,0)": (1700, numeric_mod(10, 0), _decimal(0)),
    "numeric(12,2)": (1700, numeric_mod(12, 2), _decimal(2)),
    "numeric(20,10)": (1700, numeric_mod(20, 10), _decimal(10)),
    "numeric": (1700, -1, st.one_of(_decimal(0), _decimal(3), st.just("NaN"))),
    "timestamp with time zone": (1184, -1, st.datetimes().map(_zones)),
    "timestamp without time zone": (1114, -1, st.datetimes().map(_stamp)),
    "date": (1082, -1, st.dates().map(date.isoformat)),
    "time without time zone": (1083, -1, st.times().map(_clock)),
    "double precision": (701, -1, st.floats(allow_nan=False).map(lambda f: f"{f!r}")),
    "bytea": (17, -1, st.binary(max_size=30).map(lambda b: "\\x" + b.hex())),
    "jsonb": (3802, -1, st.integers().map(lambda n: f'{{"n": {n}}}')),
    "uuid": (2950, -1, st.uuids().map(str)),
    "integer[]": (1007, -1, st.lists(st.integers(-9, 9)).map(
        lambda n: "{" + ",".join(map(str, n)) + "}")),
}  # fmt: skip

SURPRISING: dict[str, tuple[str, ...]] = {
    "numeric(12,2)": ("NaN",),
    "timestamp with time zone": (
        "infinity",
        "2024-05-01 12:00:00+05:30",
        "0044-03-15 00:00:00+00 BC",
    ),
    "timestamp without time zone": ("-infinity", "10000-01-01 00:00:00"),
    "date": ("infinity", "0044-03-15 BC"),
    "integer[]": ("{{1},{2}}",),
    "bytea": ("a\\000b",),
}

NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)
