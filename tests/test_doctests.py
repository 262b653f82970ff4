"""Examples in docstrings give what they say."""

import doctest
import importlib
import re

import pytest

from tests import tree

MODULES = [
    name
    for name, path in tree.modules(*tree.PACKAGES)
    if re.search(r"^ *>>> ", path.read_text("utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("name", MODULES)
def test_examples_hold(name: str) -> None:
    failed, tried = doctest.testmod(
        importlib.import_module(name),
        optionflags=doctest.ELLIPSIS,
    )

    assert (failed, tried > 0) == (0, True)
