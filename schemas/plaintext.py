"""Logins that send what they prove over a network without TLS: refused by both halves.

PLAIN sends the password itself, OAUTHBEARER and HTTP a token or a password that whoever reads
the network may use again.  SCRAM and Kerberos send proofs, which are worth nothing to others.
"""

from __future__ import annotations

import ipaddress
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

_JAVA: Final = "kafka."  # begins the name of a setting of the Java client itself
_REVEALING: Final = ("PLAIN", "OAUTHBEARER")
_TOKEN_FROM: Final = "sasl.oauthbearer.token.endpoint.url"  # noqa: S105
_REGISTRY_LOGIN: Final = ("basic.auth.user.info", "sasl.password", "bearer.auth.")
_REGISTRY_TOKEN_FROM: Final = "bearer.auth.issuer.endpoint.url"  # noqa: S105
# What Confluent's client and libcurl take for http:// addresses.
_PROXIES: Final = ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def is_loopback(host: str) -> bool:
    """Whether a host is this machine: a Unix socket, 127.0.0.0/8, ::1, localhost.

    >>> is_loopback("/run/postgresql"), is_loopback("127.0.0.2"), is_loopback("db")
    (True, True, False)
    """
    if host.startswith(("/", "@")) or host.lower().rstrip(".") == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return bool((mapped or address).is_loopback)


def brokers(client: Mapping[str, Any]) -> list[str]:
    """Return the hosts of `[SASL_SSL://]host:port,[::1]:port`.

    >>> brokers({"bootstrap.servers": "SASL_SSL://kafka:9093, [::1]:9092"})
    ['kafka', '::1']

    Of both names of the setting: librdkafka takes the one that it is given last.
    """
    given = (client.get(name, "") for name in ("bootstrap.servers", "metadata.broker.list"))
    servers = [server for several in given for server in str(several or "").split(",")]
    return [_parts(server).host for server in servers if server.strip()]


def of_kafka(client: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each setting that lets a login be read, and what it does.

    `client`: librdkafka's settings, and with `kafka.` before their names the Java client's own.
    """
    said = {name: str(value) for name, value in client.items() if not name.startswith(_JAVA)}
    own = {n.removeprefix(_JAVA): str(v) for n, v in client.items() if n.startswith(_JAVA)}
    yield from _of_client(said, "")
    if own:
        is_theirs = any(name.startswith("sasl.") for name in own)
        kept = {n: v for n, v in said.items() if not (is_theirs and n.startswith("sasl."))}
        yield from _of_client(kept | own, _JAVA)


def _of_client(said: Mapping[str, str], prefix: str) -> Iterator[tuple[str, str]]:
    protocol = said.get("security.protocol", "").strip().upper()
    named = {said.get(name, "").strip().upper() for name in ("sasl.mechanism", "sasl.mechanisms")}
    used = [mechanism for mechanism in _REVEALING if mechanism in named]
    if not (used and protocol.startswith("SASL")):
        return
    if protocol == "SASL_PLAINTEXT" and (away := _away(brokers(said))):
        yield (
            f"{prefix}security.protocol",
            f"{used[0]} would send a login to {away} without TLS: use SASL_SSL, or SCRAM",
        )
    url = said.get(_TOKEN_FROM, "")
    if "OAUTHBEARER" in used and (away := _away(_without_tls(url))):
        yield f"{prefix}{_TOKEN_FROM}", _said("the client's secret", away)


def of_registry(url: str, options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the same for the registry: `url`, or `options/` and a setting of its client.

    Options go over the URL.
    """
    at = "options/url" if options.get("url") else "url"
    urls = str(options.get("url") or url).split(",")
    proxy = str(options.get("proxy") or "")
    has_login = any(name.startswith(_REGISTRY_LOGIN) for name in options)
    has_login = has_login or any(_parts(one).login for one in urls)
    if has_login and (away := _away(host for one in urls for host in _without_tls(one, proxy))):
        yield at, _said("credentials", away)
    if away := _away(_without_tls(str(options.get(_REGISTRY_TOKEN_FROM, "")))):
        yield f"options/{_REGISTRY_TOKEN_FROM}", _said("the client's secret", away)


def _said(what: str, away: str) -> str:
    return f"{what} would be sent to {away} without TLS: use https://"


class _Address(NamedTuple):
    scheme: str
    login: str
    host: str


# urllib's own parser is not for `schemas`, which touch no network.
_ADDRESS: Final = re.compile(
    r"\s*(?:(?P<scheme>\w+)://)?(?:(?P<login>[^/?#]*)@)?\[?(?P<host>(?<=\[)[^\]]*|[^:/?#]*)"
)


def _parts(url: str) -> _Address:
    found = _ADDRESS.match(url)
    assert found is not None  # every part may be empty
    return _Address(*(found[name] or "" for name in _Address._fields))


def _without_tls(url: str, proxy: str = "") -> list[str]:
    """Hosts that read what is sent there; `proxy`: of this client, over those of all."""
    parts = _parts(url)
    if parts.scheme.lower() != "http":
        return []
    proxy = proxy or _proxy_for(parts.host)
    return [parts.host, _parts(proxy).host] if proxy else [parts.host]


def _proxy_for(host: str) -> str:
    """The proxy that the environment names for a host, "": none."""
    excepted = os.environ.get("no_proxy") or os.environ.get("NO_PROXY") or ""
    for one in map(str.strip, excepted.split(",")):
        name = one.lstrip(".").lower()
        if one == "*" or (name and (host.lower() == name or host.lower().endswith(f".{name}"))):
            return ""
    return next((found for name in _PROXIES if (found := os.environ.get(name))), "")


def _away(hosts: Iterable[str]) -> str:
    """The first host that is not this machine; "": all are."""
    return next((host for host in hosts if not is_loopback(host)), "")
