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
NAMES: Final = ("lag_seconds", "lag_commits", "lag_bytes", "captured", "applied", *_RATES)


class Series:
    """The values of each look, oldest first; None: not known then."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, Values]] = deque(maxlen=_LOOKS)
        self._before: tuple[float, Values] | None = None

    def add(self, at: float, standing: ReplicationStatus, samples: Iterable[Sample]) -> None:
        """Take a look of `at`, seconds since 1970; `samples`: of all programs."""
        counted = _counted(standing, samples)
        before, self._before = self._before, (at, counted)
        values: Values = {
            "lag_seconds": standing.seconds_behind,
            "lag_commits": standing.commits_behind,
            "lag_bytes": standing.bytes_behind,
        }
        if before is not None:
            seconds, was = at - before[0], before[1]
            values["captured"] = _rate(was, counted, "seq", seconds)
            values["applied"] = _rate(was, counted, "applied_seq", seconds)
            for name, (counter, per) in _RATES.items():
                often = seconds if not per else (_rate(was, counted, per, 1.0) or 0.0)
                values[name] = _rate(was, counted, counter, often)
        self._looks.append((at, values))

    def as_json(self) -> dict[str, list[float | None]]:
        """By name, with the time of each look as `at`."""
        looks = list(self._looks)
        out: dict[str, list[float | None]] = {"at": [round(at, 1) for at, _ in looks]}
        return out | {name: [_short(values.get(name)) for _, values in looks] for name in NAMES}


def _counted(standing: ReplicationStatus, samples: Iterable[Sample]) -> Values:
    """Sum what counts up; the number of a commit does, too, as long as its epoch lasts."""
    out: Values = {}
    for sample in samples:
        if (name := sample.name.removeprefix(PREFIX)) in _COUNTERS:
            out[name] = (out.get(name) or 0.0) + sample.value
    if (cuts := standing.cuts) is not None:
        out["seq"] = cuts.seq
        if standing.target is not None and standing.target.epoch == cuts.epoch:
            out["applied_seq"] = standing.target.seq
    return out


def _rate(was: Values, now: Values, name: str, per: float) -> float | None:
    """How much more for each; None: not known, or counted anew since."""
    first, last = was.get(name), now.get(name)
    if first is None or last is None or last < first or per <= 0:
        return None
    return (last - first) / per


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
