"""The writers to Kafka: what one does, the other does, too."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from producer import native
from producer.kafka.direct.writer import DirectWriter
from producer.kafka.native_writer import NativeWriter
from producer.kafka.writer import ConfluentWriter, MakeWriter


class Native(NativeWriter):
    """The native writer with places of its own."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        parts = native.parts("auto")
        assert parts is not None
        super().__init__(settings, parts)


class Direct(DirectWriter):
    """The direct writer with places of its own."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, native.parts("auto"))


class PlainDirect(DirectWriter):
    """The direct writer in Python, with transactions as brokers before 4.0 have them."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        super().__init__(settings, None, transaction_version=1)


WriterClass: TypeAlias = type[ConfluentWriter] | type[Native]
WRITERS: list[WriterClass] = [ConfluentWriter, Native]
# The broker inside librdkafka, for which tests take WRITERS, is older than these two ask for.
EVERY_WRITER: list[MakeWriter] = [*WRITERS, Direct, PlainDirect]
