"""Streams of GaussDB's decode-styles, taken by Python alone and with the native walker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.buffer import HOLD_BYTES
from producer.sources.gauss.resolver import RelationResolver
from producer.sources.gauss.spill import SpillFile
from producer.sources.gauss.stream import GaussStream
from producer.wire.replication import WalMessage
from schemas.tables import TableId, TableSchema
from schemas.types.names import oid_of
from tests.producer.native import twins
from tests.producer.native.twins import Messages, Taken, World


@dataclass(frozen=True)
class Gauss:
    """How a stream was asked for."""

    written: Format
    by_csn: bool = False
    newest_csn: int = 0
    hold_bytes: int = HOLD_BYTES
    loses_rows_behind_ddl: bool = False
    reads_tables: bool = True  # the catalog shows the tables in force
    held: Callable[..., Any] | None = None  # in place of `HeldRecords`
    spills: list[SpillFile] = field(default_factory=list)
    streams: list[GaussStream] = field(default_factory=list)

    def __call__(
        self, world: World, known: dict[TableId, TableSchema], _: Taken, is_native: bool
    ) -> Messages:
        style = self.written.style
        relations = RelationResolver(
            known,
            wanted=twins.is_wanted,
            read_catalog={**known, **world.catalog}.get if self.reads_tables else lambda _: None,
            oid_of=oid_of,
            skip_unidentified=world.puts_aside,
            names_run_together=style == "t",
        )
        held = None
        if is_native:
            held = (self.held or twins.native().HeldRecords)(
                style,
                is_batch=self.written.batch,
                by_csn=self.by_csn,
                newest_csn=self.newest_csn,
                hold_bytes=self.hold_bytes,
            )
        stream = GaussStream(
            NAMING[self.written.plugin, style](self.written),
            relations,
            spill=self._spill,
            hold_bytes=self.hold_bytes,
            by_csn=self.by_csn,
            resume=world.resume,
            newest_csn=self.newest_csn,
            loses_rows_behind_ddl=self.loses_rows_behind_ddl,
            held=held,
            style=style,
        )
        self.streams.append(stream)
        return stream.messages

    def _spill(self) -> SpillFile:
        self.spills.append(SpillFile())
        return self.spills[-1]


def agree(
    world: World, messages: Sequence[WalMessage], gauss: Gauss, limits: Sequence[int], read: int
) -> Taken:
    """Take a stream twice; both say the same.  Returns what came out with the walker."""
    try:
        return twins.agree(world, messages, limits, read, gauss)
    finally:
        for spill in gauss.spills:  # of transactions that did not end
            spill.close()
