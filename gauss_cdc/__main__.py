"""`python -m gauss_cdc` is `gauss-cdc`."""

from gauss_cdc.cli import main

main()
