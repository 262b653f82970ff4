"""Targets: the contract is in `base`, the table of kinds in `kinds`."""
