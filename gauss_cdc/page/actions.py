"""What the page may ask for, where it was allowed: what `snapshot` and `verify` do."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any, Final

from gauss_cdc import rereads
from gauss_cdc.config import Config, ConfigError
from gauss_cdc.secrets import masked
from gauss_cdc.verify.request import Request, VerifyObserver
from gauss_cdc.verify.rounds import verify
from producer.errors import CdcError
from schemas.errors import shortened
from schemas.tables import TableId
from spark_consumers.errors import ApplyError

_log = logging.getLogger(__name__)

_REFUSED: Final = (CdcError, ApplyError, ConfigError, ValueError)


class ActionRefused(Exception):
    """An action cannot be done; the text is for who asked."""


class Actions:
    """Does one action at a time, for who has the token."""

    def __init__(self, config: Config, token: str) -> None:
        self._config, self._token = config, token.encode()
        self._lock = threading.Lock()
        self._verified: dict[str, Any] = {}

    def is_allowed(self, token: str) -> bool:
        """Compare a token in constant time."""
        return hmac.compare_digest(token.encode(), self._token)

    def do(self, action: str, tables: Sequence[str]) -> str:
        """Do it; return what was done.  Raises ActionRefused."""
        try:
            with self._lock:
                return masked(self._done(action, tables))
        except _REFUSED as error:
            raise ActionRefused(masked(str(error))) from error

    def facts(self) -> Mapping[str, Any]:
        """What the page shows of them."""
        return {"actions": True, "verified": self._verified}

    def _done(self, action: str, tables: Sequence[str]) -> str:
        if action == "verify":
            return self._verify(tables)
        with rereads.session(self._config) as source:
            if action == "read-again" and tables:
                source.ask(list(map(TableId.parse, tables)))
                return f"`run` is asked to read again: {', '.join(tables)}"
            if action == "pause":
                source.pause()
                return "no table is read again until `resume`"
            if action == "resume":
                source.resume()
                return "tables are read again"
        raise ActionRefused("not an action of this page")

    def _verify(self, tables: Sequence[str]) -> str:
        self._config.single(None)  # which of several is compared, must be said
        if self._verified.get("is_running"):
            raise ActionRefused("a comparison runs: wait for its end")
        self._verified = {"is_running": True, "tables": list(tables)}
        threading.Thread(target=self._compare, args=(tables,), name="verify", daemon=True).start()
        return "the comparison runs; its result comes to this page"

    def _compare(self, tables: Sequence[str]) -> None:
        wait = threading.Event().wait
        observer = VerifyObserver(lambda _: None, lambda *_: None, lambda s: bool(wait(s)))
        found: dict[str, Any] = {}
        try:
            reports = verify(self._config, Request(tuple(tables)), observer) or []
            found["reports"] = [report.as_json(show_keys=False) for report in reports]
        except _REFUSED as error:
            found["failed"] = masked(shortened([str(error)]))
        except Exception as error:  # noqa: BLE001  else it would run for ever, for who looks at the page
            _log.exception("the comparison failed")
            found["failed"] = f"a fault of gauss-cdc ({type(error).__name__}): its log says more"
        self._verified = {"is_running": False, "tables": list(tables), **found}
