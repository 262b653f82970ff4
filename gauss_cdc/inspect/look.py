"""Findings, standings, cuts and rows, as lines for people and for programs."""

from __future__ import annotations

import json
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from gauss_cdc.config import Config
from gauss_cdc.inspect.places import Endpoints, ReplicationStatus
from gauss_cdc.inspect.rows import RowPrinter, dumps
from gauss_cdc.logs import printable
from gauss_cdc.watch import say
from producer.errors import TopicReplaced
from producer.kafka.client import LOGGED, of_error, ours
from producer.sources.gauss.slots import SlotReading
from schemas.accept import Foreign, Record
from schemas.control import Commits, Start, State, TableLoad, cut_to_avro, kind_of, mends
from schemas.findings import Finding, Level
from schemas.headers import CSN, LSN, POSITION, USER, XID
from schemas.positions import CommitKey, Lsn, lsn_text, parse_lsn
from schemas.tables import Missing, TableId
from schemas.topics import Topics
from spark_consumers.cuts.ledger import is_unloaded
from spark_consumers.decode import RowDecoder, split
from spark_consumers.errors import SchemaUnknown
from spark_consumers.kafka.read import registry_at
from spark_consumers.model import Cell, Change, Ledger

_MOST_TABLES: Final = 10  # of which `status` says who read their records
_STYLES = {
    Level.OK: "green",
    Level.NOTE: "blue",
    Level.FIXED: "cyan",
    Level.WARNING: "yellow",
    Level.ERROR: "red",
}
_LONG = 60


def findings_table(findings: Sequence[Finding], levels: Iterable[Level] = Level) -> Table:
    """`check` for people: grouped by level, errors last, each hint below its finding."""
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    found = {level: [f for f in findings if f.level is level] for level in levels}
    groups = [group for group in found.values() if group]
    for group in groups:
        for finding in group:
            subject = f"{finding.target}: " * bool(finding.target) + finding.subject
            text = Text.assemble((printable(subject), "bold"), ": ", printable(finding.what))
            table.add_row(Text(finding.level, style=_STYLES[finding.level]), text)
            for number, line in enumerate(_lines(finding.hint)):
                arrow = "   " if number else "-> "
                table.add_row("", Text.assemble((arrow, "bold"), printable(line)))
        table.add_row()
    counts = [f"{len(group)} {level}" for level, group in found.items() if group]
    table.add_row(Text("total"), Text(", ".join(counts) or "nothing found"))
    return table


def _lines(hint: str) -> list[str]:
    r"""Divide a hint at the ends of its own lines; names in quotes may hold such, too.

    >>> _lines('one\ntwo'), _lines('DROP TABLE "a\nb"')
    (['one', 'two'], ['DROP TABLE "a\nb"'])
    """
    lines: list[str] = []
    for part in hint.split("\n") if hint else ():
        if lines and lines[-1].count('"') % 2:
            lines[-1] += f"\n{part}"
        else:
            lines.append(part)
    return lines


def _no_slot(*, is_known: bool, down: Collection[str]) -> str:
    """`run` makes the first slot only: behind cuts a missing one has lost their changes."""
    if is_known:
        return "no slot, but cuts exist: `gauss-cdc run` stops, and names the way out"
    return "no slot" if {"kafka", "registry"} & {*down} else "no slot: `gauss-cdc run` makes it"


def standing_table(
    standing: ReplicationStatus, ways: Mapping[str, Mapping[str, int]] = MappingProxyType({})
) -> Table:
    """`status` for people; `ways`: table -> who read its records -> how many, as `apply` tells."""
    table = Table(show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")  # else long names are cut, also in statements
    source, cuts, down = standing.source, standing.cuts, standing.down
    for place, error in down.items():
        if place != "target":
            table.add_row(place, _silent(error))
    if source is None:
        if "source" not in down:
            table.add_row("source", _no_slot(is_known=cuts is not None, down=down))
    else:
        active = "active" if source.active else "inactive"
        table.add_row("source", f"log ends at {lsn_text(source.wal_end)}; {active}")
        table.add_row("", f"keeps {source.retained_bytes / 1e6:.1f} MB of WAL for us")
    if cuts is None:
        if not {"kafka", "registry"} & down.keys():
            table.add_row("Kafka", "no cuts yet")
    else:
        age = time.time() - cuts.written_at / 1e6
        table.add_row(
            "Kafka", f"commit {cuts.epoch}/{cuts.seq}, source read to {lsn_text(cuts.resume)}"
        )
        table.add_row("", f"newest record {age:.1f} s ago; writer {cuts.writer}")
        for load in cuts.under_way:
            table.add_row("", escape(printable(f"loading {load}")))
        for line in standing.waiting:
            table.add_row("", escape(printable(line)))
        if cuts.alarm:
            what = printable(f"{cuts.alarms} records of cuts are not ours; {cuts.alarm}")
            table.add_row("", f"[yellow]{escape(what)}[/]")
    for one in standing.each:
        _add_target(table, one, f"target {one.name}" if standing.others else "target")
    most = sorted(ways, key=lambda name: -sum(ways[name].values()))[:_MOST_TABLES]
    for at, name in enumerate(most):
        read = ways[name]
        line = f"{name}: {read.get('driver', 0):,} by the driver, {read.get('tasks', 0):,} by tasks"
        table.add_row("" if at else "records read", escape(printable(line)))
    if len(ways) > len(most):
        table.add_row("", f"and of {len(ways) - len(most):,} more tables: `status --json`")
    return table


def _silent(error: Exception) -> str:
    return f"[red]{escape(printable(f'cannot be reached: {error}'))}[/]"


def _add_target(table: Table, standing: ReplicationStatus, name: str) -> None:
    """Add the rows of one target; `name` is what they begin with."""
    target = standing.target
    if (error := standing.down.get("target")) is not None:
        table.add_row(name, _silent(error))
    elif target is None:
        table.add_row(name, "nothing was applied yet")
    else:
        at = datetime.fromtimestamp(target.committed_at / 1e6, UTC)
        table.add_row(name, f"{_state(target)} at commit {target.epoch}/{target.seq}")
        if target.committed_at:
            table.add_row("", f"which the source made at {at:%Y-%m-%d %H:%M:%S} UTC")
        for one, why in target.inexact.items():
            line = escape(printable(f"{one} is not exact: {why}"))
            table.add_row("", f"[yellow]{line}[/]")
    for one, met in standing.conflicts.items():
        said = f"{one}: others changed it; {met.overwritten:,} of their rows were overwritten"
        line = escape(printable(f"{said}, {met.missing:,} rows were missing"))
        table.add_row("", f"[yellow]{line}[/]")
    for note in standing.notes:
        table.add_row("", f"[yellow]{escape(printable(note))}[/]")
    unread = f"{_known(standing.bytes_behind)} bytes"
    if standing.csns_behind is not None:
        unread = f"{standing.csns_behind} CSNs"
    table.add_row(
        "lag",
        f"{_known(standing.commits_behind)} commits, {unread}, {_known(standing.seconds_behind)} s",
    )


def _state(target: Ledger) -> str:
    """The ledger's state; LOADING only where a table is to be loaded, or is under way."""
    if target.inexact and not any(map(is_unloaded, target.inexact.values())):
        return "INEXACT"
    return target.state


def slot_fields(slot: SlotReading) -> dict[str, object]:
    """One slot, for programs."""
    return {
        "slot": slot.name,
        "type": "logical" if slot.is_logical else "physical",
        "plugin": slot.plugin or None,
        "database": slot.database or None,
        "active": slot.is_active,
        "restart": None if slot.restart is None else lsn_text(slot.restart),
        "confirmed": None if slot.confirmed is None else lsn_text(slot.confirmed),
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
        return printable(f"{offset:>8}  FOREIGN    {cut.why}")
    if as_json:
        return json.dumps(_with_lsns({"offset": offset, **cut_to_avro(cut)}))
    head = cut.head
    words = [f"{offset:>8}", f"{kind_of(cut):<9}", f"n={head.n}", f"resume={lsn_text(head.resume)}"]
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
            words += [f"for={cut.target}"] if cut.target else []
            words += ["mode=MEND"] if mends(cut) else []
        case State():
            words += [f"topics={len(cut.topics)}"]
        case _:
            pass
    return printable("  ".join(words))


_POSITIONS = frozenset({"resume", "as_of", "commit_start", "end_lsn", "lsn"})


def _with_lsns(value: Any) -> Any:
    """Positions in the source's log as people and servers write them."""
    match value:
        case dict():
            return {
                name: lsn_text(Lsn(one))
                if name in _POSITIONS and isinstance(one, int)
                else _with_lsns(one)
                for name, one in value.items()
            }
        case list() | tuple():
            return [_with_lsns(one) for one in value]
        case _:
            return value


def tail_lines(
    config: Config,
    tables: Sequence[TableId],
    *,
    last: int,
    follow: bool,
    as_json: bool,
    stop: Callable[[float], bool],
) -> Iterator[str]:
    """The newest row changes, read committed, in commit order across tables.

    What comes later is held back until a cut names it, and nothing before it is missing.

    Raises CdcError where Kafka does not answer.
    """
    try:
        with Endpoints(config) as places, closing(_Tail(config, tables, as_json=as_json)) as tail:
            start = places.first_cut()
            at = places.reader().lso() if start is not None and follow else 0
            yield from tail.newest(last, stop)
            if not follow or start is None:
                return
            while not stop(0):
                tail.read(0.3)
                end = places.reader().lso()
                for _, cut in places.read_cuts(at, end):
                    if isinstance(cut, Commits | TableLoad):
                        tail.add(cut)
                at = max(at, end)
                yield from tail.complete()
    except KafkaException as exc:
        raise ours(exc) from exc


class _Tail:
    """Rows of some tables, put into commit order."""

    def __init__(self, config: Config, tables: Sequence[TableId], *, as_json: bool) -> None:
        self._topics, self._tables, self._as_json = Topics(config.kafka.prefix), tables, as_json
        self._consumer = Consumer(
            {
                **LOGGED,
                **config.kafka.client_settings(),
                "group.id": "gauss-cdc-tail",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        self._schema_of = registry_at(config.registry.url, config.registry.client())
        self._decoders: dict[int, tuple[RowDecoder, RowPrinter]] = {}
        self._rows: list[tuple[CommitKey, str]] = []  # read, and not given out
        self._read: dict[tuple[str, int], int] = {}  # partition -> everything below was read
        self._cuts: deque[Commits | TableLoad] = deque()

    def close(self) -> None:
        self._consumer.close()

    def newest(self, last: int, stop: Callable[[float], bool]) -> list[str]:
        """The last rows of all tables together."""
        consumer, places = self._consumer, list[TopicPartition]()
        ends: dict[tuple[str, int], int] = {}  # as of now: there may be new rows all the time
        for name, described in consumer.list_topics(timeout=30).topics.items():
            if not self._is_wanted(name):
                continue
            for partition in described.partitions:
                place = TopicPartition(name, partition)
                low, high = consumer.get_watermark_offsets(place, timeout=30)
                # Each commit leaves a marker, so a row takes two offsets at most, mostly.
                begin = max(low, high - 2 * last)
                places.append(TopicPartition(name, partition, begin))
                self._read[name, partition] = begin
                ends[name, partition] = high
        if not places:
            raise TopicReplaced(
                "no topic of these tables", hint="did `run` start? names are schema.table"
            )
        consumer.assign(places)
        while ends and not stop(0):
            ended = self.read(0.3)  # a partition may end in markers, which are no messages
            ends = {p: e for p, e in ends.items() if p not in ended and self._read[p] < e}
        rows, self._rows = sorted(self._rows), []
        return [line for _, line in rows[-last:]]

    def read(self, seconds: float) -> set[tuple[str, int]]:
        """Read the records that arrived; return the partitions whose ends were reached."""
        ended = set()
        for message in self._consumer.consume(500, seconds):
            place = (message.topic() or "", message.partition() or 0)
            if (error := message.error()) is not None:
                if error.code() != KafkaError._PARTITION_EOF:  # noqa: SLF001  public, in spite of it
                    raise of_error(error)
                ended.add(place)
                continue
            self._read[place] = (message.offset() or 0) + 1
            if (row := self._row(message)) is not None:
                self._rows.append(row)
        return ended

    def add(self, cut: Commits | TableLoad) -> None:
        """Take rows that are durable; a new topic is read from there on."""
        self._cuts.append(cut)
        for one in cut.ranges:
            place = (one.topic, one.partition)
            if place not in self._read and self._is_wanted(one.topic):
                self._read[place] = one.start
                self._consumer.incremental_assign(
                    [TopicPartition(one.topic, one.partition, one.start)]
                )

    def complete(self) -> Iterator[str]:
        """Rows of cuts that were read whole, in their order."""
        while self._cuts and self._has_all(self._cuts[0]):
            cut = self._cuts.popleft()
            seq = cut.commits[-1].seq if isinstance(cut, Commits) else 0
            upto = (cut.head.epoch, seq + 1)
            self._rows.sort()
            known = bisect_left(self._rows, upto, key=lambda row: row[0][:2])
            yield from (line for _, line in self._rows[:known])
            del self._rows[:known]

    def _has_all(self, cut: Commits | TableLoad) -> bool:
        return all(
            self._read[one.topic, one.partition] >= one.end
            for one in cut.ranges
            if (one.topic, one.partition) in self._read
        )

    def _is_wanted(self, topic: str) -> bool:
        if not self._topics.is_data(topic):
            return False
        return not self._tables or _is_one(topic, self._topics, self._tables)

    def _row(self, message: Message) -> tuple[CommitKey, str] | None:
        value = message.value()
        if value is None:
            return None  # a tombstone
        given: Any = message.headers() or []
        headers: dict[str, bytes] = {name: raw for name, raw in given if raw is not None}
        try:
            schema_id, payload = split(value)
            schema = self._schema_of(schema_id)
            if schema_id not in self._decoders:
                decoder = RowDecoder(schema)
                self._decoders[schema_id] = decoder, RowPrinter(decoder, schema)
            decoder, json_rows = self._decoders[schema_id]
            change = decoder.decode(payload)
            position = CommitKey.parse(headers[POSITION].decode())
            raw = decoder.raw(payload) if self._as_json else {}
            facts = _facts(headers, raw)
        except (ValueError, LookupError, EOFError, TypeError, SchemaUnknown):
            place = f"{message.topic()}/{message.partition()} offset {message.offset()}"
            say(f"{place}: a record that is not ours", style="yellow")
            return None
        table = self._topics.table_by(message.topic() or "", schema)
        if self._as_json:
            line = dumps(
                {
                    "table": str(table),
                    "position": str(position),
                    **facts,
                    "op": change.op,
                    "before": json_rows.row(change.before, raw["before"]),
                    "after": json_rows.row(change.after, raw["after"]),
                }
            )
            return position, line
        rows = [_shown(change, row) for row in (change.before, change.after) if row is not None]
        return position, printable(f"{position}  {change.op}  {table}  {' -> '.join(rows)}")


def _facts(headers: Mapping[str, bytes], raw: Mapping[str, Any]) -> dict[str, object]:
    """Further data of a row's transaction: its commit time, its id, the row's position."""
    out: dict[str, object] = {}
    if raw:
        source = raw["source"]
        microseconds = source.get("ts_us") or source["ts_ms"] * 1000
        at = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=microseconds)
        out["time"] = at.isoformat(timespec="microseconds").replace("+00:00", "Z")
    for name in (XID, CSN):
        if name in headers:
            out[name] = int(headers[name])
    if LSN in headers:
        out[LSN] = lsn_text(parse_lsn(headers[LSN].decode()))
    if USER in headers:
        out[USER] = headers[USER].decode()
    return out


def _is_one(topic: str, topics: Topics, tables: Sequence[TableId]) -> bool:
    """Say whether a topic is one of these tables', also where its name ends in a hash."""
    return any(topic in topics.names(table) for table in tables)


def _shown(change: Change, cells: Sequence[Cell]) -> str:
    out = []
    for name, cell in zip(change.columns, cells, strict=True):
        if isinstance(cell, Missing):
            continue
        text = "NULL" if cell is None else cell
        out.append(f"{name}={text if len(text) <= _LONG else text[: _LONG - 1] + '…'}")
    return "(" + ", ".join(out) + ")"
