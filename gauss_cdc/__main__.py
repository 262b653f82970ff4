"""`gauss-cdc`, and `python -m gauss_cdc`: what they import takes a second, in which people type."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C while it is imported is no traceback."""
    try:
        from gauss_cdc import cli  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
