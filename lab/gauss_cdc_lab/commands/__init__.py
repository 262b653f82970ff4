"""What the laboratory adds to `gauss-cdc`: lab/pyproject.toml names each command."""
