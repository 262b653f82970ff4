"""A machine and what is said to it, read like a conversation."""

from collections.abc import Sequence
from typing import Self

from producer.core.delivery.engine import Engine, WriterState
from producer.core.delivery.tally import PlainTally
from producer.core.events import (
    Acknowledged,
    Command,
    CutsDurable,
    Happened,
    Limits,
    Record,
    RowsAssembled,
    Ticked,
    TransactionEnded,
    WriteCuts,
)
from schemas.control import Cut, Head, Hole, Identity, Topic

ACCOUNT, AUDIT, DDL = "bank.public.account", "bank.public.audit", "bank.ddl"
MESSAGES = "bank.message"
TOPICS = {name: Topic(f"id of {name}", 2) for name in (ACCOUNT, AUDIT, DDL)}
IDENTITY = Identity("7000", 1, "bank", "gauss_cdc", "pgoutput")
START = Head(n=1, epoch=1, writer=1, instance="a", last_seq=0, resume=100, state_from=-1)
QUIET = 10.0  # the clock of a play begins here; nothing is due then


def plain_tally() -> PlainTally:
    """Empty books."""
    return PlainTally(ddl_topic=DDL, untracked_topics=frozenset({MESSAGES}))


class Playbook:
    """Feed events, look at commands."""

    def __init__(self, limits: Limits | None = None, *, head: Head = START) -> None:
        self.engine = Engine(
            WriterState(head, 7, IDENTITY, "content", "cluster", TOPICS, {}),
            limits or Limits(),
            plain_tally(),
        )
        self.said: Sequence[Command] = ()
        self.now = QUIET
        if self.at(QUIET).cuts:  # the first heartbeat of a turn
            self.durable(2)

    def feed(self, *happened: Happened) -> Self:
        """Step once for each; the answers are those of all of them."""
        self.said = [command for event in happened for command in self.engine.step(event)]
        return self

    def expect(self, *commands: Command) -> Self:
        assert list(self.said) == list(commands)
        return self

    def kinds(self, *kinds: type) -> Self:
        assert [type(command) for command in self.said] == list(kinds)
        return self

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """The records that the answers want written."""
        return tuple(c for said in self.said if isinstance(said, WriteCuts) for c in said.cuts)

    def at(self, now: float) -> Self:
        self.now = now
        return self.feed(Ticked(now, int(now * 1e6)))

    def acknowledge(self, *places: tuple[str, int, int]) -> Self:
        return self.feed(Acknowledged([(*place, place[2] + 1) for place in places]))

    def durable(self, *offsets: int) -> Self:
        return self.feed(CutsDurable(offsets))


def rows(count: int, topic: str = ACCOUNT, partition: int = 0) -> RowsAssembled:
    return RowsAssembled([row(topic, partition) for _ in range(count)], 10 * count)


def row(topic: str = ACCOUNT, partition: int = 0) -> Record:
    return topic, partition, b"key", b"value", []


def ended(
    seq: int,
    count: int,
    *,
    end_lsn: int | None = None,
    ddl: tuple[int, ...] = (),
    holes: tuple[Hole, ...] = (),
) -> TransactionEnded:
    start = 100 * (seq + 1)
    return TransactionEnded(
        seq=seq,
        xid=700 + seq,
        csn=start,
        commit_start=start,
        end_lsn=end_lsn or start + 10,
        committed_at=seq,
        rows=count,
        ddl_ordinals=ddl,
        holes=holes,
    )
