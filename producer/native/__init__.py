"""The native parts: walker, books of the open group, writer to Kafka.

They are optional.  Without them everything is done in Python, with the same records; what is
lost is speed.  `core` defines the interfaces, and what each part must do.
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from types import ModuleType
from typing import cast

from producer.core.tally import Tally
from producer.core.walk import Walker


def _module() -> ModuleType | None:
    """Import the extension module, where it was built."""
    try:
        return importlib.import_module("producer.native._native")
    except ImportError:
        return None


MODULE = _module()


@dataclass(frozen=True, slots=True)
class NativeParts:
    """`Native` by the extension module."""

    module: ModuleType
    places: object  # numbers of (topic, partition), shared by the parts of a turn

    def walker(self, *, epoch: int, resume: int, max_row_bytes: int) -> Walker:
        """Make a walker; transactions that begin before `resume` were delivered."""
        made = self.module.Walker(
            self.places, epoch=epoch, resume=resume, max_row_bytes=max_row_bytes
        )
        return cast("Walker", made)

    def tally(self, *, ddl_topic: str, untracked_topics: frozenset[str]) -> Tally:
        """Make empty books, as `PlainTally` does."""
        made = self.module.NativeTally(
            self.places, ddl_topic=ddl_topic, untracked_topics=untracked_topics
        )
        return cast("Tally", made)


def parts() -> NativeParts | None:
    """Make the native parts of one turn; None: the extension module was not built."""
    if MODULE is None or not MODULE.READY:
        return None
    return NativeParts(MODULE, MODULE.Places())
