"""The figures at the end, for people and for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from rich.console import Console
from rich.table import Table

_MOST: Final = 12  # numbers in one line


@dataclass(slots=True)
class Report:
    """What a play found."""

    workload: str
    seed: int
    seconds: float = 0.0
    load_seconds: float = 0.0
    catch_up_seconds: float = 0.0
    commits: int = 0  # by the sessions
    rows: int = 0
    rollbacks: int = 0
    again: int = 0
    seq: int = 0  # source transactions with rows, in Kafka
    epochs: int = 0
    takeovers: int = 0
    records: int = 0
    cuts: int = 0
    table_rows: dict[str, int] = field(default_factory=dict)
    kills: list[str] = field(default_factory=list)
    kills_by_step: dict[str, int] = field(default_factory=dict)
    samples: int = 0
    sampled: int = 0  # commits that they showed
    asked_again: int = 0  # commits at which a lake was asked at the end
    not_exact: int = 0  # samples while a table with a gap was read again
    samples_between: list[int] = field(default_factory=list)
    lag_p50: float = 0.0
    lag_p99: float = 0.0
    lag_max: float = 0.0
    standstill_max: float = 0.0
    differences: list[str] = field(default_factory=list)  # of any kind: rows, sums, cuts
    is_complete: bool = False

    @property
    def is_equal(self) -> bool:
        """Everything was looked at, and nothing differs."""
        return self.is_complete and not self.differences

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {**asdict(self), "equal": self.is_equal}

    def show(self, console: Console) -> None:
        """Print the table of figures."""
        table = Table(title=f"{self.workload}, seed {self.seed}", show_header=False)
        between = ", ".join(map(str, self.samples_between))
        if len(self.samples_between) > _MOST:
            between = f"{min(self.samples_between)} or more"
        steps = "\n".join(f"{count} × {name}" for name, count in self.kills_by_step.items())
        rate = f"{self._rate(self.commits):,.0f} commits/s, {self._rate(self.rows):,.0f} rows/s"
        lag = f"p50 {self.lag_p50:.2f} s, p99 {self.lag_p99:.2f} s, greatest {self.lag_max:.1f} s"
        still = f"{self.standstill_max:.1f} s"
        rows = {
            "source transactions": f"{self.seq:,}; {self.rollbacks + self.again:,} rolled back",
            "load": f"{rate} for {self.load_seconds:.0f} s",
            "in Kafka": f"{self.records:,} rows and DDL, {self.cuts:,} cuts, {self.takeovers}"
            " takeovers; every offset checked",
            "kills": steps or "none",
            "samples of the target": f"{self.samples:,}, at {self.sampled:,} commits;"
            f" between kills: {between}"
            + f"; {self.not_exact:,} more while a table was marked"
            * bool(self.not_exact),
            "age of its newest commit": f"{lag}; never stood still longer than {still}",
            "rows compared": ", ".join(f"{n} {c:,}" for n, c in self.table_rows.items()),
            "caught up": f"{self.catch_up_seconds:.1f} s after the last commit",
            "in all": f"{self.seconds:.0f} s",
            "target equals source": "[bold green]yes[/]" if self.is_equal else "[bold red]NO[/]",
        }
        for name, value in rows.items():
            table.add_row(name, value)
        console.print(table)

    def _rate(self, count: int) -> float:
        return count / self.load_seconds if self.load_seconds else 0.0


def quantile(values: Sequence[float], part: float) -> float:
    """The value below which this part of all lies; 0 of nothing.

    >>> quantile([4, 1, 3, 2], 0.5)
    3
    """
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))] if ordered else 0.0
