"""The same services as containers, for those who run a Docker engine.

Ports are fixed on the host before the start, because a broker sends its clients
the address it was configured with.  testcontainers is an extra (`docker`) and is
imported only here.

GAUSS_CDC_POSTGRES_IMAGE, GAUSS_CDC_KAFKA_IMAGE, GAUSS_CDC_REGISTRY_IMAGE name other images.
"""

import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import psycopg2

from gauss_cdc_lab.services import kafka
from gauss_cdc_lab.services.addresses import Addresses
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.local import Name
from gauss_cdc_lab.services.process import LOOPBACK, free_ports, poll

# docker/compose.yaml names the same ones.
IMAGES: Final[Mapping[Name, str]] = {
    "postgres": "postgres:17",
    "kafka": "apache/kafka:4.2.1",
    "registry": "apicurio/apicurio-registry:3.0.9",
}

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


class Containers:
    """Three containers that answer."""

    def __init__(self, addresses: Addresses, containers: Mapping[Name, Any]) -> None:
        """`containers`: those of testcontainers."""
        self.addresses, self._containers = addresses, containers

    def kill(self, name: Name) -> None:
        """End a container as a lost machine does."""
        self._containers[name].get_wrapped_container().kill()

    def start(self, name: Name) -> None:
        """Start one again, with its data, and wait until it answers."""
        self._containers[name].get_wrapped_container().start()
        self.wait()

    def wait(self) -> None:
        """Wait until all answer."""
        if not poll(lambda: _all_answer(self.addresses), _START_SECONDS):
            raise ServiceError(
                "the containers did not answer in time", hint="Look at `docker ps` and their logs."
            )


@contextmanager
def running(*, spark_jars: tuple[Path, ...], java_home: Path) -> Iterator[Containers]:
    """Start three containers, wait until they answer, remove them at the end."""
    if reason := why_not():
        raise ServiceError(
            f"GAUSS_CDC_SERVICES=docker: {reason}",
            hint="pip install 'gauss-cdc-lab[docker]'; start an engine, or let DOCKER_HOST name it "
            "(`docker context` is not obeyed); or leave GAUSS_CDC_SERVICES unset: no Docker is "
            "needed then.",
        )
    from testcontainers.core.container import DockerContainer  # noqa: PLC0415 - optional

    inside: Mapping[Name, int] = {"postgres": 5432, "kafka": 9092, "registry": 8080}
    outside = dict(zip(inside, free_ports(len(inside)), strict=True))
    settings: Mapping[Name, Mapping[str, str]] = {
        "postgres": {"POSTGRES_HOST_AUTH_METHOD": "trust"},
        "kafka": _kafka_environment(outside["kafka"]),
        "registry": _REGISTRY,
    }
    containers: dict[Name, Any] = {}
    for name, port in inside.items():
        image = os.environ.get(f"GAUSS_CDC_{name.upper()}_IMAGE", IMAGES[name])
        container = containers[name] = DockerContainer(image)
        for variable, value in settings[name].items():
            container.with_env(variable, value)
        # An address, too: a port alone is published on every interface, and nobody asks for a
        # password behind it.
        ports: dict[Any, Any] = container.ports
        ports[port] = (LOOPBACK, outside[name])
    containers["postgres"].with_command(
        "-c wal_level=logical -c max_wal_senders=60 -c max_replication_slots=60"
    )
    addresses = Addresses(
        postgres_host=LOOPBACK,
        postgres_port=outside["postgres"],
        postgres_user="postgres",
        kafka_bootstrap=f"{LOOPBACK}:{outside['kafka']}",
        registry_url=f"http://{LOOPBACK}:{outside['registry']}/apis/ccompat/v7",
        spark_jars=spark_jars,
        java_home=java_home,
    )
    with ExitStack() as stack:
        for container in containers.values():
            stack.enter_context(container)
        made = Containers(addresses, containers)
        made.wait()
        yield made


# Ids stand in every record: a registry that was killed has to know them again.
_REGISTRY: Final = {
    "APICURIO_STORAGE_KIND": "sql",
    "APICURIO_STORAGE_SQL_KIND": "h2",
    "APICURIO_DATASOURCE_URL": "jdbc:h2:file:/tmp/schemas;WRITE_DELAY=0",
    "APICURIO_REST_DELETION_ARTIFACT_ENABLED": "true",
    "APICURIO_REST_DELETION_ARTIFACT_VERSION_ENABLED": "true",
}


def _kafka_environment(port: int) -> dict[str, str]:
    return {
        "KAFKA_NODE_ID": "1",
        "KAFKA_PROCESS_ROLES": "broker,controller",
        # The broker ends transactions by messages to itself: the host's port is not in there.
        "KAFKA_LISTENERS": "HOST://0.0.0.0:9092,INSIDE://localhost:19092,CONTROLLER://localhost:9093",
        "KAFKA_ADVERTISED_LISTENERS": f"HOST://{LOOPBACK}:{port},INSIDE://localhost:19092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": (
            "HOST:PLAINTEXT,INSIDE:PLAINTEXT,CONTROLLER:PLAINTEXT"
        ),
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        "KAFKA_CONTROLLER_LISTENER_NAMES": "CONTROLLER",
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
