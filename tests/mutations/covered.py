"""Which fast tests execute which lines: measured once, kept until a text changes.

What is kept stands in `.coverage.mutations.json`, by test file.  A file is run again when its text
has changed, that of tests that it imports, or that of a module which it executes.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import coverage
import pytest
from _pytest.runner import runtestprotocol

ROOT: Final = Path(__file__).parents[2]
_KEPT: Final = ROOT / ".coverage.mutations.json"
_AT_ONCE: Final = 2
_IMPORTED: Final = re.compile(r"^\s*from (tests[\w.]*) import (.*)", re.MULTILINE)


@dataclass
class Covered:
    """Tests and the lines that they execute."""

    seconds: dict[str, float] = field(default_factory=dict)  # test -> how long it took
    lines: dict[str, dict[int, list[str]]] = field(default_factory=dict)  # file -> line -> tests
    imported: dict[str, set[int]] = field(default_factory=dict)  # file -> lines

    def tests(self, file: str, since: int, until: int) -> set[str]:
        """Those that execute one of these lines."""
        lines = self.lines.get(file, {})
        return {test for at in range(since, until + 1) for test in lines.get(at, ())}


class Measuring:
    """A plugin of pytest: runs what is not known any more, under coverage."""

    def __init__(self, files: Sequence[str]) -> None:
        self._files = [str(ROOT / file) for file in files]
        self._now = {file: _digest([ROOT / file]) for file in files}
        self._kept = _read() or {"imported": {}, "files": {}}
        self._imports = self._coverage()
        self._imports.start()

    def _coverage(self) -> coverage.Coverage:
        out = coverage.Coverage(data_file=None, include=self._files, config_file=False)
        out.set_option("run:disable_warnings", ["no-data-collected"])
        return out

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Find out what was imported, and what is to be run."""
        self._imports.stop()
        data = self._imports.get_data()
        self._kept["imported"] = {_name(f): data.lines(f) or [] for f in data.measured_files()}
        digests = {file: _digest(_texts(ROOT / file)) for file in {_file(item) for item in items}}
        known = self._kept["files"]
        for file, kept in list(known.items()):
            covers = {name: self._now.get(name) for name in kept["covers"]}
            if kept["digest"] != digests.get(file) or kept["covers"] != covers:
                del known[file]
        self._new = [item for item in items if _file(item) not in known]
        for file in {_file(item) for item in self._new}:
            known[file] = {"digest": digests[file], "covers": {}, "tests": {}}

    def pytest_runtestloop(self) -> bool:
        """Run the new tests, a file at a time, on two cores."""
        by_file: dict[str, list[pytest.Item]] = defaultdict(list)
        for item in self._new:
            by_file[_file(item)].append(item)
        waiting = list(by_file.items())
        running: dict[int, tuple[str, Path]] = {}
        while waiting or running:
            while waiting and len(running) < _AT_ONCE:
                file, items = waiting.pop(0)
                out = Path(f"{_KEPT}.{len(waiting)}")
                if not (pid := os.fork()):
                    self._measure(items, out)
                running[pid] = file, out
            pid, status = os.wait()
            file, out = running.pop(pid)
            assert status == 0, f"measuring {file} ended with {status}"
            tests = json.loads(out.read_text())
            covers = {name for found in tests.values() for name in found["lines"]}
            kept = self._kept["files"][file]
            kept |= {"tests": tests, "covers": {name: self._now[name] for name in covers}}
            out.unlink()
        _KEPT.write_text(json.dumps(self._kept))
        return True

    def _measure(self, items: list[pytest.Item], out: Path) -> None:
        measured = self._coverage()
        measured.start()
        found: dict[str, dict[str, Any]] = {}
        for at, item in enumerate(items):
            measured.switch_context(item.nodeid)
            began = time.process_time()
            then = items[at + 1] if at + 1 < len(items) else None
            reports = runtestprotocol(item, log=False, nextitem=then)
            if all(report.passed for report in reports):
                seconds = time.process_time() - began
                found[item.nodeid] = {"seconds": seconds, "lines": defaultdict(list)}
        measured.stop()
        data = measured.get_data()
        for file in data.measured_files():
            for line, tests in data.contexts_by_lineno(file).items():
                for test in tests:
                    if test in found:
                        found[test]["lines"][_name(file)].append(line)
        out.write_text(json.dumps(found))
        os._exit(0)


def _read() -> dict[str, Any]:
    return json.loads(_KEPT.read_text()) if _KEPT.exists() else {}


def read() -> Covered:
    """What was measured."""
    kept = _read()
    out = Covered(imported={file: set(lines) for file, lines in kept["imported"].items()})
    for file in kept["files"].values():
        for test, found in file["tests"].items():
            out.seconds[test] = found["seconds"]
            for name, lines in found["lines"].items():
                of_file = out.lines.setdefault(name, {})
                for line in lines:
                    of_file.setdefault(line, []).append(test)
    return out


def _file(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _name(file: str | Path) -> str:
    return str(Path(file).relative_to(ROOT))


@cache
def _texts(path: Path) -> frozenset[Path]:
    """A test file and what it imports of the tests."""
    found, left = set[Path](), [path, *(p / "conftest.py" for p in path.parents)]
    while left:
        here = left.pop()
        if here in found or not here.is_file():
            continue
        found.add(here)
        for module, names in _IMPORTED.findall(here.read_text(encoding="utf-8")):
            at = ROOT / module.replace(".", "/")
            left += [at.with_suffix(".py"), *(at / f"{n.strip()}.py" for n in names.split(","))]
    return frozenset(found)


def _digest(paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(paths):
        digest.update(_name(path).encode() + path.read_bytes())
    return digest.hexdigest()
