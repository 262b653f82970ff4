"""What `gauss-cdc check` finds, whichever half looks: one line each."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from schemas.errors import Explained


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"  # what cannot be checked here, but should be known
    FIXED = "fixed"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of `check`."""

    level: Level
    subject: str
    what: str
    hint: str = ""
    error: str = ""  # the class of the error that says so
    target: str = ""  # of several, the one that it is of


def refused(subject: str, error: Explained, level: Level = Level.ERROR) -> Finding:
    """Show what a rule that `run` or `apply` keeps to finds wrong."""
    return Finding(level, subject, error.said, error.hint, type(error).__name__)
