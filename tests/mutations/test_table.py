"""Every mutation still says something: its text stands once in its file, its tests are there."""

import pytest

from tests.mutations.run import ALL, ROOT
from tests.mutations.table import Mutation


@pytest.mark.parametrize("mutation", ALL, ids=lambda m: m.name)
def test_a_mutation_fits_the_product(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")

    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old
    assert mutation.tests
    for test in mutation.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists()
        assert not name or f"def {name}(" in (ROOT / path).read_text(encoding="utf-8")


def test_names_are_one_each() -> None:
    assert len({m.name for m in ALL}) == len(ALL)
