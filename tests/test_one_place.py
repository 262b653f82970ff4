"""What has one place in the product is written nowhere else.

The emulator has places of its own, on purpose: it is the oracle of the decoders.
"""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PRODUCT = ("schemas", "producer", "spark_consumers", "gauss_cdc")

# What, how to find it, and where alone it may stand.
ONE_PLACE = {
    "quotes of SQL": (
        r"""\.replace\((["'])(\\?["'])\1, *(["'])\2\2\3\)""",
        {"schemas/quoting.py", "gauss_cdc/sandbox/emulator/quoting.py"},
    ),
}


def found(pattern: str, text: str) -> bool:
    return re.search(pattern, text) is not None


@pytest.mark.parametrize("what", ONE_PLACE)
def test_it_stands_in_one_place(what: str) -> None:
    pattern, places = ONE_PLACE[what]
    paths = [path for package in PRODUCT for path in sorted((ROOT / package).rglob("*.py"))]

    there = {
        str(path.relative_to(ROOT)) for path in paths if found(pattern, path.read_text("utf-8"))
    }

    assert there == places


@pytest.mark.parametrize("text", ["""name.replace('"', '""')""", """text.replace("'", "''")"""])
def test_a_second_quoter_would_be_found(text: str) -> None:
    assert found(ONE_PLACE["quotes of SQL"][0], text)
