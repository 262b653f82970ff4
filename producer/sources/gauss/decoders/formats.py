"""The format of a stream, and the protocol of its decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from producer.sources.gauss.decoders.messages import DecodedMessage
from schemas.positions import Lsn

# Plugins of GaussDB with a style of their own; another one may be requested.
PLUGIN_STYLES: Final[Mapping[str, str]] = {
    "parallel_binary_decoding": "b",
    "parallel_json_decoding": "j",
    "parallel_text_decoding": "t",
}


@dataclass(frozen=True, slots=True)
class Format:
    """The format of a stream, as requested by START_REPLICATION."""

    plugin: str  # mppdb_decoding, sql_decoding, test_decoding, parallel_binary_decoding, …
    style: str = ""  # "b", "j", "t" in parallel decoding; "" serial
    batch: bool = False  # sending-batch
    encoding: str = "utf-8"  # Python's name of the database's encoding; names are decoded with it


class Naming(Protocol):
    """A decoder of a plugin that names table and columns in every row.  No state but caches."""

    def split(self, start: Lsn, payload: bytes) -> Iterable[tuple[Lsn, bytes]]:
        """Split an XLogData payload into records, each with its position.

        `start` is the dataStart of the header, the position of records that have none.
        Raises DecodeError.
        """

    def walk(self, start: Lsn, payload: bytes) -> Iterator[tuple[Lsn, bytes]]:
        """The same one by one: intact records are yielded before DecodeError is raised."""

    def is_row(self, record: bytes) -> bool:
        """Say cheaply whether a record is a row, which may be buffered undecoded until COMMIT."""

    def decode(self, position: Lsn, record: bytes) -> DecodedMessage:
        """Decode one record of `split`, or raise DecodeError."""
