r"""How ALTER COLUMN … TYPE computed new values, if the client's text contains USING.

Called for statements of that text only: a statement that a function ran is not in it, and is
lost.  A text without the word USING is not parsed: the assignment cast was used, which any copy
can repeat.  A USING that only casts the column can be repeated, too; any other was computed.
This parser reads a part of SQL: with a comment, a dollar quote, a backslash or a letter beyond
ASCII everything is lost.

>>> text = "ALTER TABLE t ALTER a TYPE bigint, ALTER b SET DATA TYPE text USING b::text"
>>> [converted(text, "t", name, kind) for name, kind in (("a", "bigint"), ("b", "text"))]
['', 'explicit']
>>> converted("ALTER TABLE t ALTER a TYPE int USING a * 2", "t", "a", "integer")
'lost'
>>> converted("ALTER TABLE t ALTER a TYPE int USING a /* */ * 2", "t", "b", "integer")
'lost'
>>> converted('ALTER TABLE t ALTER "A" TYPE int USING "a"::int', "t", "A", "integer")
'lost'
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from producer.core.statements.sql_words import cut

_END: Final = ""
_ANY: Final = ""  # not the name of any column
# Common spellings -> what format_type() prints.
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


_UNREAD: Final = Conversion(_ANY, _ANY, "", "lost")


def converted(sql: str, table: str, column: str, type_name: str) -> str | None:
    """Return what became of a column: "", "explicit" or "lost"; None: no conversion is its own."""
    found = [c for c in conversions(sql) if c.column in {column, _ANY}]
    if not found:
        return None
    if _UNREAD in found:
        return "lost"
    if len({c.how for c in found}) > 1:  # two statements
        found = [c for c in found if _spelled(c.type_name) == _spelled(type_name)]
    hows = {c.how for c in found}
    is_ours = all(c.table == table for c in found)
    return hows.pop() if len(hows) == 1 and is_ours else "lost"


@lru_cache(maxsize=4)
def conversions(sql: str) -> tuple[Conversion, ...]:
    """Return all of a text, in order; one of any column takes the place of unreadable text."""
    if not sql.isascii() or any(sign in sql for sign in ("\\", "$", "--", "/*")):
        return (_UNREAD,)
    return tuple(_conversions(sql))


def _conversions(sql: str) -> Iterator[Conversion]:
    tokens = [word.text for word in cut(sql)]
    words = [token.upper() for token in tokens]
    for at, (first, second) in enumerate(pairwise(words)):
        if (first, second) == ("ALTER", "TABLE"):
            end = words.index(";", at) if ";" in words[at:] else len(words)
            found = list(_of_statement(tokens[at + 2 : end]))
            yield from found
            if words[at:end].count("USING") != sum(c.how != "" for c in found):
                yield _UNREAD


def _of_statement(tokens: list[str]) -> Iterator[Conversion]:
    """Read what follows ALTER TABLE."""
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
            words = [_folded(token) for token in action[-len(rest) :]]
            expression = words[len(type_name) + 1 :]
            is_cast = _is_cast(expression, _folded(action[at]), words[: len(type_name)])
            how = "explicit" if is_cast else "lost"
        yield Conversion(name, _plain(action[at]), " ".join(type_name), how)


def _actions(tokens: list[str]) -> Iterator[list[str]]:
    """Split at commas outside of brackets."""
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


def _folded(token: str) -> str:
    """Write a word so that it is another one where it names something else: "V" is not v."""
    return token if token.startswith('"') and token != token.lower() else token.strip('"').upper()


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
