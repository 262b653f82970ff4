"""Output plugins: from their payloads to one set of messages (`core.messages`).

Two kinds.  pgoutput's payload is one message, and relations are described:
`DECODERS`.  The others name everything in every row, may pack many records into
one payload, and are found by plugin and style: `NAMING`.

A new one is a module with its function, recorded server output under
`tests/golden/<name>/`, and its line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from producer.core.changes import Message
from producer.sources.gauss.decoders.binary import Binary
from producer.sources.gauss.decoders.formats import PLUGIN_STYLES, Format, Naming
from producer.sources.gauss.decoders.lines import Lines
from producer.sources.gauss.decoders.serial import mppdb, sql, test
from producer.sources.postgres import pgoutput

__all__ = ["DECODERS", "NAMING", "Format", "Naming"]

DECODERS: Final[Mapping[str, Callable[[bytes], Message]]] = {
    "pgoutput": pgoutput.decode,
}

_STYLES: Final[dict[str, Callable[[Format], Naming]]] = {"b": Binary, "j": Lines, "t": Lines}
_SERIAL: Final[dict[str, Callable[[Format], Naming]]] = {
    "mppdb_decoding": mppdb,
    "sql_decoding": sql,
    "test_decoding": test,
}


def _of_own_style(style: str) -> Callable[[Format], Naming]:
    return lambda written: _STYLES[style](
        Format(written.plugin, style, written.batch, written.encoding)
    )


# (plugin, style) -> decoder.  With parallel decoding the style alone decides what is sent.
NAMING: Final[Mapping[tuple[str, str], Callable[[Format], Naming]]] = {
    **{(plugin, ""): decoder for plugin, decoder in _SERIAL.items()},
    **{(plugin, ""): _of_own_style(style) for plugin, style in PLUGIN_STYLES.items()},
    **{
        (plugin, style): decoder
        for plugin in (*_SERIAL, *PLUGIN_STYLES)
        for style, decoder in _STYLES.items()
    },
}
