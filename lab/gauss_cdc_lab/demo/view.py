"""What a person sees meanwhile: a small table that refreshes, or plain lines in a log."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

_PLAIN_SECONDS: Final = 5.0
_RATE_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class DemoState:
    """Everything at one moment."""

    stage: str
    commits: int = 0
    rows: int = 0
    in_kafka: int = 0
    at_target: int = 0
    lag_seconds: float = 0.0
    samples: int = 0
    broken: int = 0
    kills: int = 0
    of_kills: int = 0
    run: str = ""
    apply: str = ""


class View:
    """Shows looks and says sentences, on a terminal or into a log."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._history: deque[tuple[float, DemoState]] = deque()
        self._plain_at = 0.0
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live = Live(console=self._console, refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def say(self, text: str, style: str = "") -> None:
        """One sentence that stays."""
        stamp = f"{time.monotonic() - self._began:6.1f} s  "
        self._console.print(
            f"[dim]{stamp}[/]{escape(text)}", style=style, highlight=False, soft_wrap=True
        )

    def show(self, look: DemoState) -> None:
        """Refresh what changes."""
        now = time.monotonic()
        self._history.append((now, look))
        while now - self._history[0][0] > _RATE_SECONDS:
            self._history.popleft()
        if self._live is not None:
            self._live.update(self._table(look))
        elif now - self._plain_at > _PLAIN_SECONDS:
            self._plain_at = now
            self.say(self._line(look))

    def _rates(self) -> tuple[float, float]:
        (then, old), (now, new) = self._history[0], self._history[-1]
        seconds = max(now - then, 0.001)
        return (new.commits - old.commits) / seconds, (new.rows - old.rows) / seconds

    def _line(self, look: DemoState) -> str:
        commits, rows = self._rates()
        return (
            f"{look.stage}: source {commits:.0f} commits/s {rows:.0f} rows/s; commit"
            f" {look.in_kafka} in Kafka, {look.at_target} at the target, lag"
            f" {max(0, look.in_kafka - look.at_target)} commits {look.lag_seconds:.2f} s;"
            f" kills {look.kills}/{look.of_kills}; {look.samples} samples, {look.broken} broken"
        )

    def _table(self, look: DemoState) -> Group:
        commits, rows = self._rates()
        table = Table.grid(padding=(0, 2))
        table.add_row("source", f"{commits:.0f} commits/s", f"{rows:.0f} rows/s", "")
        table.add_row("Kafka", f"commit {look.in_kafka}", "", f"[dim]{escape(look.run)}[/]")
        table.add_row(
            "target",
            f"commit {look.at_target}",
            f"lag {max(0, look.in_kafka - look.at_target)} commits, {look.lag_seconds:.2f} s",
            f"[dim]{escape(look.apply)}[/]",
        )
        table.add_row(
            "kills", f"{look.kills} of {look.of_kills}", f"{look.samples} samples",
            f"{look.broken} broken",
        )  # fmt: skip
        return Group(Text(f"── {look.stage}", style="bold"), table)
