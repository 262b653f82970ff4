"""Output plugins: their payloads in, one vocabulary (`messages`) out.

Two kinds.  pgoutput's payload is one message, and relations are described:
`DECODERS`.  The others name everything in every row, may pack many records into
one payload, and are found by plugin and style: `NAMING`.

A new one is a module with its function, recorded server output under
`tests/golden/<name>/`, and its line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from producer.decoders import pgoutput
from producer.decoders.messages import Message, Told

DECODERS: Final[Mapping[str, Callable[[bytes], Message]]] = {
    "pgoutput": pgoutput.decode,
}


@dataclass(frozen=True, slots=True)
class Format:
    """How a stream is written: what was asked for at START_REPLICATION."""

    plugin: str  # mppdb_decoding, sql_decoding, test_decoding, parallel_binary_decoding, …
    style: str = ""  # "b", "j", "t" in parallel decoding; "" serial
    batch: bool = False  # sending-batch
    encoding: str = "utf-8"  # Python's name of the database's encoding; names are decoded with it


class Naming(Protocol):
    """A decoder of a plugin that names table and columns in every row.  No state but caches."""

    def split(self, start: int, payload: bytes) -> Sequence[tuple[int, bytes]]:
        """Cut an XLogData payload into records, each with its position.

        `start` is the dataStart of the header, the position where a record has none
        of its own.  Raises DecodeError.
        """

    def is_row(self, record: bytes) -> bool:
        """Say cheaply whether a record is a row, which may wait undecoded for its COMMIT."""

    def decode(self, position: int, record: bytes) -> Told:
        """Decode one record of `split`, or raise DecodeError."""


# (plugin, style) -> decoder.  With parallel decoding the style alone decides what is sent.
NAMING: Final[Mapping[tuple[str, str], Callable[[Format], Naming]]] = {}
