"""What a local PostgreSQL that does not answer is reported as."""

import pytest

from gauss_cdc_lab.services import postgres
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.process import LOOPBACK, free_ports


def test_a_server_that_does_not_answer_is_no_fault_of_ours() -> None:
    (port,) = free_ports(1)

    with pytest.raises(ServiceError, match=r"PostgreSQL does not answer: .*refused"):
        postgres.create_database(f"postgresql://postgres@{LOOPBACK}:{port}/postgres", "source")
