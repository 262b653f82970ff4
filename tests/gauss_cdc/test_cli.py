"""The list of commands, which imports none of them."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import click

from gauss_cdc import cli as command_line
from gauss_cdc.cli import cli
from tests.tree import ROOT

# Each takes between a tenth of a second and a second.  A command comes behind those that need less.
SPARK = ("pyspark", "pyarrow", "spark_consumers.loop.run")
PIPELINE = ("producer.pipeline", "confluent_kafka.schema_registry", "httpx")
NOBODY = ("fastavro", "producer.core", "spark_consumers.sinks")
NOT_FOR = {
    "": (*SPARK, *PIPELINE, *NOBODY, "confluent_kafka", "rich", "gauss_cdc_lab"),
    "services": (*SPARK, *PIPELINE, *NOBODY),
    "emulator": (*SPARK, *PIPELINE, *NOBODY),
    "apply": (*SPARK, *PIPELINE),
    "status": (*SPARK, "producer.pipeline"),
    "run": (*SPARK, "gauss_cdc.verify"),
}
PROGRAM = """
import json, sys
from gauss_cdc.__main__ import main

def heavy(command, names):
    sys.argv = ["gauss-cdc", *command.split(), "--help"]
    try:
        main()
    except SystemExit:
        pass
    return [name for name in names if name in sys.modules]

print(json.dumps({c: heavy(c, names) for c, names in json.loads(sys.argv[1]).items()}))
"""


def test_help_says_of_each_command_what_its_own_help_says() -> None:
    group = click.Group(commands=dict(cli.commands))
    context = click.Context(cli, terminal_width=400)
    shown, formatter = click.HelpFormatter(width=400), click.HelpFormatter(width=400)

    group.format_commands(context, formatter)
    cli.format_commands(context, shown)

    assert "a comparison of source and target" in shown.getvalue()
    assert shown.getvalue() == formatter.getvalue()


def test_a_command_imports_only_what_it_needs() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps(NOT_FOR)],
        check=True,
        capture_output=True,
        text=True,
    )

    assert done.stdout.count("Usage: gauss-cdc") == len(NOT_FOR)
    assert json.loads(done.stdout.splitlines()[-1]) == {command: [] for command in NOT_FOR}


WITHOUT_SPARK = """
import sys
from importlib import import_module
from gauss_cdc import cli

sys.modules.update(dict.fromkeys(cli._EXTRAS))  # as if they were not installed
for place in cli._COMMANDS.values():
    import_module(f"gauss_cdc.commands.{place.module}")
print("all imported", flush=True)
sys.argv = ["gauss-cdc", *sys.argv[1:]]
cli.main()
"""
CONFIG = """
[kafka]
bootstrap = "127.0.0.1:9"
prefix = "bank"
[registry]
url = "http://127.0.0.1:9"
[target]
kind = "postgres"
dsn = "host=127.0.0.1 dbname=x"
"""


def test_an_installation_without_spark_has_every_command_but_apply(tmp_path: Path) -> None:
    config = tmp_path / "gauss-cdc.toml"
    config.write_text(CONFIG)

    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK, "apply", "--config", str(config)],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.stdout == "all imported\n"
    assert "pyspark is not installed: pip install 'gauss-cdc[apply]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == click.UsageError.exit_code


def test_what_a_command_may_lack_is_brought_by_an_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    always = {one.partition(">=")[0] for one in project["dependencies"]}

    assert always.isdisjoint(command_line._EXTRAS)
    assert {*command_line._EXTRAS.values()} <= {*project["optional-dependencies"]}
