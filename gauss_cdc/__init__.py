"""Puts both halves together: the command line, and inspection."""
