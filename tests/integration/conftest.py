"""Fixtures of the sink's tests."""

from collections.abc import Callable, Iterator

import pytest

from tests.integration.postgres_target import Target


@pytest.fixture(params=["postgres", "opengauss"])
def kind(request) -> str:
    return request.param


@pytest.fixture
def target(new_database: Callable[[], str], kind: str) -> Iterator[Target]:
    one = Target(new_database(), kind)
    yield one
    one.sink.close()
