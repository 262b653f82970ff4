"""`producer/kafka/delivery.py` on the simulated broker: one request at a time, answers later."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from producer.core.events import (
    Acknowledged,
    Acknowledgement,
    CutsDurable,
    PartDurable,
    Records,
)
from producer.core.ports import Answer
from producer.errors import CdcError, Fenced
from tests.sim.broker import Broker, FencedOff
from tests.sim.ports import CUTS
from tests.sim.registry import Decoded
from tests.sim.world import Actor


class SimDelivery:
    """`Delivery`: one transactional client, and a plain one for rows in plain mode."""

    def __init__(
        self, actor: Actor, broker: Broker, identity: str, *, is_exact: bool, decoded: Decoded
    ):
        self._actor, self._broker, self._decoded = actor, broker, decoded
        self._is_exact = is_exact
        self.client = broker.connect(actor.name, identity)
        self._rows = self.client if is_exact else broker.connect(f"{actor.name}'", "")
        self._in_transaction = False
        self._answers: list[Answer] = []
        self._is_busy = False

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    @property
    def progress(self) -> int:
        return len(self._rows.acknowledged)

    def filenos(self) -> tuple[int, ...]:
        return ()

    def wait(self, _seconds: float) -> None:
        """The loop reads no more while so much waits for Kafka."""
        self._actor.park("waits for Kafka to catch up")

    def has_news(self) -> bool:
        """Say whether poll or answers would return something."""
        return bool(self._answers or self._rows.acknowledged or self._rows.failure)

    def init_transactions(self, *_: float) -> None:
        self._ask("init_transactions", lambda: self._broker.init_transactions(self.client))
        self._wait()

    def send(self, records: Records, start: int = 0) -> int:
        """Hand records to the client's queue, which may be full after some of them."""
        assert not self._is_busy
        if self._is_exact and not self._in_transaction:
            self._actor.park(
                "begins a transaction",
                until=lambda: not self._broker.has_markers_pending(self.client.identity),
            )
            try:
                begun = self._broker.begin(self.client)
            except FencedOff as off:
                raise _fenced(off) from None
            assert begun
            self._in_transaction = True
        end = len(records)
        if self._rows.is_flying() and self._broker.world.chance(0.1):
            self._actor.park("has no room in its queue")
            self._raise_failure()
            end = self._broker.world.rng.randint(start, end)
        for at in range(start, end):
            self._broker.send(self._rows, records[at], in_tx=self._is_exact)
        return end

    def poll(self) -> list[Acknowledgement]:
        self._raise_failure()
        return [] if self._is_busy else self._taken()

    def _taken(self) -> list[Acknowledgement]:
        taken, self._rows.acknowledged = self._rows.acknowledged, []
        return taken

    def answers(self) -> list[Answer]:
        taken, self._answers = self._answers, []
        if taken:
            self._is_busy = False
        return taken

    def flush(self) -> None:
        self._ask("flush", self._flush)

    def commit_part(self) -> None:
        def commit() -> bool:
            if self._in_transaction:
                self._broker.commit(self.client)
            self._answers.append(PartDurable())
            self._in_transaction = False
            return True

        self._ask("commits a part", commit)

    def write_cuts(self, cuts: Sequence[tuple[bytes, bytes]]) -> None:
        """Three requests: records, EndTxn, and the answer; a crash may fall between any two."""
        offsets: list[int] = []
        kinds = "+".join(type(self._decoded.cut(value)).__name__.upper() for _, value in cuts)

        def write() -> bool:
            if not self._broker.begin(self.client):
                return False
            self._in_transaction = True
            offsets.extend(self._broker.append(self.client, CUTS, *cut) for cut in cuts)
            self._ask(f"commits {kinds}", commit)
            return False

        def commit() -> bool:
            if self._is_exact and self._rows.is_flying():
                return False  # librdkafka sends what is queued before it commits
            self._broker.commit(self.client)
            self._ask(f"hears that {kinds} is durable", answer)
            return False

        def answer() -> bool:
            self._in_transaction = False
            self._answers.append(CutsDurable(tuple(offsets)))
            return True

        self._ask(f"writes {kinds}", write)

    def write_now(
        self,
        batches: Sequence[Records],
        cuts: Callable[[list[Acknowledgement]], Sequence[tuple[bytes, bytes]]],
        *,
        atomic: bool = False,
    ) -> tuple[list[Acknowledgement], tuple[int, ...]]:
        """Blocking, for start and loads."""
        usual = self._rows, self._is_exact
        if atomic:
            self._rows, self._is_exact = self.client, True
        for records in batches or [[]]:  # a transaction begins, whatever is in it
            sent = 0
            while (sent := self.send(records, sent)) < len(records):
                pass
        self.flush()
        flushed = self._wait()
        assert isinstance(flushed, Acknowledged)
        self.write_cuts(cuts(flushed.runs))
        committed = self._wait()
        assert isinstance(committed, CutsDurable)
        self._rows, self._is_exact = usual
        return flushed.runs, committed.offsets

    def abort(self, _timeout: float) -> None:
        if not self._in_transaction or self._is_busy:
            return
        self._actor.park("aborts")
        try:
            self._broker.abort(self.client)
        except FencedOff as off:
            raise _fenced(off) from None
        self._in_transaction = False

    def die(self) -> None:
        """The process is gone; what it sent is on its way."""
        self.client.is_alive = self._rows.is_alive = False
        if self.client.request is not None and "hears" in self.client.request_label:
            self.client.request = None

    # ------------------------------------------------------------ one request at a time
    def _ask(self, label: str, request: Callable[[], bool]) -> None:
        self._is_busy = True

        def serve() -> bool:
            try:
                done = request()
            except FencedOff as off:
                self._answers.append(_fenced(off))
                return True
            if done and label == "init_transactions":
                self._answers.append(PartDurable())  # any answer: it came back
            return done

        self.client.request, self.client.request_label = serve, label

    def _wait(self) -> Answer:
        self._actor.park("waits for Kafka", until=lambda: bool(self._answers))
        (answer,) = self.answers()
        if isinstance(answer, CdcError):
            raise answer
        return answer

    def _flush(self) -> bool:
        if self._rows.failure is not None:
            self._answers.append(_fenced(self._rows.failure))
            return True
        if self._rows.is_flying():
            return False
        self._answers.append(Acknowledged(self._taken()))
        return True

    def _raise_failure(self) -> None:
        if self._rows.failure is not None:
            raise _fenced(self._rows.failure)


def _fenced(off: Exception) -> Fenced:
    return Fenced("another producer of this prefix took over", by=str(off))
