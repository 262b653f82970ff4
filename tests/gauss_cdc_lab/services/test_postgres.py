"""What a local PostgreSQL that does not answer is reported as."""

from typing import get_args

import pytest

from gauss_cdc.runtime import jars
from gauss_cdc_lab.services import postgres
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.process import LOOPBACK, free_ports


def test_a_server_that_does_not_answer_is_no_fault_of_ours() -> None:
    (port,) = free_ports(1)

    with pytest.raises(ServiceError, match=r"PostgreSQL does not answer: .*refused"):
        postgres.create_database(f"postgresql://postgres@{LOOPBACK}:{port}/postgres", "source")


@pytest.mark.parametrize("version", get_args(postgres.Version))
def test_each_version_is_chosen_by_its_number(version: str, monkeypatch) -> None:
    monkeypatch.setenv("GAUSS_CDC_POSTGRES", version)
    monkeypatch.setattr("platform.system", lambda: "Linux")
    monkeypatch.setattr("platform.machine", lambda: "x86_64")

    chosen = postgres.kind()

    assert postgres.installed(chosen) is None
    assert [one.version.partition(".")[0] for one in jars.lock(postgres.lock_name(chosen))] == [
        version
    ]


def test_a_version_that_cannot_be_fetched_is_refused(monkeypatch) -> None:
    monkeypatch.setenv("GAUSS_CDC_POSTGRES", "11")

    with pytest.raises(ServiceError, match="GAUSS_CDC_POSTGRES=11 is unknown") as raised:
        postgres.kind()

    assert raised.value.hint == "Set auto, system, embedded, 12, 13, 14, 16, 17 or 18."
