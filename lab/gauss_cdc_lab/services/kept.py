"""Services that keep running in a folder, and services for as long as a block runs."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

from psycopg2 import sql
from rich.console import Console

from gauss_cdc.runtime import jars, java
from gauss_cdc_lab.services import docker, postgres
from gauss_cdc_lab.services.addresses import Addresses, from_environment
from gauss_cdc_lab.services.errors import ServiceError
from gauss_cdc_lab.services.local import NAMES, LocalServices, Name

CONFIGURATION: Final = "gauss-cdc.toml"

_TOML: Final = """\
# Made by `gauss-cdc services up`: two empty databases, source and target, each with a role that has
# the rights it needs and no more. Tables are made by the administrator:
#   PGPASSFILE={secrets}/pgpass psql {admin}
# and where it installs triggers (`gauss-cdc ddl install --dsn {admin}`),
# by GAUSS_CDC_SOURCE_PASSWORD="$(cat {secrets}/admin)"

[source]
kind = "postgres"
dsn = "{source}"
password-file = "{secrets}/source"
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
password-file = "{secrets}/target"

[spark]
master = "local[*]"
checkpoint = "{checkpoint}"
"""


SOURCE_ROLE: Final = "cdc_source"
TARGET_ROLE: Final = "cdc_target"
_SECRETS: Final = "secrets"
_WHO: Final = ("admin", "source", "target")


def up(directory: Path, *, console: Console | None = None) -> Addresses:
    """Start the services of a folder and leave them running; safe to repeat.

    Makes two databases, `source` and `target`, a role for each with a random
    password, and a configuration for them, unless they are there.
    """
    directory = directory.expanduser().absolute()
    passwords = _passwords(directory) or _make_passwords(directory)
    services = LocalServices(
        directory, keep=True, password=passwords.get("admin", ""), console=console
    )
    addresses = services.start()
    for name in ("source", "target"):
        postgres.create_database(addresses.postgres_url(), name)
    if (file := services.directory / CONFIGURATION).exists():
        return addresses
    if passwords:
        _make_roles(addresses, passwords)
        _write_secret(
            services.directory / _SECRETS / "pgpass",
            "".join(
                f"{addresses.postgres_host}:{addresses.postgres_port}:*:{user}:{passwords[who]}\n"
                for user, who in (
                    (addresses.postgres_user, "admin"),
                    (SOURCE_ROLE, "source"),
                    (TARGET_ROLE, "target"),
                )
            ),
        )
    text = _TOML.format(
        source=addresses.public_url("source", SOURCE_ROLE),
        target=addresses.public_url("target", TARGET_ROLE),
        admin=addresses.public_url("source", addresses.postgres_user),
        secrets=services.directory / _SECRETS,
        kafka=addresses.kafka_bootstrap,
        registry=addresses.registry_url,
        checkpoint=services.directory / "state",
    )
    _write_secret(file, text)
    return addresses


def down(directory: Path) -> tuple[Name, ...]:
    """Stop the services of a folder, keep its data; return which were running."""
    return LocalServices(directory, keep=True).stop()


def env(directory: Path) -> dict[str, str]:
    """The running services of a folder, as environment variables for other programs.

    Among them the administrator's password.
    """
    passwords = _passwords(directory.expanduser().absolute())
    services = LocalServices(directory, keep=True, password=passwords.get("admin", ""))
    if missing := [name for name in NAMES if name not in services.running()]:
        raise ServiceError(
            f"not running in {services.directory}: {', '.join(missing)}",
            hint=f"Start them: gauss-cdc services up --dir {services.directory}",
        )
    return services.start().environment()  # starts nothing: all run


def _passwords(directory: Path) -> dict[str, str]:
    """The passwords of a folder; none where it was not made yet."""
    files = {who: directory / _SECRETS / who for who in _WHO}
    if not all(file.exists() for file in files.values()):
        return {}
    return {who: file.read_text("ascii").rstrip("\n") for who, file in files.items()}


def _make_passwords(directory: Path) -> dict[str, str]:
    """Make a folder that only its owner may enter, and random passwords in it."""
    if (directory / "postgres").exists():
        raise ServiceError(
            f"the services in {directory} were made without passwords, by an older version",
            hint="Choose another folder, or remove this one after `gauss-cdc services down`.",
        )
    try:
        directory.mkdir(parents=True, exist_ok=True)
        directory.chmod(0o700)
        (directory / _SECRETS).mkdir(mode=0o700, exist_ok=True)
        passwords = {who: secrets.token_urlsafe(24) for who in _WHO}
        for who, password in passwords.items():
            _write_secret(directory / _SECRETS / who, password + "\n")
    except OSError as exc:
        raise ServiceError(
            f"cannot write {directory}: {exc.strerror}", hint="Choose another folder."
        ) from exc
    return passwords


def _write_secret(file: Path, text: str) -> None:
    """Write a file that is never readable for others."""
    draft = file.with_name(f"{file.name}.new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
        out.write(text)
    draft.replace(file)


def _make_roles(addresses: Addresses, passwords: Mapping[str, str]) -> None:
    """The roles of docs/security.md, with their least rights."""
    admin = sql.Identifier(addresses.postgres_user)
    for database, role, statements in (
        ("source", SOURCE_ROLE, _SOURCE_RIGHTS),
        ("target", TARGET_ROLE, _TARGET_RIGHTS),
    ):
        names = {
            "role": sql.Identifier(role),
            "admin": admin,
            "password": sql.Literal(passwords[database]),
        }
        postgres.run_as_admin(
            addresses.postgres_url(database),
            *(sql.SQL(text).format(**names) for text in statements.strip().split(";\n")),
        )


# The first statements take away what an attempt left that was killed.
_FRESH: Final = """
DO $$ BEGIN DROP OWNED BY {role}; EXCEPTION WHEN undefined_object THEN END $$;
DROP ROLE IF EXISTS {role};
"""
_SOURCE_RIGHTS: Final = f"""
DROP PUBLICATION IF EXISTS gauss_cdc;
{_FRESH.strip()}
CREATE ROLE {{role}} LOGIN REPLICATION PASSWORD {{password}};
GRANT CONNECT ON DATABASE source TO {{role}};
GRANT USAGE ON SCHEMA public TO {{role}};
GRANT SELECT ON ALL TABLES IN SCHEMA public TO {{role}};
ALTER DEFAULT PRIVILEGES FOR ROLE {{admin}} IN SCHEMA public GRANT SELECT ON TABLES TO {{role}};
CREATE PUBLICATION gauss_cdc FOR ALL TABLES WITH (publish_via_partition_root = true);
CREATE SCHEMA gauss_cdc AUTHORIZATION {{role}}
"""
# The right on a parameter is of 15 and newer; before, only a superuser has it, and `check` says so.
_TARGET_RIGHTS: Final = f"""
{_FRESH.strip()}
CREATE ROLE {{role}} LOGIN PASSWORD {{password}};
GRANT CONNECT, TEMPORARY, CREATE ON DATABASE target TO {{role}};
GRANT USAGE, CREATE ON SCHEMA public TO {{role}};
DO $$ BEGIN EXECUTE 'GRANT SET ON PARAMETER session_replication_role TO {TARGET_ROLE}'
; EXCEPTION WHEN syntax_error THEN END $$;
CREATE SCHEMA gauss_cdc AUTHORIZATION {{role}}
"""


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
        with docker.running(spark_jars=spark_jars, java_home=java_home) as containers:
            yield containers.addresses
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
