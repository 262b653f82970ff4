"""Services that keep running in a folder, and services for as long as a block runs."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from rich.console import Console

from gauss_cdc.services import docker, jars, java, postgres
from gauss_cdc.services.addresses import Addresses, from_environment
from gauss_cdc.services.errors import ServiceError
from gauss_cdc.services.local import NAMES, LocalServices, Name

CONFIGURATION: Final = "gauss-cdc.toml"

_TOML: Final = """\
# Made by `gauss-cdc services up`: two empty databases, source and target.

[source]
kind = "postgres"
dsn = "{source}"
slot = "gauss_cdc"

[tables]
include = ["public.*"]

[kafka]
prefix = "local"

[kafka.client]
"bootstrap.servers" = "{kafka}"

[registry]
url = "{registry}"

[target]
kind = "postgres"
dsn = "{target}"

[spark]
master = "local[*]"
checkpoint = "{checkpoint}"
"""


def up(directory: Path, *, console: Console | None = None) -> Addresses:
    """Start the services of a folder and leave them running; safe to repeat.

    Makes two databases, `source` and `target`, and a configuration for them,
    unless they are there.
    """
    services = LocalServices(directory, keep=True, console=console)
    addresses = services.start()
    for name in ("source", "target"):
        postgres.create_database(addresses.postgres_url(), name)
    if not (file := services.directory / CONFIGURATION).exists():
        text = _TOML.format(
            source=addresses.postgres_url("source"),
            target=addresses.postgres_url("target"),
            kafka=addresses.kafka_bootstrap,
            registry=addresses.registry_url,
            checkpoint=services.directory / "state",
        )
        file.write_text(text, encoding="utf-8")
    return addresses


def down(directory: Path) -> tuple[Name, ...]:
    """Stop the services of a folder, keep its data; return which were running."""
    return LocalServices(directory, keep=True).stop()


def env(directory: Path) -> dict[str, str]:
    """The running services of a folder, as environment variables for other programs."""
    services = LocalServices(directory, keep=True)
    if missing := [name for name in NAMES if name not in services.running()]:
        raise ServiceError(
            f"not running in {services.directory}: {', '.join(missing)}",
            hint=f"Start them: gauss-cdc services up --dir {services.directory}",
        )
    return services.start().environment()  # starts nothing: all run


@contextmanager
def running(directory: Path, *, console: Console | None = None) -> Iterator[Addresses]:
    """The services that GAUSS_CDC_SERVICES chooses, for as long as the block runs."""
    chosen = choice()
    if chosen == "embedded":
        with LocalServices(directory, console=console) as services:
            yield services.addresses
        return
    spark_jars = jars.fetch(["spark"], console=console)["spark"]
    java_home = java.find(shims=jars.cache()).home
    if chosen == "docker":
        with docker.running(spark_jars=spark_jars, java_home=java_home) as addresses:
            yield addresses
    else:
        yield from_environment(spark_jars=spark_jars, java_home=java_home)


def choice() -> Literal["embedded", "docker", "external"]:
    """Which services GAUSS_CDC_SERVICES chooses."""
    match os.environ.get("GAUSS_CDC_SERVICES", "embedded"):
        case "embedded" | "docker" | "external" as chosen:
            return chosen
        case other:
            raise ServiceError(
                f"GAUSS_CDC_SERVICES={other} is unknown",
                hint="Set embedded (or nothing), docker or external.",
            )
