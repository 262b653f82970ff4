"""Containers really run: services by testcontainers, and two `run` and `apply` of our own image.

Each container is killed while rows are written, and started again; `verify` finds them equal.  Then
the same by compose.yaml, with podman-compose.
"""

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from testcontainers.core.container import DockerContainer

from gauss_cdc.runtime import jars, java
from gauss_cdc_lab.services import Addresses, docker
from gauss_cdc_lab.services.local import NAMES
from gauss_cdc_lab.services.process import free_ports, poll
from tests.containers import engine, images
from tests.containers.engine import Podman
from tests.e2e.path import ask, until
from tests.services_fixtures import execute

PATIENCE = 300.0
TOML = """\
[source]
dsn = "{source}?sslmode=disable"
[tables]
include = ["public.*"]
[kafka]
prefix = "cdc"
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[target]
dsn = "{target}?sslmode=disable"
[spark]
checkpoint = "/state/apply"
"""
# As an orchestrator would start it: nothing of the image may be written.
HARDENED = {
    "network_mode": "host",
    "read_only": True,
    "cap_drop": ["ALL"],
    "security_opt": ["no-new-privileges"],
}


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    """An engine that answers at DOCKER_HOST, with all images."""
    if why := engine.why_not():
        pytest.skip(f"containers were left out: {why}")
    kept = os.environ.get("GAUSS_CDC_CONTAINERS")  # images that the next run finds again
    folder = Path(kept) if kept else tmp_path_factory.mktemp("containers")
    made = Podman(folder)
    images.build(made)
    with made.served() as address, pytest.MonkeyPatch.context() as patch:
        patch.setenv("DOCKER_HOST", address)
        patch.setenv("TESTCONTAINERS_RYUK_DISABLED", "true")
        for name, image in images.STANDS_IN.items():
            patch.setenv(f"GAUSS_CDC_{name.upper()}_IMAGE", image)
        assert poll(lambda: not docker.why_not(), PATIENCE), docker.why_not()
        yield made
    if not kept:
        subprocess.run(["podman", "system", "reset", "--force"], env=made.environment, check=True)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def services(podman: Podman) -> Iterator[docker.Containers]:
    spark_jars = jars.fetch(["spark"])["spark"]
    with docker.running(
        spark_jars=spark_jars, java_home=java.find(shims=jars.cache()).home
    ) as made:
        yield made


class Product:
    """`run` and `apply` as containers of the product's image, and a second one of each."""

    def __init__(self, folder: Path, addresses: Addresses) -> None:
        self.source, self.target = (addresses.postgres_url(name) for name in ("source", "target"))
        self._file = folder / "gauss-cdc.toml"
        self._file.write_text(
            TOML.format(
                source=self.source, target=self.target, kafka=addresses.kafka_bootstrap,
                registry=addresses.registry_url,
            )
        )  # fmt: skip
        self.containers = {
            f"{which} {name}": self.container(name)
            for which in ("first", "second")
            for name in ("run", "apply")
        }

    def container(self, *command: str) -> DockerContainer:
        made = DockerContainer(images.PRODUCT).with_command(list(command))
        made.with_volume_mapping(str(self._file), "/cdc/gauss-cdc.toml", "ro")
        made.tmpfs = {"/tmp": "", "/state": "mode=1777"}
        return made.with_kwargs(**HARDENED)

    def call(self, *command: str) -> tuple[int, str]:
        """Run a command in a container of its own; return its status and what it wrote."""
        with self.container(*command) as one:
            inside = one.get_wrapped_container()
            status = int(inside.wait(timeout=PATIENCE)["StatusCode"])
            return status, inside.logs().decode()

    def kill(self, name: str) -> None:
        self.containers[name].get_wrapped_container().kill()

    def start(self, name: str) -> None:
        self.containers[name].get_wrapped_container().start()


class Writer(threading.Thread):
    """Writes to the source until it is told to stop; a server that is away is tried again."""

    def __init__(self, source: str) -> None:
        super().__init__(daemon=True)
        self._source, self.ended, self.written = source, threading.Event(), 0

    def run(self) -> None:
        while not self.ended.is_set():
            try:
                execute(
                    self._source,
                    "INSERT INTO t (v) SELECT n FROM generate_series(1, 20) n;"
                    "UPDATE t SET v = v + 1 WHERE mod(id, 7) = 0;"
                    "DELETE FROM t WHERE mod(id, 11) = 0",
                )
                self.written += 1
            except psycopg2.Error:
                pass
            self.ended.wait(0.2)


@pytest.fixture
def product(services: docker.Containers, tmp_path: Path) -> Iterator[Product]:
    for name in ("source", "target"):
        execute(services.addresses.postgres_url("postgres"), f"CREATE DATABASE {name}")
    made = Product(tmp_path, services.addresses)
    execute(made.source, "CREATE TABLE t (id serial PRIMARY KEY, v int)")
    with ExitStack() as stack:
        for container in made.containers.values():
            stack.enter_context(container)
        yield made


def copied(product: Product) -> int:
    """How far the copy has come: the greatest key in it, and keys grow."""
    return next((int(key) for (key,) in told(product.target, "SELECT max(id) FROM t") if key), 0)


def test_each_container_is_killed_while_rows_are_written_and_the_copy_is_equal(
    product: Product, services: docker.Containers
) -> None:
    writer = Writer(product.source)
    writer.start()
    until(lambda: copied(product) > 0, "the first rows", time.sleep, PATIENCE)

    for name in (*NAMES, *product.containers):  # who works, or who waits
        owner = services if name in NAMES else product
        owner.kill(name)
        written = writer.written
        owner.start(name)
        until(lambda w=written: writer.written > w + 5, f"rows behind {name}", time.sleep, PATIENCE)
        ((last,),) = ask(product.source, "SELECT max(id) FROM t")
        until(lambda at=last: copied(product) >= at, f"{name} is back", time.sleep, PATIENCE)

    writer.ended.set()
    writer.join()
    assert product.call("wait", "--timeout", "200s")[0] == 0
    status, said = product.call("verify")
    assert status == 0, said
    # SIGTERM ends all cleanly, before the engine kills them.
    for name, container in product.containers.items():
        inside = container.get_wrapped_container()
        inside.stop(timeout=10)
        assert inside.wait()["StatusCode"] in {0, 143}, (name, inside.logs()[-2000:])


def test_the_image_has_a_user_without_rights_and_no_compiler(
    podman: Podman, record_property: Callable[[str, object], None]
) -> None:
    inside = ("run", "--rm", "--network=host", "--read-only", "--entrypoint", "sh", images.PRODUCT)
    assert podman(*inside, "-c", "id -u") == "10001"
    assert podman(*inside, "-c", "command -v gcc cc make || true") == ""
    assert podman(*inside, "-c", "gauss-cdc --version").startswith("gauss-cdc, version ")
    assert podman(*inside, "-c", "touch /opt/gauss-cdc/x 2>/dev/null || echo refused") == "refused"
    record_property("bytes", podman("image", "inspect", "--format", "{{.Size}}", images.PRODUCT))


def test_compose_starts_services_and_product_and_the_copy_is_equal(podman: Podman) -> None:
    """By podman-compose; `docker compose` itself was never tried."""
    ports = dict(zip(("POSTGRES", "KAFKA", "REGISTRY"), free_ports(3), strict=True))
    environment = podman.environment | {f"{name}_PORT": str(port) for name, port in ports.items()}
    environment |= {"GAUSS_CDC_IMAGE": images.PRODUCT} | {
        f"GAUSS_CDC_{name.upper()}_IMAGE": image for name, image in images.STANDS_IN.items()
    }

    def compose(*arguments: str) -> None:
        command = [sys.executable, "-m", "podman_compose", "-f", "docker/compose.yaml"]
        done = subprocess.run(
            [*command, *arguments], env=environment, cwd=images.ROOT, capture_output=True,
            text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{arguments}: {done.stdout}\n{done.stderr}"

    url = f"postgresql://postgres@127.0.0.1:{ports['POSTGRES']}"
    try:
        compose("up", "--detach", "--no-build")
        until(lambda: told(f"{url}/target", "SELECT 1") != [], "PostgreSQL", time.sleep, PATIENCE)
        execute(f"{url}/source", "CREATE TABLE t (id int PRIMARY KEY, v int)")
        execute(f"{url}/source", "INSERT INTO t SELECT n, n FROM generate_series(1, 500) n")
        asked = "SELECT id, v FROM t ORDER BY id"
        rows = ask(f"{url}/source", asked)
        until(lambda: told(f"{url}/target", asked) == rows, "rows", time.sleep, PATIENCE)
        compose("exec", "-T", "apply", "gauss-cdc", "wait", "--timeout", "200s")
        compose("exec", "-T", "apply", "gauss-cdc", "verify")
        for name in ("run", "apply"):
            podman("healthcheck", "run", f"gauss-cdc_{name}_1")
    finally:
        compose("down", "--volumes")


def told(url: str, statement: str) -> list[tuple[Any, ...]]:
    """What a statement returns; nothing where the server, or the table, is not there."""
    try:
        return ask(url, statement)
    except psycopg2.Error:
        return []
