"""A plugin of pytest: the native modules call the librdkafka of another wheel (`make librdkafka`).

Only the library is another one.  Confluent's Python stays the pinned one, with which the tests
write, read and compare.
"""

import ctypes
import os
from pathlib import Path

from confluent_kafka import cimpl

[_MODULE] = Path(os.environ["GAUSS_CDC_WHEEL"], "confluent_kafka").glob("cimpl.*.so")
cimpl.__file__ = str(_MODULE)  # where the product looks for it


def pytest_report_header() -> str:
    version = ctypes.CDLL(cimpl.__file__).rd_kafka_version_str
    version.restype = ctypes.c_char_p
    return f"the native modules call librdkafka {version().decode()}"
