"""`Writer` by librdkafka called from the native module, and who writes where it cannot.

It is the library that confluent-kafka has loaded, with a producer of our own: settings, errors and
transactions are those of `ConfluentWriter`, without Python objects per row and acknowledgement.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import KafkaError, cimpl

from producer.core.events import Acknowledgement, Records
from producer.errors import CdcError
from producer.kafka.client import FENCED, of_error
from producer.kafka.writer import ConfluentWriter, MakeWriter, Writer, as_ours, has_ended
from producer.native import NativeParts, ProducerRefused

_log = logging.getLogger(__name__)

# The library's own Python code gives these a meaning.
_OF_PYTHON: Final = {"plugin.library.paths", "default.topic.config"}
_LEVELS: Final = (  # of syslog, which librdkafka counts in
    *(logging.CRITICAL, logging.CRITICAL, logging.CRITICAL, logging.ERROR),
    *(logging.WARNING, logging.INFO, logging.INFO, logging.DEBUG),
)


def choose(parts: NativeParts | None) -> MakeWriter:
    """Make native writers; where one is refused, say so once and take ConfluentWriter."""
    if parts is None:
        return ConfluentWriter
    native, refused = parts, False

    def make(settings: Mapping[str, Any]) -> Writer:
        nonlocal refused
        try:
            return NativeWriter(settings, native)
        except ProducerRefused as why:
            if not refused:
                _log.info("records are handed to Kafka by confluent_kafka, one by one: %s", why)
            refused = True
            return ConfluentWriter(settings)

    return make


class NativeWriter:
    """`Writer` by `producer.native`."""

    def __init__(self, settings: Mapping[str, Any], parts: NativeParts) -> None:
        """Raise ProducerRefused, for example for a setting that is not librdkafka's.

        `parts` are those that make the batches.
        """
        self._logger = settings.get("logger", _log)
        self._error: KafkaError | None = None
        self._producer = parts.producer(
            _texts(settings),
            library=cimpl.__file__,
            on_error=self._on_error,
            on_log=self._on_log,
        )

    @property
    def progress(self) -> int:
        return self._producer.progress

    def init_transactions(self, seconds: float) -> None:
        with as_ours():
            self._producer.init_transactions(_milliseconds(seconds))

    def begin(self) -> None:
        with as_ours():
            self._producer.begin()

    def send(self, records: Records, start: int) -> int:
        with as_ours():
            return self._producer.send(records, start)

    def poll(self, seconds: float) -> None:
        self._producer.poll(_milliseconds(seconds))
        self.raise_failure()

    def take(self) -> list[Acknowledgement]:
        return self._producer.take()

    def flush(self, seconds: float) -> int:
        left = self._producer.flush(_milliseconds(seconds))
        self.raise_failure()
        return left

    def commit(self, seconds: float) -> bool:
        return has_ended(lambda: self._producer.commit(_milliseconds(seconds)))

    def abort(self, seconds: float) -> None:
        with as_ours():
            self._producer.abort(_milliseconds(seconds))

    def raise_failure(self) -> None:
        if self._error is not None:
            raise of_error(self._error)
        if code := self._producer.failure:
            raise of_error(KafkaError(code))

    def fatal(self) -> CdcError | None:
        error = self._producer.fatal()
        return None if error is None else of_error(error)

    def purge(self) -> None:
        self._producer.purge()

    def close(self) -> None:
        self._producer.close()

    def _on_error(self, error: KafkaError) -> None:
        if error.code() in FENCED:
            self._error = self._error or error

    def _on_log(self, level: int, text: str) -> None:
        self._logger.log(_LEVELS[level], "%s", text)


def _texts(settings: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Settings as librdkafka takes them: everything is text."""
    out = []
    for name, value in settings.items():
        if name == "logger":
            continue
        if name in _OF_PYTHON or not isinstance(value, str | int | float):
            raise ProducerRefused(f"{name} is for the library in Python")
        out.append((name, str(value)))
    return out


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1000))
