"""Java archives for Spark and for local services: pinned, checked, fetched once.

One lock per service names each file as `group:artifact:version[:type:classifier]
sha256 size`.  What the cache lacks is fetched by the Ivy that pyspark carries,
one file each, nothing transitive, so no host is named here and Java is the only
other thing needed.  A file enters the cache by a rename after its sha256 was
right, and every start checks it again: a broken cache heals, a complete one
needs no network.

GAUSS_CDC_CACHE         the cache's folder
GAUSS_CDC_JARS          a folder that has the files already (no network at all)
GAUSS_CDC_IVY_SETTINGS  an ivysettings.xml of yours, for a mirror
"""

import hashlib
import os
import platform
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import resources, util
from pathlib import Path
from typing import Final
from xml.sax.saxutils import quoteattr

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn

from gauss_cdc.runtime import java
from gauss_cdc.runtime.errors import Unavailable

_SETTINGS: Final = (
    '<ivysettings><settings defaultResolver="central"/><resolvers><ibiblio name="central" '
    'm2compatible="true" usepoms="false" useMavenMetadata="false" checksums=""/>'
    "</resolvers></ivysettings>"
)
_ATTEMPTS: Final = 3


@dataclass(frozen=True, slots=True)
class Archive:
    """One line of a lock."""

    group: str
    artifact: str
    version: str
    type: str
    classifier: str
    sha256: str
    size: int

    @classmethod
    def parse(cls, line: str) -> "Archive":
        """Read `group:artifact:version[:type:classifier] sha256 bytes`; ValueError for others."""
        coordinates, sha256, size = line.split()
        group, artifact, version, *rest = coordinates.split(":")
        kind, classifier = rest or ("jar", "")
        return cls(group, artifact, version, kind, classifier, sha256, int(size))

    @property
    def file_name(self) -> str:
        """Its name in Maven's layout, without the classifier."""
        return f"{self.artifact}-{self.version}.{self.type}"

    def is_at(self, path: Path) -> bool:
        """Whether the very bytes of the lock are there."""
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_size != self.size:
                    return False
                return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256
        except OSError:
            return False

    def ivy(self) -> str:
        """As a dependency of an ivy.xml."""
        artifact = ""
        if self.classifier:
            artifact = (
                f"<artifact name={quoteattr(self.artifact)} type={quoteattr(self.type)} "
                f"ext={quoteattr(self.type)} m:classifier={quoteattr(self.classifier)}/>"
            )
        return (
            f"<dependency org={quoteattr(self.group)} name={quoteattr(self.artifact)} "
            f"rev={quoteattr(self.version)} transitive='false' force='true' "
            f"conf='default->default'>{artifact}</dependency>"
        )


def cache() -> Path:
    """The one folder for everything fetched.

    As root it is not in the home: PostgreSQL then runs as another user, who
    could not enter it.

    GAUSS_CDC_CACHE names another.  Raises Unavailable for a user without a home.
    """
    if named := os.environ.get("GAUSS_CDC_CACHE"):
        return Path(named).expanduser().absolute()
    if _is_root():
        return Path("/var/cache/gauss-cdc")
    try:
        return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gauss-cdc"
    except RuntimeError as exc:  # a user without an entry in passwd, and no $HOME
        raise Unavailable(
            "there is no home directory for the cache",
            hint="Let GAUSS_CDC_CACHE name a folder of yours.",
        ) from exc


def lock(name: str) -> tuple[Archive, ...]:
    """The archives of one service, for this machine.  Raises Unavailable where it has none."""
    text = (resources.files(__package__) / "locks" / f"{name}.lock").read_text(encoding="utf-8")
    archives = tuple(map(Archive.parse, text.splitlines()))
    if not name.startswith("postgres"):
        return archives
    wanted = f"embedded-postgres-binaries-{_platform()}"
    if not (mine := tuple(archive for archive in archives if archive.artifact == wanted)):
        raise Unavailable(
            f"the lock {name} has no PostgreSQL binaries for this machine ({_platform()})",
            hint="Install PostgreSQL 14 or newer (Debian: apt install postgresql); "
            "its initdb is found by itself.",
        )
    return mine


def fetch(names: Sequence[str], *, console: Console | None = None) -> dict[str, tuple[Path, ...]]:
    """Return the checked files of the named locks, fetching what is missing."""
    locks = {name: lock(name) for name in names}
    here = _Places()
    with ThreadPoolExecutor() as pool:  # sha256 runs outside the interpreter's lock
        checked = {
            name: list(pool.map(here.find, [name] * len(archives), archives))
            for name, archives in locks.items()
        }
    missing = {
        name: [a for a, path in zip(archives, checked[name], strict=True) if path is None]
        for name, archives in locks.items()
    }
    if missing := {name: archives for name, archives in missing.items() if archives}:
        _fetch(missing, console or Console(stderr=True))
    return {
        name: tuple(
            path or here.cached(name, archive)
            for archive, path in zip(archives, checked[name], strict=True)
        )
        for name, archives in locks.items()
    }


class _Places:
    """Where a file of a lock may lie."""

    def __init__(self) -> None:
        self._jars = cache() / "jars"
        self._brought: dict[str, Path] = {}
        if brought := os.environ.get("GAUSS_CDC_JARS"):
            self._brought = {
                path.name: path for path in Path(brought).expanduser().absolute().rglob("*.*")
            }

    def cached(self, name: str, archive: Archive) -> Path:
        return self._jars / name / archive.file_name

    def find(self, name: str, archive: Archive) -> Path | None:
        brought = self._brought.get(archive.file_name)
        for path in (brought, self.cached(name, archive)):
            if path is not None and archive.is_at(path):
                return path
        return None


def _fetch(missing: dict[str, list[Archive]], console: Console) -> None:
    """Fill the cache by one Ivy per lock, all at the same time, watched by size."""
    try:
        (cache() / "jars").mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise Unavailable(
            f"cannot write the cache {cache()}: {exc.strerror}",
            hint="Let GAUSS_CDC_CACHE name a folder of yours.",
        ) from exc
    home = java.find(shims=cache())
    total = sum(archive.size for archives in missing.values() for archive in archives)
    if not console.is_terminal:
        console.print(f"fetching {total / 2**20:.0f} MiB for {', '.join(missing)} into {cache()}")
    columns = (
        TextColumn("fetching {task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
    )
    with (
        Progress(*columns, console=console, disable=not console.is_terminal) as progress,
        ThreadPoolExecutor(len(missing)) as pool,
    ):
        tasks = {
            name: progress.add_task(name, total=sum(archive.size for archive in archives))
            for name, archives in missing.items()
        }
        jobs = [
            pool.submit(_fetch_lock, name, archives, home, progress, tasks[name])
            for name, archives in missing.items()
        ]
        for job in jobs:
            job.result()


def _fetch_lock(
    name: str, archives: list[Archive], home: java.Java, progress: Progress, task: TaskID
) -> None:
    target = cache() / "jars" / name
    target.mkdir(exist_ok=True)
    said = ""
    left = archives
    for _ in range(_ATTEMPTS):  # registries have bad moments
        with tempfile.TemporaryDirectory(prefix=".fetch-", dir=target) as folder:
            work = Path(folder)
            said = _ivy(left, work, home, progress, task)
            for archive in left:
                if archive.is_at(got := work / "out" / archive.file_name):
                    got.replace(target / archive.file_name)
        left = [archive for archive in left if not archive.is_at(target / archive.file_name)]
        if not left:
            progress.update(task, completed=sum(archive.size for archive in archives))
            return
    names = ", ".join(f"{a.group}:{a.artifact}:{a.version}" for a in left[:3])
    more = f" and {len(left) - 3} more" if len(left) > 3 else ""
    raise Unavailable(
        f"could not fetch {names}{more}; Ivy said:\n{_tail(said)}",
        hint="Is a Maven repository reachable? Behind a mirror let GAUSS_CDC_IVY_SETTINGS name an "
        "ivysettings.xml; behind a proxy set JDK_JAVA_OPTIONS=-Dhttps.proxyHost=...; for 'PKIX "
        "path building failed' set JDK_JAVA_OPTIONS=-Djavax.net.ssl.trustStore=...; without a "
        "network let GAUSS_CDC_JARS name a folder with the files of "
        "gauss_cdc/runtime/locks.",
    )


def _ivy(
    archives: Iterable[Archive], work: Path, home: java.Java, progress: Progress, task: TaskID
) -> str:
    """Run Ivy once.  Its exit code is useless: the caller checks the files."""
    settings = os.environ.get("GAUSS_CDC_IVY_SETTINGS")
    if settings is None:
        settings = str(work / "ivysettings.xml")
        (work / "ivysettings.xml").write_text(_SETTINGS, encoding="utf-8")
    (work / "ivy.xml").write_text(
        '<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">'
        '<info organisation="gauss-cdc" module="services"/>'
        '<configurations><conf name="default"/></configurations><dependencies>'
        + "".join(archive.ivy() for archive in archives)
        + "</dependencies></ivy-module>",
        encoding="utf-8",
    )
    command: list[str | Path] = [home.executable, "-jar", _ivy_jar()]
    command += ["-settings", settings, "-ivy", work / "ivy.xml", "-cache", work / "cache"]
    # One -types for all: a second one would replace the first.  Many jars are of type bundle.
    command += ["-confs", "default", "-types", "jar", "bundle", "tar.gz", "-warn"]
    command += ["-retrieve", f"{work}/out/[artifact]-[revision].[ext]"]
    done = threading.Event()

    def watch() -> None:
        while not done.wait(0.2):
            progress.update(task, completed=_size(work / "cache"))

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            check=False,
        )
    finally:
        done.set()
        watcher.join()
    return ran.stdout


def _ivy_jar() -> Path:
    spec = util.find_spec("pyspark")
    places = spec.submodule_search_locations if spec is not None else None
    found = sorted(Path(places[0], "jars").glob("ivy-*.jar")) if places else []
    if not found:
        raise Unavailable(
            "pyspark's own Ivy is not here, so nothing can be fetched",
            hint=f"Install pyspark next to gauss-cdc: {sys.executable} -m pip install pyspark",
        )
    return found[-1]


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        if path.suffix in {".jar", ".part", ".gz"}:
            try:
                total += path.stat().st_size
            except FileNotFoundError:  # renamed in between
                continue
    return total


def _tail(said: str) -> str:
    """Ivy's words without its dots and its summary."""
    lines = (line.strip(". \t:") for line in said.splitlines())
    return "\n".join([line for line in lines if line][-12:])


def _platform() -> str:
    system = {"Linux": "linux", "Darwin": "darwin"}.get(platform.system(), platform.system())
    machine = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64v8", "arm64": "arm64v8"}
    return f"{system}-{machine.get(platform.machine(), platform.machine())}"


def _is_root() -> bool:
    return hasattr(os, "geteuid") and os.geteuid() == 0
