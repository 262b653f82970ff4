"""The ACLs that make a prefix trustworthy: only `run` may write to its topics.

Kafka's own command, `kafka-acls.sh`, takes them as they are printed here.  Principals are
those of `run` and of `apply`; every other reader needs what `apply` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from producer.kafka.client import transactional_id
from schemas.topics import below

RUN, APPLY = "User:cdc_run", "User:cdc_apply"  # names of yours


class Acl(NamedTuple):
    """One principal's rights on one resource."""

    principal: str
    resource: str  # topic | transactional-id | group
    name: str
    operations: tuple[str, ...]
    is_prefix: bool = True  # the name begins so; else it is the whole name

    def command(self) -> str:
        """As arguments of kafka-acls.sh.

        >>> Acl("User:u", "topic", "b.", ("All",)).command()
        '--add --allow-principal User:u --operation All --topic b. --resource-pattern-type prefixed'
        """
        operations = " ".join(f"--operation {operation}" for operation in self.operations)
        pattern = " --resource-pattern-type prefixed" if self.is_prefix else ""
        principal = f"--add --allow-principal {self.principal}"
        return f"{principal} {operations} --{self.resource} {self.name}{pattern}"


# Consumer groups of our readers and Spark's: never joined, but brokers check their ACLs.
_OURS, _SPARKS = "gauss-cdc-", "spark-kafka-source-"


def acls(prefix: str, *, run: str = RUN, apply: str = APPLY) -> Sequence[Acl]:
    """Return what `run` and `apply` need, and nothing more."""
    topics, writer = below(prefix), transactional_id(prefix)
    read, group = ("Read", "Describe", "DescribeConfigs"), ("Read", "Describe")
    return (
        Acl(run, "topic", topics, (*read, "Write", "Create")),
        Acl(run, "transactional-id", writer, ("Write", "Describe"), is_prefix=False),
        Acl(run, "group", _OURS, group),
        Acl(apply, "topic", topics, read),
        Acl(apply, "group", _OURS, group),
        Acl(apply, "group", _SPARKS, group),
    )
