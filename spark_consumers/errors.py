"""Errors of the consumer half that say what to do next.

The same voice as the producer's: raise the narrowest class, the class decides
the verdict, `hint` names what the operator can do, keyword context names the place.
Never cell values or secrets.
"""

from __future__ import annotations

from schemas.errors import LOAD_AGAIN, Explained, Verdict
from schemas.tables import TableId, argument


class ApplyError(Explained):
    """Base of everything the consumer raises on purpose."""


class TargetError(ApplyError):
    """The target database refused, or is not as we need it."""

    exit_code = 60


class TargetDown(TargetError):
    """The target cannot be reached, or closed the connection; a commit's outcome may be unknown."""

    verdict = Verdict.RETRY


class TargetFailed(TargetDown):
    """The target's engine failed; whether that passes, nobody knows."""

    def __init__(self, what: str, **where: object) -> None:
        super().__init__(what, hint=f"if it stays: {LOAD_AGAIN}", **where)


class LedgerUnseen(TargetError):
    """Only Spark can read where the target stands: a lake in a catalog of Spark's settings."""


class TargetNotEmpty(TargetError):
    """A table that is to be loaded first holds rows already."""

    exit_code = 61


class MissingTable(TargetError):
    """The stream has rows of a table that the target does not have."""

    exit_code = 62


class MissingColumn(TargetError):
    """The stream has values of a column that the target's table does not have."""

    exit_code = 63


class NotExpressible(TargetError):
    """A schema change, or a change of rows under the target's own constraints, has no safe form."""

    exit_code = 64


class RowMissing(TargetError):
    """A change needs a row that the target does not have: target and source differ."""

    verdict = Verdict.RESYNC
    exit_code = 65


class TableAltered(RowMissing):
    """Someone altered the target's table so that it may not hold what the source has."""


def altered_hint(table: TableId | str) -> str:
    """Say what makes a table exact that others altered."""
    return f"alter it back, then `gauss-cdc snapshot --table {argument(table)}`; or {LOAD_AGAIN}"


class ChangeLeftOut(RowMissing):
    """`[ddl] apply = "none"`: a schema change moved, removed or computed rows of the source."""


class TableLookedAtBefore(TargetError):
    """A table was altered between the look at it and a statement; another look decides."""

    verdict = Verdict.RETRY


class TargetRefused(TargetError):
    """The target rejected a statement: a type, a constraint, a right."""

    exit_code = 66


class TargetLogin(TargetRefused):
    """The target refused the login: password, user, database, or the line of pg_hba.conf."""

    exit_code = 68


class TargetNotPermitted(TargetRefused):
    """The role lacks a right at the target."""

    exit_code = 69


class NotText(TargetError):
    """A value's bytes are not text, and the target's database accepts only text."""

    exit_code = 67


class LedgerError(ApplyError):
    """The ledger and the stream do not belong together."""

    exit_code = 70


class LedgerForeign(LedgerError):
    """The ledger was written from another cluster, other topics or another history."""

    exit_code = 71


class Superseded(LedgerError):
    """The ledger is not where this attempt began: give it up and read the ledger again."""

    verdict = Verdict.RETRY


class RowsUnfit(LedgerError):
    """A task of Spark made last states for a table that is another one now: rows are read again."""

    verdict = Verdict.RETRY


class Fenced(LedgerError):
    """Another applier of this source took over the target."""

    exit_code = 72


class StreamError(ApplyError):
    """What Kafka holds is not what the cuts say."""

    exit_code = 80


class NothingYet(StreamError):
    """There are topics, and no commit: `run` has just made them, or they are another prefix's."""

    verdict = Verdict.RETRY


class ShapeChanged(StreamError):
    """A table's columns changed so that rows before and after do not fit into one frame."""

    exit_code = 88


class SparkFailed(ApplyError):
    """Spark does not start, or its JVM ended."""

    exit_code = 90


class QueryEnded(SparkFailed):
    """Spark ended the query by itself: it begins again, and the ledger decides where."""

    verdict = Verdict.RETRY


class KafkaDown(StreamError):
    """No broker answers."""

    verdict = Verdict.RETRY


class TopicMissing(KafkaDown):
    """A broker does not know a topic: it was deleted, or the broker just came back."""


class RegistryDown(StreamError):
    """The schema registry does not answer."""

    verdict = Verdict.RETRY


class RegistryRefused(StreamError):
    """The schema registry refuses the request, or the server is not a registry."""

    exit_code = 87


class SchemaUnknown(StreamError):
    """A record names a schema that the registry does not have."""

    exit_code = 86


class SubjectUnknown(StreamError):
    """A table's topic has no schema in the registry: no source has written it."""

    exit_code = 89


class CutsGap(StreamError):
    """The cuts topic has a gap, a double, or begins too late for this target."""

    exit_code = 81


class RangeExpired(StreamError):
    """Retention deleted records before they were read."""

    exit_code = 82


class Incomplete(StreamError):
    """The ranges of a commit do not hold exactly its rows."""

    verdict = Verdict.RETRY
    exit_code = 83


class TopicReplaced(StreamError):
    """A topic was deleted or recreated, or the cluster is another one."""

    exit_code = 84


class SettingRefused(StreamError):
    """A security setting of Kafka that Spark's client cannot honour, or a login in plain text."""

    exit_code = 85
