"""Delta and Iceberg as kinds of targets.

Their modules are imported when a sink is made: Spark takes half a second, and the table of kinds is
read by every command.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from spark_consumers.sinks.base import Inspector, Kind, Pace, Setup, Sink, TargetReading
from spark_consumers.sinks.lakes import places

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark_consumers.sinks.lakes.delta import DeltaTables
    from spark_consumers.sinks.lakes.iceberg import IcebergTables

_REHEARSAL: Final = "gauss_cdc_rehearsal"


def _delta(setup: Setup) -> DeltaTables:
    from spark_consumers.sinks.lakes.delta import DeltaTables  # noqa: PLC0415

    place = partial(places.delta_place, setup.dsn)
    return DeltaTables(setup.spark, place, setup.source, setup.mode, setup.keep)


def _iceberg(setup: Setup) -> IcebergTables:
    from spark_consumers.sinks.lakes.iceberg import IcebergTables  # noqa: PLC0415

    return IcebergTables(setup.spark, places.catalog(setup.dsn), setup.mode)


def _delta_beside(mode: str, session: SparkSession, folder: str) -> DeltaTables:
    from spark_consumers.sinks.lakes.delta import DeltaTables  # noqa: PLC0415

    return DeltaTables(lambda: session, partial(places.delta_place, folder), _REHEARSAL, mode)


def _iceberg_beside(mode: str, session: SparkSession, folder: str) -> IcebergTables:
    from spark_consumers.sinks.lakes.iceberg import IcebergTables  # noqa: PLC0415

    return IcebergTables(lambda: session, places.defined(session, folder, _REHEARSAL), mode)


def _sink(
    make: Callable[[Setup], DeltaTables | IcebergTables],
    beside: Callable[[str, SparkSession, str], DeltaTables | IcebergTables],
    setup: Setup,
) -> Sink:
    from spark_consumers.sinks.lakes.lease import FileLease, SparkFile  # noqa: PLC0415
    from spark_consumers.sinks.lakes.marks import TableMarks, table_of  # noqa: PLC0415
    from spark_consumers.sinks.lakes.sink import LakeSink  # noqa: PLC0415
    from spark_consumers.sinks.lakes.warm import WarmUp  # noqa: PLC0415

    table, tables = table_of(setup.source), make(setup)
    marks, others = (TableMarks(setup.spark, tables, setup.source) for _ in range(2))
    lease = FileLease(
        SparkFile(setup.spark, partial(tables.folder, table)),
        setup.source,
        others.fence,
        on_wait=setup.on_wait,
    )
    return LakeSink(
        tables, marks, setup.source, lease, WarmUp(setup.spark, partial(beside, setup.mode)),
        mode=setup.mode, replaces=setup.replace, keep=setup.keep, on_step=setup.on_step,
    )  # fmt: skip


def _reading(make: Callable[[Setup], DeltaTables | IcebergTables], setup: Setup) -> TargetReading:
    from spark_consumers.sinks.lakes.marks import TableMarks  # noqa: PLC0415
    from spark_consumers.sinks.lakes.reading import LakeReading  # noqa: PLC0415

    tables = make(setup)
    return LakeReading(tables, TableMarks(setup.spark, tables, setup.source), setup.mode)


def _look(setup: Setup, *, is_delta: bool) -> Inspector:
    from spark_consumers.sinks.lakes import looking  # noqa: PLC0415

    stamps = looking.delta_stamps if is_delta else looking.iceberg_stamps
    return looking.LakeInspector(setup, stamps)


_PACE: Final = Pace(
    few_rows=1_000_000,  # a step costs by table, however many rows there are
    many_rows=1_000_000,
    by_commit=False,
    by_interval=True,
    takes_frames=True,
)

DELTA_KIND: Final = Kind(
    sink=partial(_sink, _delta, _delta_beside),
    inspector=partial(_look, is_delta=True),
    jars="delta",
    settings=places.delta_settings,
    pace=_PACE,
    reading=partial(_reading, _delta),
)
ICEBERG_KIND: Final = Kind(
    sink=partial(_sink, _iceberg, _iceberg_beside),
    inspector=partial(_look, is_delta=False),
    jars="iceberg",
    settings=places.iceberg_settings,
    pace=_PACE,
    reading=partial(_reading, _iceberg),
)
