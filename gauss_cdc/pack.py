"""Our code as one zip for `spark-submit --py-files`.

A wheel fails there: executors put the file itself on their path, and a wheel's
layout is meant for installers.  Native packages of others (confluent-kafka and fastavro; psycopg2
for the driver) belong in the Python environment of driver and executors.  Our own native modules
are in the zip where they were built; they fit every Python of this machine's platform.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Final

from schemas.native import FILE, Outdated, check_built

PACKAGES: Final = ("schemas", "producer", "spark_consumers", "gauss_cdc")
MODULES: Final = ("pyspark_gauss_cdc.py",)
_KINDS: Final = (".py", ".avsc", ".lock", ".typed", ".html", ".css", ".js", ".svg")
_PROGRAM: Final = '''\
"""Runs gauss-cdc under spark-submit."""

from gauss_cdc.cli import main

main()
'''


def pack(out: Path) -> Path:
    """Write the zip; return the path of the program next to it."""
    root = Path(__file__).parent.parent
    out.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for module in MODULES:
            archive.write(root / module, module)
        for package in PACKAGES:
            for file in sorted((root / package).rglob("*")):
                if file.suffix in _KINDS or (file.name == FILE and _is_current(file)):
                    archive.write(file, file.relative_to(root))
    program = out.with_suffix(".py")
    program.write_text(_PROGRAM, "utf-8")
    return program


def _is_current(library: Path) -> bool:
    try:
        check_built(str(library))
    except Outdated:
        return False
    return True
