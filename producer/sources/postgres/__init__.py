"""PostgreSQL: connection, catalog, pgoutput, event triggers, checks."""
