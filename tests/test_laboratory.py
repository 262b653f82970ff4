"""The laboratory is a distribution of its own, in step with the product, which lacks nothing."""

import tomllib

import click
import pytest
from click.testing import CliRunner

from gauss_cdc import cli
from schemas.version import VERSION
from tests.tree import ROOT

PRODUCT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
LABORATORY = tomllib.loads((ROOT / "lab" / "pyproject.toml").read_text("utf-8"))["project"]


def test_it_has_the_version_of_the_product() -> None:
    assert LABORATORY["version"] == VERSION
    assert f"gauss-cdc[apply]=={VERSION}" in LABORATORY["dependencies"]


def test_its_pins_are_those_of_the_product() -> None:
    extras = PRODUCT["optional-dependencies"]
    theirs = {*PRODUCT["dependencies"], *extras["apply"], *extras["test"]}
    ours = {*LABORATORY["dependencies"], *LABORATORY["optional-dependencies"]["docker"]}

    assert ours - theirs == {f"gauss-cdc[apply]=={VERSION}"}


def test_its_commands_are_those_that_the_product_lists() -> None:
    assert set(LABORATORY["entry-points"]["gauss_cdc.commands"]) == set(cli._LABORATORY)


@pytest.mark.parametrize("typed", ["demo", "demo --kills 8", "services up --dir x", "emulator -h"])
def test_a_command_of_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, typed: str) -> None:
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())
    group = cli._Group("gauss-cdc")

    done = CliRunner().invoke(group, typed.split())

    assert done.exit_code == click.UsageError.exit_code
    assert f"pip install gauss-cdc-lab=={VERSION}" in done.output
    assert "not installed" in done.output


def test_the_list_of_commands_needs_no_laboratory(monkeypatch: pytest.MonkeyPatch) -> None:
    before = CliRunner().invoke(cli._Group("gauss-cdc"), ["--help"]).output
    monkeypatch.setattr(cli, "entry_points", lambda **_: ())

    assert CliRunner().invoke(cli._Group("gauss-cdc"), ["--help"]).output == before
