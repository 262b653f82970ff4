"""The replication command language: text in, one command out.

A statement whose first word is none of ours is `Sql`.  Keywords know no case;
bare identifiers are folded to lower case, quoted ones kept; literals are SQL's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from gauss_cdc_lab.emulator.frames import ErrorResponse
from schemas.positions import Lsn, parse_lsn

LONGEST_NAME: Final = 63
_DEEPEST: Final = 100


@dataclass(frozen=True, slots=True)
class SqlCommand:
    """Ordinary SQL."""

    text: str


@dataclass(frozen=True, slots=True)
class Identify:
    """IDENTIFY_SYSTEM, IDENTIFY_VERSION, IDENTIFY_MODE."""

    what: str  # SYSTEM, VERSION, MODE


@dataclass(frozen=True, slots=True)
class CreateSlot:
    """CREATE_REPLICATION_SLOT … LOGICAL."""

    slot: str
    plugin: str
    use_snapshot: bool = False


@dataclass(frozen=True, slots=True)
class DropSlot:
    """DROP_REPLICATION_SLOT."""

    slot: str


@dataclass(frozen=True, slots=True)
class StartCommand:
    """START_REPLICATION SLOT … LOGICAL; a valueless option has None."""

    slot: str
    lsn: Lsn
    options: tuple[tuple[str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class Advance:
    """ADVANCE_REPLICATION SLOT … LOGICAL restart confirmed."""

    slot: str
    restart: int
    confirmed: Lsn


Command: TypeAlias = SqlCommand | Identify | CreateSlot | DropSlot | StartCommand | Advance

_WORDS: Final = {
    *("IDENTIFY_SYSTEM", "IDENTIFY_VERSION", "IDENTIFY_MODE", "IDENTIFY_MAXLSN"),
    *("IDENTIFY_CONSISTENCE", "IDENTIFY_CHANNEL", "IDENTIFY_AZ", "BASE_BACKUP"),
    *("CREATE_REPLICATION_SLOT", "DROP_REPLICATION_SLOT", "START_REPLICATION"),
    *("ADVANCE_REPLICATION", "ADVANCE_CATALOG_XMIN", "TIMELINE_HISTORY"),
}
_FIRST: Final = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)")
_TOKEN: Final = re.compile(
    r"""\s*(?:
      (?P<lsn>[0-9A-Fa-f]{1,8}/[0-9A-Fa-f]{1,8})(?![A-Za-z0-9_])
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
    | "(?P<name>(?:[^"]|"")*)"
    | '(?P<text>(?:[^']|'')*)'
    | (?P<number>[0-9]+)
    | (?P<mark>[(),;])
    )""",
    re.VERBOSE,
)


def parse(text: str) -> Command:
    """What the client wants; Refused as the server's scanner and grammar would."""
    first = _FIRST.match(text)
    if first is None or first[1].upper() not in _WORDS:
        return SqlCommand(text)
    _check_balance(text)
    return _Grammar(_tokens(text)).command()


def _check_balance(text: str) -> None:
    depth, quote = 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"":
            quote = char
        elif char == "(":
            depth += 1
        elif char == ")":
            depth -= 1
        if depth < 0 or depth > _DEEPEST:
            break
    if quote or depth:
        raise ErrorResponse("replication command, syntax error.", "42601")


def _fail() -> ErrorResponse:
    return ErrorResponse("replication command parser returned 1", "42601")


def _tokens(text: str) -> list[tuple[str, str]]:
    found, at = [], 0
    text = text.rstrip()
    while at < len(text):
        token = _TOKEN.match(text, at)
        if token is None:
            raise _fail()
        at = token.end()
        kind = token.lastgroup
        assert kind is not None
        value = token[kind]
        quote = {"name": '"', "text": "'"}.get(kind)
        found.append((kind, value.replace(quote * 2, quote) if quote else value))
    while found and found[-1] == ("mark", ";"):
        found.pop()
    return found


class _Grammar:
    def __init__(self, tokens: list[tuple[str, str]]) -> None:
        self._tokens, self._at = tokens, 0

    def command(self) -> Command:
        match self._word():
            case "IDENTIFY_SYSTEM" | "IDENTIFY_VERSION" | "IDENTIFY_MODE" as word:
                found: Command = Identify(word.removeprefix("IDENTIFY_"))
            case "CREATE_REPLICATION_SLOT":
                found = self._create()
            case "DROP_REPLICATION_SLOT":
                found = DropSlot(self._slot())
                self._has("word", "WAIT")
            case "START_REPLICATION":
                found = self._start()
            case "ADVANCE_REPLICATION":
                self._keyword("SLOT")
                slot = self._slot()
                self._keyword("LOGICAL")
                found = Advance(slot, self._lsn(), self._lsn())
            case _:
                raise _fail()
        if self._at != len(self._tokens):
            raise _fail()
        return found

    def _create(self) -> CreateSlot:
        slot = self._slot()
        self._keyword("LOGICAL")
        plugin = self._name()
        return CreateSlot(slot, plugin, use_snapshot=self._has("word", "USE_SNAPSHOT"))

    def _start(self) -> StartCommand:
        self._keyword("SLOT")
        slot = self._slot()
        self._keyword("LOGICAL")
        lsn = self._lsn()
        options: list[tuple[str, str | None]] = []
        if self._has("mark", "("):
            options.append(self._option())
            while self._has("mark", ","):
                options.append(self._option())
            if not self._has("mark", ")"):
                raise _fail()
        return StartCommand(slot, lsn, tuple(options))

    def _option(self) -> tuple[str, str | None]:
        name = self._name()
        kind, value = self._peek()
        if kind != "text":
            return name, None
        self._at += 1
        return name, value

    def _slot(self) -> str:
        name = self._name()
        if len(name.encode()) > LONGEST_NAME:
            raise ErrorResponse("replication slot name should be shorter than 64.", "42601")
        return name

    def _name(self) -> str:
        kind, value = self._next()
        if kind == "word":
            return value.lower()
        if kind != "name" or not value:
            raise _fail()
        return value

    def _word(self) -> str:
        kind, value = self._next()
        if kind != "word":
            raise _fail()
        return value.upper()

    def _keyword(self, word: str) -> None:
        if self._word() != word:
            raise _fail()

    def _lsn(self) -> Lsn:
        kind, value = self._next()
        if kind != "lsn":
            raise _fail()
        return parse_lsn(value)

    def _has(self, kind: str, value: str) -> bool:
        found, text = self._peek()
        if found == kind and text.upper() == value:
            self._at += 1
            return True
        return False

    def _peek(self) -> tuple[str, str]:
        return self._tokens[self._at] if self._at < len(self._tokens) else ("end", "")

    def _next(self) -> tuple[str, str]:
        token = self._peek()
        self._at += 1
        return token
