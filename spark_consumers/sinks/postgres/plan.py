"""The statements of one target table, composed once per table version.

Rows come through a temporary staging table, typed like the target:
`op` (u, d), `unsent` (numbers of cells that only the target knows), `o0…` (the
key under which the row stood before the batch), `c0…` (its cells).

How rows are written is chosen from the table's constraints:

    upsert    INSERT ... ON CONFLICT (key) DO UPDATE; where a product has none, UPDATE, then
              INSERT of the rest
    replace   DELETE the keys and INSERT: with secondary unique indexes, where rows
              may swap values, and only where no foreign key can refuse or cascade
    park      upsert, but secondary unique values that change become NULL first:
              for referenced tables under enforced foreign keys
"""
# ruff: noqa: S608  every name in a statement is quoted or our own

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Final

from spark_consumers.dialects.base import quote
from spark_consumers.errors import MissingColumn, NotExpressible
from spark_consumers.sinks.postgres.catalog import TargetTable, TargetUnique
from spark_consumers.sinks.postgres.products import POSTGRES, TargetProduct

# Types of which equal values have one text; of others 1.0 and 1.00 are equal.
_ONE_TEXT: Final = re.compile(
    r"smallint|integer|bigint|oid|uuid|boolean|date|bytea|text|name"
    r"|character varying(\(\d+\))?|numeric\(\d+,\d+\)|timestamp(\(\d\))? with(out)? time zone"
)
_COLLATED: Final = re.compile(r"text|name|character varying(\(\d+\))?")


@dataclass(frozen=True, slots=True)
class Plan:
    """All statements of one table as written with one list of columns."""

    table: TargetTable
    name: str  # quoted
    places: tuple[int, ...]  # which cells of a row are written
    is_whole: bool  # all of them are
    columns: tuple[str, ...]  # their names
    stage: str
    create: str
    copy: str  # into the staging table
    analyze: str  # what its statements compare
    copy_in: str  # straight into the table
    into: str  # the columns of an INSERT, and what goes with them
    fill: tuple[str, ...]  # per written cell: `c0 = CASE ...`
    fill_from: str
    delete: str  # staged with op d
    delete_keys: str  # everything staged
    insert: str
    upsert: str
    put: tuple[str, str]  # rows as values: what stands before and behind them
    park: tuple[str, ...]
    form: str  # upsert | replace | park
    is_one_insert: bool  # it reads nothing but the staging table
    is_late: bool  # deletes come after all inserts: children move away first
    takes_bytes: bool = False  # the target's database has no encoding


def make_plan(
    table: TargetTable,
    columns: tuple[str, ...],
    *,
    is_replica: bool,
    stage: str,
    product: TargetProduct = POSTGRES,
) -> Plan:
    """Compose; raise MissingColumn, or NotExpressible where no form is safe."""
    if lost := [name for name in columns if name not in table.columns]:
        raise MissingColumn(
            "the target's table lacks columns of the stream",
            table=table.id,
            columns=", ".join(lost),
            hint="add them to the target",
        )
    written = [(at, n) for at, n in enumerate(columns) if not table.columns[n].is_generated]
    names = tuple(name for _, name in written)
    key = tuple(n for n in table.key if n in names)
    form, is_late = _form(table, is_replica=is_replica)

    cell = {name: f"c{at}" for at, name in enumerate(names)}
    quoted = {name: quote(name) for name in names}
    name = f"{quote(table.place.schema)}.{quote(table.place.name)}"
    into = ", ".join(quoted.values())
    temp = f"pg_temp.{stage}"
    equal = {name: column.key_equality for name, column in table.columns.items()}
    same_key = " AND ".join(f"t.{quoted[n]} {equal[n]} s.{cell[n]}" for n in key)
    same_origin = " AND ".join(f"t.{quoted[n]} {equal[n]} s.o{at}" for at, n in enumerate(key))
    typed = [f"o{at} {table.columns[n].type_name}" for at, n in enumerate(key)]
    typed += [f"{cell[n]} {table.columns[n].type_name}" for n in names]
    compared = [name for at, n in enumerate(key) for name in (f"o{at}", cell[n])]
    always = any(table.columns[n].is_always for n in names)
    listed = f"({into}){' OVERRIDING SYSTEM VALUE' if always else ''} " if into else ""
    rows = f"{listed}SELECT {', '.join(cell.values())} FROM {temp} s WHERE s.op = 'u'"
    order = _by_key(table, key, cell)
    insert = f"INSERT INTO {name} {rows}"
    is_referenced = bool(table.children) and not is_replica
    # With children 1.0 becomes 1.00 where it stands: see `delete`.
    keeps = [n for n in key if not is_referenced or table.columns[n].is_always]
    rest = [n for n in names if n not in keeps]
    conflict = how = ""
    if product.has_on_conflict:
        update = ", ".join(f"{quoted[n]} = excluded.{quoted[n]}" for n in rest)
        # Under an alias, since the table may be called "excluded" itself.
        conflict = f"ON CONFLICT ({', '.join(quoted[n] for n in key)}) DO"
        how = f"UPDATE SET {update}" if update else "NOTHING"
        upsert = f"INSERT INTO {name} AS t {rows}{order} {conflict} {how}"
    else:  # there is no other writer: the ledger's row is locked
        upsert = f"{insert} AND NOT EXISTS (SELECT 1 FROM {name} t WHERE {same_key}){order}"
        if rest:
            update = ", ".join(f"{quoted[n]} = s.{cell[n]}" for n in rest)
            upsert = (
                f"UPDATE {name} t SET {update} FROM {temp} s WHERE s.op = 'u' AND {same_key}; "
                + upsert
            )
    delete = f"DELETE FROM {name} t USING {temp} s WHERE {same_key}"
    stays = ""
    if is_referenced:  # the row of an equal key that begins: with it its children would go
        same_staged = " AND ".join(f"u.{cell[n]} {equal[n]} s.{cell[n]}" for n in key)
        stays = f" AND NOT EXISTS (SELECT 1 FROM {temp} u WHERE u.op = 'u' AND {same_staged})"
    return Plan(
        table=table,
        name=name,
        places=tuple(at for at, _ in written),
        is_whole=len(written) == len(columns),
        columns=names,
        stage=temp,
        create=f'CREATE TEMP TABLE {stage} (op "char", unsent int2[], {", ".join(typed)}) '
        "ON COMMIT DELETE ROWS",
        copy=f"COPY {temp} FROM STDIN",
        analyze=f"ANALYZE {temp} ({', '.join(['op', *compared])})",
        copy_in=f"COPY {name} {f'({into}) ' if into else ''}FROM STDIN",
        into=listed,
        fill=tuple(
            f"{cell[n]} = CASE WHEN {at} = ANY(s.unsent) THEN t.{quoted[n]} ELSE s.{cell[n]} END"
            for at, n in enumerate(names)
        ),
        fill_from=f"FROM {name} t WHERE s.unsent IS NOT NULL AND {same_origin}",
        delete=f"{delete} AND s.op = 'd'{stays}",
        delete_keys=delete,
        insert=insert + order,
        upsert=upsert,
        put=(
            f"INSERT INTO {name} AS t {listed}VALUES ",
            f" {conflict} {how}" if key and form == "upsert" else "",
        ),
        park=tuple(
            f"UPDATE {name} t {change} FROM {temp} s WHERE {same_key} AND {where}"
            for change, where in _park(table, quoted, cell)
        ),
        form=form,
        is_one_insert=form == "upsert" and product.has_on_conflict,
        is_late=is_late,
    )


def _by_key(table: TargetTable, key: tuple[str, ...], cell: dict[str, str]) -> str:
    """Write rows as the key's index has them: each of its pages is read once, not for each row.

    Only by columns whose order costs little to compute.
    """
    first = takewhile(lambda n: _ONE_TEXT.fullmatch(table.columns[n].type_name), key)
    order = [exact(f"s.{cell[n]}", table.columns[n].type_name) for n in first]
    return f" ORDER BY {', '.join(order)}" if order else ""


def _form(table: TargetTable, *, is_replica: bool) -> tuple[str, bool]:
    """How to insert, and whether deletes wait until children have moved away."""
    swaps = [u for u in table.uniques if not u.is_deferrable]
    # An ON CONFLICT arbiter must be immediate, and its SET cannot write such a column.
    no_upsert = table.key_is_deferrable or any(
        column.is_always and name not in table.key for name, column in table.columns.items()
    )
    if is_replica or not table.children:
        return ("replace" if swaps or no_upsert else "upsert"), False
    if no_upsert:
        raise NotExpressible(
            "a referenced table with a deferrable key or an identity column besides the key "
            "cannot be written under its foreign keys",
            table=table.id,
            hint="let the target's user SET session_replication_role, or drop the foreign keys",
        )
    is_late = all(_parkable(table, unique) for unique in swaps)
    return ("park" if swaps else "upsert"), is_late


def _parkable(table: TargetTable, unique: TargetUnique) -> str | None:
    """A column of a unique index that may be NULL for a moment."""
    for name in unique.columns:
        if table.columns[name].nullable and name not in table.key:
            return name
    return None


def _park(
    table: TargetTable, quoted: dict[str, str], cell: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """Per unique index: what to set, and for which staged rows."""
    for unique in table.uniques:
        column = _parkable(table, unique)
        if unique.is_deferrable or column is None or column not in quoted:
            continue
        mine = [n for n in unique.columns if n in quoted]
        # As IS DISTINCT FROM, which cannot name its operator.
        changed = " OR ".join(
            f"coalesce(NOT {was} {table.columns[n].key_equality} {now},"
            f" ({was} IS NULL) <> ({now} IS NULL))"
            for n in mine
            for was, now in ((f"t.{quoted[n]}", f"s.{cell[n]}"),)
        )
        yield f"SET {quoted[column]} = NULL", f"(s.op = 'd' OR {changed})"


def exact(cell: str, kind: str) -> str:
    """Write a key's cell so that = compares what it is: not 1.0 with 1.00, nor by a collation.

    >>> exact("t.id", "integer"), exact("t.id", "numeric"), exact("t.id", "text")
    ('t.id', 't.id::text', 't.id COLLATE "C"')
    """
    if _COLLATED.fullmatch(kind):
        return f'{cell} COLLATE "C"'
    return cell if _ONE_TEXT.fullmatch(kind) else f"{cell}::text"
