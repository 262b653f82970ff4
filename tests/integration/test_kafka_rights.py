"""What a principal may not do is found before it is needed, on a broker with an authorizer."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from gauss_cdc.runtime import jars
from gauss_cdc.runtime.java import find
from gauss_cdc_lab.services.kafka import KafkaService
from gauss_cdc_lab.services.process import LOOPBACK, free_ports, poll
from producer.errors import KafkaNotPermitted
from producer.kafka.rights import KafkaRights
from producer.kafka.topics import TopicAdmin, TopicSettings
from producer.options import Options
from producer.preflight import check_kafka
from producer.sources.dial import ConnectionArguments
from schemas.findings import Level
from schemas.tables import TableId

# Everybody is ANONYMOUS here, and may do what no ACL speaks of.
_AUTHORIZER = """\
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
allow.everyone.if.no.acl.found=true
super.users=User:nobody
"""
# At the cluster; the broker itself is ANONYMOUS, too.
ALL_BUT_CREATE = (AclOperation.DESCRIBE, AclOperation.ALTER, AclOperation.CLUSTER_ACTION)
T = TableId("public", "t")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory: Path = tmp_path_factory.mktemp("kafka")
    port, controller = free_ports(2)
    service = KafkaService(
        directory,
        java=find(shims=jars.cache()),
        jars=jars.fetch(["kafka"])["kafka"],
        port=port,
        controller=controller,
    )
    service.prepare()
    with (directory / "server.properties").open("a") as properties:
        properties.write(_AUTHORIZER)
    process = service.command().spawn(directory / "log")
    assert poll(lambda: service.answers() or not process.alive, 120)
    assert process.alive, (directory / "log").read_text()
    yield f"{LOOPBACK}:{port}"
    process.send(service.stop_signal)
    assert process.wait(120)


@pytest.fixture
def client(broker: str) -> dict[str, Any]:
    return {"bootstrap.servers": broker, "log_level": 0}


def _pattern(kind: ResourceType) -> ResourcePatternType:
    is_cluster = kind is ResourceType.BROKER
    return ResourcePatternType.LITERAL if is_cluster else ResourcePatternType.PREFIXED


def allow(
    client: dict[str, Any],
    kind: ResourceType,
    name: str,
    *operations: AclOperation,
    who: str = "User:ANONYMOUS",
) -> None:
    """Allow these and, since an ACL speaks of the resource now, nothing else."""
    acls = [
        AclBinding(kind, name, _pattern(kind), who, "*", op, AclPermissionType.ALLOW)
        for op in operations
    ]
    admin = AdminClient(client)
    for future in admin.create_acls(acls).values():
        future.result()


def found(client: dict[str, Any], registry_url: str, prefix: str) -> dict[Level, list[str]]:
    source = ConnectionArguments(host="nowhere", user="u")
    options = Options(source, "s", "p", prefix, client, registry_url)
    out: dict[Level, list[str]] = {}
    for finding in check_kafka(options, [T]):
        if finding.subject in ("Kafka", "Kafka rights", "topics"):
            out.setdefault(finding.level, []).append(finding.what)
    return out


def test_a_principal_with_all_rights_is_recognised(
    client: dict[str, Any], registry_url: str, topic_prefix: str
) -> None:
    said = found(client, registry_url, topic_prefix)

    assert Level.ERROR not in said
    there = AdminClient(client).list_topics(timeout=10).topics
    assert not [name for name in there if name.startswith(topic_prefix)]


def test_what_is_not_allowed_on_topics_is_named(
    client: dict[str, Any], registry_url: str, topic_prefix: str
) -> None:
    cuts = f"{topic_prefix}.cuts"
    admin = AdminClient(client)
    admin.create_topics([NewTopic(cuts, 1)])[cuts].result()
    allow(client, ResourceType.TOPIC, f"{topic_prefix}.", AclOperation.READ)
    allow(client, ResourceType.BROKER, "kafka-cluster", *ALL_BUT_CREATE)

    def is_refused() -> bool:
        return bool(list(KafkaRights(client).problems([cuts])))

    assert poll(is_refused, 60)
    (problem,) = KafkaRights(client).problems([cuts])
    assert problem.where["operations"] == "DESCRIBE_CONFIGS, WRITE"
    assert problem.where["topics"] == cuts
    errors = found(client, registry_url, topic_prefix)[Level.ERROR]
    assert any("lacks rights on topics" in what for what in errors)
    assert any("may not create topics below" in what for what in errors)
    with pytest.raises(KafkaNotPermitted):
        TopicAdmin(client, TopicSettings()).ensure([], ddl=f"{topic_prefix}.ddl")


def test_who_may_use_the_transactional_id_is_named(
    client: dict[str, Any], registry_url: str, topic_prefix: str
) -> None:
    rights, name = KafkaRights(client), f"gauss-cdc.{topic_prefix}"
    allow(client, ResourceType.BROKER, "kafka-cluster", *ALL_BUT_CREATE)
    assert poll(lambda: rights.transactional_id(name) == [], 60)

    allow(client, ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE, who="User:cdc")

    assert poll(lambda: rights.transactional_id(name) == ["User:cdc"], 60)


def test_without_an_authorizer_it_is_everybody(kafka: str) -> None:
    rights = KafkaRights({"bootstrap.servers": kafka})

    assert rights.transactional_id("gauss-cdc.t") == ["everybody"]
