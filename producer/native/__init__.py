"""The native parts: cutting of frames, walker, books of the open group, writer to Kafka.

They are optional.  Without them everything is done in Python, with the same records; what is
lost is speed.  `core` and `wire` define the interfaces, and what each part must do.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Literal, TypeAlias

from confluent_kafka import KafkaError

from producer.core.delivery.tally import Tally
from producer.core.records.chunk import Chunk
from producer.core.records.encode import TransactionConstants, frame_of_read
from producer.core.records.reference import Encode
from producer.core.records.row_plan import RowPlan
from producer.core.stream.walk import Walker
from producer.sources.gauss.held import Held
from producer.wire import replication
from producer.wire.replication import Split
from schemas.native import Outdated, check_built, load_from_zip
from schemas.positions import Lsn

MODULE: ModuleType | None = None  # the extension module, where it was built
_MISSING = "at install there was no C compiler, or no Python.h"
try:
    check_built(__file__)
    load_from_zip(__spec__)
    from producer.native import _native
except Outdated as why:
    _MISSING = str(why)
except ImportError:
    pass
else:
    MODULE = _native

# `auto`: where it was built.
Choice: TypeAlias = Literal["auto", "off"]


class ProducerRefused(Exception):
    """The native producer of Kafka does not fit here; the text says why."""


@dataclass(frozen=True, slots=True)
class NativeParts:
    """`Native` by the extension module."""

    places: _native.Places  # numbers of (topic, partition), shared by the parts of a turn

    def walker(self, *, epoch: int, resume: Lsn, max_row_bytes: int) -> Walker:
        """Make a walker; transactions that begin before `resume` were delivered."""
        return _native.Walker(self.places, epoch=epoch, resume=resume, max_row_bytes=max_row_bytes)

    def tally(self, *, ddl_topic: str, untracked_topics: frozenset[str]) -> Tally:
        """Make empty books, as `PlainTally` does."""
        return _native.NativeTally(
            self.places, ddl_topic=ddl_topic, untracked_topics=untracked_topics
        )

    def encoder(self, plan: RowPlan, slow: Encode) -> Encode:
        """Make what encodes rows of a table; `slow` encodes those that are unusual."""
        return _native.CellEncoder(plan, slow).encode

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
        """Make a chunk of rows that `plan` describes and that go to one place."""
        return _native.NativeChunk(
            self.places,
            plan,
            frame_of_read(plan, constants),
            topic=topic,
            partition=partition,
            key=key,
            epoch=constants.epoch,
            seq=constants.seq,
            point=constants.commit_lsn,
            csn=constants.csn,
            max_row_bytes=max_row_bytes,
        )

    def producer(
        self,
        settings: list[tuple[str, str]],
        *,
        library: str,
        on_error: Callable[[KafkaError], None],
        on_log: Callable[[int, str], None],
    ) -> _native.NativeProducer:
        """Make a producer of the librdkafka that `library` was linked with.

        `on_log` gets a level of syslog, and a line.  Raises ProducerRefused.
        """
        try:
            _native.find_librdkafka(library)
            return _native.NativeProducer(settings, self.places, on_error, on_log)
        except _native.LibraryRefused as why:
            raise ProducerRefused(str(why)) from why


def parts(choice: Choice) -> NativeParts | None:
    """Make the native parts of one turn; None: Python is to do everything."""
    if MODULE is None or choice == "off":
        return None
    return NativeParts(_native.Places())


def split(choice: Choice) -> Split:
    """Return what cuts the messages of a stream."""
    return replication.split if MODULE is None or choice == "off" else _native.split


def held(
    choice: Choice, *, style: str, is_batch: bool, by_csn: bool, newest_csn: int, hold_bytes: int
) -> Held | None:
    """Make what holds a stream of a decode-style for the walker; None: Python does it."""
    if MODULE is None or choice == "off":
        return None
    return _native.HeldRecords(
        style, is_batch=is_batch, by_csn=by_csn, newest_csn=newest_csn, hold_bytes=hold_bytes
    )


def described(choice: Choice) -> str:
    """Say who makes the rows, and why."""
    if choice == "off":
        return 'pure Python ([kafka] native = "off")'
    if MODULE is None:
        return f"pure Python ({_MISSING}): 20 times the CPU and more"
    return "the native module"
