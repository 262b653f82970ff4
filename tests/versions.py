"""`make test-versions`: what PostgreSQL's versions do, one after the other, and the table of it.

Each version runs the files of each area, with services of its own, and writes its column of the
table in docs/reference/versions.md.
What a server does not have yet is marked, `@pytest.mark.since(15, "schemas in publications")`:
such a test is skipped at older ones, and counts as "not there".
"""

import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

import psycopg2
import pytest

from gauss_cdc.runtime import jars
from gauss_cdc_lab.services import postgres

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "versions.md"
VERSIONS: Final[tuple[postgres.Version, ...]] = ("14", "16", "17", "18")
_TABLE: Final = re.compile(r"(<!-- begin versions -->\n)(.*?)<!-- end versions -->", re.DOTALL)
_HEAD: Final = "area"
_SINCE: Final = "since(version, what): a server has it from this version on"


@dataclass(frozen=True, slots=True)
class Area:
    """Files that say of one thing whether a version does it."""

    what: str
    files: tuple[str, ...]
    since: int = 0


AREAS: Final = (
    Area("types", ("integration/test_types_server", "e2e/test_type_options")),
    Area("catalog, publications", ("integration/test_postgres_catalog",)),
    Area("stream", ("integration/test_postgres_driver", "integration/test_postgres_source")),
    Area("logins, TLS", ("integration/test_postgres_tls",)),
    Area("rights", ("integration/test_source_rights", "integration/test_target_rights")),
    Area(
        "loads",
        (
            "integration/test_postgres_snapshot",
            "integration/test_key_ranges",
            "e2e/test_beside_partitions",
        ),
    ),
    Area("schema changes, inferred", ("e2e/test_shapes",)),
    Area(
        "schema changes, triggers",
        ("integration/test_ddl_triggers", "e2e/test_ddl", "e2e/test_ddl_gaps"),
    ),
    Area("looks at the catalog", ("integration/test_catalog_look", "e2e/test_catalog_watch")),
    Area(
        "target",
        (
            "integration/test_sink_postgres",
            "integration/test_sink_shapes",
            "integration/test_sink_shadows",
            "integration/test_sink_types",
            "integration/test_sink_constraints",
            "integration/test_sink_lease",
        ),
    ),
    Area("verify", ("integration/test_verify", "e2e/test_verify", "e2e/test_mend")),
    Area("reading a standby", ("e2e/test_standby",), 16),
    Area("promotion", ("e2e/test_promotion",), 17),
)
DEMO: Final = Area("`demo`, killed three times", ())


@dataclass(slots=True)
class Counts:
    """Of one area at one version."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0

    def __str__(self) -> str:
        texts = [f"{self.passed}"] if self.passed else []
        texts += [f"{self.failed} failed"] if self.failed else []
        texts += [f"{self.skipped} not there"] if self.skipped else []
        return ", ".join(texts) or "nothing ran"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", _SINCE)


@pytest.fixture(autouse=True)
def _since(request: pytest.FixtureRequest) -> None:
    """Skip what the services' server does not have yet."""
    for mark in request.node.iter_markers("since"):
        version, what = mark.args
        connection = psycopg2.connect(request.getfixturevalue("addresses").postgres_url())
        connection.close()
        need(connection.server_version, version, what)


def need(server: int, version: int, what: str) -> None:
    """Skip the rest of a test at a server (150018 for 15.18) that is older than the version."""
    if server < version * 10_000:
        pytest.skip(f"from PostgreSQL {version} on: {what}")


def areas(version: str) -> list[Area]:
    """What the version has."""
    return [area for area in AREAS if int(version) >= area.since]


def played(version: str, *arguments: str) -> dict[str, Counts]:
    """Run a version's areas, and the demo; what became of each."""
    environment = {
        **os.environ, "GAUSS_CDC_SERVICES": "embedded", "GAUSS_CDC_POSTGRES": version
    }  # fmt: skip
    files = [f"tests/{file}.py" for area in areas(version) for file in area.files]
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile"]
        command += ["--tb", "short", f"--junitxml={report}", *arguments, *files]
        subprocess.run(command, env=environment, cwd=ROOT, check=False)
        found = counted(report.read_text("utf-8"))
    demo = [sys.executable, "-m", "gauss_cdc", "demo", "--seconds", "20", "--kills", "3"]
    is_equal = not subprocess.run(demo, env=environment, cwd=ROOT, check=False).returncode
    found[DEMO.what] = Counts(passed=int(is_equal), failed=int(not is_equal))
    return found


def counted(report: str) -> dict[str, Counts]:
    """Sort the cases of a report into areas.

    >>> case = '<testcase classname="tests.e2e.test_shapes" name="a"/>'
    >>> str(counted(f"<testsuites><testsuite>{case}</testsuite></testsuites>")[AREAS[6].what])
    '1'
    """
    of_file = {file.replace("/", "."): area.what for area in AREAS for file in area.files}
    found = {area.what: Counts() for area in AREAS}
    for case in ET.fromstring(report).iter("testcase"):
        counts = found[of_file[case.attrib["classname"].removeprefix("tests.")]]
        if case.find("skipped") is not None:
            counts.skipped += 1
        elif case.find("failure") is not None or case.find("error") is not None:
            counts.failed += 1
        else:
            counts.passed += 1
    return found


def column(version: str, found: dict[str, Counts]) -> list[str]:
    """Write a version's column of the matrix, with its head."""
    cells = (
        str(found[area.what]) if int(version) >= area.since else f"from {area.since} on"
        for area in (*AREAS, DEMO)
    )
    return [full_name(version), *cells]


def full_name(version: str) -> str:
    """Say which release of the version is fetched."""
    return jars.lock(postgres.lock_name(version))[0].version.removesuffix(".0")


def filled(page: str, column: list[str]) -> str:
    """Put a column into the page's table, in place of the version's last one."""
    match = _TABLE.search(page)
    assert match is not None
    rows = [line.strip("| ").split(" | ") for line in match[2].splitlines() if "---" not in line]
    columns = {each[0]: list(each) for each in zip(*rows, strict=True)}
    columns[column[0]] = column
    first, *others = sorted(columns.values(), key=lambda each: (each[0] != _HEAD, each[0]))
    lines = [f"| {' | '.join(row)} |" for row in zip(first, *others, strict=True)]
    lines.insert(1, "|" + " --- |" * len(columns))
    return page[: match.start(2)] + "\n".join(lines) + "\n" + page[match.end(2) :]


def main(versions: Sequence[str]) -> int:
    """Play versions; 1: a test failed."""
    is_failed = False
    for version in versions or VERSIONS:
        started = time.monotonic()
        found = played(version)
        is_failed |= any(counts.failed for counts in found.values())
        told = column(version, found)
        PAGE.write_text(filled(PAGE.read_text("utf-8"), told), "utf-8")
        for what, cell in zip((_HEAD, *(area.what for area in (*AREAS, DEMO))), told, strict=True):
            sys.stdout.write(f"{what:28} {cell}\n")
        sys.stdout.write(f"{'seconds':28} {time.monotonic() - started:.0f}\n")
    return int(is_failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
