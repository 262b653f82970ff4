"""Commands that look: check, status, cuts, rows, a rehearsal of DDL."""
