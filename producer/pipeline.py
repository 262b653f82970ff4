"""Builds a turn of `run` from the configuration, and retries after temporary errors.

The order of a turn is `core/turn.py`, its stream `core/loop.py`; here are sockets, librdkafka
and clocks.
"""

from __future__ import annotations

import logging
import random
import uuid
from contextlib import ExitStack
from functools import partial

import tenacity

from producer import native
from producer.core.events import TopicsChanged
from producer.core.log.cuts_log import CutsLog
from producer.core.loop import Progress
from producer.core.ports import RunObserver, ShutdownRequested
from producer.core.turn import Turn
from producer.errors import CdcError
from producer.kafka import native_writer
from producer.kafka.delivery import Delivery
from producer.kafka.quarantine import Quarantine
from producer.meanwhile import InOrder, Meanwhile
from producer.options import Options
from producer.publish import Publisher
from producer.sources.base import Source
from producer.sources.kinds import SOURCES
from producer.sources.patterns import chooser
from producer.start import StartParts
from schemas.errors import Verdict

_log = logging.getLogger(__name__)

_BACKOFF, _BACKOFF_MAX = 0.5, 15.0  # seconds


def run(options: Options, observer: RunObserver, progress: Progress | None = None) -> bool:
    """Capture until asked to stop; retry after temporary errors.

    Returns whether a stream began before it was left.  Raises the CdcError that needs an operator.
    """
    progress = progress or Progress()

    def passes(error: BaseException) -> bool:
        return isinstance(error, CdcError) and error.verdict is Verdict.RETRY

    reached, tries = progress.resume, 0

    def wait(_: tenacity.RetryCallState) -> float:
        """Grow with consecutive failures; progress resets the backoff."""
        nonlocal reached, tries
        tries = tries + 1 if progress.resume == reached else 0
        reached = progress.resume
        return min(_BACKOFF_MAX, _BACKOFF * 2.0**tries) * random.uniform(0.5, 1)  # noqa: S311

    def note(state: tenacity.RetryCallState) -> None:
        progress.retries += 1
        observer.retrying(state.outcome and state.outcome.exception(), state.upcoming_sleep)

    def pause(seconds: float) -> None:
        if observer.stop_asked(seconds):
            raise ShutdownRequested

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception(passes),
        wait=wait,
        sleep=pause,
        before_sleep=note,
        reraise=True,
    )
    try:
        while retrying(_run_once, options, observer, progress):
            pass
    except ShutdownRequested:
        if not progress.has_streamed:
            observer.on_note("stopped before the stream began: the next run loads what is missing")
    return progress.has_streamed


def create_slot(options: Options, observer: RunObserver) -> bool:
    """Open a prefix without a first load: START and slot, then stop; options.load is False.

    False if a stop was requested before: a slot that waited for open transactions is dropped.
    """
    try:
        _run_once(options, observer, Progress(), stream=False)
    except ShutdownRequested:
        return False
    return True


def _run_once(
    options: Options, observer: RunObserver, progress: Progress, *, stream: bool = True
) -> bool:
    with ExitStack() as stack:
        observer.on_step("start: connect")
        topics = options.topics
        start = StartParts.open(options, stack)
        admin, registry, clock = start.admin, start.registry, start.clock
        changed: list[TopicsChanged] = []
        parts = native.parts(options.native)
        publisher = Publisher(
            options,
            admin=admin,
            registry=registry,
            on_topics=lambda found: changed.append(TopicsChanged(found)),
            note=observer.on_note,
            native=None if parts is None else parts.encoder,
        )
        stack.callback(publisher.close)
        publisher.prepare()
        reader, ddl_reader = start.reader(topics.cuts), start.reader(topics.ddl)
        kind = SOURCES[options.kind]
        source = kind.open(options, publisher.prepare_tables)
        stack.callback(source.close)
        publisher.encoding = source.encoding
        parts = native.parts(options.native)
        quarantine = Quarantine(options.client, admin, topics.quarantine)
        delivery = Delivery(
            options.client,
            prefix=options.prefix,
            cuts_topic=topics.cuts,
            transaction_timeout=options.limits.transaction_timeout,
            exactly_once=options.exactly_once,
            max_row_bytes=options.max_row_bytes,
            silence=options.kafka_silence_seconds,
            make=native_writer.choose(parts),
        )
        stack.callback(delivery.close)
        blocking = Meanwhile(lambda: source.keep_alive(force=True))
        stack.callback(blocking.close)
        behind = InOrder()
        stack.callback(behind.close)
        log = start.log(reader, delivery, note=_log.warning, blocking=blocking)
        stack.callback(_undo, options, source, log, observer)
        publisher.prepare_beside(source.prepare(observer.on_note))
        request = start.request(
            source,
            instance=uuid.uuid4().hex[:16],
            # For one takeover only: a difference in a later retry needs a new decision.
            accept_gap=options.accept_gap and not progress.takeovers,
            accept_switch=options.accept_switch and not progress.takeovers,
            load=options.load,
            newest_epoch=clock.wall_us() // 1_000_000,
            is_ours=publisher.is_ours,
        )
        return Turn(
            options=options,
            source=source,
            log=log,
            ddl=ddl_reader,
            codec=registry,
            delivery=delivery,
            publisher=publisher,
            quarantine=quarantine,
            blocking=blocking,
            behind=behind,
            clock=clock,
            observer=observer,
            wants=chooser(options.include, options.exclude),
            advice=partial(kind.advice, options),
            changed=changed,
            captured=source.listed,
            native=parts,
        ).run(request, progress, stream=stream)


def _undo(options: Options, source: Source, log: CutsLog, observer: RunObserver) -> None:
    """Drop what was created for a START that was never written, or report what remains.

    No record names that slot and publication, and no run would continue from them. The next
    start drops what a crash leaves.
    """
    if log.has_started:
        return
    if not log.begins:
        source.discard(observer.on_note)
        return
    observer.on_note(
        f"slot {options.slot} was created and remains: the next run finds out whether its START is "
        "durable; to give up: gauss-cdc slot drop --yes"
    )
