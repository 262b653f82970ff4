"""The commands of the documents, typed as printed: the tutorial's, then the runbook.

The shell, the configuration and the statements are the documents'; only names of hosts, the
passwords and what tests share (roles, the prefix) are this machine's.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg2

from gauss_cdc_lab.services import use_java
from tests.e2e.path import PATIENCE, ask
from tests.tree import ROOT

TUTORIAL = "docs/tutorials/own-database.md"
# Blocks in the order in which a reader types them, in one shell.
WALK = (
    (TUTORIAL, "ten-minutes"),
    ("docs/operations.md", "look"),
    ("docs/operations.md", "report"),
    ("docs/operations.md", "dashboard"),
)
_RUN = re.compile(r"<!-- run: ([\w-]+) -->\n( *)```\w+\n(.*?)^\2```", re.DOTALL | re.MULTILINE)
_TOML = re.compile(r"^( *)```toml\n(.*?)^\1```", re.DOTALL | re.MULTILINE)
TABLES = """
CREATE TABLE public.account (id int PRIMARY KEY, balance numeric(12,2));
CREATE TABLE public.audit (at timestamptz);
INSERT INTO account VALUES (1, 90), (2, 110)
"""


def printed(document: str, name: str) -> str:
    """The block that is to be run under a name."""
    text = (ROOT / document).read_text("utf-8")
    (block,) = (found for marked, _, found in _RUN.findall(text) if marked == name)
    return textwrap.dedent(block)


def at_home(statements: str, role: str, url: str) -> str:
    """Statements with a role and a database of the test's own."""
    database = psycopg2.extensions.parse_dsn(url)["dbname"]
    statements = re.sub(r"\bcdc\b", role, statements)
    return statements.replace("'…'", f"'{role}'").replace("DATABASE bank", f'DATABASE "{database}"')


def test_a_reader_has_a_copy_by_the_commands_of_the_tutorial_and_looks_by_those_of_the_runbook(
    addresses, topic_prefix, new_database, tmp_path: Path, monkeypatch
) -> None:
    source, target = new_database(), new_database()
    reader, writer = f"{topic_prefix}_source", f"{topic_prefix}_target"
    ask(source, TABLES)
    ask(source, "CREATE TABLE unsent (n int PRIMARY KEY)")
    ask(source, "ALTER TABLE unsent REPLICA IDENTITY NOTHING")
    assert {*ask(source, printed(TUTORIAL, "source-keys"))} == {("audit",), ("unsent",)}
    for table in ("audit", "unsent"):
        ask(source, f"ALTER TABLE {table} REPLICA IDENTITY FULL")
    assert ask(source, printed(TUTORIAL, "source-keys")) == []
    ask(source, at_home(printed(TUTORIAL, "source-role"), reader, source))
    ask(target, at_home(printed(TUTORIAL, "target-role"), writer, target))
    config = _TOML.search((ROOT / TUTORIAL).read_text("utf-8"))
    assert config is not None
    (tmp_path / "gauss-cdc.toml").write_text(
        textwrap.dedent(config[2])
        .replace(
            "postgresql://cdc@db.example.com:5432/bank?sslmode=verify-full", as_(reader, source)
        )
        .replace("postgresql://cdc@copy.example.com:5432/bank", as_(writer, target))
        .replace("kafka.example.com:9092", addresses.kafka_bootstrap)
        .replace("http://registry.example.com:8081", addresses.registry_url)
        .replace('prefix = "bank"', f'prefix = "{topic_prefix}"')
    )
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", reader)
    monkeypatch.setenv("GAUSS_CDC_TARGET_PASSWORD", writer)
    use_java(addresses)
    try:
        with transfers(source):
            ten_minutes, look, report, _ = typed([printed(*block) for block in WALK], tmp_path)

        assert ask(target, "SELECT count(*), sum(balance)::text FROM account") == [(2, "200.00")]
        assert ask(target, "SELECT to_regclass('public.audit')") == [(None,)]
        assert "EXACT at commit 1/" in ten_minutes
        assert re.search(r"^1/\d+/\d  [ru]  public.account  .*id=1, ", ten_minutes, re.MULTILINE)
        assert '"slot": "gauss_cdc"' in look
        assert re.search(r"^1/\d+/0  u  public.account  ", look, re.MULTILINE)
        assert (tmp_path / "monitoring" / "gauss-cdc-rules.yml").exists()
        assert '"op": "UPDATE", "schema": "public", "table": "account"' in report
        assert ask(source, "SELECT 1 FROM pg_replication_slots WHERE slot_name = 'report'") == []
    finally:
        for url, role in ((source, reader), (target, writer)):
            ask(url, f"DROP OWNED BY {role}")
            ask(url, f"DROP ROLE {role}")


@contextmanager
def transfers(url: str) -> Iterator[None]:
    """What the bank does meanwhile: the sum of all balances never changes."""
    stop = threading.Event()

    def work() -> None:
        while not stop.wait(0.2):
            ask(url, "UPDATE account SET balance = balance + CASE id WHEN 1 THEN 1 ELSE -1 END")

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def as_(role: str, url: str) -> str:
    """A URL of another role."""
    return re.sub(r"//[^@/]*@", f"//{role}@", url)


def typed(blocks: list[str], folder: Path) -> list[str]:
    """Type blocks into one shell; what each printed.  What is in the background ends at the end."""
    mark = "---- the next block"
    script = "set -e\ntrap 'kill $(jobs -p); wait' EXIT\n" + f"echo '{mark}'\n".join(blocks)
    shell = subprocess.Popen(
        ["bash", "-c", script],
        cwd=folder,
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        said, _ = shell.communicate(timeout=2 * PATIENCE)
    finally:
        with contextlib.suppress(ProcessLookupError):  # none is left
            os.killpg(shell.pid, signal.SIGKILL)
    assert shell.returncode == 0, said
    return said.split(f"{mark}\n")
