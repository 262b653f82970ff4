"""Batches of the data source: a row for each image of a row, as `source.rows` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from spark_consumers import native
from spark_consumers.source.rows import KINDS, ChangeRows
from spark_consumers.spark.batches import Batches, Writers, array

if TYPE_CHECKING:
    import pyarrow as pa

_OURS: Final = ("int8", "int64", "int64", "int64", "int32")  # layouts, up to `_unsent`


def change_batches(
    wanted: Sequence[str],
    schema: pa.Schema,
    schemas: Mapping[int, dict[str, Any]],
    *,
    native_parts: bool = True,
) -> Batches[ChangeRows]:
    """Make empty batches; `wanted`: names of the table's columns in `schema`, ours are behind."""
    plain = ChangeRows(wanted, schema)
    for schema_id, writer in schemas.items():
        plain.know(schema_id, writer)
    is_native = native_parts and native.IS_BUILT
    return Batches(plain, _NativeImages(wanted, schema, schemas) if is_native else None)


class _NativeImages:
    """Implements `batches.NativeRows`."""

    def __init__(
        self, wanted: Sequence[str], schema: pa.Schema, schemas: Mapping[int, dict[str, Any]]
    ) -> None:
        self._wanted, self._schema = wanted, schema
        writers = Writers(dict(zip(wanted, schema.types, strict=False)), schemas)
        self._columns = columns = writers.columns(_OURS)
        self.of_frames = writers.rows(lambda plan, ways: native.arrow_rows(plan, ways, columns))

    def held(self) -> int:
        return self._columns.held()

    def __len__(self) -> int:
        return len(self._columns)

    def taken(self) -> pa.RecordBatch:
        import pyarrow as pa  # noqa: PLC0415  on executors

        wanted, count = self._wanted, len(self._columns)
        found, patterns = self._columns.taken()
        *own, change, version, time, ordinal, unsent, exact = self._schema.types
        kind, *numbers, lacks = found[len(wanted) :]
        names = [[n for n, lacks in zip(wanted, one, strict=True) if lacks] for one in patterns]
        arrays = [
            *(array(kind, count, one) for kind, one in zip(own, found, strict=False)),
            pa.array(KINDS, change).take(array(pa.int8(), count, kind)),
            *(
                array(kind, count, one)
                for kind, one in zip((version, time, ordinal), numbers, strict=True)
            ),
            pa.array(names, unsent).take(array(pa.int32(), count, lacks)),
            pa.nulls(count, exact),
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)
