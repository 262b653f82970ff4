"""The native part of the consumers: rows as COPY text or Arrow, entries of cuts as columns.

It is optional, and each process decides for itself: an executor may lack what the driver has.
Without it both are objects from the start; what is lost is speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeGuard

from schemas.native import check_built, load_from_zip
from spark_consumers.model import Change, Columns

if TYPE_CHECKING:
    from spark_consumers.native._native import (
        ArrowColumns,
        ArrowRows,
        PackedRows,
        PairRows,
        RangeConsumer,
        ValueRows,
    )

try:
    check_built(__file__)
    load_from_zip(__spec__)
    from spark_consumers.native import _native
except ImportError:
    IS_BUILT = False
else:
    IS_BUILT = True

DONE, SILENT, STRANGE, FAILED = range(4)  # what `RangeConsumer.read` stopped at


if IS_BUILT:
    RowsSettled = _native.RowsSettled
else:

    class RowsSettled(Exception):  # type: ignore[no-redef]
        """A task sent last states, and something else is asked for."""


class ConsumerRefused(Exception):
    """The native consumer of Kafka does not fit here; the text says why."""


class LastStates(NamedTuple):
    """The last state per key of many changes, as a target takes it."""

    is_truncated: bool
    upserts: int
    deletes: int
    lines: bytes  # of the staging table
    fresh: int = 0  # rows whose key was not there before
    fresh_lines: bytes = b""  # of the table itself
    net: int = 0  # keys that begin in the batch, less those that end; 0 where it truncates


def packed_rows(plan: Any) -> PackedRows | None:
    """Make empty rows by a `decode.rows.PackPlan`; None: the native part was not built."""
    return _native.PackedRows(plan) if IS_BUILT else None


def value_rows(plan: Any, make: Callable[..., Any]) -> ValueRows | None:
    """Make empty rows of values, each by `make`; None: the native part was not built."""
    return _native.ValueRows(plan, make) if IS_BUILT else None


def arrow_columns(layouts: list[tuple[str, int]], ours: list[str]) -> ArrowColumns:
    """Make empty columns of a batch, laid out as `batches` says; only where it was built."""
    return _native.ArrowColumns(layouts, ours)


def arrow_rows(plan: Any, ways: list[tuple[int, str]], into: ArrowColumns) -> ArrowRows:
    """Make what reads values by a `decode.rows.PackPlan` into columns; only where it was built."""
    return _native.ArrowRows(plan, ways, into)


def pair_rows(
    plan: Any, ways: list[tuple[int, str]], into: ArrowColumns, before: ArrowColumns
) -> PairRows:
    """Make what reads a change into one row of both columns; only where it was built."""
    return _native.PairRows(plan, ways, into, before)


def read_entries(data: bytes) -> tuple[int, int, int, int, Columns] | None:
    """Read the entries of a COMMITS record without objects: four places, and their columns.

    The places are those of the array and of its items, each with its end.  None: Python must read
    the record.
    """
    return _native.read_entries(data) if IS_BUILT else None


def mixed(start: int, stop: int) -> int:
    """Add up the numbers of a range as `complete.ordinals` does; only where it was built."""
    return _native.mixed(start, stop)


def is_packed(changes: Sequence[Change]) -> TypeGuard[PackedRows]:
    """Say whether changes are COPY text already."""
    return IS_BUILT and isinstance(changes, _native.PackedRows)


def is_framed(rows: Sequence[Any]) -> TypeGuard[PackedRows | ValueRows]:
    """Say whether native code fills rows from librdkafka."""
    return IS_BUILT and isinstance(rows, _native.FramedRows)


def range_consumer(settings: list[tuple[str, str]], *, library: str) -> RangeConsumer:
    """Make a consumer of the librdkafka that `library` was linked with.

    Raises ConsumerRefused.
    """
    if not IS_BUILT:
        raise ConsumerRefused("the native part was not built")
    try:
        _native.find_librdkafka(library)
        return _native.RangeConsumer(settings)
    except _native.LibraryRefused as why:
        raise ConsumerRefused(str(why)) from why
