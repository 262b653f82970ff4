"""The parent of Spark's Python workers, where Spark and this package are of one installation.

Spark puts the archive of its pyspark before the one that is installed, and each task begins with
`importlib.invalidate_caches()`: up to Python 3.12 that reads the archive's list again, once for
each package that was imported from it, 0.3 s of CPU.  And each worker is forked from a parent that
has imported next to nothing, so that it takes 0.6 s to import what the others have.  This parent
takes the installed pyspark, and imports what tasks of ours need before it forks.

Named by `spark.python.daemon.module`; Spark runs it as `pyspark.daemon`, its argument is the
worker's module.
"""

from __future__ import annotations

import gc
import runpy
import sys
from contextlib import suppress
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Final

MODULE: Final = "spark_consumers.spark.daemon"
_ITS: Final = "pyspark.daemon"
_NEEDED: Final = ("pandas", "pyarrow", "spark_consumers.source", "spark_consumers.spark.frames")


def without_archives(path: list[str]) -> list[str]:
    """Leave out the archives of the pyspark that the rest of a search path has."""
    rest = [entry for entry in path if not entry.endswith(".zip")]
    spec = PathFinder.find_spec("pyspark", rest)
    if spec is None or spec.origin is None:
        return path
    home = Path(spec.origin).parent
    return [e for e in path if not (e.endswith(".zip") and Path(e).is_relative_to(home))]


if __name__ == "__main__":
    sys.path = without_archives(sys.path)
    sys.path_importer_cache.clear()
    if sys.argv[1:] == ["pyspark.worker"]:  # others are asked a few times only
        for name in _NEEDED:
            with suppress(ImportError):  # pandas is used where it is installed
                import_module(name)
        gc.collect()
        gc.freeze()  # a worker looks through the rest of it after each task
    runpy.run_module(_ITS, run_name="__main__", alter_sys=True)
