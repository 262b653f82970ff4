"""Commands as a user calls them, with a configuration file of a test."""

from pathlib import Path as File

from click.testing import CliRunner, Result

from gauss_cdc.cli import cli
from gauss_cdc_lab.services import Addresses

_TOML = """\
[source]
dsn = "{source}"
slot = "{prefix}"
{more}
[kafka]
prefix = "{prefix}"
[kafka.client]
"bootstrap.servers" = "{kafka}"
[registry]
url = "{registry}"
[target]
dsn = "{target}"
"""


def configured(
    folder: File, addresses: Addresses, prefix: str, source: str, target: str, **more: str
) -> File:
    """Write a configuration file; `more` are keys of [source], by default a publication's name."""
    keys = more or {"publication": prefix}
    file = folder / "gauss-cdc.toml"
    file.write_text(
        _TOML.format(
            source=source,
            target=target,
            prefix=prefix,
            more="\n".join(f'{key} = "{value}"' for key, value in keys.items()),
            kafka=addresses.kafka_bootstrap,
            registry=addresses.registry_url,
        )
    )
    return file


def command(file: File, *words: str) -> Result:
    """Run a command; what it raises is in the result."""
    return CliRunner().invoke(cli, [*words, "--config", str(file)], standalone_mode=False)
