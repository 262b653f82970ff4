"""Which product a server is, by what its version() says."""

from __future__ import annotations

import re
from typing import Final

POSTGRESQL: Final = "PostgreSQL"
OPENGAUSS: Final = "openGauss"
GAUSSDB: Final = "GaussDB"

_SAID: Final = (
    (GAUSSDB, re.compile(r"GaussDB Kernel (\S+)")),  # before openGauss: it may name both
    (OPENGAUSS, re.compile(r"openGauss(?:-lite)? (\S+)", re.IGNORECASE)),
    (POSTGRESQL, re.compile(r"PostgreSQL (\S+)")),
)


def product_of(said: str) -> tuple[str, str] | None:
    """(Product, version); None: none of ours.

    >>> product_of("(openGauss 5.0.0 build a07d57c3) compiled at 2023-03-29")
    ('openGauss', '5.0.0')
    """
    for product, pattern in _SAID:
        if found := pattern.search(said):
            return product, found[1].rstrip(",;)")
    return None
