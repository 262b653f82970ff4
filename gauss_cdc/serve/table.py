"""Every metric once: its kind, its words, its labels, who serves it, and which alarm it raises.

Reference, rules of Prometheus and dashboard are made from this table, and `doctor` judges by it.
Names stay: dashboards of others have them.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

PREFIX: Final = "gauss_cdc_"
STATUS: Final = "status --serve"
RUN: Final = "run"
APPLY: Final = "apply"

_FAMILIES: Final = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_COMMON: Final = ("source",)  # labels of all: the prefix
# The series of a program that ended, or that nobody can scrape, end: what was there within a day.
_GONE: Final = (
    "count by (source, program) (last_over_time({}[1d])) unless count by (source, program) ({})"
)
# A counter of a table begins with its first error: at 1, which is no increase.
_COUNTED_OR_BORN: Final = (
    "increase({}[15m]) > 0 or ({} > 0 unless {} offset 15m)"
    " and on (source, job, instance) gauss_cdc_build_info offset 15m"
)
_NOW: Final = re.compile(
    r"\{\} (==|<|>) (\d+)(?: unless on \(source\) gauss_cdc_(\w+))?(?: and \{\} < gauss_cdc_(\w+))?"
)
_HOLDS: Final[dict[str, Callable[[float, float], bool]]] = {
    "==": operator.eq,
    "<": operator.lt,
    ">": operator.gt,
}


class Measured(NamedTuple):
    """One metric; a value that is not known is left out."""

    name: str  # after gauss_cdc_
    kind: str
    meaning: str
    by: tuple[str, ...]
    labels: tuple[str, ...] = ()
    alarm: str = ""  # a condition of PromQL, with {} for the name
    hold: str = ""  # for how long it must hold
    raises: str = ""  # the name of the alarm, in `alarms`

    def condition(self, name: str) -> str:
        """Write the alarm in PromQL, with another name for the metric."""
        return self.alarm.replace("{}", name)

    def is_alarming(self, value: float, beside: Mapping[str, float] = MappingProxyType({})) -> bool:
        """Judge one value; of what only counts up, a single value says nothing.

        `beside`: the other metrics that have values.
        """
        if (found := _NOW.fullmatch(self.alarm)) is None or found[3] in beside:
            return False
        if found[4] is not None and not value < beside.get(found[4], 0.0):
            return False
        return _HOLDS[found[1]](value, float(found[2]))


_ALL: Final = (
    Measured("up", "gauge", "1 if every place answered", (STATUS,)),
    Measured(
        *("place_up", "gauge", "1 if the place answered: source, kafka, registry, target"),
        *((STATUS, RUN), ("place",)),
        alarm="{} == 0",
        hold="5m",
        raises="CdcPlaceDown",
    ),
    Measured(
        *("build_info", "gauge", "1; the version is a label", (STATUS, RUN, APPLY)),
        labels=("program", "version"),
        alarm=_GONE,
        hold="5m",
        raises="CdcProgramGone",
    ),
    Measured(
        *("ready", "gauge", "1 while `/readyz` is 200", (RUN, APPLY)),
        alarm='{} == 0 unless ignoring (state) gauss_cdc_state{state="loading"}',
        hold="15m",
        raises="CdcNotReady",
    ),
    Measured("state", "gauge", "1; the word of `/readyz` is a label", (RUN, APPLY), ("state",)),
    Measured(
        *("loop_age_seconds", "gauge", "Time since the program's loop turned last", (RUN, APPLY)),
        alarm="{} > 900",
        raises="CdcLoopStuck",
    ),
    Measured(
        "lag_commits",
        "gauge",
        "Source transactions in Kafka that the target does not hold",
        (STATUS,),
    ),
    Measured(
        "lag_bytes", "gauge", "Bytes of the source's log that are not in Kafka yet", (STATUS, RUN)
    ),
    Measured(
        "lag_csns",
        "gauge",
        "CSNs of the source that are not in Kafka yet, by a coordinator's enable-heartbeat",
        (STATUS, RUN),
    ),
    Measured(
        "lag_seconds",
        "gauge",
        "Age of the newest applied commit, or of the load; 0 where nothing is behind",
        (STATUS, APPLY),
        alarm="{} > 300",
        hold="5m",
        raises="CdcTargetBehind",
    ),
    Measured(
        "capture_lag_seconds",
        "gauge",
        "Age of the newest commit that was read while it is not durable in Kafka, else 0",
        (RUN,),
        alarm="{} > 300",
        hold="5m",
        raises="CdcCaptureBehind",
    ),
    Measured(
        "commit_to_kafka_seconds",
        "histogram",
        "From a commit until its cut is durable in Kafka; of what was read together, the newest",
        (RUN,),
    ),
    Measured(
        "commit_to_visible_seconds",
        "histogram",
        "From a commit until the target holds it; of what was applied together, the newest",
        (APPLY,),
    ),
    Measured(
        "retained_wal_bytes",
        "gauge",
        "Bytes of log that the source keeps for our slot",
        (STATUS, RUN),
    ),
    Measured(
        "safe_wal_bytes",
        "gauge",
        "Bytes of log until the source gives our slot up (max_slot_wal_keep_size); left out where "
        "nothing limits it",
        (STATUS, RUN),
    ),
    Measured(
        "slot_lost",
        "gauge",
        "1: the source gave our slot up; what it kept for us is gone",
        (STATUS, RUN),
        alarm="{} == 1",
        raises="CdcSlotLost",
    ),
    Measured(
        "wal_left_seconds",
        "gauge",
        "Time until the source gives our slot up, at this rate; left out while it is not nearer",
        (STATUS, RUN),
        alarm="{} < 14400",
        raises="CdcSlotEndsSoon",
    ),
    Measured(
        "slot_active",
        "gauge",
        "1 while a client streams from the slot; 0 in a first load, too",
        (STATUS, RUN),
        alarm="{} == 0 unless on (source) gauss_cdc_load_rows",
        hold="15m",
        raises="CdcProgramGone",
    ),
    Measured(
        "cuts_age_seconds",
        "gauge",
        "Age of the newest record of cuts; heartbeats keep it young",
        (STATUS, RUN),
        alarm="{} > 120",
        hold="5m",
        raises="CdcCaptureBehind",
    ),
    Measured(
        "clock_ahead_seconds",
        "gauge",
        "How far the clock of the newest record or commit is ahead of this machine's",
        (STATUS,),
        alarm="{} > 30",
        hold="5m",
        raises="CdcClocksDiffer",
    ),
    Measured(
        "foreign_cuts",
        "gauge",
        "Records of cuts since its newest STATE that are not ours",
        (STATUS,),
        alarm="{} > 0",
        raises="CdcForeignCuts",
    ),
    Measured(
        "epoch",
        "gauge",
        "Epoch of the newest record of cuts; of `apply`, of the target",
        (STATUS, RUN, APPLY),
    ),
    Measured("kafka_seq", "gauge", "Newest source transaction in Kafka", (STATUS, RUN)),
    Measured("read_rows_total", "counter", "Rows of commits that were read", (RUN,)),
    Measured("read_commits_total", "counter", "Commits that were read", (RUN,)),
    Measured(
        "retries_total",
        "counter",
        "Errors that passed by another attempt",
        (RUN, APPLY),
        alarm="increase({}[15m]) > 0",
        raises="CdcRetrying",
    ),
    Measured("takeovers_total", "counter", "Takeovers of the stream", (RUN,)),
    Measured(
        "tables",
        "gauge",
        "Tables by phase: PENDING, BEGIN, CHUNK, END of a load, GAP, LEFT; see `status`",
        (RUN,),
        labels=("state",),
    ),
    Measured(
        "table_gap",
        "gauge",
        "1: rows or values of the table were not sent",
        (RUN,),
        ("table",),
        alarm="{} == 1",
        hold="1h",
        raises="CdcTableInexact",
    ),
    Measured(
        "table_records_total",
        "counter",
        "Records of the table's commits in Kafka",
        (RUN,),
        ("table",),
    ),
    Measured(
        "table_bytes_total",
        "counter",
        "Bytes of the table's values, as they were read; what is sent again counts again",
        (RUN,),
        ("table",),
    ),
    Measured(
        "load_rows",
        "gauge",
        "Rows in Kafka of a table that is being loaded",
        (STATUS, RUN),
        ("table",),
    ),
    Measured(
        "load_left_seconds",
        "gauge",
        "Time until a table's load ends, by the source's estimate",
        (STATUS, RUN),
        ("table",),
    ),
    Measured("target_seq", "gauge", "Newest source transaction at the target", (STATUS, APPLY)),
    Measured(
        "target_exact",
        "gauge",
        "1 while the target equals the source at one commit",
        (STATUS, APPLY),
    ),
    Measured(
        "inexact_tables",
        "gauge",
        "Tables of the target that are not exact",
        (STATUS, APPLY),
        alarm="{} > 0",
        hold="1h",
        raises="CdcTableInexact",
    ),
    Measured(
        "table_inexact", "gauge", "1: the table is not exact at the target", (APPLY,), ("table",)
    ),
    Measured("applied_rows_total", "counter", "Rows that were applied", (APPLY,)),
    Measured("applied_commits_total", "counter", "Commits that were applied", (APPLY,)),
    Measured(
        "table_applied_total",
        "counter",
        "Records of the table that were applied, by who read them: driver, or Spark's tasks",
        (APPLY,),
        ("table", "way"),
    ),
    Measured(
        "table_errors_total",
        "counter",
        "Errors that named the table",
        (APPLY,),
        ("table",),
        alarm=_COUNTED_OR_BORN,
        raises="CdcTableRefused",
    ),
    Measured(
        "fence",
        "gauge",
        "Number of the applier that holds the target: each takeover adds one",
        (APPLY,),
    ),
    Measured(
        "retention_left_seconds",
        "gauge",
        "Time until Kafka deletes what the target lacks, by [kafka] retention, not the topics' "
        "own; left out where it lacks nothing",
        (STATUS, APPLY),
        alarm="{} < 86400 and {} < gauss_cdc_lag_seconds",  # half of it is over
        hold="5m",
        raises="CdcRetentionNear",
    ),
    Measured("other_tables", "gauge", "Tables that are summed as table `other`", (RUN, APPLY)),
    Measured(
        "overwritten_rows",
        "gauge",
        "Rows of others at the target that `apply` overwrote in a table since its load",
        (STATUS,),
        ("table",),
        alarm="{} > 0",
        raises="CdcRowsOfOthers",
    ),
    Measured(
        "missing_rows",
        "gauge",
        "Rows that `apply` was to change or delete and did not find there",
        (STATUS,),
        ("table",),
        alarm="{} > 0",
        raises="CdcRowsOfOthers",
    ),
)
METRICS: Final = {one.name: one for one in _ALL}


def family(name: str) -> Metric:
    """Make a metric without values; its labels are `source`, and its own."""
    one = METRICS[name]
    kind = _FAMILIES[one.kind]
    made: Metric = kind(f"{PREFIX}{name}", one.meaning, labels=[*_COMMON, *one.labels])
    return made
