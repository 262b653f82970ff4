"""Changes of one table -> the frame that one write of a lake takes.

    scd1   the last state of each key: one row that comes, goes or changes
    scd2   each state of each key that the end of a commit shows, with when it held
    log    each change as a row

All in Spark, by aggregates and windows over the key; the driver sees counts only.  A frame of
changes has the columns of `frames.changes_frame`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId
from spark_consumers.dialects.spark import EXACT, literal, quote
from spark_consumers.errors import NotExpressible
from spark_consumers.sinks.lakes import moved
from spark_consumers.sinks.step import Place

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

GONE: Final = "_gone"
KEPT: Final = "_kept"  # columns that the target keeps: the source did not send them
# Columns that stand beside the source's own in a frame of `net`.
WORKING: Final = (GONE, KEPT, "_key", "_row", "_origin", "_texts")

# What a table of each mode has besides the source's columns.
MORE: Final = {
    "scd1": {EXACT: "MAP<STRING, STRING>"},
    "scd2": {
        EXACT: "MAP<STRING, STRING>",
        "_valid_from": "BIGINT",
        "_valid_to": "BIGINT",
        "_valid_from_timestamp": "TIMESTAMP",
        "_valid_to_timestamp": "TIMESTAMP",
        "_is_current": "BOOLEAN",
    },
    "log": {
        EXACT: "MAP<STRING, STRING>",
        "_unsent": "ARRAY<STRING>",
        "_change_type": "STRING",
        "_commit_version": "BIGINT",
        "_commit_timestamp": "TIMESTAMP",
        "_ordinal": "BIGINT",
    },
}

_WHOLE: Final = frozenset({"short", "integer", "long", "boolean"})  # they hold all that is sent
VERSION: Final = "(CAST(epoch AS BIGINT) * 1099511627776 + seq)"  # grows over epochs, too
_PLACE: Final = "struct(seq, ordinal)"


class Kinds(NamedTuple):
    """What the changes of a table are, counted by one job."""

    rows: int
    inserts: int  # c and r
    truncated: tuple[int, int] | None  # the last TRUNCATE
    unsent: int  # rows that leave values out
    moved: int  # changed keys
    moved_unsent: int  # and of these, those that leave values out
    unnamed: int  # changes that do not carry the key of their old row
    unheld: int  # changes with a key that Spark cannot hold


@dataclass(frozen=True, slots=True)
class Net:
    """The last state per key."""

    frame: DataFrame  # the table's columns, _exact, _gone, _kept
    is_whole: bool  # a TRUNCATE went before: nothing of the table stays
    is_plain: bool  # only rows that were not there before, each of its own key
    has_kept: bool


def flags(key: Sequence[str]) -> list[str]:
    """Return what `Kinds` counts of each change, as columns."""
    unnamed = " OR ".join(f"before.{quote(k)} IS NULL" for k in key) or "false"
    return [
        "coalesce(size(unsent), 0) > 0 AS is_unsent",
        f"{moved_key(key)} AS is_moved",
        f"op = 'd' AND (before IS NULL OR {unnamed}) AS is_unnamed",
        f"{_unheld(key)} AS is_unheld",
    ]


# `Kinds` of rows with `flags`.
COUNTED: Final = (
    "count(*)",
    "count_if(op IN ('c', 'r'))",
    f"max({_PLACE}) FILTER (WHERE op = 't')",
    "count_if(is_unsent)",
    "count_if(is_moved)",
    "count_if(is_moved AND is_unsent)",
    "count_if(is_unnamed)",
    "count_if(is_unheld)",
)


def kinds_of(counted: Iterable[Sequence[Any]]) -> Kinds:
    """Add up rows of COUNTED.

    >>> kinds_of([(3, 1, (7, 2), 0, 1, 0, 0, 0), (1, 0, None, 1, 0, 0, 1, 0)])[3:]
    (1, 1, 0, 1, 0)
    """
    rows = [*counted]
    last = max((tuple(row[2]) for row in rows if row[2] is not None), default=None)
    sums = (sum(row[at] for row in rows) for at in (0, 1, 3, 4, 5, 6, 7))
    count, inserts, *more = sums
    return Kinds(count, inserts, last, *more)


def kinds(changes: DataFrame, key: Sequence[str]) -> Kinds:
    """Count, by one job."""
    told = changes.selectExpr("op", "seq", "ordinal", *flags(key))
    return kinds_of(told.agg(*exprs(*COUNTED)).collect())


def net(
    changes: DataFrame,
    target: DataFrame,
    table: TableId,
    columns: Sequence[str],
    key: Sequence[str],
    *,
    is_exact: bool,
    of: Kinds | None = None,
) -> Net:
    """Return the last state of each key; `target` is the table before these changes.

    `of`: what the changes are, where it is known.
    """
    of = of or kinds(changes, key)
    check(table, of)
    changes = _since(changes, of)
    # Where a DELETE may have been lost, a key may come that is there, or twice.
    if is_exact and of.rows == of.inserts and of.truncated is None:
        cells = [f"after.{quote(name)} AS {quote(name)}" for name in columns]
        frame = changes.selectExpr(*cells, f"exact AS {EXACT}")
        return Net(frame, is_whole=False, is_plain=True, has_kept=False)
    keyed = events(changes, key, of)
    has_kept = of.unsent > 0
    # Columns of their own, not a struct: the join with the table then needs no shuffle of these.
    keys = [quote(f"key {k}") for k in key]
    news = {c: quote(f"new {c}") for c in columns}  # no column's name is one of a key
    cells_said = [said(name) for name in columns]
    followed = None
    if of.moved_unsent:
        followed, met = moved.resolved(
            keyed, target, table, columns, key, said=cells_said, is_exact=is_exact
        )
        keyed = keyed.join(met, "_key", "left_anti")
    last = keyed.groupBy(
        *exprs(*(f"_key.{quote(k)} AS {name}" for k, name in zip(key, keys, strict=True)))
    )
    if has_kept:
        state = last.agg(
            *exprs(
                f"max_by(_gone, {_PLACE}) AS {GONE}",
                *(f"max_by({cell}, {_PLACE}) FILTER (WHERE {sent}) AS {news[name]}"
                  for name, (cell, sent) in zip(columns, cells_said, strict=True)),
            )
        )  # fmt: skip
        texts = ", ".join(f"struct({literal(c)} AS k, {new}.t AS t)" for c, new in news.items())
        kept = ", ".join(f"if({new} IS NULL, {literal(c)}, NULL)" for c, new in news.items())
        frame = state.selectExpr(
            *(f"{keys[key.index(c)] if c in key else new + '.v'} AS {quote(c)}"
              for c, new in news.items()),
            f"map_from_entries(filter(array({texts}), e -> e.t IS NOT NULL)) AS {EXACT}",
            GONE,
            f"if({GONE}, array(), array_compact(array({kept}))) AS {KEPT}",
        )  # fmt: skip
        keyless = f"array_except({KEPT}, array({', '.join(map(literal, key))}))"
        frame = frame.selectExpr(
            *map(quote, columns), f"if(size({EXACT}) > 0, {EXACT}, NULL) AS {EXACT}", GONE,
            f"{keyless} AS {KEPT}",
        )  # fmt: skip
    else:
        state = last.agg(*exprs(f"max_by(struct(_gone, after, exact), {_PLACE}) AS s"))
        frame = state.selectExpr(
            *(f"{keys[key.index(c)] if c in key else 's.after.' + quote(c)} AS {quote(c)}"
              for c in columns),
            f"s.exact AS {EXACT}",
            f"s._gone AS {GONE}",
            f"CAST(array() AS ARRAY<STRING>) AS {KEPT}",
        )  # fmt: skip
    if followed is not None:
        none = f"CAST(array() AS ARRAY<STRING>) AS {KEPT}"
        frame = frame.unionByName(followed.selectExpr("*", none))
    is_whole = of.truncated is not None
    if is_whole:
        frame = frame.where(f"NOT {GONE}")
    return Net(frame, is_whole=is_whole, is_plain=False, has_kept=has_kept)


def log(changes: DataFrame, columns: Sequence[str]) -> DataFrame:
    """Return each change as a row; an update has two where its old row was sent."""

    def row(of: str, exact: str, kind: str) -> str:
        cells = ", ".join(f"{of}.{quote(c)} AS {quote(c)}" for c in columns)
        return f"struct({cells}, {exact} AS {EXACT}, {literal(kind)} AS _change_type)"

    new, old = row("after", "exact", "insert"), row("before", "before_exact", "delete")
    images = (
        f"array({row('before', 'before_exact', 'update_preimage')},"
        f" {row('after', 'exact', 'update_postimage')})"
    )
    frame = changes.selectExpr(
        f"CASE WHEN op IN ('c', 'r') THEN array({new}) WHEN op = 'd' THEN array({old})"
        f" WHEN op = 't' THEN array({row('after', 'exact', 'truncate')})"
        f" WHEN before IS NULL THEN array({row('after', 'exact', 'update_postimage')})"
        f" ELSE {images} END AS rows",
        "unsent AS _unsent",
        f"{VERSION} AS _commit_version",
        "committed_at AS _commit_timestamp",
        "ordinal AS _ordinal",
    ).selectExpr("explode(rows) AS r", "*")
    return frame.selectExpr(
        *(f"r.{quote(c)} AS {quote(c)}" for c in columns), f"r.{EXACT} AS {EXACT}", "_unsent",
        "r._change_type AS _change_type", "_commit_version", "_commit_timestamp",
        "CAST(_ordinal AS BIGINT) AS _ordinal",
    )  # fmt: skip


def behind(place: Place) -> str:
    """Say of a change that it comes after a place.

    >>> behind((4, 1))
    '(seq > 4 OR (seq = 4 AND ordinal > 1))'
    """
    seq, ordinal = place
    return f"(seq > {seq} OR (seq = {seq} AND ordinal > {ordinal}))"


def exprs(*texts: str) -> list[Column]:
    """Parse expressions."""
    from pyspark.sql import functions as f  # noqa: PLC0415

    return [f.expr(text) for text in texts]


def moved_key(key: Sequence[str]) -> str:
    """Say of an update that its row has another key than before."""
    other = " OR ".join(f"before.{quote(k)} <=> after.{quote(k)} = false" for k in key)
    return f"(op = 'u' AND before IS NOT NULL AND ({other or 'false'}))"


def _since(changes: DataFrame, of: Kinds) -> DataFrame:
    """Leave out what a TRUNCATE removed."""
    if of.truncated is None:
        return changes
    seq, ordinal = of.truncated
    return changes.where(f"op != 't' AND {behind((seq, ordinal))}")


def events(changes: DataFrame, key: Sequence[str], of: Kinds) -> DataFrame:
    """Return changes by the key that they concern; a changed key is two."""

    def named(row: str) -> str:
        return "struct(" + ", ".join(f"{row}.{quote(k)} AS {quote(k)}" for k in key) + ")"

    old = f"if(op = 'd' OR {moved_key(key)}, {named('before')}, NULL) AS _old"
    new = f"if(op = 'd', NULL, {named('after')}) AS _new"
    comes = f"struct({named('after')} AS k, false AS gone)"
    goes = f"struct({named('before')} AS k, true AS gone)"
    both = f"if({moved_key(key)}, array({goes}, {comes}), array({comes}))" if of.moved else None
    frame = changes.selectExpr(
        f"explode(CASE WHEN op = 'd' THEN array({goes}) ELSE {both or f'array({comes})'} END) AS e",
        f"{moved_key(key)} AS _is_moved",
        old,
        new,
        "*",
    )
    return frame.selectExpr("e.k AS _key", "e.gone AS _gone", "*").drop("e")


def said(name: str) -> tuple[str, str]:
    """Return the value of a column with its text, and whether a change says it.

    What `unsent` names may stand in the old row.
    """
    text = literal(name)
    old = f"before IS NOT NULL AND coalesce(array_contains(before_columns, {text}), true)"
    is_unsent = f"array_contains(coalesce(unsent, array()), {text})"
    cell = (
        f"if({is_unsent}, struct(before.{quote(name)} AS v, before_exact[{text}] AS t),"
        f" struct(after.{quote(name)} AS v, exact[{text}] AS t))"
    )
    return cell, f"NOT _gone AND (NOT {is_unsent} OR ({old}))"


def check(table: TableId, of: Kinds) -> None:
    """Refuse changes that name no row."""
    if of.unheld:
        _refuse_key(table)
    if of.unnamed:
        raise NotExpressible(
            "a deleted row does not carry its key",
            table=table,
            hint=f"REPLICA IDENTITY must hold the key; then {LOAD_AGAIN}",
        )


def check_loaded(rows: DataFrame, table: TableId, key: Sequence[str]) -> None:
    """Refuse rows of a load that no change could name."""
    row: Any = rows.schema["after"].dataType
    some = [f.name for f in row.fields if f.name in key and f.dataType.typeName() not in _WHOLE]
    if some and not rows.where(_unheld(some)).isEmpty():
        _refuse_key(table)


def _unheld(key: Sequence[str]) -> str:
    """Say of a change that its key is not all that the source's text says, in either image."""
    texts = (f"{of}[{literal(k)}] IS NOT NULL" for k in key for of in ("exact", "before_exact"))
    return f"({' OR '.join(texts) or 'false'})"


def _refuse_key(table: TableId) -> NoReturn:
    raise NotExpressible(
        "a key has a value that Spark cannot hold: infinity, NaN, a year before Christ",
        table=table,
        hint=f"give it another key or value, or leave the table out of [tables]; then {LOAD_AGAIN}",
    )
