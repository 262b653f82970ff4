"""Rules of the consumer's half, taken out of the product's text."""

from __future__ import annotations

from typing import Final

from tests.mutations.table import Mutation

MUTATIONS: Final[tuple[Mutation, ...]] = ()
