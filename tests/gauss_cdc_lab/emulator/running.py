"""An emulator that runs while a test asks it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self

from gauss_cdc_lab.emulator.server import Emulator

_START_SECONDS: Final = 60


class Running:
    """An emulator in a thread of its own, beside the test."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, Emulator]]) -> None:
        self._make = make
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="emulator", daemon=True)
        self.emulator: Emulator

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.emulator = self.call(self._started())
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _: object, _trace: TracebackType | None
    ) -> None:
        try:
            self.call(self.emulator.stop())
        finally:
            self._end()

    def call(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run something inside of the emulator's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(_START_SECONDS)

    async def _started(self) -> Emulator:
        emulator = await self._make()
        await emulator.start()
        return emulator

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
