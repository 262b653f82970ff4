"""Puts both halves together: the command line, inspection, recordings, and the sandbox."""
