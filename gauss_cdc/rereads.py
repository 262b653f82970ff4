"""Asks a `run` to read tables again, by rows of a table at the source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Final

from gauss_cdc import wiring
from gauss_cdc.config import Config
from producer.core.loads.queue import EVERYTHING
from producer.core.ports import Wish
from producer.errors import Unsupported
from producer.options import Options
from producer.sources import requests
from producer.sources.kinds import SOURCES
from producer.sources.patterns import chooser
from producer.sources.requests import AskedAgain, Keys
from producer.sources.session import Asks
from schemas.errors import LOAD_AGAIN
from schemas.tables import TableId

_NONE: Final[Mapping[str, Keys]] = {}


class NotCaptured(ValueError):
    """A table is not in [tables]."""


class NotAsked(ValueError):
    """Nobody asks for a table."""


def possible(config: Config) -> bool:
    """Say whether this source can read one table again."""
    return SOURCES[config.source.kind].rereads(wiring.producer_options(config))


def check(config: Config) -> None:
    """Raise Unsupported where it cannot."""
    if not possible(config):
        raise Unsupported(
            "tables of this kind of source cannot be read again by themselves",
            hint=f"a load makes all of them equal: {LOAD_AGAIN}",
        )


@contextmanager
def session(config: Config) -> Iterator[SnapshotRequests]:
    """Open the source to ask it; raise Unsupported where it cannot."""
    check(config)
    options = wiring.producer_options(config)
    with closing(SOURCES[options.kind].inspector(options)) as inspector:
        yield SnapshotRequests(options, inspector.asking())


class SnapshotRequests:
    """Requests for re-reads of one slot."""

    def __init__(self, options: Options, session: Asks) -> None:
        """`session` is at the source."""
        self._session, self._slot = session, options.slot
        self._wanted = chooser(options.include, options.exclude)

    def ask(
        self,
        tables: Sequence[TableId],
        target: str = "",
        keys: Mapping[str, Keys] = _NONE,
    ) -> None:
        """Ask for tables, for one target or all; raise NotCaptured.

        `keys`: by schema.table, of the rows that are asked for alone.
        """
        for table in tables:
            if not self._wanted(table):
                raise NotCaptured(f"{table} is not in [tables]")
        named = {TableId.parse(name): rows for name, rows in keys.items()}
        requests.ask(self._session, self._slot, [Wish(t, target) for t in tables], named)

    def check_names(self, tables: Sequence[TableId]) -> None:
        """Refuse names that somebody typed and that no table has; raise NotCaptured.

        `run` would answer such a request at once, and read nothing.
        """
        for table in tables:
            if not requests.is_table(self._session, table):
                raise NotCaptured(
                    f"the source has no table {table}; a name is written as its catalog has it,"
                    " upper case and spaces, too"
                )

    def cancel(self, tables: Sequence[TableId], target: str = "") -> None:
        """Take requests back, those for one target or all; raise NotAsked."""
        for table in tables:
            if not requests.forget(self._session, self._slot, Wish(table, target)):
                raise NotAsked(f"nobody asks for {table}{f' for {target}' if target else ''}")

    def pause(self) -> None:
        """Have no table read again from now on; one that is being read is read to its end."""
        if not any(request.wish.table == EVERYTHING for request in self.asked()):
            requests.ask(self._session, self._slot, [Wish(EVERYTHING)])

    def resume(self) -> None:
        """Take a pause back."""
        requests.forget(self._session, self._slot, Wish(EVERYTHING))

    def asked(self) -> list[AskedAgain]:
        """Return the requests that are open, oldest first; `EVERYTHING` stands for a pause."""
        return requests.requests(self._session, self._slot)
