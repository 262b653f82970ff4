"""Runs tests on edited modules, each in a process of its own that is forked when all is imported.

An edit of a function's body exchanges the code of the functions that are there.  What an import
executes is edited where the module is imported again, in a process that has not imported it.
"""

from __future__ import annotations

import ast
import gc
import importlib.abc
import importlib.machinery
import os
import resource
import selectors
import signal
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Final

import pytest
from _pytest.runner import runtestprotocol

from tests.mutations.edits import Edit

ROOT: Final = Path(__file__).parents[2]
AT_ONCE = 2
_SILENCE: Final = 180  # seconds without a test's end
_SLOWER: Final = 6  # times that a test may take what it took
_MEMORY: Final = 3 << 30  # bytes more than there are

NO_END, NO_TEST = "no end", "no test"
UNFIT: Final = 3  # exit code: the edit has to be imported


@dataclass(frozen=True)
class Played:
    """What became of an edit; `by`: the test that failed, "" where none did."""

    edit: Edit
    by: str
    tests: int
    seconds: float


@dataclass
class _Child:
    edit: Edit
    tests: Sequence[str]
    began: float
    heard: float
    pid: int
    said: str = ""


class Playing:
    """A plugin of pytest: plays edits instead of running tests."""

    def __init__(
        self,
        edits: Sequence[Edit],
        trees: Mapping[str, ast.Module],
        choose: Callable[[Edit, Counter[str]], Sequence[str]],
        seconds: Mapping[str, float],
        on_played: Callable[[Played], None],
    ) -> None:
        """`choose` gives an edit's tests, those first that noticed others of its file."""
        self._edits, self._trees, self._choose = edits, trees, choose
        self._seconds, self._on_played = seconds, on_played
        self.unfit: list[Edit] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Play all edits."""
        items = {item.nodeid: item for item in session.items}
        gc.unfreeze()  # pytest has frozen what it collected
        functions = _functions({str(ROOT / edit.file) for edit in self._edits})
        gc.collect()
        gc.freeze()

        def play(edit: Edit, tests: Sequence[str], say: Callable[[str], None]) -> None:
            edit.apply()
            if not _exchange(functions[str(ROOT / edit.file)], self._trees[edit.file], edit.file):
                os._exit(UNFIT)
            run([items[test] for test in tests], self._seconds, say)

        for played in fork_each(self._edits, self._choose, play):
            if played.by == NO_TEST:
                self.unfit.append(played.edit)
            else:
                self._on_played(played)
        return True


class PlayingOne:
    """A plugin of pytest: runs tests until one fails, and leaves with its name."""

    def __init__(
        self, tests: Sequence[str], seconds: Mapping[str, float], say: Callable[[str], None]
    ) -> None:
        self._tests, self._seconds, self._say = tests, seconds, say

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Run them in their order; a module that cannot be imported is noticed, too."""
        if session.testsfailed:
            self._say("failed to be imported\n")
            os._exit(0)
        items = {item.nodeid: item for item in session.items}
        run([items[test] for test in self._tests if test in items], self._seconds, self._say)
        return True


def fork_each(
    edits: Sequence[Edit],
    choose: Callable[[Edit, Counter[str]], Sequence[str]],
    play: Callable[[Edit, Sequence[str], Callable[[str], None]], None],
) -> Iterator[Played]:
    """Play edits in processes of their own, some at once."""
    waiting = list(reversed(edits))
    children: dict[int, _Child] = {}
    killers: dict[str, Counter[str]] = defaultdict(Counter)
    selector = selectors.DefaultSelector()
    while waiting or children:
        while waiting and len(children) < AT_ONCE:
            edit = waiting.pop()
            if not (tests := choose(edit, killers[edit.file])):
                yield Played(edit, "", 0, 0.0)
                continue
            reading, child = _fork(edit, tests, play)
            children[reading] = child
            selector.register(reading, selectors.EVENT_READ)
        ready = [key.fd for key, _ in selector.select(1.0)]
        now = time.monotonic()
        for reading, child in list(children.items()):
            if reading in ready:
                data = os.read(reading, 65536)
                child.said += data.decode()
                child.heard = now
                if data:
                    continue
            elif now - child.heard < _SILENCE:
                continue
            else:
                os.kill(child.pid, signal.SIGKILL)
            selector.unregister(reading)
            os.close(reading)
            del children[reading]
            played = _ended(child)
            if played.by:
                killers[child.edit.file][played.by] += 1
            yield played


def _fork(
    edit: Edit,
    tests: Sequence[str],
    play: Callable[[Edit, Sequence[str], Callable[[str], None]], None],
) -> tuple[int, _Child]:
    reading, writing = os.pipe()
    now = time.monotonic()
    if pid := os.fork():
        os.close(writing)
        return reading, _Child(edit, tests, now, now, pid)
    os.close(reading)
    if not os.environ.get("MUTATIONS_DEBUG"):
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
    used = 1024 * int(Path("/proc/self/statm").read_text().split()[0]) * 4
    resource.setrlimit(resource.RLIMIT_AS, (used + _MEMORY, used + _MEMORY))
    try:
        play(edit, tests, lambda text: _write(writing, text))
    except SystemExit:  # a conftest imports it
        _write(writing, "failed to be imported\n")
    except BaseException as error:  # noqa: BLE001  ours: what an edit does, a test says
        _write(writing, f"broken {type(error).__name__}: {error}\n")
    os._exit(0)


def _write(file: int, text: str) -> None:
    os.write(file, text.encode())


def _ended(child: _Child) -> Played:
    _, status = os.waitpid(child.pid, 0)
    lines = child.said.splitlines()
    failed = [line.partition(" ")[2] for line in lines if line.startswith("failed ")]
    if broken := [line for line in lines if line.startswith("broken ")]:
        raise RuntimeError(f"{child.edit.name}: {broken[0]}")
    if failed:
        by = failed[0]
    elif os.WIFSIGNALED(status):
        by = NO_END if os.WTERMSIG(status) in {signal.SIGPROF, signal.SIGKILL} else "crash"
    elif os.WEXITSTATUS(status) == UNFIT:
        by = NO_TEST
    else:
        by = "" if "passed" in lines else "crash"
    tests = sum(line == "." for line in lines)
    return Played(child.edit, by, tests, time.monotonic() - child.began)


def run(
    items: Sequence[pytest.Item], seconds: Mapping[str, float], say: Callable[[str], None]
) -> None:
    """Run tests until one fails."""
    for at, item in enumerate(items):
        signal.setitimer(signal.ITIMER_PROF, 3 + _SLOWER * seconds.get(item.nodeid, 1.0))
        then = items[at + 1] if at + 1 < len(items) else None
        reports = runtestprotocol(item, log=False, nextitem=then)
        if any(report.failed for report in reports):
            say(f"failed {item.nodeid}\n")
            os._exit(0)
        say(".\n")
    say("passed\n")
    os._exit(0)


# ------------------------------------------------------------ functions that are there
def _functions(files: set[str]) -> dict[str, list[FunctionType]]:
    found: dict[str, list[FunctionType]] = {file: [] for file in files}
    for one in gc.get_objects():
        if type(one) is FunctionType and one.__code__.co_filename in found:
            found[one.__code__.co_filename].append(one)
    return found


def _exchange(functions: Sequence[FunctionType], tree: ast.Module, file: str) -> bool:
    """Give functions the code of a tree; False where one cannot have it."""
    assert functions, f"{file} was not imported"
    new = _codes(compile(ast.fix_missing_locations(tree), str(ROOT / file), "exec"))
    seen: Counter[tuple[str, int]] = Counter()
    for function in functions:
        old = function.__code__
        code = new.get((old.co_qualname, old.co_firstlineno))
        if code is None or code.co_freevars != old.co_freevars:
            return False
        function.__code__ = code
    del seen
    return True


def _codes(code: CodeType) -> dict[tuple[str, int], CodeType]:
    found = {}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found.setdefault((constant.co_qualname, constant.co_firstlineno), constant)
            found.update(_codes(constant))
    return found


# ------------------------------------------------------------ what an import executes
class Importing(importlib.abc.MetaPathFinder):
    """Imports one module from a tree."""

    def __init__(self, file: str, tree: ast.Module) -> None:
        name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        self._name, self._file, self._tree = name, file, tree

    def find_spec(
        self, name: str, path: object = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Only the one."""
        if name != self._name:
            return None
        loader = _Loader(name, str(ROOT / self._file))
        loader.tree = self._tree
        is_package = self._file.endswith("__init__.py")
        spec = importlib.machinery.ModuleSpec(
            name, loader, origin=loader.path, is_package=is_package
        )
        if is_package:
            spec.submodule_search_locations = [str(Path(loader.path).parent)]
        spec.has_location = True
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    tree: ast.Module

    def get_code(self, fullname: str) -> CodeType:
        return compile(ast.fix_missing_locations(self.tree), self.path, "exec")


def import_edited(edit: Edit, tree: ast.Module) -> None:
    """Have a module imported as it is edited; it was not imported yet."""
    edit.apply()
    sys.meta_path.insert(0, Importing(edit.file, tree))
