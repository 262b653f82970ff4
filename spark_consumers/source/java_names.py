"""Settings of Kafka's Java client in librdkafka's names, for programs that bring them.

Pure, but for the files that are named.  The data source reads by librdkafka, and people come to it
from Spark's Kafka source.  What has another name or another form is translated; what has no
counterpart is refused by name, since librdkafka would refuse it, or be less protected without it.
The other direction is `security.java_client`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from spark_consumers.errors import SettingRefused

# The same thing under another name.
_RENAMED: Final = {
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": "socket.connection.setup.timeout.ms",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "ssl.truststore.certificates": "ssl.ca.pem",
}
# They say how a Java program gets its rows, which is ours to say.
_WITHOUT_MEANING: Final = frozenset({
    *("auto.offset.reset", "enable.auto.commit", "group.id", "isolation.level"),
    *("key.deserializer", "value.deserializer", "max.poll.records", "max.poll.interval.ms"),
})  # fmt: skip
_REFUSED: Final = {
    "sasl.login.callback.handler.class": "OAUTHBEARER is sasl.oauthbearer.method = oidc here",
    "sasl.client.callback.handler.class": "librdkafka runs no Java",
    "sasl.login.class": "librdkafka runs no Java",
    "ssl.engine.factory.class": "librdkafka runs no Java",
    "ssl.protocol": "librdkafka takes TLS 1.2 and later by itself: leave it out",
    "ssl.enabled.protocols": "librdkafka takes TLS 1.2 and later by itself: leave it out",
    "ssl.provider": "use PEM or PKCS #12 files",
    "security.providers": "use PEM or PKCS #12 files",
}
_JAAS: Final = "sasl.jaas.config"
_LOGIN: Final = re.compile(
    r"\s*[\w.$]*\.(?:PlainLoginModule|ScramLoginModule)\s+required\b(.*)", re.DOTALL
)
_OPTION: Final = re.compile(
    r"""\s*([\w.$-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))"""
)
_ESCAPED: Final = re.compile(r"\\(.)", re.DOTALL)
_LINES: Final = {"n": "\n", "r": "\r", "t": "\t"}


def librdkafka_client(given: Mapping[str, str]) -> dict[str, str]:
    """Return settings in librdkafka's names; what is librdkafka's already stays.

    Raises SettingRefused for a setting of the Java client without a counterpart.

    >>> librdkafka_client({"client.id": "x", "fetch.max.wait.ms": "10", "max.poll.records": "5"})
    {'client.id': 'x', 'fetch.wait.max.ms': '10'}
    """
    said = {name: value for name, value in given.items() if name not in _WITHOUT_MEANING}
    for name in sorted(said.keys() & _REFUSED.keys()):
        raise _refused(name, _REFUSED[name])
    out: dict[str, str] = {}
    if (jaas := said.pop(_JAAS, None)) is not None:
        out |= _login(jaas)
    out |= _store(said, "truststore") | _store(said, "keystore")
    if said.get("ssl.endpoint.identification.algorithm") == "":
        said["ssl.endpoint.identification.algorithm"] = "none"
    return out | {_RENAMED.get(name, name): value for name, value in said.items()}


def _login(jaas: str) -> dict[str, str]:
    """Read user and password; its text stays out of what is raised."""
    if (found := _LOGIN.fullmatch(jaas)) is None:
        raise _refused(_JAAS, "PLAIN and SCRAM are read from it; else set sasl.… of librdkafka")
    options = {
        name: _ESCAPED.sub(lambda one: _LINES.get(one[1], one[1]), double or single) or plain
        for name, double, single, plain in _OPTION.findall(found[1])
    }
    if missing := {"username", "password"} - options.keys():
        raise _refused(_JAAS, f"it has no {max(missing)}; or set sasl.username and sasl.password")
    return {f"sasl.{name}": options[name] for name in ("username", "password")}


def _store(said: dict[str, str], kind: str) -> dict[str, str]:
    """Take a store's settings out of what was said; return librdkafka's."""
    store, place = (said.pop(f"ssl.{kind}.{name}", "") for name in ("type", "location"))
    if not place:
        return {}
    form = store.upper() or _form(place)
    if form == "PEM" and kind == "truststore":
        said.pop("ssl.truststore.password", None)  # there is nothing secret in it
        return {"ssl.ca.location": place}
    if form == "PEM":
        return {"ssl.certificate.location": place, "ssl.key.location": place}
    if form == "PKCS12" and kind == "keystore":
        return {"ssl.keystore.location": place}  # its password has the same name
    raise _refused(
        f"ssl.{kind}.location",
        f"librdkafka reads no {form or 'store'} of this kind: write it as PEM "
        "(keytool -exportcert -rfc, or openssl pkcs12)",
    )


def _form(place: str) -> str:
    """Guess as people name files; Java's own default is JKS."""
    return {".pem": "PEM", ".crt": "PEM", ".p12": "PKCS12", ".pfx": "PKCS12"}.get(
        Path(place).suffix.lower(), "JKS"
    )


def _refused(name: str, why: str) -> SettingRefused:
    return SettingRefused(
        "a setting of Kafka's Java client has no counterpart in librdkafka",
        hint=why,
        setting=f"kafka.{name}",
    )
