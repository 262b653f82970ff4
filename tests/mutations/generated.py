"""Which small edits of the protocol's code no fast test notices: the second half of `make mutate`.

    make mutate                                        a sample of 600 edits: 10 minutes
    make mutate EDITS='--sample 0'                     all of them: an hour
    make mutate EDITS=producer/core/delivery/engine.py  of these files or functions (file:scope)
    make mutate EDITS='--seed 7 --fine'                another sample, of the finer ones, too

The edits are made from the syntax tree (`edits.py`), and run against the tests that execute their
line (`covered.py`), which need no services.  `equivalent.txt` lists those that change nothing that
anybody could see, with the reason.  Fewer than 95 % noticed is a failure.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import os
import random
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import pytest
from rich.console import Console
from rich.table import Table

from tests.mutations import covered, play
from tests.mutations.edits import Edit, edits
from tests.mutations.play import Played

ROOT: Final = Path(__file__).parents[2]
SCOPE: Final = (
    *(
        "producer/core",
        "schemas",
        "spark_consumers/sinks/step.py",
        "spark_consumers/cuts/ledger.py",
    ),
    *(
        "spark_consumers/cuts/segments.py",
        "spark_consumers/cuts/complete.py",
        "spark_consumers/cuts/commits.py",
    ),
)
NOT_IN_SCOPE: Final = ("producer/core/records/row_code.py",)
# Tests that need no services; others cost much and are seldom the only ones to notice.
FAST: Final = (
    *(
        "tests/test_doctests.py",
        "tests/schemas",
        "tests/producer/core",
        "tests/producer/native",
        "tests/producer/sources",
    ),
    *("tests/spark_consumers", "tests/contract", "tests/sim"),
)
NOT_FAST: Final = (
    *("tests/sim/test_mutations.py", "tests/spark_consumers/kafka"),
    *("tests/spark_consumers/dialects", "tests/producer/native/test_any_bytes.py"),
    *("tests/spark_consumers/native/test_any_bytes.py", "tests/producer/sources/test_dial.py"),
)
WANTED: Final = 95.0  # percent
PATIENCE: Final = 15.0  # seconds of tests for one edit
FOREIGN: Final = (
    *("hypothesis", "fastavro", "pydantic", "confluent_kafka.schema_registry", "psycopg2"),
    *("cryptography.x509", "rich.table", "click", "pyarrow", "tenacity", "prometheus_client"),
)
EQUIVALENT: Final = Path(__file__).with_name("equivalent.txt")
_PYTEST: Final = (
    *("-q", "-p", "no:cacheprovider", "-s"),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


def scope() -> list[str]:
    """Files whose edits are tried."""
    found = []
    for name in SCOPE:
        path = ROOT / name
        found += sorted(path.rglob("*.py")) if path.is_dir() else [path]
    files = [str(path.relative_to(ROOT)) for path in found]
    return [file for file in files if file not in NOT_IN_SCOPE]


def equivalent() -> dict[str, str]:
    """Edits that nobody can notice, and why."""
    out = {}
    for line in EQUIVALENT.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition("  -- ")
            out[name] = reason
    return out


def all_edits() -> tuple[list[Edit], dict[str, ast.Module]]:
    """Edits of the whole scope, and the trees that they change."""
    trees = {file: ast.parse((ROOT / file).read_text(encoding="utf-8")) for file in scope()}
    return [edit for file, tree in trees.items() for edit in edits(file, tree)], trees


class Chooser:
    """Chooses the tests for an edit."""

    def __init__(self, known: covered.Covered) -> None:
        self._known = known
        self._of_file: dict[str, list[str]] = {}

    def __call__(self, edit: Edit, killers: Counter[str]) -> Sequence[str]:
        """Tests that execute it, those first that noticed others of its file, then the nearest."""
        known = self._known
        tests = known.tests(edit.file, edit.since, edit.line)
        if self.is_imported(edit):
            lines = known.lines.get(edit.file, {})
            tests = tests | {test for of_line in lines.values() for test in of_line}
        folder = "tests/" + edit.file.rpartition("/")[0]
        first = {test: -often for test, often in killers.most_common(8)}
        ordered = sorted(
            tests,
            key=lambda t: (first.get(t, 0), not t.startswith(folder), known.seconds[t]),
        )
        out, total = [], 0.0
        for test in ordered:
            total += known.seconds[test] + 0.002
            if total > PATIENCE and out:
                continue
            out.append(test)
        return out

    def is_imported(self, edit: Edit) -> bool:
        """Say whether an import executes it."""
        lines = range(edit.since, edit.line + 1)
        return edit.is_of_import or not self._known.imported.get(edit.file, set()).isdisjoint(lines)


def measure() -> covered.Covered:
    """Say which tests execute which lines."""
    _in_child(lambda: _pytest(FAST, covered.Measuring(scope())))
    return covered.read()


def _pytest(paths: Sequence[str], plugin: object) -> None:
    os.environ["GAUSS_CDC_SIM_SECONDS"] = "0"
    ignored = [f"--ignore={path}" for path in NOT_FAST]
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115, PTH123
    code = pytest.main([*_PYTEST, *ignored, *paths], plugins=[plugin, Steady()])
    if code not in {0, 5}:
        sys.exit(f"pytest ended with {code}")


class Steady:
    """A plugin of pytest: the examples of hypothesis are the same in each run."""

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection(self) -> None:
        from hypothesis import Phase, settings

        settings.register_profile(
            "mutations",
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.explicit, Phase.generate),
        )
        settings.load_profile("mutations")


def _in_child(do: Callable[[], None]) -> None:
    if pid := os.fork():
        _, status = os.waitpid(pid, 0)
        if status:
            sys.exit(f"a child ended with {status}")
        return
    code = 1
    try:
        do()
        code = 0
    except SystemExit as error:
        sys.stderr.write(f"{error}\n")
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def play_all(
    chosen: Sequence[Edit],
    trees: dict[str, ast.Module],
    known: covered.Covered,
    on_played: Callable[[Played], None],
) -> None:
    """Play edits: those of functions in one session, the others each in one of its own."""
    choose = Chooser(known)
    for name in FOREIGN:
        importlib.import_module(name)
    reading, writing = os.pipe()
    warm = [edit for edit in chosen if not choose.is_imported(edit)]
    of_name = {edit.name: edit for edit in chosen}
    cold = [edit for edit in chosen if choose.is_imported(edit)]

    def tell(played: Played) -> None:
        os.write(
            writing, f"{played.edit.name}\t{played.by}\t{played.tests}\t{played.seconds}\n".encode()
        )

    def session() -> None:
        plugin = play.Playing(warm, trees, choose, known.seconds, tell)
        _pytest(FAST, plugin)
        for edit in plugin.unfit:
            os.write(writing, f"{edit.name}\t{play.NO_TEST}\t0\t0\n".encode())

    pid = os.fork()
    if not pid:
        os.close(reading)
        code = 1
        try:
            if warm:
                session()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"{error!r}\n")
            raise
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, encoding="utf-8") as lines:
        for line in lines:
            name, by, tests, seconds = line.rstrip("\n").split("\t")
            if by == play.NO_TEST:
                cold.append(of_name[name])
            else:
                on_played(Played(of_name[name], by, int(tests), float(seconds)))
    _, status = os.waitpid(pid, 0)
    if status:
        sys.exit(f"the session ended with {status}")

    def play_one(edit: Edit, tests: Sequence[str], say: Callable[[str], None]) -> None:
        play.import_edited(edit, trees[edit.file])
        files = sorted({test.partition("::")[0] for test in tests})
        _pytest(files, play.PlayingOne(tests, known.seconds, say))

    for played in play.fork_each(cold, choose, play_one):
        on_played(played)


def chosen_of(how: argparse.Namespace, found: Sequence[Edit]) -> list[Edit]:
    """Edits that the command's arguments ask for."""
    excused = equivalent()
    out = [e for e in found if (how.fine or not e.is_fine) and e.name not in excused]
    if how.where:
        return [e for e in out if any(f"{e.file}:{e.scope}".startswith(w) for w in how.where)]
    if 0 < how.sample < len(out):
        out = random.Random(how.seed).sample(out, how.sample)
    return sorted(out, key=lambda e: (e.file, e.line))


def shares(tried: Counter[str], missed: Counter[str]) -> tuple[Table, float]:
    """Print what share was noticed, by module and package; return that of all."""
    table = Table("module", "edits", "noticed", "%")
    share = 100.0
    packages = dict.fromkeys(f"{file.partition('/')[0]}/" for file in sorted(tried))
    for name in (*sorted(tried), *packages, ""):
        total = sum(n for file, n in tried.items() if file.startswith(name))
        noticed = total - sum(n for file, n in missed.items() if file.startswith(name))
        share = 100 * noticed / total
        table.add_row(name or "all", str(total), str(noticed), f"{share:.1f}")
    return table, share


def main(arguments: list[str]) -> int:
    """Play what was asked for; 1 where too few are noticed."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sample", type=int, default=600)
    parser.add_argument("--seed", type=int, default=int(time.time()) // 86_400)
    parser.add_argument("--fine", action="store_true")
    parser.add_argument("--out", default=os.devnull, help="a file for the result of each edit")
    parser.add_argument("where", nargs="*", help="file, or file:scope")
    how = parser.parse_args(arguments)
    known = measure()
    found, trees = all_edits()
    chosen = chosen_of(how, found)
    console = Console(width=140, highlight=False)
    tried: Counter[str] = Counter()
    missed: Counter[str] = Counter()
    began = time.monotonic()
    with Path(how.out).open("w", encoding="utf-8") as out:

        def on_played(played: Played) -> None:
            edit = played.edit
            tried[edit.file] += 1
            out.write(f"{edit.name}\t{edit.line}\t{played.by}\t{played.seconds:.2f}\n")
            out.flush()
            if not played.by:
                missed[edit.file] += 1
                why = "" if played.tests else " (no test executes it)"
                console.print(
                    f"{edit.file}:{edit.line} {edit.scope}: {edit.says}{why}", markup=False
                )

        play_all(chosen, trees, known, on_played)
    if not tried:
        sys.exit("nothing to edit there")
    table, share = shares(tried, missed)
    console.print(table)
    console.print(f"seed {how.seed}, {time.monotonic() - began:.0f} s")
    return int(share < WANTED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
