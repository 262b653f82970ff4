"""What is built is complete, and the same each time: packages, locks, schemas, no tests."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from gauss_cdc.pack import MODULES
from gauss_cdc_lab import release
from tests.tree import LABORATORY, PRODUCT, ROOT

SOURCES = {".pyx", ".pxi"}  # of the native modules
BUILT = {f"{half}/native/_native.abi3.so" for half in ("producer", "spark_consumers")}
EPOCH = 1_700_000_000
_LITTER = shutil.ignore_patterns("__pycache__", "*.so", "_native.c", "*.egg-info", "build")


def copied(to: Path) -> Path:
    """A copy of the sources: a build leaves its litter beside them."""
    for name in ("pyproject.toml", "LICENSE", "README.md", *PRODUCT, *MODULES, "lab", "reader"):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, to / name, ignore=_LITTER)
        elif source.exists():
            shutil.copy(source, to / name)
    return to


def sources(there: Path, *packages: str) -> set[str]:
    return {
        str(path.relative_to(there))
        for package in packages
        for path in (there / package).rglob("*")
        if path.is_file()
    }


def build(there: Path, *words: str, **environment: str) -> Path:
    """Build what is asked for; return the wheel."""
    built = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", "out", *words],
        cwd=there,
        env=os.environ | {"CFLAGS": "-O0"} | environment,  # what is built here is never run
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout
    (wheel,) = (there / "out").glob("*.whl")
    return wheel


def held(wheel: Path) -> set[str]:
    return {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}


def without(names: set[str], suffixes: set[str]) -> set[str]:
    return {name for name in names if Path(name).suffix not in suffixes}


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    wanted = {*sources(copied(tmp_path), *PRODUCT), *MODULES}

    wheel = build(tmp_path)

    assert "-cp311-abi3-" in wheel.name
    assert held(wheel) - BUILT == without(wanted, SOURCES)
    with tarfile.open(next((tmp_path / "out").glob("*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert wanted - names == set()
    assert {name for name in names if LABORATORY in name} == set()
    asked = "from gauss_cdc.runtime import jars; print(jars.__file__, len(jars.lock('kafka')))"
    reported = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path / "out",
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert reported == f"{wheel}/gauss_cdc/runtime/jars.py 46\n"


def test_without_a_compiler_the_wheel_holds_all_but_the_native_modules(tmp_path: Path) -> None:
    wanted = {*sources(copied(tmp_path), *PRODUCT), *MODULES}

    wheel = build(tmp_path, "--wheel", "--no-isolation", CC="/bin/false")

    assert held(wheel) == without(wanted, SOURCES)


def test_the_wheel_of_the_laboratory_holds_it_alone(tmp_path: Path) -> None:
    laboratory = copied(tmp_path) / "lab"
    wanted = sources(laboratory, LABORATORY)

    wheel = build(laboratory, "--wheel", "--no-isolation")

    assert held(wheel) == wanted
    with zipfile.ZipFile(wheel) as archive:
        (said,) = (name for name in archive.namelist() if name.endswith("entry_points.txt"))
        assert "services = gauss_cdc_lab.commands" in archive.read(said).decode()


def test_the_archive_of_the_reader_builds_what_the_repository_does(tmp_path: Path) -> None:
    reader = copied(tmp_path) / "reader"

    wheel = build(reader, "--no-isolation")  # from the archive

    of_the_archive = held(wheel)
    assert of_the_archive == held(build(reader, "--wheel", "--no-isolation"))


def test_what_a_release_has_is_the_same_when_its_archives_are_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CFLAGS", "-O0")
    once, again = tmp_path / "once", tmp_path / "and once more"
    (once / "tree").mkdir(parents=True)
    release.build(copied(once / "tree"), once / "dist", EPOCH)
    for name, folder in release.DISTRIBUTIONS.items():
        (archive,) = (once / "dist").glob(f"{name.replace('-', '_')}-[0-9]*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(again, filter="data")
        unpacked = again / archive.name.removesuffix(".tar.gz")
        (unpacked / "setup.cfg").unlink()  # setuptools writes it, and would name it as a source
        unpacked.rename(again / "tree" / folder)

    release.build(again / "tree", again / "dist", EPOCH)

    assert len(list((once / "dist").iterdir())) == 2 * len(release.DISTRIBUTIONS)
    assert release.differing(once / "dist", again / "dist") == []
    release.check(once / "dist")
