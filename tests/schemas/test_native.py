"""A native module is used only where it was built from the sources beside it."""

import os
from pathlib import Path

import pytest

from schemas.native import Outdated, check_built


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("__init__.py", "_native.pyx", "walk.pxi", "_native.abi3.so"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_000, 1_000))
    return tmp_path / "__init__.py"


def test_a_module_that_is_as_new_as_its_sources_is_used(package: Path) -> None:
    check_built(str(package))


@pytest.mark.parametrize("source", ["_native.pyx", "walk.pxi"])
def test_a_module_that_is_older_than_a_source_is_not(package: Path, source: str) -> None:
    os.utime(package.parent / source, (1_001, 1_001))

    with pytest.raises(Outdated, match="make native"):
        check_built(str(package))


def test_an_installed_package_and_a_zip_have_no_sources(package: Path) -> None:
    for source in ("_native.pyx", "walk.pxi"):
        (package.parent / source).unlink()

    check_built(str(package))
    check_built("/somewhere/gauss-cdc.zip/producer/native/__init__.py")
