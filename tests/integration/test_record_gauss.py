"""Recordings of openGauss' formats: of live changes through the façade, and of recordings."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from gauss_cdc_lab.emulator import recording
from gauss_cdc_lab.emulator.facade import Facade
from gauss_cdc_lab.emulator.login import Account, Gate
from gauss_cdc_lab.emulator.model import PROFILES
from gauss_cdc_lab.emulator.product import EmulatedProduct
from gauss_cdc_lab.emulator.replay import Replay
from gauss_cdc_lab.emulator.scratch import Scratch
from gauss_cdc_lab.emulator.server import Emulator
from gauss_cdc_lab.emulator.upstream import Address
from gauss_cdc_lab.recordings.decode import as_json, transactions
from gauss_cdc_lab.recordings.gauss import area_changes
from gauss_cdc_lab.recordings.record import RecordingPlan, record
from producer.errors import SourceError
from producer.options import Options
from producer.sources import session_settings
from producer.sources.gauss.connection import GaussConnection
from producer.sources.postgres.connection import ConnectionArguments, parse_dsn
from schemas.positions import Lsn, parse_lsn
from tests.gauss_cdc_lab.emulator.running import Running
from tests.integration.private_postgres import DATABASE, PrivateServer, private_server
from tests.producer.sources.gauss.decoders.ledgers import GOLDEN, capture

USER, PASSWORD = "cdc", "Gauss@123"
FORMATS = {
    "serial": ("mppdb_decoding", {}),
    "sql": ("sql_decoding", {}),
    **{
        f"{style}{batch}": (
            "mppdb_decoding",
            {"parallel-decode-num": "2", "decode-style": style, "sending-batch": batch},
        )
        for style in "bjt"
        for batch in "01"
    },
}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PrivateServer]:
    with private_server() as running:
        yield running


def options(arguments: ConnectionArguments, plugin: str, more: dict[str, str]) -> Options:
    return Options(
        source=arguments,
        slot="recorded",
        publication="",
        prefix="bank",
        client={},
        registry_url="",
        kind="opengauss",
        plugin=plugin,
        plugin_options=more,
    )


@contextmanager
def emulated(postgres: PrivateServer, of: str | None = None) -> Iterator[ConnectionArguments]:
    """An openGauss: of a recording, or of what the database of PostgreSQL has."""
    product = EmulatedProduct(PROFILES["og7"])

    async def make() -> Emulator:
        address = Address(port=postgres.port, database=DATABASE)
        gate = Gate([Account(USER, PASSWORD, is_admin=True)])
        if of is None:
            return Emulator(product, Facade(address, product), gate)
        played = recording.load(GOLDEN / f"{of}.jsonl.gz")
        catalog = Scratch(address, product, played)
        await catalog.load(GOLDEN / f"{played.header['tables']}.gz")
        return Emulator(product, Replay(played, catalog=catalog), gate)

    with Running(make) as running:
        yield ConnectionArguments(
            host="127.0.0.1",
            port=running.emulator.port,
            dbname=DATABASE if of is None else "shop",
            user=USER,
            password=PASSWORD,
        )


@pytest.mark.parametrize("form", FORMATS)
def test_live_changes_in_every_format(postgres: PrivateServer, form: str, tmp_path: Path) -> None:
    plugin, more = FORMATS[form]
    path = tmp_path / "live.jsonl.gz"
    postgres.execute("DROP TABLE IF EXISTS t", "CREATE TABLE t (id int PRIMARY KEY, v text)")
    with emulated(postgres) as arguments:
        with GaussConnection.open(arguments) as maker:
            maker.create_slot("recorded", plugin)
        postgres.execute("INSERT INTO t VALUES (1, 'it''s \\ 中')", "DELETE FROM t")

        found = record(
            options(arguments, plugin, more),
            RecordingPlan(path, transactions=2, more={"skip-empty-xacts": "true"}),
            lambda: False,
        )

        with GaussConnection.open(arguments) as maker:
            maker.drop_slot("recorded")

    changes = [json.loads(as_json(txn))["changes"] for txn in transactions(path, {})]
    assert found.unread == 0
    assert [[change["op"] for change in txn] for txn in changes] == [["INSERT"], ["DELETE"]]
    assert list(changes[0][0]["after"].values()) == ["1", "it's \\ 中"]
    assert changes[1][0]["before"] == {"id": "1"}


def test_a_range_of_the_log_is_decoded_again_without_what_was_rolled_back(
    postgres: PrivateServer, tmp_path: Path
) -> None:
    """PostgreSQL has no such function: one of the documented signature stands for it."""
    path = tmp_path / "again.jsonl"
    row = (
        '{"table_name":"public.t","op_type":"INSERT","columns_name":["id"],'
        '"columns_type":["integer"],"columns_val":["%s"],'
        '"old_keys_name":[],"old_keys_type":[],"old_keys_val":[]}'
    )
    lines = [
        ("0/16", "BEGIN 7"), ("0/17", row % 1), ("0/18", "ABORT 7"),
        ("0/19", "BEGIN 8"), ("0/1A", row % 2), ("0/1B", "COMMIT 8 CSN 30"),
        ("0/1C", "BEGIN 9"), ("0/1D", row % 3), ("0/1E", "PREPARE 9"),
        ("0/1F", "BEGIN 10"), ("0/20", row % 4), ("0/21", "COMMIT 10 CSN 31"),
        ("0/22", "BEGIN 11"), ("0/23", row % 5),
    ]  # fmt: skip
    values = ", ".join(f"('{at}', '7'::xid, '{line}')" for at, line in lines)
    postgres.execute(
        "SET allow_system_table_mods = on;"
        "CREATE FUNCTION pg_catalog.pg_logical_get_area_changes(low text, high text, most int,"
        " plugin name, path text, VARIADIC options text[],"
        " OUT location text, OUT xid xid, OUT data text) RETURNS SETOF record LANGUAGE sql AS"
        f" $$ SELECT * FROM (VALUES {values}) AS v WHERE low = '0/10' AND high = '0/FF' $$"
    )
    with emulated(postgres) as arguments:
        found = record(
            options(arguments, "mppdb_decoding", {}),
            RecordingPlan(path, between=(Lsn(0x10), Lsn(0xFF))),
            lambda: False,
        )

    changes = [json.loads(as_json(txn)) for txn in transactions(path, {})]
    assert (found.transactions, found.undone, found.unread) == (2, 2, 0)
    assert [(txn["xid"], txn["changes"][0]["after"]) for txn in changes] == [
        (8, {"id": "2"}),
        (10, {"id": "4"}),
    ]


@pytest.mark.parametrize(
    "name",
    ["capture_txns_ser_mppdb", "capture_names_par_b_batch1", "capture_identity_par_t_batch0"],
)
def test_a_recording_of_a_replay_is_the_recording(
    postgres: PrivateServer, name: str, tmp_path: Path
) -> None:
    read = capture(name)
    path = tmp_path / "again.jsonl"
    given = {"skip-empty-xacts": "false", **dict(read.header["options"])}
    want = [as_json(txn) for txn in transactions(GOLDEN / f"{name}.jsonl.gz", {})]
    with emulated(postgres, of=name) as arguments:
        with GaussConnection.open(arguments) as maker:
            maker.create_slot("recorded", read.written.plugin)

        record(
            options(arguments, read.written.plugin, {}),
            RecordingPlan(path, transactions=len(want), more=given),
            lambda: False,
        )

    assert [as_json(txn) for txn in transactions(path, {})] == want
    again = [
        bytes.fromhex(line["hex"])[25:]
        for line in map(json.loads, path.read_text().splitlines())
        if line.get("sub") == "w"
    ]
    assert again == [payload for _, payload in read.payloads]
    assert len(recording.load(path).transactions) == len(want)  # and it can be served again


def test_a_range_is_asked_for_with_quoted_arguments(postgres_url: str) -> None:
    """PostgreSQL has no such function: one of the documented signature stands for it."""
    with closing(
        GaussConnection.open(
            parse_dsn(postgres_url), replication=False, settings=session_settings.POSTGRES
        )
    ) as connection:
        with pytest.raises(SourceError) as caught:
            next(area_changes(connection, Lsn(1), Lsn(2), plugin="p", options={}))
        connection.query("ROLLBACK")
        connection.query("SET allow_system_table_mods = on")
        connection.query(
            "CREATE FUNCTION pg_catalog.pg_logical_get_area_changes(start_lsn text, upto_lsn text,"
            " upto_nchanges int, plugin name, xlog_path text, VARIADIC options text[],"
            " OUT location text, OUT xid xid, OUT data text) RETURNS SETOF record LANGUAGE sql AS"
            " $$ SELECT start_lsn, '7'::xid, concat_ws('|', upto_lsn, upto_nchanges, plugin,"
            " coalesce(xlog_path, 'none'), array_to_string(options, ','))"
            " FROM generate_series(1, 5000) $$"
        )

        messages = list(
            area_changes(
                connection,
                parse_lsn("A/1"),
                parse_lsn("A/2"),
                plugin="it's",
                options={"include-xids": "\\"},
                most=9,
            )
        )
        again = connection.query("SELECT 1")  # the session goes on

    assert caught.value.where["sqlstate"] == "42883"  # there is none, and that is what is said
    assert messages == [(parse_lsn("A/1"),) * 2 + (b"A/2|9|it's|none|include-xids,\\",)] * 5000
    assert again == [["1"]]
