"""What the charts of the page draw: values of the last looks, and rates between them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from prometheus_client.samples import Sample

from gauss_cdc.inspect.places import ReplicationStatus
from gauss_cdc.serve.table import PREFIX

Values: TypeAlias = dict[str, float | None]
_LOOKS: Final = 900  # half an hour of one look in two seconds
# Name of a rate -> counter, and what it is divided by: seconds, or how often it was counted.
_RATES: Final[Mapping[str, tuple[str, str]]] = {
    "captured_rows": ("read_rows_total", ""),
    "applied_rows": ("applied_rows_total", ""),
    "to_kafka": ("commit_to_kafka_seconds_sum", "commit_to_kafka_seconds_count"),
    "to_visible": ("commit_to_visible_seconds_sum", "commit_to_visible_seconds_count"),
}
_COUNTERS: Final = frozenset({name for pair in _RATES.values() for name in pair if name})
OF_TARGET: Final = ("lag_seconds", "lag_commits", "applied")
NAMES: Final = (*OF_TARGET, "lag_bytes", "captured", *_RATES)


class Series:
    """The values of each look, oldest first; None: not known then."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Values]] = deque(maxlen=_LOOKS)
        self._before: tuple[float, Values] | None = None

    def add(self, at: float, standing: ReplicationStatus, samples: Iterable[Sample]) -> None:
        """Take a look of `at`, seconds since 1970; `samples`: of all programs."""
        counted = _counted(standing, samples)
        before, self._before = self._before, (at, counted)
        values: Values = {"lag_bytes": standing.bytes_behind}
        for one in standing.each:
            values[f"lag_seconds{_of(one, standing)}"] = one.seconds_behind
            values[f"lag_commits{_of(one, standing)}"] = one.commits_behind
        if before is not None:
            seconds, was = at - before[0], before[1]
            values["captured"] = _rate(was, counted, "seq", seconds)
            for name in (f"applied{_of(one, standing)}" for one in standing.each):
                values[name] = _rate(was, counted, name, seconds)
            for name, (counter, per) in _RATES.items():
                often = seconds if not per else (_rate(was, counted, per, 1.0) or 0.0)
                values[name] = _rate(was, counted, counter, often)
        self._looks.append((at, values))

    def as_json(self) -> dict[str, list[float | None]]:
        """By name, with the time of each look as `at`.

        Of several targets each has its own of `OF_TARGET`, as `lag_seconds:NAME`.
        """
        looks = list(self._looks)
        out: dict[str, list[float | None]] = {"at": [round(at, 1) for at, _ in looks]}
        names = dict.fromkeys([*NAMES, *(name for _, values in looks[-1:] for name in values)])
        return out | {name: [_short(values.get(name)) for _, values in looks] for name in names}


def _counted(standing: ReplicationStatus, samples: Iterable[Sample]) -> Values:
    """Sum what counts up; the number of a commit does, too, as long as its epoch lasts."""
    out: Values = {}
    for sample in samples:
        if (name := sample.name.removeprefix(PREFIX)) in _COUNTERS:
            out[name] = (out.get(name) or 0.0) + sample.value
    if (cuts := standing.cuts) is not None:
        out["seq"] = cuts.seq
        for one in standing.each:
            if one.target is not None and one.target.epoch == cuts.epoch:
                out[f"applied{_of(one, standing)}"] = one.target.seq
    return out


def _of(one: ReplicationStatus, standing: ReplicationStatus) -> str:
    """What the names of a target's values end with, where there are several."""
    return f":{one.name}" if standing.others else ""


def _rate(was: Values, now: Values, name: str, per: float) -> float | None:
    """How much more for each; None: not known, or counted anew since."""
    first, last = was.get(name), now.get(name)
    if first is None or last is None or last < first or per <= 0:
        return None
    return (last - first) / per


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
