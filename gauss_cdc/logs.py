"""Logs on stderr: one format for a command and its libraries.

Text is for people: `2026-11-22T03:25:04.123+00:00 INFO  gauss_cdc.run: streaming from=0/1A2B3C`.
JSON is for programs: one object a line, with `time`, `level`, `logger`, `message` and the
context's keys. A command that ends soon writes plain text without time, as other tools do.

Foreign text (names of tables and columns, messages of servers) may contain line ends and
terminal escapes: these are escaped, so that no record can imitate another one or control a
terminal.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from collections import deque
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final, TextIO

LEVELS: Final = ("debug", "info", "warning", "error")

LIBRDKAFKA: Final = "librdkafka"
SPARK: Final = "spark"
_OURS: Final = ("gauss_cdc", "producer", "spark_consumers", LIBRDKAFKA, SPARK)
_CONTEXT: Final = "context"
_PLAIN: Final = (str, int, float, bool, type(None))
_WINDOW: Final = 30.0  # seconds in which a line that repeats is written once
_NEWEST: Final = 200  # lines that are kept
_KEYS: Final = 200  # different lines that are counted at the same time
# The varying parts of equal lines of librdkafka.
_VARIES: Final = re.compile(
    r"\[rdkafka#[^\]]*\](?: \[thrd:[^\]]*\])?: | \(after \d+ms in state [^)]*\)"
)


def printable(text: str) -> str:
    r"""Escape control characters, line ends, and what is not seen: marks of direction, odd blanks.

    >>> printable("a\nb\x1b[2Jc"), printable("a\u200f\u00a0b")
    ('a\\nb\\x1b[2Jc', 'a\\u200f\\xa0b')
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )


def log(logger: logging.Logger, level: int, message: str, /, **context: object) -> None:
    """Write one record; the context is separate from the message, numbers as numbers."""
    plain = {
        name: value if type(value) in _PLAIN else str(value) for name, value in context.items()
    }
    logger.log(level, "%s", message, extra={_CONTEXT: plain})


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


def _context(record: logging.LogRecord) -> dict[str, object]:
    found: dict[str, object] = getattr(record, _CONTEXT, {})
    return found


class _TextFormat(logging.Formatter):
    """Time with zone, level, logger, message, key=value."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{_time(record)} {record.levelname:<7} {record.name}: {self.body(record)}"

    def body(self, record: logging.LogRecord) -> str:
        """The message with its context; further lines are indented, so that none looks new."""
        lines = self.words(record).split("\n")
        if record.exc_info:
            lines += self.formatException(record.exc_info).split("\n")
        return "\n    ".join(map(printable, lines))

    def words(self, record: logging.LogRecord) -> str:
        """The message and its context."""
        context = (f"{name}={_shown(value)}" for name, value in _context(record).items())
        return " ".join([record.getMessage(), *context])


class _Plain(_TextFormat):
    """For a command that ends soon: what a tool of a shell writes."""

    def __init__(self, *, is_red: bool) -> None:
        super().__init__()
        self._is_red = is_red

    def words(self, record: logging.LogRecord) -> str:
        return record.getMessage()  # the shell reports the exit code

    def format(self, record: logging.LogRecord) -> str:
        text = self.body(record)
        if record.levelno < logging.ERROR:
            return text
        text = f"{LIBRDKAFKA if record.name == LIBRDKAFKA else 'gauss-cdc'}: {text}"
        return f"\x1b[31m{text}\x1b[0m" if self._is_red else text


class _JsonFormat(logging.Formatter):
    """One object a line."""

    def format(self, record: logging.LogRecord) -> str:
        out: dict[str, object] = {
            "time": _time(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for name, value in _context(record).items():
            out[f"{name}_" if name in out else name] = value
        if record.exc_info:
            out["traceback"] = self.formatException(record.exc_info)
        return json.dumps(out)


def _shown(value: object) -> str:
    """A value of key=value: quoted where a blank or a quote would end it.

    >>> _shown("a b"), _shown(1.5), _shown("")
    ('"a b"', '1.5', '""')
    """
    text = str(value)
    return text if re.fullmatch(r'[^\s"=]+', text) else json.dumps(text, ensure_ascii=False)


class Limit(logging.Filter):
    """Writes a line that repeats once in a window, then how often it came.

    librdkafka reports dozens of times a second that a broker is down.
    """

    def __init__(
        self, seconds: float = _WINDOW, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._seconds, self._clock = seconds, clock
        self._seen: dict[str, tuple[float, int]] = {}  # text -> window's begin, lines left out

    def filter(self, record: logging.LogRecord) -> bool:
        """Return False for a line that came within the window.

        Else True, and the record's text says how often it was left out.  Handles, threads and times
        of librdkafka do not make a line another one.
        """
        text = _VARIES.sub("", record.getMessage())
        now = self._clock()
        since, left_out = self._seen.pop(text, (-self._seconds, 0))
        if now - since < self._seconds:
            self._seen[text] = since, left_out + 1
            return False
        if len(self._seen) >= _KEYS:
            del self._seen[next(iter(self._seen))]
        self._seen[text] = now, 0
        if left_out:
            text = f"{text} ({left_out + 1} times in {now - since:.0f} s)"
        record.msg, record.args = text, None
        return True


class _Stderr(logging.StreamHandler[TextIO]):
    """Writes to the current `sys.stderr`: tests and pytest replace it."""

    def __init__(self) -> None:
        logging.Handler.__init__(self)

    @property
    def stream(self) -> TextIO:
        return sys.stderr

    @stream.setter
    def stream(self, _: TextIO) -> None:
        pass


class _OfTarget(logging.Filter):
    """Adds of which target's `apply` a line is, where several write to one log."""

    def filter(self, record: logging.LogRecord) -> bool:
        if target := _asked["target"]:
            setattr(record, _CONTEXT, {"target": target, **_context(record)})
        return True


class _Newest(logging.Handler):
    """Keeps the newest lines, for who asks by [serve]."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(_TextFormat())
        self.lines: deque[str] = deque(maxlen=_NEWEST)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


_handler: Final = _Stderr()
_newest: Final = _Newest()
_limit: Final = Limit()
_asked: dict[str, Any] = {"level": None, "format": "text", "target": ""}
_handler.addFilter(_OfTarget())


def set_up(*, level: str | None = None, format: str | None = None) -> None:  # noqa: A002
    """Log to stderr; None keeps a setting, or its default: warnings, as plain text."""
    _asked.update({k: v for k, v in (("level", level), ("format", format)) if v is not None})
    _apply(_asked["level"] or "warning", timed=False)


def reset() -> None:
    """Restore the defaults: a process may run several commands, one after the other."""
    _asked.update(level=None, format="text", target="")


def of_service(target: str = "") -> None:
    """Log as a command does that runs for weeks: with time, and from level info on.

    `target`: each line names it.
    """
    _asked["target"] = target
    _apply(_asked["level"] or "info", timed=True)
    if _newest not in (root := logging.getLogger()).handlers:
        root.addHandler(_newest)


def newest() -> list[str]:
    """Return the newest lines of a service's log, the oldest of them first."""
    return list(_newest.lines)


def is_json() -> bool:
    """Say whether stderr holds JSON, and nothing else."""
    return bool(_asked["format"] == "json")


def _apply(level: str, *, timed: bool) -> None:
    if is_json():
        _handler.setFormatter(_JsonFormat())
    elif timed:
        _handler.setFormatter(_TextFormat())
    else:
        _handler.setFormatter(_Plain(is_red=sys.stderr.isatty()))
    root = logging.getLogger()
    if _handler not in root.handlers:
        root.addHandler(_handler)
    number = logging.getLevelNamesMapping()[level.upper()]
    # Other libraries log their internals at level info; their retries are warnings.
    root.setLevel(max(number, logging.WARNING))
    for name in _OURS:
        logging.getLogger(name).setLevel(number)
    librdkafka = logging.getLogger(LIBRDKAFKA)
    if _limit not in librdkafka.filters:
        librdkafka.addFilter(_limit)
