"""The commands that look at openGauss and move its slot, as an operator types them.

The server is the emulator's facade over a real PostgreSQL.
"""

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as File

import psycopg2
import pytest
from click.testing import Result

from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.emulator.model import PROFILES
from gauss_cdc_lab.emulator.product import EmulatedProduct
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.upstream import Address
from producer.core.ports import RunObserver
from producer.pipeline import create_slot
from producer.sources.dial import parse_dsn
from schemas.positions import Lsn, lsn_text, parse_lsn
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, until
from tests.gauss_cdc_lab.emulator.running import Running

USER, PASSWORD = "cdc", "Gauss@123"
KIND = {"kind": "opengauss", "plugin": "mppdb_decoding"}


class Place:
    """A file, a path that runs, and the source's own side."""

    def __init__(self, path: Path, file: File) -> None:
        self.path, self.file = path, file

    def command(self, *words: str) -> Result:
        return command(self.file, *words)

    def findings(self) -> dict[str, list[tuple[str, str]]]:
        out: dict[str, list[tuple[str, str]]] = {}
        for found in json.loads(self.command("check", "--json").stdout):
            out.setdefault(found["subject"], []).append((found["level"], found["what"]))
        return out


@pytest.fixture
def place(
    addresses, topic_prefix, new_database, tmp_path: File, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text); CREATE TABLE keyless (v text)")
    upstream = Address.parse(addresses.postgres_url())
    product = EmulatedProduct(PROFILES["og7"])

    async def make() -> Emulator:
        gate = Gate([Account(USER, PASSWORD, is_admin=True)])
        return Emulator(product, Facade(upstream, product), gate)

    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    with Running(make) as running:
        database = source.rsplit("/", 1)[1]
        dsn = f"postgresql://{USER}@127.0.0.1:{running.emulator.port}/{database}?sslmode=disable"
        file = configured(tmp_path, addresses, topic_prefix, dsn, target, **KIND)
        with Path(addresses, topic_prefix, source, target, **KIND) as path:
            path.options = replace(path.options, source=parse_dsn(dsn, PASSWORD))
            yield Place(path, file)


def test_check_says_what_the_manual_asks_for(place: Place) -> None:
    found = place.findings()

    assert found["server"] == [("ok", "opengauss 7.0.0-RC2")]
    assert found["wal_level"] == [("ok", "logical")]
    assert "logical, ours among them" in found["max_replication_slots"][0][1]
    assert found["encoding"] == [("ok", "UTF8, read as utf-8")]
    assert found["table public.keyless"][0][0] == "warning"
    assert "no replica identity" in found["table public.keyless"][0][1]
    assert "table public.t" not in found
    assert found["slot"][0][1].endswith("does not exist yet: the first `run` creates it")
    assert found["replication"][0][0] == "ok"


def test_check_reports_what_is_wrong_with_the_options_of_a_server(place: Place) -> None:
    text = place.file.read_text()
    place.file.write_text(text.replace("[kafka]\n", 'status-interval = "11s"\n[kafka]\n'))

    (found,) = place.findings()["options"]

    assert found[0] == "error"
    assert "logical_sender_timeout is shorter than three status intervals" in found[1]


def test_a_slot_is_listed_moved_and_dropped(place: Place) -> None:
    assert place.command("slot", "show").exception.code == 13
    assert place.command("slot", "advance").exception.exit_code == 13
    before = json.loads(place.command("status", "--json").stdout)  # no topic, no slot, no ledger
    assert (before["source"], before["cuts"], before["target"]) == (None, None, None)
    assert place.command("cuts").stdout == ""
    place.path.start()
    place.path.catch_up()
    ask(place.path.source, "INSERT INTO t VALUES (1, 'one')")
    place.path.catch_up()
    slot = place.path.options.slot

    listed = [json.loads(line) for line in place.command("slot", "list").stdout.splitlines()]
    (ours,) = [one for one in listed if one["slot"] == slot]
    assert (ours["plugin"], ours["active"], ours["state"]) == ("mppdb_decoding", True, "fit")
    status = json.loads(place.command("status", "--json").stdout)
    assert (status["source"]["slot"], status["source"]["active"]) == (slot, True)
    assert status["notes"] == []

    place.path.stop()
    safe = parse_lsn(json.loads(place.command("status", "--json").stdout)["cuts"]["resume"])
    reached = parse_lsn(place.command("slot", "advance").stdout.strip())
    assert reached >= safe
    assert parse_lsn(place.command("slot", "advance").stdout.strip()) == reached  # repeatable
    before = place.command("slot", "advance", "--lsn", lsn_text(Lsn(safe - 1)))
    assert parse_lsn(before.stdout.strip()) == reached
    beyond = place.command("slot", "advance", "--lsn", "FF/0")
    assert "would be lost; confirm with --yes" in str(beyond.exception)
    nowhere = place.command("slot", "advance", "--lsn", "zz")
    assert "'zz' is not a position: write it as 16/B374D848" in str(nowhere.exception)

    assert place.command("slot", "drop", "--yes").exception is None
    assert place.command("slot", "show").exception.code == 13


def test_status_says_why_the_target_is_no_full_copy(place: Place) -> None:
    text = place.file.read_text()
    place.file.write_text(
        text.replace("[kafka]\n", "[source.options]\nonly-local = true\n[kafka]\n")
    )
    place.path.options = replace(place.path.options, plugin_options={"only-local": "true"})
    place.path.start()
    place.path.catch_up()

    status = json.loads(place.command("status", "--json").stdout)

    (note,) = status["notes"]
    assert note == (
        "the target is not a full copy because only-local = true omits changes that reached "
        "the source by replication from elsewhere"
    )


def test_a_first_run_names_who_blocks_it_and_leaves_no_partial_slot(place: Place) -> None:
    path = place.path
    writer = psycopg2.connect(path.source)
    try:
        with writer.cursor() as cursor:
            cursor.execute("SELECT txid_current(), pg_backend_pid()")
            _, pid = cursor.fetchone()
        path.start()

        def is_told() -> bool:
            if path.failure is not None:
                raise path.failure
            return any(note.startswith("the new slot waits for session") for note in path.notes)

        until(is_told, "who is in the way", path._stop.wait)
        path.stop()

        assert f"the new slot waits for session {pid}, user" in "\n".join(path.notes)
        assert (
            ask(
                path.source,
                "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s",
                path.options.slot,
            )
            == []
        )

        # As `slot create` does, left by Ctrl-C while it waits.
        waits = threading.Event()

        def note(said: str) -> None:
            if said.startswith("waiting: the slot is in use"):
                waits.set()

        watch = RunObserver(lambda _: None, lambda *_: None, note, lambda _: waits.is_set())
        assert create_slot(replace(path.options, load=False), watch) is False
        assert place.command("slot", "show").exception.code == 13
    finally:
        writer.close()
    path.start()
    path.catch_up()


def test_doctor_and_size_ask_it_too(place: Place) -> None:
    place.path.start()
    place.path.catch_up()
    well = [one["name"] for one in json.loads(place.command("doctor", "--json").stdout)]
    place.path.stop()
    place.command("slot", "drop", "--yes")
    ill = [one["name"] for one in json.loads(place.command("doctor", "--json").stdout)]
    sized = json.loads(place.command("size", "--over", "100ms", "--json").stdout)

    assert set(well) <= {"CdcDoubtful"}
    assert ill[0] == "CdcSlotLost"
    assert sized["bytes"] > 0
