import re

from click.testing import CliRunner

from gauss_cdc import readme
from gauss_cdc.cli import cli


def test_the_tables_of_the_readme_are_what_the_code_says() -> None:
    text = readme.README.read_text("utf-8")

    assert readme.filled(text) == text
    assert set(re.findall(r"<!-- begin: (\w+) -->", text)) == set(readme.TABLES)


def test_a_stale_table_would_be_noticed() -> None:
    text = readme.README.read_text("utf-8").replace("| `status` |", "| `statos` |")

    assert readme.filled(text) != text


def test_every_command_has_help_with_an_example() -> None:
    def commands(group, path):
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from commands(command, [*path, name])
            else:
                yield [*path, name]

    for words in commands(cli, []):
        shown = CliRunner().invoke(cli, [*words, "--help"])

        assert shown.exit_code == 0
        assert "Example:" in shown.output, words
