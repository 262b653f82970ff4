"""Delta and Iceberg as targets."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from spark_consumers.errors import Superseded
from spark_consumers.model import Ledger, Segment
from spark_consumers.sinks import step as rules
from spark_consumers.sinks.lakes import core
from spark_consumers.sinks.lakes.core import LakeTransaction
from spark_consumers.sinks.lakes.delta import DeltaTables
from spark_consumers.sinks.lakes.iceberg import IcebergTables
from spark_consumers.sinks.lakes.lease import FileLease
from spark_consumers.sinks.lakes.marks import TableMarks
from spark_consumers.sinks.lakes.warm import WarmUp
from spark_consumers.sinks.lease import Keeper

_CARE: Final = 3_600.0  # seconds between two rounds of maintenance


class LakeSink:
    """Implements `Sink`."""

    def __init__(
        self,
        tables: DeltaTables | IcebergTables,
        marks: TableMarks,
        source: str,
        lease: FileLease,
        warm_up: WarmUp | None = None,
        *,
        mode: str,
        replaces: bool = False,
        keep: float = 7 * 86_400,
        on_step: Callable[[str], None] = lambda _: None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`mode`: log, scd1 or scd2; `keep`: seconds for which watermarks are promised.

        `replaces`: see `LakeTransaction`.

        `warm_up`: begun by one that waits.

        The lake itself says when it was last maintained: appliers come and go.
        """
        self._tables, self._marks, self._source = tables, marks, source
        self._needs_key, self._keeps_columns = mode != "log", mode != "scd1"
        self._mode, self._replaces = mode, replaces
        self._on_step = on_step
        self._fence: int | None = None
        self._keep, self._now = keep, now
        self._lease, self._keeper = lease, Keeper(lease, source)
        self._warm_up = warm_up

    def start(self) -> Ledger | None:
        if not self._keeper.holds:
            if not self._lease.take():
                if self._warm_up is not None:
                    self._warm_up.begin()
                return None
            self._keeper.begin()
        with self._tables.fitting.step(1):
            ledger = core.take_fence(self._marks, self._source, self._lease.fence)
        if ledger is None or not self._keeper.holds:
            self._keeper.let_go()  # it has begun nothing, and waits again
            return None
        self._fence = self._lease.fence = ledger.fence
        return ledger

    def check(self) -> None:
        """Raise Fenced where another applier is known to have taken over."""
        self._keeper.check()

    def ledger(self) -> Ledger:
        return core.ledger_of(self._marks, self._source, self._fence)

    def stage(self, segment: Segment, rows: Any) -> Any:
        del segment
        return rows

    def step(self, segment: Segment, staged: Any) -> Ledger:
        one = LakeTransaction(
            self._tables, self._marks, staged, needs_key=self._needs_key,
            keeps_columns=self._keeps_columns, mode=self._mode, replaces=self._replaces,
            on_step=self._on_step,
        )  # fmt: skip
        try:
            with self._tables.fitting.step(segment.rows):
                upto = rules.step(one, segment, fence=self._fence, on_step=self._on_step)
        finally:
            staged.close()
        known = self._marks.known
        if known is not None and self._now() - known.cared_at / 1e6 > _CARE:
            self.maintain()
        return upto

    def maintain(self) -> None:
        """Compact and expire; an error is the next step's, if it stays."""
        self._on_step("maintain")
        with suppress(Superseded):
            core.maintain(
                self._tables,
                self._tables,
                self._marks,
                now=int(self._now() * 1e6),
                keep=self._keep,
            )

    def close(self) -> None:
        """Give the lease back; the session is the program's."""
        self._keeper.close()
