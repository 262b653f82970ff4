"""The same services as containers, for those who run a Docker engine.

Ports are fixed on the host before the start, because a broker sends its clients
the address it was configured with.  testcontainers is an extra (`docker`) and is
imported only here.  Unproven: no Docker engine was at hand when this was written.
"""

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg2

from gauss_cdc_lab.services import kafka
from gauss_cdc_lab.services.addresses import Addresses
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.process import LOOPBACK, free_ports, poll

# docker/compose.yaml names the same ones.
POSTGRES_IMAGE: Final = "postgres:17"
KAFKA_IMAGE: Final = "apache/kafka:4.2.1"
REGISTRY_IMAGE: Final = "apicurio/apicurio-registry:3.0.9"

_START_SECONDS: Final = 300.0


def why_not() -> str:
    """Say why containers cannot be started here; "": they can."""
    try:
        from testcontainers.core.docker_client import DockerClient  # noqa: PLC0415 - optional
    except ImportError:
        return "testcontainers is not installed"
    try:
        DockerClient(timeout=2).client.ping()
    except Exception as exc:  # noqa: BLE001  the client's errors have no common base
        return f"no Docker engine answers ({type(exc).__name__})"
    return ""


@contextmanager
def running(*, spark_jars: tuple[Path, ...], java_home: Path) -> Iterator[Addresses]:
    """Start three containers, wait until they answer, remove them at the end."""
    if reason := why_not():
        raise ServiceError(
            f"GAUSS_CDC_SERVICES=docker: {reason}",
            hint="pip install 'gauss-cdc-lab[docker]'; start an engine, or let DOCKER_HOST name it "
            "(`docker context` is not obeyed); or leave GAUSS_CDC_SERVICES unset: no Docker is "
            "needed then.",
        )
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - optional

    postgres_port, kafka_port, registry_port = free_ports(3)
    postgres = (
        DockerContainer(POSTGRES_IMAGE)
        .with_env("POSTGRES_HOST_AUTH_METHOD", "trust")
        .with_command("-c wal_level=logical -c max_wal_senders=60 -c max_replication_slots=60")
    )
    broker = DockerContainer(KAFKA_IMAGE)
    for name, value in _kafka_environment(kafka_port).items():
        broker = broker.with_env(name, value)
    registry = DockerContainer(REGISTRY_IMAGE)
    for container, inside, outside in (
        (postgres, 5432, postgres_port),
        (broker, 9092, kafka_port),
        (registry, 8080, registry_port),
    ):
        # An address, too: a port alone is published on every interface, and nobody asks for a
        # password behind it.
        ports: dict[Any, Any] = container.ports
        ports[inside] = (LOOPBACK, outside)
    addresses = Addresses(
        postgres_host=LOOPBACK,
        postgres_port=postgres_port,
        postgres_user="postgres",
        kafka_bootstrap=f"{LOOPBACK}:{kafka_port}",
        registry_url=f"http://{LOOPBACK}:{registry_port}/apis/ccompat/v7",
        spark_jars=spark_jars,
        java_home=java_home,
    )
    with ExitStack() as stack:
        for container in (postgres, broker, registry):
            stack.enter_context(container)
        if not poll(lambda: _all_answer(addresses), _START_SECONDS):
            raise ServiceError(
                "the containers did not answer in time", hint="Look at `docker ps` and their logs."
            )
        yield addresses


def _kafka_environment(port: int) -> dict[str, str]:
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        "KAFKA_LISTENERS": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://localhost:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"PLAINTEXT://{LOOPBACK}:{port}",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "KAFKA_CONTROLLER_QUORUM_VOTERS": "1@localhost:9093",
        "KAFKA_AUTO_CREATE_TOPICS_ENABLE": "false",
        "KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR": "1",
        "KAFKA_TRANSACTION_STATE_LOG_MIN_ISR": "1",
        "KAFKA_TRANSACTION_MAX_TIMEOUT_MS": "900000",
        "KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS": "0",
    }


def _all_answer(addresses: Addresses) -> bool:
    try:
        psycopg2.connect(addresses.postgres_url(), connect_timeout=2).close()
        if not kafka.answers(addresses.kafka_bootstrap):
            return False
        with urllib.request.urlopen(f"{addresses.registry_url}/subjects", timeout=5):  # noqa: S310 - our own http
            return True
    except (psycopg2.OperationalError, urllib.error.URLError, OSError):
        return False
