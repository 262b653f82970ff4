"""Where source, cuts and target stand: what `status`, `wait`, `cuts`, `tail` and the demo read.

`status` asks all places at the same time, and shows what they say; a place that does not answer is
shown as such.  `wait` proves something, in an order that leaves no hole:

    goal     the end of the source's log is asked once: all that was committed before is meant
    cuts     are read until a record covers the goal, and no load is under way
    target   its ledger is read behind the cuts, and must have that record
    source   is it the one that was delivered (`history`), and does its catalog show anything that
             neither the stream nor a mark explains, or a table that `run` has yet to take in?
    again    the target must hold the records that the answer was compared with

What is not exact then stands in the ledger, as part of the commit that the target holds.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import Any, Final, Self, TypeVar

from gauss_cdc import target, wiring
from gauss_cdc.config import Config
from gauss_cdc.inspect import history
from gauss_cdc.inspect.advice import way_out
from gauss_cdc.inspect.loads import LoadStanding, loads_under_way, waiting_lines
from producer.core.catalog.look import Before
from producer.core.log.ddl_log import known_tables
from producer.errors import CdcError, ConnectionLost, NotOurs, RegistryError
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from producer.options import Options
from producer.sources import requests
from producer.sources.base import SourceInspector, SourceStanding
from producer.sources.kinds import SOURCES
from producer.sources.requests import AskedAgain
from schemas.accept import CutReplay, Foreign, Record, Records, backwards, judge, replay_tail
from schemas.control import PENDING, Head, Identity, Looked, TableLoad, are_loading
from schemas.errors import Verdict
from schemas.positions import NOWHERE, Lsn, lsn_text
from schemas.tables import TableId, TableSchema
from schemas.topics import Topics
from spark_consumers.errors import ApplyError
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Inspector, Met

ENDPOINTS: Final = ("source", "kafka", "registry", "target")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class CutsStanding:
    """The newest accepted record of cuts."""

    epoch: int
    n: int
    seq: int
    resume: Lsn
    writer: int
    instance: str
    loads: dict[str, str]  # schema.table -> phase, of the tables that this epoch loads
    written_at: int  # µs since 1970
    state_at: int = 0  # µs since 1970, of the newest START or STATE
    looked: Looked | None = None  # the source's catalog as `run` compared it last
    identity: Identity | None = None  # of the source
    alarms: int = 0  # records since the writer's newest STATE that are not ours
    alarm: str = ""  # the newest of them, or one that does not follow
    under_way: tuple[LoadStanding, ...] = ()  # loads, as far as their records show
    source_end: int | None = None  # of the log, as `run` was told last
    notes_loads: bool = False  # the epoch loads tables that come

    @property
    def is_loading(self) -> bool:
        """A table of this epoch is not loaded to its end: no position shows what a target holds."""
        return are_loading(self.loads)


@dataclass(frozen=True, slots=True)
class ReplicationStatus:
    """All three, and what lies between them; None: there is none yet."""

    source: SourceStanding | None
    cuts: CutsStanding | None
    target: Ledger | None
    asked: tuple[AskedAgain, ...] = field(default=())  # requests for re-reads
    notes: tuple[str, ...] = field(default=())
    conflicts: Mapping[str, Met] = field(default_factory=dict)  # schema.table -> what apply met
    down: Mapping[str, CdcError | ApplyError] = field(default_factory=dict)  # place -> why
    name: str = ""  # of the target
    is_unapplied: bool = False  # the target answers, and has no commit of this source
    others: tuple[ReplicationStatus, ...] = ()  # of each further target; notes and down are its own

    @property
    def each(self) -> tuple[ReplicationStatus, ...]:
        """One for each target of the file."""
        return (self, *self.others)

    @property
    def waiting(self) -> list[str]:
        """What waits to be read, as lines."""
        cuts = self.cuts
        under_way = {str(load.table) for load in cuts.under_way} if cuts is not None else set()
        loads = cuts.loads if cuts is not None else {}
        by_marks = self.source is not None and self.source.ordered_by == "csn"
        return list(waiting_lines(self.asked, loads, under_way, by_marks=by_marks))

    @property
    def commits_behind(self) -> int | None:
        """Source transactions that are in Kafka and not at the target.

        None: a place did not answer, or they are in different epochs.
        """
        if self.cuts is not None and self.is_unapplied:
            return self.cuts.seq
        if self.cuts is None or self.target is None or self.cuts.epoch != self.target.epoch:
            return None
        return max(0, self.cuts.seq - self.target.seq)  # the target was read a moment later

    @property
    def bytes_behind(self) -> int | None:
        """WAL that is not in Kafka yet.

        None: a place did not answer, or the slot's order is that of CSNs.
        """
        if self.source is None or self.cuts is None or self.source.ordered_by == "csn":
            return None
        return max(0, self.source.wal_end - self.cuts.resume)

    @property
    def csns_behind(self) -> int | None:
        """CSNs that are not in Kafka yet, in their order; not each one is of a commit with rows.

        None: it is another order, or nobody tells the source's end.
        """
        if self.source is None or self.cuts is None or self.source.ordered_by != "csn":
            return None
        end = self.cuts.source_end
        return None if end is None else max(0, end - self.cuts.resume)

    @property
    def seconds_behind(self) -> float | None:
        """Age of the newest applied commit; 0: nothing waits, None: unknown.

        Where nothing but a load was applied, the age of the newest START: the load is older.  The
        same where nothing was applied.
        """
        if self.cuts is None or (self.target is None and not self.is_unapplied):
            return None
        since = self.cuts.state_at
        if self.target is not None:
            if self.commits_behind == 0 and not self._is_cut_old():
                return 0.0
            since = self.target.committed_at or since
        return round(max(0.0, time.time() - since / 1e6), 3) if since else None

    def _is_cut_old(self) -> bool:
        """A `run` that stands still writes no heartbeats."""
        return self.cuts is not None and time.time() - self.cuts.written_at / 1e6 > _STILL_SECONDS

    def as_json(self) -> dict[str, Any]:
        """Plain values; positions as text."""
        out: dict[str, Any] = {
            "source": self.source and asdict(self.source),
            "cuts": self.cuts and asdict(self.cuts),
            **self.of_target(),
            "waiting": self.waiting,
            "notes": list(self.notes),
            "down": {place: str(error) for place, error in self.down.items()},
            "targets": [{"name": one.name, **one.of_target()} for one in self.each if one.name],
        }
        if self.cuts is not None:
            del out["cuts"]["looked"], out["cuts"]["notes_loads"]
            out["cuts"]["under_way"] = [load.as_json() for load in self.cuts.under_way]
        for section, name in (
            ("source", "wal_end"),
            ("source", "confirmed"),
            ("source", "restart"),
            ("cuts", "resume"),
            ("cuts", "source_end"),
        ):
            if out[section] and out[section][name] is not None:
                out[section][name] = lsn_text(Lsn(out[section][name]))
        return out

    def of_target(self) -> dict[str, Any]:
        """Plain values of this target alone."""
        at: dict[str, Any] = asdict(self.target) if self.target is not None else {}
        for name in ("resume", "commit_lsn") if at else ():
            at[name] = lsn_text(Lsn(at[name]))
        return {
            "target": at or None,
            "lag": {
                "commits": self.commits_behind,
                "bytes": self.bytes_behind,
                "csns": self.csns_behind,
                "seconds": self.seconds_behind,
            },
            "conflicts": {table: met._asdict() for table, met in self.conflicts.items()},
            "down": {place: str(why) for place, why in self.down.items() if place == "target"},
        }


_STILL_SECONDS = 30.0
# The Kafka client's codes for a cuts topic that does not exist (yet).
_NO_TOPIC = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"})
_written_at = attrgetter("written_at")
_AGAIN = 1.0  # seconds until a broker that did not answer is asked again
_OFTEN = 0.1  # seconds until all places are asked again
_LASTS = 50  # times that what is waited for is found the same, before it is said


class Endpoints:
    """Open connections to look at one configuration's three places."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack = ExitStack()
        self._registry = Registry(config.registry.url, config.registry.client())
        self._reader: CutsReader | None = None
        self._ddl_reader: CutsReader | None = None
        self._kind = SOURCES[config.source.kind]
        self._source: SourceInspector | None = None
        self._inspector: Inspector | None = None
        self._table_records: dict[int, TableLoad] = {}  # by offset, as last read
        self._heads: dict[str, Head] = {}  # instance -> of its newest record
        self._compared: tuple[float, list[str]] = float("-inf"), []  # monotonic seconds, notes
        self._followed: tuple[CutReplay, int] | None = None  # and the offset behind it
        self._others = [Endpoints(one) for one in config.targets[1:]]  # each for its target alone
        for other in self._others:
            self._stack.callback(other.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections."""
        self._stack.close()

    # ------------------------------------------------------------ source
    @cached_property
    def _options(self) -> Options:
        """Asked for with the source: a dsn that is none hides neither Kafka nor the target."""
        return wiring.producer_options(self._config)

    def source(self) -> SourceInspector:
        """What asks the source; it connects at the first question."""
        if self._source is None:
            self._source = self._kind.inspector(self._options)
            self._stack.callback(self._source.close)
        return self._source

    def _leave_source(self) -> None:
        """Have the next question connect again."""
        if self._source is not None:
            self._source.close()
            self._source = None

    # ------------------------------------------------------------ cuts
    def reader(self) -> CutsReader:
        """A reader of the cuts topic, opened once."""
        if self._reader is None:
            topic = Topics(self._config.kafka.prefix).cuts
            self._reader = CutsReader(self._config.kafka.client_settings(), topic)
            self._stack.callback(self._reader.close)
        return self._reader

    def read_cuts(self, low: int, high: int) -> Records:
        """Committed records of cuts in a window, of any client."""
        source, read = self._config.kafka.prefix, self._registry.read_cut
        return [
            (stored.offset, judge(stored.key, stored.value, source=source, read=read))
            for stored in self.reader().read(low, high)
        ]

    def first_cut(self) -> int | None:
        """Offset at which cuts begins; None before the first run, which makes the topic."""
        try:
            start, _ = self.reader().bounds()
        except CdcError as error:
            if error.where.get("error") not in _NO_TOPIC:
                raise
            return None
        return start

    def replay(self, *, goes_on: bool = False) -> tuple[CutReplay, Head | None] | None:
        """What is known at the end of cuts, and the head of the newest record.

        `goes_on`: from where it ended last, if all that came since follows; a look at thousands of
        tables costs as many records, else.

        None: there is no record.
        """
        found = self._go_on() if goes_on else None
        if found is None:
            self._table_records.clear()
            self._heads.clear()
            self._followed = None
            start = self.first_cut()
            if start is None:
                return None
            end = self.reader().lso()
            if (found := replay_tail(self._noted_cuts, start, end)) is None:
                return None
            self._followed = found, end
        return found, self._heads.get(found.instance or "")

    def _go_on(self) -> CutReplay | None:
        if self._followed is None:
            return None
        replay, at = self._followed
        if (end := self.reader().lso()) < at:  # the topic was made anew
            return None
        for offset, cut in self._noted_cuts(at, end):
            replay.follow(offset, cut)
        if replay.suspect is not None:
            return None
        self._followed = replay, end
        if (head := self._heads.get(replay.instance or "")) is not None:
            for offset in [one for one in self._table_records if one < head.state_from]:
                del self._table_records[offset]
        return replay

    def _noted_cuts(self, low: int, high: int) -> Records:
        records = self.read_cuts(low, high)
        for offset, cut in records:
            if isinstance(cut, TableLoad):
                self._table_records[offset] = cut
            if not isinstance(cut, Foreign):
                known = self._heads.get(cut.head.instance, cut.head)
                self._heads[cut.head.instance] = max(known, cut.head, key=_written_at)
        return records

    def cuts(self, *, goes_on: bool = False) -> CutsStanding | None:
        """The newest accepted record; see `replay`."""
        found = self.replay(goes_on=goes_on)
        if found is None:
            return None
        replay, head = found
        written_at = 0 if head is None else head.written_at
        return CutsStanding(
            replay.epoch,
            replay.n,
            replay.seq,
            replay.resume,
            replay.writer,
            replay.instance or "",
            dict(replay.loads),
            written_at,
            replay.state.head.written_at if replay.state is not None else written_at,
            replay.looked,
            replay.state.identity if replay.state is not None else None,
            alarms=replay.alarms,
            alarm=str(replay.suspect or replay.alarm),
            source_end=None if head is None else head.source_end,
            notes_loads=replay.notes_loads,
            under_way=loads_under_way(
                cut
                for _, cut in sorted(self._table_records.items())
                if cut.head.epoch == replay.epoch
            ),
        )

    def ended_at(self, cuts: CutsStanding, position: Lsn) -> Lsn:
        """The `resume` of the newest record at or before a position; 0: there is none any more."""
        start, end = self.first_cut() or 0, self.reader().lso()
        back = backwards(self.read_cuts, start, end, cuts.n, writer=cuts.writer)
        return next((c.head.resume for _, c in back if c.head.resume <= position), NOWHERE)

    def follow(
        self, start: int, stop_asked: Callable[[float], bool]
    ) -> Iterator[tuple[int, Record]]:
        """Records of cuts from an offset on, as they come."""
        at = start
        while not stop_asked(0):
            end = self.reader().lso()
            if end <= at:
                stop_asked(0.2)
                continue
            yield from self.read_cuts(at, end)
            at = end

    # ------------------------------------------------------------ target
    def target(self) -> Ledger | None:
        """The ledger; None where nothing was applied yet."""
        return self._target().ledger()

    def _at_target(self) -> ReplicationStatus:
        """What the target says, or why it does not."""
        found = ReplicationStatus(None, None, None, name=self._config.name)
        if self._config.target is None:
            return found
        try:
            ledger, conflicts = self._target().ledger(), self._target().conflicts()
        except (CdcError, ApplyError) as error:
            return replace(found, down={"target": error})
        return replace(found, target=ledger, conflicts=conflicts, is_unapplied=ledger is None)

    def _advised(self, found: ReplicationStatus) -> ReplicationStatus:
        """Say what makes the target's tables exact, by the cuts that were read."""
        if found.target is None:
            return found
        cuts = found.cuts
        loads, newest = ({}, (0, 0)) if cuts is None else (cuts.loads, (cuts.epoch, cuts.n))
        advice = way_out(self._config, found.target, loads, newest=newest)
        return replace(found, notes=(advice,)) if advice else found

    def _target(self) -> Inspector:
        if self._inspector is None:
            self._inspector = target.kind_of(self._config).inspector(target.setup(self._config))
            self._stack.callback(self._inspector.close)
        return self._inspector

    def standing(self, *, compared_within: float = 0.0) -> ReplicationStatus:
        """All three, asked at the same time; of a place that does not answer, why.  Every target.

        `compared_within`: seconds for which it is said again what the source's catalog shows, of
        which each look costs as much as there are tables.
        """
        not_full = self._kind.why_not_full(self._config.source.options)
        down: dict[str, CdcError | ApplyError] = {}

        def asked(place: str, ask: Callable[[], _T]) -> _T | None:
            try:
                return ask()
            except (CdcError, ApplyError) as error:
                down["registry" if isinstance(error, RegistryError) else place] = error
                return None

        each = (self, *self._others)
        with ThreadPoolExecutor(2 + len(each)) as pool:
            at_source = pool.submit(asked, "source", lambda: self.source().standing())
            in_kafka = pool.submit(asked, "kafka", partial(self.cuts, goes_on=True))
            at_targets = [pool.submit(one._at_target) for one in each]  # noqa: SLF001
            notes = [not_full] if not_full else []
            at_source.result()  # one connection, one question at a time
            cuts = in_kafka.result()
            if "source" not in down and cuts is not None and cuts.under_way:
                estimating = pool.submit(asked, "source", partial(self._with_estimates, cuts))
                cuts = estimating.result() or cuts
            requested: list[AskedAgain] = []
            if "source" not in down:
                asking_for = partial(self._requests, notes.append)
                requested = pool.submit(asked, "source", asking_for).result() or []
            if "source" not in down:
                if time.monotonic() - self._compared[0] >= compared_within:
                    looked = partial(self._noted, cuts)
                    asking = pool.submit(asked, "source", looked)
                    self._compared = time.monotonic(), asking.result() or []
                notes += self._compared[1]
        first, *others = (
            one._advised(  # noqa: SLF001
                replace(at.result(), source=at_source.result(), cuts=cuts, asked=tuple(requested))
            )
            for one, at in zip(each, at_targets, strict=True)
        )
        down.update(first.down)
        return replace(
            first,
            notes=(*notes, *first.notes),
            down={place: down[place] for place in ENDPOINTS if place in down},
            others=tuple(others),
        )

    # ------------------------------------------------------------ waiting
    def wait(
        self,
        lsn: Lsn,
        pause: Callable[[float], bool],
        on_look: Callable[[ReplicationStatus], None],
        on_note: Callable[[str], None] = lambda _: None,
        *,
        compares: bool = True,
        is_given: bool = False,
    ) -> ReplicationStatus | None:
        """Wait until the target holds everything committed before `lsn`; None if left.

        `compares`: and until the source is the one that was delivered, and nothing in the catalog
        of a PostgreSQL source is left unexplained.  `is_given`: the position was not asked of the
        source, which may be gone for good: not compared is said, and not waited for.

        Where the epoch begins with a load, only after the load: before its end no position shows
        what the target holds.  A place that does not answer is asked again.  What keeps it waiting
        is said, where it lasts.
        """
        goal, noted = Goal(lsn), ""
        lasting = Counter[str]()
        waited: CutsStanding | None = None  # the target is to hold this, and is compared again then
        while True:
            try:
                # Cuts first: a target that was read before may lack the mark of a newer one.
                standing = ReplicationStatus(None, self.cuts(), self.target())
                on_look(standing)
                if goal.is_reached(standing):
                    left = ""
                    if compares:  # what was found is in the records that were read
                        seen = standing if waited is None else replace(standing, cuts=waited)
                        left = self._left(seen, on_note, is_given=is_given)
                    if not left and (waited or not compares or goal.holds(standing)):
                        return standing
                    waited = standing.cuts if not left and goal.is_proven else None
                    lasting.clear()
                else:
                    left = goal.left(standing)
                    lasting[left] += 1
                if left and left != noted and lasting[left] in {0, _LASTS}:
                    on_note(left)
                    noted = left
            except (CdcError, ApplyError) as error:
                if error.verdict is not Verdict.RETRY:
                    raise
                if pause(_AGAIN):
                    return None
                continue
            if pause(_AGAIN if noted else _OFTEN):
                return None

    def _left(
        self, standing: ReplicationStatus, on_note: Callable[[str], None], *, is_given: bool
    ) -> str:
        """Say what is still waited for, where a target holds the position."""
        try:
            if (left := self._doubt(standing)) or not (left := self._unexplained(standing)):
                return left
        except ConnectionLost as error:
            self._leave_source()
            said = f"the source was not compared: {error}"
            if not is_given:
                return said
            on_note(said)
            return ""
        return f"`run` has not reported yet what the catalog shows: {left}"

    def _doubt(self, standing: ReplicationStatus) -> str:
        """See `history`; raises SourceSwitched."""
        cuts, at = standing.cuts, standing.target
        if cuts is None or cuts.identity is None or at is None:
            return ""
        if (now := self.source().server()) is None:
            return ""
        resume = max(cuts.resume, at.resume)
        return history.doubt(self._options, cuts.identity, now, resume, self.source().has_left)

    def _unexplained(self, standing: ReplicationStatus) -> str:
        """Name what the source's catalog shows and neither the stream nor a mark explains."""
        cuts, at = standing.cuts, standing.target
        if at is None:
            return ""
        looked = None if cuts is None else cuts.looked
        before, read = None if looked is None else Before.of(looked), None
        if cuts is not None and cuts.notes_loads and self._kind.rereads(self._options):
            read = {table for table, phase in cuts.loads.items() if phase != PENDING}
        return self.source().unexplained(self.known_tables(at), before, at.inexact, read)

    def known_tables(self, at: Ledger) -> dict[TableId, TableSchema]:
        """Tables of the stream, as the commit has them that a target holds."""
        return known_tables(self._ddl(), self._registry, epoch=at.epoch, seq=at.seq)

    def _with_estimates(self, cuts: CutsStanding) -> CutsStanding:
        """Ask the source how many rows the tables have that are being loaded."""
        estimated = self.source().estimated_rows
        loads = (replace(load, of_about=estimated(load.table)) for load in cuts.under_way)
        return replace(cuts, under_way=tuple(loads))

    def _requests(self, note: Callable[[str], None]) -> list[AskedAgain]:
        if not self._kind.rereads(self._options):
            return []
        try:
            return requests.requests(self.source().session(), self._config.source.slot)
        except NotOurs as error:  # the source answers all the same
            note(f"{requests.NOT_READ}: {error}")
            return []

    def _noted(self, cuts: CutsStanding | None) -> list[str]:
        looked = None if cuts is None else cuts.looked
        return self.source().notes(None if looked is None else Before.of(looked))

    def _ddl(self) -> CutsReader:
        if self._ddl_reader is None:
            topic = Topics(self._config.kafka.prefix).ddl
            self._ddl_reader = CutsReader(self._config.kafka.client_settings(), topic)
            self._stack.callback(self._ddl_reader.close)
        return self._ddl_reader


@dataclass(slots=True)
class Goal:
    """A position that a target is to hold, and the record of cuts that proves it."""

    lsn: Lsn
    _proof: tuple[int, int] | None = None  # epoch and n of a record; n counts loads, too

    def is_reached(self, standing: ReplicationStatus) -> bool:
        """Say whether the target holds the position, past every load that has begun."""
        cuts, target = standing.cuts, standing.target
        if cuts is None:
            return False
        if self._proof is not None and self._proof[0] != cuts.epoch:
            self._proof = None  # a new epoch may load again: its end is waited for
        if self._proof is None and cuts.resume >= self.lsn and not cuts.is_loading:
            self._proof = cuts.epoch, cuts.n
        return self._proof is not None and self._is_past(target, self._proof)

    @property
    def is_proven(self) -> bool:
        """Say whether it is known which record proves it."""
        return self._proof is not None

    def left(self, standing: ReplicationStatus) -> str:
        """Say what a position waits for that is not reached."""
        cuts = standing.cuts
        if cuts is None:
            return "`run` has written nothing yet"
        if self._proof is None and cuts.resume < self.lsn:
            return f"`run` has not delivered {lsn_text(self.lsn)} yet"
        if self._proof is None:
            what = "; ".join(standing.waiting)
            return f"a load is under way, or cannot begin, as `run` logs; {what}"
        return "`apply` has not applied yet what is in Kafka"

    def holds(self, standing: ReplicationStatus) -> bool:
        """Say whether the target holds every record that was read; if not, wait for them.

        And for loads that have begun: what was waited for may be one.
        """
        self._proof = None
        return self.is_reached(standing)

    def _is_past(self, target: Ledger | None, proof: tuple[int, int]) -> bool:
        return target is not None and (target.epoch, target.n) >= proof
