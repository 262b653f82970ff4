"""[[target]]: several targets in one file, each read as if it were the only one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from gauss_cdc.config_serve import address


class Problem(NamedTuple):
    """What is wrong with one of the targets, counted from 0."""

    number: int
    key: str
    why: str


def variable(name: str) -> str:
    """Return how the variable of a target's password ends.

    >>> variable("lake-2")
    '_LAKE_2'
    """
    return "_" + re.sub(r"\W", "_", name).upper()


def alone(text: str, number: int) -> str:
    r"""Blank all [[target]] of a file but one, which becomes a [target]; lines keep their numbers.

    >>> alone("[[target]]\nname = 1\n[[target]]\nname = 2\n[kafka]", 1)
    '\n\n[target]\nname = 2\n[kafka]'
    """
    lines, at, is_other = list[str](), -1, False
    for line in text.splitlines():
        is_begin = re.match(r"\s*\[\[\s*target\s*\]\]", line) is not None
        at += is_begin
        if is_begin or re.match(r"\s*\[", line):
            is_other = is_begin and at != number
        lines.append("" if is_other else "[target]" if is_begin else line)
    return "\n".join(lines)


def misnamed(listed: Sequence[Any]) -> Iterator[Problem]:
    """Find names that tell no two apart, or are no folder's."""
    seen: dict[str, str] = {}
    for number, one in enumerate(listed):
        name = one.get("name") if isinstance(one, dict) else None
        if not isinstance(name, str) or not name.strip("."):
            yield Problem(number, "name", "each [[target]] has a name of its own: write one")
        elif (end := variable(name)) in seen:
            why = f"{seen[end]} is the name of another [[target]]"
            why += ", whose variables would be the same" * (name != seen[end])
            yield Problem(number, "name", f"{why}: write another one")
        else:
            seen[end] = name


def together(listed: Sequence[Any], serve_listen: str) -> Iterator[Problem]:
    """Find targets that would keep one ledger, or answer at one address."""
    seen = {("listen", serve_listen): "[serve]"}
    for number, target in enumerate(listed):
        if (other := seen.setdefault(("dsn", target.dsn), target.name)) != target.name:
            why = f"that of {other}, too, which keeps its ledger there: write another one"
            yield Problem(number, "dsn", why)
        if not target.listen or not address(target.listen)[1]:
            continue
        if (other := seen.setdefault(("listen", target.listen), target.name)) != target.name:
            yield Problem(number, "listen", f"that of {other}, too: write another port")
