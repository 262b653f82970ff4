"""Output plugins: their payloads in, one vocabulary (`messages`) out.

A new one is a module with a `decode` function, recorded server output under
`tests/golden/<name>/`, and its line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from producer.decoders import pgoutput
from producer.decoders.messages import Message

DECODERS: Final[Mapping[str, Callable[[bytes], Message]]] = {
    "pgoutput": pgoutput.decode,
}
