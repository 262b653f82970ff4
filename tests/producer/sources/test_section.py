"""[source] of openGauss and GaussDB: judged when the file is read, before anything is connected."""

from pathlib import Path

import pytest

from gauss_cdc import config
from gauss_cdc.config import ConfigError, load
from gauss_cdc.secrets import STARS, masked
from gauss_cdc.wiring import producer_options
from producer.sources.gauss.options import Vendor, effective

FILE = """\
[source]
kind = "gaussdb"
dsn = "postgresql://cdc@db:8000/bank"
{source}
[source.options]
{options}
[kafka]
prefix = "bank"

[kafka.client]
"bootstrap.servers" = "kafka:9092"

[registry]
url = "http://registry:8081"
"""


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vars(config):
        value = getattr(config, name)
        if isinstance(value, str) and value.startswith("GAUSS_CDC_"):
            monkeypatch.delenv(value, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "bank.toml"


def written(file: Path, source: str = "", options: str = "", kind: str = "gaussdb") -> Path:
    text = FILE.format(source=source, options=options).replace("gaussdb", kind, 1)
    file.write_text(text)
    return file


def refused(file: Path, *args: str, **kwargs: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(written(file, *args, **kwargs))
    return str(caught.value)


# ---------------------------------------------------------------- what is right
def test_numbers_and_booleans_may_stand_as_what_they_are(file: Path) -> None:
    options = 'parallel-decode-num = 4\nonly-local = true\nsender-timeout = "60s"'

    loaded = load(written(file, options=options))

    assert loaded.source.options == {
        "parallel-decode-num": "4",
        "only-local": "true",
        "sender-timeout": "60s",
    }


def test_the_plugin_follows_the_product(file: Path) -> None:
    assert load(written(file)).source.output_plugin == "mppdb_decoding"
    assert load(written(file, 'plugin = "sql_decoding"')).source.output_plugin == "sql_decoding"
    assert load(written(file, kind="postgres")).source.output_plugin == "pgoutput"


def test_everything_reaches_the_producer(file: Path) -> None:
    source = """\
hosts = ["db1:8000", "[fe80::1]:8001"]
role = "standby"
ha-port = 8002
status-interval = "5s"
unknown-message = "quarantine"
"""
    options = producer_options(
        load(written(file, source, 'decode-style = "t"\nparallel-decode-num = 2'))
    )

    assert (options.kind, options.plugin) == ("gaussdb", "mppdb_decoding")
    assert options.hosts == ("db1:8000", "[fe80::1]:8001")
    assert (options.role, options.ha_port) == ("standby", 8002)
    assert options.interface == "stream"
    assert (options.unknown_message, options.without_identity) == ("quarantine", "stop")
    assert options.terms.product is Vendor.GAUSSDB
    assert options.terms.status_seconds == 5.0
    decided = effective(options.plugin_options, options.terms)
    assert (decided.get("standby-connection"), decided.format.style) == ("true", "t")


def test_sql_functions_are_asked_for(file: Path) -> None:
    assert producer_options(load(written(file, 'interface = "sql"'))).interface == "sql"


def test_postgresql_is_as_it_was(file: Path) -> None:
    loaded = load(written(file, options='binary = "false"', kind="postgres"))

    options = producer_options(loaded)

    assert (options.kind, options.plugin, options.hosts) == ("postgres", "pgoutput", ())
    assert options.plugin_options == {"binary": "false"}


# ---------------------------------------------------------------- what is refused, and where
@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            "parallel-decode-num = 21",
            "source.options.parallel-decode-num: outside 1 to 20 (value 21, range 1 to 20)",
        ),
        ('decode-style = "b"', "source.options.decode-style: only with parallel-decode-num of 2"),
        ('sender-timeout = "5s"', "source.options.sender-timeout: shorter than 3 status"),
        ("auto-advance = true", "source.options.auto-advance: it would move the slot"),
        ("start-position = 1", "source.options.start-position: write CSN/LSN"),
        ("skip-empty-xacts = false", "source.options.skip-empty-xacts: set by us to true"),
        ("nothing = 1", "source.options.nothing: unknown decoding option (value 1)"),
    ],
)
def test_a_bad_option_is_reported_with_its_line(file: Path, options: str, said: str) -> None:
    message = refused(file, options=options)
    assert message.startswith(f"{file}:6: {said}"), message


def test_all_bad_options_are_reported_at_once(file: Path) -> None:
    message = refused(file, options='sending-batch = 2\nwhite-table-list = "a, b"').splitlines()

    assert [line.split(": ")[:2] for line in message] == [
        [f"{file}:6", "source.options.sending-batch"],
        [f"{file}:7", "source.options.white-table-list"],
    ]


def test_rules_depend_on_the_product(file: Path) -> None:
    assert load(written(file, options="enable-heartbeat = true")).source.options
    message = refused(file, options="enable-heartbeat = true", kind="opengauss")
    assert "opengauss does not have this option" in message


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ('hosts = ["db1"]', "4: source.hosts: 'db1': write host:port"),
        ('hosts = ["db1:0"]', "4: source.hosts: 'db1:0': write host:port"),
        ('hosts = ["db1:70000"]', "4: source.hosts: 'db1:70000': write host:port"),
        ('hosts = ["a:1", "a:1"]', "4: source.hosts: a host is named twice"),
        ('role = "master"', "4: source.role: Input should be"),
        ("ha-port = 0", "4: source.ha-port: Input should be"),
        ('plugin = "wal2json"', "4: source.plugin: gaussdb has no 'wal2json'"),
        ('sql-mode = "peek"', "4: source.sql-mode: leave it out: functions are read by peek"),
        ('interface = "sql"\nrole = "standby"', "5: source.role: SQL functions move slots"),
        ('unknown-message = "skip"', "4: source.unknown-message: Input should be"),
        ("hold-bytes = 1", "4: source.hold-bytes: leave it out: 64 MiB"),
    ],
)
def test_a_bad_source_is_reported_with_its_line(file: Path, source: str, said: str) -> None:
    assert refused(file, source).startswith(f"{file}:{said}")


@pytest.mark.parametrize(
    "source",
    [
        "ha-port = 5433",
        'interface = "sql"',
        'unknown-message = "stop"',
    ],
)
def test_what_postgresql_does_not_have_is_refused(file: Path, source: str) -> None:
    key = source.split(" ", maxsplit=1)[0]

    message = refused(file, source, kind="postgres")

    assert message == f'{file}:4: source.{key}: only with kind = "opengauss" or "gaussdb"'


@pytest.mark.parametrize("source", ['failover-slot = "on"', 'publication = "ours"'])
def test_what_only_postgresql_has_is_refused(file: Path, source: str) -> None:
    key = source.split(" ", maxsplit=1)[0]

    assert refused(file, source) == f'{file}:4: source.{key}: only with kind = "postgres"'


def test_a_kind_that_is_not_there_is_refused_with_those_that_are(file: Path) -> None:
    message = refused(file, kind="oracle")

    assert message == f"{file}:2: source.kind: unknown kind, one of postgres, opengauss, gaussdb"


def test_a_source_that_is_no_section_is_refused(file: Path) -> None:
    text = written(file).read_text().partition("[kafka]")[2]
    file.write_text(f'source = "postgresql://db"\n[kafka]{text}')

    with pytest.raises(ConfigError, match=r":1: source: write a section in brackets"):
        load(file)


def test_a_key_of_no_kind_is_refused_with_one_that_is_near(file: Path) -> None:
    assert "did you mean status-interval?" in refused(file, 'status-intervall = "1s"')
    assert refused(file, "chunk-rows = 1").endswith("did you mean [load] chunk-rows?")


def test_role_and_slot_decide_which_host_of_postgresql_is_read(file: Path) -> None:
    source = 'hosts = ["db1:1", "db2:2"]\nrole = "standby"\nslot = "beside"'

    options = producer_options(load(written(file, source, kind="postgres")))

    at = options.source
    assert (at.hosts, at.role, at.slot) == (("db1:1", "db2:2"), "standby", "beside")
    assert options.role == "standby"


def test_postgresql_is_read_by_pgoutput(file: Path) -> None:
    message = refused(file, 'plugin = "mppdb_decoding"', kind="postgres")
    assert message == f"{file}:4: source.plugin: PostgreSQL is read by pgoutput"


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ('publication_names = "second"', "would silently lose its tables (value second"),
        ("streaming = true", "transactions are interleaved then"),
        ("binary = true", "values are read as text"),
        ("proto_version = 2", "set by us: 1 sends whole transactions"),
        ("two_phase = true", "it may still be rolled back"),
        ("messages = false", "set by us: always true"),
        ('origin = "other"', "not one of its values (value other, range any or none)"),
        ("publication-names = 1", "unknown option of pgoutput (value 1); did you mean"),
    ],
)
def test_an_option_of_pgoutput_that_is_not_the_operators_is_refused(
    file: Path, option: str, said: str
) -> None:
    name = option.split(" ", maxsplit=1)[0]

    message = refused(file, options=option, kind="postgres")

    assert message.startswith(f"{file}:6: source.options.{name}: ")
    assert said in message


def test_an_option_of_pgoutput_that_may_be_set_is_taken(file: Path) -> None:
    loaded = load(written(file, options='origin = "none"\nbinary = false', kind="postgres"))

    assert producer_options(loaded).plugin_options == {"origin": "none", "binary": "false"}


@pytest.mark.parametrize("kind", ["gaussdb", "opengauss", "postgres"])
def test_a_command_may_print_the_password_and_its_output_is_masked(file: Path, kind: str) -> None:
    loaded = load(written(file, 'password-command = ["echo", "tok en 123"]', kind=kind))

    assert producer_options(loaded).source.current_password() == "tok en 123"
    assert masked("login with tok en 123") == f"login with {STARS}"


def test_a_password_and_a_command_for_it_are_one_too_many(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(config.SOURCE_PASSWORD, "pencil")

    assert "there is a password already" in refused(file, 'password-command = ["echo", "x"]')
