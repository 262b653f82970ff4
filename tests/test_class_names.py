"""A class name stands once, or for a reason: who reads it knows which class is meant."""

import ast
from collections import Counter
from pathlib import Path

from tests import tree

EMULATOR = tree.folder(tree.LABORATORY) / "emulator"

_WIRE = "a message of pgoutput: the emulator prints what the producer reads, and shares no code"
_SENT = "what a server of this family sends: the emulator prints it, the producer reads it"
_PORT = "a port of the core, and what is behind it in `run`"
_HALF = "the same for each half of the product, and neither may know the other"
_SERVICE = "a public name of the reader for services"
# Names that stand twice or more, and why.  A new one needs a better reason than these.
REASONS = {
    "Begin": _WIRE,
    "Change": f"{_SERVICE}; for a target it is text",
    "Commit": f"a message of pgoutput, on both sides of the wire; {_SERVICE}",
    "Ddl": _SENT,
    "Delivery": _PORT,
    "Fenced": _HALF,
    "Heartbeat": "a record of cuts; a message of GaussDB, of which the emulator has the name",
    "Logical": _WIRE,
    "Options": "of `run`, and of a Spark program: the public name of each half",
    "Publisher": _PORT,
    "Quarantine": _PORT,
    "RegistryDown": _HALF,
    "Reader": f"a port of the core; {_SERVICE}",
    "Relation": _WIRE,
    "Source": "one port, growing: what a takeover needs, what the core needs, what `run` opens",
    "TopicReplaced": _HALF,
    "Truncate": _SENT,
}


def doubled(folders: list[Path]) -> list[str]:
    """Class names that stand twice or more in the modules below folders."""
    paths = [path for folder in folders for path in sorted(folder.rglob("*.py"))]
    names = Counter(
        node.name
        for path in paths
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    return sorted(name for name, number in names.items() if number > 1)


def test_a_name_stands_twice_for_a_reason() -> None:
    assert doubled([tree.folder(package) for package in tree.PACKAGES]) == sorted(REASONS)


def test_contract_and_emulator_name_each_class_once() -> None:
    assert doubled([tree.folder("schemas")]) == []
    assert doubled([EMULATOR]) == []
