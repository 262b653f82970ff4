"""The native parts of a simulated producer, switched on and off at any row.

Where they were not built, everything is Python's; the schedules are the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence, Sized
from dataclasses import dataclass
from enum import Enum

from producer.core.delivery.tally import PlainTally, Tally
from producer.core.records.chunk import Chunk
from producer.core.records.encode import TransactionConstants
from producer.core.records.row_plan import KeyPlan, RowPlan
from producer.core.stream.walk import Lent, Native, Walk, Walker
from producer.native import parts
from producer.wire.replication import WalMessage


class Use(Enum):
    """What of a producer is native."""

    NOTHING = "nothing"
    ALL = "all"
    SWITCHING = "switching"  # the walker stops anywhere, or does not begin
    TALLY = "tally"
    WALKER = "walker"


def native_of(use: Use, rng: random.Random) -> Native | None:
    """Make the native parts of one turn."""
    made = parts("auto")
    if made is None or use is Use.NOTHING:
        return None
    return made if use is Use.ALL else _Partly(made, use, rng)


@dataclass(frozen=True)
class _Partly:
    """`Native` that is only used for some of it."""

    native: Native
    use: Use
    rng: random.Random

    def walker(self, *, epoch: int, resume: int, max_row_bytes: int) -> Walker:
        walker = self.native.walker(epoch=epoch, resume=resume, max_row_bytes=max_row_bytes)
        return walker if self.use is Use.WALKER else _Switching(walker, self.use, self.rng)

    def tally(self, *, ddl_topic: str, untracked_topics: frozenset[str]) -> Tally:
        kind = PlainTally if self.use is Use.WALKER else self.native.tally
        return kind(ddl_topic=ddl_topic, untracked_topics=untracked_topics)

    def chunk(
        self,
        plan: RowPlan,
        constants: TransactionConstants,
        *,
        topic: str,
        partition: int,
        key: bytes,
        max_row_bytes: int,
    ) -> Chunk:
        return self.native.chunk(
            plan,
            constants,
            topic=topic,
            partition=partition,
            key=key,
            max_row_bytes=max_row_bytes,
        )


class _Switching:
    """A walker that takes a few rows at a time, or none."""

    def __init__(self, walker: Walker, use: Use, rng: random.Random) -> None:
        self._walker, self._use, self._rng = walker, use, rng

    def bind(
        self,
        relation: int,
        plan: RowPlan,
        *,
        topic: str,
        partition: int,
        key: bytes | None,
        by_key: KeyPlan | None = None,
    ) -> None:
        self._walker.bind(relation, plan, topic=topic, partition=partition, key=key, by_key=by_key)

    def forget(self, relation: int) -> None:
        self._walker.forget(relation)

    def walk(
        self,
        messages: Sequence[WalMessage] | Sized,
        at: int,
        open_: Lent,
        *,
        now_us: int,
        max_rows: int,
    ) -> Walk:
        if self._use is Use.TALLY or self._rng.random() < 0.3:
            return Walk(at, [], open_, 0, [])
        most = self._rng.choice([1, 1, 2, 3, max_rows])
        return self._walker.walk(messages, at, open_, now_us=now_us, max_rows=most)
