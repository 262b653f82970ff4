"""Whatever the product defines, the product uses: what only tests use is deleted.

A function, class or constant of a module is used where its module mentions it outside its own
definition, another one imports it, or an attribute has its name; a method where an attribute has.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache

from gauss_cdc.config import Config, sections_of
from tests.tree import PACKAGES, ROOT, modules

OUTSIDE = ("docs", "benchmarks")  # examples for people, and what measures

# Called by a library, or offered to programs that are not here.
CALLED_FROM_OUTSIDE = {
    "spark_consumers.api.for_each_commit_group": "other Spark programs: docs/spark.md",
    "spark_consumers.upsert.Upsert": "other Spark programs: docs/spark.md",
    "spark_consumers.source: streamReader": "Spark",
    "spark_consumers.source.reader: getDefaultReadLimit": "Spark 4.2 and later",
    "spark_consumers.source.reader: latestOffset": "Spark",
    "spark_consumers.source.reader: prepareForTriggerAvailableNow": "Spark 4.2 and later",
    "producer.core.records.transaction_topic: block": "producer/native",
    "gauss_cdc.logs: emit": "logging",
    "gauss_cdc.logs: filter": "logging",
    "gauss_cdc.serve.server: log_message": "http.server",
    "gauss_cdc.watch: render": "rich, of a column of a progress bar",
    "gauss_cdc.secrets: writelines": "whoever writes to stderr",
    "gauss_cdc_lab.emulator.server: sessions": "tests wait for what the emulator has finished",
}

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def names(node: ast.AST) -> Counter[str]:
    """Names that code reads or deletes."""
    found = (n for n in ast.walk(node) if isinstance(n, ast.Name))
    return Counter(n.id for n in found if not isinstance(n.ctx, ast.Store))


def attributes(node: ast.AST) -> Iterator[str]:
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute):
            yield each.attr
        elif isinstance(each, ast.MatchClass):
            yield from each.kwd_attrs


def defined(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    """What stands at a module's top."""
    for node in tree.body:
        if isinstance(node, Definition):
            yield node.name, node
        elif isinstance(node, ast.Assign):
            yield from ((t.id, node) for t in node.targets if isinstance(t, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id, node


def methods(tree: ast.Module) -> Iterator[tuple[str, ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield from ((n.name, n) for n in node.body if isinstance(n, Definition))


def is_registered(node: ast.stmt) -> bool:
    """Say whether a decorator hands it to a library: a command, a validator, an overload."""
    decorators = getattr(node, "decorator_list", ())
    said = {name for each in decorators for name in (*attributes(each), *names(each))}
    return bool(said & {"command", "group", "field_validator", "model_validator", "overload"})


def imports_of_cython() -> str:
    """What the native modules import from Python."""
    paths = sorted(ROOT.glob("*/native/*.p*"))
    paths = [path for path in paths if path.suffix in {".pyx", ".pxi"}]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    return "\n".join(re.findall(r"^from \S+ import (?:\([^)]*\)|.*)", text, re.MULTILINE))


@cache
def unused() -> list[str]:
    parsed = {module: ast.parse(path.read_text("utf-8")) for module, path in modules(*PACKAGES)}
    others = [path for folder in OUTSIDE for path in sorted((ROOT / folder).rglob("*.py"))]
    users = [
        *parsed.values(),
        *(ast.parse(path.read_text("utf-8")) for path in others),
        ast.parse(imports_of_cython()),
    ]
    said = Counter(name for tree in users for name in attributes(tree))
    imported = {
        (node.module, alias.name)
        for tree in users
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    found = []
    for module, tree in parsed.items():
        here = names(tree)
        for name, node in defined(tree):
            if said[name] or (module, name) in imported or name.startswith("__"):
                continue
            if here[name] <= names(node)[name] and not is_registered(node):
                found.append(f"{module}.{name}")
        found += [
            f"{module}: {name}"
            for name, node in methods(tree)
            if not (said[name] or is_registered(node) or name.startswith("__"))
        ]
    return found


def test_what_only_tests_use_is_not_there() -> None:
    assert sorted(set(unused()) - set(CALLED_FROM_OUTSIDE)) == []


def test_the_exceptions_are_needed() -> None:
    assert set(CALLED_FROM_OUTSIDE) - set(unused()) == set()


# ---------------------------------------------------------------- settings
def settings_read() -> set[tuple[str, str]]:
    """Settings that some code reads: `config.kafka.retention`, or `self.plugin` in its section."""
    found = set()
    for module, path in modules(*PACKAGES):
        parsed = ast.parse(path.read_text("utf-8"))
        own = [name for name, models in SECTIONS.items() for m in models if m.__module__ == module]
        for each in ast.walk(parsed):
            if not isinstance(each, ast.Attribute):
                continue
            match each.value:
                case ast.Attribute(attr=section) | ast.Name(id=section):
                    found |= {
                        (name, each.attr) for name in (own if section == "self" else [section])
                    }
    return found


SECTIONS = {
    name: [base for model in sections_of(field.annotation) for base in model.__mro__]
    for name, field in Config.model_fields.items()
}


def is_read(section: str, field: str, read: set[tuple[str, str]]) -> bool:
    """A whole section may be handed on, and the file of a secret is read in its place."""
    secret = field.removesuffix("_file")
    return bool(read & {(section, field), (section, "model_dump")}) or (
        secret != field and is_read(section, secret, read)
    )


def test_a_setting_that_nothing_reads_is_not_there() -> None:
    read = settings_read()
    fields = {
        (name, field)
        for name, configured in Config.model_fields.items()
        for model in sections_of(configured.annotation)
        for field in model.model_fields
    }

    assert [one for one in sorted(fields) if not is_read(*one, read)] == []
    assert not is_read("kafka", "linger", read)
