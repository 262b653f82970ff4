"""The product's own image, and what stands in for images that cannot be pulled.

What builds here reaches the packages that this machine reaches: the base trusts the authorities
that its administrator added, and its settings of apt and pip are lent to the build.
"""

import shutil
import subprocess
import tempfile
from pathlib import Path

from gauss_cdc.runtime import jars
from gauss_cdc_lab.services.local import NAMES
from gauss_cdc_lab.services.unpacked import unpack
from tests.containers.engine import Podman

ROOT = Path(__file__).parents[2]
PYTHON = "localhost/gauss-cdc-test/python:bookworm"  # in place of python:3.11-slim-bookworm
PRODUCT = "localhost/gauss-cdc-test/gauss-cdc:latest"
STANDS_IN = {name: f"localhost/gauss-cdc-test/{name}:latest" for name in NAMES}
_LENT = {"/etc/apt": "O", "/etc/pip.conf": "ro"}  # O: what an installation writes is dropped
_TRUSTED = Path("/usr/local/share/ca-certificates")  # where Debian keeps those that were added
_BUILD = (
    "build", "--quiet", "--isolation", "chroot", "--ulimit", "nofile=1024:1024",
    "--build-arg", f"BASE={PYTHON}",
    *(f"--volume={path}:{path}:{how}" for path, how in _LENT.items() if Path(path).exists()),
)  # fmt: skip


def build(podman: Podman) -> None:
    """Make all images; layers that are there are used again."""
    if not podman.has(PYTHON):
        _import_python(podman)
    compiler = "--build-arg=COMPILER=gcc libc6-dev python3-dev"
    podman(*_BUILD, compiler, "--file", "docker/Dockerfile", "--tag", PRODUCT, ".", cwd=ROOT)
    files = jars.fetch(["kafka", "registry"])
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder, "images")
        shutil.copytree(Path(__file__).with_name("images"), context)
        (context / "kafka").mkdir()
        for jar in files["kafka"]:
            shutil.copy(jar, context / "kafka")
        shutil.copytree(unpack(files["registry"][0]), context / "registry")
        for name, image in STANDS_IN.items():
            podman(*_BUILD, "--file", "Containerfile", "--target", name, "--tag", image, ".",
                   cwd=context)  # fmt: skip


def _import_python(podman: Podman) -> None:
    """Make a root file system of Debian with Python, as `mmdebstrap` does in half a minute."""
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder, "python.tar")
        command = ["mmdebstrap", "--quiet", "--variant=minbase"]
        command.append("--include=ca-certificates,python3,python3-venv")
        command.extend(
            f"--customize-hook=copy-in {added} {_TRUSTED}"
            for added in sorted(_TRUSTED.glob("*.crt"))
        )
        command.append('--customize-hook=chroot "$1" update-ca-certificates')
        subprocess.run([*command, "bookworm", str(archive)], check=True)
        podman("import", "--quiet", str(archive), PYTHON)
