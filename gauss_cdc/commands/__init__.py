"""One module per family of commands; `gauss_cdc.cli` lists them, and those of the laboratory."""
