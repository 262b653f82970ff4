"""A class name stands once, or for a reason: who reads it knows which class is meant.

The emulator has the words of the products that it plays (`Row`, `Transaction`, `Heartbeat`), so
that its names may be the product's, too; within itself no name stands twice.
"""

import ast
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PRODUCT = ("schemas", "producer", "spark_consumers", "gauss_cdc")
EMULATOR = ROOT / "gauss_cdc" / "sandbox" / "emulator"
# Names that stand twice or more today.  The number only goes down.
MOST = 21


def names(folders: list[Path]) -> Counter[str]:
    """How often each class name stands in the modules below folders, but the emulator's."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    if EMULATOR not in folders:
        paths = [path for path in paths if not path.is_relative_to(EMULATOR)]
    return Counter(
        node.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )


def doubled(folders: list[Path]) -> list[str]:
    return sorted(name for name, number in names(folders).items() if number > 1)


def test_no_more_names_stand_twice_than_today() -> None:
    found = doubled([ROOT / package for package in PRODUCT])

    assert len(found) <= MOST, found


def test_command_line_and_contract_name_each_class_once() -> None:
    assert doubled([ROOT / "gauss_cdc"]) == []
    assert doubled([ROOT / "schemas"]) == []


def test_the_emulator_names_each_class_once() -> None:
    assert doubled([EMULATOR]) == []
