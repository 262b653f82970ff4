"""Records of a table -> rows of the data source, as Arrow.

A change becomes the rows that Spark's and Delta's readers of changes know:

    c, r    insert
    u       update_preimage, where the source sent something of the old row; update_postimage
    d       delete
    t       truncate    all columns are NULL: every row went
            gap         all columns are NULL: rows are missing
            In both `_exact` says why, unless the source truncated the table.

Values are those of `changes()`: both come from one table (dialects/spark_types.py).  This is what
native code is measured by, and reads what that leaves (`batches`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from schemas.tables import TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.decode import RowDecoder, split
from spark_consumers.dialects.spark import quote
from spark_consumers.errors import ShapeChanged
from spark_consumers.kafka.history import TableNote
from spark_consumers.spark.shapes import Cell, cells_of, is_wider, types_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

OURS: Final = (
    ("_change_type", "STRING"),
    ("_commit_version", "BIGINT"),
    ("_commit_timestamp", "TIMESTAMP"),
    ("_ordinal", "BIGINT"),
    ("_unsent", "ARRAY<STRING>"),
    ("_exact", "MAP<STRING,STRING>"),
)
_TABLE: Final = "_table"  # in a frame of several
_VERSION: Final = "_commit_version"
_MADE_OF: Final = "columns as of schema "
_NAMES: Final = tuple(name for name, _ in OURS)
KINDS: Final = ("insert", "update_preimage", "update_postimage", "delete", "truncate")


def definition(schema: Mapping[str, Any], newest: int | None) -> str:
    """Return the columns of a table and ours, as Spark's DDL spells them.

    `newest`: the id of the schema if no later one is known.  It is kept as a comment: the query
    may begin long after this.  Raises ShapeChanged for a column that is named as one of ours.
    """
    columns = []
    for name, kind in types_of(schema).items():
        if name.lower() in _NAMES:
            raise ShapeChanged("a column has the name of one of the data source's", column=name)
        columns.append(f"{quote(name)} {kind}")
    return ", ".join([*columns, *_ours(newest)])


def nested_definition(schemas: Mapping[TableId, Mapping[str, Any]], newest: int | None) -> str:
    """Return a column for each table, a struct of its columns, and ours, as Spark's DDL."""
    columns = []
    for table, schema in schemas.items():
        fields = (f"{quote(name)}: {kind}" for name, kind in types_of(schema).items())
        columns.append(f"{quote(str(table))} STRUCT<{', '.join(fields)}>")
    return ", ".join([*columns, f"{_TABLE} STRING", *_ours(newest)])


def _ours(newest: int | None) -> Iterator[str]:
    made = "" if newest is None else f" COMMENT '{_MADE_OF}{newest}'"
    return (f"{name} {kind}{made * (name == _VERSION)}" for name, kind in OURS)


def shape_of(schema: StructType, table: TableId) -> StructType:
    """Return a table's columns in a frame of several, and ours."""
    from pyspark.sql.types import StructType  # noqa: PLC0415  on executors

    own = schema[str(table)].dataType
    assert isinstance(own, StructType)
    return StructType([*own.fields, *schema.fields[-len(OURS) :]])


def nested(batch: pa.RecordBatch, table: TableId, schema: pa.Schema) -> pa.RecordBatch:
    """Put a table's rows, with ours, into a frame of several tables; the others' are NULL."""
    import pyarrow as pa  # noqa: PLC0415  on executors

    own, ours = batch.columns[: -len(OURS)], batch.columns[-len(OURS) :]
    count = batch.num_rows
    arrays = [
        pa.StructArray.from_arrays(own, fields=list(one.type))
        if one.name == str(table)
        else pa.nulls(count, one.type)
        for one in list(schema)[: -len(OURS) - 1]
    ]
    named = pa.repeat(pa.scalar(str(table), schema.field(_TABLE).type), count)
    return pa.RecordBatch.from_arrays([*arrays, named, *ours], schema=schema)


def made_of(schema: StructType) -> int | None:
    """Return the id that `definition` was given.  None: it was given none."""
    comment = str(schema[_VERSION].metadata.get("comment", ""))
    return int(comment.removeprefix(_MADE_OF)) if comment.startswith(_MADE_OF) else None


def check_shape(
    schema: Mapping[str, Any], wanted: Mapping[str, str], *, is_newer: bool
) -> Mapping[str, Any]:
    """Return a writer's schema that can be read as the wanted columns, name -> Spark's type.

    Columns that it lacks are NULL, columns that are wanted no more are left out.  Raises
    ShapeChanged where a type does not fit, or where the schema is newer than the query and has a
    column more.
    """
    own = types_of(schema)
    hint = "load() again, and start the query: it continues with the new columns"
    if is_newer and (more := own.keys() - wanted.keys()):
        raise ShapeChanged("a column was added", hint=hint, column=min(more))
    for name, kind in wanted.items():
        was = own.get(name, kind)
        if was.upper() != kind.upper() and not is_wider(was, kind.upper()):
            raise ShapeChanged(
                "a column's type changed",
                hint=hint
                if is_newer and is_wider(kind.upper(), was)
                else "read the commits before it apart, by endingVersion; a stream starts again "
                "behind it, with a new checkpoint and startingVersion",
                column=name,
                was=was,
                now=kind.upper(),
            )
    return schema


@dataclass(slots=True)
class ChangeRows:
    """Columns of rows in the making."""

    wanted: Sequence[str]  # names of the table's columns
    schema: pa.Schema
    columns: list[list[Any]] = field(init=False)
    _readers: dict[int, tuple[RowDecoder, list[Cell | None]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = [[] for _ in (*self.wanted, *OURS)]

    def know(self, schema_id: int, schema: dict[str, Any]) -> None:
        """Make ready for records of a schema."""
        cells = cells_of(schema)
        reader = RowDecoder(schema), [cells.get(name) for name in self.wanted]
        self._readers[schema_id] = reader

    def add(self, partition: int, offset: int, value: bytes) -> None:
        """Add the rows of a record; raise one of `REFUSALS` of `decode.rows`."""
        del partition, offset
        schema_id, payload = split(value)
        decoder, cells = self._readers[schema_id]
        record = decoder.raw(payload)
        before, after, source = record["before"], record["after"], record["source"]
        new = (source["exact"], source["unsent"])
        old = (source["before_exact"], self._absent(source["before_columns"]))
        match record["op"]:
            case "c" | "r":
                self._put("insert", cells, source, after, new)
            case "u":
                if before is not None:
                    self._put("update_preimage", cells, source, before, old)
                self._put("update_postimage", cells, source, after, new)
            case "d":
                self._put("delete", cells, source, before, old)
            case "t":
                self._put("truncate", cells, source, None, (None, None))

    def note(self, note: TableNote) -> None:
        """Add a row for something that is not a change of a row."""
        why = [("why", note.why)] if note.why else None
        self._row((), (note.kind, int(note.version), note.at, note.ordinal, None, why))

    def taken(self) -> pa.RecordBatch:
        """Return the rows so far, and begin anew."""
        import pyarrow as pa  # noqa: PLC0415  on executors

        arrays = [
            pa.array(values, one.type)
            for values, one in zip(self.columns, self.schema, strict=True)
        ]
        for values in self.columns:
            values.clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def __len__(self) -> int:
        return len(self.columns[-1])

    def _absent(self, sent: Collection[str] | None) -> list[str] | None:
        return None if sent is None else [name for name in self.wanted if name not in sent] or None

    def _put(
        self,
        kind: str,
        cells: Sequence[Cell | None],
        source: Mapping[str, Any],
        row: Mapping[str, Any] | None,
        corrections: tuple[Mapping[str, str] | None, Sequence[str] | None],
    ) -> None:
        texts, hidden = corrections[0] or {}, set(corrections[1] or ())
        values = [cell and cell.of(row, texts, hidden) for cell in cells] if row is not None else ()
        left = None
        if texts:
            known = {cell.name: cell for cell in cells if cell is not None}
            left = [(n, t) for n, t in texts.items() if n in known and not known[n].type.holds(t)]
        named = [name for name in self.wanted if name in hidden] or None
        version = int(Version(source["epoch"], source["seq"]))
        self._row(values, (kind, version, source["ts_us"], source["ordinal"], named, left or None))

    def _row(self, values: Sequence[Any], ours: tuple[Any, ...]) -> None:
        cells = (*(values or (None,) * len(self.wanted)), *ours)
        for column, cell in zip(self.columns, cells, strict=True):
            column.append(cell)
