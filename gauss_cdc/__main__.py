"""`gauss-cdc`, and `python -m gauss_cdc`: Ctrl-C may come while it is still being imported."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C during its import ends without a traceback."""
    try:
        from gauss_cdc import cli  # noqa: PLC0415
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
