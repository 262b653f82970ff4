"""The file that rows of a held transaction go to."""

from pathlib import Path

import pytest

from producer.errors import DiskFull
from producer.sources.gauss.spill import SpillFile


def test_records_come_back_in_order_with_their_positions(tmp_path: Path) -> None:
    spill = SpillFile(str(tmp_path))
    records = [(7, b"one"), (1 << 63, b""), (8, b"\x00" * 3_000_000)]
    for record in records:
        spill.add(*record)

    assert list(spill) == records
    spill.close()


def test_the_file_has_no_name_and_is_gone_with_the_process(tmp_path: Path) -> None:
    spill = SpillFile(str(tmp_path))
    spill.add(1, b"row")

    assert list(tmp_path.iterdir()) == []
    spill.close()


def test_a_folder_that_cannot_be_written_is_named_with_the_setting(tmp_path: Path) -> None:
    with pytest.raises(DiskFull, match="TMPDIR"):
        SpillFile(str(tmp_path / "missing"))


def test_a_full_disk_is_an_error_and_closing_is_not() -> None:
    spill = SpillFile.__new__(SpillFile)
    spill._folder = "/dev"
    spill._file = open("/dev/full", "w+b", buffering=0)  # noqa: PTH123, SIM115

    with pytest.raises(DiskFull, match="No space"):
        spill.add(1, b"row")
    spill.close()
