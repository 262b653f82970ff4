"""A facade over the test server's PostgreSQL, and our own client's way through it."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.emulator.model import PROFILES
from gauss_cdc_lab.emulator.product import EmulatedProduct
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.upstream import Address
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.connection import ConnectionArguments, GaussConnection
from producer.sources.gauss.decoders.messages import (
    Ddl,
    NamedChange,
    NamedTruncate,
    ServerHeartbeat,
    TxBegin,
    TxCommit,
)
from schemas.positions import Lsn
from tests.gauss_cdc_lab.emulator.running import Running

NOWHERE = Lsn(0)
USER, PASSWORD = "cdc_user", "Cdc_Test@123"


@dataclass
class Front:
    """A running facade and how to log in to it."""

    emulator: Emulator
    running: Running
    database: str
    users: dict[str, str] = field(default_factory=dict)

    def open(self, *, replication: bool = False, user: str = USER, **more: Any) -> GaussConnection:
        return GaussConnection.open(
            ConnectionArguments(
                host="127.0.0.1",
                port=self.emulator.port,
                dbname=self.database,
                user=user,
                password=PASSWORD,
                sslmode=more.pop("sslmode", "disable"),
                sslrootcert=more.pop("sslrootcert", ""),
            ),
            replication=replication,
            **more,
        )

    def make_slot(self, name: str, plugin: str = "mppdb_decoding") -> Lsn:
        with self.open(replication=True) as session:
            return session.create_slot(name, plugin).consistent_point


@contextmanager
def facade(
    url: str, *, profile: str = "og7", accounts: list[Account] | None = None, **more: Any
) -> Iterator[Front]:
    address = Address.parse(url)
    tls = more.pop("tls", None)
    product = EmulatedProduct(profile=PROFILES[profile], **more)
    gate = Gate(accounts or [Account(USER, PASSWORD)])

    async def make() -> Emulator:
        backend = Facade(address, product)
        await backend.prepare(address.database)
        return Emulator(product, backend, gate, tls=tls)

    with Running(make) as running:
        yield Front(running.emulator, running, address.database)


@dataclass
class Told:
    """A transaction as our decoder understands it."""

    begun: TxBegin
    changes: list[NamedChange | NamedTruncate | Ddl] = field(default_factory=list)
    ended: TxCommit | None = None

    def rows(self) -> list[tuple[object, ...]]:
        """(op, table, old, new) with cells by column name, as text."""
        found: list[tuple[object, ...]] = []
        for change in self.changes:
            match change:
                case NamedChange():
                    found.append((change.op, change.table, cells(change.old), cells(change.new)))
                case NamedTruncate():
                    found.append(("truncate", *(table for _, table in change.tables)))
                case Ddl():
                    found.append(("ddl", change.content))
        return found


def cells(row: Any) -> object:
    if row is None:
        return None
    texts = [None if cell is None else cell.decode() for cell in row.cells]
    return dict(zip(row.shape.names, texts, strict=True)) if row.shape.names else texts


class Streamed:
    """Reads a stream and decodes it, transaction by transaction."""

    def __init__(
        self,
        session: GaussConnection,
        slot: str,
        style: Format,
        options: Mapping[str, str | None],
        at: Lsn = NOWHERE,
    ) -> None:
        session.start(slot, options, at)
        self.session = session
        self._decoder = NAMING[style.plugin, style.style](style)
        self.finished: list[Told] = []
        self.heartbeats: list[ServerHeartbeat] = []
        self._open: Told | None = None

    def read(self, count: int) -> list[Told]:
        """At least `count` transactions."""
        self.until(lambda stream: len(stream.finished) >= count)
        return self.finished

    def until(self, is_over: Callable[["Streamed"], bool], reads: int = 120) -> None:
        for _ in range(reads):
            if is_over(self):
                return
            self.take(self.session.receive(0.5))
        raise AssertionError("it did not come")

    def take(self, received: Any) -> None:
        for message in received.messages:
            for reported in self._told(message):
                match reported:
                    case TxBegin():
                        self._open = Told(reported)
                    case TxCommit():
                        assert self._open is not None
                        self._open.ended = reported
                        if self._open.changes:  # others' commits come and go
                            self.finished.append(self._open)
                    case ServerHeartbeat():
                        self.heartbeats.append(reported)
                    case _:
                        assert self._open is not None
                        self._open.changes.append(reported)

    def _told(self, message: Any) -> Iterator[Any]:
        start, _, payload = message
        for record in self._decoder.split(start, payload):
            yield self._decoder.decode(*record)
