"""Rules taken away one by one: each must be noticed by some checker.

A mutation edits the text of one product function, or replaces a part of it; the
product itself has no such switches.  An edit whose text is
not there any more fails: whoever changes the function looks at its mutation.

`reason` marks a second line of defence: without it nothing breaks as long as the
rule named there holds.  These must *not* be noticed; otherwise the reason is wrong.
"""

from __future__ import annotations

import copy
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final
from unittest import mock

import pytest

from producer.core import turn
from producer.core.catalog.catalog_watch import CatalogWatch
from producer.core.catalog.look import Told
from producer.core.delivery.engine import Engine
from producer.core.delivery.tally import PlainTally, Runs
from producer.core.events import Command, Confirm, Happened, PositionReached
from producer.core.key_ranges import Visible
from producer.core.loads import load
from producer.core.loads.beside import Beside
from producer.core.loads.queue import LoadQueue
from producer.core.loads.reread import Rereads
from producer.core.loads.window import QuietWindow
from producer.core.log import cuts_log, ddl_log
from producer.core.log.cuts_log import CutsLog
from producer.core.log.delivered import _ExactTables
from producer.core.loop import Loop
from producer.core.stream.assemble import Assembler
from producer.core.stream.bindings import Bindings
from producer.core.stream.logical_messages import LogicalMessages
from producer.core.stream.redelivery import Redelivery
from producer.core.stream.row_writer import RowWriter
from producer.core.stream.transactions import Transactions
from producer.core.takeover import promotion, takeover
from producer.core.takeover.history import OneHistory
from producer.kafka import client
from producer.native import MODULE
from producer.sources.gauss import stream
from producer.sources.gauss.boundaries import Boundaries
from producer.sources.gauss.buffer import TransactionBuffer
from producer.sources.gauss.decoders.messages import TxCommit
from producer.sources.gauss.mixed import Mixed
from producer.sources.gauss.stream import GaussStream
from producer.sources.gauss.stream_reader import StreamReader
from producer.wire.replication import WalMessage
from schemas import accept, control
from schemas.accept import CutReplay
from schemas.control import Cut, LoadPhase, TableLoad
from schemas.positions import Lsn
from spark_consumers.cuts import ledger, segments
from spark_consumers.cuts.commits import CommitsRecord
from spark_consumers.errors import KafkaDown
from spark_consumers.kafka import ranges, read
from spark_consumers.kafka.parts import PartsInOrder
from spark_consumers.kafka.read import CutReader, RangeReader
from spark_consumers.loop import run as loop
from spark_consumers.loop.ahead import Ahead
from spark_consumers.loop.job import Applier
from spark_consumers.model import Ledger, Parts, Rows, Segment
from spark_consumers.sinks import step as rules
from spark_consumers.sinks.lakes import core
from spark_consumers.sinks.lakes.lease import FileLease
from spark_consumers.sinks.lease import Watched
from spark_consumers.spark.lanes import CommitParts
from tests.sim import native, target
from tests.sim.ports import SimSource
from tests.sim.target import Database, SimSink, SimTransaction

Faulty = dict[str, Any]
_OURS: Final = {"schemas", "producer", "spark_consumers", "gauss_cdc", "gauss_cdc_lab", "tests"}


@dataclass(frozen=True)
class Mutation:
    """One rule away."""

    name: str
    rule: str
    apply: Callable[[ExitStack], None]
    faults: Faulty = field(default_factory=dict)  # schedules in which it matters
    reason: str = ""  # a second line of defence, behind what
    first_seed: int = 0  # a history that shows it: the search begins here


def edited(function: Any, *changes: tuple[str, str]) -> Any:
    """The function with pieces of its text replaced, in its own module."""
    text = textwrap.dedent(inspect.getsource(function))
    for old, new in changes:
        assert old in text, f"{function.__qualname__} does not say {old!r} any more"
        text = text.replace(old, new)
    module = inspect.getmodule(function)
    assert module is not None
    names = dict(vars(module))
    exec(compile("from __future__ import annotations\n" + text, function.__name__, "exec"), names)
    return names[function.__name__]


def edit(where: Any, name: str, *changes: tuple[str, str]) -> Callable[..., None]:
    """A mutation that edits `where.name`, also where a module imported it by its name."""

    def apply(stack: ExitStack) -> None:
        old = getattr(where, name)
        new = edited(old, *changes)
        places = [(where, name)] if inspect.isclass(where) else list(_names_of(old))
        for place, called in places:
            stack.enter_context(mock.patch.object(place, called, new))

    return apply


def _names_of(function: Any) -> Iterator[tuple[Any, str]]:
    """Every module of ours that has a function, and how it is called there."""
    for module_name, module in list(sys.modules.items()):
        if module_name.partition(".")[0] in _OURS:
            for name, value in list(vars(module).items()):
                if value is function:
                    yield module, name


def replaced(where: Any, **names: Any) -> Callable[..., None]:
    """A mutation that replaces attributes of `where`."""

    def apply(stack: ExitStack) -> None:
        for name, new in names.items():
            stack.enter_context(mock.patch.object(where, name, new))

    return apply


def noticed(
    rule: str, apply: Callable[..., None], seeds: Iterable[int], play: Callable[[int], Any]
) -> str:
    """Take a rule away and play histories until one returns what is wrong; fail if none does."""
    with ExitStack() as stack:
        apply(stack)
        found = ((seed, wrong) for seed in seeds if (wrong := play(seed)) is not None)
        seed, wrong = next(found, (0, None))
    if wrong is None:
        pytest.fail(f"nobody noticed: {rule}", pytrace=False)
    assert play(seed) is None, f"seed {seed} fails with the rule, too"
    return f"\n  {rule}: seed {seed}, {str(wrong).splitlines()[0]}"


def together(*several: Callable[..., None]) -> Callable[..., None]:
    """Several rules away at once."""

    def apply(stack: ExitStack) -> None:
        for one in several:
            one(stack)

    return apply


# ---------------------------------------------------------------- replaced parts
class _IdleConfirms(Engine):
    """A keepalive is confirmed as it comes [H1]."""

    def step(self, happened: Happened) -> list[Command]:
        out = super().step(happened)
        if isinstance(happened, PositionReached) and self.is_idle:
            out.append(Confirm(happened.position))
        return out


class _Impatient(Engine):
    """Cuts are written before all rows are acknowledged."""

    def _after_acknowledgements(self, out: list[Command]) -> None:
        self._awaited = 0
        assert isinstance(self._tally, PlainTally)
        for whole in self._tally._whole:
            for place in whole.counts:
                self._tally._runs.setdefault(place, Runs())
        super()._after_acknowledgements(out)


def _take_what_is_there(self: Runs, count: int) -> list[tuple[int, int]]:
    out = []
    while count and self._runs:
        begin, end = self._runs.popleft()
        out.append((begin, end))
        count -= min(count, end - begin)
    return out


def _min_to_max(self: Runs, start: int, end: int) -> None:
    """A range from the first to the last offset [H3]."""
    if self._runs:
        self._runs[-1][1] = end
    else:
        self._runs.append([start, end])


_NUMBERS = itertools.count()


def _one_each(prefix: str) -> str:
    """A transactional.id of a process's own."""
    return f"{prefix}.{next(_NUMBERS)}"


def _never_waits(*_: Any) -> Iterator[Any]:
    return iter(())


def _half_visible(self: SimSink, segment: Segment, staged: Rows | Parts) -> Ledger:
    """Half a transaction is visible between its DDL and the rows behind it [H9]."""
    if isinstance(staged, Parts) or not segment.is_barrier or not any(staged.changes.values()):
        return _STEP(self, segment, staged)
    now = self._target.now
    tables = copy.deepcopy(now.tables)
    last = min(d.ordinal for d in staged.ddl)
    first = {t: [c for c in cs if c.ordinal < last] for t, cs in staged.changes.items()}
    rest = {t: [c for c in cs if c.ordinal > last] for t, cs in staged.changes.items()}
    if any(first.values()):
        target._apply_changes(tables, first, dict(now.ledger.inexact))
        self._target.commit(Database(now.ledger, tables))
    return _STEP(self, segment, Rows(rest, staged.ddl))


def _from_checkpoint(self: CutReader, ledger: Ledger) -> Iterator[tuple[int, Cut]]:
    """Where to go on is Spark's checkpoint, not the ledger [H11]."""
    broker: Any = self._cluster._broker
    known = getattr(broker, "checkpoint", 0)
    for offset, cut in _READ(self, ledger):
        if offset >= known:
            yield offset, cut
    broker.checkpoint = max(known, ledger.next_offset)


def _begin_without_emptying(self: SimTransaction, cut: TableLoad, *, keeps: bool) -> bool:
    is_there = cut.phase is LoadPhase.BEGIN and cut.table in self.database.written()
    return cut.table in self.database.beside if is_there else _LOAD(self, cut, keeps=keeps)


def _ends_early(self: SimTransaction) -> Iterator[None]:
    """What cannot be read is taken for the end."""
    try:
        yield from _PARTS_OF(self)
    except KafkaDown:
        return


def _takes_all(*_: Any) -> None:
    return None


_STEP, _READ, _LOAD = SimSink.step, CutReader.__call__, SimTransaction.load
_PARTS_OF = SimTransaction.parts
_PARTS: Faulty = {"lake": False, "transactions": 25, "steps": 700}
_NOT_COMPARED = edit(
    rules, "check_place", ("if _place(ledger) != _place(segment.after):", "if False:")
)
_NOT_FENCED = edit(rules, "check_fence", ("or ledger.fence != fence", ""))
_NOT_WAITED = edit(
    RangeReader,
    "wait_visible",
    ("if all(stable[tp] >= end for tp, end in wanted.items()):", "if True:"),
)
_NOT_COUNTED = together(
    edit(ranges, "_check_count", ("if found != (need := count(ranges)):", "if False:")),
    replaced(read, check_complete=_takes_all),
)
_ENDS_ANYWHERE = edit(
    ranges.MessageFetch, "_take", ("if message.offset() >= open_.get(tp, 0):", "if True:")
)


def _no_start(self: CutsLog, _start: Any) -> int:
    return self.bounds()[1]


_FROZEN: Faulty = {"freezes": 9, "second_appliers": 0, "applier_crashes": 0, "restores": 0}
_WINDOWS: Faulty = {"asks": 6, "transactions": 25, "steps": 700, "style": "b, by csn"}
_SWITCHING: Faulty = {"use": "switching", "transactions": 25, "steps": 700}
# Of what is native; where nothing is, nobody could notice.
_NATIVE: list[Mutation] = [
    Mutation("native-ordinal", "the walker gives the ordinal of the next record back",
             edit(Transactions, "take_back",
                  ("self._seq, self.ordinal = now.seq, now.ordinal", "self._seq = now.seq")),
             _SWITCHING),
    Mutation("native-seq", "and the number of the newest transaction",
             edit(Transactions, "take_back",
                  ("self._seq, self.ordinal = now.seq, now.ordinal", "self.ordinal = now.ordinal")),
             _SWITCHING),
    Mutation("native-open", "and the transaction that is open behind what it took",
             edit(Transactions, "take_back",
                  ("self.open(Begin(now.commit_lsn, now.committed_at, now.xid, now.csn))",
                   "pass")),
             _SWITCHING),
    Mutation("native-closed", "one that it closed is not open any more",
             edit(Transactions, "take_back",
                  ("self.begin, self.is_skipped = None, False", "pass")),
             _SWITCHING),
    Mutation("native-numbered", "one that it gave a number has it",
             edit(Transactions, "take_back",
                  ("if now.stage is Stage.NUMBERED and self.constants is None:", "if False:")),
             _SWITCHING),
    Mutation("native-order", "records of ours go before those of the walker",
             edit(Transactions, "lend", ("self.hand_over()", "pass")), _SWITCHING),
    Mutation("native-plain", "the walker leaves the COMMIT of a transaction with DDL or gaps",
             edit(Transactions, "lend",
                  ("is_plain=not (self._ddl or self._gaps)", "is_plain=True")),
             _SWITCHING, first_seed=7),
    Mutation("native-buffered", "what it took waits while a group is being finished",
             edit(Engine, "step",
                  ("if self._phase is Phase.SENDING:",
                   "if self._phase is Phase.SENDING or isinstance(happened, Walked):")),
             {"use": "all", "transactions": 25, "steps": 700}),
    Mutation("native-counted", "all its commits are counted",
             edit(Loop, "_step", ("self._ended(happened.commits, happened)",
                                  "self._ended(1, happened)")),
             {"use": "all", "transactions": 25, "steps": 700}),
    Mutation("native-passes", "it takes no transaction behind a point",
             edit(Loop, "_receive", ("one_by_one=self._rereads.looks_at_all", "one_by_one=False")),
             {"use": "all", "asks": 6, "transactions": 25, "steps": 700}, first_seed=33),
    Mutation("window-not-watched", "a window in which the table was changed is no point [H14]",
             edit(QuietWindow, "watch", ("self.is_quiet = not", "self.is_quiet = True or")),
             _WINDOWS, first_seed=53),
    Mutation("window-for-ever", "one whose marks do not come is given up, and another one made",
             edit(Rereads, "be_patient", ("seconds >= self._patience", "False")),
             {**_WINDOWS, "hides": True}, first_seed=32),
    Mutation("gauss-passes", "nor where transactions are held until their commit",
             edit(GaussStream, "_whole", ("not self._is_slow", "True")),
             {"use": "all", "asks": 6, "transactions": 25, "steps": 700, "style": "b, batches"},
             first_seed=36),
    Mutation("native-loss", "a loss between two transactions waits for a BEGIN that is decoded",
             edit(Loop, "_checked",
                  ("if isinstance(message, Stretch) and self._lost_between is not None:",
                   "if False:")),
             {"use": "all", "transactions": 25, "steps": 700, "strange": True}, first_seed=3),
    Mutation("2nd-native-skipped", "it is told that the open transaction was delivered",
             edit(Transactions, "lend", ("if self.is_skipped:", "if False:")),
             {"use": "switching", "producer_crashes": 8, "crash_at": "runs (cutting)"},
             "no table is bound before the first transaction that was not"),
    Mutation("native-resume", "it leaves transactions that were delivered to be compared [H48]",
             edit(native._Partly, "walker", ("resume=resume", "resume=0")),
             {"use": "switching", "producer_crashes": 8, "crash_at": "runs (cutting)"},
             first_seed=26),
]  # fmt: skip


def _released_early(self: TransactionBuffer, received: Sequence[WalMessage]) -> Iterator[Any]:
    """What is open when a read ends is released: its COMMIT was not received [H21]."""
    yield from _FEED(self, received)
    begun = self._boundaries._begun
    if begun is not None and self._records:
        position = self._records[-1][0]
        yield from self._release(begun, TxCommit(begun.xid, begun.csn, end_lsn=Lsn(position)))
        self._boundaries = Boundaries()


_FEED = TransactionBuffer.feed
_LONG: Faulty = {"transactions": 25, "steps": 700}
_GONE: Faulty = {"removals": 1, "producer_crashes": 9, "asks": 3}
COPIES: Faulty = {
    "transactions": 10, "steps": 600, "copies": 2, "idles": 4, "lossy": False, "talks": False,
    "strange": False, "unfit": False, "aliens": 0, "intruders": 0, "slot_faults": 0, "expiries": 0,
    "restores": 0, "removals": 0, "remakes": 0, "joins": 0, "adds": 0, "asks": 0,
}  # fmt: skip
_PROMOTED: Faulty = {**_LONG, "standby": True, "promotions": 3, "aliens": 0, "slot_faults": 0}
_AGAIN: Faulty = {**_LONG, "producer_crashes": 8, "crash_at": "runs (cutting)"}
# Of streams that are held until their COMMIT.
_GAUSS: list[Mutation] = [
    Mutation("gauss-keepalive", "a keepalive of parallel decoding moves nothing: it is ahead",
             replaced(StreamReader, keepalives_move=property(lambda _: True)),
             {"style": "b", "drops": 3, "producer_crashes": 4}),
    Mutation("gauss-keepalive-csn", "nor does one of a slot that is ordered by CSN",
             replaced(StreamReader, keepalives_move=property(lambda _: True)),
             {"style": "b, by csn"}),
    Mutation("gauss-csn-at-begin", "serial decoding tells the CSN at COMMIT only [H21]",
             edit(stream, "together",
                  ("begun.csn if ended.csn is None else ended.csn", "begun.csn")),
             {"style": "mppdb"}),
    Mutation("gauss-xid-at-begin", "GaussDB's parallel decoding tells the xid at COMMIT only",
             edit(stream, "together",
                  ("begun.xid if ended.xid is None else ended.xid", "begun.xid")),
             {"style": "t", "use": "nothing"}),
    Mutation("gauss-released-early", "a transaction is released when its COMMIT was received",
             replaced(TransactionBuffer, feed=_released_early), {"style": "mppdb"}),
    Mutation("gauss-by-lsn", "a slot ordered by CSN is resumed by CSN [H16]",
             edit(GaussStream, "_framed", ("if self._by_csn:", "if False:")),
             {"style": "b, by csn", "use": "nothing"}),
    Mutation("gauss-csn-drop", "its first transaction that was not delivered is behind resume",
             edit(GaussStream, "_framed", ("start, end = csn - 1, csn", "start, end = csn, csn")),
             {"style": "b, by csn", "use": "nothing", **_AGAIN}),
    Mutation("gauss-start-as-end", "the end of a commit record is not its start",
             edit(GaussStream, "_framed", ("start, end = ended.end_lsn - 1,",
                                           "start, end = ended.end_lsn,")),
             {"style": "mppdb"}),
    Mutation("gauss-spill-forgets", "what was held in memory goes to disk, before the rest",
             edit(TransactionBuffer, "_hold", ("self._spill.add(*held)", "pass")),
             {"style": "mppdb", "giants": True}),
    Mutation("gauss-spill-last", "before the rest",
             edit(TransactionBuffer, "_hold",
                  ("for held in self._records:", "for held in self._records[::-1]:")),
             {"style": "mppdb", "giants": True},
             first_seed=83),
    Mutation("gauss-put-aside-twice", "what cannot be read is of the transaction that it is in",
             edit(TransactionBuffer, "_release",
                  ("self._undecoded, self._undecoded_size = [], 0", "pass")),
             {"style": "mppdb", "strange": True, **_LONG}, first_seed=2),
    Mutation("gauss-mixed-silent", "rows before a statement leave a gap: others may be lost behind",
             edit(Mixed, "end", ("{*self._rows, *self._touched} if self._is_mixed else ", "")),
             {"style": "b, ddl", **_LONG}),
    Mutation("2nd-gauss-delivered", "what was delivered is not decoded again",
             edit(GaussStream, "_release", ("if begin.commit_lsn < self._resume:", "if False:")),
             {"style": "mppdb", **_AGAIN}, "the assembler drops its rows"),
]  # fmt: skip
_HELD: list[Mutation] = [
    Mutation("held-given-up", "an open transaction goes to Python before what is unusual in it",
             edit(GaussStream, "_walked",
                  ("self._buffer.adopt(_given(held), on_disk=held.is_full)",
                   "self._buffer.adopt(list(_given(held))[:1], on_disk=held.is_full)")),
             {"style": "b", "use": "all", "strange": True, **_LONG}),
    Mutation("held-adopted", "and comes back behind it",
             edit(GaussStream, "_walked", ("held.adopt(records)", "held.adopt(records[:1])")),
             {"style": "b, batches", "use": "all", "strange": True, **_LONG}),
    Mutation("held-dropped", "whole transactions are held until each was taken",
             edit(GaussStream, "_whole", ("while stretch.at < size:", "if stretch.at < size:")),
             {"style": "b, batches", "use": "switching", **_LONG}),
]  # fmt: skip


# Lines of the takeover that mutations move.
_TAKE = """    yield Step("take slot")
    while"""
_FENCE = """    yield Step("fence", says=_FENCING)
"""
_MAKE = """    yield Step("make slot")
    while (made := source.make_slot()) is None:
        yield Step("make slot", _MAKING)
"""

_ALTERED: Final = {
    "hushes": 6,
    "rewrites": 4,
    "transactions": 25,
    "steps": 700,
    "producer_crashes": 6,
}
_LATE: Faulty = {"late": True, "expiries": 2, "asks": 2, "transactions": 25, "steps": 700}
_LATE_LOADS: Faulty = {
    **_LATE, "lossy": True, "ranges": True, "adds": 1, "joins": 1, "transactions": 14,
    "steps": 500,
}  # fmt: skip
_PAIR: Faulty = {
    "pair": True, "late": True, "ranges": True, "asks": 6, "transactions": 25, "steps": 600,
    "expiries": 2,
}  # fmt: skip
_ONES: Faulty = {**_PAIR, "late": False, "expiries": 0}
_BESIDE: Faulty = {"ranges": True, "asks": 5, "transactions": 40, "steps": 800}
_MENDS: Faulty = {**_BESIDE, "asks": 9, "mends": True}
MUTATIONS: list[Mutation] = [
    # ------------------------------------------------------------ producer: run
    Mutation("idle-confirm", "an idle position is confirmed in a durable HEARTBEAT only [H1]",
             replaced(turn, Engine=_IdleConfirms), first_seed=18),
    Mutation("early-confirm", "a position is confirmed after its record is durable",
             edit(Engine, "_write",
                  ("out.append(WriteCuts(cuts))",
                   "out.extend((WriteCuts(cuts), Confirm(cuts[-1].head.resume)))"))),
    Mutation("busy-heartbeat", "a keepalive counts only when nothing received is not durable",
             edit(Engine, "_heartbeat_if_due",
                  ("not self.is_idle or", "self._phase is not Phase.SENDING or")), first_seed=11),
    Mutation("cut-before-acks", "a cut waits for all acknowledgements",
             together(replaced(turn, Engine=_Impatient), replaced(Runs, take=_take_what_is_there)),
             {"mode": "plain"}),
    Mutation("ranges-min-max", "a gap in acknowledged offsets opens a range [H3]",
             replaced(Runs, add=_min_to_max), {"mode": "exact", "giants": True}),
    Mutation("unknown-offset", "an acknowledgement without an offset spoils its group [H3]",
             edit(PlainTally, "acknowledge", ("if start < 0:", "if False:")),
             {"lost_offsets": 3, "mode": "plain"}, first_seed=435),
    Mutation("hole-lost", "a hole stands in its commit's own entry [H4]",
             edit(Bindings, "_record", ("transactions.add_gap(gap)", "pass")),
             {"lossy": True, "transactions": 14}, first_seed=13),
    Mutation("drop-equal", "commit_start < resume is dropped, equal is not",
             edit(Transactions, "open", ("begin.commit_lsn < self.redelivery.resume",
                                         "begin.commit_lsn <= self.redelivery.resume")),
             {"producer_crashes": 8}),
    Mutation("drop-nothing", "what was delivered by an earlier self is dropped",
             edit(Transactions, "open", ("begin.commit_lsn < self.redelivery.resume", "False")),
             {"producer_crashes": 8, "crash_at": "runs (cutting)"}, first_seed=73),
    Mutation("message-too-far", "a commit that begins where a message ends comes later [H34]",
             edit(LogicalMessages, "write", ("close_own(lsn)", "close_own(lsn + 1)")),
             {"talks": True, "producer_crashes": 8, "transactions": 20}),
    Mutation("message-again", "a message that was delivered is dropped",
             edit(LogicalMessages, "write", ("open_own(Lsn(lsn - 1))", "open_own(lsn)")),
             {"talks": True, "producer_crashes": 8, "transactions": 20, "mode": "exact"}),
    # ------------------------------------------------------------ producer: the loop
    Mutation("confirm-at-write", "a position is confirmed after its record is durable",
             edit(Loop, "_execute",
                  ("self._in_flight = cuts",
                   "self._in_flight, self._confirmed = cuts, cuts[-1].head.resume"))),
    Mutation("status-received", "a status message tells what is durable, not what was received",
             edit(Loop, "_tell_source",
                  ("send_status(Lsn(confirmed))",
                   "send_status(Lsn(max(confirmed, self._at)))"))),
    Mutation("topics-forgotten", "topics stand in a STATE before a cut names them",
             edit(Loop, "_step_all", ("self._step(self._changed.pop(0))", "self._changed.pop(0)")),
             {"transactions": 20}, first_seed=8),
    Mutation("gap-forgotten", "an undecodable message leaves a gap in its commit's entry",
             edit(Loop, "_checked", ("yield lsn, lost", "pass")), {"strange": True}, first_seed=4),
    Mutation("gap-between-forgotten", "and one between two transactions in the next one",
             edit(Loop, "_checked", ("self._lost_between = lost", "pass")), {"strange": True}),
    Mutation("gap-without-bytes", "its bytes are in quarantine before its gap is in cuts",
             edit(Loop, "_checked",
                  ("self._blocking(self._quarantine.put,", "dict(payload=")), {"strange": True}),
    Mutation("unfit-forgotten", "a row that is too large leaves a gap in its commit's entry",
             edit(RowWriter, "write", ('transactions.add_gap(Hole(str(table.id), "seen", WHY), ',
                                       "dict(")), {"unfit": True}),
    Mutation("unfit-without-bytes", "its bytes are in quarantine before its gap is in cuts",
             edit(RowWriter, "write", ("self._put_aside(\n", "dict(kept=\n")), {"unfit": True}),
    Mutation("unfit-in-load", "END says that rows of a load are missing",
             edit(load.Loader, "_put", ("to.lossy = WHY", "pass")), {"unfit": True}, first_seed=4),
    Mutation("given-up-as-confirmed", "what is not durable on leaving is not confirmed",
             edit(Loop, "run",
                  ("    self._tell_source(force=True)",
                   "    self._confirmed = self._at\n    self._tell_source(force=True)")),
             {"stops": 4, "steps": 600, "producer_crashes": 1}),
    Mutation("send-the-rest-never", "rows that found no room are sent later",
             edit(Loop, "_send", ("while (sent := delivery.send(records, sent)) < len(records):",
                                  "while (sent := delivery.send(records, sent)) < 0:")),
             first_seed=4),
    # ------------------------------------------------------------ producer: start
    Mutation("no-start", "a takeover writes START", replaced(CutsLog, write_start=_no_start)),
    Mutation("no-compare", "the slot is compared with the last cut [H1]",
             edit(takeover, "difference",
                  ("if confirmed > (place := place_of(source, request, replay))", "if False")),
             {"slot_faults": 2, "steps": 500}, first_seed=4),
    Mutation("no-compare-after-load", "after a load, too",
             edit(turn, "take_slot", ("slot.confirmed > resume", "False")),
             {"slot_faults": 3, "steps": 300}, first_seed=19),
    Mutation("look-once", "what differs stops a start only when it is settled [H32]",
             edit(takeover, "_compare", ("if is_settled:", "if True:")),
             {"slow_markers": True, "producer_crashes": 9, "steps": 900}, first_seed=354),
    Mutation("tail-not-reread", "the tail is read again after the fence",
             edit(takeover, "_go_on",
                  ("    replay = yield from _fence(source, log, request, confirmed, patience)\n",
                   ("    yield from _fence(source, log, request, confirmed, patience)\n"
                    "    replay = seen\n"))),
             {"second_producers": 4, "drops": 9, "rush": True, "steps": 600, "transactions": 20,
              "slow_markers": False, "producer_crashes": 0, "intruders": 0}, first_seed=236),
    Mutation("no-lso", "the tail is read when the LSO has reached the high watermark [H5, H32]",
             replaced(takeover, _wait_for_lso=_never_waits), {"strangers": 3}, first_seed=1),
    Mutation("txid", "transactional.id is made of nothing but the prefix [H5]",
             replaced(client, transactional_id=_one_each),
             {"second_producers": 2, "drops": 3}, first_seed=13),
    Mutation("tail-last-offset", "the last offset may be a marker [H6]",
             edit(accept, "_tail",
                  ("low = max(start, end - window)", "low = max(start, end - 1)"),
                  ("if low == start:", "if True:"))),
    Mutation("fence-before-slot", "nobody fences a producer whose slot it cannot have [H8]",
             together(edit(takeover, "_go_on",
                           (_TAKE, "    log.init_transactions()\n    while")),
                      replaced(SimSource, try_lock=lambda _: True)),
             {"second_producers": 2}, first_seed=13),
    Mutation("no-lock", "one lock per slot: it is held between the load and the stream, too",
             replaced(SimSource, try_lock=lambda _: True),
             {"second_producers": 5, "drops": 0, "producer_crashes": 1, "aliens": 0, "stops": 0,
              "timeouts": 0, "adds": 0, "asks": 0}, first_seed=588),
    Mutation("said-again", "what a start waits for is said once",
             edit(turn.Turn, "drive", ("said.add(line)", "pass")), {"second_producers": 2}),
    Mutation("alien-looks-not", "what differs stops before anything is fenced",
             edit(takeover, "_compare", ("if problem is None:", "if True:")),
             {"aliens": 2}, first_seed=8),
    Mutation("slot-before-fence", "first start: the slot is made behind lock and fence [H33]",
             together(edit(takeover, "_begin_epoch", (_MAKE, ""), (_FENCE, _MAKE + _FENCE)),
                      edit(turn, "take_slot", ("slot.confirmed > resume", "False")),
                      replaced(SimSource, try_lock=lambda _: True)),
             {"second_producers": 1, "rush": True, "transactions": 14, "producer_crashes": 1,
              "crash_at": "waits for Kafka",
              "drops": 0, "timeouts": 0, "slot_faults": 0, "aliens": 0, "stops": 0},
             first_seed=93),
    # ------------------------------------------------------------ producer: promotions
    Mutation("tail-not-looked-at", "an epoch continues only without what was lost [H17]",
             replaced(CutsLog, tail_behind=lambda *_: promotion.Tail()),
             {"losses": 2, "slot_faults": 0, "aliens": 0}, first_seed=196),
    Mutation("tail-by-newest", "all records behind the switch point are looked at",
             edit(cuts_log, "tail_behind",
                  ("if cut.head.resume <= position:", "if True:")),
             {"losses": 2, "slot_faults": 0, "aliens": 0}, first_seed=196),
    # ------------------------------------------------------------ producer: what is sent again
    Mutation("again-unseen", "one that is sent again and was not delivered stops [H48]",
             edit(Redelivery, "rows_of",
                  ("in part.exact or str(table) in part.names():", "in ():")),
             COPIES, first_seed=36),
    Mutation("again-from-anywhere", "a slot that somebody else made in a copy stops [H48]",
             edit(cuts_log, "delivered", ("if keeps_confirmed and", "if False and")), COPIES,
             first_seed=60),
    Mutation("again-missing", "one that was delivered and is not sent again stops [H48]",
             edit(Redelivery, "_pass", ("if lost.is_compared:", "if False:")), COPIES,
             first_seed=21),
    Mutation("again-another", "another one at its position stops [H48]",
             edit(Redelivery, "_is_known",
                  ("if any(_is_same(known, begin) for known in here):", "if here:")), COPIES,
             first_seed=26),
    Mutation("again-confirmed", "nothing is confirmed before all was compared [H48]",
             edit(Loop, "_tell_source", ("if self._assembler.has_compared else 0", "")),
             {**COPIES, "producer_crashes": 14, "crash_at": "idles"}, first_seed=130),
    Mutation("again-hidden", "what a table has before its point may be sent again",
             edit(_ExactTables, "__init__",
                  ("if loads.get(name) == LoadPhase.END}", "} | set(named.values())")),
             {"setbacks": 4, "adds": 1, "asks": 2}, first_seed=220),
    Mutation("resume-behind-switch", "reading goes on at the switch point, if it is earlier [H17]",
             edit(takeover, "place_of", ("min(replay.resume, at)", "replay.resume")),
             {"promotions": 3, "transactions": 6, "steps": 900, "slot_faults": 0, "aliens": 0},
             first_seed=81),
    Mutation("shapes-not-restated", "an epoch that continues begins with the tables' shapes [H19]",
             edit(takeover, "_go_on", ("restate(start) if start.continues", "() if 0")),
             {"promotions": 2, "producer_crashes": 6}, first_seed=12),
    Mutation("loads-not-carried", "and with the loads that did not end",
             edit(takeover, "_continued", ("dict(replay.loads)", "{}")),
             {"promotions": 2, "asks": 3}, first_seed=13),
    Mutation("lost-not-noted", "tables of a lost tail, or slot, are read again",
             edit(takeover, "_continued", ("for text in gaps)", "for text in ())")),
             {"losses": 2, "slot_faults": 1, "aliens": 0}, first_seed=2),
    Mutation("lost-not-marked", "and are not exact until then",
             edit(segments, "started", ("if phase == GAP]", "if False]")),
             {"losses": 2, "slot_faults": 1, "aliens": 0}, first_seed=2),
    Mutation("forced-by-positions", "who tells no switch point is not gone on with by positions",
             edit(takeover, "_needs_slot", ("if not source.tells_switches:", "if False:")),
             {"losses": 2, "aliens": 0, "style": "b, batches"}, first_seed=21),
    Mutation("point-elsewhere", "a point is made on the server that streams [H40]",
             edit(SimSource, "_visit", ("is_moved and", "False and")),
             {"losses": 2, "asks": 9}, first_seed=620),
    Mutation("promoted-unasked", "a standby's stream ends where its history does [H45]",
             edit(OneHistory, "read", ("self.check()", "pass")), _PROMOTED, first_seed=1),
    # ------------------------------------------------------------ producer: re-reads
    Mutation("load-not-finished", "a load that did not finish is finished by re-reads [H15]",
             edit(LoadQueue, "follow", ("if phase in wanted", "if phase == GAP")),
             {"producer_crashes": 6, "drops": 3}, first_seed=3),
    Mutation("added-not-loaded", "a table that was not captured before is read",
             edit(turn, "asked", ("[*back, *added], PENDING", "back, PENDING")), {"adds": 1},
             first_seed=31),
    Mutation("listed-too-early", "tables are listed once the slot is taken [H41]",
             edit(turn.Turn, "run",
                  ("restated: dict",
                   "import dataclasses\n    there = self.captured()\n    restated: dict"),
                  ("self._loop(", "dataclasses.replace(self, captured=lambda: there)._loop(")),
             {**_LONG, "second_producers": 9, "producer_crashes": 9, "joins": 1, "adds": 0},
             first_seed=56),
    Mutation("new-not-hidden", "a table that comes is hidden before it is published",
             edit(Loop, "_take_in", ("rereads.queue.hide(table)", "pass")),
             {"joins": 1, "transactions": 25, "steps": 700}, first_seed=126),
    Mutation("new-not-noted", "and noted as to be loaded",
             edit(Loop, "_take_in", ("engine.mark_loads({str(table): PENDING})", "pass")),
             {"joins": 1}, first_seed=1),
    Mutation("again-not-published", "one that waits for its load, and is made again, is published",
             edit(Loop, "_take_in", ("if is_noted and table in came.published:", "if is_noted:")),
             {"joins": 1, "remakes": 1},
             reason="a point shows it gone, and behind that the catalog is looked at again"),
    Mutation("looked-late", "the catalog is looked at before a re-read holds looks up",
             edit(Loop, "run", ("self._watch_catalog()  #", "pass  #")), _WINDOWS,
             first_seed=1),
    Mutation("gone-shown", "a table that is gone stays hidden up to a point that shows it gone",
             edit(Rereads, "make_point", (" or queue.is_hidden(table):", ":")), _GONE,
             first_seed=559),
    Mutation("gone-forgotten", "also over a restart",
             edit(turn, "asked", ("there = {n: t", "_ = {n: t")), _GONE,
             first_seed=32),
    Mutation("gone-waited-for", "and with it its mark at the target, whatever follows",
             edit(segments, "segments", ("if at.inexact != before.inexact:", "if False:")),
             _GONE, first_seed=126),
    Mutation("stray-counts", "a shape without a cut is taken back before its number is used [H19]",
             edit(turn.Turn, "_shapes", ("if strays:", "if False:")),
             {**_LONG, "mode": "plain", "lossy": True, "asks": 6, "joins": 1, "remakes": 2,
              "producer_crashes": 12}, first_seed=680),
    Mutation("gap-not-noted", "a table with a gap is noted as to be read again",
             edit(Engine, "_take", ("if happened.fates or happened.holes:", "if False:")),
             {"lossy": True, "transactions": 14}, first_seed=10),
    Mutation("gap-noted-late", "in the Kafka transaction of its gap",
             edit(Engine, "_make_cuts", ("if self._before is not None", "if False")),
             {"lossy": True, "transactions": 14}, first_seed=14),
    Mutation("gap-not-read", "and is read again",
             edit(LoadQueue, "follow", ("{GAP, *OPEN} if self._repairs else OPEN", "OPEN")),
             {"lossy": True, "transactions": 14}, first_seed=10),
    Mutation("undone-unseen", "what was altered and put back between two looks is a gap [H49]",
             edit(CatalogWatch, "_since", ("for doubt in seen.doubts:", "for doubt in ():")),
             _ALTERED),
    Mutation("looked-early", "what a look found is durable before the look is",
             edit(Engine, "mark_looked",
                  ("self._phase is not Phase.SENDING", "False")), _ALTERED),
    Mutation("looked-forgotten", "the first look of a run is compared with the last one before",
             edit(turn.Turn, "_loop", ("looked=writer_state.looked,", "")), _ALTERED, first_seed=2),
    Mutation("left-version", "one that is not published keeps what it is compared with",
             edit(CatalogWatch, "_next", ("{**kept, **came}", "came")), _ALTERED,
             first_seed=12),
    Mutation("emptied-for-all", "a TRUNCATE explains the file that it made, and no other",
             edit(Told, "explains", ("each.is_emptied", "True"),
                  ("and each.xid in emptied", "and emptied"),
                  ("not each.is_void or", "True or")),
             _ALTERED, first_seed=113),
    Mutation("void-for-all", "a table without rows had none all the time if it was emptied",
             edit(Told, "explains", ("oid in self.vacant and ", "")), _ALTERED, first_seed=41),
    Mutation("filled-unseen", "and no row came since",
             together(edit(Told, "fill", ("self.vacant.discard(relation)", "pass")),
                      edit(Told, "with_later", ("(both.vacant - later.filled)", "both.vacant"))),
             _ALTERED, first_seed=113),
    Mutation("row-missing-stops", "a table that lacks a row is marked, and others go on",
             edit(Applier, "_mark", ("return True", "return False")), _ALTERED, first_seed=56),
    Mutation("point-passed", "no commit behind a point is taken before the re-read",
             edit(Rereads, "stops", ("commit_lsn >= point.at", "False")), {"asks": 3},
             first_seed=79),
    Mutation("point-too-early", "and each one before it is",
             edit(Loop, "_read_again", ("if not rereads.is_standing:", "if False:")),
             {"asks": 3}, first_seed=4),
    Mutation("point-not-settled", "and is durable",
             together(edit(Loop, "_read_again", ("elif engine.is_settled:", "elif True:")),
                      edit(Engine, "lend", ("assert self.is_settled", "pass"))), {"asks": 3}),
    Mutation("point-reached-open", "a position counts when nothing is open before it",
             edit(Loop, "_read_again", ("rereads.reach(self._at,", "rereads.reach(1 << 60,")),
             {"asks": 3},
             first_seed=4),
    Mutation("not-hidden", "a table is not delivered before its load begins",
             edit(turn.Turn, "_loop", ("and table not in hidden,", ",")), {"adds": 1},
             first_seed=3),
    Mutation("shape-not-adopted", "its shape is the snapshot's, from BEGIN on",
             edit(Assembler, "adopt", ("self._relations.adopt(table)", "pass")),
             {"adds": 1, "asks": 3}, first_seed=23),
    Mutation("still-unbound", "and its rows are delivered from then on",
             edit(Assembler, "adopt", ("self._bindings.resolve_again()", "pass")), {"adds": 1},
             first_seed=23),
    Mutation("point-not-kept", "after a crash the source goes on at the newest point [H37]",
             edit(load.Loader, "again", ("resume=max(self._head.resume, self._at)",
                                         "resume=self._head.resume")),
             {"adds": 1, "producer_crashes": 9, "crash_at": "waits for Kafka"}, first_seed=391),
    Mutation("numbers-not-taken", "the stream goes on with the numbers of the load's records",
             edit(Engine, "take_back", ("self._n, self._loads = writer_state.head.n,",
                                        "_, self._loads = writer_state.head.n,")), {"asks": 3},
             first_seed=1),
    Mutation("loads-forgotten", "a STATE says how far loads are",
             edit(Engine, "_state", ("dict(phases),", "writer_state.loads,")),
             {"producer_crashes": 9, "asks": 3, "adds": 1, "steps": 600},
             first_seed=9),
    Mutation("request-forgotten", "a request stays until the table was read behind it",
             edit(LoadQueue, "done", ("load.target), load.request)", "load.target), 1 << 60)")),
             {"asks": 9, "transactions": 25, "steps": 700}, first_seed=36),
    Mutation("beside-running", "also what was delivered before the load began",
             edit(Beside, "_counts", ("return not self._running and ", "return ")), _BESIDE),
    Mutation("beside-early", "a range stands behind all that it shows",
             edit(Beside, "stands_at", ("first.read.high <= position", "True")), _BESIDE),
    Mutation("beside-unseen", "a snapshot shows all that was delivered when it was asked for",
             edit(Beside, "pass_by", ("self._unseen.add(begin.xid)", "pass")), _BESIDE),
    Mutation("beside-holders", "a snapshot may not show who had an id before it was taken",
             edit(Visible, "but", ("for x in running", "for x in ()")),
             {**_BESIDE, "style": "b, batches"}, first_seed=18),
    Mutation("beside-newest", "nor those with ids behind the newest that has ended [H54]",
             edit(Visible, "beside", ("self.running | self.lacks(listed)", "self.running")),
             _BESIDE),
    Mutation("beside-lacks", "and none of them has ended before a snapshot shows it",
             edit(Visible, "lacks", ("xid >= self.end or ", "")), _BESIDE),
    Mutation("beside-before-begin", "no range is read before BEGIN stands",
             edit(Beside, "rest", ("if not self.is_begun and self._flying:", "if False:")),
             _BESIDE),
    Mutation("beside-noted", "a row that the stream brought later is left out of a range",
             edit(Beside, "_settled", ("if key not in noted:", "if True:")), _BESIDE,
             first_seed=11),
    Mutation("beside-completed", "one that was updated in part is completed",
             edit(Beside, "_settled", ("completed.append(_over(row, sent))",
                                       "completed.append(row)")), _BESIDE, first_seed=32),
    Mutation("beside-deleted", "one that was deleted does not come back",
             edit(Beside, "watch", ("case Delete(relation, _, old):",
                                    "case Delete(relation, _, old) if False:")), _BESIDE,
             first_seed=22),
    Mutation("beside-moved", "nor one that has another key",
             edit(Beside, "_follow", ("self._note(was, None)", "pass")), _BESIDE, first_seed=15),
    Mutation("mend-inserted", "a named key that came later is not deleted [H53]",
             edit(Beside, "watch", ("if self.mends and", "if False and")), _MENDS),
    Mutation("mend-gone", "nor is one of which the stream brought anything",
             edit(Beside, "next", ("if key not in one.noted", "if True")), _MENDS),
    Mutation("beside-moved-in-part", "one that moved in part is a gap",
             edit(Rereads, "watch", ("if any(was != now", "if False and any(was != now")),
             _BESIDE, first_seed=2),
    Mutation("beside-lost", "and a gap begins the load again",
             edit(Rereads, "meet", ("self._begin_again(", "len(")), _BESIDE, first_seed=2),
    Mutation("beside-resumed", "after a crash the source goes on at the newest range [H37]",
             edit(load.Loader, "_beside", ("resume=max(self._head.resume, self._at)",
                                           "resume=self._head.resume")),
             {**_BESIDE, "adds": 1, "joins": 1, "producer_crashes": 12, "asks": 0,
              "crash_at": "waits for a call"}, first_seed=1536),
    Mutation("step-names-nothing", "each step of a load names its own records",
             edit(load, "with_offsets",
                  ("ranges=ranges", "ranges=()"))),
    Mutation("steps-out-of-order", "steps of loads are written in order",
             edit(load.Loader, "_write", ("for cut in with_offsets(steps, acknowledged)",
                                          "for cut in with_offsets(steps, acknowledged)[::-1]")),
             first_seed=1),
    Mutation("no-truncate", "plain readers are told that a table begins anew [H31]",
             edit(load.Loader, "_begin", ("if is_emptied else ()", "if False else ()")),
             {"asks": 3, "mode": "exact", "expiries": 0}),
    Mutation("one-position", "rows of loads have positions of their own",
             edit(load.Loader, "again", ("of_reread(self._head.n)", "of_reread(0)")),
             {"asks": 6, "mode": "exact", "transactions": 4}, first_seed=37),
    Mutation("loads-backwards", "steps of loads are taken in order",
             edit(rules, "step", ("in by_table(segment.loads):",
                                  "in reversed(by_table(segment.loads)):")), first_seed=1),
    Mutation("chunks-twice", "rows of a table are added once, whatever chunks they are of",
             edit(rules, "step", ("in by_table(segment.loads):", "in segment.loads:")),
             first_seed=6),
    Mutation("first-chunk-only", "all steps of loads that a segment holds count",
             edit(rules, "step", ("in by_table(segment.loads):", "in segment.loads[:2]:"))),
    Mutation("load-not-emptied", "BEGIN empties the table [H15]",
             replaced(SimTransaction, load=_begin_without_emptying),
             {"producer_crashes": 6, "drops": 3}),
    Mutation("beside-emptied", "BEGIN leaves the rows that readers see [H38]",
             edit(rules, "step", ("keeps=bool(commit)", "keeps=False")), first_seed=1),
    Mutation("beside-newer", "and the ledger names their commit, the one before the load",
             edit(rules, "step", ("loading(load), commit",
                                  "loading(load), f'{upto.epoch}/{upto.seq}'")),
             {"slot_faults": 3, "steps": 500}),
    Mutation("beside-epoch", "also of an older epoch",
             edit(ledger, "_unloaded", ('shown(at, table) if table in had else ""', '""')),
             {"slot_faults": 3, "steps": 500}),
    Mutation("beside-gap", "also where a gap comes between",
             edit(CommitsRecord, "_after", ("remarked(known.get(table), ", "str(")),
             {**_LONG, "lossy": True, "asks": 6, "producer_crashes": 8}, first_seed=597),
    Mutation("beside-stream", "changes between BEGIN and END go to the load's rows [H39]",
             edit(SimTransaction, "write", ("self.database.written()", "self.database.tables")),
             {**_LONG, "slot_faults": 3, "producer_crashes": 12, "drops": 3}, first_seed=36),
    Mutation("relations-not-rebuilt", "shapes are rebuilt from the ddl topic [H19]",
             replaced(turn, known_tables=lambda *_, **__: {})),
    Mutation("relations-too-far", "and never beyond the last accepted commit [H19]",
             replaced(turn, known_tables=lambda r, c, *, epoch, seq, note, strays=None:
                      ddl_log.known_tables(r, c, epoch=epoch, seq=seq + 99, note=note)),
             {"mode": "plain", "producer_crashes": 9, "transactions": 25, "steps": 600,
              "crash_at": "runs (flushing)"}, first_seed=30),
    # ------------------------------------------------------------ producer: what is native
    *((*_NATIVE, *_HELD) if MODULE is not None else ()),
    # ------------------------------------------------------------ producer: GaussDB's streams
    *_GAUSS,
    # ------------------------------------------------------------ readers
    Mutation("writer", "a record of an older writer is ignored [H7]",
             edit(CutReplay, "_accept",
                  ("if (head.writer, head.instance) != (self.writer, self.instance):",
                   "if head.writer > self.writer:")), first_seed=5),
    Mutation("n", "n has no gaps [H28]",
             edit(CutReplay, "_counted", ("if head.n != self.n + 1:", "if False:"))),
    Mutation("doubt-stays", "what does not follow was forged, if its writer goes on",
             edit(CutReplay, "accept", ("if counts is not None and self.suspect is not None:",
                                   "if False:")), {"intruders": 9}),
    Mutation("anybody-begins", "a START or STATE follows the record before it",
             edit(accept, "_tail", ("is_strict and", "False and")), {"intruders": 9},
             first_seed=23),
    # ------------------------------------------------------------ consumer
    Mutation("not-compared", "(epoch, n, seq) is compared under the ledger's lock [H10]",
             _NOT_COMPARED, {"lost_commits": 9, "second_appliers": 0}, first_seed=254),
    Mutation("neither-fenced-nor-compared", "one of both at the least",
             together(_NOT_FENCED, _NOT_COMPARED), {"second_appliers": 3}),
    Mutation("message-not-compared", "a step that is one message moves the ledger it was made for",
             replaced(rules, COMPARED=()), {"second_appliers": 3, "restores": 2}, first_seed=169),
    Mutation("message-seq-not-compared", "and compares where it is, not only whose it is",
             replaced(rules, COMPARED=("fence", "epoch")), {"restores": 3, "steps": 600},
             first_seed=138),
    Mutation("no-counts", "rows are counted, and the LSO is waited for [H12]",
             together(_NOT_WAITED, _NOT_COUNTED, _ENDS_ANYWHERE)),
    Mutation("ledger-believed", "after any error the ledger is read again",
             edit(Applier, "_drain",
                  ("place, self._ledger = _place(self._ledger), None",
                   "place = _place(self._ledger)"),
                  ("self._ledger = None", "pass")),
             {"lost_commits": 9, "transactions": 25}, first_seed=13),
    Mutation("served-twice", "cuts are read from the ledger's place after each error",
             edit(CutReader, "__call__", ("self._served = None", "pass")),
             {"lost_commits": 9, "second_appliers": 3, "transactions": 25, "steps": 700},
             first_seed=299),
    Mutation("ledger-behind", "the ledger moves with the rows",
             edit(CommitsRecord, "_after", ("seq=seq,", "seq=ledger.seq,"))),
    Mutation("half", "a target transaction holds whole commits [H9]",
             replaced(SimSink, step=_half_visible), {"transactions": 14}, first_seed=16),
    Mutation("checkpoint", "cuts are read from the ledger's place [H11]",
             replaced(CutReader, __call__=_from_checkpoint), {"restores": 2, "steps": 500}),
    # ------------------------------------------------------------ targets that come late
    Mutation("late-present", "changes of a table that is not here are left out",
             edit(rules, "present", ("if not absent:", "if True:")), _LATE),
    Mutation("late-ddl", "and its schema changes",
             edit(rules, "_of_present",
                  ("if change.before is not None and str(change.before.id) in absent:",
                   "if False:")), _LATE),
    Mutation("late-gap", "a gap does not bring it",
             edit(ledger, "remarked", ("(is_absent(before) or", "(False or")),
             {**_LATE, "lossy": True}),
    Mutation("late-load", "nor does a load that began before the target",
             edit(rules, "step", ("elif table in absent:", "elif False:")), _LATE_LOADS,
             first_seed=102),
    Mutation("late-end", "whose END makes nothing exact",
             edit(ledger, "loaded",
                  ('case LoadPhase.END if not is_absent(inexact.get(table, "")):',
                   "case LoadPhase.END:")), _LATE_LOADS, first_seed=102),
    Mutation("late-named", "what the stream has brought is not here either",
             edit(ledger, "begun_late", ("{*cut.loads, *there}", "{*cut.loads}")), _LATE_LOADS,
             first_seed=92),
    # ------------------------------------------------------------ loads for one target
    Mutation("one-for-all", "a load for one target is passed by by the others",
             edit(ledger, "is_for", ("if cut.target is None:", "if True:")), _ONES,
             first_seed=2),
    Mutation("one-inexact", "it needs a table that is exact for all",
             edit(LoadQueue, "is_exact", ("return self", "return True or self")),
             {**_ONES, "lossy": True}),
    Mutation("one-early", "where BEGIN stands",
             edit(Rereads, "_check_for_one",
                  ("if not self.queue.is_exact(table):", "if False:")),
             {**_ONES, "lossy": True, "strange": True, "asks": 12}, first_seed=13),
    Mutation("one-shape", "in the shape that the stream knows",
             edit(Rereads, "_check_for_one", ("elif was is None or shape != was", "elif False")),
             {**_ONES, "asks": 12}, first_seed=100),
    Mutation("one-moved-gap", "and is no gap for the others",
             edit(Rereads, "_lose_load", ("if not (self._load", "if True or not (self._load")),
             {**_ONES, "asks": 12, "transactions": 40, "steps": 800}),
    Mutation("one-replaced", "one for all takes its place",
             edit(control, "note_load", ("targeted.pop(table, None)", "pass")),
             {**_ONES, "lossy": True, "asks": 12}),
    Mutation("one-answered", "it answers the requests for its target alone",
             edit(LoadQueue, "done", ("Wish(table, load.target)", "Wish(table)")), _ONES),
    Mutation("one-plain", "plain readers are not told that a table begins anew, of which rows come",
             edit(load.Loader, "_begin", ("is_again and not (", "is_again and (")), _ONES),
    # ------------------------------------------------------------ tasks, and parts
    Mutation("job-mixes-segments", "a job gives each segment its own rows, in their order",
             edit(Ahead, "_take", ("zip(steps, found, strict=True)",
                                   "zip(steps, found[::-1], strict=True)")), first_seed=26),
    Mutation("job-failure-forgotten", "what tasks could not read is the driver's, in its turn",
             edit(Ahead, "_take", ("_LATER if rows is None else rows", "rows"))),
    Mutation("task-takes-ddl-rows", "rows between schema changes are not read table by table",
             edit(CommitParts, "_are_for_tasks",
                  ("and sorted(change.ordinal for change in ddl) == [*range(len(ddl))]", "")),
             _PARTS, first_seed=3),
    Mutation("part-not-waited", "what stands behind the first unread place waits for its part",
             edit(PartsInOrder, "_upto", ("rows.split(*place)", "rows.split(1 << 62, 0)")), _PARTS,
             first_seed=8),
    Mutation("part-ddl-late", "schema changes come in the part of their place",
             edit(PartsInOrder, "_upto",
                  ("COMMIT_ORDER(self._ddl[at - 1]) > place", "place[0] < 1 << 62")), _PARTS),
    Mutation("parts-shown", "a step whose parts end early shows nothing",
             replaced(SimTransaction, parts=_ends_early), _PARTS, first_seed=38),
    # ------------------------------------------------------------ leases
    Mutation("frozen", "one that was frozen, and replaced, changes nothing when it wakes [H50]",
             together(_NOT_FENCED, _NOT_COMPARED), {**_FROZEN, "lake": False}, first_seed=3),
    Mutation("lease-not-awaited", "an applier that waits for another one begins nothing",
             edit(loop, "run", ("while sink.start() is None:", "while sink.start() is False:")),
             _FROZEN, first_seed=3),
    Mutation("lease-by-one-clock", "who waits looks at the lease by its own clock, too",
             edit(Watched, "seconds", ("max(0.0, began - self._seen[1])", "0.0")),
             {**_FROZEN, "lake": False, "jumps": 9}),
    Mutation("file-not-defended", "to whom the fence belongs writes its own text again",
             edit(FileLease, "renew", ("and self._newest_fence() != self.fence", "")),
             {**_FROZEN, "lake": True}),
    Mutation("file-no-objection", "a claim counts once nobody has objected to it",
             edit(FileLease, "take", ("now - self._claimed < OBJECTION", "False")),
             {**_FROZEN, "lake": True}, first_seed=3307),
    Mutation("file-fence-unknown", "nobody takes the fence from one that came in between",
             edit(core, "take_fence", ("!= known", "is False")),
             {**_FROZEN, "lake": True, "freeze_at": "reads the watermark"}, first_seed=677),
    # ------------------------------------------------------------ second lines of defence
    Mutation("2nd-no-lso", "the LSO is waited for", replaced(takeover, _wait_for_lso=_never_waits),
             {"strangers": 0}, "init_transactions waits for the markers of its own id"),
    Mutation("2nd-keepalive", "a keepalive says nothing while a transaction is open",
             edit(Loop, "_end_read", ("is_between and ", "")),
             reason="the server tells no position behind the BEGIN of what it is sending"),
    Mutation("2nd-topics-late", "and before the rows: their cut must not come before them",
             edit(Loop, "_step_all",
                  ("while self._changed:", "while False:"),
                  ("self._step(happened)\n",
                   ("self._step(happened)\n    while self._changed:\n"
                    "        self._step(self._changed.pop(0))\n"))),
             {"transactions": 20, "steps": 600}, "acknowledgements, and so the cut, come later"),
    Mutation("2nd-fence", "the fence of appliers", _NOT_FENCED, {"second_appliers": 2},
             "the comparison under the lock refuses a late attempt"),
    Mutation("2nd-late-look", "a text has stood since before it was looked at",
             edit(FileLease, "take",
                  ("self._is_silent(text, now)", "self._is_silent(text, self._clock())")),
             {**_FROZEN, "lake": True, "freeze_at": "has looked at the lease"},
             "the holder objects to a claim"),
    Mutation("2nd-other-text", "a text that changes is of a holder that is there",
             edit(Watched, "seconds", ("if written != self._seen[0]:", "if not self._seen[0]:")),
             {**_FROZEN, "lake": True}, "the holder objects to a claim"),
    Mutation("2nd-said", "what is mended, and comes again, is found again",
             edit(CatalogWatch, "read_again", ("if finding.table != table", "")), _ALTERED,
             "one that comes back has another entry in the publication"),
    Mutation("2nd-wait", "readers wait for the LSO", _NOT_WAITED,
             reason="the counts refuse what is not all there yet"),
]  # fmt: skip
