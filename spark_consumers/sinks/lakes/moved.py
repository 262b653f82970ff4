"""Rows that changed their key, where values that they kept were not sent.

Such a value is the one that the row had under its old key: it was sent by an earlier change of
these commits, or stands in the lake's table.  The driver follows the rows by their keys alone, of
the changes that meet a changed key; values stay on executors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from pyspark.sql.types import StructType

from schemas.tables import TableId
from spark_consumers.dialects.spark import literal, quote
from spark_consumers.errors import RowMissing
from spark_consumers.spark.given import given

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Key: TypeAlias = tuple[Any, ...]
_PLACES: Final = StructType().add("seq", "long").add("ordinal", "long").add("_row", "integer")


@dataclass(slots=True)
class Lives:
    """Rows by number, wherever they went."""

    changes: list[tuple[int, int, int]] = field(default_factory=list)  # seq, ordinal, row
    origins: list[Key | None] = field(default_factory=list)  # key in the lake; None: it came
    now: dict[Key, int] = field(default_factory=dict)  # key -> row, at the end
    met: set[Key] = field(default_factory=set)


def follow(changes: Iterable[tuple[int, int, str, Key | None, Key | None]]) -> Lives:
    """Follow rows through (seq, ordinal, op, old key if it is known, new key), in order.

    >>> lives = follow([(1, 0, "u", (1,), (2,)), (1, 1, "c", None, (1,)), (2, 0, "u", None, (2,))])
    >>> lives.now, lives.origins, lives.changes
    ({(1,): 1, (2,): 0}, [(1,), None], [(1, 0, 0), (1, 1, 1), (2, 0, 0)])
    """
    out = Lives()

    def begin(origin: Key | None) -> int:
        out.origins.append(origin)
        return len(out.origins) - 1

    for seq, ordinal, op, old, new in changes:
        out.met |= {key for key in (old, new) if key is not None}
        if op == "d":
            assert old is not None
            out.now.pop(old, None)
            continue
        assert new is not None
        if op == "u":
            key = new if old is None else old
            row = out.now.pop(key) if key in out.now else begin(key)
        else:
            row = begin(None)
        out.now[new] = row
        out.changes.append((seq, ordinal, row))
    return out


def resolved(
    events: DataFrame,
    target: DataFrame,
    table: TableId,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    said: Sequence[tuple[str, str]],
    is_exact: bool,
) -> tuple[DataFrame, DataFrame]:
    """Return rows of all keys that a changed key meets, and these keys.

    `events` are changes by `_key`, `said` the value of each column and whether a change says it.
    Rows have the table's columns, _exact and _gone.

    Raises RowMissing where an exact table lacks the row of a change that did not send all.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  only where Spark is

    spark, type_ = events.sparkSession, events.schema["_key"].dataType
    lives = _lives(events)
    places = given(spark, lives.changes, _PLACES)
    values = (
        events.where("NOT _gone")
        .join(f.broadcast(places), ["seq", "ordinal"])
        .groupBy("_row")
        .agg(
            *(
                f.expr(f"max_by({cell}, struct(seq, ordinal)) FILTER (WHERE {sent})").alias(name)
                for name, (cell, sent) in zip(columns, said, strict=True)
            )
        )
    )
    shape = StructType().add("_row", "integer").add("_origin", type_).add("_key", type_)
    ends = [(row, lives.origins[row], key_) for key_, row in lives.now.items()]
    there = target.selectExpr(
        f"{_struct(key)} AS _origin", *(f"{quote(c)} AS {quote(f't {c}')}" for c in columns),
        "_exact AS _texts",
    )  # fmt: skip
    whole = given(spark, ends, shape).join(values, "_row").join(there, "_origin", "left")
    unsent = " OR ".join(f"{quote(c)} IS NULL" for c in columns if c not in key) or "false"
    lost = f"({unsent}) AND {quote(f't {key[0]}')} IS NULL"
    if is_exact and not whole.where(lost).isEmpty():
        raise RowMissing("a change needs a row that the lake does not have", table=table)
    texts = ", ".join(f"struct({literal(c)} AS k, {quote(c)}.t AS t)" for c in columns)
    kept = ", ".join(f"if({quote(c)} IS NULL, {literal(c)}, NULL)" for c in columns)
    none = "CAST(map() AS MAP<STRING, STRING>)"
    exact = (
        f"map_concat(map_from_entries(filter(array({texts}), e -> e.t IS NOT NULL)),"
        f" map_filter(coalesce(_texts, {none}), (k, v) -> array_contains(array({kept}), k)))"
    )
    cells = [
        f"_key.{quote(c)} AS {quote(c)}"
        if c in key
        else f"if({quote(c)} IS NULL, {quote(f't {c}')}, {quote(c)}.v) AS {quote(c)}"
        for c in columns
    ]
    come = whole.where(f"NOT ({lost})").selectExpr(
        *cells, f"if(size({exact}) > 0, {exact}, NULL) AS _exact", "false AS _gone"
    )
    only_key = StructType().add("_key", type_)
    met = given(spark, [(k,) for k in lives.met], only_key)
    gone = [(k,) for k in lives.met if k not in lives.now]
    nulls = {field.name: field.dataType.simpleString() for field in come.schema.fields}
    go = given(spark, gone, only_key).selectExpr(
        *(
            f"_key.{quote(c)} AS {quote(c)}"
            if c in key
            else f"CAST(NULL AS {nulls[c]}) AS {quote(c)}"
            for c in columns
        ),
        f"{none} AS _exact",
        "true AS _gone",
    )
    return come.unionByName(go), met


def traced(events: DataFrame) -> DataFrame:
    """Say of each change which row it is of, and under which key the lake has that row.

    `_row` is NULL where no changed key is met: the key itself says it then.
    """
    from pyspark.sql import functions as f  # noqa: PLC0415  only where Spark is

    lives = _lives(events)
    places = given(
        events.sparkSession,
        [(*place, row, lives.origins[row]) for *place, row in lives.changes],
        StructType([*_PLACES.fields]).add("_from", events.schema["_key"].dataType),
    )
    return events.join(f.broadcast(places), ["seq", "ordinal"], "left").selectExpr(
        *events.columns, "_row", "if(_row IS NULL, _key, _from) AS _origin"
    )


def _lives(events: DataFrame) -> Lives:
    """Follow the rows of all keys that a changed key meets."""
    moved = events.where("_is_moved").select("_key").distinct()
    rows = events.join(moved, "_key", "left_semi").select("seq", "ordinal", "op", "_old", "_new")
    found = {(r[0], r[1]): (r[2], _key(r[3]), _key(r[4])) for r in rows.collect()}
    return follow((*place, *found[place]) for place in sorted(found))


def _struct(key: Sequence[str]) -> str:
    return "struct(" + ", ".join(f"{quote(k)} AS {quote(k)}" for k in key) + ")"


def _key(row: Any) -> Key | None:
    return None if row is None else tuple(row)
