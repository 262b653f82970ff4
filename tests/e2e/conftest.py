"""What tests of commands share."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path as File

import pytest

from gauss_cdc_lab.services import Addresses
from tests.e2e.commands import configured
from tests.e2e.path import Path


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    """Commands set handlers for the process; tests share one."""
    before = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def place(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str], tmp_path: File
) -> Iterator[tuple[Path, File]]:
    """A path between two databases, and the configuration file of its commands."""
    source, target = new_database(), new_database()
    file = configured(tmp_path, addresses, topic_prefix, source, target)
    with Path(addresses, topic_prefix, source, target) as path:
        yield path, file
