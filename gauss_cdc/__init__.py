"""Puts both halves together: the command line, inspection, and recordings."""
