"""Files of Debian's packages, unpacked into the cache: nothing is installed.

Where a program is on the machine, that one is taken.  apt checks what it fetches by signatures.
"""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from gauss_cdc.runtime import jars


def program(name: str, *, package: str) -> Path | None:
    """Where a program is; None: neither here, nor can Debian's package be had."""
    return Path(found) if (found := shutil.which(name)) else file(f"usr/bin/{name}", package)


def file(pattern: str, package: str) -> Path | None:
    """A file of a package; None: it cannot be had."""
    folder = jars.cache() / "debian" / package
    if not folder.exists() and shutil.which("apt-get") and shutil.which("dpkg-deb"):
        _unpack(package, folder)
    return next(folder.glob(pattern), None)


def _unpack(package: str, folder: Path) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as work:
        if not _fetched(package, Path(work)) and os.geteuid() == 0:
            _run("apt-get", "update", folder=Path(work))  # a new machine has no lists yet
            _fetched(package, Path(work))
        for archive in Path(work).glob("*.deb"):
            _run("dpkg-deb", "-x", archive.name, "out", folder=Path(work))
            if not folder.exists():  # else another worker was faster
                (Path(work) / "out").rename(folder)


def _fetched(package: str, folder: Path) -> bool:
    return _run("apt-get", "download", package, folder=folder)


def _run(*words: str, folder: Path) -> bool:
    ran = subprocess.run(words, check=False, cwd=folder, capture_output=True, timeout=300)
    return ran.returncode == 0
