"""What a mutation is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutation:
    """One rule of the protocol taken out of the product's text, and the tests that must fail."""

    name: str
    rule: str  # as docs/protocol.md has it
    file: str
    old: str  # stands once in the file
    new: str
    tests: tuple[str, ...]  # of pytest; they need no services, or a PostgreSQL alone
