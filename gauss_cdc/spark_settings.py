"""The Spark settings of `apply`, and who may set them.

    ours, the target's  <  [spark.options]
        <  spark-submit --conf, spark-defaults.conf, a session that runs

The later one wins: our settings fill only what nobody has set.  None of them is needed for
exactness: the target's ledger and the counts of rows decide, whatever Spark does.  Settings with
which a write reports a success that did not happen, or a value becomes another one, are refused by
name (`REFUSED`).  The pattern
that hides secrets is extended, never replaced, and extensions of SQL add up: a lake needs its own
beside those of the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gauss_cdc.errors import ConfigError

_CHECKPOINTS: Final = (
    "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
)
_REDACTION: Final = "spark.redaction.regex"
# Spark prints the options of its sources; these hold secrets, in addition to its own pattern.
_REDACTED: Final = "(?i)secret|password|token|access[.]?key|jaas[.]config|keystore[.]key"
_EXECUTORS_JAVA: Final = "spark.executor.extraJavaOptions"
_EXTENSIONS: Final = "spark.sql.extensions"

# Each one was measured.
_DEFAULTS: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # More consumers than this in one executor thrash: above the number of partitions.
    "spark.kafka.consumer.cache.capacity": "256",
    "spark.sql.session.timeZone": "UTC",
    _REDACTION: _REDACTED,
    "spark.log.level": "ERROR",
    "spark.ui.showConsoleProgress": "false",
}
_LOCAL_DEFAULTS: Final = {
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}

# A lake skips a write whose version it knows, or puts it where nobody reads: both say "done".
_FOR_ALL_WRITES: Final = "it would hold for every write of the session, and these report success"
# Name -> values that do no harm, and what another one does.
REFUSED: Final[Mapping[str, tuple[tuple[str, ...], str]]] = {
    "spark.databricks.delta.write.txnAppId": ((), _FOR_ALL_WRITES),
    "spark.databricks.delta.write.txnVersion": ((), _FOR_ALL_WRITES),
    "spark.wap.id": ((), _FOR_ALL_WRITES),
    "spark.wap.branch": ((), _FOR_ALL_WRITES),
    "spark.sql.avro.datetimeRebaseModeInRead": (
        ("CORRECTED", "EXCEPTION"),
        "days before 1582 would be others",
    ),
    "spark.sql.parser.escapedStringLiterals": (
        ("false",),
        "texts with a backslash or a quote would be others, or end before their end",
    ),
    "spark.sql.timestampType": (
        ("TIMESTAMP_LTZ",),
        "a timestamp with time zone would be stored as a local one",
    ),
}


def merged(
    options: Mapping[str, str],
    given: Mapping[str, str],
    *,
    is_local: bool,
    needed: Mapping[str, str],
    properties: Mapping[str, str],
) -> dict[str, str]:
    """Return all settings of a session; those of `given` are already Spark's.

    `options` are those of [spark.options]; `needed` those of the target; `properties` the system
    properties that executors need.  Merging twice changes nothing.  Raises ConfigError for a
    setting of REFUSED.
    """
    for name, (harmless, why) in REFUSED.items():
        for value in (layer[name] for layer in (options, given) if name in layer):
            if value.casefold() not in map(str.casefold, harmless):
                raise ConfigError(f"the Spark setting {name} breaks exactness: {why}; unset it")
    local = _LOCAL_DEFAULTS if is_local else {}
    out = {**_DEFAULTS, **local, **needed, **options, **given}
    if _REDACTED not in out[_REDACTION]:
        out[_REDACTION] = f"{_REDACTED}|(?-i:{out[_REDACTION]})"
    said = ",".join(layer.get(_EXTENSIONS, "") for layer in (given, options, needed))
    if names := dict.fromkeys(name.strip() for name in said.split(",") if name.strip()):
        out[_EXTENSIONS] = ",".join(names)
    flags = (f"-D{name}={value}" for name, value in properties.items())
    java = out.get(_EXECUTORS_JAVA, "")
    if missing := [flag for flag in flags if flag not in java.split()]:
        out[_EXECUTORS_JAVA] = " ".join(filter(None, [java, *missing]))
    return out


def in_file(path: Path) -> dict[str, str]:
    """Return the settings of a spark-defaults.conf; none where there is no such file.

    Spark reads it by itself; this is for what has to be known before.
    """
    try:
        lines = path.read_text("utf-8").splitlines()
    except FileNotFoundError:
        return {}
    return dict(found for line in lines if (found := _setting(line)) is not None)


def _setting(line: str) -> tuple[str, str] | None:
    r"""Read a line of Java's properties, as far as Spark's files use them.

    >>> _setting("spark.master  local[2] "), _setting("a=b c"), _setting("# note")
    (('spark.master', 'local[2]'), ('a', 'b c'), None)
    """
    found = re.fullmatch(r"\s*([^#!\s=:][^\s=:]*)(?:\s*[=:]\s*|\s+|$)(.*)", line)
    return (found[1], found[2].strip()) if found is not None else None
