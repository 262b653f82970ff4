"""Whether the native part of the consumers is here, and what it is built of."""

import re
import shutil
import sysconfig
import tomllib
from pathlib import Path

from spark_consumers.native import IS_BUILT

ROOT = Path(__file__).parents[2]


def test_the_module_is_built_where_a_compiler_is() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]

    assert IS_BUILT or shutil.which(compiler) is None, "`make venv` builds it"


def test_every_part_is_included_and_built_again_when_it_changes() -> None:
    folder = ROOT / "spark_consumers/native"
    there = sorted(path.name for path in folder.glob("*.pxi"))
    module = (folder / "_native.pyx").read_text("utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extensions = {one["name"]: one for one in settings["tool"]["setuptools"]["ext-modules"]}

    assert sorted(re.findall(r'^include "(.*)"', module, re.MULTILINE)) == there
    depends = extensions["spark_consumers.native._native"]["depends"]
    assert depends == [f"spark_consumers/native/{name}" for name in there]
