"""A benchmark starts, measures, and refuses figures of rows that are not equal."""

import io
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from gauss_cdc_lab.services import Addresses
from tests.services_fixtures import execute

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


def test_drain_measures_compares_and_writes(addresses: Addresses, tmp_path: Path) -> None:
    document = tmp_path / "speed.md"
    document.write_text("before\n<!-- begin drain -->\nold\n<!-- end drain -->\nbehind\n")
    command = [sys.executable, BENCHMARKS / "drain.py", "--quick", "--rows", "2000"]
    command += ["--workload", "w5", "--set", "kafka.group-rows=500", "--write", document]
    environment = {**os.environ, **addresses.environment()}

    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "w5, round 1: run: 1,998 records are equal" in ran.stdout
    text = document.read_text()
    assert text.startswith("before\n<!-- begin drain -->\n\n`python benchmarks/drain.py --quick")
    assert text.endswith("<!-- end drain -->\nbehind\n")
    assert "\n| run | " in text
    assert "kafka.group-rows=500" in text
    assert (tmp_path / "speed" / "drain.svg").read_text().startswith("<svg")


def test_a_copy_with_one_other_value_is_refused(
    new_database: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    import workloads

    source, target = new_database(), new_database()
    for url in (source, target):
        workloads.make_tables(url, workloads.TABLES[:1], published=False)
    workloads.bulk_mixed(source, 100)
    rows = io.StringIO()
    for url, words in ((source, "TO STDOUT"), (target, "FROM STDIN")):
        with closing(psycopg2.connect(url)) as connection, connection.cursor() as cursor:
            rows.seek(0)
            cursor.copy_expert(f"COPY t0 {words}", rows)
            connection.commit()

    compared = workloads.compare_copy(source, target, workloads.TABLES[:1])
    execute(target, "UPDATE t0 SET c = 'x' WHERE id = 7")

    assert compared == 60
    with pytest.raises(SystemExit, match="not equal: t0"):
        workloads.compare_copy(source, target, workloads.TABLES[:1])
