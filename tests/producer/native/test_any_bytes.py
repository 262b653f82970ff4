"""Whatever bytes come, the walker takes a row as Python writes it, or stops before it."""

import pytest

from tests.producer.native.any_bytes import Fuzz, GaussFuzz


@pytest.mark.parametrize("seed", range(3))
def test_a_mutated_message_is_a_row_as_python_writes_it_or_a_stop(seed: int) -> None:
    fuzz = Fuzz(seed)

    for _ in range(1_500):
        fuzz.once()

    assert min(fuzz.rows, fuzz.stops) > 400


def test_a_mutated_stream_of_gaussdb_is_taken_as_python_takes_it() -> None:
    rows = 0
    for seed in range(20):
        fuzz = GaussFuzz(seed)
        for _ in range(15):
            fuzz.once()
        rows += fuzz.rows

    assert rows > 500
