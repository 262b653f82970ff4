"""The listening side: a main port, an HA port, sessions until it is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from ssl import SSLContext
from typing import Any, Final

from gauss_cdc_lab.emulator.login import Gate
from gauss_cdc_lab.emulator.product import Backend, EmulatedProduct
from gauss_cdc_lab.emulator.session import ClientSession
from gauss_cdc_lab.emulator.slots import Activity
from gauss_cdc_lab.services.process import free_ports, is_free

LOOPBACK: Final = "127.0.0.1"
_TRIES: Final = 50


@dataclass
class Emulator:
    """A server that is given its backend; port 0 takes free ones, the HA port is the next."""

    product: EmulatedProduct
    backend: Backend
    gate: Gate
    host: str = LOOPBACK
    port: int = 0
    ha_port: int = 0
    tls: SSLContext | None = None
    activity: Activity = field(default_factory=Activity)
    _servers: list[asyncio.Server] = field(default_factory=list)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def start(self) -> None:
        """Listen; OSError if a port is taken."""
        if not self.port:
            self.port = next(port for port in free_ports(_TRIES) if is_free(port + 1))
        self.ha_port = self.ha_port or self.port + 1  # where clients look for it
        for port, is_ha in ((self.port, False), (self.ha_port, True)):
            accept = self._accept(is_ha=is_ha)
            self._servers.append(await asyncio.start_server(accept, self.host, port))

    @property
    def sessions(self) -> int:
        """Connections that are not over."""
        return len(self._tasks)

    async def stop(self) -> None:
        """Close everything, sessions too."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.backend.close()

    def _accept(
        self, *, is_ha: bool
    ) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await ClientSession(self, reader, writer, is_ha=is_ha).run()
            except asyncio.CancelledError:
                writer.transport.abort()
            finally:
                self._tasks.discard(task)

        return accept
