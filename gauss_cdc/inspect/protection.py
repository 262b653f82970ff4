"""How each connection of a configuration is protected, for `check`.

The protection of a database connection is read over our own wire, which knows what the
server asked for; psycopg2 connects by the same settings (`producer.sources.dsn`).
For Kafka and the registry it is what their clients were configured with.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from typing import Any, Final
from urllib.parse import urlsplit

from gauss_cdc import target, wiring
from gauss_cdc.config import Config
from gauss_cdc.config_serve import ServeSection
from gauss_cdc.errors import ConfigError
from producer.errors import CdcError
from producer.options import Options
from producer.sources.base import REPLICATION, CatalogSession
from producer.sources.kinds import SOURCES
from schemas.findings import Finding, Level, refused
from schemas.plaintext import brokers, is_loopback
from spark_consumers.errors import SettingRefused
from spark_consumers.security import java_client

_WAY: Final = "sslmode=verify-full, and sslrootcert=FILE for a private authority"


def protections(config: Config, silent: Collection[str] = ()) -> Iterator[Finding]:
    """Yield a line for each connection; one that cannot be made is the others' to report.

    `silent`: which are known not to answer, of "source" and each "target NAME".
    """
    options = wiring.producer_options(config)
    yield from _databases(config, options, silent)
    yield kafka(config.kafka.client_settings())
    if config.target is not None:
        try:
            java_client(config.spark_client())
        except SettingRefused as error:
            what = f"{error.what}: {error.where['setting']}"
            yield Finding(Level.ERROR, "connection Kafka, Spark", what, error.hint)
    yield registry(config.registry.url, config.registry.client())
    if config.serve.listen:
        yield served(config.serve)


def _databases(config: Config, options: Options, silent: Collection[str]) -> Iterator[Finding]:
    if "source" not in silent:
        for name, login in SOURCES[options.kind].logins(options).items():
            yield from _looked_at(name, login)
    for one in config.targets if config.target is not None else ():
        if (log_in := target.login(one)) is not None and f"target {one.name}" not in silent:
            for finding in _looked_at("target", log_in):
                yield named(finding, one, config)


def named(finding: Finding, one: Config, config: Config) -> Finding:
    """Say which target of a configuration it is of, where there are several."""
    return replace(finding, target=one.name) if len(config.targets) > 1 else finding


def _looked_at(name: str, login: Callable[[], CatalogSession]) -> Iterator[Finding]:
    try:
        session = login()
    except CdcError as error:
        if name == REPLICATION:  # only this login is used so; errors of the others are reported
            yield refused(f"connection {name}", error)
        return
    with closing(session):
        arguments, protection = session.arguments, session.protection
        is_safe = arguments.is_local or (session.is_encrypted and arguments.is_verified)
    yield _finding(name, protection, _WAY, is_safe=is_safe)


def kafka(client: Mapping[str, Any]) -> Finding:
    """How Kafka's connections are protected, by librdkafka's settings."""
    protocol = str(client.get("security.protocol", "plaintext")).lower()
    is_local = all(is_loopback(host) for host in brokers(client))
    facts = []
    is_safe = is_local
    if protocol in ("ssl", "sasl_ssl"):
        is_checked = _is_true(client.get("enable.ssl.certificate.verification", True))
        is_named = str(client.get("ssl.endpoint.identification.algorithm", "https")) != "none"
        is_safe = is_local or (is_checked and is_named)
        facts += ["TLS"]
        facts += [
            "not verified" if not is_checked else "verified" if is_named else "name not verified"
        ]
        if {"ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location"} & set(
            client
        ):
            facts += ["client certificate"]
    else:
        facts += ["not encrypted"]
    if protocol.startswith("sasl"):
        facts += [str(client.get("sasl.mechanism", client.get("sasl.mechanisms", "GSSAPI")))]
    elif "client certificate" not in facts:
        facts += ["no login"]
    way = 'set "security.protocol" = "SASL_SSL" or "SSL" in [kafka.client]'
    return _finding("Kafka", ", ".join(facts), way, is_safe=is_safe)


def registry(url: str, options: Mapping[str, Any] | None = None) -> Finding:
    """How the registry's connection is protected."""
    options = options or {}
    parts = [urlsplit(one.strip()) for one in url.split(",")]
    is_tls = all(part.scheme == "https" for part in parts)
    is_local = all(is_loopback(part.hostname or "") for part in parts)
    is_checked = options.get("ssl.ca.location") is not False  # so its client spells it
    facts = ["TLS", "verified" if is_checked else "not verified"] if is_tls else ["not encrypted"]
    if "ssl.certificate.location" in options:
        facts += ["client certificate"]
    if "basic.auth.user.info" in options:
        facts += ["password"]
    elif any(name.startswith("bearer.auth.") for name in options):
        facts += ["token"]
    elif "client certificate" not in facts:
        facts += ["no login"]
    way = "use an https:// URL, and ssl.ca.location for a private authority"
    is_safe = is_local or (is_tls and is_checked)
    return _finding("registry", ", ".join(facts), way, is_safe=is_safe)


def served(section: ServeSection) -> Finding:
    """How probes and metrics are protected; what [serve] may not be is refused before."""
    try:
        facts = ["not encrypted" if section.tls() is None else "TLS"]
    except ConfigError as error:
        return Finding(Level.ERROR, "serve", str(error))
    facts += ["token"] if section.token.get_secret_value() else []
    facts += ["client certificate"] if section.client_ca is not None else []
    facts += ["no login"] if len(facts) == 1 else []
    return Finding(Level.OK, "serve", f"{section.listen}: {', '.join(facts)}")


def _finding(name: str, protection: str, way: str, *, is_safe: bool) -> Finding:
    if is_safe:
        return Finding(Level.OK, f"connection {name}", protection)
    what = f"{protection}, and leaves this machine"
    return Finding(Level.WARNING, f"connection {name}", what, way)


def _is_true(value: object) -> bool:
    return str(value).lower() in ("true", "1", "t")
