"""What messages and documents tell a person to type exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click

from gauss_cdc.cli import cli
from gauss_cdc.config import REMOVED, Config, keys, sections_of
from gauss_cdc_lab import reference
from tests import tree

ROOT = reference.ROOT
CODE = [path for _, path in tree.modules(*tree.PACKAGES)]
TEXTS = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / "docs").rglob("*.md")),
    *sorted(path for path in (ROOT / "docker").rglob("*") if path.is_file()),
]
# Names of sessions at a server, and a program that is told what to do by spark-submit.
NO_COMMANDS = {"compare", "sampler", "under"}
_TYPED = re.compile(r"gauss-cdc((?: +(?:--?)?[a-z][a-z-]*)+)")
# In a sentence the command's own name may be all there is: `run --accept-gap`.
_SHORT = re.compile(r"[`(]((?:[a-z]+ )?[a-z]+(?: --[a-z][a-z-]*)+)")
_WORD = re.compile(r"[a-z][a-z-]*")
_OPTION = re.compile(r"--[a-z][a-z-]*")


def commands(group: click.Group = cli, path: str = "") -> Iterator[tuple[str, click.Command]]:
    for name, command in group.commands.items():
        yield f"{path}{name}", command
        if isinstance(command, click.Group):
            yield from commands(command, f"{path}{name} ")


COMMANDS = dict(commands())


def fault(words: list[str]) -> str | None:
    """Say what of a typed command does not exist; words of a sentence may follow it."""
    command: click.Command = cli
    known = {option for parameter in cli.params for option in parameter.opts}
    at = 0
    for at, word in enumerate(words):
        if word.startswith("-"):
            break
        if not isinstance(command, click.Group):
            break
        if word not in command.commands:
            return f"no command {' '.join(words[: at + 1])}"
        command = command.commands[word]
    known |= {o for p in command.params for o in [*p.opts, *p.secondary_opts]} | {"--help"}
    for word in words[at:]:
        if _OPTION.fullmatch(word) and word not in known:
            return f"no option {word} of {command.name}"
    return None


_SECTIONS = {
    name: {key for model in sections_of(field.annotation) for key in keys(model)}
    for name, field in Config.model_fields.items()
}
_NAMES = "|".join(_SECTIONS)
# `[source] slot`, and `source.slot`; what follows a section in a sentence need not be a setting.
_SETTING = re.compile(rf"\[({_NAMES})\] ([a-z]+(?:-[a-z]+)*)(?<!matches)(?= =|[,;:.)`]|$)")
_DOTTED = re.compile(rf"(?<![\w.$/{{-])({_NAMES})\.([a-z]+(?:-[a-z]+)+|slot|dsn|prefix|plugin)\b")


def settings(text: str) -> Iterator[tuple[str, str]]:
    for pattern in (_SETTING, _DOTTED):
        for match in pattern.finditer(text):
            yield match[1], match[2]


@cache
def strings(path: Path) -> list[str]:
    """Every string of a module, those of an f-string joined, docstrings included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.JoinedStr):
            found.append(
                "".join(
                    part.value if isinstance(part, ast.Constant) else "\x00" for part in node.values
                )
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            found.append(node.value)
    return found


def mentions(text: str) -> Iterator[list[str]]:
    for match in _TYPED.finditer(text):
        yield match[1].split()
    for match in _SHORT.finditer(text):
        words = match[1].split()
        if " ".join(w for w in words if _WORD.fullmatch(w)) in COMMANDS:
            yield words


def test_each_command_that_a_message_names_exists() -> None:
    found = [
        (path, words)
        for path in CODE
        for text in strings(path)
        for words in mentions(" ".join(text.split()))
    ]
    wrong = [(path, fault(words)) for path, words in found if words[0] not in NO_COMMANDS]

    assert found
    assert not [(path, what) for path, what in wrong if what]


def test_each_setting_that_a_message_names_exists() -> None:
    found = [
        (path, *named)
        for path in CODE
        for text in strings(path)
        for named in settings(" ".join(text.split()))
    ]
    wrong = [
        (path, f"{section}.{key}") for path, section, key in found if key not in _SECTIONS[section]
    ]

    assert found
    assert not [(path, name) for path, name in wrong if name not in REMOVED]


def written_as_code(text: str) -> list[str]:
    """What a document shows as code: a sentence may go on behind the product's name."""
    return [
        *re.findall(r"`([^`\n]+)`", text),
        *re.findall(r"(?m)^(?:    |\$ )(.+)$", text),
        *re.findall(r"(?ms)^```[a-z]*\n(.*?)^```", text),
    ]


def test_each_command_that_a_document_names_exists() -> None:
    found = [
        (path, words)
        for path in TEXTS
        for piece in written_as_code(path.read_text("utf-8"))
        for words in mentions("`" + " ".join(piece.split()))
    ]
    wrong = [(path, fault(words)) for path, words in found]

    assert found
    assert not [(path, what) for path, what in wrong if what]


def test_what_does_not_exist_is_found() -> None:
    assert [*mentions("load it (gauss-cdc reload)")] == [["reload"]]
    assert fault(["reload"]) == "no command reload"
    assert fault(["slot", "rop", "--yes"]) == "no command slot rop"
    assert fault(["run", "--accept-gaps", "loads", "again"]) == "no option --accept-gaps of run"
    assert fault(["run", "--accept-gap", "loads", "again"]) is None
    assert [*settings("choose [source] slot, or tables.unfit-rows = 'stop'")] == [
        ("source", "slot"),
        ("tables", "unfit-rows"),
    ]
    assert "unfit-rows" not in _SECTIONS["tables"]
    assert "unfit-row" in _SECTIONS["tables"]
    assert [*mentions("see `check --fix` and (run --accept-gap)")] == [
        ["check", "--fix"],
        ["run", "--accept-gap"],
    ]
