"""What must be true of every history.

The oracle knows what the source committed and looks at each record of cuts when
its transaction is decided, at each confirmation and at each commit of the target.
It shares no rule with the product: in an undamaged log every durable record of
cuts must be the right next one, so nothing has to be accepted or ignored.

A checker answers true, false (`World.fail`) or unknown (it never looked); the
tests take unknown for false.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from producer.core.catalog.look import CatalogVersion
from producer.core.changes import Delete, Logical, Truncate, Undecoded, Update
from producer.core.loop import Progress
from producer.core.stream.unfit import WHY
from schemas.accept import CutGap, CutIdentity, CutReplay, reloads, replay_tail
from schemas.control import (
    GAP,
    PENDING,
    CommitEntry,
    Commits,
    Cut,
    Heartbeat,
    LoadPhase,
    SchemaChange,
    Start,
    State,
    TableLoad,
    is_beside,
    mends,
)
from schemas.tables import UNCHANGED
from spark_consumers.cuts.ledger import LACKS_ROW, is_absent, is_unloaded, shown, unshown
from spark_consumers.model import Ledger
from tests.sim import target as targets
from tests.sim.broker import Broker, Transaction
from tests.sim.gauss import MarkRow, Stated
from tests.sim.ports import CUTS, PARTITIONS, TOPICS
from tests.sim.registry import Decoded, Value, lone_message
from tests.sim.source import (
    EVERYTHING,
    LARGE,
    NAMES,
    Database,
    Silent,
    Source,
    is_unfit,
    table_id,
)
from tests.sim.source import Transaction as SourceTransaction
from tests.sim.world import World

# Those that look in every history which gets to its end.
ALWAYS = ("chain", "ranges", "confirm", "belief", "target", "reader", "end")


@dataclass
class Epoch:
    """One history of the source."""

    number: int
    wal: list[SourceTransaction]  # the source's, on this epoch's timeline
    states: list[Database]
    timeline: int
    point: int  # its consistent point: the first load shows what was before
    at: int  # number of the source's next transaction
    hidden: set[str]  # tables of which nothing is delivered: not captured, or not begun yet
    loads: dict[str, str] = field(default_factory=dict)  # phases, by STATE and TABLE
    shapes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    loaded: dict[str, list[Any]] = field(default_factory=dict)
    loading: set[str] = field(default_factory=set)  # their load began and did not end
    holes: set[str] = field(default_factory=set)
    done: list[SourceTransaction] = field(default_factory=list)  # the k-th has seq k + 1
    last_from: int = 0  # those from here on became durable at once
    told: list[dict[str, tuple[str, ...]]] = field(default_factory=list)  # shapes as of each seq
    # (n, table, point, columns): it was read again, and shows all commits before the point
    again: list[tuple[int, str, int, tuple[str, ...]]] = field(default_factory=list)
    # (n, table, place) of ENDs of loads that have commits between their records
    beside: list[tuple[int, str, int]] = field(default_factory=list)
    begun: dict[str, int] = field(default_factory=dict)  # n of the first BEGIN
    ends: dict[str, int] = field(default_factory=dict)  # n of the newest END
    for_one: dict[int, str] = field(default_factory=dict)  # n of records of loads for one -> whose
    for_whom: dict[str, str] = field(default_factory=dict)  # open loads for one

    def again_at(self, target: str) -> list[tuple[int, str, int, tuple[str, ...]]]:
        """What was read again for a target."""
        return [one for one in self.again if self.for_one.get(one[0], target) == target]

    def before(self, point: int) -> int:
        """How many transactions committed before a point."""
        return sum(t.commit_start < point for t in self.wal)

    def own(self, position: int) -> SourceTransaction:
        """Make a stand-in for a transaction of the producer's own at a position."""
        at = position, position, position
        return SourceTransaction(self.at - 1, 0, *at, [], [], set(), is_own=True)

    def state_at(self, point: int) -> Database:
        """The source's tables as of all commits before `point`."""
        return self.states[self.before(point)]


class Oracle:
    """All checkers of one world."""

    def __init__(self, world: World, source: Source, broker: Broker, decoded: Decoded) -> None:
        self._world, self._source, self._broker = world, source, broker
        self._value = decoded.of
        self.looks: Counter[str] = Counter()
        self.keeps_rows = True  # the target leaves rows to readers while their table is loaded
        self.records: list[tuple[int, Cut]] = []  # durable records of cuts
        self.epochs: dict[int, Epoch] = {}
        self.epoch = self.n = self.seq = self.resume = self.writer = 0
        self._greatest = 0  # resume of any record: an epoch that continues may go back
        self.instance = ""
        self._written = [0, 0]  # transactions and rows, by the newest writer
        self._exchanged: dict[str, set[int]] = {}  # table -> n of each END
        self._topics: dict[str, str] = {}  # name -> id, by the newest START or STATE
        self._looked: dict[str, str] = {}  # the catalog as it was compared last
        self._compared: dict[Silent, int] = {}  # n at which a change is known
        self._now_compared: set[Silent] = set()
        self._gaps: list[tuple[CommitEntry, str]] = []  # of the Kafka transaction
        self._state_from = self._state_before = -1
        broker.on_decided = self.decided
        source.on_confirmed = self.confirmed
        source.on_answered = self.answered

    def fail(self, checker: str, what: str) -> None:
        """Say false."""
        self._world.fail(checker, what)

    def look(self, checker: str, what: str, *, ok: bool) -> None:
        """Say true, or false."""
        self.looks[checker] += 1
        if not ok:
            self.fail(checker, what)

    # ------------------------------------------------------------ confirmations
    def believed(self, name: str, lsn: int) -> None:
        """A producer sent a status message, which may never arrive."""
        self.look("belief", f"{name} confirms {lsn}, durable is {self._greatest}",
                  ok=lsn <= self._greatest)  # fmt: skip

    def confirmed(self, lsn: int) -> None:
        """The slot moved."""
        self.look("confirm", f"slot at {lsn}, durable is {self.resume}", ok=lsn <= self.resume)

    def answered(self, name: str, end: int, target: str) -> None:
        """A request was answered: the table was read to its end behind the place of the request."""
        source = self._source
        captured = source.captured & source.published & source.tables.keys()
        if name not in captured or source.asked_of.get((name, end), 0) != source.entries[name]:
            return
        epoch = self.epochs[self.epoch]
        again = epoch.again_at(target)
        read = [n for n, table, point, _ in again if table == name and point >= end]
        is_open = name in epoch.loading or epoch.for_whom.get(name) == target
        ends = max(epoch.ends.get(key, 0) for key in (name, f"{name} for {target}"))
        is_read = not is_open and any(n < ends for n in read)
        self.look("request", f"{name} was asked for at {end}, and not read since", ok=is_read)

    # ------------------------------------------------------------ cuts
    def decided(self, transaction: Transaction) -> None:
        """A Kafka transaction was decided: look at its records of cuts."""
        if transaction.state != "commit" or CUTS not in transaction.places:
            return
        self._state_before = self._state_from
        all_of = [
            (o, self._value(e))
            for o, e in self._broker.decided(CUTS)
            if e.value is not None and e.sender != "stranger"
        ]
        known = len(self.records)
        if all_of[:known] != self.records:
            self.fail("chain", "records of cuts became durable out of order")
            return
        for offset, cut in all_of[known:]:
            self.records.append((offset, cut))
            self._record(offset, cut)
        for commit, what in self._gaps:
            self._noted(commit, what)
        self._gaps.clear()
        for change in self._now_compared:  # with all that was found
            self._compared.setdefault(change, self.n)
        self._now_compared.clear()

    def _record(self, offset: int, cut: Cut) -> None:
        head = cut.head
        self.looks["chain"] += 1

        def demand(what: str, *, ok: bool) -> None:
            if not ok:
                self.fail("chain", f"offset {offset} {type(cut).__name__}: {what} ({head})")

        counted = isinstance(cut, Start | Commits | TableLoad)
        # A new history depends on nothing before it, and the log may not show that any more.
        is_new = isinstance(cut, Start) and reloads(cut) and self._begins_strangely()
        demand(f"n after {self.n}", ok=is_new or head.n == self.n + counted)
        if isinstance(cut, Start):
            self._start(offset, cut, demand)
        else:
            mine = (head.writer, head.instance) == (self.writer, self.instance)
            demand("of a writer that should have been fenced", ok=mine)
            demand(f"in epoch {self.epoch}", ok=head.epoch == self.epoch)
            demand(f"resume goes back from {self.resume}", ok=head.resume >= self.resume)
            if isinstance(cut, State):
                demand("state_from", ok=head.state_from == -1)
                self._state_from = offset
            else:
                # A STATE of the same Kafka transaction has no known offset yet.
                newest = (self._state_from, self._state_before)
                demand(f"state_from is none of {newest}", ok=head.state_from in newest)
        if self._world.violation is not None:
            return
        if isinstance(cut, Start | State):
            self._topics = {name: topic.id for name, topic in cut.topics.items()}
            self._loads(cut)
            self._look_at(cut)
        for place in getattr(cut, "ranges", ()):
            there = self._broker.topic_ids[place.topic]
            demand(f"topics do not have {place.topic}", ok=self._topics.get(place.topic) == there)
        match cut:
            case Commits():
                self._commits(offset, cut)
            case TableLoad():
                self._load(offset, cut)
            case Heartbeat() | State():
                demand(f"seq {self.seq}", ok=head.last_seq == self.seq)
        self.n, self.resume = head.n, head.resume
        self._greatest = max(self._greatest, head.resume)
        self.writer, self.instance = head.writer, head.instance
        if (rest := self._next(self.epochs[self.epoch])) is not None:
            after = f"T{rest.index} at {rest.commit_start} is behind its resume"
            demand(after, ok=rest.commit_start >= head.resume)

    def _next(self, epoch: Epoch) -> SourceTransaction | None:
        """What is to be delivered next."""
        return next((t for t in epoch.wal[epoch.at :] if t.survives(epoch.hidden)), None)

    def _look_at(self, cut: State) -> None:
        """What changed silently before a look is known once the look is durable."""
        looked = cut.looked
        if looked is None:
            return
        self._looked = dict(looked.tables)
        for change in self._source.silent:
            number = next(str(n) for n, name in NAMES.items() if name == change.table)
            version = looked.tables.get(number)
            if version is None or _is_behind(version, change):
                self._now_compared.add(change)

    def is_compared(self) -> bool:
        """Say whether the newest look shows the catalog as it is, or is compared with none."""
        source = self._source
        return not source.hushed and all(
            _facts(self._looked[str(number)]) == (source.entries[name], source.files[name])
            for number, name in NAMES.items()
            if str(number) in self._looked
        )

    def _is_read(self, change: Silent, n: int, target: str) -> bool:
        """Say whether a table was read again behind a silent change, up to a record."""
        epoch = self.epochs[self.epoch]
        return any(
            name == change.table and at <= n and epoch.before(point) >= change.at
            for at, name, point, _ in epoch.again_at(target)
        )

    def _is_hidden_change(self, name: str, index: int, n: int, target: str) -> bool:
        """Say whether a target may lack something that no look could show until then."""
        return any(
            change.table == name
            and change.at <= index
            and not self._is_read(change, n, target)
            and n < self._compared.get(change, n + 1)
            for change in self._source.silent
        )

    def has_moved(self) -> bool:
        """Say whether the newest epoch is of a former timeline."""
        return self.epochs[self.epoch].timeline != self._source.timeline

    def has_lost_tail(self) -> bool:
        """Say whether something was delivered that the promoted server does not have.

        Where retention removed the records that tell it, it may be.
        """
        epoch, source = self.epochs[self.epoch], self._source
        if epoch.timeline == source.timeline:
            return False
        end = source.ends[epoch.timeline]
        commits = any(t.end_lsn > end for t in epoch.done)
        left = [cut.head for at, cut in self.records if at >= self._broker.starts[CUTS]]
        tells = any(head.resume <= end for head in left if head.epoch == epoch.number)
        reads = any(at > end for _, _, at, _ in epoch.again)
        return commits or epoch.point > end or reads or not tells

    def is_loaded(self) -> bool:
        """Say whether commits are delivered, and nothing is to be read again."""
        epoch = self.epochs.get(self.epoch)
        if epoch is None or not epoch.done or epoch.loading or self._source.asked:
            return False
        hidden = epoch.hidden & self._source.captured & self._source.tables.keys()
        return not hidden and not set(epoch.loads.values()) - {LoadPhase.END}

    def waiting(self) -> int:
        """How many of the source's transactions are not delivered."""
        return len(self._source.wal) - self.epochs[self.epoch].at

    def behind_loads(self) -> tuple[int, int]:
        """How many of the source's transactions begin behind every load, and where that is."""
        epoch = self.epochs[self.epoch]
        last = max([epoch.point, *(point for _, _, point, _ in epoch.again)])
        return sum(t.commit_start >= last for t in self._source.wal), last

    def is_behind(self) -> bool:
        """Say whether the source ends before what was delivered."""
        return self._source.copies > 0 and self._source.end < self.resume

    def differs(self) -> bool:
        """Say whether the source has other transactions there than were delivered."""
        epoch = self.epochs[self.epoch]

        def until_now(wal: list[SourceTransaction]) -> list[int]:
            those = (t for t in wal if epoch.point <= t.commit_start < self.resume)
            return [t.xid for t in those if t.survives(epoch.hidden)]

        return until_now(epoch.wal) != until_now(self._source.wal)

    def _loads(self, cut: State) -> None:
        """Tables that are to be loaded; what is not begun is hidden until then."""
        epoch = self.epochs[self.epoch]
        names = {name.partition(".")[2]: phase for name, phase in cut.loads.items()}
        epoch.loads = names
        # A start delivers nothing of a table that no record tells of, whatever it waits for.
        unread = {PENDING, GAP} if isinstance(cut, Start) else {PENDING}
        epoch.hidden |= {
            name for name, phase in names.items() if phase in unread and name not in epoch.shapes
        }

    def _start(self, offset: int, cut: Start, demand: Any) -> None:
        head = cut.head
        is_new = reloads(cut) and self._begins_strangely()
        demand(f"writer after {self.writer}", ok=is_new or head.writer == self.writer + 1)
        demand("is of another source", ok=cut.identity.system_id == self._source.system_id)
        known = self.epochs.get(self.epoch)
        if known and known.number == head.epoch:
            demand("changes its timeline", ok=cut.identity.timeline == known.timeline)
        demand("state_from", ok=head.state_from == -1)
        self._state_from, self._written = offset, [0, 0]
        if head.epoch == self.epoch:
            demand(f"knows another place than seq {self.seq} resume {self.resume}",
                   ok=(head.last_seq, head.resume) == (self.seq, self.resume))  # fmt: skip
            assert known is not None
            is_here = cut.identity.timeline == self._source.timeline  # none that was replaced
            if is_here and known.wal is not self._source.wal and not self.differs():
                known.wal, known.states = self._source.wal, self._source.states
            return
        place = (self.epoch, self.seq, self.n) if self.epoch else None
        demand(f"epoch after {self.epoch}", ok=head.epoch == self.epoch + 1)
        demand(f"does not name {place}", ok=is_new or cut.prev == place)
        demand("seq of a new epoch", ok=head.last_seq == 0)
        source, timeline = self._source, cut.identity.timeline
        wal, states = source.former.get(timeline, (source.wal, source.states))
        at = sum(t.commit_start < head.resume for t in wal)
        if cut.continues:
            assert known is not None
            points = [point for point, _ in source.snapshots.values()]
            end = source.ends.get(known.timeline, 0)
            demand(f"goes on behind {end}", ok=head.resume <= end or head.resume in points)
            self.epoch, self.seq = head.epoch, 0
            self.epochs[self.epoch] = replace(
                known,
                number=head.epoch,
                wal=wal,
                states=states,
                timeline=timeline,
                point=head.resume,
                at=at,
                done=[],
                told=[dict(known.shapes)],
                again=[],
                for_one={},
            )
            return
        points = [point for point, _ in self._source.snapshots.values()]
        demand(f"resume is none of {points}", ok=head.resume in points)
        hidden = {"x", "y", *(source.tables.keys() - source.published)}
        epoch = Epoch(head.epoch, wal, states, timeline, head.resume, at, hidden)
        epoch.told.append({})
        self.epoch, self.seq = head.epoch, 0
        self.epochs[self.epoch] = epoch

    def _begins_strangely(self) -> bool:
        """Say whether retention left a stranger's START or STATE as the first one."""
        for offset, entry in self._broker.decided(CUTS):
            is_left = offset >= self._broker.starts[CUTS] and entry.value is not None
            if is_left and isinstance(self._value(entry), State):
                return entry.sender == "stranger"
        return False

    def _at(self, topic: str, partition: int, offset: int) -> Any:
        """A durable record's value; None for markers, aborted rows and strangers'.

        What its headers say of it is what it says itself.
        """
        log = self._broker.logs[topic, partition]
        if not 0 <= offset < len(log):
            return None
        entry = log[offset]
        lost = entry.transaction is not None and entry.transaction.state != "commit"
        if entry.is_marker or lost:
            return None
        value = self._value(entry)
        if (place := _place(value)) is not None:
            xid, *position = place
            told = {name: said.decode() for name, said in entry.headers}
            where = "/".join(map(str, position)), f"{value.lsn >> 32:X}/{value.lsn & 0xFFFFFFFF:X}"
            if xid and (told["position"], told["lsn"], told["xid"]) != (*where, str(xid)):
                self.fail("headers", f"{topic}/{partition} {offset}: {told} of {value}")
        return value

    def _commits(self, offset: int, cut: Commits) -> None:
        epoch = self.epochs[self.epoch]
        cursor = [r.start for r in cut.ranges]
        epoch.last_from = len(epoch.done)
        for entry in cut.commits:
            self.looks["ranges"] += 1
            if entry.seq != self.seq + 1:
                self.fail("chain", f"offset {offset}: seq {entry.seq} after {self.seq}")
            if not entry.xid and entry.holes and not entry.counts:
                self._own(offset, entry)
                continue
            if (wanted := self._next(epoch)) is None:
                self.fail("chain", f"offset {offset}: nothing was committed as seq {entry.seq}")
                return
            found = entry.xid, entry.csn, entry.commit_start, entry.end_lsn
            there = wanted.xid, wanted.csn, wanted.commit_start, wanted.end_lsn
            if found != there:
                self.fail("chain", f"offset {offset}: seq {entry.seq} is {found} (xid, csn, start, "
                          f"end), the source committed {there}")  # fmt: skip
                return
            self.seq = entry.seq
            epoch.hidden -= wanted.makes() & self._source.captured
            epoch.at = wanted.index + 1
            epoch.done.append(wanted)
            self._written[0] += 1
            self._written[1] += entry.rows
            values = []
            for index, count in sorted(entry.counts.items()):
                topic, partition = cut.ranges[index][:2]
                at = cursor[index]
                cursor[index] += count
                values += [self._at(topic, partition, o) for o in range(at, at + count)]
            self._rows(entry, wanted, values)
            epoch.told.append(dict(epoch.shapes))
        if cursor != [r.end for r in cut.ranges]:
            self.fail("ranges", f"offset {offset}: counts do not fill the ranges")

    def _own(self, offset: int, entry: CommitEntry) -> None:
        """What the catalog showed, at a place between two commits."""
        epoch, at = self.epochs[self.epoch], entry.commit_start
        coming = self._next(epoch)
        behind = epoch.done[-1].commit_start if epoch.done else epoch.point
        if not behind <= at <= (coming.commit_start if coming is not None else at):
            self.fail("chain", f"offset {offset}: a look at {at}, behind {behind}")
        epoch.at = max(epoch.at, epoch.before(at))
        silent = {f"public.{change.table}" for change in self._source.silent}
        altered = {f"public.{name}" for name in (*self._source.entries, *self._source.files)}
        if wrong := {hole.table for hole in entry.holes} - silent - altered:
            self.fail("holes", f"offset {offset}: nothing happened to {wrong}")
        self.seq = entry.seq
        epoch.done.append(epoch.own(at))
        epoch.told.append(dict(epoch.shapes))
        self._gaps.append((entry, f"a look at {at}"))
        self._written[0] += 1
        self.looks["look"] += 1

    def _rows(self, entry: CommitEntry, wanted: SourceTransaction, values: list[Any]) -> None:
        """The ranges hold exactly this transaction: what, in which order, numbered how."""
        what = f"seq {entry.seq} (T{wanted.index})"
        found: dict[int, Any] = {}
        for value in values:
            place = _place(value)
            here = wanted.xid, self.epoch, entry.seq
            if place is None or place[:3] != here or value.csn != wanted.csn:
                self.fail("ranges", f"{what}: a foreign record in its ranges: {value}")
                return
            if place[3] in found:
                self.fail("ranges", f"{what}: ordinal {place[3]} twice")
            found[place[3]] = value
        if sorted(found) != list(range(entry.rows)):
            self.fail("ranges", f"{what}: {sorted(found)} of {entry.rows} rows in its ranges")
            return
        said = [
            ("ddl", value.after.id.name, value.after.names())
            if isinstance(value, SchemaChange) and value.after is not None
            else (value.table.name, value.op, value.after)
            for _, value in sorted(found.items())
        ]
        expected, holes = self._expected(wanted)
        if said != expected:
            self.fail("ranges", f"{what}: said {said}, expected {expected}")
        ddl = [at for at, value in sorted(found.items()) if isinstance(value, SchemaChange)]
        if [place.ordinal for place in entry.ddl] != ddl:
            self.fail("ranges", f"{what}: ddl at {ddl}, the cut says {entry.ddl}")
        told = {hole.table for hole in entry.holes}
        holes |= told & self._moved(wanted)
        self.epochs[self.epoch].holes |= holes
        if told != holes:
            self.fail("holes", f"{what}: holes {holes}, the cut says {entry.holes}")
        self._gaps.append((entry, what))
        hidden = self.epochs[self.epoch].hidden
        if kept := {at in self._broker.quarantined for at in wanted.put_aside(hidden)}:
            self.look(
                "quarantine", f"{what}: its messages are not in quarantine", ok=kept == {True}
            )
        self.looks["holes"] += 1

    def _moved(self, wanted: SourceTransaction) -> set[str]:
        """Tables that are loaded while a row of theirs comes to another key in part."""
        return {
            f"public.{NAMES[change.relation]}"
            for change, _ in wanted.changes
            if isinstance(change, Update) and change.old_kind == "K" and UNCHANGED in change.new
            if NAMES[change.relation] in self.epochs[self.epoch].loading
        }

    def _noted(self, entry: CommitEntry, what: str) -> None:
        """A gap stands in one Kafka transaction with the note that its table is to be read."""
        epoch = self.epochs[self.epoch]
        for hole in entry.holes:
            if hole.why == WHY:
                continue  # no reading would bring the row
            names = [hole.table.partition(".")[2]]
            if hole.table == EVERYTHING:
                names = [name for name in epoch.shapes if name not in epoch.hidden]
            noted = {name: epoch.loads.get(name) for name in names if name not in epoch.loading}
            self.look("noted", f"{what}: {hole} and loads {noted}",
                      ok=LoadPhase.END not in noted.values())  # fmt: skip

    def _expected(self, wanted: SourceTransaction) -> tuple[list[Any], set[str]]:
        """Rows as the source made them, and a DDL record wherever a table's shape is new."""
        shapes, hidden = self.epochs[self.epoch].shapes, self.epochs[self.epoch].hidden
        out: list[Any] = []
        decoding = self._source.decoding
        is_told = decoding is not None and decoding.tells_ddl
        seen = wanted.holes - {f"public.{name}" for name in hidden}
        holes = seen & (wanted.holes if is_told else {EVERYTHING})
        rows = (row for row in wanted.expected if row[0] not in hidden)
        for message, schemas in wanted.changes:
            if isinstance(message, Undecoded | Logical | MarkRow):
                continue
            ids = getattr(message, "relations", None) or (getattr(message, "relation", 0),)
            for number in ids:
                table = schemas[number]
                name = table.id.name
                if name in hidden:
                    continue
                # GaussDB describes no table: only new rows show their columns.
                shows = decoding is None or not isinstance(message, Delete | Truncate)
                if shows and shapes.get(name) != table.names():
                    known = shapes.get(name)
                    new = [c for c in table.columns if known and c.name not in known]
                    if any(not c.nullable for c in new):
                        holes.add(str(table.id))
                    shapes[name] = table.names()
                    out.append(("ddl", name, table.names()))
                if isinstance(message, Stated):
                    continue
                if is_unfit(message, schemas):
                    holes.add(str(table.id))
                    continue
                row = next(rows)
                out += [row] * (PARTITIONS.get(name, 1) if row[1] == "t" else 1)
                if name == "a" and getattr(message, "old_kind", "") == "K" and row[1] == "u":
                    out.append(next(rows))
        return out, holes

    def _load(self, offset: int, cut: TableLoad) -> None:
        epoch = self.epochs[self.epoch]
        self.looks["load"] += 1
        values = [
            self._at(r.topic, r.partition, o) for r in cut.ranges for o in range(r.start, r.end)
        ]
        if None in values or len(values) != cut.rows:
            self.fail("load", f"offset {offset}: ranges hold {values}, not {cut.rows} rows")
            return
        name = cut.table.name
        rows = epoch.loaded.setdefault(name, [])
        if cut.target is not None:
            epoch.for_one[cut.head.n] = cut.target
            self.looks["for one"] += 1
        if mends(cut):
            self._mend(epoch, cut, values)
        elif cut.phase is LoadPhase.BEGIN:
            rows.clear()
            self._begin(offset, cut, values)
        elif epoch.for_whom.get(name) != cut.target or (
            cut.target is None and name not in epoch.loading
        ):
            self.fail("load", f"offset {offset}: {cut.phase} of {name} without a BEGIN")
        elif cut.phase is LoadPhase.CHUNK:
            for value in values:
                cells = zip(value.columns, value.after, strict=True)
                rows.append(tuple(sorted((c, v.decode()) for c, v in cells if v is not None)))
        else:
            whose = f"{name} for {cut.target}" if cut.target else name
            epoch.ends[whose] = cut.head.n
            self._exchanged.setdefault(whose, set()).add(cut.head.n)
            if cut.target is None:
                epoch.loading.discard(name)
                epoch.loads[name] = LoadPhase.END
                epoch.holes.discard(str(cut.table))
            else:
                del epoch.for_whom[name]
            if is_beside(cut):
                epoch.beside.append((cut.head.n, name, cut.as_of))
            there = epoch.state_at(cut.as_of)[name].content()
            fit = [row for row in there if all(len(value) < LARGE for _, value in row)]
            if sorted(rows) != fit and not is_beside(
                cut
            ):  # of one with commits between: the target
                self.fail("load", f"{cut.table}: loaded {sorted(rows)}, the source had {there}")
            if cut.lossy and is_beside(cut):  # a row was too large, and may be gone by now
                epoch.holes.add(str(cut.table))
            elif fit != there:
                epoch.holes.add(str(cut.table))
                self.look(
                    "lossy", f"{cut.table}: rows are missing, and END is silent", ok=bool(cut.lossy)
                )

    def _mend(self, epoch: Any, cut: TableLoad, values: list[Any]) -> None:
        """Rows of some keys are the source's, at the record's place."""
        rows = epoch.state_at(cut.as_of)[cut.table.name].content()
        there = {dict(row)["id"]: row for row in rows}
        for value in values:
            row = None
            if value.op == "r":
                cells = zip(value.columns, value.after, strict=True)
                row = tuple(sorted((c, v.decode()) for c, v in cells if v is not None))
            now = there.get(value.old_key if row is None else dict(row)["id"])
            self.look("mend", f"{cut.table}: {row} is written, the source has {now}", ok=row == now)

    def _begin(self, offset: int, cut: TableLoad, values: list[Any]) -> None:
        """A load stands behind all commits before its point, and before all others."""
        epoch, name = self.epochs[self.epoch], cut.table.name
        coming = self._next(epoch)
        if coming is not None and coming.commit_start < cut.as_of:
            self.fail("point", f"offset {offset}: {name} as of {cut.as_of}, before T{coming.index}")
        newest = epoch.done[-1] if epoch.done else None
        if newest is not None and newest.commit_start >= cut.as_of + newest.is_own:
            behind = epoch.done[-1].index
            self.fail("point", f"offset {offset}: {name} as of {cut.as_of}, behind T{behind}")
        if name in epoch.begun and (cut.target is None or name == "c"):  # plain readers have rows
            mine = self._broker.logs[CUTS][offset].transaction
            for at in range(PARTITIONS.get(name, 1)):
                log = self._broker.logs[TOPICS.table(cut.table), at]
                told = [self._value(e).op for e in log if e.transaction is mine and not e.is_marker]
                self.look("H31", f"offset {offset}: {name}/{at} begins anew, and nobody tells",
                          ok=told[:1] == ["t"] and set(told[1:]) <= {"r"})  # fmt: skip
        epoch.at = max(epoch.at, epoch.before(cut.as_of))
        epoch.for_whom.pop(name, None)
        if cut.target is not None:
            epoch.for_whom[name] = cut.target
            is_whole = epoch.loads.get(name, LoadPhase.END) == LoadPhase.END
            if name in epoch.hidden | epoch.loading or not is_whole:
                self.fail("for one", f"offset {offset}: {name} is not exact for any")
        epoch.hidden.discard(name)
        if cut.target is None:
            epoch.loading.add(name)
        columns = tuple(c.name for c in epoch.state_at(cut.as_of)[name].columns)
        if is_beside(cut) and len(values) == 1:  # as it was a moment ago
            (value,) = values
            states = [epoch.state_at(at) for at in range(cut.as_of + 1)]
            shapes = [tuple(c.name for c in s[name].columns) for s in states if name in s]
            columns = value.after.names() if value.after.names() in shapes else columns
        if [value.after.names() for value in values] != [columns]:
            self.fail("load", f"offset {offset}: {name} begins as {values}, not {columns}")
        if cut.target is not None and epoch.shapes.get(name) != columns:
            self.fail("for one", f"offset {offset}: {name} has other columns: {columns}")
        epoch.shapes[name] = columns
        epoch.again.append((cut.head.n, name, cut.as_of, columns))
        epoch.begun.setdefault(name, cut.head.n)
        if epoch.done:
            self.looks["point"] += 1

    # ------------------------------------------------------------ target
    def applied(
        self, before: targets.Database, after: targets.Database, target: str = targets.FIRST
    ) -> None:
        """The target committed: it shows the source as of exactly the ledger's commit."""
        was, now = before.ledger, after.ledger
        self.looks["target"] += 1
        if (now.epoch, now.n, now.seq) < (was.epoch, was.n, was.seq):
            self.fail("target", f"the ledger went back from {_short(was)} to {_short(now)}")
        if not now.instance:
            if after.tables:
                self.fail("target", "rows, but the ledger stands at the beginning")
            return
        epoch = self.epochs.get(now.epoch)
        if epoch is None or (now.epoch, now.n) > (self.epoch, self.n):
            self.fail("target", f"{_short(now)} is ahead of what is durable")
            return
        if (now.state == "EXACT") != (not now.inexact):
            self.fail("target", f"state {now.state} with inexact {now.inexact}")
        state = epoch.state_at(epoch.point)
        if now.seq:
            wanted = epoch.done[now.seq - 1]
            state = epoch.states[wanted.index + 1]
            began_late = not was.instance or (not was.commit_lsn and now.seq == was.seq)
            if now.commit_lsn not in {wanted.commit_start, *([0] if began_late else ())}:
                self.fail("target", f"{_short(now)} says commit {now.commit_lsn}")
        self._equal(state, after, _short(now), target)
        if was.instance and self.keeps_rows:
            self._kept(before, after, target)
        self._untouched(epoch, before, after, target)

    def _untouched(
        self, epoch: Epoch, before: targets.Database, after: targets.Database, target: str
    ) -> None:
        """A load for another target leaves rows and marks as they were."""
        was, now = before.ledger, after.ledger
        open_ = [w for w in now.inexact.values() if w.startswith("loading for ")]
        if any(unshown(why) != f"loading for {target}" for why in open_):
            self.fail("for one", f"{target}, {_short(now)}: {now.inexact}")
        records = range(was.n + 1, now.n + 1)
        if (was.epoch, was.seq) != (now.epoch, now.seq) or not records:
            return
        if all(epoch.for_one.get(n, target) != target for n in records):
            is_same = (was.inexact, before.tables, before.beside) == (
                *(now.inexact, after.tables, after.beside),
            )
            self.look(
                "untouched", f"{target}, {_short(now)}: changed by another's load", ok=is_same
            )

    def _kept(self, before: targets.Database, after: targets.Database, target: str) -> None:
        """Readers see rows of one commit, which the ledger names, until they see newer ones."""
        for table, there in before.tables.items():
            name, now = str(table), after.ledger
            commit, why = shown(before.ledger, name), now.inexact.get(name)
            if why is None or not commit or "(" in commit or table not in after.tables:
                continue  # exact, or what readers had was of no commit, either
            is_same = after.tables[table].content() == there.content()
            whose = table.name, f"{table.name} for {target}"
            ends = set[int]().union(*(self._exchanged.get(one, ()) for one in whose))
            if ends & set(range(before.ledger.n + 1, now.n + 1)):
                continue  # its rows are the new ones, and lack some
            if is_unloaded(why) or is_unloaded(before.ledger.inexact.get(name, "")):
                self.look("H38", f"{_short(now)}: readers of {name} saw {commit}; {why}",
                          ok=is_same and shown(now, name) == commit)  # fmt: skip

    def _equal(self, state: Any, database: targets.Database, where: str, target: str) -> None:
        """Every exact table shows what the source showed.

        pgoutput tells a new column with the next row of its table: columns that nobody
        was told of yet are left out.
        """
        ledger = database.ledger
        epoch = self.epochs[ledger.epoch]
        told, state = dict(epoch.told[ledger.seq]), dict(state)
        newest = epoch.done[ledger.seq - 1] if ledger.seq else None
        reached = newest.commit_start - newest.is_own if newest is not None else epoch.point
        for n, name, point, columns in epoch.again_at(target):
            if n <= ledger.n and (point > reached or not ledger.seq):
                state[name], told[name] = epoch.state_at(point)[name], columns
        ends: dict[str, int] = {}  # of loads with commits between: they read until then
        for n, name, point in epoch.beside:
            if epoch.for_one.get(n, target) != target:
                continue
            if n <= ledger.n and (point > reached or not ledger.seq):
                state[name] = epoch.state_at(point)[name]
                ends[name] = epoch.before(point)
        contents = {id_.name: table for id_, table in database.tables.items()}
        for name, table in state.items():
            unseen = name in epoch.hidden or ledger.n < epoch.begun.get(name, 0)
            index = newest.index + 1 if newest is not None else epoch.before(reached)
            if self._is_hidden_change(name, ends.get(name, index), ledger.n, target):
                continue
            if unseen or f"public.{name}" in ledger.inexact:
                continue
            there = contents[name].content() if name in contents else []
            here = [tuple(c for c in r if c[0] in told.get(name, ())) for r in table.content()]
            if sorted(here) != there:
                self.fail("target", f"{where}: {name} is {_diff(there, here)} (target - source)")

    # ------------------------------------------------------------ the end
    def is_through(self, target: targets.Target) -> bool:
        """Say whether everything arrived."""
        if not self.epoch or len(self._source.wal) < self._source.planned:
            return False
        epoch, slot = self.epochs[self.epoch], self._source.slot
        if epoch.timeline != self._source.timeline or epoch.wal is not self._source.wal:
            return False
        source = self._source
        asked = {name for name, *_ in source.asked.values()} & source.published
        is_loading = epoch.loading or epoch.for_whom
        if set(epoch.loads.values()) - {LoadPhase.END} or is_loading or asked:
            return False
        if epoch.hidden & self._source.captured & self._source.tables.keys():
            return False
        if self._next(epoch) is not None or slot is None or not self.is_compared():
            return False
        # WAL is let go in the end; in the order of CSNs, where nothing follows, up to the last cut.
        by_csn = self._source.decoding is not None and self._source.decoding.by_csn
        kept = (epoch.done[: epoch.last_from] if by_csn else epoch.done)[-1:]
        if kept and slot["confirmed"] < kept[0].end_lsn:
            return False
        if not all(self.looks[name] for name in ("ranges", "confirm", "belief")):
            self._source.planned += 1  # nothing was left for the stream: there is more
            return False
        ledger = target.now.ledger
        if any(map(is_absent, ledger.inexact.values())):
            return False  # the STATE that ends it counts as no record
        return (ledger.epoch, ledger.n, ledger.seq) == (self.epoch, self.n, self.seq)

    def at_the_end(
        self,
        target: targets.Target,
        *,
        counted: Mapping[str, Progress],
        is_exact: bool,
        is_thorough: bool,
    ) -> None:
        """Look at the whole history once more; `counted`: by the instance that counted it."""
        self.looks["end"] += 1
        self.target_at_the_end(target)
        if (mine := counted.get(self.instance)) is not None:
            said = mine.commits, mine.rows
            self.look("progress", f"{self.instance} counted {said}, and wrote {self._written}",
                      ok=said == tuple(self._written))  # fmt: skip
        self._readers(is_thorough=is_thorough)
        if is_exact:
            self._plain_readers()

    def target_at_the_end(self, target: targets.Target) -> None:
        """Everything arrived there."""
        if target.now.ledger.state == "EXACT" and target.now.ledger.inexact:
            self.fail("end", "EXACT with inexact tables")
        self._equal(self._source.states[-1], target.now, f"the end of {target.name}", target.name)
        known = self.epochs[self.epoch].holes
        # A row may have been missed before a TRUNCATE, which left nothing to be found.
        silent = {f"public.{change.table}" for change in self._source.silent}
        marks = target.now.ledger.inexact
        known |= {table for table in silent if marks.get(table) == LACKS_ROW}
        if wrong := set(marks) - known:
            self.fail("end", f"{wrong} are inexact for ever: {target.now.ledger.inexact}")

    def _readers(self, *, is_thorough: bool) -> None:
        """Whoever walks the log, from wherever, ends where the oracle stands."""
        records = self.records
        right = (self.n, self.epoch, self.seq, self.resume, self.writer, self.instance)
        everybodys = [
            (o, self._value(e)) for o, e in self._broker.decided(CUTS) if e.value is not None
        ]
        strange = {o for o, e in self._broker.decided(CUTS) if e.sender == "stranger"}

        def replay(from_: list[tuple[int, Any]]) -> tuple[Any, ...]:
            replay = CutReplay.from_nobody()
            for offset, cut in from_:
                if replay.follow(offset, cut) is not None and offset in strange:
                    return ("a stranger's counts", offset)
            if replay.suspect is not None and everybodys[-1][0] not in strange:
                return (str(replay.suspect),)
            if replay.alarms and not strange:
                return ("alarms", replay.alarms)
            return (
                replay.n,
                replay.epoch,
                replay.seq,
                replay.resume,
                replay.writer,
                replay.instance,
            )

        bases = {o if c.head.state_from < 0 else c.head.state_from for o, c in records}
        for base in [0, *sorted(bases)]:
            self.looks["reader"] += 1
            got = replay([r for r in everybodys if r[0] >= base])
            if got != right:
                self.fail("reader", f"a replay from {base} gives {got} instead of {right}")
        tail = replay_tail(
            lambda low, high: [r for r in everybodys if low <= r[0] < high],
            self._broker.starts[CUTS],
            self._broker.high(CUTS),
        )
        is_known = not self._begins_strangely()  # else a producer stops there: CutsBroken
        if is_known and (
            tail is None or (tail.n, tail.seq, tail.resume) != (self.n, self.seq, self.resume)
        ):
            self.fail("reader", f"the tail reads as {tail}")
        if not is_thorough:
            return
        for at in range(1, len(records)):
            offset, cut = records[at]
            if isinstance(cut, Start) and records[at - 1][1].head.epoch == cut.head.epoch:
                self.looks["zombie"] += 1
                old = records[at - 1][1].head
                late = Heartbeat(replace(old, n=cut.head.n, resume=old.resume + 1))
                seen = CutReplay.from_nobody()
                try:
                    for o, c in [*records[: at + 1], (offset, late), *records[at + 1 :]]:
                        seen.accept(o, c)
                except (CutGap, CutIdentity):
                    seen.alarms = 0
                if (seen.resume, seen.alarms) != (self.resume, 1):
                    self.fail("zombie", f"a record of writer {old.writer} after {offset} counts")
        for at in range(1, len(records) - 1):
            if any(reloads(cut) for _, cut in records[at:]):
                continue  # everything is loaded anew behind it
            if isinstance(records[at][1], Start | Commits | TableLoad):
                self.looks["loss"] += 1
                seen = CutReplay.from_nobody()
                for o, c in records[:at] + records[at + 1 :]:
                    seen.follow(o, c)
                if seen.suspect is None:
                    self.fail("loss", f"nobody notices that the record at {records[at][0]} is lost")

    def _plain_readers(self) -> None:
        """Exactly-once mode: who reads committed data topics sees no row twice."""
        self.looks["plain"] += 1
        told = Counter(lone_message(e.value) for _, e in self._broker.decided((TOPICS.message, 0)))
        for wanted in self.epochs[self.epoch].done:
            if wanted.is_lone_message and (count := told[wanted.end_lsn]) != 1:
                self.fail("plain", f"the message at {wanted.end_lsn} is there {count} times")
        named: dict[int, set[int]] = {}
        has_giants = False
        for _, entry in self._broker.decided(CUTS):
            cut = self._value(entry)
            if isinstance(cut, Commits) and entry.transaction:
                xids = {commit.xid for commit in cut.commits}
                named.setdefault(entry.transaction.number, set()).update(xids)
        for topic, partition in self._broker.logs:
            if topic in (TOPICS.cuts, TOPICS.ddl, TOPICS.message):
                continue
            rows = [
                (e.transaction, self._value(e))
                for _, e in self._broker.decided((topic, partition))
                if e.value is not None
            ]
            # Parts of a giant stand in transactions whose cuts do not name it.
            giants = {
                row.xid
                for transaction, row in rows
                if transaction and row.xid not in named.get(transaction.number, ())
            }
            seen = Counter(
                (row.xid, row.ordinal) for _, row in rows if row.xid and row.xid not in giants
            )
            if twice := [key for key, count in seen.items() if count > 1]:
                self.fail("plain", f"{topic}/{partition}: {twice} are there twice")
            places = Counter((row.seq, row.ordinal) for _, row in rows if not row.xid)
            if len(self.epochs) == 1 and any(count > 1 for count in places.values()):
                self.fail("plain", f"{topic}/{partition}: loads share positions: {places}")
            has_giants = has_giants or bool(giants - {0})
        if len(self.epochs) == 1 and not has_giants and not any(self._broker.starts.values()):
            self._tables_of_plain_readers()

    def _tables_of_plain_readers(self) -> None:
        """Who takes rows by key, partition by partition, has the table [H31]."""
        epoch = self.epochs[self.epoch]
        for name in {"a", "b", "d", "x", "y"} & epoch.begun.keys():
            if f"public.{name}" in epoch.holes or EVERYTHING in epoch.holes or name in epoch.hidden:
                continue
            there: dict[str, dict[str, Any]] = {}
            for partition in range(PARTITIONS.get(name, 1)):
                part: dict[str, dict[str, Any]] = {}
                for _, entry in self._broker.decided((TOPICS.table(table_id(name)), partition)):
                    if entry.value is not None:
                        _follow(part, self._value(entry))
                there |= part
            here = sorted(tuple(sorted(row.items())) for row in there.values())
            told = epoch.shapes[name]  # as in `_equal`
            wanted = sorted(
                tuple(cell for cell in row if cell[0] in told)
                for row in self._source.states[-1][name].content()
            )
            self.look("H31", f"{name} is {here}, the source has {wanted}", ok=here == wanted)


def _follow(rows: dict[str, dict[str, Any]], change: Value) -> None:
    """Apply a change to what a plain reader has of one partition."""
    if change.op == "t":
        rows.clear()
        return
    old = rows.pop(change.old_key, {}) if change.old_key is not None else {}
    if change.after is None:
        return
    cells = dict(zip(change.columns, change.after, strict=True))
    key = cells["id"].decode()
    old = old or rows.get(key, {})
    kept = {name: value for name, value in old.items() if cells.get(name) is UNCHANGED}
    new = {n: c.decode() for n, c in cells.items() if c is not None and c is not UNCHANGED}
    rows[key] = kept | new


def _facts(text: str) -> tuple[int, int]:
    """How often a table's publication was altered, and its rows were written elsewhere."""
    version = CatalogVersion.parse(text)
    file = (int(version.files) - 1) // 1000 if version.files else 0
    return int(version.entries.partition(":")[2]), file


def _is_behind(text: str, change: Silent) -> bool:
    """Say whether a table's version is of a time behind a silent change."""
    entry, file = _facts(text)
    return entry > change.entry or (entry == change.entry and file >= change.file > 0)


def _place(value: Any) -> tuple[int, int, int, int] | None:
    if isinstance(value, Value):
        return value.xid, value.epoch, value.seq, value.ordinal
    if isinstance(value, SchemaChange):
        return value.xid, value.epoch, value.seq, value.ordinal
    return None


def _short(ledger: Ledger) -> str:
    return f"ledger {ledger.epoch}/{ledger.seq} n={ledger.n}"


def _diff(there: list[Any], wanted: list[Any]) -> str:
    more, less = Counter(there), Counter(wanted)
    return f"+{list((more - less).elements())} -{list((less - more).elements())}"
