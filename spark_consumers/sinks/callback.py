"""Your function as the target: whole commits, in order, each group handed over once.

The ledger stands in a file, moved after the function returned.  A crash in between
hands the same group over again, never a later one before it: a function that must not
see a group twice stores `group.upto` with its own effects and gives it back as `held`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks.positions import Position
from spark_consumers.sinks.step import check_place


@dataclass(frozen=True, slots=True)
class Group:
    """Whole commits `first_seq..last_seq`, or steps of loads (`segment.loads`), or a takeover."""

    segment: Segment
    content: Any  # what the reader made of it

    @property
    def upto(self) -> Ledger:
        """Where a target stands that has taken this group."""
        return self.segment.upto


class CallbackSink:
    """Implements `Sink` for a function."""

    def __init__(
        self,
        apply: Callable[[Group], None],
        source: str,
        *,
        position: Position,
        held: Callable[[], Ledger | None] | None = None,
    ) -> None:
        """`held` is what was taken already; without it `position` holds it."""
        self._apply, self._source, self._position, self._held = apply, source, position, held

    def start(self) -> Ledger:
        """No lock is taken: run one process per file."""
        return self.ledger()

    def check(self) -> None:
        """Nobody takes over."""

    def ledger(self) -> Ledger:
        if self._held is not None:
            return self._held() or Ledger(self._source)
        return self._position.read() or Ledger(self._source)

    def stage(self, segment: Segment, rows: Any) -> Any:
        del segment
        return rows

    def step(self, segment: Segment, staged: Any) -> Ledger:
        check_place(self.ledger(), segment)
        self._apply(Group(segment, staged))
        if self._held is None:
            self._position.write(segment.upto)
        return segment.upto

    def close(self) -> None:
        """Nothing is held open."""
