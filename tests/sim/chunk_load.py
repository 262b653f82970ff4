"""A load in chunks beside the stream, as a model: docs/decisions/055, before it is built.

One table, one source, one producer, one target.  A position is a number of commits: the place p is
behind the commits 0 .. p-1.  Modelled apart: when a commit is in the log, when it is flushed, and
when a snapshot sees it.  Each of the three parts may crash between two steps.

A history is a seed.  `Rules` has a switch for each rule: taken out, some history ends wrong.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Final, NamedTuple

KEYS: Final = range(8)
Row = tuple[int, int]  # of (short, long): an update may leave the long value out


class Op(NamedTuple):
    """A change of a row; what `sent` is false for, the stream does not bring."""

    kind: str  # insert | update | delete | truncate | rewrite, which the stream does not tell
    key: int = -1  # the new one
    old: int = -1  # of an update
    row: Row = (0, 0)
    sent: bool = True  # the long value


@dataclass(frozen=True)
class Rules:
    """Switches: a rule that is taken out is noticed."""

    sees_delivered: bool = True  # A: a snapshot that does not see all that was delivered is none
    insert_position: bool = True  # B: the earliest place is where the log ends, flushed or not
    drops_on_break: bool = True  # B: what was not placed when the source broke is thrown away
    owes: bool = True  # C: keys whose rows cannot be whole are read again
    owes_chains: bool = True  # C: also what is made out of a key that is owed itself
    owes_in_flight: bool = True  # C: also into and out of ranges that are read, and not placed
    owes_anew: bool = True  # C: a chunk pays what nobody has touched since its snapshot
    owed_is_durable: bool = True  # C: in the Kafka transaction of the commit that makes them
    ends_without_owed: bool = True  # C: END waits for an empty list
    seen_is_logged: bool = True  # D: in the step's transaction, kept by a crash of the target
    resumes_at_place: bool = True  # E: what was hidden before BEGIN does not come again
    locks_first: bool = True  # F: then the snapshot
    truncate_drops: bool = True  # F: what was read before is thrown away
    notes_until_placed: bool = True  # not until the earliest place
    notes_old_keys: bool = True
    completes: bool = True  # a partial update completes the snapshot's row
    last_is_open: bool = True  # the last piece has no upper bound
    places_behind_high: bool = True


class Wrong(AssertionError):
    """A target that was called exact was not."""


class Source:
    """A log, what of it is flushed, and who sees what."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.log: list[tuple[Op, ...]] = []
        self.flushed = 0
        self.visible: set[int] = set()
        self.locks = 0  # readers of the table: a TRUNCATE waits for them

    def state(self, upto: int) -> dict[int, Row]:
        """The truth at a position."""
        return replayed(self.log[:upto])

    def busy(self) -> set[int]:
        """Keys that a commit holds which nobody sees yet: its locks are kept until then."""
        return {key for op in self.unseen() for key in (op.key, op.old)}

    def unseen(self) -> list[Op]:
        """What is in the log, and not visible yet."""
        return [op for i, ops in enumerate(self.log) if i not in self.visible for op in ops]

    def commit(self) -> None:
        """Commit one transaction, of one to three changes."""
        rng, busy = self.rng, self.busy()
        rows = {k: r for k, r in self.state(len(self.log)).items() if k not in busy}
        free = [k for k in KEYS if k not in busy and k not in rows]
        ops: list[Op] = []
        if not busy and not self.locks and rng.random() < 0.06:
            ops.append(Op("truncate"))
            rows, free = {}, list(KEYS)
        elif not busy and not self.locks and rng.random() < 0.04:
            self.log.append((Op("rewrite"),))
            return
        for _ in range(rng.randint(1, 3)):
            value = rng.randrange(1000)
            kind = rng.choice(("insert", "update", "update", "move", "delete"))
            if kind == "insert" and free:
                key = free.pop(rng.randrange(len(free)))
                rows[key] = (value, value + 1)
                ops.append(Op("insert", key, row=rows[key]))
            elif kind == "update" and rows:
                key, is_sent = rng.choice([*rows]), rng.random() < 0.4
                rows[key] = (value, value + 1 if is_sent else rows[key][1])
                ops.append(Op("update", key, key, rows[key], is_sent))
            elif kind == "move" and rows and free:
                old, key = rng.choice([*rows]), rng.choice(free)
                if rng.random() < 0.5:  # out of what is read last, into what was read first
                    old, key = max(rows), min(free)
                free.remove(key)
                is_sent = rng.random() < 0.3
                row = rows.pop(old)
                rows[key] = (value, value + 1 if is_sent else row[1])
                free.append(old)
                ops.append(Op("update", key, old, rows[key], is_sent))
            elif kind == "delete" and rows:
                key = rng.choice([*rows])
                del rows[key]
                free.append(key)
                ops.append(Op("delete", key))
        if ops:
            self.log.append(tuple(ops))

    def show(self) -> None:
        """Let a commit become visible, in any order."""
        if hidden := [i for i in range(len(self.log)) if i not in self.visible]:
            self.visible.add(self.rng.choice(hidden))

    def crash(self) -> None:
        """Lose what was not flushed; after recovery all that is left is visible."""
        del self.log[self.flushed :]
        self.visible = {*range(self.flushed)}
        self.locks = 0

    def read(self, snapshot: set[int]) -> dict[int, Row]:
        """Rows under a snapshot, out of the file that the table has now."""
        files = (i for i, ops in enumerate(self.log) if ops[0].kind in ("truncate", "rewrite"))
        file = max(files, default=-1)
        seen = [(i, ops) for i, ops in enumerate(self.log) if i in snapshot]
        if file >= 0 and file not in snapshot:  # all rows that it took along are too new
            seen = [(i, ops) for i, ops in seen if i > file]
        return replayed([ops for _, ops in seen])


def replayed(log: list[tuple[Op, ...]]) -> dict[int, Row]:
    rows: dict[int, Row] = {}
    for ops in log:
        for op in ops:
            if op.kind == "truncate":
                rows.clear()
                continue
            if op.kind == "rewrite":
                continue
            if op.kind == "update":
                rows.pop(op.old, None)
            if op.kind == "delete":
                rows.pop(op.key, None)
            else:
                rows[op.key] = op.row
    return rows


@dataclass
class Chunk:
    """Rows of a range of keys, read and not placed yet."""

    low: int  # what was delivered before the snapshot
    high: int  # its earliest place
    upto: int | None  # its greatest key; None: no later chunk reads a range
    rows: dict[int, Row]
    owed: frozenset[int]  # keys read besides
    bound: int | None  # as `upto`, for who asks whether a key was read
    noted: dict[int, int | None] = field(default_factory=dict)
    # key -> the short value of a row whose long value was not sent; None: whole, or gone


class Record(NamedTuple):
    """What stands in Kafka, one transaction each."""

    kind: str  # commit | begin | chunk | end
    place: int  # how far the target stands behind it
    resume: int  # where the source is asked from after a crash
    ops: tuple[Op, ...] = ()
    rows: tuple[tuple[int, Row], ...] = ()
    last: int | None = None  # of a chunk; None: it was the last one
    owes: frozenset[int] = frozenset()  # keys that came
    paid: frozenset[int] = frozenset()


class Producer:
    """Delivers commits, reads chunks, and puts each between two commits."""

    def __init__(self, source: Source, rules: Rules, kafka: list[Record], *, hidden: bool) -> None:
        self.source, self.rules, self.kafka = source, rules, kafka
        self.was_hidden = hidden
        self.early: set[int] | None = None  # a snapshot that was taken before its lock
        self.start()

    def start(self) -> None:
        """Take over: all that is known stands in Kafka."""
        self.delivered = max((r.resume for r in self.kafka), default=0)
        self.chunks: list[Chunk] = []
        self.owed: set[int] = set()
        self.placed: int | None = -1  # last key; None: to the end
        self.phase = ""
        for r in self.kafka:
            if r.kind == "begin":
                self.owed, self.placed, self.phase = set(), -1, "begin"
            elif r.kind == "chunk":
                self.placed = r.last
            elif r.kind == "end":
                self.phase = "end"
            if self.rules.owed_is_durable:
                self.owed = (self.owed | r.owes) - r.paid
        self.early, self.source.locks = None, 0

    def broke(self) -> None:
        """The connection to the source broke: it may have lost what a snapshot showed."""
        self.early, self.source.locks = None, 0
        if self.rules.drops_on_break:
            self.chunks.clear()

    @property
    def is_hidden(self) -> bool:
        return self.was_hidden and not self.phase

    def write(self, record: Record) -> None:
        self.kafka.append(record)

    def deliver(self) -> None:
        """Take the next commit that is flushed."""
        if self.delivered >= self.source.flushed:
            return
        at, ops = self.delivered, self.source.log[self.delivered]
        self.delivered += 1
        if self.is_hidden:
            return  # no row of it: no record, and nothing durable moves
        owes, paid = set[int](), set[int]()
        if self.phase == "begin":
            for op in ops:
                self._follow(op, owes, paid)
        self.owed = (self.owed | owes) - (paid - owes)
        self.write(Record("commit", at + 1, at + 1, ops,
                          owes=frozenset(owes), paid=frozenset(paid - owes)))  # fmt: skip

    def _is_whole(self, key: int, owes: set[int], paid: set[int]) -> bool:
        """Say whether the target has the row of a key whole."""
        is_owed = (key in self.owed and key not in paid) or key in owes
        if not self.rules.owes_chains:
            is_owed = False
        return not is_owed and (self.placed is None or key <= self.placed)

    def _follow(self, op: Op, owes: set[int], paid: set[int]) -> None:
        if op.kind == "rewrite":
            return
        if op.kind == "truncate":
            if self.rules.truncate_drops:
                self.chunks.clear()
            else:
                for chunk in self.chunks:
                    chunk.noted.clear()
            paid |= self.owed | owes
            owes.clear()
            return
        is_late = self.rules.notes_until_placed
        notes = [c for c in self.chunks if is_late or self.delivered <= c.high]
        if op.kind == "delete":
            for chunk in notes:
                chunk.noted[op.key] = None
            owes.discard(op.key)
            paid.add(op.key)
            return
        was_whole = op.kind == "insert" or self._is_whole(op.old, owes, paid)
        moved = op.kind == "update" and op.old != op.key
        if moved:
            if self.rules.notes_old_keys:
                for chunk in notes:
                    chunk.noted[op.old] = None
            owes.discard(op.old)
            paid.add(op.old)
        for chunk in notes:
            if op.sent or moved:
                chunk.noted[op.key] = None
            elif op.key not in chunk.noted or chunk.noted[op.key] is not None:
                chunk.noted[op.key] = op.row[0]
        if op.sent:
            owes.discard(op.key)
            paid.add(op.key)
        elif moved and not was_whole and self.rules.owes and self._is_read(op.key):
            owes.add(op.key)

    def _is_read(self, key: int) -> bool:
        """Say whether no later chunk will read a key by its range."""
        last = self.placed
        if self.chunks and self.rules.owes_in_flight:
            last = self.chunks[-1].bound
        return last is None or key <= last

    # ------------------------------------------------------------ chunks
    def begin(self) -> None:
        if self.phase:
            return
        at = self.delivered
        self.write(Record("begin", at, self._resume()))
        self.phase, self.placed = "begin", -1

    def _resume(self) -> int:
        if self.rules.resumes_at_place:
            return self.delivered
        return max((r.resume for r in self.kafka), default=0)

    def look(self) -> None:
        """Take a snapshot before the lock, which the rule forbids."""
        if self.phase == "begin" and not self.rules.locks_first:
            self.early = {*self.source.visible}

    def read(self) -> None:
        """Read the next range, and owed keys, ahead of the stream."""
        rng, source, rules = self.source.rng, self.source, self.rules
        if self.phase != "begin" or len(self.chunks) >= 3:
            return
        after = self.chunks[-1].upto if self.chunks else self.placed
        if any(op.kind in ("truncate", "rewrite") for op in source.unseen()):
            return  # its lock is kept until it is visible: ours waits
        asked = frozenset(self.owed - {k for c in self.chunks for k in c.owed})
        if after is None and not asked:
            return
        low = self.delivered
        snapshot = {*source.visible} if self.early is None else self.early
        self.early = None
        if rules.sees_delivered and not snapshot.issuperset(range(low)):
            return  # again, later
        rows = source.read(snapshot)
        high = len(source.log) if rules.insert_position else source.flushed
        count = rng.randint(1, 3)
        keys = [] if after is None else sorted(k for k in rows if k > after)
        upto = keys[count - 1] if len(keys) > count else None
        bound = upto if rules.last_is_open or not keys else keys[min(count, len(keys)) - 1]
        mine = {k: rows[k] for k in (*keys[:count], *asked) if k in rows}
        self.chunks.append(Chunk(low, high, upto, mine, asked, bound))

    def place(self) -> None:
        """Write the first chunk, if the stream has come to where it may stand."""
        if not self.chunks:
            return
        chunk = self.chunks[0]
        if self.rules.places_behind_high and self.delivered < chunk.high:
            return
        self.chunks.pop(0)
        rows: list[tuple[int, Row]] = []
        for key, row in chunk.rows.items():
            if key not in chunk.noted:
                rows.append((key, row))
            elif (short := chunk.noted[key]) is not None and self.rules.completes:
                rows.append((key, (short, row[1])))
        paid = chunk.owed
        if self.rules.owes_anew:  # what a commit has made since, out of another key
            paid -= {key for key, short in chunk.noted.items() if short is None}
        self.owed -= paid
        last = None if self.placed is None else chunk.upto
        self.placed = last
        at, resume = self.delivered, self._resume()
        self.write(Record("chunk", at, resume, rows=tuple(rows), last=last, paid=paid))

    def end(self) -> None:
        if self.phase != "begin" or self.placed is not None or self.chunks:
            return
        if self.owed and self.rules.ends_without_owed:
            return
        self.write(Record("end", self.delivered, self.delivered))
        self.phase = "end"


class Target:
    """Applies records in order; knows whether it may be called exact."""

    def __init__(self, rows: dict[int, Row], *, exact: bool, logged: bool) -> None:
        self.rows, self.exact, self.logged = rows, exact, logged
        self.seen: set[int] = set()
        self.at = self.place = 0

    def crash(self) -> None:
        if not self.logged:
            self.seen.clear()

    def apply(self, record: Record) -> None:
        self.at += 1
        self.place = record.place
        for op in record.ops:
            self._change(op)
        for key, row in record.rows:
            self.rows[key] = row
            self.seen.add(key)
        if record.kind == "begin":
            self.seen.clear()
        if record.kind == "end":
            self.rows = {k: r for k, r in self.rows.items() if k in self.seen}
            self.exact = True

    def _change(self, op: Op) -> None:
        if op.kind == "rewrite":
            return
        if op.kind == "truncate":
            self.rows.clear()
            self.seen.clear()
        elif op.kind == "delete":
            self.rows.pop(op.key, None)
            self.seen.discard(op.key)
        else:
            before = self.rows.pop(op.old, None)
            self.seen.discard(op.old)
            if op.sent:
                self.rows[op.key] = op.row
                self.seen.add(op.key)
            elif before is not None:
                self.rows[op.key] = (op.row[0], before[1])
                self.seen.add(op.key)
            elif op.key != op.old:
                self.rows.pop(op.key, None)
                self.seen.discard(op.key)


def play(seed: int, rules: Rules) -> str:
    """Play a history; return how it ended.  Raises Wrong."""
    rng = random.Random(seed)
    source = Source(rng)
    for _ in range(rng.randint(1, 4)):
        source.commit()
    source.flushed, source.visible = len(source.log), {*range(len(source.log))}
    kind = rng.choice(("exact", "stale", "hidden"))
    kafka: list[Record] = []
    begun = len(source.log)
    if kind == "hidden":
        rows: dict[int, Row] = {}
    else:
        kafka.append(Record("commit", begun, begun))
        rows = source.state(begun)
        if kind == "stale":  # rows were lost, some that are gone are left, some are old
            for key in KEYS:
                match rng.randrange(4):
                    case 0:
                        rows.pop(key, None)
                    case 1:
                        rows[key] = (-1, -1)
    producer = Producer(source, rules, kafka, hidden=kind == "hidden")
    target = Target(dict(rows), exact=kind == "exact", logged=rules.seen_is_logged)

    def follow() -> None:
        while target.at < len(kafka) and rng.random() < 0.8:
            target.apply(kafka[target.at])
            check()

    def check() -> None:
        if target.exact and (truth := source.state(target.place)) != target.rows:
            raise Wrong(f"seed {seed}, {kind}: {target.rows} is not {truth} at {target.place}")

    steps = (
        (producer.deliver, 8), (producer.read, 5), (producer.place, 6), (producer.begin, 1),
        (producer.end, 2), (producer.look, 2), (follow, 5), (source.show, 6), (source.commit, 4),
    )  # fmt: skip
    weights = [w for _, w in steps]
    for _ in range(rng.randint(30, 160)):
        chance = rng.random()
        if chance < 0.10:
            source.flushed = rng.randint(source.flushed, len(source.log))
        elif chance < 0.12:
            producer.start()
        elif chance < 0.135:
            source.crash()
            producer.broke()
        elif chance < 0.15:
            target.crash()
        else:
            rng.choices(steps, weights)[0][0]()
    # To the end, without any more crashes.
    source.flushed, source.visible = len(source.log), {*range(len(source.log))}
    producer.begin()
    for _ in range(400):
        for step in (producer.deliver, producer.read, producer.place, producer.end):
            step()
        if producer.phase == "end" and producer.delivered == len(source.log):
            break
    while target.at < len(kafka):
        target.apply(kafka[target.at])
        check()
    if producer.phase != "end" or not target.exact:
        return f"{kind}: never ends, owed {producer.owed}"
    return kind
