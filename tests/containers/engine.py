"""A container engine: podman of Debian's packages, with settings of its own.

Nothing of the machine's own configuration is read or changed: images, containers and settings
stand in one folder.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gauss_cdc_lab.services.process import poll

PACKAGES = (
    "podman", "buildah", "runc", "netavark", "aardvark-dns", "iptables", "mmdebstrap", "uidmap",
)  # fmt: skip
CONTAINERS = """\
[containers]
default_ulimits = ["nofile=1024:1024", "nproc=4096:4096"]
[network]
network_backend = "netavark"
network_config_dir = "{folder}/networks"
[engine]
runtime = "runc"
cgroup_manager = "cgroupfs"
events_logger = "file"
"""
STORAGE = """\
[storage]
driver = "overlay"
graphroot = "{folder}/storage"
runroot = "{folder}/run"
"""


def why_not() -> str:
    """Say why containers cannot be made here; "": they can."""
    lacking = [name for name in ("podman", "runc", "mmdebstrap") if shutil.which(name) is None]
    if lacking:
        return f"{', '.join(lacking)} is not installed: apt install {' '.join(PACKAGES)}"
    return "" if os.geteuid() == 0 else "podman is tried as root only"


class Podman:
    """podman, whose images and containers stand in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        settings = folder / "settings"
        settings.mkdir(parents=True, exist_ok=True)
        for name, text in (("containers", CONTAINERS), ("storage", STORAGE)):
            (settings / f"{name}.conf").write_text(text.format(folder=folder), encoding="utf-8")
        self.environment = os.environ | {
            "CONTAINERS_CONF": str(settings / "containers.conf"),
            "CONTAINERS_STORAGE_CONF": str(settings / "storage.conf"),
        }

    def __call__(self, *arguments: str, cwd: Path | None = None) -> str:
        """Run a command; raise AssertionError with what it wrote where it fails."""
        done = subprocess.run(
            ["podman", *arguments], env=self.environment, cwd=cwd, capture_output=True, text=True,
            check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"podman {' '.join(arguments)}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def has(self, image: str) -> bool:
        return bool(self("images", "--quiet", image))

    @contextmanager
    def served(self) -> Iterator[str]:
        """Answer Docker's protocol, for testcontainers; return the address."""
        socket = self.folder / "engine.sock"
        command = ["podman", "system", "service", "--time=0", f"unix://{socket}"]
        with (self.folder / "engine.log").open("wb") as log:
            process = subprocess.Popen(command, env=self.environment, stdout=log, stderr=log)
        try:
            assert poll(socket.exists, 60.0), "podman does not answer"
            yield f"unix://{socket}"
        finally:
            process.terminate()
            process.wait()
