"""PostgreSQL as a service: who runs it, and what there is done otherwise (docs/managed.md).

Nobody but the provider is a superuser there, parameters are set in its console, and poolers stand
beside the server.  A service is known by a role that only it has.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from producer.errors import Unsupported
from producer.wire.sqlstate import DIRECT

DOCUMENT: Final = "docs/managed.md"


class Provider(NamedTuple):
    """What differs from a server of one's own."""

    name: str
    role: str  # of the catalog
    wal_level: str  # how it becomes logical
    warning: str = ""  # what else ends a slot


SERVICES: Final = (
    Provider(
        "Amazon RDS or Aurora",
        "rds_superuser",
        "set rds.logical_replication = 1 in the parameter group (of the cluster, with Aurora), and"
        " reboot",
    ),
    Provider(
        "Google Cloud SQL",
        "cloudsqlsuperuser",
        "set the flag cloudsql.logical_decoding = on; the instance restarts",
    ),
    Provider(
        "Azure Database for PostgreSQL",
        "azure_pg_admin",
        "set the server parameter wal_level = logical, and restart the server",
    ),
    Provider(
        "Neon",
        "neon_superuser",
        "enable logical replication in the project's settings",
        "a slot that nobody reads for about 40 hours is removed, and a restored branch has none:"
        " then all tables are loaded again",
    ),
    Provider("Supabase", "supabase_admin", "it is logical in each project: ask Supabase"),
)
ROLES: Final = tuple(service.role for service in SERVICES)


def service_of(roles: Collection[str]) -> Provider | None:
    """Return the service that has one of these roles; None: a server of one's own."""
    return next((service for service in SERVICES if service.role in roles), None)


ASKED: Final = "SELECT pg_catalog.pg_backend_pid()"


def refuse_pooler(told: int, asked: int, host: str) -> None:
    """Raise Unsupported where the session is not one with the server itself.

    `told`: the process at the login; `asked`: the one that answers.  A pooler gives a number of
    its own, since it makes sessions of its own; what ours is set to need not be that of the one
    that answers next.
    """
    if told != asked:
        raise Unsupported("a connection pooler answers, not the server", hint=DIRECT, host=host)


def refuse_pooler_of(connection: Connection, host: str) -> None:
    """Raise Unsupported where a new session of psycopg2's is one with a pooler."""
    with connection.cursor() as cursor:
        cursor.execute(ASKED)
        ((pid,),) = cursor.fetchall()
    connection.rollback()
    refuse_pooler(connection.info.backend_pid, pid, host)
