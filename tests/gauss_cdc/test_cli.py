"""The list of commands, which imports none of them."""

import json
import subprocess
import sys

import click

from gauss_cdc.cli import cli

# Each takes between a tenth of a second and a second.  A command comes behind those that need less.
SPARK = ("pyspark", "pyarrow", "spark_consumers.run")
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
