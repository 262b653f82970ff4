"""The native modules are built where that is possible, and of all their parts."""

import importlib.util
import re
import shutil
import sysconfig
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
MODULES = SETTINGS["tool"]["setuptools"]["ext-modules"]


def by_name(module: dict[str, Any]) -> str:
    return str(module["name"])


@pytest.mark.parametrize("module", MODULES, ids=by_name)
def test_a_module_is_built_where_a_compiler_is(module: dict[str, Any]) -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    can_be_built = shutil.which(compiler) is not None and header.is_file()

    is_built = importlib.util.find_spec(module["name"]) is not None

    assert is_built or not can_be_built, "`make native` builds it"


@pytest.mark.parametrize("module", MODULES, ids=by_name)
def test_every_part_is_included_and_built_again_when_it_changes(module: dict[str, Any]) -> None:
    [main] = module["sources"]
    folder = Path(main).parent
    there = [*(ROOT / "schemas/native").glob("*.pxi"), *sorted((ROOT / folder).glob("*.pxi"))]
    included = re.findall(r'^include "(.*)"', (ROOT / main).read_text("utf-8"), re.MULTILINE)

    assert {(ROOT / folder / name).resolve() for name in included} == set(there)
    assert module["depends"] == [str(path.relative_to(ROOT)) for path in there]
