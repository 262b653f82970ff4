"""Each history that the protocol, the product or a test names is told."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests import tree
from tests.sim.histories import HISTORIES

PROTOCOL = tree.ROOT / "docs" / "protocol.md"
_NAMED = re.compile(r"\[(H\d+(?:, H\d+)*)\]")


def named(text: str) -> set[int]:
    return {int(one.strip(" H")) for many in _NAMED.findall(text) for one in many.split(",")}


def files() -> Iterator[Path]:
    yield PROTOCOL
    yield from (path for _, path in tree.modules(*tree.PACKAGES))
    yield from (tree.ROOT / "tests").rglob("*.py")


def test_every_history_that_is_named_is_told() -> None:
    untold = {
        path.name: missing
        for path in files()
        if (missing := named(path.read_text("utf-8")) - set(HISTORIES))
    }

    assert untold == {}


def test_every_history_is_behind_a_rule_of_the_protocol() -> None:
    assert set(HISTORIES) - named(PROTOCOL.read_text("utf-8")) == set()


def test_several_that_are_named_at_once_are_found() -> None:
    assert named("so [H5, H32], not [H7]") == {5, 32, 7}
