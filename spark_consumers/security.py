r"""Kafka's security settings: one table from librdkafka's names to Kafka's Java client.

Everything but Spark's own Kafka source uses librdkafka, tasks of `apply` too, so a configuration
has librdkafka's names.  Spark's source is a Java client, whose settings differ in name and
sometimes in meaning.  A setting without a counterpart is refused: without it, a connection would be
less protected than its owner expects, or fail far from the cause.  Every security setting that
librdkafka has is in the table; a test compares it with the library's own list.

The way out is the Java client's own settings: a name that begins with `kafka.` is one of
them.  Where one of `kafka.ssl.` or of `kafka.sasl.` is there, all TLS or all of the login
is its owner's, and librdkafka's settings of that area are not translated.

Certificates and keys travel as PEM text: executors have no file of the driver's, and
the Java client reads keys in one format only (PKCS #8), which they are converted to.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from schemas.secret_file import exposed_of
from spark_consumers.errors import SettingRefused

_PACKAGE: Final = "org.apache.kafka.common.security"
# Kafka 4's client (and 3.9.1 where it is set) asks no other address for a token.
ALLOWED_URLS: Final = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
OWN: Final = "kafka."  # begins the name of a setting of the Java client itself
# Prefixes of librdkafka's names, by the Java client's area that they belong to.
_AREAS: Final = {
    "ssl.": ("ssl.", "ssl_", "enable.ssl."),
    "sasl.": ("sasl.", "https.", "enable.sasl.", "oauth"),
}
_SECURITY: Final = ("security.", *_AREAS["ssl."], *_AREAS["sasl."])
_RESERVED: Final = ("bootstrap.servers", "fetch.max.wait.ms", "group.id", "isolation.level")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_SCRAM: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGINS: Final = ("PLAIN", *_SCRAM, "OAUTHBEARER")


@dataclass(frozen=True, slots=True)
class KafkaSetting:
    """A setting of librdkafka, and what becomes of it."""

    librdkafka: str
    java: str  # for people
    registry: str  # the same for the registry's client, for people; "": it has none
    refused: str = ""  # why it cannot be mapped, and the way out


_PROVIDER: Final = "use PEM or PKCS #12 files"
_KERBEROS: Final = (
    "GSSAPI is not mapped: give kafka.sasl.mechanism, kafka.sasl.jaas.config and "
    f"kafka.sasl.kerberos.service.name, or use {', '.join(_LOGINS)}"
)
_ASSERTION: Final = "the Java client knows a client's id and secret only"
TABLE: Final = (
    KafkaSetting("security.protocol", "`security.protocol`", "`https://` in its URL"),
    KafkaSetting("ssl.ca.location", "`ssl.truststore.certificates`", "`ssl.ca.location`"),
    KafkaSetting("ssl.ca.pem", "`ssl.truststore.certificates`", "a file: `ssl.ca.location`"),
    KafkaSetting(
        "ssl.certificate.location",
        "`ssl.keystore.certificate.chain`",
        "`ssl.certificate.location`",
    ),
    KafkaSetting("ssl.certificate.pem", "`ssl.keystore.certificate.chain`", "a file"),
    KafkaSetting("ssl.key.location", "`ssl.keystore.key`", "`ssl.key.location`"),
    KafkaSetting("ssl.key.pem", "`ssl.keystore.key`", "a file"),
    KafkaSetting("ssl.key.password", "the key is decrypted", "`ssl.key.password`"),
    KafkaSetting("ssl.keystore.location", "certificate and key of the PKCS #12 file", "PEM files"),
    KafkaSetting("ssl.keystore.password", "the file is decrypted", ""),
    KafkaSetting(
        "ssl.endpoint.identification.algorithm",
        "the same; `none` is empty",
        "names are always verified",
    ),
    KafkaSetting("ssl.cipher.suites", "the same, if all are names of TLS (`TLS_…`)", ""),
    KafkaSetting("sasl.mechanism", "`sasl.mechanism`", ""),
    KafkaSetting("sasl.mechanisms", "`sasl.mechanism`", ""),
    KafkaSetting("sasl.username", "`sasl.jaas.config`", "`GAUSS_CDC_REGISTRY_CREDENTIALS`"),
    KafkaSetting("sasl.password", "`sasl.jaas.config`", "`GAUSS_CDC_REGISTRY_CREDENTIALS`"),
    KafkaSetting(
        "sasl.oauthbearer.method",
        "`sasl.login.callback.handler.class`; `oidc` only",
        "`bearer.auth.credentials.source`",
    ),
    KafkaSetting("sasl.oauthbearer.client.id", "`sasl.jaas.config`", "`bearer.auth.client.id`"),
    KafkaSetting(
        "sasl.oauthbearer.client.secret", "`sasl.jaas.config`", "`bearer.auth.client.secret`"
    ),
    KafkaSetting("sasl.oauthbearer.scope", "`sasl.jaas.config`", "`bearer.auth.scope`"),
    KafkaSetting("sasl.oauthbearer.extensions", "`sasl.jaas.config`", ""),
    KafkaSetting(
        "sasl.oauthbearer.token.endpoint.url",
        f"the same, and the system property `{ALLOWED_URLS}`",
        "`bearer.auth.issuer.endpoint.url`",
    ),
    KafkaSetting(
        "https.ca.location", "`ssl.truststore.certificates` within `sasl.jaas.config`", ""
    ),
    KafkaSetting("https.ca.pem", "`ssl.truststore.certificates` within `sasl.jaas.config`", ""),
    KafkaSetting("sasl.oauthbearer.grant.type", "`client_credentials`, which is its only one", ""),
    KafkaSetting(
        "enable.ssl.certificate.verification",
        "`true`, which is its only one",
        "always verified",
    ),
    KafkaSetting(
        "ssl.crl.location", "", "", "the Java client reads no list of revoked certificates"
    ),
    KafkaSetting(
        "ssl.curves.list", "", "", "set jdk.tls.namedGroups in the JVM, and leave it out here"
    ),
    KafkaSetting(
        "ssl.sigalgs.list", "", "", "set jdk.tls.client.SignatureSchemes in the JVM instead"
    ),
    KafkaSetting("ssl.providers", "", "", _PROVIDER),
    KafkaSetting("ssl.engine.location", "", "", _PROVIDER),
    KafkaSetting("ssl.engine.id", "", "", _PROVIDER),
    KafkaSetting("ssl.ca.certificate.stores", "", "", _PROVIDER),
    KafkaSetting(
        "enable.sasl.oauthbearer.unsecure.jwt",
        "",
        "",
        "an unsigned token proves nothing: use sasl.oauthbearer.method = oidc",
    ),
    KafkaSetting("sasl.oauthbearer.config", "", "", "use sasl.oauthbearer.method = oidc"),
    KafkaSetting("sasl.kerberos.service.name", "", "", _KERBEROS),
    KafkaSetting("sasl.kerberos.principal", "", "", _KERBEROS),
    KafkaSetting("sasl.kerberos.keytab", "", "", _KERBEROS),
    KafkaSetting("sasl.kerberos.kinit.cmd", "", "", _KERBEROS),
    KafkaSetting("sasl.kerberos.min.time.before.relogin", "", "", _KERBEROS),
    KafkaSetting("sasl.oauthbearer.sub.claim.name", "the same", ""),
    *(
        KafkaSetting(f"sasl.oauthbearer.assertion.{name}", "", "", _ASSERTION)
        for name in (
            *("algorithm", "file", "jwt.template.file"),
            *("private.key.file", "private.key.passphrase", "private.key.pem"),
            *("claim.aud", "claim.exp.seconds", "claim.iss"),
            *("claim.jti.include", "claim.nbf.seconds", "claim.sub"),
        )
    ),
    KafkaSetting("sasl.oauthbearer.metadata.authentication.type", "", "", _ASSERTION),
    *(
        KafkaSetting(name, "", "", "a function of a program: executors cannot call it")
        for name in (
            *("oauth_cb", "oauthbearer_token_refresh_cb", "ssl.certificate.verify_cb"),
            *("ssl_key", "ssl_certificate", "ssl_ca", "ssl_engine_callback_data"),
        )
    ),
)
_ROWS: Final = {row.librdkafka: row for row in TABLE}
# What is not about security and has a counterpart; everything else tunes librdkafka only.
_SAME: Final[tuple[str, ...]] = (
    "bootstrap.servers",
    "client.id",
    "client.dns.lookup",
    "client.rack",
)


def java_client(client: Mapping[str, Any]) -> dict[str, str]:
    """Settings of librdkafka as options of Spark's Kafka source.

    Raises SettingRefused for a security setting without a counterpart.

    >>> java_client({"bootstrap.servers": "b:9092", "linger.ms": "5", "kafka.client.id": "x"})
    {'kafka.bootstrap.servers': 'b:9092', 'kafka.client.id': 'x'}
    """
    said = {name: _text(value) for name, value in client.items()}
    own = {name.removeprefix(OWN): said.pop(name) for name in list(said) if name.startswith(OWN)}
    for name in own:
        if name in _RESERVED:
            raise _refused(f"{OWN}{name}", "it decides which rows are read: leave it out")
    taken = tuple(area for area in _AREAS if any(name.startswith(area) for name in own))
    for name in said:
        if not any(name.startswith(_AREAS[area]) for area in taken):
            _judge(name)
    out: dict[str, str] = {name: said[name] for name in _SAME if name in said}
    if "metadata.broker.list" in said:
        out.setdefault("bootstrap.servers", said["metadata.broker.list"])
    protocol = said.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise _refused("security.protocol", f"it is one of {', '.join(_PROTOCOLS)}")
    if protocol != "PLAINTEXT":
        out["security.protocol"] = protocol
    if protocol.endswith("SSL") and "ssl." not in taken:
        out |= _tls(said)
    if protocol.startswith("SASL") and "sasl." not in taken:
        out |= _login(said)
    return {f"{OWN}{name}": value for name, value in (out | own).items()}


def java_properties(client: Mapping[str, Any]) -> dict[str, str]:
    """System properties that the JVMs of driver and executors need for it."""
    name = "sasl.oauthbearer.token.endpoint.url"
    url = str(client.get(f"{OWN}{name}", client.get(name, "")))
    return {ALLOWED_URLS: url} if url else {}


# Security settings that anyone may see; what is not named here travels as a secret.
_PUBLIC: Final = frozenset({
    *("security.protocol", "sasl.mechanism", "sasl.mechanisms", "sasl.username"),
    *("ssl.ca.location", "ssl.ca.pem", "ssl.ca.certificate.stores", "ssl.crl.location"),
    *("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location"),
    *("ssl.keystore.location", "ssl.endpoint.identification.algorithm", "ssl.cipher.suites"),
    *("ssl.curves.list", "ssl.sigalgs.list", "ssl.providers", "ssl.engine.location"),
    *("ssl.engine.id", "enable.ssl.certificate.verification"),
    *("https.ca.location", "https.ca.pem", "enable.sasl.oauthbearer.unsecure.jwt"),
    *("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.keytab"),
    *("sasl.kerberos.kinit.cmd", "sasl.kerberos.min.time.before.relogin"),
    *(f"sasl.oauthbearer.{name}" for name in (
        *("method", "client.id", "client.credentials.client.id", "scope", "extensions"),
        *("token.endpoint.url", "grant.type", "sub.claim.name"),
    )),
})  # fmt: skip
_KEY: Final = "ssl.key.pem"


def portable(client: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Divide settings of librdkafka into those that executors may get in the open, and secrets.

    Certificates and keys in files become text: executors have no file of the driver's.  A key's
    place stays, for executors that have it there and get no secrets.

    >>> portable({"bootstrap.servers": "b:9092", "sasl.password": "x", "kafka.client.id": "y"})
    ({'bootstrap.servers': 'b:9092'}, {'sasl.password': 'x'})
    """
    said = {
        name: value
        for name, value in client.items()
        if not name.startswith(OWN) and isinstance(value, str | int | float)
    }
    secrets: dict[str, str] = {}
    for area in ("ssl.ca", "https.ca", "ssl.certificate"):
        place = str(said.get(f"{area}.location", ""))
        if place not in ("", "probe") and not Path(place).is_dir():
            said[f"{area}.pem"] = _read(f"{area}.location", place).decode("utf-8")
            del said[f"{area}.location"]
    if place := str(said.get("ssl.key.location", "")):
        secrets[_KEY] = _read("ssl.key.location", place).decode("utf-8")
    if "ssl.keystore.location" in said:
        texts = {name: _text(value) for name, value in said.items()}
        if (own := _own_certificate(texts)) is not None:
            secrets["ssl.certificate.pem"], secrets[_KEY] = own
    for name in list(said):
        if name.startswith(_SECURITY) and name not in _PUBLIC:
            secrets.setdefault(name, _text(said.pop(name)))
    return said, secrets


def with_secrets(settings: Mapping[str, Any], secrets: Mapping[str, str]) -> dict[str, Any]:
    """Join what `portable` has divided; a key's text takes precedence over its place."""
    joined = {**settings, **secrets}
    if _KEY in secrets:
        for name in ("ssl.key.location", "ssl.keystore.location", "ssl.keystore.password"):
            joined.pop(name, None)
    return joined


def quoted(text: str) -> str:
    r"""Write a value of `sasl.jaas.config`, as Java's StreamTokenizer reads it.

    >>> print(quoted('a"b\\c;d'))
    "a\"b\\c;d"
    """
    escapes = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r"}
    return '"' + "".join(escapes.get(char, char) for char in text) + '"'


def _judge(name: str) -> None:
    if not name.startswith(_SECURITY):
        return
    if (row := _ROWS.get(_ALIASES.get(name, name))) is None:
        raise _refused(name, "docs/reference/kafka-security.md has what can be mapped")
    if row.refused:
        raise _refused(name, row.refused)


_ALIASES: Final = {
    "sasl.oauthbearer.client.credentials.client.id": "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl.oauthbearer.client.secret",
}


def _tls(said: Mapping[str, str]) -> dict[str, str]:
    if said.get("enable.ssl.certificate.verification", "true").lower() not in ("true", "1"):
        raise _refused(
            "enable.ssl.certificate.verification",
            "the Java client always verifies: give the broker's authority as ssl.ca.location",
        )
    out: dict[str, str] = {}
    if authorities := _authorities(said, "ssl.ca"):
        out |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if (own := _own_certificate(said)) is not None:
        chain, key = own
        out |= {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.certificate.chain": chain,
            "ssl.keystore.key": key,
        }
    match said.get("ssl.endpoint.identification.algorithm"):
        case None:
            pass
        case "none":
            out["ssl.endpoint.identification.algorithm"] = ""
        case algorithm:
            out["ssl.endpoint.identification.algorithm"] = algorithm
    if suites := said.get("ssl.cipher.suites"):
        names = [name.strip() for name in suites.replace(":", ",").split(",")]
        if not all(name.startswith("TLS_") for name in names):
            raise _refused("ssl.cipher.suites", "OpenSSL's names are not Java's: use TLS_… names")
        out["ssl.cipher.suites"] = ",".join(names)
    return out


def _login(said: Mapping[str, str]) -> dict[str, str]:
    mechanism = said.get("sasl.mechanism", said.get("sasl.mechanisms", "GSSAPI")).upper()
    out = {"sasl.mechanism": mechanism}
    if mechanism == "OAUTHBEARER":
        return out | _oauth(said)
    if mechanism not in _LOGINS:
        why = _KERBEROS if mechanism == "GSSAPI" else f"use {', '.join(_LOGINS)}"
        raise _refused("sasl.mechanism", why)
    needed = {name: said.get(f"sasl.{name}", "") for name in ("username", "password")}
    if missing := [name for name, value in needed.items() if not value]:
        raise _refused(
            f"sasl.{missing[0]}",
            "it is missing; the password comes from GAUSS_CDC_KAFKA_PASSWORD or password-file",
        )
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return out | {"sasl.jaas.config": _jaas(module, needed)}


def _oauth(said: Mapping[str, str]) -> dict[str, str]:
    said = {_ALIASES.get(name, name): value for name, value in said.items()}
    prefix = "sasl.oauthbearer."
    if said.get(f"{prefix}method") != "oidc":
        raise _refused(f"{prefix}method", 'set it to "oidc"')
    if said.get(f"{prefix}grant.type", "client_credentials") != "client_credentials":
        raise _refused(f"{prefix}grant.type", "the Java client knows client_credentials only")
    options: dict[str, str] = {}
    for name, key in (("client.id", "clientId"), ("client.secret", "clientSecret")):
        if not (value := said.get(prefix + name)):
            raise _refused(prefix + name, "it is missing")
        options[key] = value
    if scope := said.get(f"{prefix}scope"):
        options["scope"] = scope
    for extension in filter(None, said.get(f"{prefix}extensions", "").split(",")):
        name, _, value = extension.partition("=")
        options[f"extension_{name.strip()}"] = value
    if authorities := _authorities(said, "https.ca"):
        options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": authorities}
    if not (url := said.get(f"{prefix}token.endpoint.url")):
        raise _refused(f"{prefix}token.endpoint.url", "it is missing")
    claim = f"{prefix}sub.claim.name"
    handler = "oauthbearer.OAuthBearerLoginCallbackHandler"
    return {
        **({claim: said[claim]} if claim in said else {}),
        f"{prefix}token.endpoint.url": url,
        "sasl.login.callback.handler.class": f"{_PACKAGE}.{handler}",
        "sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", options),
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    said = " ".join(f"{_key(name)}={quoted(value)}" for name, value in options.items())
    return f"{_PACKAGE}.{module} required {said};"


def _key(name: str) -> str:
    """A key's name; StreamTokenizer takes word characters without quotes, and so do we."""
    if not all(char.isalnum() or char in "._-$" for char in name):
        raise _refused("sasl.oauthbearer.extensions", f"{name!r} is not a valid extension name")
    return name


def _authorities(said: Mapping[str, str], prefix: str) -> str:
    """The authorities as PEM text; "" where the client's own are meant."""
    text, path = said.get(f"{prefix}.pem", ""), said.get(f"{prefix}.location", "")
    if text or path in ("", "probe"):
        return text
    if Path(path).is_dir():
        raise _refused(f"{prefix}.location", "the Java client reads no folder: name one file")
    return _read(f"{prefix}.location", path).decode("utf-8")


def _own_certificate(said: Mapping[str, str]) -> tuple[str, str] | None:
    """Our certificate with its chain, and its key in the format that Java reads; both PEM."""
    if store := said.get("ssl.keystore.location"):
        return _from_store(
            _read("ssl.keystore.location", store), said.get("ssl.keystore.password", "")
        )
    chain = said.get("ssl.certificate.pem", "")
    key = said.get("ssl.key.pem", "")
    if path := said.get("ssl.certificate.location"):
        chain = _read("ssl.certificate.location", path).decode("utf-8")
    if path := said.get("ssl.key.location"):
        key = _read("ssl.key.location", path).decode("utf-8")
    if not (chain or key):
        return None
    if not (chain and key):
        missing = "ssl.key.location" if chain else "ssl.certificate.location"
        raise _refused(missing, "a certificate needs its key, and a key its certificate")
    return chain, _pkcs8(key, said.get("ssl.key.password", ""))


def _pkcs8(pem: str, password: str) -> str:
    from cryptography.exceptions import UnsupportedAlgorithm  # noqa: PLC0415  only with TLS
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415

    is_locked = "ENCRYPTED" in pem
    try:
        key = serialization.load_pem_private_key(
            pem.encode(), password.encode() if is_locked else None
        )
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _refused(
            "ssl.key.location", "the key cannot be read: is it PEM, and its password right?"
        ) from None
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()


def _from_store(data: bytes, password: str) -> tuple[str, str]:
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

    try:
        key, own, others = pkcs12.load_key_and_certificates(data, password.encode() or None)
    except ValueError:
        key = own = None
        others = []
    if key is None or own is None:
        raise _refused(
            "ssl.keystore.location",
            "it cannot be read: is it PKCS #12 with a key, and its password right?",
        )
    pem = serialization.Encoding.PEM
    plain = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    chain = "".join(one.public_bytes(pem).decode() for one in (own, *others))
    return chain, key.private_bytes(pem, *plain).decode()


def _read(setting: str, path: str) -> bytes:
    try:
        for _, why in exposed_of({setting: path}):
            raise SettingRefused("a private key is not one", hint=why, setting=setting)
        return Path(path).read_bytes()
    except OSError as error:
        raise _refused(setting, f"{path}: {error.strerror}") from error


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _refused(setting: str, why: str) -> SettingRefused:
    return SettingRefused(
        "a setting of [kafka.client] has no counterpart in Spark's Kafka client",
        hint=f"{why}; or leave it out, or give the Java client's own as kafka.… in [spark.options]",
        setting=setting,
    )
