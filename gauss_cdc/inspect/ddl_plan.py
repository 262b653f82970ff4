"""`gauss-cdc ddl plan`: what a statement would do, by the servers' own answers.

The source runs it and undoes it (`SourceKind.rehearse`); here stands what registry and
target would do with the changes that a stream would contain.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from producer.core.shape_change import ShapeChange, StatementChanges
from producer.kafka.registry import Registry
from producer.options import Options
from producer.sources.base import Rehearsed
from schemas.control import SchemaChange
from schemas.envelope import EnvelopeOptions, envelope_schema, key_schema
from schemas.tables import TableId, TableSchema
from schemas.topics import key_subject, value_subject
from spark_consumers.dialects import DIALECTS, EXTRAS
from spark_consumers.dialects.base import LeftOut
from spark_consumers.errors import NotExpressible


@dataclass(frozen=True, slots=True)
class Planned:
    """One change: what the stream, the registry and the target make of it."""

    change: SchemaChange
    gaps: tuple[str, ...]
    registry: str  # "as before" | "new version" | "refused"
    statements: tuple[str, ...]
    refusal: str = ""  # why the target's dialect has no statement for it

    @property
    def is_refused(self) -> bool:
        """Say whether `run` or `apply` would stop at this change."""
        return bool(self.refusal) or self.registry == "refused"


def plan(
    options: Options, registry: Registry, rehearsed: Rehearsed, *, target: str
) -> list[Planned]:
    """Return what registry and target would do with each change.

    `target`: a dialect's name, and with it which [ddl] apply = "all" statements exist.
    """
    planned = []
    for change, settings in rehearsed.changes:
        said = StatementChanges((), rehearsed.origin, rehearsed.statement, settings=settings)
        record = said.record(change)
        gaps = tuple(f"{gap.table}: {gap.why}" for gap in change.holes)
        asked = _asked(options, registry, change)
        planned.append(Planned(record, gaps, asked, *_statements(record, target)))
    return planned


def _statements(record: SchemaChange, target: str) -> tuple[tuple[str, ...], str]:
    """What the target would run, or why it refuses."""
    try:
        statements = DIALECTS[target](record)
        if (extras := EXTRAS.get(target)) is not None:
            statements += [_beyond(one) for one in extras(record)]
    except NotExpressible as error:
        return (), str(error)
    return tuple(statements), ""


def _beyond(one: str | LeftOut) -> str:
    if isinstance(one, LeftOut):
        return f"-- not run without [ddl] code: {one.why}"
    return f'{one}  -- with [ddl] apply = "all"'


def _asked(options: Options, registry: Registry, change: ShapeChange) -> str:
    """Whether the registry would accept the new value schema, and the key's."""
    if change.after is None:
        return "as before"
    envelope = EnvelopeOptions(types=options.types)

    def schemas(table: TableSchema) -> Iterator[tuple[str, dict[str, object]]]:
        for topic in options.topics.names(table.id):  # the one that is not there refuses nothing
            yield value_subject(topic), envelope_schema(options.prefix, table, envelope)
            if options.key == "primary-key" and table.key:
                yield key_subject(topic), key_schema(options.prefix, table, envelope)

    after = dict(schemas(change.after))
    if change.before is not None and dict(schemas(change.before)) == after:
        return "as before"
    refused = any(registry.would_refuse(subject, schema) for subject, schema in after.items())
    return "refused" if refused else "new version"


def lines(planned: list[Planned], incompatible: str, note: str = "") -> Iterator[str]:
    """Yield the plan as lines; `note` is the rehearsal's remark about the stream."""
    if note:
        yield note
    elif not planned:
        yield "nothing of this is captured: neither the registry nor the target would change"
    for one in planned:
        change = one.change
        table: TableId | None = (
            change.after.id if change.after else change.before.id if change.before else None
        )
        yield f"{change.tag}  {table or f'{change.kind} {change.identity}'}"
        if change.canonical:
            yield f"  as the source has it   {change.canonical}"
        if table is not None:
            policy = f", and [ddl] incompatible = {incompatible}" * (one.registry == "refused")
            yield f"  registry               {one.registry}{policy}"
        for gap in one.gaps:
            yield f"  gap                    {gap}"
        if one.refusal:
            yield f"  target                 refused: {one.refusal}"
        for statement in one.statements:
            yield f"  target                 {statement}"
        if not one.statements and not one.refusal:
            yield "  target                 nothing"
