"""Last states by the server: SQL over staged rows that does what `compact.collapse` does.

Each row of a staging table (bulk.py) is an event of a key, and a change of the key is two:

    b   a whole row begins (c, r)
    u   the row changes under its key
    a   a row arrives under a new key, from the old one
    x   the row goes: deleted, or to another key

The last event of a key decides: x deletes, any other one writes.  Where values were not sent, a
row's history is needed.  Events of a key up to its next b, a or x are one *life*; an `a` leads to
the life that its row had under the old key, so that a row is a chain of lives, of which each
belongs to one row only.  A value is the newest one that the chain sent; else the target's, at the
key with which the chain begins.

Pure: nothing is asked of a server here.
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from spark_consumers.sinks.postgres.driver import part
from spark_consumers.sinks.postgres.plan import Plan

# Types of which equal values have one text. A key of any other type is staged as text: 1.0 and
# 1.00 name two rows on their way, as they do for the driver.
_ONE_TEXT: Final = re.compile(
    r"smallint|integer|bigint|oid|uuid|boolean|date|bytea|text|name"
    r"|character varying(\(\d+\))?|numeric\(\d+,\d+\)|timestamp(\(\d\))? with(out)? time zone"
)
_COLLATED: Final = re.compile(r"text|name|character varying(\(\d+\))?")


def exact(cell: str, kind: str) -> str:
    """Write a key's cell so that = compares what it is: not 1.0 with 1.00, nor by a collation.

    >>> exact("t.id", "integer"), exact("t.id", "numeric"), exact("t.id", "text")
    ('t.id', 't.id::text', 't.id COLLATE "C"')
    """
    if _COLLATED.fullmatch(kind):
        return f'{cell} COLLATE "C"'
    return cell if _ONE_TEXT.fullmatch(kind) else f"{cell}::text"


def staged_types(columns: Sequence[str], plan: Plan | None) -> tuple[str, ...]:
    """Types of a staging table's cells: the target's, so that COPY casts them; or text.

    Without a plan nothing is known of the table.
    """
    if plan is None:
        return ("text",) * len(columns)
    out = []
    for name in columns:
        kind = plan.table.columns[name].type_name
        is_text = name in plan.table.key and not _ONE_TEXT.fullmatch(kind)
        out.append("text" if is_text else kind)
    return tuple(out)


@dataclass(frozen=True, slots=True)
class StagedRows:
    """Rows of one table that were staged, and how SQL reads them."""

    plan: Plan
    columns: tuple[str, ...]  # as staged
    types: tuple[str, ...]  # of the staging table's cells
    stage: str  # its name, quoted
    where: str  # which rows are meant

    @property
    def key(self) -> tuple[int, ...]:
        """Numbers of the cells that name a row, as far as the rows have them."""
        there = [name for name in self.plan.table.key if name in self.columns]
        return tuple(self.columns.index(name) for name in there)

    def cells(self, alias: str = "") -> list[str]:
        """The new row's cells that are written, in the target's types."""
        return [self.cast(n, f"{alias}c{n}") for n in self.plan.places]

    def cast(self, cell: int, expression: str) -> str:
        """A staged cell in the type of the target's column."""
        kind = self.plan.table.columns[self.columns[cell]].type_name
        return expression if self.types[cell] == kind else f"{expression}::{part(kind)}"

    # -- questions
    def survey(self) -> str:
        """Ask for what `bulk.Survey` has."""
        new = [f"{self._new(k)} IS NULL" for k in self.key] or ["false"]
        old = [f"b{k} IS NULL" for k in self.key] or ["false"]
        moved = [f"b{k} <> {self._new(k)}" for k in self.key] or ["false"]
        return (
            "SELECT count(*), bool_or(op NOT IN ('c', 'r')), bool_or(op = 't'), "
            "bool_or(unsent IS NOT NULL), bool_or(op IN ('c', 'r') AND unsent IS NOT NULL), "
            f"bool_or(CASE op WHEN 't' THEN false WHEN 'd' THEN carried IS NULL OR {_any(old)} "
            f"ELSE {_any(new)} OR carried IS NOT NULL AND op = 'u' AND ({_any(old)}) END), "
            f"bool_or(op = 'u' AND carried IS NOT NULL AND ({_any(moved)})), "
            "count(*) FILTER (WHERE op IN ('c', 'r')) - count(*) FILTER (WHERE op = 'd') "
            f"FROM {self.stage} WHERE {self.where}"
        )

    def last_truncation(self) -> str:
        """Ask for the place of the last TRUNCATE."""
        return (
            f"SELECT seq, ord FROM {self.stage} WHERE {self.where} AND op = 't' "
            "ORDER BY seq DESC, ord DESC LIMIT 1"
        )

    def unsent(self) -> str:
        """Ask for the numbers of cells that some new row lacks."""
        return (
            f"SELECT DISTINCT unnest(unsent) FROM {self.stage} WHERE {self.where} "
            "AND unsent IS NOT NULL"
        )

    # -- statements
    def insert(self) -> str:
        """Put new rows straight into the table."""
        return (
            f"INSERT INTO {part(self.plan.name)} {part(self.plan.into)}"
            f"SELECT {', '.join(self.cells())} FROM {self.stage} WHERE {self.where}"
        )

    def last_states(self, *, is_truncated: bool) -> str:
        """Fill the plan's staging table where all values were sent."""
        keys = self._keys()
        gone = f" UNION ALL SELECT 'd', {self._gone()} FROM last WHERE kind = 'x'"
        return (
            f"WITH last AS (SELECT DISTINCT ON ({self._sorted(keys)}) kind, {', '.join(keys)}, at "
            f"FROM ({self._events(())}) AS e "
            f"ORDER BY {self._sorted(keys)}, seq DESC, ord DESC) "
            f"INSERT INTO {self.plan.stage} (op, {self._targets()}) "
            f"SELECT 'u', {', '.join(self.cells('s.'))} "
            f"FROM last AS l JOIN {self.stage} AS s ON s.ctid = l.at WHERE l.kind <> 'x'"
            + ("" if is_truncated else gone)
        )

    def lives(self, table: str, unsent: Sequence[int]) -> str:
        """Make a table of events with their lives."""
        keys = self._keys()
        return (
            f"CREATE TEMP TABLE {table} ON COMMIT DROP AS "
            "SELECT e.*, count(*) FILTER (WHERE kind <> 'u') OVER key AS life, "
            "lead(seq) OVER key IS NULL AS is_last "
            f"FROM ({self._events(unsent)}) AS e "
            f"WINDOW key AS (PARTITION BY {self._sorted(keys)} ORDER BY seq, ord)"
        )

    def lived_states(self, table: str, unsent: Sequence[int], *, is_truncated: bool) -> str:
        """Fill the plan's staging table from lives; what no event sent is marked as unsent."""
        plan, keys = self.plan, self._keys()
        same = " AND ".join(f"{{0}}.{k} = {{1}}.{k}" for k in keys)
        in_chain = ", ".join(f"x.{k}" for k in keys)
        newest = [
            f"(array_agg(e.at ORDER BY e.seq DESC, e.ord DESC) FILTER (WHERE e.kind <> 'x' "
            f"AND (e.lacks IS NULL OR {n} <> ALL(e.lacks))))[1] AS at{n}"
            for n in unsent
        ]
        origin = [f"(array_agg(c.{k} ORDER BY c.depth DESC))[1] AS {k}" for k in keys]
        marks = [
            f"CASE WHEN {n} = ANY(l.lacks) AND f.at{n} IS NULL THEN {plan.places.index(n)} END"
            for n in unsent
            if n in plan.places
        ]
        cells = [
            self.cast(
                n,
                f"CASE WHEN {n} = ANY(l.lacks) THEN {self._new(n, f's{n}.')} "
                f"ELSE {self._new(n, 's.')} END"
                if n in unsent
                else f"s.c{n}",
            )
            for n in plan.places
        ]
        names = [f"o{at}" for at in range(len(keys))]
        origins = [self.cast(n, f"f.{k}") for n, k in zip(self.key, keys, strict=True)]
        sources = "".join(f" LEFT JOIN {self.stage} AS s{n} ON s{n}.ctid = f.at{n}" for n in unsent)
        nothing = ", NULL" * (len(names) + 1)
        gone = (
            f" UNION ALL SELECT 'd'{nothing}, {self._gone()} FROM {table} "
            "WHERE is_last AND kind = 'x'"
        )
        return (
            f"WITH RECURSIVE chain (fseq, ford, {', '.join(keys)}, life, depth) AS ("
            f"SELECT seq, ord, {', '.join(keys)}, life, 0 FROM {table} "
            "WHERE is_last AND kind <> 'x' AND lacks IS NOT NULL "
            f"UNION ALL SELECT c.fseq, c.ford, {in_chain}, x.life - 1, c.depth + 1 FROM chain AS c "
            f"JOIN {table} AS a ON {same.format('a', 'c')} AND a.life = c.life AND a.kind = 'a' "
            f"JOIN {table} AS x ON x.seq = a.seq AND x.ord = a.ord AND x.kind = 'x'), "
            f"found AS (SELECT c.fseq, c.ford, {', '.join([*newest, *origin])} FROM chain AS c "
            f"LEFT JOIN {table} AS e ON {same.format('e', 'c')} AND e.life = c.life "
            "GROUP BY c.fseq, c.ford) "
            f"INSERT INTO {plan.stage} (op, unsent, {', '.join(names)}, {self._targets()}) "
            f"SELECT 'u'::\"char\", {_numbers(marks)}, {', '.join([*origins, *cells])} "
            f"FROM {table} AS l JOIN {self.stage} AS s ON s.ctid = l.at "
            f"LEFT JOIN found AS f ON f.fseq = l.seq AND f.ford = l.ord{sources} "
            "WHERE l.is_last AND l.kind <> 'x'" + ("" if is_truncated else gone)
        )

    # -- parts
    def _keys(self) -> list[str]:
        return [f"k{at}" for at in range(len(self.plan.table.key))]

    def _sorted(self, keys: Sequence[str]) -> str:
        """Keys as they are compared: by their bytes."""
        return ", ".join(
            f'{k} COLLATE "C"' if _COLLATED.fullmatch(self.types[n]) else k
            for n, k in zip(self.key, keys, strict=True)
        )

    def _targets(self) -> str:
        return ", ".join(f"c{at}" for at in range(len(self.plan.places)))

    def _gone(self) -> str:
        """A deleted row: its key, and nothing else."""
        key = self.key
        cells = [
            self.cast(n, f"k{key.index(n)}")
            if n in key
            else f"NULL::{part(self.plan.table.columns[self.columns[n]].type_name)}"
            for n in self.plan.places
        ]
        return ", ".join(cells)

    @staticmethod
    def _new(cell: int, alias: str = "") -> str:
        """A cell of a new row that may lack it; then it may be known from the old one."""
        return f"CASE WHEN {cell} = ANY({alias}unsent) THEN {alias}b{cell} ELSE {alias}c{cell} END"

    def _events(self, unsent: Sequence[int]) -> str:
        news = [self._new(k) if k in unsent else f"c{k}" for k in self.key]
        moved = _any([f"b{k} <> {new}" for k, new in zip(self.key, news, strict=True)])
        lacks = [f"CASE WHEN {n} = ANY(unsent) AND b{n} IS NULL THEN {n} END" for n in unsent]
        named = ", ".join(f"{new} AS k{at}" for at, new in enumerate(news))
        gone = ", ".join(f"b{k}" for k in self.key)
        left = (
            f"CASE WHEN unsent IS NOT NULL THEN {_numbers(lacks)} END" if unsent else "NULL::int2[]"
        )
        rows = f"FROM {self.stage} WHERE {self.where}"
        return (
            "SELECT CASE WHEN op <> 'u' THEN 'b' WHEN carried IS NOT NULL "
            f"AND ({moved}) THEN 'a' ELSE 'u' END AS kind, {named}, seq, ord, ctid AS at, "
            f"{left} AS lacks {rows} AND op IN ('c', 'r', 'u') "
            f"UNION ALL SELECT 'x', {gone}, seq, ord, ctid, NULL::int2[] {rows} "
            f"AND (op = 'd' OR op = 'u' AND carried IS NOT NULL AND ({moved}))"
        )


def _any(tests: Sequence[str]) -> str:
    return " OR ".join(tests)


def _numbers(parts: Sequence[str]) -> str:
    """An array of those that are not NULL; NULL where there is none."""
    return f"NULLIF(array_remove(ARRAY[{', '.join(parts)}]::int2[], NULL), '{{}}')"
