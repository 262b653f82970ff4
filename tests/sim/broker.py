"""A Kafka cluster as the protocol sees it.

Partitions are lists: an offset is an index, a commit or abort marker takes one,
too.  A transaction is decided in one step and its markers reach the partitions
one by one, each in its own step; the last stable offset is the first record of a
transaction without a marker there.  Records travel: they arrive later than they
are sent, per sender and partition in order, and also when their sender is dead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.sim.world import Move, World

Place = tuple[str, int]  # topic, partition


class Entry(NamedTuple):
    """One offset of a partition."""

    sender: str
    transaction: Transaction | None
    key: Any
    value: Any
    headers: Any
    is_marker: bool = False


@dataclass(eq=False)
class Transaction:
    """A Kafka transaction; `pending` are partitions whose marker is still on its way."""

    number: int
    identity: str  # transactional.id
    client: Client | None
    state: str = "open"  # open | commit | abort
    places: dict[Place, int] = field(default_factory=dict)  # place -> first offset
    pending: list[Place] = field(default_factory=list)

    def is_undecided_at(self, place: Place) -> bool:
        """Say whether readers of this partition cannot know yet what became of it."""
        return self.state == "open" or place in self.pending


class FencedOff(Exception):
    """INVALID_PRODUCER_EPOCH: another one of this transactional id came later."""


@dataclass(eq=False)
class Client:
    """The broker's side of one producer instance."""

    name: str
    identity: str
    epoch: int = -1  # -1: init_transactions did not return yet
    is_alive: bool = True
    fenced_by: str = ""
    transaction: Transaction | None = None
    # records on their way: place -> (key, value, headers, is_transactional)
    flying: dict[Place, deque[tuple[Any, Any, Any, bool]]] = field(default_factory=dict)
    acknowledged: list[tuple[str, int, int, int]] = field(default_factory=list)
    request: Callable[[], bool] | None = None  # what the broker does next for it; True = done
    request_label: str = ""
    failure: Exception | None = None

    def is_flying(self) -> bool:
        """Say whether a record was neither stored nor lost yet."""
        return any(self.flying.values())


class Broker:
    """One cluster."""

    def __init__(self, world: World, topics: dict[str, int]) -> None:
        self.world = world
        self.cluster_id = "cluster-1"
        self.topic_ids = {name: f"id-{name}" for name in topics}
        self.partitions = dict(topics)
        self.logs: dict[Place, list[Entry]] = {
            (name, at): [] for name, count in topics.items() for at in range(count)
        }
        self.starts: dict[Place, int] = dict.fromkeys(self.logs, 0)
        self.transactions: list[Transaction] = []
        self.unsettled: list[Transaction] = []  # those of them that readers still wait for
        self.clients: list[Client] = []
        self.epochs: dict[str, int] = {}
        self.silent_until = 0.0  # nobody hears from it until then
        self.quarantined: set[int] = set()  # positions of what was put aside
        self.marker_weight = 2.0
        self.marked = 0  # the step in which the newest marker was written
        self.timeouts = 0  # transactions that the coordinator may still give up on
        self.lost_offsets = 0  # acknowledgements that may still come without an offset
        self.on_decided: Callable[[Transaction], None] = lambda _: None
        self.on_fenced: Callable[[Client, Client | None], None] = lambda _a, _b: None
        world.sources_of_moves.append(self._moves)

    def add_topic(self, name: str, partitions: int) -> None:
        """Make a topic, if there is none of this name."""
        if name not in self.partitions:
            self.partitions[name] = partitions
            self.topic_ids[name] = f"id-{name}"
            for at in range(partitions):
                self.logs[name, at] = []
                self.starts[name, at] = 0

    # ------------------------------------------------------------ readers
    def high(self, place: Place) -> int:
        """The high watermark."""
        return len(self.logs[place])

    def lso(self, place: Place) -> int:
        """The last stable offset."""
        first = len(self.logs[place])
        for transaction in self.unsettled:
            if place in transaction.places and transaction.is_undecided_at(place):
                first = min(first, transaction.places[place])
        return first

    def read(
        self, place: Place, low: int, high: int, *, is_committed: bool = True
    ) -> Iterator[tuple[int, Entry]]:
        """Records with low <= offset < high as a consumer sees them, as they are asked for."""
        log, low = self.logs[place], max(low, self.starts[place])
        high = min(high, self.lso(place) if is_committed else self.high(place))
        for offset in range(low, high):
            entry = log[offset]
            if not entry.is_marker and (
                entry.transaction is None or not is_committed or entry.transaction.state == "commit"
            ):
                yield offset, entry

    def decided(self, place: Place) -> list[tuple[int, Entry]]:
        """Records that are or will be visible: decided COMMIT, marker or not.  For checkers."""
        return [
            (offset, entry)
            for offset, entry in enumerate(self.logs[place])
            if not entry.is_marker
            and (entry.transaction is None or entry.transaction.state == "commit")
        ]

    # ------------------------------------------------------------ producers
    def connect(self, name: str, identity: str) -> Client:
        """A new producer instance."""
        client = Client(name, identity)
        self.clients.append(client)
        return client

    def has_markers_pending(self, identity: str) -> bool:
        """Say whether the coordinator would answer CONCURRENT_TRANSACTIONS."""
        return any(t.identity == identity and t.pending for t in self.unsettled)

    def init_transactions(self, client: Client) -> bool:
        """One try; True when it is done.  Open transactions of the id are aborted."""
        for transaction in list(self.unsettled):
            if transaction.identity == client.identity and transaction.state == "open":
                self._bump(client.identity, client)
                self._decide(transaction, "abort")
        if self.has_markers_pending(client.identity):
            return False
        self._bump(client.identity, client)
        client.epoch = self.epochs[client.identity]
        return True

    def send(self, client: Client, record: tuple[str, int, Any, Any, Any], *, in_tx: bool) -> None:
        """Put a record on its way."""
        topic, partition, key, value, headers = record
        line = client.flying.setdefault((topic, partition), deque())
        line.append((key, value, headers, in_tx))

    def begin(self, client: Client) -> bool:
        """Open a transaction unless markers of the last one are on their way; raise FencedOff."""
        self._check(client)
        if client.transaction is not None:
            return True
        if self.has_markers_pending(client.identity):
            return False
        client.transaction = self._opened(client.identity, client)
        return True

    def append(self, client: Client, place: Place, key: Any, value: Any) -> int:
        """Store a record of the client's open transaction at once; raise FencedOff."""
        self._check(client)
        transaction = client.transaction
        assert transaction is not None
        self._join(transaction, place)
        self.logs[place].append(Entry(client.name, transaction, key, value, []))
        return len(self.logs[place]) - 1

    def commit(self, client: Client) -> None:
        """Decide COMMIT; raise FencedOff."""
        self._check(client)
        transaction = client.transaction
        assert transaction is not None
        self._decide(transaction, "commit")
        client.transaction = None

    def abort(self, client: Client) -> None:
        """Decide ABORT; raise FencedOff."""
        self._check(client)
        if client.transaction is not None:
            self._decide(client.transaction, "abort")
            client.transaction = None

    def open_strange(self, place: Place) -> None:
        """Let somebody else open a transaction on a partition of ours."""
        transaction = self._opened("stranger", None)
        self._join(transaction, place)
        self.logs[place].append(Entry("stranger", transaction, b"", None, []))

    def write_strange(self, place: Place, value: Any) -> None:
        """Let somebody else store a record, outside of transactions."""
        self.logs[place].append(Entry("stranger", None, b"bank", value, []))

    def is_strange(self, place: Place) -> bool:
        """Say whether the newest record that readers see is a stranger's, or was just now."""
        seen = list(self.read(place, 0, self.high(place)))
        return any(entry.sender == "stranger" for _, entry in seen[-2:])

    # ------------------------------------------------------------ steps
    def _check(self, client: Client) -> None:
        if client.epoch != self.epochs.get(client.identity, -1):
            raise FencedOff(client.fenced_by)

    def _bump(self, identity: str, by: Client | None) -> None:
        for client in self.clients:
            if client.identity == identity and client is not by and client.epoch >= 0:
                if client.epoch == self.epochs.get(identity) and client.is_alive:
                    self.on_fenced(client, by)
                client.fenced_by = by.name if by else "coordinator"
        self.epochs[identity] = self.epochs.get(identity, -1) + 1

    def _opened(self, identity: str, client: Client | None) -> Transaction:
        transaction = Transaction(len(self.transactions), identity, client)
        self.transactions.append(transaction)
        self.unsettled.append(transaction)
        return transaction

    def _settle(self, transaction: Transaction) -> None:
        if not transaction.pending:
            self.unsettled.remove(transaction)

    def _join(self, transaction: Transaction, place: Place) -> None:
        transaction.places.setdefault(place, len(self.logs[place]))

    def _decide(self, transaction: Transaction, state: str) -> None:
        transaction.state = state
        transaction.pending = list(transaction.places)
        self._settle(transaction)
        self.on_decided(transaction)

    def _marker(self, transaction: Transaction, place: Place) -> None:
        transaction.pending.remove(place)
        self._settle(transaction)
        self.marked = self.world.steps
        self.logs[place].append(Entry("", transaction, None, None, None, is_marker=True))

    def _give_up(self, transaction: Transaction) -> None:
        """Transaction timeout: the coordinator aborts, and fences an owner of ours."""
        self.timeouts -= 1
        if transaction.client is not None:
            self._bump(transaction.identity, None)
        self._decide(transaction, "abort")

    def _arrive(self, client: Client, place: Place) -> None:
        key, value, headers, in_tx = client.flying[place].popleft()
        transaction = None
        if in_tx:
            transaction = client.transaction
            current = client.epoch == self.epochs.get(client.identity)
            if transaction is None or transaction.state != "open" or not current:
                if client.is_alive:
                    client.failure = client.failure or FencedOff(client.fenced_by)
                return
            self._join(transaction, place)
        self.logs[place].append(Entry(client.name, transaction, key, value, headers))
        offset = len(self.logs[place]) - 1
        lossy = self.lost_offsets and not self.world.calm
        if lossy and self.world.chance(0.03):
            self.lost_offsets -= 1
            offset = -1
        if client.is_alive:
            client.acknowledged.append((*place, offset, offset + 1))

    def _lose(self, client: Client, place: Place) -> None:
        client.flying[place].clear()

    def _serve(self, client: Client) -> None:
        assert client.request is not None
        if client.request():
            client.request = None

    def _drop_request(self, client: Client) -> None:
        client.request = None

    def _moves(self, out: list[Move]) -> None:
        if self.world.now < self.silent_until and not self.world.calm:
            return
        weight = 2.0 if self.world.calm else self.marker_weight
        for t in self.unsettled:
            out.extend(
                Move(weight, f"broker: {t.state} marker of K{t.number} reaches {p[0]}/{p[1]}",
                     lambda t=t, p=p: self._marker(t, p))
                for p in t.pending
            )  # fmt: skip
            if t.state == "open":
                dead = t.client is None or not t.client.is_alive
                if (self.timeouts or self.world.calm) and (dead or not self.world.calm):
                    often = 0.3 if dead else 0.05
                    out.append(
                        Move(often, f"broker: K{t.number} times out", lambda t=t: self._give_up(t))
                    )
        for c in self.clients:
            for place, line in c.flying.items():
                if line:
                    label = f"broker: {c.name} -> {place[0]}/{place[1]} arrives"
                    out.append(Move(4.0, label, lambda c=c, p=place: self._arrive(c, p)))
                    if not c.is_alive:
                        label = f"broker: {c.name} -> {place[0]}/{place[1]} is lost"
                        out.append(Move(1.0, label, lambda c=c, p=place: self._lose(c, p)))
            if c.request is not None:
                label = f"broker: {c.name} {c.request_label}"
                out.append(Move(4.0, label, lambda c=c: self._serve(c)))
                if not c.is_alive:
                    out.append(Move(4.0, f"{label} is lost", lambda c=c: self._drop_request(c)))
