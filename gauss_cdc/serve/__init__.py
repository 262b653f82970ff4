"""Probes and metrics over HTTP: of `run`, `apply` and `status --serve`."""
