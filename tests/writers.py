"""The writers to Kafka: what one does, the other does, too."""

from collections.abc import Mapping
from typing import Any, TypeAlias

from producer import native
from producer.kafka.native_writer import NativeWriter
from producer.kafka.writer import ConfluentWriter


class Native(NativeWriter):
    """The native writer with places of its own."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        parts = native.parts("auto")
        assert parts is not None
        super().__init__(settings, parts)


WriterClass: TypeAlias = type[ConfluentWriter] | type[Native]
WRITERS: list[WriterClass] = [ConfluentWriter, Native]
