"""The native module of gauss-cdc, where the same release of it is installed beside the reader.

Only modules of the wheel import this; in the tree they find theirs.  An ImportError means, as
everywhere, that all is done in Python.
"""

from importlib.metadata import version  # what it raises is an ImportError

from spark_consumers import native

if version("gauss-cdc") != version("gauss-cdc-reader") or not native.IS_BUILT:
    raise ImportError("another release of gauss-cdc, or one without its native module")
_native = native._native  # noqa: SLF001
