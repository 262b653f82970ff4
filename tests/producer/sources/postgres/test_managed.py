"""What a provider's service needs is told by its own words."""

from dataclasses import replace

import pytest

from producer.errors import Unsupported
from producer.sources.postgres.catalog import ServerInfo
from producer.sources.postgres.checks import check_server
from producer.sources.postgres.managed import ROLES, SERVICES, refuse_pooler, service_of

OWN = ServerInfo(
    version=150000, version_text="PostgreSQL 15", encoding="UTF8", wal_level="replica",
    in_recovery=False, max_replication_slots=10, slots_used=0, max_wal_senders=10,
    wal_senders_used=0, max_slot_wal_keep_size="10GB", idle_slot_timeout="0",
    wal_sender_timeout="1min", is_superuser=False, has_replication=True, may_create=False,
    service_roles=[],
)  # fmt: skip


@pytest.mark.parametrize("service", SERVICES, ids=lambda service: service.role)
def test_wal_level_is_set_where_the_service_has_it(service) -> None:
    said = {f.subject: f for f in check_server(replace(OWN, service_roles=[service.role]))}

    assert said["wal_level"].hint == service.wal_level
    assert service.name in said["service"].what


def test_a_server_of_ones_own_is_no_service() -> None:
    said = {f.subject: f for f in check_server(OWN)}

    assert "service" not in said
    assert said["wal_level"].hint.startswith("ALTER SYSTEM")
    assert service_of([]) is None
    assert len(set(ROLES)) == len(ROLES)


def test_a_session_that_another_process_answers_is_a_pooler_s() -> None:
    refuse_pooler(7, 7, "db")
    with pytest.raises(Unsupported, match="pooler") as raised:
        refuse_pooler(7, 8, "db")
    assert raised.value.where["host"] == "db"
