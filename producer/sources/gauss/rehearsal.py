"""Runs a statement at the source and rolls it back; returns what its stream would contain.

It takes the statement's locks for as long as it runs: `statement_timeout` keeps that short.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import replace
from typing import Final

from producer.core.shape_change import ShapeChange
from producer.core.statements.sql_words import cut, statements
from producer.core.stream.inference import difference
from producer.errors import Unsupported
from producer.options import Options
from producer.sources import patterns
from producer.sources.base import SEARCH_PATH_OF_STATEMENTS, STATEMENT_TIMEOUT, Rehearsed
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss import gaps
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.ddl import tddl
from producer.sources.gauss.ddl.deparsed import Deparsed
from producer.sources.gauss.ddl.model import Name, Rename, Statement
from producer.sources.gauss.options import effective
from producer.sources.gauss.snapshot import without_virtual
from schemas.control import Origin
from schemas.system_schemas import SEARCH_PATH
from schemas.tables import TableId, TableSchema

# What ends a transaction is none of these.
_VERBS: Final = frozenset({"CREATE", "ALTER", "DROP", "COMMENT", "TRUNCATE", "RENAME", "REINDEX"})


def at_gauss(options: Options, session: GaussConnection, statement: str) -> Rehearsed:
    """Read the catalog before and after, and the statement as the server would deparse it.

    Where DDL is not decoded: what is inferred at the first row of the new shape.
    Raises SourceError where the source refuses the statement, Unsupported for anything but DDL.
    """
    parsed = _one_statement(statement)
    before = _tables(options, session)
    try:
        session.query("START TRANSACTION")
        session.query(f"SET LOCAL statement_timeout = '{STATEMENT_TIMEOUT}'")
        session.query(f"SET LOCAL search_path TO {SEARCH_PATH_OF_STATEMENTS}")
        [[schema]] = session.query("SELECT current_schema()")
        session.query(statement)
        session.query(f"SET LOCAL search_path TO {SEARCH_PATH}")
        after = _tables(options, session)
    finally:
        session.query("ROLLBACK")
    mode = gaps.decoding_mode(effective(options.plugin_options, options.terms))
    if not mode.is_gaussdb:
        mode = replace(mode, decodes_ddl=gauss_readings.publishes_ddl(session))
    if not mode.decodes_ddl:
        return _inferred(statement, before, after)
    deparsed = Deparsed(dict(before), patterns.chooser(options.include, options.exclude), after.get)
    reported = deparsed.state(
        _qualified(parsed, str(schema), before), loses_clauses=mode.is_gaussdb
    )
    changes = [
        # Types and names are the catalog's; what older rows hold, the statement's.
        replace(change, after=change.after and after.get(change.after.id, change.after))
        for change in reported
    ]
    return Rehearsed(statement, Origin.DEPARSED, tuple((change, {}) for change in changes))


def _inferred(
    statement: str, before: Mapping[TableId, TableSchema], after: Mapping[TableId, TableSchema]
) -> Rehearsed:
    """Compare shapes, as `run` does at the first row of a new one."""
    changes = [
        difference(table, after[name])
        for name, table in before.items()
        if name in after and after[name] != table
    ]
    changes += [
        ShapeChange(None, table, "CREATE TABLE")
        for name, table in after.items()
        if name not in before
    ]
    return Rehearsed(
        statement,
        Origin.INFERRED,
        tuple((change, {}) for change in changes),
        "DDL is not decoded here: this is what the first row of the new shape would show"
        if changes
        else "DDL is not decoded here, and no row would show this",
    )


def _one_statement(text: str) -> Statement:
    """Refuse what could end our transaction: then the rehearsal would be real."""
    first, *more = statements(cut(text))
    if not first or more not in ([], [[]]) or first[0].upper not in _VERBS:
        raise Unsupported(
            "only one statement at a time is planned here, and one that changes the schema",
            hint=f"it begins with {', '.join(sorted(_VERBS))}",
        )
    return tddl.statement(text)


def _tables(options: Options, session: GaussConnection) -> dict[TableId, TableSchema]:
    """Captured tables, as a stream shows them."""
    found = gauss_catalog.expand(session, options.include, options.exclude)
    tables = map(without_virtual, gauss_catalog.table_schemas(session, found))
    return {table.id: table for table in tables}


def _qualified(parsed: Statement, schema: str, known: Container[TableId]) -> Statement:
    """Give names the schema that the server finds them in: deparsed text always has it."""

    def full(name: Name) -> Name:
        if name.schema is not None:
            return name
        there = (s for s in (schema, "public") if TableId(s, name.name) in known)
        return Name(next(there, schema), name.name)

    actions = tuple(
        Rename(full(a.old), Name(a.new.schema or full(a.old).schema, a.new.name))
        if isinstance(a, Rename)
        else a
        for a in parsed.actions
    )
    index = parsed.index and replace(parsed.index, table=full(parsed.index.table))
    return replace(parsed, names=tuple(map(full, parsed.names)), actions=actions, index=index)
