"""The voice of every error: what, where, and the way out."""

from __future__ import annotations

from typing import Final

# How every table is loaded again: the way out of whatever stopped, where there is no other.
LOAD_AGAIN: Final = "`gauss-cdc run --accept-gap` opens a new epoch and loads every table again"


class Explained(Exception):
    """An error whose text says what happened, `where` it did, and by `hint` what to do.

    Keyword context never holds cell values or secrets.
    """

    def __init__(self, what: str, *, hint: str = "", **where: object) -> None:
        super().__init__(what)
        self.what, self.hint, self.where = what, hint, where

    def __str__(self) -> str:
        text = self.what
        if self.where:
            text += " (" + ", ".join(f"{k}={v}" for k, v in self.where.items()) + ")"
        return f"{text}; {self.hint}" if self.hint else text
