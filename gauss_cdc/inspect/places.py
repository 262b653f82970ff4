"""Where source, cuts and target stand: what `status`, `wait`, `cuts`, `tail` and the demo read."""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final, Self, TypeVar

from gauss_cdc import target, wiring
from gauss_cdc.config import Config, ConfigError
from gauss_cdc.inspect import history
from gauss_cdc.inspect.advice import way_out
from gauss_cdc.inspect.loads import LoadStanding, loads_under_way, waiting_lines
from producer.core.catalog_differences import differences
from producer.core.catalog_rows import not_sent
from producer.core.ddl_log import known_tables
from producer.core.look import Before, Look
from producer.errors import CdcError, ConnectionLost, NotOurs, RegistryError
from producer.kafka.cuts_reader import CutsReader
from producer.kafka.registry import Registry
from producer.sources import requests
from producer.sources.dial import ConnectionArguments
from producer.sources.gauss import readings as gauss_readings
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss import snapshot as gauss_snapshot
from producer.sources.gauss.options import Decoding, effective, why_not_full
from producer.sources.gauss.slots import OrderedBy
from producer.sources.patterns import chooser
from producer.sources.postgres import catalog, catalog_look, publications, snapshot
from producer.sources.postgres import options as pgoutput_options
from producer.sources.postgres.primary import Primary
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.requests import AskedAgain
from schemas.accept import CutReplay, Foreign, Record, Records, judge, replay_tail
from schemas.control import Head, Identity, Looked, TableLoad, are_loading
from schemas.errors import Verdict
from schemas.positions import Lsn
from schemas.tables import TableId, TableSchema
from schemas.topics import Topics
from spark_consumers.errors import ApplyError
from spark_consumers.model import Ledger
from spark_consumers.sinks.base import Inspector, Met

ENDPOINTS: Final = ("source", "kafka", "registry", "target")
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class SourceStanding:
    """The source's own view."""

    wal_end: int
    slot: str
    active: bool
    confirmed: int | None
    restart: int | None
    retained_bytes: int
    wal_status: str
    ordered_by: OrderedBy = "lsn"  # what `confirmed` is, and the newest record's resume


@dataclass(frozen=True, slots=True)
class CutsStanding:
    """The newest accepted record of cuts."""

    epoch: int
    n: int
    seq: int
    resume: int
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
        """Source transactions that are in Kafka and not at the target."""
        if self.cuts is None or self.target is None or self.cuts.epoch != self.target.epoch:
            return None
        return max(0, self.cuts.seq - self.target.seq)  # the target was read a moment later

    @property
    def bytes_behind(self) -> int | None:
        """WAL that is not in Kafka yet."""
        if self.source is None or self.cuts is None or self.source.ordered_by == "csn":
            return None
        return max(0, self.source.wal_end - self.cuts.resume)

    @property
    def csns_behind(self) -> int | None:
        """CSNs that are not in Kafka yet, in their order; not each one is of a commit with rows."""
        if self.source is None or self.cuts is None or self.source.ordered_by != "csn":
            return None
        end = self.cuts.source_end
        return None if end is None else max(0, end - self.cuts.resume)

    @property
    def seconds_behind(self) -> float | None:
        """Age of the newest applied commit; 0: nothing waits, None: unknown.

        Where nothing but a load was applied, the age of the newest START: the load is older.
        """
        if self.target is None or self.cuts is None:
            return None
        if self.commits_behind == 0 and not self._is_cut_old():
            return 0.0
        since = self.target.committed_at or self.cuts.state_at
        return round(max(0.0, time.time() - since / 1e6), 3) if since else None

    def _is_cut_old(self) -> bool:
        """A `run` that stands still writes no heartbeats."""
        return self.cuts is not None and time.time() - self.cuts.written_at / 1e6 > _STILL_SECONDS

    def as_json(self) -> dict[str, Any]:
        """Plain values; positions as text."""
        out: dict[str, Any] = {
            "source": self.source and asdict(self.source),
            "cuts": self.cuts and asdict(self.cuts),
            "target": self.target and asdict(self.target),
            "lag": {
                "commits": self.commits_behind,
                "bytes": self.bytes_behind,
                "csns": self.csns_behind,
                "seconds": self.seconds_behind,
            },
            "waiting": self.waiting,
            "notes": list(self.notes),
            "conflicts": {table: met._asdict() for table, met in self.conflicts.items()},
            "down": {place: str(error) for place, error in self.down.items()},
        }
        if self.cuts is not None:
            del out["cuts"]["looked"]
            out["cuts"]["under_way"] = [load.as_json() for load in self.cuts.under_way]
        for section, name in (
            ("source", "wal_end"),
            ("source", "confirmed"),
            ("source", "restart"),
            ("cuts", "resume"),
            ("cuts", "source_end"),
            ("target", "resume"),
            ("target", "commit_lsn"),
        ):
            if out[section] and out[section][name] is not None:
                out[section][name] = str(Lsn(out[section][name]))
        return out


_STILL_SECONDS = 30.0
# The Kafka client's codes for a cuts topic that does not exist (yet).
_NO_TOPIC = frozenset({"_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION", "UNKNOWN_TOPIC_OR_PART"})
_written_at = attrgetter("written_at")
_AGAIN = 1.0  # seconds until a broker that did not answer is asked again


class Endpoints:
    """Open connections to look at one configuration's three places."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._stack = ExitStack()
        self._registry = Registry(config.registry.url, config.registry.client())
        self._reader: CutsReader | None = None
        self._ddl_reader: CutsReader | None = None
        self._source: Any = None
        self._session: wiring.CatalogSession | None = None
        self._inspector: Inspector | None = None
        self._table_records: dict[int, TableLoad] = {}  # by offset, as last read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------ source
    def source_connection(self) -> Any:
        """A connection to the source, opened once."""
        if self._source is None:
            self._source = catalog.connect(wiring.source_arguments(self._config))
            self._stack.callback(self._source.close)
        return self._source

    def source_session(self) -> wiring.CatalogSession:
        """A session of our own client's with the source, opened once."""
        if self._session is None:
            self._session = wiring.source_session(self._config)
            self._stack.callback(self._session.close)
        return self._session

    def wal_end(self) -> int:
        """Where the source's log ends now: everything committed before is below."""
        if self._config.source.kind != "postgres":
            return int(gauss_readings.wal_end(self.source_session()))
        return int(catalog.log_end(self.source_connection()))

    def goal(self) -> int:
        """The current end of the log, followed by a commit that every stream sends.

        Parallel decoding and SQL functions send commits only: without one an idle source
        never shows that all was read. A transaction that has an id and no changes is one.
        """
        options = wiring.producer_options(self._config)
        if options.kind == "postgres":
            return self._primary_end(options.source)
        end = self.wal_end()
        decided = effective(options.plugin_options, options.terms)
        if decided.ordered_by == "csn":
            raise ConfigError(
                "a slot in the order of CSNs has no position in the log that could be waited for; "
                "give the CSN as --lsn, in hex and with a slash before its last eight digits"
            )
        if decided.mode is not Decoding.SERIAL and options.role == "primary":
            self.source_session().query("SELECT txid_current()")
        return end

    def _primary_end(self, arguments: ConnectionArguments) -> int:
        """Where the primary's log ends; at a standby without one, what it has replayed."""
        with closing(Primary(arguments, self.source_connection())) as primary:
            try:
                return int(catalog.log_end(primary.connection))
            except ConnectionLost:
                return self.wal_end()

    def source(self) -> SourceStanding | None:
        """The slot and what it holds back; None without a slot."""
        slot = self._config.source.slot
        if self._config.source.kind != "postgres":
            return self._gauss_source(slot)
        state = catalog.slot_state(self.source_connection(), slot)
        if state is None:
            return None
        end = self.wal_end()
        return SourceStanding(
            wal_end=end,
            slot=slot,
            active=state.active_pid is not None,
            confirmed=state.confirmed_flush,
            restart=state.restart,
            retained_bytes=end - state.restart if state.restart else 0,
            wal_status=state.wal_status,
        )

    def _gauss_source(self, name: str) -> SourceStanding | None:
        slot = gauss_slots.find(self.source_session(), name)
        if slot is None:
            return None
        end = self.wal_end()
        return SourceStanding(
            wal_end=end,
            slot=name,
            active=slot.is_active,
            confirmed=slot.confirmed_csn if slot.ordered_by == "csn" else slot.confirmed,
            restart=slot.restart,
            retained_bytes=max(0, end - slot.restart) if slot.restart else 0,
            wal_status="lost" if slot.is_invalid else "orphaned" if slot.is_orphaned else "",
            ordered_by=slot.ordered_by,
        )

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

    def replay(self) -> tuple[CutReplay, Head | None] | None:
        """What is known at the end of cuts, and the head of the newest record."""
        newest: dict[str, Head] = {}  # instance -> of its newest record

        def read(low: int, high: int) -> Records:
            records = self.read_cuts(low, high)
            for offset, cut in records:
                if isinstance(cut, TableLoad):
                    self._table_records[offset] = cut
                if not isinstance(cut, Foreign):
                    newest[cut.head.instance] = max(
                        newest.get(cut.head.instance, cut.head), cut.head, key=_written_at
                    )
            return records

        self._table_records.clear()
        start = self.first_cut()
        if start is None:
            return None
        found = replay_tail(read, start, self.reader().lso())
        return None if found is None else (found, newest.get(found.instance or ""))

    def cuts(self) -> CutsStanding | None:
        """The newest accepted record."""
        found = self.replay()
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
            under_way=loads_under_way(
                cut
                for _, cut in sorted(self._table_records.items())
                if cut.head.epoch == replay.epoch
            ),
        )

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

    def _at_target(self) -> tuple[Ledger | None, Mapping[str, Met]]:
        return self._target().ledger(), self._target().conflicts()

    def _target(self) -> Inspector:
        if self._inspector is None:
            self._inspector = target.kind_of(self._config).inspector(target.setup(self._config))
            self._stack.callback(self._inspector.close)
        return self._inspector

    def standing(self) -> ReplicationStatus:
        """All three, asked at the same time; of a place that does not answer, why."""
        source = self._config.source
        why = pgoutput_options.why_not_full if source.kind == "postgres" else why_not_full
        not_full = why(source.options)
        down: dict[str, CdcError | ApplyError] = {}

        def asked(place: str, ask: Callable[[], _T]) -> _T | None:
            try:
                return ask()
            except (CdcError, ApplyError) as error:
                down["registry" if isinstance(error, RegistryError) else place] = error
                return None

        with ThreadPoolExecutor(3) as pool:
            at_source = pool.submit(asked, "source", self.source)
            in_kafka = pool.submit(asked, "kafka", self.cuts)
            at_target = (
                pool.submit(asked, "target", self._at_target)
                if self._config.target is not None
                else None
            )
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
            if "source" not in down and source.kind == "postgres":
                asking = pool.submit(asked, "source", partial(self._of_catalog, cuts))
                notes += asking.result() or []
        found = at_target.result() if at_target is not None else None
        ledger, conflicts = found or (None, {})
        if ledger is not None and (advice := way_out(self._config, ledger)):
            notes.append(advice)
        return ReplicationStatus(
            at_source.result(),
            cuts,
            ledger,
            asked=tuple(requested),
            notes=tuple(notes),
            conflicts=conflicts,
            down={place: down[place] for place in ENDPOINTS if place in down},
        )

    # ------------------------------------------------------------ waiting
    def wait(
        self,
        lsn: int,
        pause: Callable[[float], bool],
        on_look: Callable[[ReplicationStatus], None],
        on_note: Callable[[str], None] = lambda _: None,
        *,
        compares: bool = True,
    ) -> ReplicationStatus | None:
        """Wait until the target holds everything committed before `lsn`; None if left.

        `compares`: and until the source is the one that was delivered, and nothing in the catalog
        of a PostgreSQL source is left unexplained.

        Where the epoch begins with a load, only after the load: before its end no position shows
        what the target holds.  A place that does not answer is asked again.
        """
        goal, noted = Goal(lsn), ""
        while True:
            try:
                standing = ReplicationStatus(None, self.cuts(), self.target())
                on_look(standing)
                if goal.is_reached(standing):
                    left = self._left(standing, on_note) if compares else ""
                    if not left and (not compares or goal.holds(standing)):
                        return standing
                    compares = compares and bool(left)  # what was found is in these records
                    if left and left != noted:
                        on_note(left)
                        noted = left
            except (CdcError, ApplyError) as error:
                if error.verdict is not Verdict.RETRY:
                    raise
                if pause(_AGAIN):
                    return None
                continue
            if pause(_AGAIN if noted else 0.1):
                return None

    def _left(self, standing: ReplicationStatus, on_note: Callable[[str], None]) -> str:
        """Say what is still waited for, where a target holds the position."""
        try:
            if (left := self._doubt(standing)) or not (left := self._unexplained(standing)):
                return left
        except ConnectionLost as error:  # waited for by its position, which may be unknown
            on_note(f"the source was not compared: {error}")
            return ""
        return f"`run` has not reported yet what the catalog shows: {left}"

    def _doubt(self, standing: ReplicationStatus) -> str:
        """See `history`; raises SourceSwitched."""
        options, cuts, at = wiring.producer_options(self._config), standing.cuts, standing.target
        if cuts is None or cuts.identity is None or at is None:
            return ""
        if options.kind == "postgres":
            now = history.postgres_now(self.source_connection())
        else:
            now = history.gauss_now(options, self.source_session())
        resume = max(cuts.resume, at.resume)
        return history.doubt(options, cuts.identity, now, resume, history.has_left)

    def _unexplained(self, standing: ReplicationStatus) -> str:
        """Name what the source's catalog shows and neither the stream nor a mark explains.

        Without triggers a table that is dropped and made again is not in the stream: the target
        holds every commit, and another table.
        """
        if self._config.source.kind != "postgres" or standing.target is None:
            return ""
        options = wiring.producer_options(self._config)
        at = standing.target
        known, connection = self.known_tables(at), self.source_connection()
        is_told = ddl_triggers.state(connection).enabled
        looked = None if standing.cuts is None else standing.cuts.looked
        before = None if looked is None else Before.of(looked)
        look = catalog_look.look(connection, options, known, unless="", before=before)
        if not isinstance(look, Look):
            return "a table is being altered"
        found = differences(
            known,
            look,
            wanted=chooser(options.include, options.exclude),
            publication=options.publication,
            reports_ddl=is_told,
        )
        left = [finding for finding in found if str(finding.table) not in at.inexact]
        return "; ".join([*map(str, left), *since(before, look, known, at.inexact)])

    def known_tables(self, at: Ledger) -> dict[TableId, TableSchema]:
        """Tables of the stream, as the commit has them that a target holds."""
        return known_tables(self._ddl(), self._registry, epoch=at.epoch, seq=at.seq)

    def _with_estimates(self, cuts: CutsStanding) -> CutsStanding:
        """Ask the source how many rows the tables have that are being loaded."""
        if self._config.source.kind == "postgres":
            estimated = partial(snapshot.estimated_rows, self.source_connection())
        else:
            estimated = partial(gauss_snapshot.estimated_rows, self.source_session())
        loads = (replace(load, of_about=estimated(load.table)) for load in cuts.under_way)
        return replace(cuts, under_way=tuple(loads))

    def _requests(self, note: Callable[[str], None]) -> list[AskedAgain]:
        try:
            return requests.requests(self.source_session(), self._config.source.slot)
        except NotOurs as error:  # the source answers all the same
            note(f"{requests.NOT_READ}: {error}")
            return []

    def _of_catalog(self, cuts: CutsStanding | None) -> list[str]:
        """Say what the source's catalog shows now, and `run` has not compared or cannot mend."""
        options = wiring.producer_options(self._config)
        before = None if cuts is None or cuts.looked is None else Before.of(cuts.looked)
        look = catalog_look.look(self.source_connection(), options, {}, unless="", before=before)
        if (
            not isinstance(look, Look)
            or publications.publication(self.source_connection(), options.publication) is None
        ):
            return []
        notes = catalog_look.how_captured(
            self.source_connection(), options, look.missing, is_ours=look.is_ours
        )
        notes += [f"{what}; `run` has not compared it yet" for what in since(before, look)]
        of_generated = [
            seen.id
            for seen in look.tables.values()
            if seen.version is not None and seen.version.generated
        ]
        shapes = catalog.table_schemas(self.source_connection(), of_generated)
        return [*notes, *(f"{shape.id}: {not_sent(shape)}" for shape in shapes)]

    def _ddl(self) -> CutsReader:
        if self._ddl_reader is None:
            topic = Topics(self._config.kafka.prefix).ddl
            self._ddl_reader = CutsReader(self._config.kafka.client_settings(), topic)
            self._stack.callback(self._ddl_reader.close)
        return self._ddl_reader


def since(
    before: Before | None,
    look: Look,
    known: Mapping[TableId, TableSchema] | None = None,
    inexact: Container[str] = (),
) -> Iterator[str]:
    """Name tables of which `run` has not judged yet what happened since its last look.

    `known`: with their names in the stream, if not as they are now.
    """
    if before is None:
        return
    if before.publication != look.publication:
        yield "the publication was altered"
        return
    names = {table.oid: table.id for table in (known or {}).values()}
    for seen in look.tables.values():
        table = seen.id if known is None else names.get(seen.oid)
        if table is not None and seen.doubts and str(table) not in inexact:
            yield f"{table} has changed in the catalog"


@dataclass(slots=True)
class Goal:
    """A position that a target is to hold, and the record of cuts that proves it."""

    lsn: int
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

    def holds(self, standing: ReplicationStatus) -> bool:
        """Say whether the target holds every record that was read; if not, wait for them."""
        assert standing.cuts is not None
        self._proof = standing.cuts.epoch, standing.cuts.n
        return self._is_past(standing.target, self._proof)

    def _is_past(self, target: Ledger | None, proof: tuple[int, int]) -> bool:
        return target is not None and (target.epoch, target.n) >= proof
