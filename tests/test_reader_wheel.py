"""The reader is a distribution of its own, in step with the product; its wheel lacks nothing."""

import ast
import importlib.util
import re
import sys
import tomllib
from collections.abc import Iterator

import pytest

from schemas.version import VERSION
from tests.tree import ROOT

PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
READER = tomllib.loads((ROOT / "reader" / "pyproject.toml").read_text("utf-8"))["project"]
_SPEC = importlib.util.spec_from_file_location("reader_setup", ROOT / "reader" / "setup.py")
assert _SPEC is not None
assert _SPEC.loader is not None
SETUP = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(SETUP)


@pytest.fixture(scope="module")
def shared() -> list[str]:
    """Modules that it takes along; each worker would look for them when it imports the tests."""
    return SETUP.shared()


def ranges(dependencies: list[str]) -> dict[str, str]:
    """Ranges of versions by the name of a distribution, without its extras."""
    found = (re.fullmatch(r"([\w-]+)(?:\[.*\])?(.*)", one) for one in dependencies)
    return {match[1]: match[2] for match in found if match}


def imports(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def test_it_has_the_version_and_the_ranges_of_the_product() -> None:
    assert READER["version"] == VERSION
    assert ranges(READER["dependencies"]).items() <= ranges(PRODUCT["dependencies"]).items()
    assert READER["requires-python"] == PRODUCT["requires-python"]


def test_what_is_taken_along_imports_nothing_that_is_not_there(shared: list[str]) -> None:
    for module in shared:
        names = {*imports(SETUP.renamed(SETUP.file_of(module).read_text("utf-8")))}

        tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
        assert tops <= {"gauss_cdc_reader", "confluent_kafka", "fastavro"}, module
        below = {name.removeprefix(f"{SETUP.BELOW}.") for name in names if SETUP.BELOW in name}
        only_types = {name for name in below if name.endswith("._native")}
        assert below - only_types <= {*shared}, module


def test_an_import_of_types_alone_takes_nothing_along(shared: list[str]) -> None:
    assert "spark_consumers.kafka.registry" in shared
    assert not [name for name in shared if "sinks" in name or "source" in name]
