"""A target that came late asks for what it lacks, where its configuration reaches the source.

The request is the one of `gauss-cdc snapshot --for NAME`, by the login of [source]: a row at the
source, which a `run` reads.  Whoever has no login there asks from elsewhere.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from gauss_cdc import rereads, target
from gauss_cdc.config import Config
from gauss_cdc.inspect.advice import captured, late
from producer.errors import CdcError
from schemas.errors import Verdict
from schemas.tables import TableId
from spark_consumers.model import Ledger

_log = logging.getLogger("gauss_cdc.apply")


class LateTables:
    """Those of one target, which are asked for once."""

    def __init__(self, config: Config, ledger: Callable[[], Ledger | None]) -> None:
        """`ledger`: where the target stands; None: not known yet."""
        self._config, self._ledger = config, ledger
        self._name = target.name_of(config)
        self._asked = set[str]()
        self._is_told = self._is_refused = False

    def look(self, _seconds: float) -> None:
        """Ask for tables that are late by now, and that nobody asks for."""
        if self._is_refused or (at := self._ledger()) is None:
            return
        lacking = set(late(at))
        self._asked &= lacking
        if not (tables := captured(self._config, lacking - self._asked)):
            return
        try:
            asked = self._ask(tables)
        except CdcError as error:
            self._failed(error)
            return
        self._asked |= asked
        if asked:
            _log.info(
                "the target began late: %d tables are asked for, for %s alone (`gauss-cdc snapshot`"
                " lists them, --pause holds them back)", len(asked), self._name,
            )  # fmt: skip

    def _ask(self, tables: Sequence[str]) -> set[str]:
        """Ask, but where somebody does: that may be taken back, or be answered without this one."""
        with rereads.session(self._config) as source:
            mine = {"", self._name}
            open_ = {str(one.wish.table) for one in source.asked() if one.wish.target in mine}
            if names := set(tables) - open_:
                source.ask(list(map(TableId.of, sorted(names))), self._name)
        return names

    def _failed(self, error: CdcError) -> None:
        """Try again later, where that may help; say once who can ask instead."""
        self._is_refused = error.verdict is not Verdict.RETRY
        if self._is_refused or not self._is_told:
            self._is_told = True
            _log.warning(
                "the target began late, and cannot ask for its tables: %s; ask from where [source]"
                " is reached: gauss-cdc snapshot --for %s", error, self._name,
            )  # fmt: skip
