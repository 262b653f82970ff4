"""Whatever bytes come, the walker takes a row as Python writes it, or stops before it."""

import pytest

from tests.producer.native.any_bytes import Fuzz


@pytest.mark.parametrize("seed", range(3))
def test_a_mutated_message_is_a_row_as_python_writes_it_or_a_stop(seed: int) -> None:
    fuzz = Fuzz(seed)

    for _ in range(1_500):
        fuzz.once()

    assert min(fuzz.rows, fuzz.stops) > 400
