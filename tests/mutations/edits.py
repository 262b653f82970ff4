"""Small edits of a module, made from its syntax tree.

    conditions     negated
    boundaries     < and <=, > and >=
    statements     left out: calls, assignments, `raise`, `continue`, loops, the value of `return`
    values         the other truth, another argument of min and max, a part of a display left out,
                   the other one of two functions (bisect_left and bisect_right)

Finer ones are made on demand: many of them change nothing that anybody could see.

    conditions     held to be true, and to be false; an operand of `and`, `or` left out
    values         n + 1 for n, one side of a sum, a slice without its end, `get` without a default

Left alone is what nobody could be asked to notice: annotations, `assert`, the words of a `raise`,
what is only said (`note`, `on_step`), numbers and truths of a module or class (tuning, defaults),
and assignments in `__init__` (without one nothing works).
"""

from __future__ import annotations

import ast
import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

_BOUNDARIES: Final = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_OPPOSITES: Final = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OTHERS: Final = {
    "bisect_left": "bisect_right",
    "bisect_right": "bisect_left",
    "any": "all",
    "all": "any",
    "sorted": "list",
    "reversed": "list",
    "startswith": "endswith",
    "endswith": "startswith",
    "partition": "rpartition",
    "rpartition": "partition",
    "appendleft": "append",
    "popleft": "pop",
}
_UNCALLED: Final = {"strip", "lstrip", "rstrip", "lower", "upper", "casefold"}
_BUILTIN: Final = {"int", "str", "bytes", "bool", "float", "list", "dict", "tuple", "set"}
_SAYING: Final = {"assert_never", "note", "_note", "on_note", "on_step"}
_LONGEST: Final = 90  # characters of a text in a name

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
Variant: TypeAlias = tuple[ast.expr, str]  # what stands there instead, and how that is called


@dataclass(frozen=True)
class Edit:
    """One change of a module's tree."""

    file: str
    scope: str  # the function or class in which it stands
    says: str
    line: int
    since: int  # line of its statement
    is_of_import: bool  # it is of what an import executes
    is_fine: bool
    holder: ast.AST
    field: str
    at: int | None  # in a list
    new: ast.AST

    @property
    def name(self) -> str:
        """The edit without its line."""
        return f"{self.file} {self.scope}: {self.says}"

    def apply(self) -> None:
        """Change the tree, for good."""
        if self.at is None:
            setattr(self.holder, self.field, self.new)
        else:
            getattr(self.holder, self.field)[self.at] = self.new


def edits(file: str, tree: ast.Module) -> list[Edit]:
    """All edits of a module, in the order of its lines; names are one each."""
    finder = _Finder(file)
    finder.block(tree, "body", "")
    often: Counter[str] = Counter()
    out = []
    for edit in finder.found:
        often[edit.name] += 1
        nth = f" ({often[edit.name]})" if often[edit.name] > 1 else ""
        out.append(replace(edit, says=edit.says + nth))
    return out


class _Finder:
    """Walks a module, and notes what can be edited."""

    def __init__(self, file: str) -> None:
        self.found: list[Edit] = []
        self._file, self._scope = file, ""
        self._function: Function | None = None
        self._within: ast.stmt = ast.Pass()  # the statement

    def _note(
        self,
        holder: ast.AST,
        field: str,
        at: int | None,
        new: ast.AST,
        says: str,
        *,
        is_fine: bool = False,
    ) -> None:
        old = _part(holder, field, at)
        for node in ast.walk(new):
            if not hasattr(node, "lineno"):
                ast.copy_location(node, old)
        is_of_import = self._function is None
        self.found.append(
            Edit(
                *(self._file, self._scope, says, old.lineno, self._within.lineno),
                *(is_of_import, is_fine, holder, field, at, new),
            )
        )

    def _without(self, holder: ast.AST, field: str, at: int) -> None:
        """Note that a statement is left out, unless that is what its condition's edit says."""
        is_all = isinstance(holder, ast.If) and len(holder.body) == 1 and not holder.orelse
        if self._function is not None and not is_all:
            self._note(
                holder, field, at, ast.Pass(), f"left out: {_text(_part(holder, field, at))}"
            )

    # ------------------------------------------------------------ statements
    def block(self, holder: ast.AST, field: str, scope: str) -> None:
        """Walk statements."""
        self._scope, outer = scope, self._scope
        for at, node in enumerate(getattr(holder, field)):
            self._within = node
            self._statement(holder, field, at, node)
        self._scope = outer

    def _statement(self, holder: ast.AST, field: str, at: int, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                self._definition(node)
            case ast.Return(value) if value is not None:
                if not _is_truth(value) and not _is_none(value):
                    nothing = ast.Constant(value=None)
                    self._note(node, "value", None, nothing, f"return None for {_text(value)}")
                self._value(node, "value")
            case ast.Expr(ast.Constant()) | ast.Assert() | ast.Import() | ast.ImportFrom():
                pass
            case ast.Expr(value):
                if not _is_said(value):
                    self._without(holder, field, at)
                    self._expression(node, "value")
            case ast.Delete() | ast.Continue() | ast.Break() | ast.Raise():
                self._without(holder, field, at)
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                if self._may_go(node):
                    self._without(holder, field, at)
                if node.value is not None and not _is_type(node):
                    self._value(node, "value")
            case ast.While():
                if not isinstance(node.test, ast.Constant):
                    never = ast.Constant(value=False)
                    self._note(node, "test", None, never, f"while False for {_text(node.test)}")
                    self._expression(node, "test")
            case ast.For():
                nothing = ast.Tuple([], ast.Load())
                self._note(node, "iter", None, nothing, f"left out: {_text(node)}")
                self._expression(node, "iter")
            case ast.If():
                if not (isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"):
                    self._test(node, "test")
            case ast.With():
                for item in node.items:
                    self._expression(item, "context_expr")
            case ast.Match():
                self._expression(node, "subject")
            case _:
                pass
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            self._blocks(node)

    def _blocks(self, node: ast.AST) -> None:
        """Walk the blocks of a statement."""
        if isinstance(node, ast.match_case) and node.guard is not None:
            self._test(node, "guard")
        for field in ("body", "orelse", "finalbody"):
            if hasattr(node, field):
                self.block(node, field, self._scope)
        for inner in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
            self._blocks(inner)

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        outer = self._function
        if isinstance(node, ast.ClassDef):
            self._function = None
        else:
            self._defaults(node.args)
            self._function = node
        self.block(node, "body", f"{self._scope}.{node.name}".lstrip("."))
        self._function = outer

    def _defaults(self, arguments: ast.arguments) -> None:
        for field in ("defaults", "kw_defaults"):
            for nth, default in enumerate(getattr(arguments, field)):
                if default is not None:
                    self._expression(arguments, field, nth)

    def _may_go(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> bool:
        """Say whether what is assigned was there before."""
        function = self._function
        if function is None or node.value is None:
            return False
        if isinstance(node, ast.AugAssign):
            return True
        if getattr(function, "name", "") in {"__init__", "__post_init__"}:
            return False
        targets = node.targets if isinstance(node, ast.Assign) else [node.target]
        stored = [name for target in targets for name in _stored(target)]
        before = {name.id for name in _stored(function) if name.lineno < node.lineno}
        before |= {a.arg for a in ast.walk(function.args) if isinstance(a, ast.arg)}
        return all(name.id in before for name in stored)

    # ------------------------------------------------------------ expressions
    def _test(self, holder: ast.AST, field: str, at: int | None = None) -> None:
        """Edit a condition; where an operand may be left out, that says more."""
        node = _part(holder, field, at)
        self._note(holder, field, at, ast.UnaryOp(ast.Not(), node), f"if not ({_text(node)})")
        operator = node.op if isinstance(node, ast.BoolOp) else None
        for value, easier in ((True, ast.And), (False, ast.Or)):
            if operator is None or not isinstance(operator, easier):
                held = ast.Constant(value=value)
                says = f"if {value} for {_text(node)}"
                self._note(holder, field, at, held, says, is_fine=True)
        self._expression(holder, field, at)

    def _value(self, holder: ast.AST, field: str, at: int | None = None) -> None:
        """Edit a value that stands alone: a truth becomes its opposite."""
        node = _part(holder, field, at)
        match node:
            case ast.Compare(_, [op], _) if type(op) in _OPPOSITES:
                new = copy.copy(node)
                new.ops = [_OPPOSITES[type(op)]()]
                self._note(holder, field, at, new, f"{_text(new)} for {_text(node)}")
            case ast.UnaryOp(ast.Not(), operand):
                self._note(holder, field, at, operand, f"{_text(operand)} for {_text(node)}")
            case _:
                pass
        self._expression(holder, field, at)

    def _expression(self, holder: ast.AST, field: str, at: int | None = None) -> None:
        node = _part(holder, field, at)
        for new, says in _variants(node, is_tuning=self._function is None):
            if isinstance(node, ast.Constant):
                says += f" in {_text(self._within)}"  # noqa: PLW2901
            fine = _is_fine(node)
            self._note(holder, field, at, ast.copy_location(new, node), says, is_fine=fine)
        match node:
            case ast.Lambda():
                self._defaults(node.args)
                outer, self._function = self._function, node
                self._value(node, "body")
                self._function = outer
            case ast.IfExp():
                self._test(node, "test")
                self._value(node, "body")
                self._value(node, "orelse")
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                self._comprehension(node)
            case ast.Call(ast.Name("cast" | "isinstance")):
                pass
            case ast.Call():
                self._expression(node, "func")
                for nth in range(len(node.args)):
                    self._value(node, "args", nth)
                for keyword in node.keywords:
                    if keyword.arg != "strict":  # of zip: it asserts
                        self._value(keyword, "value")
            case ast.UnaryOp(ast.USub(), ast.Constant()):
                pass
            case _:
                self._parts(node)

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> None:
        for generator in node.generators:
            self._expression(generator, "iter")
            for nth in range(len(generator.ifs)):
                self._test(generator, "ifs", nth)
        for field in ("key", "value") if isinstance(node, ast.DictComp) else ("elt",):
            self._value(node, field)

    def _parts(self, node: ast.AST) -> None:
        for field, value in ast.iter_fields(node):
            if isinstance(value, ast.expr):
                self._expression(node, field)
            elif isinstance(value, list):
                for nth, one in enumerate(value):
                    if isinstance(one, ast.expr):
                        self._expression(node, field, nth)


def _variants(node: ast.expr, *, is_tuning: bool) -> Iterator[Variant]:
    """What can stand in the place of an expression."""

    def instead(new: ast.expr) -> Variant:
        return new, f"{_text(new)} for {_text(node)}"

    match node:
        case ast.Constant(bool(value)) if not is_tuning:
            yield instead(ast.Constant(value=not value))
        case ast.Constant(int(value)) if not is_tuning:
            yield instead(ast.Constant(value=value + 1))
        case ast.UnaryOp(ast.USub(), ast.Constant(int(value))) if not is_tuning:
            yield instead(ast.Constant(value=1 - value))
        case ast.BoolOp(op, values):
            word = "and" if isinstance(op, ast.And) else "or"
            for nth, value in enumerate(values):
                rest = values[:nth] + values[nth + 1 :]
                new = copy.copy(rest[0]) if len(rest) == 1 else ast.BoolOp(op, rest)
                yield new, f"left out of {word}: {_text(value)}"
        case ast.Compare(left, ops, right):
            for nth, op in enumerate(ops):
                if type(op) in _BOUNDARIES:
                    moved = [*ops[:nth], _BOUNDARIES[type(op)](), *ops[nth + 1 :]]
                    yield instead(ast.Compare(left, moved, right))
        case ast.BinOp(left, op, right):
            is_format = isinstance(op, ast.Mod) and _is_str(left)
            if not (is_tuning or is_format or _is_type_union(node)):
                yield instead(left)
                if isinstance(op, ast.Add | ast.BitOr | ast.BitAnd):
                    yield instead(right)
        case ast.Call():
            yield from _calls(node)
        case ast.Dict(keys, values) if None in keys:
            for nth, value in enumerate(values):
                rest = ast.Dict(keys[:nth] + keys[nth + 1 :], values[:nth] + values[nth + 1 :])
                yield rest, f"left out of a dictionary: {_text(value)}"
        case ast.List(elts) | ast.Tuple(elts) | ast.Set(elts):
            if any(isinstance(one, ast.Starred) for one in elts):
                for nth, one in enumerate(elts):
                    new = copy.copy(node)
                    new.elts = elts[:nth] + elts[nth + 1 :]  # type: ignore[attr-defined]
                    yield new, f"left out of a display: {_text(one)}"
        case ast.Slice(lower, upper, step):
            if lower is not None:
                yield instead(ast.Slice(None, upper, step))
            if upper is not None:
                yield instead(ast.Slice(lower, None, step))
        case _:
            pass


def _is_fine(node: ast.expr) -> bool:
    """Say whether what `_variants` makes of a node is one of the finer edits."""
    match node:
        case ast.Constant(bool()):
            return False
        case ast.Call(ast.Attribute(attr="get")):
            return True
        case _:
            return isinstance(node, ast.Constant | ast.UnaryOp | ast.BoolOp | ast.BinOp | ast.Slice)


def _calls(node: ast.Call) -> Iterator[Variant]:
    """What can be called instead of a function."""
    match node.func:
        case ast.Name(name) | ast.Attribute(attr=name):
            pass
        case _:
            return
    is_method = isinstance(node.func, ast.Attribute)
    if name in {"min", "max"} and len(node.args) > 1:
        for one in node.args:
            if not isinstance(one, ast.Starred):
                yield copy.copy(one), f"{_text(one)} for {_text(node)}"
    if name in _OTHERS:
        new = copy.deepcopy(node)
        new.func = (
            ast.Attribute(node.func.value, _OTHERS[name], ast.Load())  # type: ignore[attr-defined]
            if is_method
            else ast.Name(_OTHERS[name], ast.Load())
        )
        new.keywords = [] if name == "sorted" else new.keywords
        yield new, f"{_OTHERS[name]} for {_text(node)}"
    if name == "append" and is_method:
        first = ast.Attribute(node.func.value, "insert", ast.Load())  # type: ignore[attr-defined]
        new = ast.Call(first, [ast.Constant(0), *node.args], [])
        yield new, f"first, not last: {_text(node)}"
    if name in _UNCALLED and is_method and not node.args:
        yield copy.copy(node.func.value), f"{name} left out of {_text(node)}"  # type: ignore[attr-defined]
    if name == "replace" and not is_method:
        for nth, keyword in enumerate(node.keywords):
            rest = node.keywords[:nth] + node.keywords[nth + 1 :]
            new = ast.Call(node.func, node.args, rest) if rest else copy.copy(node.args[0])
            yield new, f"left out of replace: {keyword.arg}={_text(keyword.value)}"
    if name == "get" and is_method and len(node.args) == 2:
        yield ast.Call(node.func, node.args[:1], []), f"without the default: {_text(node)}"


def _part(holder: ast.AST, field: str, at: int | None) -> ast.AST:
    value = getattr(holder, field)
    return value if at is None else value[at]


def _text(node: ast.AST) -> str:
    """One line of a node, as `ast` writes it."""
    match node:
        case ast.For(target, iterable):
            text = f"for {ast.unparse(target)} in {ast.unparse(iterable)}"
        case ast.If(test) | ast.While(test):
            text = f"if {ast.unparse(test)}"
        case ast.With(items):
            text = f"with {', '.join(ast.unparse(item) for item in items)}"
        case ast.FunctionDef(name) | ast.ClassDef(name):
            text = name
        case ast.Match(subject):
            text = f"match {ast.unparse(subject)}"
        case ast.Try():
            text = "try"
        case _:
            text = ast.unparse(node)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _stored(node: ast.AST) -> Iterator[ast.Name]:
    """Names that are assigned to."""
    for name in ast.walk(node):
        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store):
            yield name


def _is_truth(node: ast.expr) -> bool:
    match node:
        case ast.Constant(bool()) | ast.Compare() | ast.UnaryOp(ast.Not()):
            return True
        case ast.BoolOp(_, values):
            return all(_is_truth(value) for value in values)
        case _:
            return False


def _is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def _is_said(node: ast.expr) -> bool:
    """Say whether a statement is for mypy, or for who reads the log; a `Step` says a place."""
    if isinstance(node, ast.Yield) and isinstance(node.value, ast.Call):
        return ast.unparse(node.value.func) == "Step" and len(node.value.args) == 1
    return isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in _SAYING


def _is_str(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _is_type(node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> bool:
    return isinstance(node, ast.AnnAssign) and "TypeAlias" in ast.unparse(node.annotation)


def _is_type_union(node: ast.BinOp) -> bool:
    """Say whether `A | B` is of types: their names begin with a capital, and go on without."""
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    return isinstance(node.op, ast.BitOr) and all(
        n in _BUILTIN or (n.lstrip("_")[:1].isupper() and not n.isupper()) for n in names
    )
