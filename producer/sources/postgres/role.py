"""Which server is read: the primary, or a standby."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import RoleDiffers, Unsupported
from producer.sources.dial import ConnectionArguments
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import NAME_PRIMARY
from producer.sources.postgres.primary import OLDEST


def check_role(arguments: ConnectionArguments, connection: Connection) -> None:
    """Raise RoleDiffers, or Unsupported, where the server is not to be read."""
    is_standby, role = catalog.in_recovery(connection), arguments.role
    if is_standby and role == "primary":
        raise RoleDiffers("the server is a standby", host=arguments.host, hint=NAME_PRIMARY)
    if not is_standby and role == "standby":
        raise RoleDiffers(
            "the server is a primary, and role asks for a standby",
            host=arguments.host,
            hint='name a standby in [source] hosts, or write role = "any"',
        )
    if is_standby and connection.server_version < OLDEST:
        raise Unsupported("standbys decode from PostgreSQL 16 on", hint="read the primary")
