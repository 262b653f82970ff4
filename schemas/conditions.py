r"""Conditions of a partition's bounds, parsed and printed again.

`pg_get_partition_constraintdef()` prints which rows of a table stand in a
partition.  A copy can use it where it compares columns with constants; what
calls a function (a hash partition, an expression as key) is the source's alone.
The text comes from a record: it is parsed into these few forms, and what a
statement gets is printed from them.

>>> written("((a IS NOT NULL) AND (a >= 1) AND (b = ANY (ARRAY['x'::text, 'it''s'::text])))")
'(("a" IS NOT NULL) AND ("a" >= 1) AND ("b" = ANY (ARRAY[\'x\'::text, \'it\'\'s\'::text])))'
>>> written("satisfies_hash_partition('16400'::oid, 4, 0, a)")
Traceback (most recent call last):
schemas.sql_text.NotRead: a function, or words that are not a comparison
"""

from __future__ import annotations

from typing import Final

from schemas import type_names
from schemas.quoting import identifier, literal
from schemas.sql_text import NotRead, Token, tokens

_COMPARISONS: Final = frozenset({"=", "<>", "<", "<=", ">", ">="})
_CONSTANTS: Final = frozenset({"TRUE", "FALSE", "NULL"})
# Words that do not name a column unless they are quoted.
_RESERVED: Final = frozenset({
    *("AND", "OR", "NOT", "IS", "ANY", "ALL", "SOME", "ARRAY", "CASE", "WHEN", "THEN", "ELSE"),
    *("END", "SELECT", "FROM", "WHERE", "IN", "LIKE", "BETWEEN", "COLLATE", "ROW", "CAST"),
    *("EXISTS", "UNION", "INTERSECT", "EXCEPT", "USER", "CURRENT_USER", "SESSION_USER"),
    *("CURRENT_ROLE", "CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "CURRENT_CATALOG"),
    *("CURRENT_SCHEMA", "LOCALTIME", "LOCALTIMESTAMP", "OPERATOR", "DISTINCT", "ISNULL", "NOTNULL"),
})  # fmt: skip
_COLLATED: Final = frozenset({"text", "character varying", "varchar", "character", "bpchar"})
_DEEPEST: Final = 100  # nested brackets: a bound has one level for each column


def written(text: str) -> str:
    """Return the condition, printed again; raise NotRead for any other."""
    reader = _Reader(tokens(text))
    condition = reader.either()
    if reader.here():
        raise NotRead("words after a condition")
    return condition


def is_of_source(text: str) -> bool:
    """Say whether another server may compare otherwise: by its collation, or without a type.

    A type of users' is the target's text there, and an enum has an order of its own.

    >>> is_of_source("((id IS NOT NULL) AND (id >= 'a'::text))"), is_of_source("(id = 'a'::text)")
    (True, False)
    >>> is_of_source("(m = 'sad'::public.mood)"), is_of_source("(d >= '2024-01-01'::date)")
    (True, False)
    """
    reader = _Reader(tokens(text))
    reader.either()
    return reader.is_of_source


class _Reader:
    """Descends through brackets, AND, OR, NOT and comparisons; gives what it read as SQL."""

    def __init__(self, words: list[Token]) -> None:
        self._words, self._at, self._depth = words, 0, 0
        self._names_text = False  # the operand that was read last
        self.is_of_source = False

    def here(self, ahead: int = 0) -> str:
        """The keyword or sign here; a name, a string or a number is its kind in lower case."""
        if self._at + ahead >= len(self._words):
            return ""
        word = self._words[self._at + ahead]
        if word.kind == "sign" or (word.kind == "name" and word.upper in _RESERVED | _CONSTANTS):
            return word.upper
        return word.kind

    def _step(self) -> Token:
        self._at += 1
        return self._words[self._at - 1]

    def _take(self, *expected: str) -> None:
        for each in expected:
            if self.here() != each:
                raise NotRead("a function, or words that are not a comparison")
            self._at += 1

    def either(self) -> str:
        """Read conditions joined by OR."""
        parts = [self._both()]
        while self.here() == "OR":
            self._step()
            parts.append(self._both())
        return " OR ".join(parts)

    def _both(self) -> str:
        parts = [self._not()]
        while self.here() == "AND":
            self._step()
            parts.append(self._not())
        return " AND ".join(parts)

    def _not(self) -> str:
        words = ""
        while self.here() == "NOT":
            self._step()
            words += "NOT "
        return words + self._comparison()

    def _comparison(self) -> str:
        left = self._operand()
        if self.here() == "IS":
            self._step()
            negated = ""
            if self.here() == "NOT":
                self._step()
                negated = "NOT "
            if self.here() not in _CONSTANTS:
                raise NotRead("a function, or words that are not a comparison")
            return f"{left} IS {negated}{self._step().upper}"
        if self.here() not in _COMPARISONS:
            return left
        sign = self._step().text
        if self.here() == "ANY":
            self._take("ANY", "(")
            inside = self._operand()
            self._take(")")
            return f"{left} {sign} ANY ({inside})"
        right = self._operand()
        self.is_of_source |= self._names_text and sign not in {"=", "<>"}
        return f"{left} {sign} {right}"

    def _operand(self) -> str:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotRead("too many nested brackets")
        found = self._primary()
        self._depth -= 1
        self._names_text = False
        while self.here() == "::":
            self._step()
            kind, self._at = type_names.read(self._words, self._at)
            self._names_text = kind.name in _COLLATED
            self.is_of_source |= kind.schema not in {None, "pg_catalog"}
            found += f"::{kind}"
        return found

    def _primary(self) -> str:
        match self.here():
            case "(":
                self._step()
                inside = self.either()
                self._take(")")
                return f"({inside})"
            case "ARRAY":
                self._take("ARRAY", "[")
                items = [self._operand()] if self.here() != "]" else []
                while self.here() == ",":
                    self._step()
                    items.append(self._operand())
                self._take("]")
                return f"ARRAY[{', '.join(items)}]"
            case "string":
                return literal(self._step().text)
            case "number":
                return self._step().text
            case "-" if self.here(1) == "number":
                self._step()
                return f"-{self._step().text}"
            case "TRUE" | "FALSE" | "NULL":
                return self._step().upper
            case "name" | "quoted" if self.here(1) not in {"(", "."}:
                return identifier(self._step().text)
            case _:
                raise NotRead("a function, or words that are not a comparison")
