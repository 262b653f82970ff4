"""`gauss-cdc check` for Kafka and the registry: it reports problems before they stop a run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Final

from producer.acls import APPLY, RUN, acls
from producer.errors import CdcError, KafkaNotPermitted
from producer.kafka.client import transactional_id
from producer.kafka.registry import Registry
from producer.kafka.rights import KafkaRights
from producer.kafka.topics import TopicAdmin
from producer.options import Options
from schemas.findings import Finding, Level, refused
from schemas.load import CUT, SCHEMA_CHANGE, canonical
from schemas.tables import TableId
from schemas.topics import below, unified, value_subject

_RIGHTS: Final = "docs/security.md"


def check_kafka(options: Options, tables: Sequence[TableId] = ()) -> Iterator[Finding]:
    """Broker, topics and registry; `tables` are those whose topics will be needed."""
    admin = TopicAdmin(options.client, options.topic_settings)
    topics = options.topics
    try:
        cluster = admin.cluster_id()
        yield Finding(Level.OK, "Kafka", f"cluster {cluster}")
        there = admin.list_below(options.prefix)
        yield from _kafka_rights(options, admin, there, tables)
        data = [t for t in there if topics.is_data(t)]
        admin.check(
            data,
            cuts=topics.cuts if topics.cuts in there else "",
            ddl=topics.ddl if topics.ddl in there else "",
        )
        yield Finding(Level.OK, "topics", f"{len(there)} below {options.prefix}, settings fit")
    except CdcError as error:
        yield refused("Kafka", error)
    try:
        with closing(Registry(options.registry_url, options.registry_options)) as registry:
            yield from _registry(registry, options)
    except CdcError as error:
        yield refused("registry", error)


def _kafka_rights(
    options: Options, admin: TopicAdmin, there: Sequence[str], tables: Sequence[TableId]
) -> Iterator[Finding]:
    """What the brokers would refuse our principal; nothing is created or written."""
    topics, rights = options.topics, KafkaRights(options.client)
    for problem in rights.problems(there):
        yield refused("Kafka rights", problem)
    taken = {unified(name): name for name in sorted(admin.names())}
    for table in tables:
        name = topics.of(table, there)
        if (other := taken.setdefault(unified(name), name)) != name and name not in there:
            what = f"its topic is {topics.apart(table)}: Kafka takes {name} for {other}"
            yield Finding(Level.NOTE, f"table {table}", what)
    data = [name for name in map(topics.table, tables) if name not in there]
    try:
        admin.try_to_make(
            data[:1],  # the others need the same
            cuts="" if topics.cuts in there else topics.cuts,
            ddl="" if topics.ddl in there else topics.ddl,
        )
    except KafkaNotPermitted:
        yield Finding(
            Level.ERROR,
            "Kafka rights",
            f"the principal may not create topics below {below(options.prefix)}",
            f"allow Create on topics with this prefix, see {_RIGHTS}",
        )
    name = transactional_id(options.prefix)
    match rights.transactional_id(name):
        case None:
            yield Finding(
                Level.NOTE,
                "Kafka rights",
                f"our principal may not list the ACLs of transactional id {name}",
                "the first `run` tests it; Describe on the cluster would allow this check",
            )
        case []:
            yield Finding(
                Level.WARNING,
                "Kafka rights",
                f"no ACL allows transactional id {name}",
                f"allow Write and Describe on it, see {_RIGHTS}; super users need no ACL",
            )
        case principals:
            who = ", ".join(principals)
            yield Finding(Level.OK, "Kafka rights", f"transactional id {name} may be used by {who}")
    yield Finding(
        Level.NOTE,
        "Kafka ACLs",
        f"only `run` may write to topics {options.prefix}.*; with an authorizer at the brokers "
        f"these arguments of kafka-acls.sh say so, for principals {RUN} and {APPLY}",
        "\n".join(acl.command() for acl in acls(options.prefix)),
    )


def _registry(registry: Registry, options: Options) -> Iterator[Finding]:
    """Check whether our schemas exist, or would be accepted; nothing is registered."""
    topics = options.topics
    missing = []
    for name, subject in (
        (CUT, value_subject(topics.cuts)),
        (SCHEMA_CHANGE, value_subject(topics.ddl)),
    ):
        if registry.has(subject, canonical(name)):
            continue
        missing.append(subject)
        if registry.would_refuse(subject, canonical(name)):
            yield Finding(
                Level.ERROR,
                "registry",
                f"would refuse our schema of {subject} as incompatible",
                f"set the subject's compatibility to NONE, or delete what {subject} holds",
            )
    if registry.is_read_only():
        yield Finding(
            Level.ERROR if missing else Level.WARNING,
            "registry",
            "is read-only: no schema can be registered",
            "PUT /mode READWRITE, or name the primary in registry.url",
        )
    yield Finding(Level.OK, "registry", options.registry_url)
    if missing:
        yield Finding(
            Level.NOTE,
            "registry",
            "the right to register is not checked: that would write",
            "the first `run` registers, and stops before any row if that is refused",
        )
