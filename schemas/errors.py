"""The voice of every error: what, where, and the way out."""

from __future__ import annotations

from enum import Enum
from typing import ClassVar, Final

# How every table is loaded again: the way out of whatever stopped, where there is no other.
LOAD_AGAIN: Final = "`gauss-cdc run --accept-gap` opens a new epoch and loads every table again"


class Verdict(Enum):
    """What to do after an error."""

    RETRY = "it may pass: go on from what is durable, with backoff"
    RESYNC = "one table must be loaded again; for now, as STOP: all of them, by a new epoch"
    STOP = "stop and wait for a person"


class Explained(Exception):
    """An error whose text says what happened, `where` it did, and by `hint` what to do.

    Keyword context never holds cell values or secrets.  The class decides the verdict.
    """

    verdict: ClassVar[Verdict] = Verdict.STOP
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str = "", **where: object) -> None:
        super().__init__(what)
        self.what, self.hint, self.where = what, hint, where

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += " (" + ", ".join(f"{k}={v}" for k, v in self.where.items()) + ")"
        return f"{text}; {self.hint}" if self.hint else text
