"""Takes the modules along that the reader shares with gauss-cdc, under names of its own.

Their code stands once, in this repository.  In the wheel they lie below `gauss_cdc_reader._shared`:
a service has modules named `schemas` of its own, and both distributions may be installed together.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py
from setuptools.command.sdist import sdist

HERE = Path(__file__).resolve().parent
ROOT = HERE if (HERE / "schemas").is_dir() else HERE.parent  # of an archive, or of the repository
OWN, SHARED = "gauss_cdc_reader", ("schemas", "spark_consumers")
BELOW = f"{OWN}._shared"
_IMPORT = re.compile(rf"^( *(?:from|import) )(?=(?:{'|'.join(SHARED)})[. ])", re.MULTILINE)
# Compiled code is not taken along: that of an installed gauss-cdc is used.
_NATIVE = ("from spark_consumers.native import _native", f"from {OWN}.beside import _native")


def file_of(module: str) -> Path:
    """Return where a module's text is."""
    path = (HERE if module.startswith(OWN) else ROOT).joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def imported(module: str) -> Iterator[str]:
    """Modules of ours that a module imports when it runs, with their packages."""
    left: list[ast.AST] = [ast.parse(file_of(module).read_text("utf-8"))]
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        left += ast.iter_child_nodes(node)
        if isinstance(node, ast.ImportFrom) and node.module:
            found = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        else:
            continue
        for name in found:
            parts = name.split(".")
            if parts[0] in SHARED:
                yield from (".".join(parts[: at + 1]) for at in range(len(parts)))


def shared() -> list[str]:
    """Modules of gauss-cdc that the reader needs."""
    seen: set[str] = set()
    left = [f"{OWN}.{path.stem}" for path in (HERE / OWN).glob("*.py")]
    while left:
        module = left.pop()
        if module not in seen and file_of(module).is_file():
            seen.add(module)
            left += imported(module)
    return sorted(module for module in seen if module.startswith(SHARED))


def files() -> list[Path]:
    """Return the files of gauss-cdc that the reader needs."""
    return [
        *map(file_of, shared()),
        *sorted((ROOT / "schemas" / "avro").glob("*.avsc")),
    ]


def renamed(text: str) -> str:
    """Return a module's text, with the names that modules have in the wheel."""
    return _IMPORT.sub(rf"\1{BELOW}.", text.replace(*_NATIVE))


class TakeAlong(build_py):
    """Builds the package with what it shares; an editable install finds that in the tree."""

    def run(self) -> None:
        """Build, and write the shared files below `_shared`, imports rewritten; not if editable."""
        super().run()
        if self.editable_mode:
            return
        there = Path(self.build_lib) / OWN
        for path in there.glob("*.py"):
            if path.name != "beside.py":
                path.write_text(renamed(path.read_text("utf-8")), "utf-8")
        below = there / "_shared"
        for path in files():
            text = path.read_text("utf-8")
            _write(below / path.relative_to(ROOT), renamed(text) if path.suffix == ".py" else text)
        _write(below / "__init__.py", '"""What the reader shares with gauss-cdc."""\n')


class Archive(sdist):
    """An archive of the sources has what is shared beside the package, as the repository does."""

    def make_release_tree(self, base_dir: str, names: list[str]) -> None:
        """Make the archive's tree, and put the shared files at the paths they have here."""
        super().make_release_tree(base_dir, names)
        for path in files():
            _write(Path(base_dir) / path.relative_to(ROOT), path.read_text("utf-8"))


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


if __name__ == "__main__":
    setup(cmdclass={"build_py": TakeAlong, "sdist": Archive})
