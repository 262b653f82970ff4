"""Whatever bytes come, rows are read as Python reads them, or left to it."""

import pytest

from spark_consumers.native import IS_BUILT
from tests.spark_consumers.native.any_bytes import AnyBytes


@pytest.mark.parametrize("seed", range(3))
def test_a_mutated_value_is_read_as_python_does_or_left_to_it(seed: int) -> None:
    fuzz = AnyBytes(seed)

    for _ in range(1_500):
        fuzz.once()

    assert fuzz.left > 200
    assert fuzz.read > 200 or not IS_BUILT
