"""Network addresses, as text."""

from __future__ import annotations

from typing import Final

from schemas.types.text import text_type

TYPES: Final = (
    text_type("inet", 1041, 869),
    text_type("cidr", 651, 650),
    text_type("macaddr", 1040, 829),
    text_type("macaddr8", 775, 774),
)
