"""A Kafka broker of one test module's own, with a listener for each way of being wrong."""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from base64 import b64decode, urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote_plus

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from gauss_cdc.runtime import jars, java
from gauss_cdc_lab.services.kafka import KafkaService
from gauss_cdc_lab.services.process import LOOPBACK, free_ports, poll
from spark_consumers.security import ALLOWED_URLS
from tests.certificates import Certificate, authority, self_signed, written

PASSWORD = "pä\"ss\\;w=ör'd //* ключ"
_LISTENERS = ("good", "mtls", "expired", "selfsigned", "wrongname")


@dataclass
class PrivateKafka:
    folder: Path
    root: Certificate
    plain: str  # bootstrap.servers of the listener for administrators
    ports: dict[str, int] = field(default_factory=dict)
    client: Certificate | None = None
    token_url: str = ""

    def settings(self, listener: str, **more: Any) -> dict[str, Any]:
        """librdkafka's settings of a listener; `_` stands for dots."""
        return {
            "bootstrap.servers": f"{LOOPBACK}:{self.ports[listener]}",
            "security.protocol": "sasl_ssl" if listener == "good" else "ssl",
            "ssl.ca.location": str(self.folder / "root.crt"),
            **{name.replace("_", "."): value for name, value in more.items()},
        }


@contextmanager
def private_kafka() -> Iterator[PrivateKafka]:
    folder = Path(tempfile.mkdtemp(prefix="gauss-cdc-test-"))
    port, controller, *ports = free_ports(2 + len(_LISTENERS))
    named = dict(zip(_LISTENERS, ports, strict=True))
    root = authority()
    written(folder / "root.crt", root.pem)
    process = None
    try:
        with _provider() as url:
            made = PrivateKafka(
                folder, root, f"{LOOPBACK}:{port}", named, root.issue("cdc"), f"{url}/token"
            )
            service = KafkaService(
                folder / "kafka",
                java=java.find(shims=jars.cache()),
                jars=jars.fetch(["kafka"])["kafka"],
                port=port,
                controller=controller,
                settings=_broker(made, f"{url}/keys", port, controller),
            )
            service.prepare()
            command = service.command()
            program, *rest = command.arguments
            command = replace(command, arguments=[program, f"-D{ALLOWED_URLS}={url}/keys", *rest])
            process = command.spawn(folder / "log")
            assert poll(lambda: service.answers() or not process.alive, 180)
            assert process.alive, (folder / "log").read_text()
            _add_user(made.plain)
            yield made
    finally:
        if process is not None:
            process.send(service.stop_signal)
            assert process.wait(120)
        shutil.rmtree(folder, ignore_errors=True)


def _broker(made: PrivateKafka, keys: str, port: int, controller: int) -> dict[str, str]:
    served = {
        "good": made.root.issue("broker", LOOPBACK),
        "mtls": made.root.issue("broker", LOOPBACK),
        "expired": made.root.issue("broker", LOOPBACK, expired=True),
        "selfsigned": self_signed("broker", LOOPBACK),
        "wrongname": made.root.issue("broker", "other.test"),
    }
    named = {"PLAINTEXT": port, **{name.upper(): made.ports[name] for name in _LISTENERS}}
    kinds = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "GOOD": "SASL_SSL"}
    all_listeners = ",".join(f"{name}://{LOOPBACK}:{at}" for name, at in named.items())
    settings = {
        "listeners": f"{all_listeners},CONTROLLER://{LOOPBACK}:{controller}",
        "advertised.listeners": all_listeners,
        "listener.security.protocol.map": ",".join(
            f"{name}:{kinds.get(name, 'SSL')}" for name in (*named, "CONTROLLER")
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.good.plain.sasl.jaas.config": _escaped(
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            f"user_cdc={_quoted(PASSWORD)};"
        ),
        "listener.name.good.scram-sha-512.sasl.jaas.config": (
            "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        ),
        "listener.name.good.oauthbearer.sasl.jaas.config": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
            'unsecuredLoginStringClaim_sub="broker";'
        ),
        "listener.name.good.oauthbearer.sasl.server.callback.handler.class": (
            "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.good.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": keys,
    }
    for name, certificate in served.items():
        store = written(made.folder / f"{name}.pem", certificate.key_pem() + certificate.pem)
        prefix = f"listener.name.{name}.ssl"
        settings |= {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": str(store),
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": str(made.folder / "root.crt"),
        }
    return settings


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _escaped(text: str) -> str:
    """As a value of a .properties file, which is read as Latin-1."""
    return "".join(
        "\\\\" if char == "\\" else char if ord(char) < 128 else f"\\u{ord(char):04x}"
        for char in text
    )


def _add_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    change = UserScramCredentialUpsertion(
        "cdc", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), PASSWORD.encode()
    )
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result()


@contextmanager
def _provider() -> Iterator[str]:
    """An OIDC provider that gives tokens to one client; the URL of it."""
    key = rsa.generate_private_key(65537, 2048)

    class Provider(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            numbers = key.public_key().public_numbers()
            public = {
                "n": _base64(numbers.n.to_bytes(256, "big")),
                "e": _base64(numbers.e.to_bytes(3, "big")),
            }
            self._say({"keys": [{"kty": "RSA", "alg": "RS256", "kid": "k", "use": "sig"} | public]})

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            _, _, credentials = self.headers.get("Authorization", "").partition(" ")
            user, _, secret = b64decode(credentials).decode().partition(":")
            # RFC 6749 wants them URL-encoded first; librdkafka does so, Java on demand.
            if user != "cdc" or PASSWORD not in (secret, unquote_plus(secret)):
                self.send_error(401)
                return
            self._say({"access_token": _token(key), "token_type": "Bearer", "expires_in": 600})

        def _say(self, answer: object) -> None:
            body = json.dumps(answer).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer((LOOPBACK, 0), Provider)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _token(key: rsa.RSAPrivateKey) -> str:
    now = int(time.time())
    claims = {"sub": "cdc", "iat": now, "exp": now + 600, "scope": "kafka"}
    header = {"alg": "RS256", "kid": "k", "typ": "JWT"}
    said = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
    signature = key.sign(said.encode(), padding.PKCS1v15(), hashes.SHA256())
    return f"{said}.{_base64(signature)}"


def _base64(raw: bytes) -> str:
    return urlsafe_b64encode(raw).decode().rstrip("=")
