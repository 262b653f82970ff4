import re

from click.testing import CliRunner

from gauss_cdc.cli import cli
from gauss_cdc_lab import reference


def test_the_documents_tables_are_what_the_code_says() -> None:
    texts = [path.read_text("utf-8") for path in reference.documents()]

    assert [reference.filled(text) for text in texts] == texts
    found = re.findall(r"<!-- begin: (\w+) -->", "".join(texts))
    assert sorted(found) == sorted(reference.TABLES)


def test_a_stale_table_would_be_noticed() -> None:
    (text,) = (t for p in reference.documents() if "- `status`: " in (t := p.read_text("utf-8")))
    stale = text.replace("- `status`: ", "- `statos`: ")

    assert reference.filled(stale) != stale


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
