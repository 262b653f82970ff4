"""Which server is read: the primary, or a standby."""

from __future__ import annotations

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import RoleDiffers, Unsupported
from producer.options import Options
from producer.sources.postgres import catalog
from producer.sources.postgres.connection import NAME_PRIMARY
from producer.sources.postgres.primary import OLDEST


def check_role(options: Options, connection: Connection) -> None:
    """Raise RoleDiffers, or Unsupported, where the server is not to be read."""
    is_standby, role = catalog.in_recovery(connection), options.role
    if is_standby and role == "primary":
        raise RoleDiffers("the server is a standby", host=options.source.host, hint=NAME_PRIMARY)
    if not is_standby and role == "standby":
        raise RoleDiffers(
            "the server is a primary, and role asks for a standby",
            host=options.source.host,
            hint='name a standby in [source] hosts, or write role = "any"',
        )
    if is_standby and connection.server_version < OLDEST:
        raise Unsupported("standbys decode from PostgreSQL 16 on", hint="read the primary")
