"""Findings, standings, cuts and rows, as lines for people and for programs."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from rich.markup import escape
from rich.table import Table

from gauss_cdc.config import Config
from gauss_cdc.logs import printable
from gauss_cdc.places import Standing
from gauss_cdc.watch import console
from producer.drivers.gauss_slots import SlotReading
from producer.drivers.kafka_client import LOGGED, of_error, ours
from producer.errors import TopicReplaced
from producer.preflight import Finding, Level
from schemas.accept import Foreign, Record
from schemas.control import Commits, Start, State, TableLoad, cut_to_avro, kind_of
from schemas.headers import position_of
from schemas.positions import Lsn
from schemas.tables import Missing, TableId
from schemas.topics import Topics
from spark_consumers.avro_wire import RowDecoder, split
from spark_consumers.errors import SchemaUnknown
from spark_consumers.model import Cell, Change
from spark_consumers.read import registry_at

_STYLES = {
    Level.OK: "green",
    Level.NOTE: "blue",
    Level.FIXED: "cyan",
    Level.WARNING: "yellow",
    Level.ERROR: "red",
}
_LONG = 60


def findings_table(findings: Sequence[Finding]) -> Table:
    """`check` for people, errors last."""
    table = Table("", "subject", "finding", "what to do", show_lines=False)
    order = list(Level)
    for finding in sorted(findings, key=lambda f: order.index(f.level)):
        table.add_row(
            f"[{_STYLES[finding.level]}]{finding.level}[/]",
            escape(finding.subject),
            escape(finding.what),
            escape(finding.hint),
        )
    return table


def standing_table(standing: Standing) -> Table:
    """`status` for people."""
    table = Table(show_header=False)
    source, cuts, target = standing.source, standing.cuts, standing.target
    down = standing.down
    for place, error in down.items():
        table.add_row(place, f"[red]{escape(printable(f'cannot be reached: {error}'))}[/]")
    if source is None:
        if "source" not in down:
            table.add_row("source", "no slot: `gauss-cdc run` makes it")
    else:
        active = "streaming" if source.active else "nobody streams"
        table.add_row("source", f"log ends at {Lsn(source.wal_end)}; {active}")
        table.add_row("", f"keeps {source.retained_bytes / 1e6:.1f} MB of WAL for us")
    if cuts is None:
        if not {"kafka", "registry"} & down.keys():
            table.add_row("Kafka", "no cuts yet")
    else:
        age = time.time() - cuts.written_at / 1e6
        table.add_row("Kafka", f"commit {cuts.epoch}/{cuts.seq}, source read to {Lsn(cuts.resume)}")
        table.add_row("", f"newest record {age:.1f} s ago; writer {cuts.writer}")
        if cuts.alarm:
            what = f"{cuts.alarms} records of cuts are not ours; {cuts.alarm}"
            table.add_row("", f"[yellow]{escape(what)}[/]")
    if target is None:
        if "target" not in down:
            table.add_row("target", "nothing was applied yet")
    else:
        at = datetime.fromtimestamp(target.committed_at / 1e6, UTC)
        table.add_row("target", f"{target.state} at commit {target.epoch}/{target.seq}")
        if target.committed_at:
            table.add_row("", f"which the source made at {at:%Y-%m-%d %H:%M:%S} UTC")
        for name, why in target.inexact.items():
            table.add_row("", f"[yellow]{escape(f'{name} is not exact: {why}')}[/]")
    for note in standing.notes:
        table.add_row("", f"[yellow]{escape(note)}[/]")
    table.add_row(
        "lag",
        f"{_known(standing.commits_behind)} commits, {_known(standing.bytes_behind)} bytes, "
        f"{_known(standing.seconds_behind)} s",
    )
    return table


def slot_fields(slot: SlotReading) -> dict[str, object]:
    """One slot, for programs."""
    return {
        "slot": slot.name,
        "type": "logical" if slot.is_logical else "physical",
        "plugin": slot.plugin or None,
        "database": slot.database or None,
        "active": slot.is_active,
        "restart": slot.restart_lsn or None,
        "confirmed": None if slot.confirmed is None else str(slot.confirmed),
        "ordered_by": slot.ordered_by if slot.is_logical else None,
        "confirmed_csn": slot.confirmed_csn,
        "state": "invalid" if slot.is_invalid else "orphaned" if slot.is_orphaned else "fit",
    }


def _known(value: float | None) -> str:
    return "?" if value is None else f"{value:,}"


def cut_line(offset: int, cut: Record, *, as_json: bool) -> str:
    """One record of cuts, or one in their topic that is not ours."""
    if isinstance(cut, Foreign):
        if as_json:
            return json.dumps({"offset": offset, "kind": "FOREIGN", "why": cut.why})
        return f"{offset:>8}  FOREIGN    {cut.why}"
    if as_json:
        return json.dumps({"offset": offset, **cut_to_avro(cut)})
    head = cut.head
    words = [f"{offset:>8}", f"{kind_of(cut):<9}", f"n={head.n}", f"resume={Lsn(head.resume)}"]
    match cut:
        case Start():
            words += [f"epoch={head.epoch}", f"writer={head.writer}", cut.reason or "takeover"]
        case Commits():
            first, last = cut.commits[0], cut.commits[-1]
            rows = sum(entry.rows for entry in cut.commits)
            words += [f"seq={first.seq}..{last.seq}", f"rows={rows}", f"ranges={len(cut.ranges)}"]
            words += ["DDL"] if any(entry.ddl for entry in cut.commits) else []
        case TableLoad():
            words += [str(cut.table), cut.phase.value, f"rows={cut.rows}"]
        case State():
            words += [f"topics={len(cut.topics)}"]
        case _:
            pass
    return "  ".join(words)


def tail_lines(
    config: Config,
    tables: Sequence[str],
    *,
    last: int,
    follow: bool,
    as_json: bool,
    stop: Callable[[float], bool],
) -> Iterator[str]:
    """The newest row changes, read committed, in the order in which they arrive."""
    topics = Topics(config.kafka.prefix)
    consumer = Consumer(
        {
            **LOGGED,
            **config.kafka.client_settings(),
            "group.id": "gauss-cdc-tail",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    schema_of = registry_at(config.registry.url, config.registry.client())
    decoders: dict[int, RowDecoder] = {}
    try:
        places: list[TopicPartition] = []
        ends: dict[tuple[str, int], int] = {}
        for name, described in consumer.list_topics(timeout=30).topics.items():
            if not topics.is_data(name) or (tables and not _is_one(name, topics, tables)):
                continue
            for partition in described.partitions:
                place = TopicPartition(name, partition)
                low, high = consumer.get_watermark_offsets(place, timeout=30)
                ends[name, partition] = high
                places.append(TopicPartition(name, partition, max(low, high - 2 * last)))
        if not places:
            raise TopicReplaced(
                "no topic of these tables", hint="did `run` start? names are schema.table"
            )
        consumer.assign(places)
        kept: list[str] = []
        live = False
        while not stop(0):
            messages = consumer.consume(500, 0.3)
            for message in messages:
                if (error := message.error()) is not None:
                    raise of_error(error)
                line = _row_line(message, topics, decoders, schema_of, as_json=as_json)
                if line is not None and live:
                    yield line
                elif line is not None:
                    kept.append(line)
            if not live and not messages:
                yield from kept[-last:]
                live = True
                if not follow:
                    return
    except KafkaException as exc:
        raise ours(exc) from exc
    finally:
        consumer.close()


def _is_one(topic: str, topics: Topics, tables: Sequence[str]) -> bool:
    """Say whether a topic is one of these tables', also where its name ends in a hash."""
    if (table := topics.table_of(topic)) is not None:
        return str(table) in tables
    split_at_dots = ((t[:at], t[at + 1 :]) for t in tables for at, c in enumerate(t) if c == ".")
    return any(topics.table(TableId(*parts)) == topic for parts in split_at_dots)


def _row_line(
    message: Message,
    topics: Topics,
    decoders: dict[int, RowDecoder],
    schema_of: Callable[[int], dict[str, object]],
    *,
    as_json: bool,
) -> str | None:
    value = message.value()
    if value is None:
        return None  # a tombstone
    try:
        schema_id, payload = split(value)
        schema = schema_of(schema_id)
        if schema_id not in decoders:
            decoders[schema_id] = RowDecoder(schema)
        change = decoders[schema_id].decode(payload)
        position = position_of(message.headers() or [])  # type: ignore[arg-type]
    except (ValueError, LookupError, EOFError, SchemaUnknown):
        place = f"{message.topic()}/{message.partition()} offset {message.offset()}"
        console.print(f"{place}: a record that is not ours", style="yellow", markup=False)
        return None
    table = topics.table_by(message.topic() or "", schema)
    if as_json:
        return json.dumps(
            {
                "table": str(table),
                "position": str(position),
                "op": change.op,
                "before": _named(change, change.before),
                "after": _named(change, change.after),
            },
            ensure_ascii=False,
        )
    parts = []
    if change.before is not None:
        parts.append(_shown(change, change.before))
    if change.after is not None:
        parts.append(_shown(change, change.after))
    return f"{position}  {change.op}  {table}  {' -> '.join(parts)}"


def _named(change: Change, cells: Sequence[Cell] | None) -> dict[str, object] | None:
    """Columns that were sent; an unsent one is left out, NULL is null."""
    if cells is None:
        return None
    return {
        name: cell
        for name, cell in zip(change.columns, cells, strict=True)
        if not isinstance(cell, Missing)
    }


def _shown(change: Change, cells: Sequence[Cell]) -> str:
    out = []
    for name, cell in zip(change.columns, cells, strict=True):
        if isinstance(cell, Missing):
            continue
        text = "NULL" if cell is None else cell
        out.append(f"{name}={text if len(text) <= _LONG else text[: _LONG - 1] + '…'}")
    return "(" + ", ".join(out) + ")"
