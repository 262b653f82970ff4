"""The reader of a source's topics, and how it goes on where Kafka was away for a while."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from threading import Event
from typing import Any, Final, Self, TypeVar

from gauss_cdc_reader.bookmark import Bookmark
from gauss_cdc_reader.changes import Change, decoder_of
from gauss_cdc_reader.commits import Commit, WholeCommits
from gauss_cdc_reader.group import GroupMember, SharedChanges
from gauss_cdc_reader.tables import TableChanges
from schemas.errors import Verdict
from schemas.tables import TableId
from spark_consumers.cuts.versions import Version
from spark_consumers.errors import ApplyError, SettingRefused
from spark_consumers.kafka.history import History, ShapeHistory
from spark_consumers.kafka.logins import check_logins
from spark_consumers.kafka.registry import SchemaOf, registry_at

LOADS: Final = "snapshot"  # where the newest loads of all tables begin
LATEST: Final = "latest"  # behind the newest commit

_WAIT: Final = 0.5  # seconds, after which a reader looks whether it was closed
_PAUSE: Final = 1.0  # seconds before another try; each next one is twice as long
_LONGEST_PAUSE: Final = 30.0

_log = logging.getLogger("gauss_cdc_reader")


T = TypeVar("T")


class Reader:
    """Reads what stands in Kafka of one source.

    Every error is an `ApplyError` that says what to do.  Where Kafka or the registry does not
    answer, the reader waits and goes on behind what it gave.
    """

    def __init__(
        self,
        kafka: str | Mapping[str, Any],
        *,
        registry: str | SchemaOf,
        prefix: str,
        registry_options: Mapping[str, Any] | None = None,
        allow_plaintext_login: bool = False,
        patience: float = 300.0,
        native: bool = True,
    ) -> None:
        """`kafka`: brokers, or librdkafka's settings; `registry`: the URL of its Confluent API.

        `registry_options` are those of Confluent's client, for TLS and logins.  `patience`: seconds
        for which an outage is waited for.  `native`: native code is used where it is installed.
        Raises SettingRefused for a login that others could read on the network.
        """
        self._client = {"bootstrap.servers": kafka} if isinstance(kafka, str) else dict(kafka)
        if not allow_plaintext_login:
            check_logins(self._client, registry, registry_options or {})
        self._schema_of = (
            registry_at(registry, registry_options) if isinstance(registry, str) else registry
        )
        self._prefix, self._patience, self._native = prefix, patience, native
        self._closed = Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what is read, also in other threads: they give no more."""
        self._closed.set()

    def commits(
        self, after: Bookmark | str = LOADS, *, wait: bool = True, group: str | None = None
    ) -> Iterator[Commit]:
        """Give whole commits and steps of loads in the source's order, from a position on.

        `after`: the text of a `position`, `epoch/seq` of a commit, LOADS, or LATEST.  `wait`: for
        more, once all that is there was given.  Raises RangeExpired where retention took what is
        needed, and SettingRefused for a `group`: see there.
        """
        if group is not None:
            raise SettingRefused(
                "whole commits have one order, and one reader",
                hint="leave out `group`; processes share the work table by table, by `changes`",
                setting="group",
            )
        shapes = ShapeHistory()
        place = after

        def begun(history: History) -> Iterator[Commit | None]:
            nonlocal place
            place = _place(history, place, ())
            shapes.update(history.shapes(place.standing))
            for commit in WholeCommits(history, shapes).behind(place.standing):
                place = place if commit is None else commit.position
                yield commit

        return self._kept(begun, shapes, wait=wait)

    def changes(
        self,
        *tables: str,
        after: Bookmark | str = LOADS,
        wait: bool = True,
        group: str | None = None,
    ) -> Iterator[tuple[Bookmark, Change]]:
        """Give the changes of some tables (`schema.table`), each with the place behind it.

        They do not wait for other tables.  `after` and errors: as `commits`.  LOADS begins where
        all rows of these tables are in Kafka: at their first loads, or at a later one of each.

        `group`: processes that name the same group and the same tables share them, and Kafka keeps
        their places; `after` is where a table begins that the group has not read.  A change is done
        when the next one is asked for, and at least once.
        """
        ours = [TableId.parse(table) for table in tables]
        shapes = ShapeHistory()
        if group is not None:
            return self._shared(ours, after, group, shapes, wait=wait)
        place = after

        def begun(history: History) -> Iterator[tuple[Bookmark, Change] | None]:
            nonlocal place
            place = _place(history, place, ours)
            shapes.update(history.shapes(place.standing))
            for one in TableChanges(history, ours, shapes).behind(place):
                place = place if one is None else one[0]
                yield one

        return self._kept(begun, shapes, wait=wait)

    def _shared(
        self,
        tables: Sequence[TableId],
        after: Bookmark | str,
        group: str,
        shapes: ShapeHistory,
        *,
        wait: bool,
    ) -> Iterator[tuple[Bookmark, Change]]:
        with ExitStack() as stack:
            member: GroupMember | None = None

            def begun(history: History) -> Iterator[tuple[Bookmark, Change] | None]:
                nonlocal member
                if member is None:
                    topics = history.topics(tables)
                    member = stack.enter_context(GroupMember(self._client, group, topics))
                yield from SharedChanges(
                    history,
                    member,
                    lambda table: _place(history, after, [table]),
                    self._closed.is_set,
                    shapes,
                )

            yield from self._kept(begun, shapes, wait=wait)

    def _kept(
        self,
        begun: Callable[[History], Iterator[T | None]],
        shapes: ShapeHistory,
        *,
        wait: bool,
    ) -> Iterator[T]:
        """Give what `begun` gives, and begin again after an outage; None: there is none by now."""
        down_since, pause = 0.0, _PAUSE
        while not self._closed.is_set():
            try:
                with closing(self._history(shapes)) as history:
                    for one in begun(history):
                        down_since, pause = 0.0, _PAUSE
                        if self._closed.is_set():
                            return
                        if one is not None:
                            yield one
                        elif not wait:
                            return
                        else:
                            history.wait(_WAIT)
            except ApplyError as error:
                now = time.monotonic()
                down_since = down_since or now
                if error.verdict is not Verdict.RETRY or now - down_since > self._patience:
                    raise
                _log.warning("another try in %.0f s: %s", pause, error)
            self._closed.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _history(self, shapes: ShapeHistory) -> History:
        return History(
            self._client,
            self._prefix,
            self._schema_of,
            native=self._native,
            decoder=decoder_of(shapes),
        )


def _place(history: History, after: Bookmark | str, tables: Sequence[TableId]) -> Bookmark:
    """Find where to begin."""
    if isinstance(after, Bookmark):
        return after
    if "@" in after:
        return Bookmark.parse(after)
    if after == LOADS:
        return Bookmark.of(history.snapshot(tables) if tables else history.loads())
    if after == LATEST:
        return Bookmark.of(history.newest())
    return Bookmark.of(history.behind(Version.parse(after)))
