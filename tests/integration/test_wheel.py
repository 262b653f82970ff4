"""What is built is complete: packages, locks and schemas, and nothing of the tests."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemas", "producer", "spark_consumers", "gauss_cdc")


def test_the_wheel_holds_every_file_of_the_packages(tmp_path: Path) -> None:
    # From a copy: a build leaves its litter beside the sources.
    for name in ("pyproject.toml", "LICENSE", "README.md", *PACKAGES):
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        elif source.exists():
            shutil.copy(source, tmp_path / name)

    built = subprocess.run(
        [sys.executable, "-m", "build", "--outdir", "out"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )

    assert built.returncode == 0, built.stdout
    (wheel,) = (tmp_path / "out").glob("*.whl")
    files = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    wanted = {
        str(path.relative_to(tmp_path))
        for package in PACKAGES
        for path in (tmp_path / package).rglob("*")
        if path.is_file()
    }
    assert files == wanted
    asked = "from gauss_cdc.runtime import jars; print(jars.__file__, len(jars.lock('kafka')))"
    told = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path / "out",
        env={"PYTHONPATH": str(wheel)},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert told == f"{wheel}/gauss_cdc/runtime/jars.py 46\n"
