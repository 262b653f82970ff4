"""`python -m gauss_cdc.services up|down|env --dir DIR`."""

import argparse
import shlex
import sys
from pathlib import Path

from gauss_cdc.services import ServiceError, down, env, up


def main() -> None:
    """Obey one verb."""
    parser = argparse.ArgumentParser(prog="gauss_cdc.services")
    parser.add_argument("verb", choices=["up", "down", "env"])
    parser.add_argument("--dir", type=Path, required=True)
    asked = parser.parse_args()
    try:
        match asked.verb:
            case "up":
                sys.stdout.write(f"{up(asked.dir)}\n")
            case "down":
                sys.stdout.write(f"stopped: {', '.join(down(asked.dir)) or 'nothing'}\n")
            case _:
                for name, value in env(asked.dir).items():
                    sys.stdout.write(f"export {name}={shlex.quote(value)}\n")
    except ServiceError as error:
        sys.exit(str(error))


main()
