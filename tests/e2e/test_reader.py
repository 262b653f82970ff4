"""The wheel of the reader in an environment of its own, behind a real `run`."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path as File
from typing import Any, Self

import pytest

from gauss_cdc_lab.services import Addresses
from spark_consumers import native
from tests.e2e.path import PATIENCE, Path, ask, pause, until
from tests.integration.test_wheel import build, copied
from tests.tree import ROOT

EXAMPLES = ROOT / "docs" / "examples"
TABLES = """\
CREATE TABLE account (id int PRIMARY KEY, amount numeric(12,2), at timestamptz, name text);
CREATE TABLE outbox (id bigserial PRIMARY KEY, body jsonb);
INSERT INTO account VALUES (1, 100.50, '2026-01-02 03:04:05.6+00', 'Ada'), (2, 'NaN', NULL, NULL);
INSERT INTO outbox (body) VALUES ('{"before": "the load"}');
"""
# Prints each whole commit as a service would store it; `schemas` is a module of the service.
OF_ITS_OWN = "import schemas\nassert schemas.MINE\n"
SERVICE = f"""\
import json, sys
from gauss_cdc_reader import Reader
{OF_ITS_OWN}\
kafka, registry, prefix, after = sys.argv[1:]
with Reader(kafka, registry=registry, prefix=prefix) as reader:
    for commit in reader.commits(after, wait=False):
        rows = [
            (change.table.name, change.op, change.key, change.after) for change in commit.changes
        ]
        print(json.dumps([str(commit.position), commit.xid, rows], default=repr))
"""


# The release of this tree is on the way of Python, as if it were installed beside the reader.
BESIDE = """\
from gauss_cdc_reader._shared.spark_consumers import native
print("true" if native.IS_BUILT else "false")
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> File:
    """The Python of an environment with the reader and what it needs, and nothing else."""
    folder = tmp_path_factory.mktemp("reader")
    wheel = build(copied(folder) / "reader", "--wheel", "--no-isolation")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"  # its own pip: uv makes environments without one
    words = ("-m", "pip", "install", "-q", "--disable-pip-version-check")
    subprocess.run([python, *words, "-c", ROOT / "constraints.txt", wheel], check=True)
    return python


@pytest.fixture
def source(
    addresses: Addresses, topic_prefix: str, new_database: Callable[[], str]
) -> Iterator[Path]:
    with Path(addresses, topic_prefix, new_database(), new_database()) as path:
        ask(path.source, TABLES)
        path.start()
        yield path


def environment() -> dict[str, str]:
    """Nothing of this repository is on the way of Python."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def places(addresses: Addresses) -> tuple[str, str]:
    return addresses.kafka_bootstrap, addresses.registry_url


def served(python: File, folder: File, *words: str, **more: str) -> list[Any]:
    """What the service printed until there was no more; `more` variables of its environment."""
    done = subprocess.run(
        [python, "service.py", *words],
        cwd=folder, env=environment() | more, capture_output=True, text=True, check=False,
        timeout=PATIENCE,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_service_with_modules_of_its_own_reads_whole_commits(
    source: Path, addresses: Addresses, python: File, tmp_path: File
) -> None:
    (tmp_path / "service.py").write_text(SERVICE)
    (tmp_path / "schemas.py").write_text("MINE = True\n")
    source.arrive()
    words = (*places(addresses), source.prefix)
    first = served(python, tmp_path, *words, "snapshot")
    loaded = [row for _, _, rows in first for row in rows if row[0] == "account"]

    ask(source.source, "UPDATE account SET amount = 7 WHERE id = 1; INSERT INTO outbox VALUES (9)")
    ask(source.source, "DELETE FROM account WHERE id = 2")
    source.arrive()
    (both, deleted) = served(python, tmp_path, *words, first[-1][0])

    assert loaded == [
        ["account", "r", {"id": 1}, {
            "id": 1, "amount": "Decimal('100.50')", "name": "Ada",
            "at": "datetime.datetime(2026, 1, 2, 3, 4, 5, 600000, tzinfo=datetime.timezone.utc)",
        }],
        ["account", "r", {"id": 2}, {
            "id": 2, "amount": "Decimal('NaN')", "at": None, "name": None,
        }],
    ]  # fmt: skip
    assert [row[:3] for row in both[2]] == [
        ["account", "u", {"id": 1}], ["outbox", "c", {"id": 9}]
    ]  # fmt: skip
    assert both[2][0][3]["amount"] == "Decimal('7.00')"
    assert deleted[2] == [["account", "d", {"id": 2}, None]]
    assert served(python, tmp_path, *words, deleted[0]) == []

    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "service.py").write_text(BESIDE + SERVICE.replace(OF_ITS_OWN, ""))
    is_built, *same = served(
        python, tmp_path / "beside", *words, first[-1][0], PYTHONPATH=str(ROOT)
    )
    assert is_built == native.IS_BUILT
    assert same == [both, deleted]


class Receiver(ThreadingHTTPServer):
    """Stores each key that comes with its body, as a service would, and how often it came."""

    def __init__(self) -> None:
        self.bodies: dict[str, Any] = {}
        self.came: Counter[str] = Counter()
        super().__init__(("127.0.0.1", 0), Taker)

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Taker(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        key = self.headers["Idempotency-Key"]
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.came[key] += 1
        assert self.server.bodies.setdefault(key, body) == body
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Keep quiet."""


def test_an_outbox_comes_once_under_each_key_while_the_sender_is_killed(
    source: Path, addresses: Addresses, python: File, tmp_path: File
) -> None:
    wanted, chance = 1, random.Random(7)
    source.arrive()
    words = (*places(addresses), source.prefix, "public.outbox")
    with Receiver() as receiver:
        command = [python, EXAMPLES / "outbox.py", *words, receiver.url, tmp_path / "sent.txt"]
        for kill in range(6):
            sender = subprocess.Popen(command, env=environment(), cwd=tmp_path)
            try:
                for _ in range(20):
                    ask(
                        source.source,
                        """INSERT INTO outbox (body) SELECT '{"n": 1}' FROM generate_series(1, 5);
                        UPDATE account SET amount = amount + 1""",
                    )
                wanted += 100
                # Killed in the midst of what it sends, the last time when all of it came.
                enough = wanted if kill == 5 else wanted - chance.randrange(5, 90)

                def came(process: Any = sender, rows: int = enough) -> bool:
                    assert process.poll() is None, "the sender ended by itself"
                    return len(receiver.bodies) >= rows

                until(came, f"{enough} rows", pause)
            finally:
                sender.send_signal(signal.SIGKILL)
                sender.wait()

    assert sorted(body["id"] for body in receiver.bodies.values()) == [*range(1, wanted + 1)]
    assert all(count <= 1 + 5 for count in receiver.came.values())
