"""What the brokers allow our principal, checked without writing.

A broker reports the allowed operations of each topic; for a missing topic, the request
that creates it is validated only.  For a transactional id there is no such request: its
ACLs are listed where the principal may see them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from confluent_kafka import KafkaException, TopicCollection
from confluent_kafka.admin import (  # type: ignore[attr-defined]  # it exports without __all__
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from producer.errors import KafkaNotPermitted
from producer.kafka.client import LOGGED, QUIET, ours
from schemas.errors import shortened

_TIMEOUT: Final = 10.0
# `run` writes everything, and reads cuts and ddl back; `apply` reads everything.
_NEEDED: Final = (
    AclOperation.DESCRIBE,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.READ,
    AclOperation.WRITE,
)
_ALL_OF_CLUSTER: Final = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.ALTER,
        AclOperation.DESCRIBE,
        AclOperation.CLUSTER_ACTION,
        AclOperation.DESCRIBE_CONFIGS,
        AclOperation.ALTER_CONFIGS,
        AclOperation.IDEMPOTENT_WRITE,
    }
)


class KafkaRights:
    """Asks the brokers as one client of ours."""

    def __init__(self, client: Mapping[str, Any]) -> None:
        self._admin = AdminClient({**QUIET, **LOGGED, **client})

    def problems(self, topics: Iterable[str]) -> Iterator[KafkaNotPermitted]:
        """What is not allowed on existing topics.

        Raises CdcError where the brokers do not say it.
        """
        wanted = sorted(topics)
        if not wanted:
            return
        futures = self._admin.describe_topics(
            TopicCollection(wanted), include_authorized_operations=True, request_timeout=_TIMEOUT
        )
        lacks: dict[tuple[str, ...], list[str]] = {}
        for name, future in futures.items():
            try:
                allowed = set(future.result().authorized_operations or _NEEDED)
            except KafkaException as exc:
                raise ours(exc) from exc
            missing = tuple(op.name for op in _NEEDED if op not in allowed)
            if missing and AclOperation.ALL not in allowed:
                lacks.setdefault(missing, []).append(name)
        for operations, names in lacks.items():
            yield KafkaNotPermitted(
                "the principal lacks rights on topics",
                operations=", ".join(operations),
                topics=shortened(names),
                hint="allow them for the prefix, see docs/security.md",
            )

    def transactional_id(self, name: str) -> list[str] | None:
        """List the principals that ACLs let use a transactional id.

        None: our principal may not see ACLs. Where it has all rights on the cluster, it is
        a super user or there is no authorizer: no ACL is needed, and the answer is everybody.

        Raises CdcError where the brokers do not answer.
        """
        anything: Any = None
        wanted = AclBindingFilter(
            ResourceType.TRANSACTIONAL_ID,
            name,
            ResourcePatternType.MATCH,
            anything,
            anything,  # from any host
            AclOperation.ANY,
            AclPermissionType.ALLOW,
        )
        try:
            cluster = self._admin.describe_cluster(
                include_authorized_operations=True, request_timeout=_TIMEOUT
            ).result()
            allowed = set(cluster.authorized_operations or ())
            # A broker that refuses the request answers with an empty list, not with an error.
            if AclOperation.DESCRIBE not in allowed:
                return None
            found = self._admin.describe_acls(wanted, request_timeout=_TIMEOUT).result()
        except KafkaException as exc:
            raise ours(exc) from exc
        writes = {AclOperation.WRITE, AclOperation.ALL}
        principals = sorted({acl.principal for acl in found if acl.operation in writes})
        return principals or (["everybody"] if allowed >= _ALL_OF_CLUSTER else [])
