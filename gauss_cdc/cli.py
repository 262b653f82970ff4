"""`gauss-cdc`: one verb per thing an operator does.  Thin: parse, call, print.

People's output goes to stderr, programs' to stdout.  Exit codes: 0 done, 2 bad
usage or configuration, 130 interrupted, others as the error classes say
(`producer/errors.py`, `spark_consumers/errors.py`; listed in the README).
"""

from __future__ import annotations

import sys

import click

from gauss_cdc import __version__, services
from gauss_cdc.commands import ddl, local, looking, recordings, slot, stream
from gauss_cdc.commands.base import INTERRUPTED, USAGE, fail
from gauss_cdc.config import ConfigError
from gauss_cdc.watch import set_up_logging
from producer.errors import CdcError
from spark_consumers.errors import ApplyError


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="gauss-cdc")
@click.option("-v", "--verbose", is_flag=True, help="Log state changes of the drivers.")
def cli(*, verbose: bool) -> None:
    """Change data capture into Kafka, applied by PySpark in commit order."""
    set_up_logging(verbose=verbose)


for _command in (
    stream.run,
    stream.apply,
    stream.make_zip,
    looking.check,
    looking.status,
    looking.wait,
    looking.cuts,
    looking.tail,
    recordings.decode_file,
    recordings.record_stream,
    slot.slot_group,
    ddl.ddl_group,
    local.demo,
    local.emulator,
    local.services_group,
    local.config_group,
):
    cli.add_command(_command)


def main() -> None:
    """Run the command line; turn every expected error into a message and an exit code."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as exc:
        exc.show()
        sys.exit(exc.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except ConfigError as exc:
        fail(str(exc), USAGE)
    except services.ServiceError as exc:
        fail(str(exc), 1)
    except CdcError as exc:
        fail(str(exc), exc.exit_code)
    except ApplyError as exc:
        fail(str(exc), exc.exit_code)
