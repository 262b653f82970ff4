"""The configuration file: what is refused, where it says so, and what it never prints."""

from datetime import timedelta
from pathlib import Path

import pytest

from gauss_cdc import config
from gauss_cdc.config import REMOVED, ConfigError, line_of, load
from gauss_cdc.wiring import producer_options
from schemas.types import TypeOptions

SMALL = """\
[source]
dsn = "postgresql://cdc@db:5432/bank"

[kafka]
prefix = "bank"

[kafka.client]
"bootstrap.servers" = "kafka:9092"

[registry]
url = "https://registry:8081"
"""


SASL = """\
"security.protocol" = "sasl_ssl"
"sasl.mechanism" = "PLAIN"
"sasl.username" = "u"
"""


@pytest.fixture(autouse=True)
def _no_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in vars(config):
        value = getattr(config, name)
        if isinstance(value, str) and value.startswith("GAUSS_CDC_"):
            monkeypatch.delenv(value, raising=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bank.toml"
    path.write_text(SMALL)
    return path


def refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    return str(caught.value)


def refused_bytes(file: Path, raw: bytes) -> str:
    file.write_bytes(raw)
    with pytest.raises(ConfigError) as caught:
        load(file)
    return str(caught.value)


# ---------------------------------------------------------------- what is right
def test_a_small_file_has_defaults_that_are_right_for_most(file: Path) -> None:
    loaded = load(file)

    assert loaded.source.slot == "gauss_cdc"
    assert loaded.tables.include == ("*.*",)
    assert loaded.kafka.exactly_once
    assert (loaded.kafka.key, loaded.kafka.partition_by) == ("table", "table")
    assert loaded.kafka.transaction_timeout == timedelta(minutes=5)
    assert loaded.target is None


def test_keys_are_spelled_with_hyphens_and_durations_with_units(file: Path) -> None:
    file.write_text(SMALL.replace('"bank"\n', '"bank"\nretention = "2d"\ngroup-time = "20ms"\n'))

    kafka = load(file).kafka

    assert (kafka.retention, kafka.group_time) == (timedelta(days=2), timedelta(milliseconds=20))


def test_one_pattern_may_stand_without_a_list(file: Path) -> None:
    file.write_text(SMALL + '[tables]\ninclude = "public.*"\nexclude = "public.t"\n')

    tables = load(file).tables

    assert (tables.include, tables.exclude) == (("public.*",), ("public.t",))


@pytest.mark.parametrize(
    "master",
    ["local", "local[4]", "local[*,2]", "spark://a:7077,b:7077", "yarn", "k8s://https://h:443"],
)
def test_every_kind_of_master_is_taken(file: Path, master: str) -> None:
    file.write_text(SMALL + f'[spark]\nmaster = "{master}"\n')

    assert load(file).spark.master == master


def test_it_becomes_the_producers_frozen_arguments(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", "pencil")

    options = producer_options(load(file), accept_gap=True)

    assert (options.prefix, options.source.host, options.source.password) == (
        "bank",
        "db",
        "pencil",
    )
    assert options.accept_gap
    assert options.topic_settings.max_message_bytes > options.max_row_bytes


def test_a_loaded_configuration_never_changes(file: Path) -> None:
    loaded = load(file)
    with pytest.raises(ValueError, match="frozen"):
        loaded.kafka.prefix = "other"


# ---------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("prefix = ", "prefx = ", 4, "kafka.prefix: required, but missing"),
        ("prefix = ", "prefx = ", 5, "kafka.prefx: unknown key"),
        ('prefix = "bank"', 'prefix = "a b"', 5, "kafka.prefix: kafka.prefix 'a b'"),
        ('"bank"\n', '"bank"\nexactly_once = true\n', 6, "kafka.exactly_once: unknown key"),
        ('"bank"\n', '"bank"\nkey = "row"\n', 6, "kafka.key: Input should be"),
        ('"bank"\n', '"bank"\nretention = "2 weeks"\n', 6, "kafka.retention: write a duration"),
        ('"bank"\n', '"bank"\npartitions = 0\n', 6, "kafka.partitions: Input should be"),
        ('"bootstrap.servers"', '"acks"', 4, "bootstrap.servers"),
        ("[registry]", "[registri]", 10, "registri: unknown key"),
        ('url = "', 'uri = "', 10, "registry.url: required, but missing"),
        (
            '/bank"\n',
            '/bank"\nslot = "Upper"\n',
            3,
            "source.slot: 'Upper' is not a valid slot name: 1 to 63",
        ),
        ("[kafka]", '[tables]\ninclude = ["account"]\n[kafka]', 5, "'account': write schema.table"),
        ("[kafka]", "[tables]\ninclude = 5\n[kafka]", 5, "tables.include: write a list"),
        ("prefix = ", "prefx = ", 5, "unknown key in [kafka]; did you mean prefix?"),
        ('"bank"\n', '"bank"\nslot = "x"\n', 6, "did you mean [source] slot?"),
        (
            '"bank"\n',
            '"bank"\nzzz = "x"\n',
            6,
            "unknown key in [kafka], which has prefix, exactly",
        ),
        ("[registry]", "[registri]", 10, "unknown key in the file; did you mean registry?"),
        (
            "[registry]",
            '"linger" = 5\n[registry]',
            10,
            "did you mean linger.ms?",
        ),
        (
            "[registry]",
            '"security.protcol" = "ssl"\n[registry]',
            10,
            "no such setting; did you mean security.protocol?",
        ),
        ("[registry]", '"security.protocol" = "tls"\n[registry]', 10, 'Invalid value "tls"'),
        (
            "[registry]",
            f"{SASL}[registry]",
            7,
            "the password comes from GAUSS_CDC_KAFKA_PASSWORD",
        ),
        ("[registry]", '[spark]\nmaster = "locl[*]"\n[registry]', 11, "is not a Spark master"),
        ("https://registry:8081", "registry:8081", 11, "'registry:8081' is not a registry URL"),
        ("https://registry:8081", "http://[::1", 11, "is not a registry URL: write http://"),
        ("https://registry:8081", "http://a:99999", 11, "is not a registry URL"),
        ("[kafka]", "password-file = 5\n[kafka]", 4, "source.password-file: write the name"),
        ("[kafka]", 'password-file = "/"\n[kafka]', 4, "source.password-file: /: Is a directory"),
    ],
)
def test_errors_name_file_line_and_reason(
    file: Path, old: str, new: str, line: int, said: str
) -> None:
    message = refused(file, SMALL.replace(old, new, 1))

    assert any(
        one.startswith(f"{file}:{line}: ") and said in one for one in message.splitlines()
    ), message


def test_all_errors_are_reported_at_once(file: Path) -> None:
    assert len(refused(file, '[kafka]\nprefx = "bank"\n').splitlines()) >= 3


def test_a_file_that_is_not_there_or_not_toml(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.toml: No such file"):
        load(file.with_name("nowhere.toml"))
    assert refused(file, "[source\n").startswith(f"{file}:1: not TOML: ")
    assert refused(file, SMALL + "x = [1,\n").startswith(f"{file}:12: not TOML: ")
    assert "is not a text file" in refused_bytes(file, b"\xff\xfe" + SMALL.encode("utf-16-le"))
    with pytest.raises(ConfigError, match="Is a directory"):
        load(file.parent)
    with pytest.raises(ConfigError, match="is not a text file"):
        load(Path("a\0b"))


def test_settings_that_are_ours_to_make_are_refused(file: Path) -> None:
    message = refused(file, SMALL.replace("[registry]", '"acks" = "1"\n[registry]'))
    assert "acks: set by us" in message


# ---------------------------------------------------------------- secrets
SECRETS = {
    "GAUSS_CDC_SOURCE_PASSWORD": "pencil-1",
    "GAUSS_CDC_TARGET_PASSWORD": "pencil-2",
    "GAUSS_CDC_REGISTRY_CREDENTIALS": "user:pencil-3",
    "GAUSS_CDC_KAFKA_PASSWORD": "pencil-4",
}


def test_secrets_come_from_the_environment_and_are_never_printed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file.write_text(SMALL + '[target]\ndsn = "postgresql://cdc@db/copy"\n')
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)

    loaded = load(file)

    assert loaded.source.password.get_secret_value() == "pencil-1"
    assert loaded.registry.client()["basic.auth.user.info"] == "user:pencil-3"
    assert loaded.kafka.client_settings()["sasl.password"] == "pencil-4"
    for text in (repr(loaded), str(loaded), loaded.model_dump_json()):
        assert "pencil" not in text


def test_a_password_may_stand_in_a_file_of_its_own(file: Path, tmp_path: Path) -> None:
    secret = tmp_path / "password"
    secret.touch(mode=0o600)
    secret.write_text("pencil\n")
    file.write_text(SMALL.replace("[kafka]", f'password-file = "{secret}"\n[kafka]', 1))

    assert load(file).source.password.get_secret_value() == "pencil"

    secret.chmod(0o644)
    with pytest.raises(ConfigError, match=r"bank\.toml:4: source\.password-file: others may read"):
        load(file)

    secret.unlink()
    with pytest.raises(ConfigError, match=r"bank\.toml:4: source\.password-file: .*No such file"):
        load(file)


def test_a_key_s_file_that_others_may_read_is_refused(file: Path, tmp_path: Path) -> None:
    (key := tmp_path / "own.key").touch(mode=0o644)
    setting = f'"ssl.key.location" = "{key}"\n'

    message = refused(
        file, SMALL.replace("[registry]", f"{setting}[registry]") + f"[registry.options]\n{setting}"
    )

    for table in ("kafka.client", "registry.options"):
        assert f"{table}.ssl.key.location: others may read" in message


ALLOW = "allow-plaintext-login = true\n"


def test_a_login_that_others_could_read_is_refused_unless_it_is_allowed(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At Kafka, in Spark's own client, and at the registry; each names its line."""
    monkeypatch.setenv("GAUSS_CDC_REGISTRY_CREDENTIALS", "user:pencil")
    monkeypatch.setenv("GAUSS_CDC_KAFKA_PASSWORD", "pencil")
    plain = SASL.replace("sasl_ssl", "sasl_plaintext")
    text = SMALL.replace("[registry]", f"{plain}[registry]").replace("https", "http")
    text += '[spark.options]\n"kafka.sasl.mechanism" = "PLAIN"\n'
    named = (
        f"{file}:10: kafka.client.security.protocol: PLAIN would send a login to kafka",
        f"{file}:15: spark.options.kafka.security.protocol: PLAIN would send a login to kafka",
        f"{file}:14: registry.url: credentials would be sent to registry",
    )

    for place, said in zip(("[kafka]", "[kafka]", "[registry]"), named, strict=True):
        found = [line for line in refused(file, text).splitlines() if line.startswith(said)]
        assert len(found) == 1
        assert f"set {place} allow-plaintext-login" in found[0]

    file.write_text(text.replace('"bank"\n', f'"bank"\n{ALLOW}').replace("y]\n", f"y]\n{ALLOW}"))
    assert load(file).kafka.allow_plaintext_login


def test_the_environment_wins_over_the_file(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", "pencil")
    file.write_text(SMALL.replace("[kafka]", 'password-file = "/nowhere"\n[kafka]', 1))

    assert load(file).source.password.get_secret_value() == "pencil"


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[kafka]", 'password = "pencil"\n[kafka]', 4),
        ("postgresql://cdc@", "postgresql://cdc:pencil@", 2),
        ("/bank", "/bank?password=pencil", 2),
        ("postgresql://cdc@db:5432/bank", "host=db user=cdc password=pencil", 2),
        ("https://", "https://user:pencil@", 11),
        ("[registry]", '"sasl.password" = "pencil"\n[registry]', 10),
        ("[registry]", '"ssl.key.password" = "pencil"\n[registry]', 10),
        ("[registry]", '"sasl.jaas.config" = "pencil"\n[registry]', 10),
        ("[registry]", '"ssl.key.pem" = "pencil"\n[registry]', 10),
        ("[registry]", '"sasl.oauthbearer.client.secret" = "pencil"\n[registry]', 10),
        ("[registry]", '"sasl.oauthbearer.config" = "pencil"\n[registry]', 10),
        ("[registry]", '"ssl.keystore.password" = "pencil"\n[registry]', 10),
        (':8081"\n', ':8081"\n[registry.options]\n"bearer.auth.token" = "pencil"\n', 13),
        (':8081"\n', ':8081"\n[registry.options]\n"basic.auth.user.info" = "a:pencil"\n', 13),
        (':8081"\n', ':8081"\n[registry.options]\n"proxy" = "http://a:pencil@proxy"\n', 13),
        (':8081"\n', ':8081"\n[spark.options]\n"spark.hadoop.fs.s3a.secret.key" = "pencil"\n', 13),
        (':8081"\n', ':8081"\n[spark.options]\n"spark.ssl.keyPassword" = "pencil"\n', 13),
        (
            ':8081"\n',
            (
                ':8081"\n[spark.options]\n"spark.driver.extraJavaOptions" = '
                '"-Djavax.net.ssl.trustStorePassword=pencil"\n'
            ),
            13,
        ),
        (':8081"\n', ':8081"\n[spark]\ncheckpoint = "s3a://me:pencil@bucket/x"\n', 13),
        (':8081"\n', ':8081/?token=pencil"\n', 11),
        ("/bank", "/bank?p%61ssword=pencil", 2),
        ("/bank", "/bank?sslpassword=pencil", 2),
        ("postgresql://cdc@db:5432/bank", "user=cdc PassWord = 'pencil'", 2),
        ("[kafka]", '[source.options]\n"password" = "pencil"\n[kafka]', 5),
    ],
)
def test_secrets_in_the_file_are_refused_without_showing_them(
    file: Path, old: str, new: str, line: int
) -> None:
    message = refused(file, SMALL.replace(old, new, 1))

    assert message.startswith(f"{file}:{line}: ")
    assert "the file" in message
    assert "pencil" not in message


def test_options_refer_to_secrets_in_variables_and_files(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    password = " päss\"\\;wörd' "  # any character is the password's own, but a line end behind it
    (tmp_path / "secret").touch(mode=0o600)
    (tmp_path / "secret").write_text(password + "\n", "utf-8")
    monkeypatch.setenv("KEY_PASSWORD", password)
    file.write_text(
        SMALL.replace(
            "[registry]",
            '"sasl.username" = "me"\n'
            f'"sasl.password" = {{ file = "{tmp_path / "secret"}" }}\n'
            '"ssl.key.password" = { env = "KEY_PASSWORD" }\n[registry]',
        )
        + f'[registry.options]\n"bearer.auth.token" = {{ file = "{tmp_path / "secret"}" }}\n'
    )

    loaded = load(file)

    client = loaded.kafka.client_settings()
    assert client["sasl.password"] == client["ssl.key.password"] == password
    assert client["sasl.username"] == "me"
    assert loaded.registry.client()["bearer.auth.token"] == password
    for text in (repr(loaded), loaded.model_dump_json(), repr(producer_options(loaded))):
        assert "wörd" not in text
        assert "w\\u00f6rd" not in text


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ('{ env = "NOT_SET_ANYWHERE" }', "the variable NOT_SET_ANYWHERE is not set"),
        ('{ file = "/nowhere/secret" }', "/nowhere/secret: No such file"),
        ('{ env = "A", file = "B" }', "write a reference as"),
        ('{ vault = "x" }', "write a reference as"),
    ],
)
def test_a_reference_that_leads_nowhere_is_an_error(file: Path, reference: str, said: str) -> None:
    message = refused(
        file, SMALL.replace("[registry]", f'"sasl.password" = {reference}\n[registry]')
    )

    assert message.startswith(f"{file}:10: kafka.client.sasl.password: ")
    assert said in message


# ---------------------------------------------------------------- lines
@pytest.mark.parametrize(
    ("where", "line"),
    [
        (["source", "dsn"], 2),
        (["kafka", "client", "bootstrap.servers"], 8),
        (["kafka", "nothing"], 4),
        (["kafka", "client", "nothing"], 7),
        (["nowhere", "x"], 1),
    ],
)
def test_the_line_of_a_key_or_of_its_section(where: list[str], line: int) -> None:
    assert line_of(SMALL, where) == line


# ---------------------------------------------------------------- types
def test_choices_of_types_reach_the_producer(file: Path) -> None:
    assert producer_options(load(file)).types == TypeOptions()

    file.write_text(
        SMALL
        + """
[types]
decimal-handling = "double"
interval-handling = "string"
binary-handling = "base64-url-safe"
time-precision = "connect"
hstore-handling = "map"
unknown-types = "fail"
"""
    )
    assert producer_options(load(file)).types == TypeOptions(
        "double", "string", "base64-url-safe", "connect", "map", "fail"
    )


def test_a_choice_that_debezium_has_not_is_refused(file: Path) -> None:
    assert "types.decimal-handling" in refused(file, SMALL + '[types]\ndecimal-handling = "int"\n')


# ---------------------------------------------------------------- loads
def test_how_tables_are_loaded_reaches_the_producer(file: Path) -> None:
    file.write_text(SMALL + "[load]\nrate = 5\nchunk-rows = 100\n")

    options = producer_options(load(file))

    assert (options.load_rate, options.tuning.chunk_rows) == (5, 100)


@pytest.mark.parametrize(
    ("section", "said"),
    [
        ("rate = -1", "load.rate"),
        ("workers = 2", "load.workers: leave it out"),
        ('order = "smallest"', "load.order: leave it out"),
    ],
)
def test_a_load_that_cannot_be_is_refused(file: Path, section: str, said: str) -> None:
    assert said in refused(file, f"{SMALL}[load]\n{section}\n")


@pytest.mark.parametrize("setting", sorted(REMOVED))
def test_a_setting_of_an_older_release_is_refused_with_what_to_write(
    file: Path, setting: str
) -> None:
    section, key = setting.split(".")
    text = SMALL if f"[{section}]" in SMALL else f"{SMALL}[{section}]\n"

    said = refused(file, text.replace(f"[{section}]\n", f"[{section}]\n{key} = 1\n", 1))

    assert f"{setting}: {REMOVED[setting]}" in said
