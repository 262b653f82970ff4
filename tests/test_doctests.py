"""Examples in docstrings give what they say."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for package in ("schemas", "producer", "spark_consumers", "gauss_cdc")
    for path in sorted((ROOT / package).rglob("*.py"))
    if re.search(r"^ *>>> ", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    failed, tried = doctest.testmod(
        importlib.import_module(name),
        optionflags=doctest.ELLIPSIS,
    )

    assert (failed, tried > 0) == (0, True)
