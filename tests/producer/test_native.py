"""Whether the native module is here, and who makes the rows."""

import re
import shutil
import sysconfig
import tomllib
from pathlib import Path

from producer import native
from producer.native import MODULE
from producer.wire import replication

ROOT = Path(__file__).parents[2]


def test_the_module_is_built_where_a_compiler_is() -> None:
    compiler = (sysconfig.get_config_var("CC") or "cc").split()[0]
    header = Path(sysconfig.get_path("include"), "Python.h")
    can_be_built = shutil.which(compiler) is not None and header.is_file()

    assert MODULE is not None or not can_be_built, "`make native` builds it"


def test_every_part_is_included_and_built_again_when_it_changes() -> None:
    there = sorted(path.name for path in (ROOT / "producer/native").glob("*.pxi"))
    module = (ROOT / "producer/native/_native.pyx").read_text("utf-8")
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    extensions = {one["name"]: one for one in settings["tool"]["setuptools"]["ext-modules"]}

    assert sorted(re.findall(r'^include "(.*)"', module, re.MULTILINE)) == there
    depends = extensions["producer.native._native"]["depends"]
    assert depends == [f"producer/native/{name}" for name in there]


def test_it_can_be_switched_off() -> None:
    assert native.parts("off") is None
    assert native.split("off") is replication.split
    assert native.described("off") == 'pure Python ([kafka] native = "off")'


def test_it_is_used_where_it_is_built() -> None:
    if MODULE is None:
        assert native.split("auto") is replication.split
        assert "no C compiler" in native.described("auto")
    else:
        assert native.split("auto") is MODULE.split
        assert native.described("auto") == "the native module"
