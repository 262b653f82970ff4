"""The manual's conditions, each on literal readings: what is fine, and what is said."""

from dataclasses import replace

import pytest

from producer.options import Options
from producer.sources.dial import ConnectionArguments
from producer.sources.gauss.checks import findings
from producer.sources.gauss.checks.slot import retained_segments
from producer.sources.gauss.gaps import DecodingMode, invisible_sentence
from producer.sources.gauss.options import Vendor as SourceProduct
from producer.sources.gauss.readings import Readings, RoleReading, TableReading
from producer.sources.gauss.server import Product, Server
from producer.sources.gauss.slots import OpenTransaction, SlotReading
from schemas.findings import Finding, Level
from schemas.positions import Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from schemas.types import TypeOptions

SERVER = Server(
    product=Product.GAUSSDB,
    version="505.2.0",
    is_primary=True,
    database="shop",
    encoding="UTF8",
    compatibility="A",
    has_csn_slots=True,
)
SETTINGS = {
    "wal_level": "logical",
    "ssl": "on",
    "max_replication_slots": "8",
    "max_wal_senders": "16",
    "enableSeparationOfDuty": "off",
    "enable_logical_replication_ddl": "on",
    "enable_xlog_prune": "on",
    "enable_logicalrepl_xlog_prune": "on",
    "max_size_for_xlog_retention": "100",
    "wal_keep_segments": "16",
    "max_files_per_process": "1000",
    "max_process_memory": str(12 << 20),
    "logical_sender_timeout": "30000",
    "logical_decode_options_default": "",
    "synchronous_commit": "on",
    "synchronous_standby_names": "ANY 1 (dn_6002, dn_6003)",
    "most_available_sync": "off",
    "enable_slot_log": "on",
}
OPTIONS = Options(
    source=ConnectionArguments(host="db", dbname="shop", user="cdc"),
    slot="bank",
    publication="",
    prefix="bank",
    client={},
    registry_url="",
    kind="gaussdb",
    plugin="mppdb_decoding",
)
INT = Column("id", 23, type_name="integer", nullable=False)


def slot(name: str = "bank", **more: object) -> SlotReading:
    given: dict[str, object] = {
        "plugin": "mppdb_decoding",
        "is_logical": True,
        "database": "shop",
        "is_active": True,
        "restart_lsn": "0/64000000",
        "confirmed": Lsn(0x64000100),
        "confirmed_csn": 0,
    }
    return SlotReading(name=name, **{**given, **more})  # type: ignore[arg-type]


def physical(name: str, **more: object) -> SlotReading:
    return slot(name, is_logical=False, plugin="", database="", **more)


def table(
    name: str = "t", *, key: bool = True, identity: str = "d", **more: object
) -> TableReading:
    columns = more.pop("columns", (INT,))
    shape = TableSchema(
        TableId("public", name),
        columns,  # type: ignore[arg-type]
        key=("id",) if key else (),
        replica_identity=ReplicaIdentity(identity),
    )
    return TableReading(id=shape.id, **{"shape": shape, **more})  # type: ignore[arg-type]


GOOD = Readings(
    server=SERVER,
    settings=SETTINGS,
    role=RoleReading(name="cdc", has_replication=True, is_system_admin=True),
    slots=(slot(),),
    standbys=2,
    senders=3,
    wal_end=Lsn(0x65000000),
    tables=(table(),),
)


def said(
    readings: Readings = GOOD, options: Options = OPTIONS, **decoding: str
) -> dict[str, list[Finding]]:
    if decoding:
        names = {name.replace("_", "-"): value for name, value in decoding.items()}
        options = replace(options, plugin_options=names)
    out: dict[str, list[Finding]] = {}
    for finding in findings(readings, options):
        out.setdefault(finding.subject, []).append(finding)
    return out


def with_setting(name: str, value: str | None) -> Readings:
    settings = {key: text for key, text in SETTINGS.items() if key != name}
    return replace(GOOD, settings=settings | ({} if value is None else {name: value}))


def levels(found: list[Finding]) -> list[Level]:
    return [finding.level for finding in found]


# ---------------------------------------------------------------- all is well
def test_a_source_that_is_fit_has_no_error_and_no_warning() -> None:
    found = [finding for group in said().values() for finding in group]
    assert {finding.level for finding in found} == {Level.OK, Level.NOTE}


def test_a_note_says_that_it_was_not_looked_up() -> None:
    notes = [f for group in said().values() for f in group if f.level is Level.NOTE]
    texts = " ".join(note.what for note in notes)
    for word in ("500 MB", "subtransactions", "after a DDL", "forced switch-over", "zero byte"):
        assert word in texts


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("synchronous_commit", "local"),
        ("synchronous_standby_names", ""),
        ("most_available_sync", "on"),
        ("enable_slot_log", "off"),
    ],
)
def test_what_makes_a_switch_over_a_forced_one_is_named(setting: str, value: str) -> None:
    (found,) = said(with_setting(setting, value))["standbys"]

    assert (found.level, found.what.startswith(f"{setting} is")) == (Level.WARNING, True)
    assert setting in found.hint
    assert "standbys" not in said(with_setting(setting, None))  # this version does not have it
    assert "standbys" not in said(replace(with_setting(setting, value), standbys=0))


# ---------------------------------------------------------------- prerequisites
def test_ssl_must_be_on() -> None:
    (off,) = said(with_setting("ssl", "off"))["ssl"]
    (unused,) = said(replace(GOOD, is_encrypted=False))["ssl"]

    assert (off.level, unused.level) == (Level.WARNING, Level.WARNING)
    assert "the manual requires it" in off.what
    assert "our connection does not use it" in unused.what


@pytest.mark.parametrize("level", ["hot_standby", "archive", "minimal"])
def test_wal_level_must_be_logical(level: str) -> None:
    (found,) = said(with_setting("wal_level", level))["wal_level"]
    assert (found.level, found.what) == (Level.ERROR, f"is {level}")


def test_the_sum_of_slots_is_shown_with_its_parts() -> None:
    slots = (slot(), slot("other"), physical("dn_6002"), physical("gs_roach_full"))
    readings = replace(GOOD, slots=slots, standbys=3)

    (found,) = said(readings)["max_replication_slots"]

    assert found.level is Level.OK
    assert found.what == ("6 of 8: 3 for standbys + 1 for backups + 2 logical, ours among them")


def test_a_slot_that_is_not_there_yet_counts() -> None:
    readings = replace(
        with_setting("max_replication_slots", "4"),
        slots=(physical("a"), physical("b"), physical("c"), slot("other")),
        standbys=1,
    )

    (found,) = said(readings)["max_replication_slots"]

    assert found.level is Level.ERROR
    assert found.what.startswith("is 4, and 5 are needed: 3 for standbys + 0 for backups + 2 log")


def test_a_walsender_must_be_free_for_us() -> None:
    idle = replace(with_setting("max_wal_senders", "3"), slots=(slot(is_active=False),))
    (full,) = said(idle)["max_wal_senders"]
    (ours,) = said(replace(idle, slots=(slot(),)))["max_wal_senders"]

    assert (full.level, ours.level) == (Level.ERROR, Level.OK)
    by_sql = replace(OPTIONS, interface="sql")
    assert "max_wal_senders" not in said(idle, by_sql)


def test_twenty_slots_are_decoded_at_a_time() -> None:
    busy = tuple(slot(f"s{n}") for n in range(20))
    readings = replace(with_setting("max_replication_slots", "64"), slots=busy)

    assert Level.ERROR in levels(said(readings)["slots"])
    assert "slots" not in said(replace(readings, slots=(*busy[:19], slot())))


@pytest.mark.parametrize(
    ("role", "duties", "level"),
    [
        (RoleReading(name="omm", is_initial=True), "on", Level.OK),
        (RoleReading(name="cdc", has_replication=True), "on", Level.OK),
        (RoleReading(name="cdc", is_member=True), "off", Level.OK),
        (RoleReading(name="dba", is_system_admin=True), "off", Level.OK),
        (RoleReading(name="dba", is_system_admin=True), "on", Level.ERROR),
        (RoleReading(name="app"), "off", Level.ERROR),
    ],
)
def test_who_may_replicate(role: RoleReading, duties: str, level: Level) -> None:
    readings = replace(with_setting("enableSeparationOfDuty", duties), role=role)
    (found,) = said(readings)["role"]

    assert found.level is level
    assert ("duties are separated" in found.what) is (role.is_system_admin and duties == "on")


# ---------------------------------------------------------------- the server
def test_another_product_is_reported() -> None:
    other = replace(SERVER, product=Product.OPENGAUSS, version="7.0.0-RC2")
    (found, *_) = said(replace(GOOD, server=other))["server"]

    assert (found.level, found.hint) == (Level.ERROR, 'kind = "opengauss"')


def test_a_standby_makes_no_slots() -> None:
    standby = replace(GOOD, server=replace(SERVER, is_primary=False))

    assert Level.ERROR in levels(said(standby)["server"])
    reading_it = replace(OPTIONS, role="standby")
    assert levels(said(standby, reading_it)["server"]) == [Level.OK]
    (missing, *_) = said(replace(standby, slots=()), reading_it)["slot"]
    assert missing.level is Level.ERROR
    assert "slots are created on a primary only" in missing.what


@pytest.mark.parametrize(
    ("encoding", "level"),
    [
        ("UTF8", Level.OK),
        ("GBK", Level.OK),
        ("GB18030", Level.OK),
        ("SQL_ASCII", Level.WARNING),
        ("MULE_INTERNAL", Level.ERROR),
    ],
)
def test_the_databases_encoding_must_be_readable(encoding: str, level: Level) -> None:
    (found,) = said(replace(GOOD, server=replace(SERVER, encoding=encoding)))["encoding"]
    assert found.level is level


def test_json_cuts_values_off() -> None:
    assert "format" in said()  # serial mppdb_decoding is JSON
    assert "format" in said(parallel_decode_num="2", decode_style="j")
    assert "format" not in said(parallel_decode_num="2")
    assert "format" not in said(options=replace(OPTIONS, plugin="sql_decoding"))


# ---------------------------------------------------------------- slots
@pytest.mark.parametrize(
    ("ours", "words"),
    [
        (slot(restart_lsn="FFFFFFFF/FFFFFFFF"), "invalidated"),
        (slot(database=""), "database was dropped"),
        (slot(database="other"), "another client"),
        (slot(plugin="sql_decoding"), "another client"),
    ],
)
def test_a_slot_that_is_not_fit(ours: SlotReading, words: str) -> None:
    (found,) = said(replace(GOOD, slots=(ours,)))["slot"]

    assert found.level is Level.ERROR
    assert words in found.what


def test_a_missing_slot_is_made_by_run() -> None:
    missing = replace(GOOD, slots=())

    assert "the first `run` creates it" in said(missing)["slot"][0].what
    assert "by SQL" in said(missing, output_order="1")["slot"][0].what


def test_one_slot_has_one_reader_on_one_node() -> None:
    standby = replace(GOOD, server=replace(SERVER, is_primary=False))
    found = said(standby, replace(OPTIONS, role="standby"))["slot"]

    assert levels(found) == [Level.OK, Level.WARNING]


def test_open_transactions_stand_in_the_way_of_a_new_slot() -> None:
    young = OpenTransaction("140", "etl", "load", "active", "05:48", seconds=2)
    old = OpenTransaction("141", "etl", "load", "idle in transaction", "03:00", seconds=9000)
    phases = OpenTransaction(
        "tx", "app", "", "prepared", "01:00", seconds=9000, what="prepared transaction"
    )
    open_now = replace(GOOD, open_transactions=(young, old, phases))

    new = said(replace(open_now, slots=()))["transactions"]
    assert levels(new) == [Level.WARNING] * 3
    assert new[0].hint.endswith("pg_terminate_backend(140)")
    assert new[2].hint.endswith("ROLLBACK PREPARED 'tx'")
    there = said(open_now)["transactions"]
    assert [finding.what.partition(",")[0] for finding in there] == [
        "session 141",
        "prepared transaction tx",
    ]


def test_who_sees_little_says_so() -> None:
    role = RoleReading(name="cdc", has_replication=True)
    (found,) = said(replace(GOOD, role=role))["transactions"]
    assert (found.level, "only locks are visible" in found.what) == (Level.NOTE, True)


# ---------------------------------------------------------------- how long a slot may wait
def waiting(segments: int, *, is_active: bool = False, **settings: str) -> list[Finding]:
    end = 0x64000000 + (segments - 1) * (16 << 20)
    readings = replace(
        GOOD,
        wal_end=Lsn(end),
        slots=(slot(is_active=is_active),),
        settings=SETTINGS | settings,
    )
    return said(readings)["log"]


def test_segments_are_counted_from_the_one_a_slot_begins_in() -> None:
    assert retained_segments(0x64000000, 0x64000000) == 1
    assert retained_segments(0x64FFFFFF, 0x64000000) == 1
    assert retained_segments(0x65000000, 0x64FFFFFF) == 2
    assert retained_segments(0x64000000, 0x66000000) == 0  # a position of another epoch


@pytest.mark.parametrize(
    ("segments", "level", "words"),
    [
        (10, Level.OK, "10 of 100 segments of 16 MB (wal_keep_segments 16); 90 more"),
        (50, Level.WARNING, "50 more"),
        (100, Level.WARNING, "no more"),
        (101, Level.ERROR, "it is inactive, and the server invalidates it"),
    ],
)
def test_the_distance_to_being_given_up(segments: int, level: Level, words: str) -> None:
    (found,) = waiting(segments)

    assert found.level is level
    assert words in found.what


def test_a_slot_that_is_read_is_not_given_up() -> None:
    assert levels(waiting(500, is_active=True)) == [Level.WARNING]


def test_log_that_is_kept_anyway_does_not_count() -> None:
    assert "100 more" in waiting(100, wal_keep_segments="200")[0].what
    assert levels(waiting(201, wal_keep_segments="200")) == [Level.ERROR]


def test_a_standby_that_is_further_behind_protects_a_slot() -> None:
    behind = physical("dn_6002", restart_lsn="0/60000000", is_active=False)
    readings = replace(
        GOOD, wal_end=Lsn(0x64000000 + 120 * (16 << 20)), slots=(slot(is_active=False), behind)
    )
    (found,) = said(readings)["log"]
    assert (found.level, "which protects it" in found.what) == (Level.OK, True)


def test_a_limit_by_disk_is_only_noted() -> None:
    (found,) = waiting(500, max_size_for_xlog_retention="-80")
    assert (found.level, "80 % full" in found.what) == (Level.NOTE, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("enable_xlog_prune", "off"),
        ("enable_logicalrepl_xlog_prune", "off"),
        ("max_size_for_xlog_retention", "0"),
    ],
)
def test_without_all_three_settings_log_grows_for_ever(name: str, value: str) -> None:
    (found,) = waiting(500, **{name: value})
    assert (found.level, "never invalidated" in found.what) == (Level.WARNING, True)


def test_inactive_slots_are_named() -> None:
    others = (
        slot("old", is_active=False),
        slot("dead", is_active=False, restart_lsn="FFFFFFFF/FFFFFFFF"),
        slot("orphan", is_active=False, database=""),
        slot("fine"),
        physical("dn_6002", is_active=False),
    )
    found = said(replace(GOOD, slots=(slot(), *others)))["slots"]

    assert [finding.what.split(" ")[0] for finding in found] == ["old", "dead", "orphan"]
    assert found[1].hint == "SELECT pg_drop_replication_slot('dead')"


# ---------------------------------------------------------------- options and limits
def test_option_rules_are_findings() -> None:
    found = said(parallel_decode_num="2", max_txn_in_memory="4000")["options"]
    assert levels(found) == [Level.ERROR]
    assert "more than 25 % of max_process_memory" in found[0].what
    assert levels(said(sender_timeout="0")["options"]) == [Level.WARNING]
    assert levels(said(sending_batch="1")["options"]) == [Level.ERROR]
    assert "not a full copy" in said(exclude_users="etl")["options"][0].what


def test_ddl_that_is_not_logged_is_reported() -> None:
    readings = with_setting("enable_logical_replication_ddl", "off")
    (found,) = said(readings, enable_ddl_decoding="true")["options"]
    assert "enable_logical_replication_ddl is off" in found.what


def test_ddl_that_is_not_requested_is_reported() -> None:
    assert "is not sent" in said()["DDL"][0].what
    assert len(said(enable_ddl_decoding="true")["DDL"]) == 1


def test_check_and_the_start_of_run_report_the_same_undetectable_gaps() -> None:
    (found,) = said(enable_ddl_decoding="true")["DDL"]

    assert found.what == invisible_sentence(DecodingMode(SourceProduct.GAUSSDB, decodes_ddl=True))
    assert "rows after a DDL or DCL" in found.what


def test_pages_are_in_no_log() -> None:
    assert "enable_data_replicate" not in said()
    (found,) = said(with_setting("enable_data_replicate", "on"))["enable_data_replicate"]
    assert found.level is Level.WARNING


def test_files_are_twice_the_subtransactions() -> None:
    (found,) = said(with_setting("max_files_per_process", "3000"))["max_files_per_process"]
    assert (found.level, "more than 1500 subtransactions" in found.what) == (Level.NOTE, True)


def test_rows_older_than_a_slot_without_snapshot() -> None:
    by_sql, by_csn = replace(OPTIONS, interface="sql"), {"output_order": "1"}
    assert levels(said(options=by_sql, **by_csn)["first load"]) == [Level.WARNING]
    parallel = said(**by_csn, parallel_decode_num="2")
    for found in (said(options=by_sql), said(**by_csn), parallel):
        assert levels(found["first load"]) == [Level.NOTE]
        assert "beside the stream" in found["first load"][0].what
    assert levels(said()["first load"]) == [Level.NOTE]


@pytest.mark.parametrize(
    ("listed", "is_said"),
    [("public.t", True), ("public.t,gauss_cdc.*", False), ("*.snapshot_marks", False)],
)
def test_a_white_list_has_the_table_of_marks(listed: str, is_said: bool) -> None:
    found = said(output_order="1", white_table_list=listed)["first load"]
    assert (Level.ERROR in levels(found)) is is_said


def test_what_sql_decoding_and_sql_functions_are() -> None:
    assert (
        "DELETE and an INSERT"
        in said(options=replace(OPTIONS, plugin="sql_decoding"))["plugin"][0].what
    )
    assert "30 to 50 %" in said(options=replace(OPTIONS, interface="sql"))["interface"][0].what


# ---------------------------------------------------------------- tables
def of_table(reading: TableReading) -> list[Finding]:
    return said(replace(GOOD, tables=(table("other"), reading))).get("table public.t", [])


def test_a_table_with_a_key_is_fine() -> None:
    assert of_table(table()) == []


@pytest.mark.parametrize(
    ("reading", "level", "words"),
    [
        (table(key=False), Level.WARNING, "has no replica identity"),
        (table(identity="n"), Level.WARNING, "has no replica identity"),
        (table(key=False, identity="f"), Level.WARNING, "matched by the whole row"),
        (table(key=False, is_ustore=True), Level.WARNING, "matched by the whole row"),
        (table(key=False, has_system_key=True), Level.ERROR, "over a system column"),
        (table(is_interval=True), Level.ERROR, "interval partitions"),
        (table(is_ledger=True), Level.ERROR, "ledger"),
        (table(persistence="g", shape=None), Level.WARNING, "is global temporary: not captured"),
        (table(persistence="u", shape=None), Level.WARNING, "is unlogged: not captured"),
        (table(is_columnar=True, shape=None), Level.WARNING, "in column storage: not captured"),
    ],
)
def test_what_of_a_table_does_not_fit(reading: TableReading, level: Level, words: str) -> None:
    (found,) = of_table(reading)

    assert found.level is level
    assert words in found.what


@pytest.mark.parametrize("identity", ["i", "f"])
def test_a_key_over_system_columns_needs_another_identity(identity: str) -> None:
    found = of_table(table(key=False, has_system_key=True, identity=identity))
    assert Level.ERROR not in levels(found)


def test_a_keyless_table_with_an_index_as_identity_is_fine() -> None:
    assert of_table(table(key=False, identity="i")) == []


@pytest.mark.parametrize(
    ("name", "oid", "listed"),
    [
        ("integer", 23, True),
        ("character varying(20)", 1043, True),
        ("timestamp(3) without time zone", 1114, True),
        ("time without time zone", 1083, True),
        ("bit(3)", 1560, True),
        ("timestamp with time zone", 1184, False),
        ("numeric(10,2)", 1700, False),
        ("bytea", 17, False),
    ],
)
def test_types_that_the_manual_does_not_list_are_named(name: str, oid: int, listed: bool) -> None:
    found = of_table(table(columns=(INT, Column("c", oid, type_name=name))))

    assert (found == []) is listed
    assert all(finding.level is Level.WARNING for finding in found)


def test_opengauss_is_not_held_to_the_manuals_list() -> None:
    server = replace(SERVER, product=Product.OPENGAUSS, has_csn_slots=False)
    column = Column("c", 1700, type_name="numeric(10,2)")
    readings = replace(
        GOOD, server=server, slots=(slot(confirmed_csn=None),), tables=(table(columns=(column,)),)
    )
    assert "table public.t" not in said(readings, replace(OPTIONS, kind="opengauss"))


def test_a_type_that_we_cannot_carry_is_an_error() -> None:
    column = Column("c", 99999, type_name="public.mystery")
    readings = replace(GOOD, tables=(table(columns=(column,)),))
    strict = replace(OPTIONS, types=TypeOptions(unknown_types="fail"))

    (found,) = said(readings, strict)["table public.t"]

    assert (found.level, "not supported" in found.what) == (Level.ERROR, True)


def test_nothing_to_capture_is_an_error() -> None:
    (found,) = said(replace(GOOD, tables=()))["tables"]
    assert found.level is Level.ERROR
