"""Several [[target]] in one file: each is one configuration, and no two are mistaken."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner

from gauss_cdc import rereads, target
from gauss_cdc.cli import cli
from gauss_cdc.commands import verify as verify_command
from gauss_cdc.config import Config, ConfigError, load
from schemas.tables import TableId

SMALL = """\
[source]
dsn = "postgresql://cdc@db:5432/bank"
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "kafka:9092"
[registry]
url = "https://registry:8081"
[serve]
listen = "127.0.0.1:9187"
"""
COPY = '[[target]]\nname = "copy"\ndsn = "postgresql://cdc@there/copy"\n'
LAKE = '[[target]]\nname = "lake-2"\nkind = "iceberg"\ndsn = "/lake"\ninterval = "5s"\n'
PASSWORD = "GAUSS_CDC_TARGET_PASSWORD"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bank.toml"
    path.write_text(SMALL + COPY + LAKE)
    return path


def refused(file: Path, text: str) -> str:
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load(file)
    return str(caught.value)


def targets_of(config: Config) -> list[str]:
    return [one.target.dsn for one in config.targets if one.target is not None]


def test_each_is_a_configuration_with_one_target_and_a_checkpoint_of_its_own(file: Path) -> None:
    config = load(file)
    copy, lake = config.targets

    assert targets_of(config) == ["postgresql://cdc@there/copy", "/lake"]
    assert [one.targets for one in (copy, lake)] == [(copy,), (lake,)]
    assert [one.name for one in (copy, lake)] == ["copy", "lake-2"]
    assert [one.checkpoint for one in (copy, lake)] == ["state/copy", "state/lake-2"]
    assert copy.kafka == lake.kafka
    assert config.only("lake-2") == config.single("lake-2") == lake


def test_what_is_asked_for_one_of_several_targets_is_asked_for_it_alone(
    file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`verify --repair` of the lake reads nothing again for the copy."""
    asked: list[tuple[list[str], str]] = []

    class Source:
        def ask(self, tables: list[TableId], target: str = "", keys: object = ()) -> None:
            del keys
            asked.append(([*map(str, tables)], target))

        def asked(self) -> list[object]:
            return []

        def check_names(self, tables: list[TableId]) -> None:
            assert [*map(str, tables)] == ["public.a"]

    @contextmanager
    def session(_: Config) -> Iterator[Source]:
        yield Source()

    monkeypatch.setattr(rereads, "session", session)
    lake = load(file).single("lake-2")

    verify_command.mend(lake, {"public.a": []}, repair=True)
    for name in ("copy", "elsewhere"):
        words = ["snapshot", "--table", "public.a", "--for", name, "--config", str(file)]
        found = CliRunner().invoke(cli, words, standalone_mode=False)
        said = "elsewhere is no target of this configuration, which has copy, lake-2"
        assert (said in found.stderr) == (name == "elsewhere")

    assert asked == [
        (["public.a"], "lake-2"), (["public.a"], "copy"), (["public.a"], "elsewhere")
    ]  # fmt: skip
    assert target.setup(load(file).single("copy")).label == "copy"


def test_a_target_is_as_before(file: Path) -> None:
    file.write_text(SMALL + COPY.replace("[[target]]", "[target]"))
    config = load(file)

    assert (config.targets, config.single(None), config.only("copy")) == ((config,), config, config)
    assert (config.checkpoint, config.label) == ("state", "")
    assert config.of_apply(None).serve.listen == "127.0.0.1:9187"
    assert json.loads(config.shown())["target"]["name"] == "copy"


def test_what_needs_one_target_has_it_named(file: Path) -> None:
    with pytest.raises(ConfigError, match="name one by --target, of copy, lake-2"):
        load(file).single(None)
    with pytest.raises(ConfigError, match="lake is no target of this file, which has copy, lake-2"):
        load(file).only("lake")


def test_all_are_shown(file: Path) -> None:
    shown = json.loads(load(file).shown())

    assert [one["dsn"] for one in shown["target"]] == ["postgresql://cdc@there/copy", "/lake"]
    assert shown["spark"]["checkpoint"] == "state"


def test_each_has_a_password_of_its_own_by_variable_or_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PASSWORD, "of-nobody")
    monkeypatch.setenv(f"{PASSWORD}_LAKE_2", "of-lake")
    secret = tmp_path / "secret"
    secret.touch(mode=0o600)
    secret.write_text("of-copy\n")
    file.write_text(f'{SMALL}{COPY}password-file = "{secret}"\n{LAKE}')

    found = [one.target.password.get_secret_value() for one in load(file).targets if one.target]

    assert found == ["of-copy", "of-lake"]


def test_an_apply_listens_where_its_target_says_and_no_two_at_one_place(file: Path) -> None:
    file.write_text(SMALL + COPY + LAKE + 'listen = "127.0.0.1:9188"\n')
    config = load(file)

    assert [one.of_apply(None).serve.listen for one in config.targets] == ["", "127.0.0.1:9188"]
    assert config.targets[0].of_apply("127.0.0.1:1").serve.listen == "127.0.0.1:1"
    assert config.listens == ["127.0.0.1:9187", "127.0.0.1:9188"]
    assert config.serve.listen == "127.0.0.1:9187"


@pytest.mark.parametrize(
    ("targets", "line", "said"),
    [
        (COPY + LAKE.replace('name = "lake-2"\n', ""), 14, "each [[target]] has a name of its own"),
        (COPY + LAKE.replace("lake-2", ".."), 15, "each [[target]] has a name of its own"),
        (
            COPY + LAKE.replace("lake-2", "copy"),
            15,
            "copy is the name of another [[target]]",
        ),
        (COPY + LAKE.replace("lake-2", "COPY"), 15, "whose variables would be the same"),
        (COPY + COPY.replace('"copy"', '"b"'), 16, "that of copy, too, which keeps its ledger"),
        (COPY + LAKE + 'listen = "127.0.0.1:9187"\n', 19, "that of [serve], too"),
        (COPY + LAKE + 'listen = "127.0.0.1"\n', 19, "is not an address"),
        (COPY + LAKE + 'listen = "0.0.0.0:9188"\n', 19, "is reached from outside"),
        (COPY + LAKE.replace("iceberg", "oracle"), 16, "unknown kind"),
        (COPY + LAKE + 'password = "pencil"\n', 19, "set GAUSS_CDC_TARGET_PASSWORD_LAKE_2"),
        (COPY + LAKE + "intervall = 1\n", 19, "did you mean interval?"),
        ("[[target]]\nname = 1\n", 12, "each [[target]] has a name of its own"),
    ],
)
def test_what_is_wrong_has_its_line_and_a_way_out(
    file: Path, targets: str, line: int, said: str
) -> None:
    error = refused(file, SMALL + targets)

    assert said in error
    assert f"bank.toml:{line}: target" in error
    assert "pencil" not in error


def test_a_list_is_of_sections(file: Path) -> None:
    assert "write [[target]], and keys below it" in refused(file, f"target = []\n{SMALL}")
    assert "has a name of its own" in refused(file, f"target = [1]\n{SMALL}")
