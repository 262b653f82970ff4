"""`[kafka.client]`, checked by librdkafka itself before anything begins."""

from __future__ import annotations

import re
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Final

from confluent_kafka import Consumer, KafkaException

# librdkafka does not list its settings; these are the common ones.
_COMMON: Final = (
    *("bootstrap.servers", "client.id", "client.rack", "security.protocol", "debug", "log_level"),
    *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.oauthbearer.method"),
    *("sasl.oauthbearer.client.id", "sasl.oauthbearer.config", "sasl.oauthbearer.scope"),
    *("sasl.oauthbearer.token.endpoint.url", "sasl.kerberos.service.name"),
    *("ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"),
    *("ssl.crl.location", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"),
    *("enable.ssl.certificate.verification", "socket.timeout.ms", "socket.keepalive.enable"),
    *("request.timeout.ms", "retry.backoff.ms", "retries", "reconnect.backoff.max.ms"),
    *("message.timeout.ms", "delivery.timeout.ms", "batch.size", "linger.ms", "compression.type"),
    *("queue.buffering.max.messages", "queue.buffering.max.kbytes", "message.max.bytes"),
    *("fetch.max.bytes", "fetch.message.max.bytes", "max.partition.fetch.bytes"),
    *("receive.message.max.bytes", "metadata.max.age.ms", "broker.address.family"),
)
_NAMED: Final = re.compile(r'configuration property:? "([^"]+)"')


def problem(client: Mapping[str, str | int | float | bool]) -> tuple[str, str] | None:
    """Return the setting that librdkafka refuses ("": several together), and why; None: none.

    Creates a client without brokers, so nothing is sent.
    """
    asked = {**client, "bootstrap.servers": "", "group.id": "gauss-cdc-check", "log_level": 0}
    try:
        Consumer(asked).close()
    except KafkaException as error:
        why = str(error.args[0].str())
    except TypeError as error:  # a value that is not text for librdkafka
        why = str(error)
    else:
        return None
    found = _NAMED.search(why)
    name = found[1] if found is not None and found[1] in client else ""
    if name and why.startswith("No such configuration property"):
        close = get_close_matches(name, _COMMON, 1)
        meant = f"did you mean {close[0]}?" if close else "its CONFIGURATION.md lists them"
        return name, f"librdkafka has no such setting; {meant}"
    return name, why.removeprefix("Failed to create consumer: ")
