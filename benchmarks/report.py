"""What a benchmark says: a table on the terminal, the same in a document, and a plot as SVG.

`--write docs/performance.md` replaces what stands between the two comments of a benchmark:

    <!-- begin drain -->  …  <!-- end drain -->
"""

# ruff: noqa: INP001  not a package

from __future__ import annotations

import argparse
import math
import os
import platform
import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.table import Table as Printed

from gauss_cdc.runtime import jars
from schemas.version import VERSION

_COLOURS: Final = ("#4878a8", "#e0803c", "#5a9e5a", "#b05050", "#8068a8", "#808080")


@dataclass(frozen=True)
class Bars:
    """A plot of one value per name."""

    title: str
    values: Mapping[str, float]


@dataclass(frozen=True)
class Lines:
    """A plot of points (x, y) per name; both axes are logarithmic where their range is wide."""

    title: str
    x: str
    series: Mapping[str, Sequence[tuple[float, float]]]


@dataclass
class Report:
    """Tables and plots of one benchmark."""

    name: str
    notes: list[str] = field(default_factory=list)
    tables: list[tuple[str, list[str], list[list[str]]]] = field(default_factory=list)
    plots: list[Bars | Lines] = field(default_factory=list)

    def table(
        self, title: str, head: list[str], rows: list[list[str]], *, is_written: bool = True
    ) -> None:
        """Print a table, and add it to what a document gets."""
        if is_written:
            self.tables.append((title, head, rows))
        printed = Printed(title=title, title_justify="left")
        for at, name in enumerate(head):
            printed.add_column(name, justify="right" if at else "left")
        for row in rows:
            printed.add_row(*row)
        wide = None if sys.stdout.isatty() else 160
        Console(width=wide).print(printed)

    def note(self, text: str, *, is_written: bool = True) -> None:
        """Print a sentence, and add it to what a document gets."""
        if is_written:
            self.notes.append(text)
        Console(width=None if sys.stdout.isatty() else 160).print(text, markup=False)

    def write(self, document: Path) -> None:
        """Put tables and plots into a document; plots are files in a folder of its name.

        What they were measured on is said where the document does not say it for all.  A column
        that says nothing is left out.
        """
        folder = document.with_suffix("")
        old = document.read_text("utf-8")
        where = "" if machine() in " ".join(old.split()) else f" on {machine()}"
        parts = [f"`{_command()}`{where}", *self.notes]
        for title, head, rows in self.tables:
            told = [at for at in range(len(head)) if any(row[at] != "–" for row in rows)]
            lines = [head, ["---"] * len(head), *rows]
            text = "\n".join(f"| {' | '.join(line[at] for at in told)} |" for line in lines)
            parts.append(f"{title}:\n\n{text}")
        for number, plot in enumerate(self.plots, 1):
            folder.mkdir(exist_ok=True)
            file = folder / f"{self.name}{number if len(self.plots) > 1 else ''}.svg"
            file.write_text(svg(plot), "utf-8")
            parts.append(f"![{plot.title}]({folder.name}/{file.name})")
        mark = re.compile(rf"(<!-- begin {self.name} -->\n).*(<!-- end {self.name} -->)", re.DOTALL)
        body = "\n".join(part + "\n" for part in parts)
        new, found = mark.subn(lambda m: f"{m[1]}\n{body}\n{m[2]}", old)
        if not found:
            raise SystemExit(f"{document} has no place for {self.name}: <!-- begin {self.name} -->")
        document.write_text(new, "utf-8")


def parser(text: str) -> argparse.ArgumentParser:
    """Options that every benchmark has; `text` is its docstring."""
    made = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--quick", action="store_true", help="under a minute: does it work?")
    made.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a setting of gauss-cdc, as kafka.group-rows=5000; repeat it",
    )
    made.add_argument("--write", type=Path, metavar="FILE", help="the document to write into")
    return made


def finish(report: Report, given: argparse.Namespace) -> None:
    """Write the document where that was asked for."""
    if given.set:
        report.note(f"Settings beside the defaults: {', '.join(given.set)}.")
    if given.write is not None:
        report.write(given.write)


def machine() -> str:
    """What the figures belong to."""
    kafka = next(a.version for a in jars.lock("kafka") if a.artifact.startswith("kafka-clients"))
    return (
        f"{os.cpu_count()} cores shared by everything ({platform.machine()}), "
        f"Python {platform.python_version()}, Kafka {kafka}, gauss-cdc {VERSION}"
    )


def _command() -> str:
    words = [Path(sys.argv[0]).name, *sys.argv[1:]]
    if "--write" in words:
        at = words.index("--write")
        del words[at : at + 2]
    return f"python benchmarks/{shlex.join(words)}"


def ratio(value: float, base: float | None) -> str:
    """A ratio with two digits that count; a dash where there is nothing to compare with.

    What is less than nothing is noise of a difference, and compares with nothing.
    """
    return f"{value / base:.2f}×" if base and min(value, base) >= 0 else "–"


def number(value: float) -> str:
    """Three digits that count.

    >>> number(1234.5), number(12.345), number(0.12345)
    ('1,234', '12.3', '0.12')
    """
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


# ---------------------------------------------------------------- plots
def svg(plot: Bars | Lines) -> str:
    """Draw a plot; it is readable on a white and on a dark page."""
    return _bars(plot) if isinstance(plot, Bars) else _lines(plot)


def _page(width: float, height: float, title: str, parts: Sequence[str]) -> str:
    head = f'viewBox="0 0 {width:g} {height:g}" width="{width:g}"'
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" {head} font-family="sans-serif">',
            f'<rect width="{width:g}" height="{height:g}" fill="white"/>',
            _label(width / 2, 18, title, "middle", size=14),
            *parts,
            "</svg>\n",
        ]
    )


def _label(x: float, y: float, text: str, anchor: str = "start", *, size: int = 12) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">'
        f"{escape(text)}</text>"
    )


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'
    )


def _bars(plot: Bars) -> str:
    left, width, line = 210.0, 640.0, 24.0
    most = max(plot.values.values(), default=1) or 1
    parts = []
    for at, (name, value) in enumerate(plot.values.items()):
        y, length = 34 + at * line, value / most * (width - left - 70)
        parts += [
            _label(left - 8, y + 14, name, "end"),
            _box(left, y, length, line - 6, _COLOURS[0]),
            _label(left + length + 6, y + 14, number(value)),
        ]
    return _page(width, 44 + line * len(plot.values), plot.title, parts)


def _lines(plot: Lines) -> str:
    width, height, left, top, right, bottom = 640.0, 360.0, 70.0, 34.0, 20.0, 60.0
    points = [point for series in plot.series.values() for point in series]
    across, up = _Axis([x for x, _ in points]), _Axis([0.0, *(y for _, y in points)])
    parts = []

    def place(x: float, y: float) -> tuple[float, float]:
        return (
            left + across.share(x) * (width - left - right),
            height - bottom - up.share(y) * (height - top - bottom),
        )

    for tick in up.ticks:
        _, y = place(across.low, tick)
        parts.append(
            f'<line x1="{left:g}" x2="{width - right:g}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        )
        parts.append(_label(left - 6, y + 4, f"{tick:,g}", "end"))
    for tick in across.ticks:
        x, _ = place(tick, up.low)
        parts.append(_label(x, height - bottom + 16, f"{tick:,g}", "middle"))
    parts.append(_label(width / 2, height - 26, plot.x, "middle"))
    for at, (name, series) in enumerate(plot.series.items()):
        colour = _COLOURS[at % len(_COLOURS)]
        path = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in series)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in series:
            cx, cy = place(x, y)
            parts.append(f'<circle cx="{cx:.1f}" cy="{cy:.1f}" r="3" fill="{colour}"/>')
        x = left + at * (width - left) / len(plot.series)
        parts.append(_box(x, height - 16, 10, 10, colour))
        parts.append(_label(x + 14, height - 7, name))
    return _page(width, height, plot.title, parts)


class _Axis:
    """A range of values: logarithmic if all are positive and the largest is far above."""

    def __init__(self, found: Sequence[float]) -> None:
        self.low, self.high = min(found), max(found)
        self.is_log = self.low > 0 and self.high / self.low > 30
        if self.high == self.low:
            self.high += 1
        if self.is_log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            self.ticks = [10.0**n for n in range(first, last + 1) if self.low <= 10**n <= self.high]
        else:
            step = 10 ** math.floor(math.log10(self.high - self.low))
            while (self.high - self.low) / step < 4:
                step /= 2
            first = math.ceil(self.low / step)
            self.ticks = [n * step for n in range(first, math.floor(self.high / step) + 1)]

    def share(self, value: float) -> float:
        """How far from the low to the high end a value lies, 0 to 1."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)
