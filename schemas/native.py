"""Whether a native module was built from the sources that stand beside it.

In a checkout the sources change by `git pull`, and the module only by a build.  A module of
older sources lacks what Python calls: it is treated as one that was not built.
"""

from __future__ import annotations

from pathlib import Path


class Outdated(ImportError):
    """The module is older than its sources."""


def check_built(package: str) -> None:
    """Raise Outdated where a source in the folder of `package` (its `__file__`) is newer.

    An installed package and a zip have no sources, and pass.
    """
    folder = Path(package).parent
    sources = [path for pattern in ("*.pyx", "*.pxi") for path in folder.glob(pattern)]
    built = [path.stat().st_mtime for path in folder.glob("_native.*so")]
    if built and sources and max(path.stat().st_mtime for path in sources) > max(built):
        raise Outdated(f"{folder} was changed after it was built: `make native` builds it anew")
