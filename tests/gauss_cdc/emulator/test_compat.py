"""Statements as a PostgreSQL with the compatibility schema understands them."""

import pytest

from gauss_cdc.emulator.compat import rewrite


@pytest.mark.parametrize(
    ("sent", "understood"),
    [
        (
            "SELECT plugin FROM pg_catalog.pg_replication_slots s",
            "SELECT plugin FROM gauss_compat.pg_replication_slots s",
        ),
        ("SELECT pg_catalog.version()", "SELECT gauss_compat.version()"),
        (
            "SELECT 'pg_catalog.pg_replication_slots'::regclass",
            "SELECT 'gauss_compat.pg_replication_slots'::regclass",
        ),
        ("SELECT s.version(), 'version()'", "SELECT s.version(), 'version()'"),
        ("SELECT 'pg_class' AS name", "SELECT 'pg_class' AS name"),
        ("SHOW ssl", "SELECT 'on'::text AS \"ssl\""),
        ("SHOW port", "SHOW port"),
    ],
)
def test_names_of_gaussdb_are_sent_to_the_schema_and_nothing_else(
    sent: str, understood: str
) -> None:
    assert rewrite(sent, {"ssl": "on"}) == understood
