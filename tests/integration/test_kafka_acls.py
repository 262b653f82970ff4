"""The ACLs that `check` prints: enough for `run` and `apply`, and nobody else writes."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path as File

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from gauss_cdc.runtime import jars
from gauss_cdc.runtime.java import find
from gauss_cdc_lab.services.kafka import KafkaService
from gauss_cdc_lab.services.process import LOOPBACK, free_ports, poll
from producer.acls import Acl, acls
from spark_consumers.kafka.read import CutReader, RangeReader, registry_at
from spark_consumers.loop import job
from tests.e2e.path import Path, ask, content

USERS = ("run", "apply", "stranger")
# The other listener's principal is ANONYMOUS: the broker itself, and who makes the ACLs.
_SETTINGS = """\
listeners=PLAINTEXT://{host}:{port},SASL://{host}:{sasl},CONTROLLER://{host}:{controller}
advertised.listeners=PLAINTEXT://{host}:{port},SASL://{host}:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=\
org.apache.kafka.common.security.plain.PlainLoginModule required {users};
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:ANONYMOUS
"""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Addresses of the listener that trusts everybody, and of the one with logins."""
    directory: File = tmp_path_factory.mktemp("kafka")
    port, controller, sasl = free_ports(3)
    service = KafkaService(
        directory,
        java=find(shims=jars.cache()),
        jars=jars.fetch(["kafka"])["kafka"],
        port=port,
        controller=controller,
    )
    service.prepare()
    users = " ".join(f'user_{name}="secret"' for name in USERS)
    with (directory / "server.properties").open("a") as properties:
        properties.write(
            _SETTINGS.format(
                host=LOOPBACK, port=port, sasl=sasl, controller=controller, users=users
            )
        )
    process = service.command().spawn(directory / "log")
    assert poll(lambda: service.answers() or not process.alive, 120)
    assert process.alive, (directory / "log").read_text()
    yield f"{LOOPBACK}:{port}", f"{LOOPBACK}:{sasl}"
    process.send(service.stop_signal)
    assert process.wait(120)


def client(at: str, user: str) -> dict[str, str]:
    return {
        "bootstrap.servers": at,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": "secret",
    }


def bindings(acl: Acl) -> list[AclBinding]:
    """What kafka-acls.sh makes of the printed arguments."""
    words = shlex.split(acl.command())
    (principal,) = (b for a, b in pairwise(words) if a == "--allow-principal")
    operations = [b for a, b in pairwise(words) if a == "--operation"]
    kinds = {
        "--topic": ResourceType.TOPIC,
        "--group": ResourceType.GROUP,
        "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    }
    ((kind, name),) = ((kinds[a], b) for a, b in pairwise(words) if a in kinds)
    pattern = ResourcePatternType.PREFIXED if "prefixed" in words else ResourcePatternType.LITERAL
    named = {"describeconfigs": AclOperation.DESCRIBE_CONFIGS}
    return [
        AclBinding(
            kind,
            name,
            pattern,
            principal,
            "*",
            named.get(operation.lower()) or AclOperation[operation.upper()],
            AclPermissionType.ALLOW,
        )
        for operation in operations
    ]


def test_the_printed_acls_are_enough_and_another_client_cannot_write(
    broker: tuple[str, str], addresses, topic_prefix, new_database
) -> None:
    trusting, guarded = broker
    source, target = new_database(), new_database()
    ask(source, "CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t VALUES (1, 'loaded')")
    wanted = acls(topic_prefix, run="User:run", apply="User:apply")
    admin = AdminClient({"bootstrap.servers": trusting})
    made = [one for acl in wanted for one in bindings(acl)]
    for future in admin.create_acls(made).values():
        future.result()
    there = replace(addresses, kafka_bootstrap=trusting)
    with Path(there, topic_prefix, source, target, client=client(guarded, "run")) as path:
        path.cuts.close()
        path.rows.close()
        schema_of = registry_at(addresses.registry_url)
        path.cuts = CutReader(client(guarded, "apply"), topic_prefix, schema_of)
        path.rows = RangeReader(client(guarded, "apply"), topic_prefix, schema_of)
        path.applier = job.Applier(path.cuts, path.rows, path.sink)
        path.start()
        path.catch_up()
        ask(source, "INSERT INTO t VALUES (2, 'streamed'); ALTER TABLE t ADD COLUMN n int")
        ask(source, "INSERT INTO t VALUES (3, 'later', 7)")
        path.catch_up()

        assert content(target, "t") == content(source, "t")

        for user in ("stranger", "apply"):
            errors: list[KafkaError | None] = []
            producer = Producer(client(guarded, user))
            producer.produce(
                f"{topic_prefix}.cuts", b"7 bytes", on_delivery=lambda e, _, to=errors: to.append(e)
            )
            producer.flush(60)
            assert [e and e.code() for e in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]
