"""The Python of the tests' Spark: its workers cost a tenth of the CPU of what they do for us.

Spark puts its own pyspark.zip before the pyspark that is installed, and each task begins with
`importlib.invalidate_caches()`: Python 3.11 reads the list of that archive again, once for each
package of it that was imported, for 0.3 s.  And each worker is forked from a daemon that has
imported next to nothing, so that it takes 0.6 s to import the same as the others.  Here the daemon
takes the installed pyspark, and imports before it forks.
"""

import gc
import runpy
import shlex
import sys
from pathlib import Path
from typing import Final

DAEMON: Final = "pyspark.daemon"


def program(folder: Path) -> str:
    """Write what Spark starts in place of Python."""
    file = folder / "python"
    python = shlex.quote(sys.executable)
    file.write_text(
        "#!/bin/sh\n"
        f'if [ "$2" = {DAEMON} ]; then shift 2; exec {python} -m {__name__} "$@"; fi\n'
        f'exec {python} "$@"\n'
    )
    file.chmod(0o755)
    return str(file)


if __name__ == "__main__":
    sys.path = [path for path in sys.path if not path.endswith(".zip")]
    sys.path_importer_cache.clear()
    if sys.argv[1:] == ["pyspark.worker"]:  # others are asked a few times only
        import pandas as pd  # noqa: F401
        import pyarrow as pa  # noqa: F401

        import spark_consumers.source
        import spark_consumers.spark.frames  # noqa: F401

        gc.collect()
        gc.freeze()  # a worker looks through the rest of it after each task
    runpy.run_module(DAEMON, run_name="__main__", alter_sys=True)
