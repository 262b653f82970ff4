"""The documents: links lead somewhere, and what is shown to be typed can be typed.

SQL is run by tests/integration/test_documented_sql.py.
"""

import ast
import re
import shlex
import shutil
import subprocess
import textwrap
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from gauss_cdc import logs
from gauss_cdc.cli import cli
from gauss_cdc.config import Config
from gauss_cdc_lab.reference import ROOT, documents
from tests.e2e.test_documented_commands import WALK

_FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ +(.+)$", re.MULTILINE)
DOCUMENTS = documents()


def prose(path: Path) -> str:
    return _FENCE.sub("", path.read_text("utf-8"))


def anchors(path: Path) -> set[str]:
    """Names of a document's headings, as hosts of repositories make them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-")
        for heading in _HEADING.findall(prose(path))
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_link_leads_somewhere(path: Path) -> None:
    dead = []
    for link in _LINK.findall(prose(path)):
        if re.match(r"[a-z]+:", link):
            continue
        where, _, anchor = link.partition("#")
        target = (path.parent / where).resolve() if where else path
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)

    assert dead == []


_MESSAGE = re.compile(r'(docs/[\w/-]+\.md)[^"]*\("([^"]+)"\)')


def test_what_messages_name_in_a_document_is_there() -> None:
    """A heading, or what a paragraph begins with."""
    named = {
        (document, title)
        for folder in ("gauss_cdc", "producer", "schemas", "spark_consumers", "reader")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for document, title in _MESSAGE.findall(node.value)
    }

    assert len(named) > 1
    for document, title in named:
        text = prose(ROOT / document)
        titles = {*_HEADING.findall(text), *re.findall(r"^\*\*(.+?)\*\*", text, re.MULTILINE)}
        assert title in titles, document


def test_every_document_is_linked() -> None:
    linked = {ROOT / "README.md"}
    for path in DOCUMENTS:
        linked |= {
            (path.parent / link.partition("#")[0]).resolve()
            for link in _LINK.findall(prose(path))
            if not re.match(r"[a-z]+:", link)
        }
    folders = {path for path in linked if path.is_dir()}

    assert [p for p in DOCUMENTS if p not in linked and p.parent not in folders] == []


# ---------------------------------------------------------------- blocks
# Languages of blocks, and what becomes of them; `text` is shown, not run.
LANGUAGES = {"text", "sh", "sql", "toml", "python"}
# What is marked `not run`: commands that a block begins lines with, and why.
NOT_RUN = {
    "make": (("make",), "each is a whole session; tests/e2e/test_kills.py plays the demo"),
    "install": (
        ("python3 -m venv", "venv/bin/pip install", "export"),
        "it downloads 0.6 GB; tests/integration/test_wheel.py builds what is installed",
    ),
    "replay": (
        ("export", "gauss-cdc"),
        "needs a recording of the reader's; tests/e2e/test_gauss_golden.py replays ours",
    ),
    "examples": (
        ("python docs/examples/", "spark-submit", "java -cp"),
        "tests/e2e/test_examples.py runs the programs on services of its own",
    ),
    "reader": (
        ("python -m pip install ./reader",),
        "tests/e2e/test_reader.py builds its wheel and installs that alone",
    ),
    "release": (("sha256sum",), "tests/gauss_cdc_lab/test_release.py checks sums of its own"),
    "compare": (
        ("gauss-cdc verify",),
        "the first tutorial runs it; tests/e2e/test_verify.py has what differs",
    ),
    "benchmarks": (
        ("python benchmarks/",),
        "each takes minutes; tests/integration/test_benchmarks.py runs the first one quickly",
    ),
}
# Files with Python blocks, and the test that runs them.
PYTHON = {
    "docs/lakes.md": "tests/integration/test_lakes.py",
    "docs/spark.md": "tests/e2e/test_documented_examples.py",
}
# What a configuration needs beside the part that a document shows.
REST = {
    "source": {"dsn": "postgresql://cdc@db.example.com/bank", "slot": "gauss_cdc"},
    "kafka": {"prefix": "bank", "client": {"bootstrap.servers": "kafka.example.com:9092"}},
    "registry": {"url": "http://registry.example.com:8081"},
}
_BLOCK = re.compile(r"^( *)```(\S*)\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
_MARKED = re.compile(
    r"^ *<!-- ((?:not )?run): ([\w-]+) -->\n( *)```sh\n(.*?)^\3```", re.DOTALL | re.MULTILINE
)
_INLINE = re.compile(r"`(gauss-cdc [^`]+)`")
_STATEMENT_END = re.compile(r"\s(?:&&|&|\|\|?|;)(?:\s|$)")


def blocks(language: str) -> list[Any]:
    """Blocks of a language in all documents: (path, text), without their indentation."""
    return [
        pytest.param(path, textwrap.dedent(text), id=f"{path.relative_to(ROOT)}-{number}")
        for path in DOCUMENTS
        for number, (_, found, text) in enumerate(_BLOCK.findall(path.read_text("utf-8")), 1)
        if found == language
    ]


def commands(text: str) -> list[list[str]]:
    """The words of each simple command of a block of shell."""
    whole = text.replace("\\\n", " ")
    lines = [part for line in whole.splitlines() for part in _STATEMENT_END.split(line)]
    split = [shlex.split(line, comments=True) for line in lines]
    return [words for words in split if words]


def parse(words: list[str], *, is_whole: bool) -> None:
    """Let the command line read a command; values may be missing or words if it is not whole."""
    command: click.Command = cli
    context, rest = None, words[1:]
    try:
        while True:
            context = command.make_context(command.name or "gauss-cdc", rest, parent=context)
            left = [*context._protected_args, *context.args]
            if not isinstance(command, click.Group) or not left:
                return
            found = command.get_command(context, left[0])
            if found is None:
                raise click.UsageError(f"no such command: {left[0]}")
            command, rest = found, left[1:]
    except click.exceptions.Exit:  # --help
        return
    except click.BadParameter:
        if is_whole:
            raise


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A folder with the files that commands of documents name, and their variables."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GAUSS_CDC_EMULATOR_PASSWORD", "x")
    for name in ("stream.jsonl.gz", "tables.json", "TABLES.json", "FILE"):
        (tmp_path / name).touch()
    yield
    logs.reset()


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_every_block_names_a_language_that_is_tested(path: Path) -> None:
    found = {language for _, language, _ in _BLOCK.findall(path.read_text("utf-8"))}

    assert found <= LANGUAGES


@pytest.mark.parametrize(("path", "text"), blocks("toml"))
def test_every_configuration_is_valid(path: Path, text: str, tmp_path: Path) -> None:
    said = tomllib.loads(text)
    targets = said.get("target")
    for target in targets if isinstance(targets, list) else [targets]:
        own = {**said, **({"target": target} if target is not None else {})}
        whole = {name: {**REST.get(name, {}), **own.get(name, {})} for name in {**REST, **own}}

        config = Config.model_validate(whole)

        assert config.kafka.prefix == "bank"


@pytest.mark.parametrize(("path", "text"), blocks("sh"))
def test_every_command_is_run_or_says_why_not(path: Path, text: str) -> None:
    (how, name), *_ = (
        (marked, name)
        for marked, name, _, found in _MARKED.findall(path.read_text("utf-8"))
        if textwrap.dedent(found) == text
    )

    if how == "run":
        assert (str(path.relative_to(ROOT)), name) in WALK
        return
    begins, _ = NOT_RUN[name]
    lines = [" ".join(words) for words in commands(text)]
    assert [line for line in lines if not line.startswith(begins)] == []


@pytest.mark.parametrize(("path", "text"), blocks("sh"))
@pytest.mark.usefixtures("_elsewhere")
def test_every_command_can_be_typed(path: Path, text: str) -> None:
    for words in commands(text):
        match words[0]:
            case "gauss-cdc":
                parse(words, is_whole=True)
            case "make":
                make = shutil.which("make") or "make"
                done = subprocess.run(
                    [make, "-n", *words[1:]], check=False, cwd=ROOT, capture_output=True
                )
                assert done.returncode == 0, done.stderr
            case "export":
                assert all("=" in word for word in words[1:])
            case _:
                named = [word for word in words if word.startswith(("docs/", "benchmarks/"))]
                assert all((ROOT / word).is_file() for word in named)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
@pytest.mark.usefixtures("_elsewhere")
def test_commands_in_sentences_have_the_options_that_they_show(path: Path) -> None:
    for line in _INLINE.findall(prose(path)):
        words = shlex.split(line.replace("[", "").replace("]", "").replace("…", "x"))

        parse(words, is_whole=False)


@pytest.mark.parametrize(
    "line", ["gauss-cdc run --nonsense", "gauss-cdc rum", "gauss-cdc slot dorp"]
)
def test_a_command_that_is_not_there_would_be_noticed(line: str) -> None:
    with pytest.raises(click.UsageError):
        parse(line.split(), is_whole=False)


@pytest.mark.parametrize(("path", "text"), blocks("python"))
def test_every_program_is_run_by_a_test(path: Path, text: str) -> None:
    compile(text, str(path), "exec")

    where = ROOT / PYTHON[str(path.relative_to(ROOT))]
    assert path.name in where.read_text("utf-8")


def test_every_example_is_run_by_a_test() -> None:
    files = ("test_examples.py", "test_reader.py")
    tests = "".join((ROOT / "tests" / "e2e" / name).read_text("utf-8") for name in files)
    programs = [p for p in (ROOT / "docs" / "examples").iterdir() if p.suffix in {".py", ".java"}]

    assert [program.name for program in programs if program.name not in tests] == []


def test_exceptions_name_tests_that_exist() -> None:
    for why in [*(why for _, why in NOT_RUN.values()), *PYTHON.values()]:
        assert [(ROOT / name).is_file() for name in re.findall(r"tests/\S+\.py", why)] == [True]
