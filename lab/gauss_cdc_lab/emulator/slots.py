"""Rules of slots that hold whatever stands behind: names, plugins, who is active.

Which slots exist is the backend's business; who streams from one is ours, since
the walsenders are.
"""

from __future__ import annotations

import asyncio
import re
from typing import Final

from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.product import EmulatedSlot

PLUGINS: Final = frozenset({"mppdb_decoding", "sql_decoding", "test_decoding"})
GAUSSDB_PLUGINS: Final = frozenset(
    {"parallel_binary_decoding", "parallel_json_decoding", "parallel_text_decoding"}
)
MOST: Final = 20

_GOOD: Final = re.compile(r"[a-z0-9_?.\-]+")
_HINT: Final = (
    "Replication slot names may only contain lower letters, numbers and the 4 following special "
    "characters: '_', '?', '.', '-'.\n'.' and '..' are also not allowed to be slot names "
    "independently."
)


def check_name(name: str) -> None:
    """Refused unless `name` may be given to a slot; its length the grammar has checked."""
    if not _GOOD.fullmatch(name) or name in {".", ".."}:
        raise ErrorResponse(
            f'replication slot name "{name}" contains invalid character', "42602", hint=_HINT
        )


def check_plugin(plugin: str, *, is_gaussdb: bool) -> None:
    """Refused unless the plugin's library is there; a folder in its name is ignored."""
    known = PLUGINS | GAUSSDB_PLUGINS if is_gaussdb else PLUGINS
    if plugin not in known:
        shown = plugin.rpartition("/")[2]
        raise ErrorResponse(
            f'could not access file "{shown}": No such file or directory', "58P01", number=11802
        )


def missing(name: str) -> ErrorResponse:
    """No such slot."""
    return ErrorResponse(f'replication slot "{name}" does not exist', "42704", number=18645)


def missing_in_parallel(name: str) -> ErrorResponse:
    """No such slot, as a parallel start says it."""
    return ErrorResponse(
        f"Invalid logical replication slot {name}.", "DB010", module="LOGICAL_DECODE", detail="N/A"
    )


def exists(name: str) -> ErrorResponse:
    """The name is taken."""
    return ErrorResponse(f'replication slot "{name}" already exists', "42710")


def none_free() -> ErrorResponse:
    """No place is left."""
    return ErrorResponse("all replication slots are in use", "53400")


def elsewhere(name: str) -> ErrorResponse:
    """The slot belongs to another database."""
    return ErrorResponse(
        f'replication slot "{name}" was not created in this database',
        "55000",
        module="LOGICAL_DECODE",
    )


class Activity:
    """The active slots, and those that are still held for a client that disappeared."""

    def __init__(self) -> None:
        self._active: set[str] = set()
        self._parallel = 0

    def check_free(self, name: str) -> None:
        """Refused if the slot is in use."""
        if name in self._active:
            raise ErrorResponse(
                f'replication slot "{name}" is already active', "55006", number=18646
            )

    def acquire(self, slot: EmulatedSlot) -> None:
        """Take the slot, or be refused."""
        self.check_free(slot.name)
        self._active.add(slot.name)

    def acquire_decoders(self, most: int) -> None:
        """Take one of the places for parallel decoding, or be refused."""
        if self._parallel >= most:
            raise ErrorResponse(
                "can't create logical decode dispatcher", "XX000", module="LOGICAL_DECODE"
            )
        self._parallel += 1

    def release_decoders(self) -> None:
        """Give the place back."""
        self._parallel -= 1

    def release(self, slot: EmulatedSlot, *, after: float = 0.0) -> None:
        """Give the slot back, `after` seconds if its client vanished."""
        if after > 0:
            asyncio.get_running_loop().call_later(after, self._active.discard, slot.name)
        else:
            self._active.discard(slot.name)

    def __contains__(self, name: str) -> bool:
        return name in self._active
