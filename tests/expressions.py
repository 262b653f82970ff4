"""All regular expressions of the product, and whether backtracking in them can explode.

An expression becomes an automaton of its characters.  It explodes if some state can
be left and reached again by one text in two ways (Weber and Seidl: exponential
ambiguity): then a text that almost matches is tried in 2 ** n ways.  Possessive
repeats and atomic groups give nothing back; a possessive run of one set of
characters ends only where none of them follows, which is kept as a guard.
"""

import ast
import importlib
import pkgutil
import re
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from re import _constants as codes
from re import _parser as parser

from tests.tree import PACKAGES

FUNCTIONS = {
    "compile",
    "match",
    "fullmatch",
    "search",
    "sub",
    "subn",
    "split",
    "findall",
    "finditer",
}
ALPHABET = [*map(chr, range(128)), "é", "中"]
ALL = (1 << len(ALPHABET)) - 1
MANY = 6  # repeats of more are taken for endless


def patterns() -> dict[str, re.Pattern]:
    """Every expression by where it stands; fails on one whose text cannot be known."""
    found = {}
    for package in PACKAGES:
        root = importlib.import_module(package)
        names = [package, *(m.name for m in pkgutil.walk_packages(root.__path__, f"{package}."))]
        for name in names:
            if name.endswith("__main__"):
                continue
            module = importlib.import_module(name)
            if not module.__file__.endswith(".py"):
                continue  # the native module: it has none
            for variable, value in vars(module).items():
                for at, pattern in enumerate(_held(value)):
                    found[f"{name}.{variable}[{at}]"] = pattern
            found |= _inline(module)
    return found


def distinct(found: Mapping[str, re.Pattern | NameError]) -> dict[str, re.Pattern]:
    """Each expression once, by the first place of it: what is imported stands in many."""
    firsts: dict[tuple[str | bytes, int], tuple[str, re.Pattern]] = {}
    for where, pattern in found.items():
        if isinstance(pattern, re.Pattern):
            firsts.setdefault((pattern.pattern, pattern.flags), (where, pattern))
    return dict(firsts.values())


def _held(value: object) -> Iterator[re.Pattern]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, dict):
        for each in value.values():
            yield from _held(each)
    elif isinstance(value, (list, tuple, set, frozenset)):
        for each in value:
            yield from _held(each)


def _inline(module) -> dict[str, re.Pattern]:
    """Expressions that stand within functions."""
    out = {}
    tree = ast.parse(Path(module.__file__).read_text())
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and isinstance(node.func.value, ast.Name)
            and node.func.value.id == "re"
            and node.func.attr in FUNCTIONS
        ):
            values = [ast.unparse(node.args[0])]
            values += [ast.unparse(k.value) for k in node.keywords if k.arg == "flags"]
            flags = node.args[
                {"compile": 1, "sub": 4, "subn": 4, "split": 3}.get(node.func.attr, 2) :
            ]
            values += [ast.unparse(a) for a in flags[:1]]
            where = f"{module.__name__}:{node.lineno}"
            try:
                pattern, *rest = (eval(v, vars(module)) for v in values)
            except NameError as error:
                out[where] = error  # its text is a function's argument
                continue
            out[where] = re.compile(pattern, *rest)
    return out


@dataclass
class Automaton:
    """Character positions; `follow` leads from one to the next, through nothing else."""

    sets: list[int] = field(default_factory=list)
    owners: list[frozenset[int]] = field(default_factory=list)  # atomic parts around a position
    edges: dict[int, list] = field(default_factory=dict)  # of nodes: (node, guard) or a position
    nodes: int = 0

    def node(self) -> int:
        self.nodes += 1
        return self.nodes - 1


class Builder:
    def __init__(self, pattern: re.Pattern) -> None:
        self.is_bytes = isinstance(pattern.pattern, bytes)
        self.flags = pattern.flags
        self.made = Automaton()
        self.atoms: list[int] = []
        self.jumps: dict[int, list[tuple[int, int]]] = {}  # node -> (node, guard)
        self.reads: dict[int, list[tuple[int, int]]] = {}  # node -> (position, node behind)
        start = self.made.node()
        self.end = self._sequence(parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG), start)
        self.start = start

    def jump(self, a: int, b: int, guard: int = ALL) -> None:
        self.jumps.setdefault(a, []).append((b, guard))

    def _sequence(self, items, at: int) -> int:
        for op, value in items:
            at = self._item(op, value, at)
        return at

    def _item(self, op, value, at: int) -> int:
        chars = self._set(op, value)
        if chars is not None:
            behind = self.made.node()
            position = len(self.made.sets)
            self.made.sets.append(chars)
            self.made.owners.append(frozenset(self.atoms))
            self.reads.setdefault(at, []).append((position, behind))
            return behind
        if op is codes.SUBPATTERN:
            return self._sequence(value[3], at)
        if op is codes.BRANCH:
            end = self.made.node()
            for branch in value[1]:
                self.jump(self._sequence(branch, at), end)
            return end
        if op is codes.ATOMIC_GROUP:
            return self._atomic(lambda: self._sequence(value, at))
        if op in {codes.MAX_REPEAT, codes.MIN_REPEAT}:
            return self._repeat(*value, at)
        if op is codes.POSSESSIVE_REPEAT:
            low, high, body = value
            single = self._set(*body[0]) if len(body) == 1 else None
            end = self._atomic(lambda: self._repeat(low, high, body, at))
            if single is not None and high is codes.MAXREPEAT:
                guarded = self.made.node()
                self.jump(end, guarded, ALL & ~single)
                return guarded
            return end
        if op is codes.ASSERT_NOT and value[0] == 1 and len(value[1]) == 1:
            single = self._set(*value[1][0])
            if single is not None:
                behind = self.made.node()
                self.jump(at, behind, ALL & ~single)
                return behind
        return at  # looks around, anchors, what a group held: as if they always held

    def _atomic(self, build) -> int:
        self.atoms.append(self.made.nodes)
        end = build()
        self.atoms.pop()
        return end

    def _repeat(self, low: int, high: int, body, at: int) -> int:
        is_endless = high is codes.MAXREPEAT or high > MANY
        for _ in range(min(low, 2)):
            at = self._sequence(body, at)
        if is_endless:
            head = self.made.node()
            self.jump(at, head)
            self.jump(self._sequence(body, head), head)
            end = self.made.node()
            self.jump(head, end)
            return end
        end = self.made.node()
        self.jump(at, end)
        for _ in range(high - min(low, 2)):
            at = self._sequence(body, at)
            self.jump(at, end)
        return end

    def _set(self, op, value) -> int | None:
        if op is codes.LITERAL:
            return self._mask(lambda c: c == value)
        if op is codes.NOT_LITERAL:
            return ALL & ~self._mask(lambda c: c == value)
        if op is codes.ANY:
            return ALL if self.flags & re.DOTALL else self._mask(lambda c: c != 10)
        if op is codes.CATEGORY:
            return self._category(value)
        if op is codes.IN:
            mask, negated = 0, False
            for each, inner in value:
                if each is codes.NEGATE:
                    negated = True
                elif each is codes.RANGE:
                    mask |= self._mask(lambda c, r=inner: r[0] <= c <= r[1])
                else:
                    mask |= self._set(each, inner)
            return ALL & ~mask if negated else mask
        return None

    def _mask(self, test) -> int:
        mask = 0
        for at, char in enumerate(ALPHABET):
            alike = {char, char.lower(), char.upper()} if self.flags & re.IGNORECASE else {char}
            if any(len(c) == 1 and test(ord(c)) for c in alike):
                mask |= 1 << at
        return mask

    def _category(self, value) -> int:
        text = {
            codes.CATEGORY_DIGIT: r"\d", codes.CATEGORY_NOT_DIGIT: r"\D",
            codes.CATEGORY_SPACE: r"\s", codes.CATEGORY_NOT_SPACE: r"\S",
            codes.CATEGORY_WORD: r"\w", codes.CATEGORY_NOT_WORD: r"\W",
        }[value]  # fmt: skip
        flags = re.ASCII if self.is_bytes or self.flags & re.ASCII else 0
        known = re.compile(text, flags)
        return sum(1 << at for at, char in enumerate(ALPHABET) if known.match(char))

    def after(self, node: int) -> list[tuple[int, int, int]]:
        """Positions that may be read next: (position, characters, node behind), by every way."""
        found, stack = [], [(node, ALL, frozenset())]
        while stack:
            here, guard, gone = stack.pop()
            for position, behind in self.reads.get(here, ()):
                if chars := self.made.sets[position] & guard:
                    found.append((position, chars, behind))
            for target, more in self.jumps.get(here, ()):
                if (here, target) not in gone and guard & more:
                    stack.append((target, guard & more, gone | {(here, target)}))
            if len(found) + len(stack) > 20_000:
                raise ValueError("too many ways to follow")
        return found


def explodes(pattern: re.Pattern) -> str | None:
    """Return a text that is read in two ways again and again, or None."""
    built = Builder(pattern)
    owners = built.made.owners
    behind = {}
    for reads in built.reads.values():
        behind |= dict(reads)
    follow = {p: built.after(node) for p, node in behind.items()}
    loops = _reachable_from_themselves({p: {q for q, *_ in f} for p, f in follow.items()})
    for p, steps in follow.items():
        seen = {}
        for q, chars, _ in steps:
            inside = owners[p] & owners[q]
            if q in seen and seen[q] & chars and not inside and p in loops.get(q, ()):
                return f"{_char(built.made.sets[p])}{_char(seen[q] & chars)}"
            seen[q] = seen.get(q, 0) | chars
    for start in follow:
        if start not in loops.get(start, ()):
            continue
        text = _twice(start, follow, loops, owners)
        if text is not None:
            return text
    return None


def _reachable_from_themselves(graph: dict[int, set[int]]) -> dict[int, set[int]]:
    """From each position: all that can be reached by at least one step."""
    out = {}
    for start, first in graph.items():
        seen, queue = set(), deque(first)
        while queue:
            here = queue.popleft()
            if here not in seen:
                seen.add(here)
                queue.extend(graph[here] - seen)
        out[start] = seen
    return out


def _twice(start, follow, loops, owners) -> str | None:
    """Leave (start, start), go apart, and come back to it: the text of it."""
    first = (start, start, False)
    before, queue = {first: None}, deque([first])
    while queue:
        here = queue.popleft()
        p, q, is_apart = here
        for p2, chars, _ in follow[p]:
            if start not in loops[p2]:
                continue
            for q2, others, _ in follow[q]:
                both = chars & others
                if not both or start not in loops[q2]:
                    continue
                # Two ways through one atomic part: it takes the first and keeps it.
                apart = is_apart or (p2 != q2 and not owners[p2] & owners[q2])
                there = (p2, q2, apart)
                if there == (start, start, True):
                    text, step = _char(both), here
                    while before[step] is not None:
                        step, char = before[step]
                        text = char + text
                    return text
                if there not in before:
                    before[there] = (here, _char(both))
                    queue.append(there)
    return None


def _char(mask: int) -> str:
    for preferred in "a1' \"(":
        at = ord(preferred)
        if mask >> at & 1:
            return preferred
    return ALPHABET[(mask & -mask).bit_length() - 1]


def worst(pattern: re.Pattern, size: int) -> list[str | bytes]:
    """Texts that go around each loop of an expression and then fail."""
    built = Builder(pattern)
    behind = {}
    for reads in built.reads.values():
        behind |= dict(reads)
    follow = {p: built.after(node) for p, node in behind.items()}
    heads = _shortest([(q, _char(c)) for q, c, _ in built.after(built.start)], follow)
    found = {}
    for p, steps in follow.items():
        around = _shortest([(q, _char(c)) for q, c, _ in steps], follow).get(p)
        if around is None or p not in heads:
            continue
        times = max(size // len(around), 1)
        for tail in ("", "\0", "!", "'"):
            found[heads[p] + around * times + tail] = None
            found[around * times + tail] = None
    texts = list(found)
    return [t.encode() for t in texts] if built.is_bytes else texts


def _shortest(first, follow) -> dict[int, str]:
    found, queue = {}, deque()
    for q, text in first:
        if q not in found:
            found[q] = text
            queue.append(q)
    while queue:
        here = queue.popleft()
        for q, chars, _ in follow[here]:
            if q not in found:
                found[q] = found[here] + _char(chars)
                queue.append(q)
    return found
