"""Records we own in Kafka, as frozen values: cuts and schema changes.

The cuts topic is a log of one partition, and what it says is what there is:

    START      a writer took over: its number fences the one before.  It goes on with an epoch, or
               begins one, and names where the one before ended.
    COMMITS    commits of the source, in its order, with the offsets of their rows and statements
    TABLE      a load or re-read of a table began, moved on by some rows, or ended
    STATE      the fields of START again, so that no reader walks far back
    HEARTBEAT  nothing happened, up to a position

Each has a `Head`: `epoch` and `n` number the records without a hole, `seq` the commits, `resume` is
the position before which all commits are in Kafka.  A reader takes a record only where it follows
the one before (`schemas/accept`); so a record of a writer that was fenced changes nothing.

`to_avro` and `from_avro` turn them into the plain dicts that fastavro writes
with `avro/cut.avsc` and `avro/schema_change.avsc`, and back.  Fields and their
meaning: the docs in the .avsc files, and docs/reference/control-records.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final, NamedTuple, TypeAlias, assert_never

from schemas.positions import Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema, Unique, UserType
from schemas.topics import rewritten

FORMAT_VERSION: Final = 4  # the newest that is read
PLAIN_VERSION: Final = 1  # what a record has that older releases read as well
_BESIDE_VERSION: Final = 2
_FOR_ONE_VERSION: Final = 3
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DEEPEST_TYPE: Final = 100  # a producer describes fewer; a reader recurses as deep
_MICROSECOND: Final = timedelta(microseconds=1)


class NewerFormat(ValueError):
    """A record of a later release."""


@dataclass(frozen=True, slots=True)
class Identity:
    """Which history the positions belong to."""

    system_id: str
    timeline: int
    database: str
    slot: str
    plugin: str
    domain: str = "LSN"
    database_oid: int = 0  # a copy may take its name, and its slot; 0: not told


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic as it was when the producer looked."""

    id: str
    partitions: int


class Range(NamedTuple):
    """A run of consecutive acknowledged offsets of one partition, end exclusive."""

    topic: str
    partition: int
    start: int
    end: int


class Prev(NamedTuple):
    """The last accepted place of the epoch before."""

    epoch: int
    seq: int
    n: int


class DdlPlace(NamedTuple):
    """Where a SchemaChange of a commit stands."""

    ordinal: int
    offset: int  # in <prefix>.ddl


ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Hole:
    """A gap: rows of a table that the source did not send."""

    table: str  # its text; ANY: nobody can say which
    kind: str  # seen | suspected; `class` in Avro
    why: str


@dataclass(frozen=True, slots=True)
class CommitEntry:
    """Everything about one source transaction."""

    seq: int
    xid: int
    csn: int
    commit_start: Lsn
    end_lsn: Lsn | None
    committed_at: int  # µs since 1970-01-01 UTC
    rows: int  # ordinals 0..rows-1: rows and DDL
    counts: Mapping[int, int]  # index into ranges -> records of this commit in it
    ddl: tuple[DdlPlace, ...] = ()
    holes: tuple[Hole, ...] = ()
    user: str | None = None


class PackedEntries(Sequence[CommitEntry]):
    """Entries that were never objects: the writer of short transactions has thousands a second.

    They are plain: no DDL, no gaps.
    """

    __slots__ = ("avro", "csn", "identities", "unpack")

    def __init__(
        self,
        avro: bytes,
        identities: Mapping[int, tuple[int, int]],
        csn: int,
        unpack: Callable[[bytes, int], Sequence[CommitEntry]],
    ) -> None:
        """`avro`: the items, without count and end; `csn`: the greatest.

        `identities`: seq -> (commit_start, xid), in order; `unpack` reads (avro, count).
        """
        self.avro, self.identities, self.csn, self.unpack = avro, identities, csn, unpack

    def __len__(self) -> int:
        return len(self.identities)

    def __getitem__(self, at: Any) -> Any:
        return self.unpack(self.avro, len(self))[at]

    def __iter__(self) -> Iterator[CommitEntry]:  # of `Sequence`, it would unpack all for each
        return iter(self.unpack(self.avro, len(self)))


def identities_of(commits: Sequence[CommitEntry]) -> Mapping[int, tuple[int, int]]:
    """Return seq -> (commit_start, xid), in order."""
    if isinstance(commits, PackedEntries):
        return commits.identities
    return {entry.seq: (entry.commit_start, entry.xid) for entry in commits}


def greatest_csn(commits: Sequence[CommitEntry]) -> int:
    """Return the greatest CSN; 0: none has one."""
    if isinstance(commits, PackedEntries):
        return commits.csn
    # Gaps of our own, which have no rows, once had a position of the log there.
    return max((e.csn for e in commits if e.xid or e.rows), default=0)


@dataclass(frozen=True, slots=True)
class Head:
    """What every record carries."""

    n: int
    epoch: int
    writer: int
    instance: str
    last_seq: int
    resume: Lsn
    state_from: int
    written_at: int = 0  # µs since 1970-01-01 UTC
    source_end: int | None = None  # where the source's log ended, as it said last; in resume's unit


@dataclass(frozen=True, slots=True)
class Looked:
    """The source's catalog as it was compared with the stream last; texts of the producer's own."""

    horizon: int  # transactions with a lower id had ended
    publication: str
    tables: Mapping[str, str]  # oid -> version
    triggers: str = ""  # their version: what describes statements

    def is_as(self, other: Looked | None) -> bool:
        """Say whether nothing changed between two looks."""
        return other is not None and self == replace(other, horizon=self.horizon)

    def with_table(self, at: Looked) -> Looked:
        """Take a table as it was at the place where it was read, behind this look."""
        return replace(self, tables={**self.tables, **at.tables})


@dataclass(frozen=True, slots=True)
class State:
    """The fields of START again, without a takeover, so that no reader walks far back."""

    head: Head
    identity: Identity
    content: str
    cluster_id: str
    topics: Mapping[str, Topic]
    loads: Mapping[str, str] = field(
        default_factory=dict
    )  # schema.table -> PENDING | BEGIN | CHUNK | END | LEFT | GAP
    looked: Looked | None = field(default=None, kw_only=True)
    upto: Mapping[str, str] = field(default_factory=dict, kw_only=True)  # of CHUNKs BESIDE commits
    # schema.table -> a text of `run`'s own, of loads for one target: `loads` have none of them
    targeted: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    had_loads: bool = field(default=False, kw_only=True)  # the tables of all `loads` are gone

    @property
    def notes_loads(self) -> bool:
        """Say whether the epoch loads what comes; one that began without a load loads nothing."""
        return bool(self.loads) or self.had_loads


@dataclass(frozen=True, slots=True)
class Start(State):
    """A producer took over; with `prev` it opens an epoch."""

    prev: Prev | None = None
    continues: bool | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Commits:
    """These source transactions are durable."""

    head: Head
    commits: Sequence[CommitEntry]
    ranges: tuple[Range, ...]
    schema_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


class LoadPhase(StrEnum):
    """Steps of loading one table."""

    BEGIN = "BEGIN"
    CHUNK = "CHUNK"
    END = "END"


EXACT: Final = "EXACT"  # of `TableLoad.mode`
AGAIN: Final = "AGAIN"  # exact, too: readers may have rows of the table, and begin it anew
BESIDE: Final = "BESIDE"  # as AGAIN, with commits between its records: rows are put over older ones
MEND: Final = "MEND"  # a CHUNK of no load: some keys as they are, and those that are not
PENDING: Final = "PENDING"  # of `State.loads`: to be loaded, and not begun
LEFT: Final = "LEFT"  # left [tables]: what came since is nowhere, so it is loaded if it comes back
GAP: Final = "GAP"  # rows or values of it were not sent: it is exact again when it was read again


def are_loading(loads: Mapping[str, str]) -> bool:
    """Say whether the load of a table, as `State.loads` has them, has not come to its end."""
    return any(phase not in {LoadPhase.END, LEFT, GAP} for phase in loads.values())


@dataclass(frozen=True, slots=True)
class TableLoad:
    """A load or re-read of one table moved on (kind TABLE)."""

    head: Head
    table: TableId
    phase: LoadPhase
    mode: str = EXACT
    ranges: tuple[Range, ...] = ()
    rows: int = 0
    as_of: int = 0
    schema_ids: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    lossy: str | None = None  # END: rows are missing, and why
    looked: Looked | None = None  # BEGIN: the table's part, at its place
    upto: str | None = None  # a text of `run`'s own: CHUNK of BESIDE, or of a load for one target
    target: str | None = None  # for whom it is, others pass it by; None: for all


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Nothing else committed up to `resume`."""

    head: Head


Cut: TypeAlias = Start | State | Commits | TableLoad | Heartbeat


class Origin(StrEnum):
    """How a SchemaChange became known."""

    DEPARSED = "deparsed"
    TRIGGER = "trigger"
    INFERRED = "inferred"
    SNAPSHOT = "snapshot"


@dataclass(frozen=True, slots=True)
class Moved:
    """Rows that a statement moves or drops without sending them: partitions attached, detached.

    `where` is a condition over columns, from the partition's bounds; None: all rows.
    """

    op: str  # "move": into `after` of the change; "delete"
    table: TableId  # where they stood
    where: str | None = None


# Session settings that decide how casts read and print.
CAST_SETTINGS: Final = (
    "TimeZone", "DateStyle", "IntervalStyle", "bytea_output", "extra_float_digits",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A table's shape changed; `before` is None for a new table, `after` for a dropped one.

    With both None it is about another object, or one that is not captured: `kind` and
    `identity` say which.  A statement about several tables is several of these with one
    `statement`.
    """

    epoch: int
    seq: int
    ordinal: int
    xid: int
    csn: int
    lsn: Lsn
    origin: Origin
    tag: str
    before: TableSchema | None
    after: TableSchema | None
    topic: str | None = None
    sql: str | None = None
    canonical: str | None = None
    jddl: str | None = None
    lossy: str | None = None
    kind: str = "table"  # pg_event_trigger_ddl_commands().object_type: index, view, schema, ...
    identity: str | None = None  # its name as the source quotes it
    statement: int | None = None  # ordinal of the first record of the same statement
    renamed: Mapping[str, str] = field(default_factory=dict)  # columns, old name -> new
    # How values of older rows came to be, by column where it is not plain: "explicit" (an explicit
    # cast), "lost" (computed by the source and not sent), "new" (dropped and made again).
    values: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)  # of the session; casts depend on it
    moved: Moved | None = None


def is_beside(cut: Cut) -> bool:
    """Say whether a record's rows are put over those that commits between brought.

    Releases that would append them, and show the table before its END, refuse its version.
    """
    return isinstance(cut, TableLoad) and cut.mode in {BESIDE, MEND}


def mends(cut: Cut) -> bool:
    """Say whether a record is of no load: it brings some keys of a table that stays what it is."""
    return isinstance(cut, TableLoad) and cut.mode == MEND


def is_for_one(cut: Cut) -> bool:
    """Say whether a record is of a load that is for one target: others have nothing of it."""
    return isinstance(cut, TableLoad) and cut.target is not None


def is_for_all(cut: Cut) -> bool:
    """Say whether a record is of a load, and for whoever reads."""
    return isinstance(cut, TableLoad) and not (is_for_one(cut) or mends(cut))


def note_load(
    cut: TableLoad, loads: dict[str, str], upto: dict[str, str], targeted: dict[str, str]
) -> None:
    """Note a step of a load where its writer and readers do; one for all ends one for a target.

    By schema.table: its phase, how far it is, and how far one for a target is.
    """
    if mends(cut):
        return
    table = str(cut.table)
    targeted.pop(table, None)
    if cut.target is None:
        loads[table] = cut.phase.value
        upto.pop(table, None)
    if cut.upto is not None:
        (upto if cut.target is None else targeted)[table] = cut.upto


def _version(cut: Cut) -> int:
    """Return the oldest format whose readers take a record for what it is."""
    if mends(cut):
        return FORMAT_VERSION
    if is_for_one(cut) or (isinstance(cut, State) and cut.targeted):
        return _FOR_ONE_VERSION
    return _BESIDE_VERSION if is_beside(cut) else PLAIN_VERSION


def kind_of(cut: Cut) -> str:
    """Return the Avro symbol of a record's kind."""
    match cut:
        case Start():
            return "START"
        case State():
            return "STATE"
        case Commits():
            return "COMMITS"
        case TableLoad():
            return "TABLE"
        case Heartbeat():
            return "HEARTBEAT"
        case _:
            assert_never(cut)


def cut_to_avro(cut: Cut) -> dict[str, Any]:
    """Turn a record of cuts into the dict that fastavro writes."""
    head = cut.head
    out: dict[str, Any] = {"kind": kind_of(cut), **asdict(head), "version": _version(cut)}
    match cut:
        case State():  # and Start
            out |= {
                "identity": asdict(cut.identity),
                "content": cut.content,
                "cluster_id": cut.cluster_id,
                "topics": {name: asdict(topic) for name, topic in cut.topics.items()},
                "loads": None if cut.had_loads and not cut.loads else dict(cut.loads),
                "looked": cut.looked and asdict(cut.looked),
                "reached": dict(cut.upto) or None,
                "targeted": dict(cut.targeted) or None,
            }
            if isinstance(cut, Start):
                out |= {
                    "prev": cut.prev and cut.prev._asdict(),
                    "continues": cut.continues,
                    "reason": cut.reason,
                }
        case Commits():
            out |= {
                "commits": [_entry_to_avro(entry) for entry in cut.commits],
                "ranges": [r._asdict() for r in cut.ranges],
                "schema_ids": {topic: list(ids) for topic, ids in cut.schema_ids.items()},
            }
        case TableLoad():
            out |= {
                "table": {"schema": cut.table.schema, "name": cut.table.name},
                "phase": cut.phase.value,
                "mode": cut.mode,
                "rows": cut.rows,
                "as_of": cut.as_of,
                "ranges": [r._asdict() for r in cut.ranges],
                "schema_ids": {topic: list(ids) for topic, ids in cut.schema_ids.items()},
                "lossy": cut.lossy,
                "looked": cut.looked and asdict(cut.looked),
                "upto": cut.upto,
                "target": cut.target,
            }
        case Heartbeat():
            pass
        case _:
            assert_never(cut)
    return out


def cut_from_avro(raw: Mapping[str, Any]) -> Cut:
    """Turn what fastavro read back into a record; raise NewerFormat."""
    if raw["version"] > FORMAT_VERSION:
        raise NewerFormat(
            f"cut of format {raw['version']}, this release reads up to {FORMAT_VERSION}"
        )
    head = Head(
        raw["n"],
        raw["epoch"],
        raw["writer"],
        raw["instance"],
        raw["last_seq"],
        raw["resume"],
        raw["state_from"],
        _micros(raw["written_at"]),
        raw.get("source_end"),
    )
    match raw["kind"]:
        case "START" | "STATE" as kind:
            state = State(
                head,
                Identity(**raw["identity"]),
                raw["content"],
                raw["cluster_id"],
                {name: Topic(**topic) for name, topic in raw["topics"].items()},
                _by_table(raw, "loads"),
                looked=_looked(raw),
                upto=_by_table(raw, "reached"),
                targeted=_by_table(raw, "targeted"),
                had_loads=raw["loads"] is None,
            )
            if kind == "STATE":
                return state
            return Start(
                state.head,
                state.identity,
                state.content,
                state.cluster_id,
                state.topics,
                state.loads,
                Prev(**raw["prev"]) if raw["prev"] else None,
                raw["continues"],
                raw["reason"],
                looked=state.looked,
                upto=state.upto,
                targeted=state.targeted,
                had_loads=state.had_loads,
            )
        case "COMMITS":
            entries = tuple(entry_from_avro(entry) for entry in raw["commits"])
            return Commits(head, entries, _ranges(raw), _ids(raw))
        case "TABLE":
            return TableLoad(
                head,
                TableId(raw["table"]["schema"], raw["table"]["name"]),
                LoadPhase(raw["phase"]),
                raw["mode"],
                _ranges(raw),
                raw["rows"],
                raw["as_of"],
                _ids(raw),
                raw.get("lossy"),
                _looked(raw),
                raw.get("upto"),
                raw.get("target"),
            )
        case "HEARTBEAT":
            return Heartbeat(head)
        case kind:
            raise ValueError(f"unknown kind of cut: {kind!r}")


def _by_table(raw: Mapping[str, Any], what: str) -> dict[str, str]:
    found = raw.get(what) or {}
    return {rewritten(table, raw["topics"]): said for table, said in found.items()}


def _looked(raw: Mapping[str, Any]) -> Looked | None:
    found = raw.get("looked")
    return Looked(**found) if found else None


def change_to_avro(change: SchemaChange) -> dict[str, Any]:
    """Turn a schema change into the dict that fastavro writes."""
    return {
        "epoch": change.epoch,
        "seq": change.seq,
        "ordinal": change.ordinal,
        "xid": change.xid,
        "csn": change.csn,
        "lsn": change.lsn,
        "origin": change.origin.value,
        "tag": change.tag,
        "sql": change.sql,
        "canonical": change.canonical,
        "jddl": change.jddl,
        "lossy": change.lossy,
        "topic": change.topic,
        "before": change.before and _table_to_avro(change.before),
        "after": change.after and _table_to_avro(change.after),
        "kind": change.kind,
        "identity": change.identity,
        "statement": change.statement,
        "renamed": dict(change.renamed),
        "values": dict(change.values),
        "settings": dict(change.settings),
        "moved": change.moved
        and {
            "op": change.moved.op,
            "schema": change.moved.table.schema,
            "name": change.moved.table.name,
            "where": change.moved.where,
        },
    }


def change_from_avro(raw: Mapping[str, Any]) -> SchemaChange:
    """Turn what fastavro read back into a schema change; older records lack the last fields."""
    moved = raw.get("moved")
    return SchemaChange(
        epoch=raw["epoch"],
        seq=raw["seq"],
        ordinal=raw["ordinal"],
        xid=raw["xid"],
        csn=raw["csn"],
        lsn=raw["lsn"],
        origin=Origin(raw["origin"]),
        tag=raw["tag"],
        before=raw["before"] and _table_from_avro(raw["before"]),
        after=raw["after"] and _table_from_avro(raw["after"]),
        topic=raw["topic"],
        sql=raw["sql"],
        canonical=raw["canonical"],
        jddl=raw["jddl"],
        lossy=raw["lossy"],
        kind=raw.get("kind", "table"),
        identity=raw.get("identity"),
        statement=raw.get("statement"),
        renamed=raw.get("renamed", {}),
        values=raw.get("values", {}),
        settings=raw.get("settings", {}),
        moved=moved and Moved(moved["op"], TableId(moved["schema"], moved["name"]), moved["where"]),
    )


def _entry_to_avro(entry: CommitEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "xid": entry.xid,
        "csn": entry.csn,
        "commit_start": entry.commit_start,
        "end_lsn": entry.end_lsn,
        "committed_at": entry.committed_at,
        "user": entry.user,
        "rows": entry.rows,
        "counts": {str(index): count for index, count in entry.counts.items()},
        "ddl": [place._asdict() for place in entry.ddl],
        "holes": [{"table": h.table, "class": h.kind, "why": h.why} for h in entry.holes],
    }


def entry_from_avro(raw: Mapping[str, Any]) -> CommitEntry:
    """Turn what fastavro read back into an entry."""
    return CommitEntry(
        seq=raw["seq"],
        xid=raw["xid"],
        csn=raw["csn"],
        commit_start=raw["commit_start"],
        end_lsn=raw["end_lsn"],
        committed_at=_micros(raw["committed_at"]),
        rows=raw["rows"],
        counts={int(index): count for index, count in raw["counts"].items()},
        ddl=tuple(DdlPlace(place["ordinal"], place["offset"]) for place in raw["ddl"]),
        holes=tuple(Hole(h["table"], h["class"], h["why"]) for h in raw["holes"]),
        user=raw["user"],
    )


def _table_to_avro(table: TableSchema) -> dict[str, Any]:
    return {
        "schema": table.id.schema,
        "name": table.id.name,
        "columns": [asdict(column) for column in table.columns],
        "key": list(table.key),
        "unique": [{"name": u.name, "columns": list(u.columns)} for u in table.unique],
        "replica_identity": table.replica_identity.value,
        "identity_columns": list(table.identity_columns),
        "oid": table.oid,
    }


def _table_from_avro(raw: Mapping[str, Any]) -> TableSchema:
    return TableSchema(
        TableId(raw["schema"], raw["name"]),
        tuple(_column_from_avro(column) for column in raw["columns"]),
        tuple(raw["key"]),
        tuple(Unique(u["name"], tuple(u["columns"])) for u in raw["unique"]),
        ReplicaIdentity(raw["replica_identity"]),
        tuple(raw["identity_columns"]),
        raw.get("oid", 0),
    )


def _column_from_avro(raw: Mapping[str, Any]) -> Column:
    """Records older than 0.2 have no `user_type`."""
    return Column(**{**raw, "user_type": _user_type(raw.get("user_type"))})


def _user_type(raw: Mapping[str, Any] | None, depth: int = 0) -> UserType | None:
    if raw is None:
        return None
    if depth > _DEEPEST_TYPE:
        raise ValueError(f"a type is nested more than {_DEEPEST_TYPE} levels deep")
    of = _user_type(raw["of"], depth + 1)
    return UserType(**{**raw, "labels": tuple(raw["labels"]), "of": of})


def _ranges(raw: Mapping[str, Any]) -> tuple[Range, ...]:
    return tuple(Range(r["topic"], r["partition"], r["start"], r["end"]) for r in raw["ranges"])


def _ids(raw: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    return {topic: tuple(ids) for topic, ids in raw["schema_ids"].items()}


def _micros(value: datetime | int) -> int:
    """Fastavro gives timestamp-micros as datetimes."""
    return value if isinstance(value, int) else (value - _EPOCH) // _MICROSECOND
