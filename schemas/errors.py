"""The form of every error: what happened, where, and what to do."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import ClassVar, Final

# The last resort: a new epoch, which loads every table again.
LOAD_AGAIN: Final = "`gauss-cdc run --accept-gap` opens a new epoch and loads every table again"
# Dependent objects still exist; a feature that is not supported, as ALTER TYPE below a view.
# The server's DETAIL of others may hold cell values; of these it names objects alone.
_NAMES_IN_DETAIL: Final = frozenset({"2BP01", "0A000"})


def with_objects(message: str, detail: str | None, sqlstate: str | None) -> str:
    r"""Add a server's DETAIL to its message, where it holds no values but names of objects.

    >>> with_objects("cannot drop a", "view v depends on a\nview w depends on a", "2BP01")
    'cannot drop a; view v depends on a, view w depends on a'
    """
    if not detail or sqlstate not in _NAMES_IN_DETAIL:
        return message
    return f"{message}; {detail}".replace("\n", ", ")


class Verdict(Enum):
    """What to do after an error."""

    RETRY = "the error may be temporary: continue from what is durable, with backoff"
    RESYNC = "one table must be loaded again; for now, as STOP: all of them, by a new epoch"
    STOP = "stop and wait for an operator"


class Explained(Exception):
    """An error whose text says what happened, `where` it happened, and in `hint` what to do.

    Keyword context never holds cell values or secrets.  The class decides the verdict.
    """

    verdict: ClassVar[Verdict] = Verdict.STOP
    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, hint: str = "", **where: object) -> None:
        super().__init__(what)
        self.what, self.hint, self.where = what, hint, where

    def __str__(self) -> str:
        return f"{self.said}; {self.hint}" if self.hint else self.said

    @property
    def said(self) -> str:
        """What happened, and where; a list is one of names."""
        where = ", ".join(
            f"{name}={', '.join(value) if isinstance(value, list) else value}"
            for name, value in self.where.items()
        )
        return f"{self.what} ({where})" if where else self.what


def shortened(names: Sequence[str], most: int = 5) -> str:
    """Join names for a message; of many the first.

    >>> shortened("abcde"), shortened("abcdefgh")
    ('a, b, c, d, e', 'a, b, c, d, e and 3 more')
    """
    some = ", ".join(names[:most])
    return some if len(names) <= most else f"{some} and {len(names) - most} more"
