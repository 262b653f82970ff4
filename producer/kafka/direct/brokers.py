"""The brokers of a cluster: connections to them, and who leads a partition."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any, Final

from producer.core.events import Place
from producer.errors import DecodeError, Unsupported
from producer.kafka.direct import requests
from producer.kafka.direct.connection import BrokerConnection, Handler, ready
from producer.kafka.direct.failures import (
    BACKOFF,
    COORDINATOR_PASSES,
    SLICE,
    Failures,
)
from producer.kafka.direct.requests import BrokerRequest, Leaders
from producer.kafka.direct.settings import Settings
from producer.kafka.direct.wire import Response

_log = logging.getLogger(__name__)

_COORDINATOR_SECONDS: Final = 2.0  # until it is known who coordinates


class Brokers:
    """Connections, made when they are needed and forgotten when they are lost."""

    def __init__(self, settings: Settings, failures: Failures) -> None:
        self._settings, self._failures = settings, failures
        self.leaders: dict[Place, int] = {}
        self._addresses: dict[int, tuple[str, int]] = {}
        self._leading: dict[int, BrokerConnection] = {}
        self._any: BrokerConnection | None = None  # for questions
        self._coordinator: BrokerConnection | None = None
        self._not_before: dict[object, float] = {}  # next try, by what is tried
        self._asks_leaders = False

    # ------------------------------------------------------------ connections
    def all(self) -> list[BrokerConnection]:
        """Return those that there are."""
        others = [one for one in (self._any, self._coordinator) if one is not None]
        return [*self._leading.values(), *others]

    def to_any(self) -> BrokerConnection | None:
        """Have a connection to any broker; None: not now."""
        if self._any is not None or self._is_early("any"):
            return self._any
        for address in [*self._addresses.values(), *self._settings.servers]:
            if (made := self._connect(address)) is not None:
                self._any = made
                return made
        return None

    def to_coordinator(self) -> BrokerConnection | None:
        """Have a connection to the coordinator of the transactional id; None: not now."""
        if self._coordinator is not None or self._is_early("coordinator"):
            return self._coordinator
        if (connection := self.to_any()) is None:
            return None
        assert self._settings.transactional_id is not None
        request = requests.find_coordinator(self._settings.transactional_id)
        until = time.monotonic() + _COORDINATOR_SECONDS
        found = self.wait_for(connection, request, requests.read_coordinator, until)
        if found is None:
            return None
        error, host, port = found
        if error in COORDINATOR_PASSES:
            return None
        if error:
            self._failures.note(error)
            return None
        self._coordinator = self._connect((host, port))
        return self._coordinator

    def to_leader(self, node: int) -> BrokerConnection | None:
        """Have a connection to a leader; None: not now."""
        if node in self._leading or self._is_early(node):
            return self._leading.get(node)
        address = self._addresses.get(node)
        made = None if address is None else self._connect(address)
        if made is not None:
            self._leading[node] = made
            return made
        self.leaders = {place: one for place, one in self.leaders.items() if one != node}
        return None

    def _connect(self, address: tuple[str, int]) -> BrokerConnection | None:
        try:
            return BrokerConnection(address, self._settings.client)
        except Unsupported as error:
            self._failures.refuse(error)
            return None
        except (OSError, DecodeError) as error:
            _log.info("no connection to Kafka at %s:%d: %s", *address, error)
            return None

    def _is_early(self, what: object, seconds: float = BACKOFF) -> bool:
        """Say whether it was tried so short ago; else it is now."""
        now = time.monotonic()
        if now < self._not_before.get(what, 0.0):
            return True
        self._not_before[what] = now + seconds
        return False

    def close(self) -> None:
        """Close them."""
        for one in self.all():
            one.close()
        self._leading, self._any, self._coordinator = {}, None, None

    # ------------------------------------------------------------ questions
    def ask(self, connection: BrokerConnection, request: BrokerRequest, on_answer: Handler) -> bool:
        """Send a request; False: the connection is lost."""
        try:
            connection.ask(request, on_answer)
        except OSError:
            self.lose(connection)
            return False
        return True

    def wait_for(
        self,
        connection: BrokerConnection,
        request: BrokerRequest,
        read: Callable[[Response], Any],
        until: float,
    ) -> Any:
        """Ask, and wait for the answer; None: there is none."""
        found: list[Any] = []

        def take(answer: Response | None) -> None:
            found.append(None if answer is None else read(answer))

        self.ask(connection, request, take)
        while not found and time.monotonic() < until:
            ready([connection], min(SLICE, until - time.monotonic()))
            self.step(connection)
        return found[0] if found else None

    def step(self, connection: BrokerConnection) -> None:
        """Send and read what can be."""
        try:
            connection.move()
            late = time.monotonic() - connection.oldest > self._settings.request_timeout_ms / 1000
            if connection.unanswered and late:
                raise TimeoutError("no answer")
        except (OSError, DecodeError) as error:
            _log.info("a connection to Kafka is lost: %s", error)
            self.lose(connection)

    def lose(self, connection: BrokerConnection) -> None:
        """Forget a connection; who asked hears that no answer comes, in the order of asking."""
        if connection is self._any:
            self._any = None
        if connection is self._coordinator:
            self._coordinator = None
        self._leading = {at: one for at, one in self._leading.items() if one is not connection}
        for on_answer in connection.close():
            on_answer(None)

    # ------------------------------------------------------------ leaders
    def ask_leaders(self, topics: Iterable[str], on_found: Callable[[Leaders], None]) -> None:
        """Ask who leads the partitions of topics, unless that was just asked."""
        if self._asks_leaders or self._is_early("leaders", BACKOFF / 5):
            return
        if (connection := self.to_any()) is None:
            return

        def take(answer: Response | None) -> None:
            self._asks_leaders = False
            if answer is None:
                return
            found = requests.read_metadata(answer)
            self._addresses = found.brokers
            self.leaders.update(found.leaders)
            on_found(found)

        self._asks_leaders = True
        self.ask(connection, requests.metadata(sorted(topics)), take)
