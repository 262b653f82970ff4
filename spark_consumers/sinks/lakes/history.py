"""scd2: every state of a row that the end of a commit shows, and when it held.

A change ends the state that is current and begins the next one; both in one MERGE.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from schemas.tables import TableId
from spark_consumers.dialects.spark import EXACT, literal, quote
from spark_consumers.errors import RowMissing
from spark_consumers.sinks.lakes import changes as changed
from spark_consumers.sinks.lakes import moved
from spark_consumers.sinks.lakes.changes import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_PLACE: Final = "struct(seq, ordinal)"
_WINDOW: Final = "PARTITION BY _key ORDER BY seq, ordinal"
# A row keeps its values under another key.
_ROW: Final = "PARTITION BY if(_row IS NULL, _key, NULL), _row ORDER BY seq, ordinal"
_VALID: Final = (
    "_valid_from", "_valid_to", "_valid_from_timestamp", "_valid_to_timestamp", "_is_current",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class StatesMerge:
    """What one MERGE takes: rows that end a state (`_mk`, `_at`, `_when`), and states to add."""

    frame: DataFrame
    statement: str  # `{target}` and `{source}` are the tables


@dataclass(frozen=True, slots=True)
class _Cut:
    """The first TRUNCATE."""

    version: int
    micros: int | None  # since 1970

    @property
    def time(self) -> str:
        """Write it as Spark does."""
        return "NULL" if self.micros is None else f"timestamp_micros({self.micros})"


def loaded(rows: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return rows of a load as states that hold from the epoch's beginning."""
    cells = [f"after.{quote(name)} AS {quote(name)}" for name in columns]
    return rows.selectExpr(
        *cells, f"exact AS {EXACT}", f"{VERSION} AS _valid_from",
        "committed_at AS _valid_from_timestamp", "true AS _is_current",
    )  # fmt: skip


def history(
    changes: DataFrame,
    target: DataFrame,
    table: TableId,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    is_exact: bool,
    of: changed.Kinds | None = None,
) -> StatesMerge:
    """Return the states that these changes end and begin; `target` is the table before them.

    `of`: what the changes are, where it is known.

    Raises RowMissing where an exact table lacks the row of a change that did not send all.
    """
    of = of or changed.kinds(changes, key)
    changed.check(table, of)
    said = [(name, *changed.said(name)) for name in columns]
    events = changed.events(changes.where("op != 't'"), key, of)
    if of.moved_unsent:
        events = moved.traced(events)
    else:
        events = events.selectExpr("*", "CAST(NULL AS INT) AS _row", "_key AS _origin")
    events = events.selectExpr(
        "_key", "_gone", "_row", "_origin", "seq", "ordinal",
        f"{VERSION} AS _version", "committed_at AS _time",
        *(f"if({sent}, {cell}, NULL) AS {_cell(name)}" for name, cell, sent in said),
    )  # fmt: skip
    cuts = changes.where("op = 't'").selectExpr(
        "seq AS _s", "ordinal AS _o", f"{VERSION} AS _v", "committed_at AS _t"
    ).distinct()  # fmt: skip
    if of.truncated is not None:  # each row that was there before ends by it
        from pyspark.sql import functions as f  # noqa: PLC0415  only where Spark is

        before = f.expr("seq < _s OR (seq = _s AND ordinal < _o)")
        ended = events.select("_key", "seq", "ordinal").join(f.broadcast(cuts), before)
        events = events.unionByName(
            ended.selectExpr(
                "_key", "true AS _gone", "_s AS seq", "_o AS ordinal", "_v AS _version",
                "_t AS _time",
            ).distinct(),
            allowMissingColumns=True,
        )  # fmt: skip
    states = _states(events, columns)
    if of.unsent:
        states = _filled(states, target, columns, key)
        lost = " OR ".join(f"{_cell(c)} IS NULL" for c in columns)
        if is_exact and not states.where(lost).isEmpty():
            raise RowMissing("a change needs a row that the lake does not have", table=table)
        states = states.where(f"NOT ({lost})")
    rows = states.selectExpr(
        *(f"{_cell(c)}.v AS {_cell(c)}" for c in columns),
        f"{_texts(columns)} AS {EXACT}",
        *("_version AS _valid_from", "_to AS _valid_to", "_time AS _valid_from_timestamp"),
        *("_to_time AS _valid_to_timestamp", "_to IS NULL AS _is_current"),
    )
    ends = events.groupBy("_key").agg(
        *changed.exprs(f"min_by(_version, {_PLACE}) AS _at", f"min_by(_time, {_PLACE}) AS _when")
    )
    cut = None
    if of.truncated is not None:  # what was there before it ended by it
        first = cuts.selectExpr("min(_v)", "min_by(unix_micros(_t), struct(_s, _o))").first()
        assert first is not None
        cut = _Cut(first[0], first[1])
        ends = ends.selectExpr(
            "_key",
            f"least(_at, {cut.version}) AS _at",
            f"if(_at > {cut.version}, {cut.time}, _when) AS _when",
        )
    frame = rows.selectExpr("true AS _new", "*").unionByName(
        ends.selectExpr("false AS _new", "_key AS _mk", "_at", "_when"), allowMissingColumns=True
    )
    return StatesMerge(frame, _statement(columns, key, cut))


def _states(events: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return the last state of each key in each commit, and when the next one begins."""
    filled = events.selectExpr(
        "_key", "_gone", "_origin", "seq", "ordinal", "_version", "_time",
        *(f"last({_cell(c)}, true) OVER ({_ROW}) AS {_cell(c)}" for c in columns),
        f"lead(seq) OVER ({_WINDOW}) AS _next",
    )  # fmt: skip
    last = filled.where("_next IS NULL OR _next != seq")
    return last.selectExpr(
        "*",
        f"lead(_version) OVER ({_WINDOW}) AS _to",
        f"lead(_time) OVER ({_WINDOW}) AS _to_time",
    ).where("NOT _gone")


def _filled(
    states: DataFrame, target: DataFrame, columns: Sequence[str], key: Sequence[str]
) -> DataFrame:
    """Take what no change said from the state that is current, under the key that it has there."""
    names = ", ".join(f"{quote(k)} AS {quote(k)}" for k in key)
    now = target.where("_is_current").selectExpr(
        f"struct({names}) AS _origin",
        *(
            f"struct({quote(c)} AS v, {EXACT}[{literal(c)}] AS t) AS {quote(f'there {c}')}"
            for c in columns
        ),
    )
    cells = {f"cell {c}" for c in columns}
    rest = [c for c in states.columns if c not in cells]
    return states.join(now, "_origin", "left").selectExpr(
        *rest, *(f"coalesce({_cell(c)}, {quote(f'there {c}')}) AS {_cell(c)}" for c in columns)
    )


def _texts(columns: Sequence[str]) -> str:
    pairs = ", ".join(f"struct({literal(c)} AS k, {_cell(c)}.t AS t)" for c in columns)
    own = f"filter(array({pairs}), e -> e.t IS NOT NULL)"
    return f"if(size({own}) > 0, map_from_entries({own}), NULL)"


def _cell(name: str) -> str:
    """Quote the name that a column of the table has here, where it may be called as one of ours."""
    return quote(f"cell {name}")


def _statement(columns: Sequence[str], key: Sequence[str], cut: _Cut | None) -> str:
    on = " AND ".join(f"t.{quote(k)} = s._mk.{quote(k)}" for k in key)
    own = (EXACT, *_VALID)
    names = ", ".join(map(quote, [*columns, *own]))
    values = ", ".join(f"s.{name}" for name in [*map(_cell, columns), *own])
    ends = "t._valid_to = {}, t._valid_to_timestamp = {}, t._is_current = false"
    truncated = ""
    if cut is not None:
        truncated = (
            " WHEN NOT MATCHED BY SOURCE AND t._is_current"
            f" THEN UPDATE SET {ends.format(cut.version, cut.time)}"
        )
    return (
        f"MERGE INTO {{target}} t USING {{source}} s ON {on} AND t._is_current"
        f" WHEN MATCHED THEN UPDATE SET {ends.format('s._at', 's._when')}"
        f" WHEN NOT MATCHED AND s._new THEN INSERT ({names}) VALUES ({values}){truncated}"
    )
