"""Puts both halves together: the command line, the demo, and the local services."""

__version__ = "0.1.0"
