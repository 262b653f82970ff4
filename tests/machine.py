"""What a run takes of the machine: where it writes, and how often it looks for garbage.

Files of tests live for seconds, and each database of PostgreSQL is 300 of them.  On a disk their
making and removal is a tenth of the CPU of tests with services (ext4 passes over inodes that were
just freed, one by one), so they lie in memory where there is enough of it.  TMPDIR decides where
it is set.

A worker holds 424,000 objects once every test is collected.  Python would look through them again
and again: a third of the CPU of the collection.  What is there after it stays till the end, and is
looked at no more.
"""

import gc
import os
import tempfile
from pathlib import Path
from typing import Final

import pytest

_MEMORY: Final = Path("/dev/shm")  # Linux keeps it in memory
_ENOUGH: Final = 16 << 30  # bytes; a server may keep 1 GiB of log, and four workers have Java, too
_ALLOCATIONS: Final = (100_000, 20, 100)  # as `gauss-cdc run` has it


def choose_folder() -> None:
    """Let this program, and those that it starts, write into memory if there is enough."""
    if "TMPDIR" not in os.environ and _is_enough():
        os.environ["TMPDIR"] = str(_MEMORY)
        tempfile.tempdir = None  # it may have been asked already


def _is_enough() -> bool:
    try:
        found = os.statvfs(_MEMORY)
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:  # not Linux
        return False
    available = {
        name: int(rest.split()[0]) << 10 for name, _, rest in (x.partition(":") for x in lines)
    }
    return (
        not found.f_flag & os.ST_NOEXEC  # as in containers: tests load what they build
        and found.f_bavail * found.f_frsize >= _ENOUGH
        and available.get("MemAvailable", 0) >= _ENOUGH
    )


choose_folder()
gc.set_threshold(*_ALLOCATIONS)


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.collect()
    gc.freeze()
