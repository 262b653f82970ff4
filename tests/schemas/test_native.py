"""A native module is used only where it was built from the sources beside it."""

import os
import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pytest

from gauss_cdc.pack import pack
from schemas.native import FILE, Outdated, check_built, load_from_zip
from spark_consumers import native

BUILT = 4_000_000_000  # long after what both halves include


@pytest.fixture
def package(tmp_path: Path) -> Path:
    for name in ("__init__.py", "_native.pyx", "walk.pxi", "_native.abi3.so"):
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (BUILT, BUILT))
    return tmp_path / "__init__.py"


def test_a_module_that_is_as_new_as_its_sources_is_used(package: Path) -> None:
    check_built(str(package))


@pytest.mark.parametrize("source", ["_native.pyx", "walk.pxi"])
def test_a_module_that_is_older_than_a_source_is_not(package: Path, source: str) -> None:
    os.utime(package.parent / source, (BUILT + 1, BUILT + 1))

    with pytest.raises(Outdated, match="make native"):
        check_built(str(package))


def test_a_module_that_is_older_than_what_both_halves_include_is_not(package: Path) -> None:
    for path in package.parent.iterdir():
        os.utime(path, (1_000, 1_000))

    with pytest.raises(Outdated, match="make native"):
        check_built(str(package))


def test_an_installed_package_and_a_zip_have_no_sources(package: Path) -> None:
    for source in ("_native.pyx", "walk.pxi"):
        (package.parent / source).unlink()

    check_built(str(package))
    check_built("/somewhere/gauss-cdc.zip/producer/native/__init__.py")


def said_of_a_zip(folder: Path) -> list[str]:
    """What the consumers' package says of itself in a Python that has it by a zip."""
    program = (
        "import schemas, spark_consumers.native as n; print(schemas.__file__); print(n.IS_BUILT)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": "code.zip", "TMPDIR": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [path.name for path in folder.iterdir() if path.is_dir()] == []  # nothing is left
    return done.stdout.split()


def test_a_native_module_in_a_zip_is_loaded(tmp_path: Path) -> None:
    pack(tmp_path / "code.zip")

    file, is_built = said_of_a_zip(tmp_path)

    assert "code.zip/" in file
    assert is_built == str(native.IS_BUILT)


def test_a_library_in_a_zip_is_a_file_for_as_long_as_it_is_loaded(tmp_path: Path) -> None:
    with ZipFile(tmp_path / "code.zip", "w") as code:
        code.writestr("zipped/__init__.py", "")
        code.writestr(f"zipped/{FILE}", b"MZ")
    package = zipimporter(str(tmp_path / "code.zip")).find_spec("zipped")
    assert package is not None

    with pytest.raises(ImportError) as refused:
        load_from_zip(package)

    assert refused.value.path is not None
    assert FILE in refused.value.path
    assert "cannot open shared object" not in str(refused.value), "it was written"
    assert not Path(refused.value.path).exists()


def test_a_library_of_another_platform_in_a_zip_counts_as_none(tmp_path: Path) -> None:
    pack(tmp_path / "whole.zip")
    with ZipFile(tmp_path / "whole.zip") as whole, ZipFile(tmp_path / "code.zip", "w") as code:
        for name in whole.namelist():
            code.writestr(name, b"MZ" if name.endswith(FILE) else whole.read(name))

    assert said_of_a_zip(tmp_path)[1] == "False"
