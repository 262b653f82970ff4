"""Types that a stream names."""

import gzip
import json
from pathlib import Path

import pytest

from schemas.types.names import oid_of

GOLDEN = Path(__file__).parents[2] / "golden" / "opengauss"


def recorded_columns() -> dict[str, int]:
    """format_type() of every column recorded from openGauss, without and with modifier, by oid."""
    found = {}
    for path in GOLDEN.glob("tables_*.json.gz"):
        for table in json.loads(gzip.decompress(path.read_bytes()))["tables"]:
            for column in table["columns"]:
                if column["type_oid"] < 16384:  # not made in that database
                    found[column["type"]] = column["type_oid"]
                    found[column["type_with_typmod"]] = column["type_oid"]
    return found


@pytest.mark.parametrize(("type_name", "oid"), sorted(recorded_columns().items()))
def test_every_recorded_type_is_found_by_its_name(type_name: str, oid: int) -> None:
    assert oid_of(type_name) == oid


@pytest.mark.parametrize(
    ("type_name", "oid"),
    [
        ("timestamp(3) without time zone[]", 1115),
        ("numeric(10,-2)", 1700),
        ("numeric(10, 2)", 1700),
        ("interval day to second(3)", 1186),
        ("interval year to month[]", 1187),
        ("integer[][]", 1007),
        ("pg_catalog.bpchar(5)", 1042),
        ("nvarchar2(20)", 3969),
        ('"char"', 18),
        ("char", 1042),
        ("raw[]", 87),
        ("_hll", 4302),
    ],
)
def test_spellings(type_name: str, oid: int) -> None:
    assert oid_of(type_name) == oid


@pytest.mark.parametrize(
    "type_name", ["", "mood", "public.mood", "vector[]", "_", "[]", "integer;"]
)
def test_what_is_not_built_in_has_no_oid_here(type_name: str) -> None:
    assert oid_of(type_name) is None
