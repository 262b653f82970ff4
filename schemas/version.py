"""The version of gauss-cdc, once: the package, its records and its command line take it here."""

from typing import Final

VERSION: Final = "0.1.0"
