"""What stands in the records of a segment: rows by table, schema changes.

Pure but for the registry behind `schema_of`.  Values are taken together by what they begin with,
their frame, which names the writer's schema.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from schemas.control import SchemaChange
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from schemas.topics import Topics
from spark_consumers.decode import FRAME_SIZE, RowDecoder, split
from spark_consumers.decode.control import decode_control
from spark_consumers.decode.rows import COMMIT_ORDER, REFUSALS
from spark_consumers.decode.rows import Rows as TakenRows
from spark_consumers.errors import Incomplete, StreamError
from spark_consumers.model import Change, Rows
from spark_consumers.native import is_framed

if TYPE_CHECKING:
    from spark_consumers.kafka.registry import SchemaOf  # executors have no client of it
    from spark_consumers.native._native import FramedRows

_OBJECTS: Final = 8  # times the bytes of a row in Avro, that Python's objects take


class Decoder(Protocol):
    """Reads all values of one writer's schema: `RowDecoder`, or another one of its methods."""

    def decode(self, payload: memoryview) -> Any:
        """Read one value, without its frame; raise one of `REFUSALS` of `decode.rows`."""

    def rows(self, schema_id: int) -> TakenRows:
        """Make empty rows for values that are framed with this id of the schema."""


DecoderOf: TypeAlias = Callable[..., Decoder]  # (schema, native=...)


class Decoders:
    """What is kept from segment to segment: decoders by schema, tables by topic."""

    def __init__(
        self,
        names: Topics,
        schema_of: SchemaOf,
        *,
        native: bool,
        make: DecoderOf = RowDecoder,
    ) -> None:
        """`native`: rows are filled natively where this process can; `make`: what decodes them."""
        self.names, self.schema_of = names, schema_of
        self._native, self._make = native, make
        self._decoders: dict[int, Decoder] = {}
        self._tables: dict[str, TableId] = {}

    def decoder(self, schema_id: int) -> Decoder:
        """Return the decoder of a writer's schema."""
        found = self._decoders.get(schema_id)
        if found is None:
            schema = self.schema_of(schema_id)
            found = self._decoders[schema_id] = self._make(schema, native=self._native)
        return found

    def table(self, topic: str, schema_id: int) -> TableId:
        """Return the table whose rows stand in a topic; raise StreamError."""
        table = self._tables.get(topic)
        if table is None:
            table = self.names.table_by(topic, self.schema_of(schema_id))
            if table is None:
                raise StreamError("a range names a topic that is not a table's", topic=topic)
            self._tables[topic] = table
        return table


class Content:
    """The records of one segment, as they come; in no order across partitions."""

    def __init__(self, decoders: Decoders) -> None:
        self._decoders = decoders
        self._rows: dict[tuple[str, bytes], tuple[TableId, Decoder, TakenRows]] = {}
        self._ddl: list[SchemaChange] = []
        self._read_by_python = 0  # bytes of values

    def held(self) -> int:
        """Bytes of memory that the rows take in the end, about.

        Rows of a table that were written with two schemas become objects (`all`).
        """
        schemas = Counter(table for table, _, _ in self._rows.values())
        packed = (
            rows.held() * (_OBJECTS if schemas[table] > 1 else 1)
            for table, _, rows in self._rows.values()
            if is_framed(rows)
        )
        return sum(packed) + _OBJECTS * self._read_by_python

    def rows_for(self, topic: str, partition: int, offset: int, value: bytes) -> FramedRows | None:
        """Return the rows for values that begin as this one does; None: Python reads them."""
        if topic == self._decoders.names.ddl:
            return None
        rows = self._of(topic, partition, offset, value)[2]
        return rows if is_framed(rows) else None

    def put(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """Take one record as Python reads it."""
        if topic == self._decoders.names.ddl:
            self._put_ddl(partition, offset, value)
            return
        _, decoder, rows = self._of(topic, partition, offset, value)
        self._put(rows, decoder, value, (topic, partition, offset))

    def take(self, topic: str, records: Sequence[tuple[int, int, bytes]]) -> None:
        """Take (partition, offset, value) of a topic whose values begin alike."""
        if topic == self._decoders.names.ddl:
            for record in records:
                self._put_ddl(*record)
            return
        _, decoder, rows = self._of(topic, *records[0])
        values, at = [value for _, _, value in records], 0
        while (at := rows.take(values, at)) < len(values):
            partition, offset, value = records[at]
            self._put(rows, decoder, value, (topic, partition, offset))
            at += 1

    def all(self) -> Rows:
        """Return everything in commit order."""
        changes: dict[TableId, Sequence[Change]] = {}
        for table, _, rows in self._rows.values():
            rows.order()
            known = changes.get(table)
            changes[table] = (
                rows if known is None else sorted([*known, *rows], key=COMMIT_ORDER)
            )  # a table written with two schemas
        return Rows(changes, sorted(self._ddl, key=COMMIT_ORDER))

    def _put(
        self, rows: TakenRows, decoder: Decoder, value: bytes, place: tuple[str, int, int]
    ) -> None:
        """Read a value whose frame is that of the rows."""
        self._read_by_python += len(value)
        try:  # of each row: a context manager would cost more than many a cell
            rows.put(decoder.decode(memoryview(value)[FRAME_SIZE:]))
        except REFUSALS as error:
            raise _refusal(*place) from error

    def _of(
        self, topic: str, partition: int, offset: int, value: bytes
    ) -> tuple[TableId, Decoder, TakenRows]:
        key = (topic, value[:FRAME_SIZE])
        found = self._rows.get(key)
        if found is None:
            with undecodable(topic, partition, offset):
                schema_id, _ = split(value)
                decoder = self._decoders.decoder(schema_id)
            table = self._decoders.table(topic, schema_id)
            found = self._rows[key] = table, decoder, decoder.rows(schema_id)
        return found

    def _put_ddl(self, partition: int, offset: int, value: bytes) -> None:
        decoders = self._decoders
        with undecodable(decoders.names.ddl, partition, offset):
            change = decode_control(value, decoders.schema_of)
        if not isinstance(change, SchemaChange):
            raise Incomplete("a cut stands in the ddl topic", offset=offset)
        self._ddl.append(change)


@contextmanager
def undecodable(topic: str, partition: int, offset: int) -> Iterator[None]:
    """Say which record it is that cannot be decoded.  Raises StreamError with its place."""
    try:
        yield
    except REFUSALS as error:
        raise _refusal(topic, partition, offset) from error


def _refusal(topic: str, partition: int, offset: int) -> StreamError:
    return StreamError(
        "a row cannot be decoded",
        topic=topic,
        partition=partition,
        offset=offset,
        hint=f"written by a newer release: update this one; by another client: {LOAD_AGAIN}",
    )
