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
    """The target refused, or is not as we need it."""

    exit_code = 60


class TargetDown(TargetError):
    """The target cannot be reached, or closed the connection."""

    verdict = Verdict.RETRY


class TargetFailed(TargetDown):
    """The target's engine failed."""

    def __init__(self, what: str, **where: object) -> None:
        super().__init__(what, hint=f"if it stays: {LOAD_AGAIN}", **where)


class LedgerUnseen(TargetError):
    """Only Spark can read where this lake stands."""


class TargetNotEmpty(TargetError):
    """A table that is to be loaded first has rows."""

    exit_code = 61


class MissingTable(TargetError):
    """The target lacks a table of the stream."""

    exit_code = 62


class MissingColumn(TargetError):
    """The target lacks a column of the stream."""

    exit_code = 63


class NotExpressible(TargetError):
    """No safe form: a schema change, or rows under the target's own constraints."""

    exit_code = 64


class RowMissing(TargetError):
    """The target lacks a row that changes: it differs from the source."""

    verdict = Verdict.RESYNC
    exit_code = 65


class TableAltered(RowMissing):
    """Somebody altered a table of the target, which may not hold its rows."""


def altered_hint(table: TableId | str) -> str:
    """Say what makes a table exact that others altered."""
    return f"alter it back, then `gauss-cdc snapshot --table {argument(table)}`; or {LOAD_AGAIN}"


class ChangeLeftOut(RowMissing):
    """`[ddl] apply = "none"`: a schema change moved, removed or computed rows of the source."""


class TableLookedAtBefore(TargetError):
    """A table was altered meanwhile; another look decides."""

    verdict = Verdict.RETRY


class TargetRefused(TargetError):
    """The target refused a statement: a type, a constraint, a right."""

    exit_code = 66


class TargetLogin(TargetRefused):
    """The target refused the login: password, user, database, or pg_hba.conf."""

    exit_code = 68


class TargetNotPermitted(TargetRefused):
    """The role lacks a right at the target."""

    exit_code = 69


class NotText(TargetError):
    """A value is not text, and the target accepts only text."""

    exit_code = 67


class LedgerError(ApplyError):
    """Ledger and stream do not belong together."""

    exit_code = 70


class LedgerForeign(LedgerError):
    """The ledger is of another cluster, other topics or another history."""

    exit_code = 71


class Superseded(LedgerError):
    """The ledger moved meanwhile; it is read again."""

    verdict = Verdict.RETRY


class RowsUnfit(LedgerError):
    """A table changed while Spark read its rows; they are read again."""

    verdict = Verdict.RETRY


class Fenced(LedgerError):
    """Another `apply` took over the target."""

    exit_code = 72


class StreamError(ApplyError):
    """What Kafka holds is not what the cuts say."""

    exit_code = 80


class NothingYet(StreamError):
    """There are topics, and no commit yet; or they are another prefix's."""

    verdict = Verdict.RETRY


class ShapeChanged(StreamError):
    """A table's columns changed: its rows do not fit into one frame."""

    exit_code = 88


class SparkFailed(ApplyError):
    """Spark does not start, or its JVM ended."""

    exit_code = 90


class QueryEnded(SparkFailed):
    """Spark ended the query, which begins again."""

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
    """The schema registry refused, or the server is none."""

    exit_code = 87


class SchemaUnknown(StreamError):
    """The registry lacks a schema that a record names."""

    exit_code = 86


class SubjectUnknown(StreamError):
    """The registry has no schema of a topic: no source wrote it."""

    exit_code = 89


class CutsGap(StreamError):
    """The cuts topic has a gap, a duplicate, or begins too late for this target."""

    exit_code = 81


class RangeExpired(StreamError):
    """Retention deleted records before they were read."""

    exit_code = 82


class Incomplete(StreamError):
    """A commit's ranges do not hold exactly its rows."""

    verdict = Verdict.RETRY
    exit_code = 83


class TopicReplaced(StreamError):
    """A topic was deleted or recreated, or the cluster is another one."""

    exit_code = 84


class SettingRefused(StreamError):
    """Spark's client has no such security setting, or a login is in plain text."""

    exit_code = 85
