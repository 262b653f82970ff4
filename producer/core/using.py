r"""How ALTER COLUMN … TYPE made new values, read from the client's own text.

Only asked where PostgreSQL says that it converted values.  Without USING it is
the assignment cast, which any copy can repeat; a USING that is nothing but a
cast of the column can be repeated, too; anything else was computed.  The text
may hold other statements, and bodies of DO: every ALTER TABLE of the table is
looked at, and what two of them say differently is not known.

>>> text = "ALTER TABLE t ALTER a TYPE bigint, ALTER b SET DATA TYPE text USING b::text"
>>> converted(text, "t", "a", "bigint"), converted(text, "t", "b", "text")
('', 'explicit')
>>> converted("ALTER TABLE t ALTER a TYPE int USING a * 2", "t", "a", "integer")
'lost'
>>> converted("SELECT change_it()", "t", "a", "integer") is None
True
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

_TOKEN: Final = re.compile(
    r"""\s+ | --[^\n]* | /\*.*?\*/ | (?P<token>
        [eE]?'(?:[^']|'')*' | (?P<tag>\$\w*\$)(?P<body>.*?)(?P=tag) | "(?:[^"]|"")*"
        | [\w$]+ | :: | . )""",
    re.VERBOSE | re.DOTALL,
)
_END: Final = ""
# What people type, as format_type() prints it.
_SAME: Final = {
    "INT": "INTEGER",
    "INT4": "INTEGER",
    "INT8": "BIGINT",
    "INT2": "SMALLINT",
    "VARCHAR": "CHARACTER VARYING",
    "DECIMAL": "NUMERIC",
    "BOOL": "BOOLEAN",
    "FLOAT8": "DOUBLE PRECISION",
    "FLOAT4": "REAL",
    "TIMESTAMP": "TIMESTAMP WITHOUT TIME ZONE",
    "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE",
}


class Conversion(NamedTuple):
    """One ALTER COLUMN … TYPE of a text."""

    table: str  # without its schema
    column: str
    type_name: str  # in capitals
    how: str  # "" by assignment, "explicit" by a plain cast, "lost" otherwise


def converted(sql: str | None, table: str, column: str, type_name: str) -> str | None:
    """Return how a column got a type: "", "explicit" or "lost"; None: the text does not tell."""
    found = [c for c in conversions(sql or "") if (c.table, c.column) == (table, column)]
    if len({c.how for c in found}) > 1:
        found = [c for c in found if _spelled(c.type_name) == _spelled(type_name)]
    hows = {c.how for c in found}
    return hows.pop() if len(hows) == 1 else None


@lru_cache(maxsize=4)
def conversions(sql: str) -> tuple[Conversion, ...]:
    """Return all of a text, in order."""
    return tuple(_conversions(sql))


def _conversions(sql: str) -> Iterator[Conversion]:
    tokens: list[str] = []
    for match in _TOKEN.finditer(sql):
        if match["body"] is not None:
            yield from _conversions(match["body"])
        if match["token"]:
            tokens.append(match["token"])
    words = [token.upper() for token in tokens]
    for at, (first, second) in enumerate(pairwise(words)):
        if (first, second) == ("ALTER", "TABLE"):
            end = words.index(";", at) if ";" in words[at:] else len(words)
            yield from _of_statement(tokens[at + 2 : end])


def _of_statement(tokens: list[str]) -> Iterator[Conversion]:
    """Read what stands behind ALTER TABLE."""
    while tokens and tokens[0].upper() in {"IF", "EXISTS", "ONLY"}:
        tokens = tokens[1:]
    name = _END
    while tokens:
        name, tokens = _plain(tokens[0]), tokens[1:]
        if tokens[:1] != ["."]:
            break
        tokens = tokens[1:]
    for action in _actions(tokens):
        upper = [token.upper() for token in action]
        if upper[:1] != ["ALTER"] or upper[1:2] == ["CONSTRAINT"]:
            continue
        at = 2 if upper[1:2] == ["COLUMN"] else 1
        rest = upper[at + 1 :]
        if rest[:3] == ["SET", "DATA", "TYPE"]:
            rest = rest[3:]
        elif rest[:1] == ["TYPE"]:
            rest = rest[1:]
        else:
            continue
        how, type_name = "", rest
        if "USING" in rest:
            type_name = rest[: rest.index("USING")]
            expression = rest[len(type_name) + 1 :]
            how = "explicit" if _is_cast(expression, upper[at], type_name) else "lost"
        yield Conversion(name, _plain(action[at]), " ".join(type_name), how)


def _actions(tokens: list[str]) -> Iterator[list[str]]:
    """Cut at commas outside of brackets."""
    depth, action = 0, list[str]()
    for token in [*tokens, _END]:
        if token == _END or (token == "," and not depth):  # noqa: S105  SQL's
            yield action
            action = []
            continue
        depth += (token in {"(", "["}) - (token in {")", "]"})
        action.append(token)


def _is_cast(expression: list[str], column: str, type_name: list[str]) -> bool:
    """Say whether it is the column, cast to the very type that it gets."""
    if expression[:2] == ["CAST", "("]:
        return expression[2:] == [column, "AS", *type_name, ")"]
    if expression[:1] == ["("] and expression[-1:] == [")"] and "::" in expression[:-1]:
        expression = expression[1:-1]
    return expression in ([column, "::", *type_name], ["(", column, ")", "::", *type_name])


def _spelled(type_name: str) -> str:
    head, *rest = type_name.upper().replace(" (", "(").replace("( ", "(").split("(", 1)
    head = _SAME.get(head.strip(), head.strip())
    return "(".join([head, *rest]).replace(" ", "")


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
