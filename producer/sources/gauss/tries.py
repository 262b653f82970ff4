"""When a slot is tried again that could not be had."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from producer.errors import SourceError
from producer.sources.gauss.connection import Unexplained

# An unexplained refusal usually ends with the decoders of the last stream.
_UNEXPLAINED_SECONDS: Final = 120.0
_TRY_AGAIN: Final = 2.0
_STANDBY_PAUSE: Final = 0.5  # seconds; each attempt costs a login and a walsender


class Tries:
    """Attempts to stream from one slot."""

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note
        self._refused_since: float | None = None  # without a reason in the catalog
        self._at = 0.0

    def is_due(self) -> bool:
        """Say whether it is time for another attempt."""
        return time.monotonic() >= self._at

    def taken(self) -> None:
        """Take note that another client streams."""
        self._at = time.monotonic() + _STANDBY_PAUSE

    def refused(self, error: Unexplained) -> None:
        """Tolerate an unexplained refusal for a limited time.  Raises SourceError after it."""
        now = time.monotonic()
        if self._refused_since is None:
            self._refused_since = now
            self._note(f"tried again for {_UNEXPLAINED_SECONDS:g} s: {error}")
        if now - self._refused_since >= _UNEXPLAINED_SECONDS:
            raise SourceError(
                error.what,
                hint="the slot exists and is free, but the server refuses to stream from it: "
                "see its log; other readers may use all its decoders",
                **error.where,
                seconds=round(now - self._refused_since),
            )
        self._at = now + _TRY_AGAIN
