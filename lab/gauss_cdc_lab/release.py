"""Makes a release of the tree's commit in `dist/`: `make release`.  Nothing is uploaded.

Wheels and archives of the three distributions are built twice, in two folders, and must be the
same byte by byte.  Beside them: SHA256SUMS, LICENSES and an SBOM of all that they install.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.metadata import Metadata

from schemas.version import VERSION

ROOT: Final = Path(__file__).parents[2]
# Where each distribution's sources are, below the tree.
DISTRIBUTIONS: Final = {"gauss-cdc": ".", "gauss-cdc-lab": "lab", "gauss-cdc-reader": "reader"}
EXTRAS: Final = {"gauss-cdc": "[apply,lakes,java,connect]"}
NATIVE: Final = ("producer.native._native", "spark_consumers.native._native")
# LGPL and weaker ones ask nothing of who only imports; these may.
_COPYLEFT: Final = re.compile(
    r"(?<!L)GPL|(?<!Lesser )General Public License|Affero|SSPL|EUPL", re.IGNORECASE
)
_UNKNOWN: Final = "not known"


def run(*words: str | Path, cwd: Path | None = None, **environment: str) -> str:
    """Run a program that must succeed, without the tree's modules; return what it said."""
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(  # noqa: S603 - arguments of our own
        words,
        cwd=cwd or ROOT,
        env=inherited | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        umask=0o022,
    )
    if done.returncode != 0:
        sys.exit(f"{done.stdout}\n{' '.join(map(str, words))} failed: what it said is above")
    return done.stdout


def export(to: Path) -> int:
    """Copy the commit's files, and return its time: what lies about in the tree is not built."""
    if changed := run("git", "status", "--porcelain"):
        sys.exit(f"{changed}a release is made of a commit: commit these files, or remove them")
    to.mkdir(parents=True)
    archive = to.with_suffix(".tar")
    run("git", "archive", "--output", archive, "HEAD")
    with tarfile.open(archive) as files:
        files.extractall(to, filter="data")
    return int(run("git", "log", "-1", "--format=%ct"))


def compiling() -> dict[str, str]:
    """How to call the compiler: as Python does, but for what names this build or this machine."""
    told = os.environ.get("CFLAGS", "")
    linked = (sysconfig.get_config_var("LDSHARED") or "cc -shared").split()
    return {
        # It replaces Python's own, with its -O3.  Debugging information names the build's folder.
        "CFLAGS": f"{sysconfig.get_config_var('CFLAGS') or ''} {told} -g0",
        "LDSHARED": " ".join(word for word in linked if not word.startswith(("-L", "-Wl,-rpath"))),
    }


def build(tree: Path, to: Path, epoch: int) -> None:
    """Build archives, and wheels from them, that depend on the sources and the compiler alone."""
    for folder in DISTRIBUTIONS.values():
        if folder != ".":  # each archive and wheel has the licence
            shutil.copy(tree / "LICENSE", tree / folder)
        run(
            *(sys.executable, "-m", "build", "--no-isolation", "--outdir", to, tree / folder),
            cwd=to.parent,
            SOURCE_DATE_EPOCH=str(epoch),
            **compiling(),
        )
    for archive in to.glob("*.tar.gz"):
        settle(archive, epoch)


def settle(archive: Path, epoch: int) -> None:
    """Write an archive anew: setuptools leaves times, owners and an order of its own in it."""
    plain = io.BytesIO()
    with tarfile.open(archive) as old, tarfile.open(fileobj=plain, mode="w") as new:
        for member in sorted(old.getmembers(), key=lambda one: one.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch, 0, 0, "", ""
            member.mode = 0o755 if member.isdir() or member.mode & 0o100 else 0o644
            member.pax_headers = {}
            new.addfile(member, old.extractfile(member) if member.isfile() else None)
    archive.write_bytes(gzip.compress(plain.getvalue(), mtime=epoch))


def differing(first: Path, second: Path) -> list[str]:
    """Files that two builds do not have, or have differently."""
    names = {path.name for folder in (first, second) for path in folder.iterdir()}
    return sorted(
        name
        for name in names
        if not (first / name).exists()
        or not (second / name).exists()
        or (first / name).read_bytes() != (second / name).read_bytes()
    )


def check(dist: Path) -> None:
    """Raise unless each file's metadata is valid, and is of this version."""
    for wheel in dist.glob("*.whl"):
        with zipfile.ZipFile(wheel) as files:
            (name,) = (one for one in files.namelist() if one.endswith(".dist-info/METADATA"))
            _check(wheel, files.read(name))
    for archive in dist.glob("*.tar.gz"):
        with tarfile.open(archive) as packed:
            said = packed.extractfile(f"{archive.name.removesuffix('.tar.gz')}/PKG-INFO")
            assert said is not None
            _check(archive, said.read())


def _check(path: Path, text: bytes) -> None:
    said = Metadata.from_email(text, validate=True)
    if str(said.version) != VERSION or said.name not in DISTRIBUTIONS:
        sys.exit(f"{path}: {said.name} {said.version} is none of {VERSION}")


def installed(dist: Path, environment: Path) -> Path:
    """Install the wheels into a new environment, try what they bring, and return its Python."""
    run(sys.executable, "-m", "venv", "--without-pip", environment)
    python = environment / "bin" / "python"
    uv = shutil.which("uv")
    pip = ("pip", "--python", python, "install", "--no-compile")
    install = (uv, "pip", "install", "--python", python) if uv else (sys.executable, "-m", *pip)
    # By their files: an index is not asked for them, where anybody may have taken the names.
    wheels = [
        f"{name}{EXTRAS.get(name, '')} @ {wheel.resolve().as_uri()}"
        for name in DISTRIBUTIONS
        for wheel in dist.glob(f"{name.replace('-', '_')}-{VERSION}-*.whl")
    ]
    run(*install, "--constraint", ROOT / "constraints.txt", *wheels, cwd=environment)
    said = run(environment / "bin" / "gauss-cdc", "--version", cwd=environment)
    if VERSION not in said:
        sys.exit(f"the wheel of {VERSION} calls itself {said}")
    modules = ", ".join((*NATIVE, "gauss_cdc_reader", "gauss_cdc_lab.demo"))
    run(python, "-c", f"import {modules}", cwd=environment)
    return python


def sbom(python: Path, dist: Path, epoch: int) -> str:
    """Return what an environment consists of, as CycloneDX has it; its schema is kept."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "sbom"
        run(
            *(sys.executable, "-m", "cyclonedx_py", "environment", "--output-reproducible"),
            *("--sv", "1.6", "--no-validate", "--pyproject", ROOT / "pyproject.toml"),
            *("--output-file", written, python),
            SOURCE_DATE_EPOCH=str(epoch),
        )
        bill = json.loads(written.read_text("utf-8").replace(f"{dist.resolve().as_uri()}/", ""))
    bill["metadata"]["component"]["version"] = VERSION  # which pyproject.toml takes from the code
    text = json.dumps(bill, indent=2) + "\n"
    if wrong := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        sys.exit(f"the SBOM is not as CycloneDX's schema has it: {wrong}")
    return text


def licences(bill: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Name, version and licence of each part that is not ours."""
    for part in bill["components"]:
        if part["name"] in DISTRIBUTIONS:
            continue
        named = (one.get("expression") or one["license"] for one in part.get("licenses", ()))
        texts = (one if isinstance(one, str) else one.get("id") or one["name"] for one in named)
        said = {
            re.sub(r"^License :: |OSI Approved :: ", "", text).partition("\n")[0] for text in texts
        }
        yield part["name"], part["version"], "; ".join(sorted(said)) or _UNKNOWN


def asks_for_a_look(licence: str) -> bool:
    """Whether a person must look at a licence before its part is passed on."""
    return licence == _UNKNOWN or bool(_COPYLEFT.search(licence))


def sums(dist: Path) -> str:
    """SHA-256 of each file, as `sha256sum --check` takes them."""
    return "".join(
        f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n"
        for path in sorted(dist.iterdir())
        if path.name != "SHA256SUMS"
    )


def main() -> None:
    """Make `dist/` anew, or say what failed and leave none."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        builds = [Path(folder) / name for name in ("once", "and again")]
        for place in builds:
            epoch = export(place / "tree")
            build(place / "tree", place / "dist", epoch)
        made = builds[0] / "dist"
        if names := differing(made, builds[1] / "dist"):
            sys.exit(f"two builds differ in {', '.join(names)}: compare them with diffoscope")
        check(made)
        text = sbom(installed(made, Path(folder) / "installed"), made, epoch)
        parts = sorted(licences(json.loads(text)))
        (made / "sbom.cdx.json").write_text(text, "utf-8")
        (made / "LICENSES").write_text("".join(f"{' '.join(one)}\n" for one in parts), "utf-8")
        (made / "SHA256SUMS").write_text(sums(made), "utf-8")
        shutil.copytree(made, dist)
    for name, version, licence in parts:
        if asks_for_a_look(licence):
            sys.stdout.write(f"look at the licence of {name} {version}: {licence}\n")
    sys.stdout.write(f"{dist}: {len(list(dist.iterdir()))} files; two builds were the same\n")


if __name__ == "__main__":
    main()
