"""Files that hold a secret: libpq's rule of who may read them, for both halves."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
_BY_ROOT: Final = stat.S_IWGRP | stat.S_IXGRP | stat.S_IRWXO  # its group may read
# Ends of the settings of Kafka's and the registry's clients that name such a file.
_NAMED: Final = ("key.location", "keystore.location", "keytab", "key.file", "assertion.file")


def exposed(file: str | Path, status: os.stat_result | None = None) -> str:
    """Say why a file's secret is not one, and the way out; "": its rights are 0600, or less.

    A file of root's may be read by its group (0640), as programs get their secrets by one.
    """
    found = status or Path(file).stat()
    if not found.st_mode & (_BY_ROOT if found.st_uid == 0 else _OTHERS):
        return ""
    return f"others may read this file: chmod 600 {file} (0640 is enough where it is root's)"


def exposed_of(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each setting of a client whose file others may use, and why that is refused."""
    for name, file in options.items():
        is_there = name.endswith(_NAMED) and isinstance(file, str) and Path(file).exists()
        if is_there and (why := exposed(file)):
            yield name, why
