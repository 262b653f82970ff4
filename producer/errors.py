"""Errors that say what to do next.

Raise the narrowest class: the class decides the verdict, `hint` says what the
operator can do, keyword context says where.  Never cell values or secrets.
"""

from __future__ import annotations

from schemas.errors import Explained, Verdict


class CdcError(Explained):
    """Base of everything the producer raises on purpose."""


class DecodeError(CdcError):
    """An undecodable message of the source; the stream stops before it."""

    exit_code = 3


class DdlMalformed(DecodeError):
    """A deparsed DDL document that does not follow its format language (the server's 22023)."""


class SourceError(CdcError):
    """The source database refused, or is not as we need it."""

    exit_code = 10


class ConnectionLost(SourceError):
    """The source cannot be reached, or closed the connection."""

    verdict = Verdict.RETRY


class TableChanging(SourceError):
    """DDL met the first load of its table: the load starts over."""

    verdict = Verdict.RETRY


class SourceBusy(SourceError):
    """Other sessions must end first; what needs that is tried again."""

    verdict = Verdict.RETRY


class LoginRefused(SourceError):
    """Wrong password, unknown user, or an unsupported method."""

    exit_code = 11


class WrongPort(LoginRefused):
    """The port serves ordinary sessions only; replication has a separate port."""


class RoleDiffers(ConnectionLost):
    """The server is a standby where a primary is asked for, or the other way round."""


class NotPermitted(SourceError):
    """Logged in, but without a right we need (REPLICATION, ownership)."""

    exit_code = 12


class NotOurs(NotPermitted):
    """An object in our schema that somebody else made or put code into."""


class SlotMissing(SourceError):
    """Cuts exist, but the replication slot does not."""

    exit_code = 13


class SlotTaken(SourceError):
    """Another connection streams from the slot; this producer waits as its standby."""

    verdict = Verdict.RETRY
    exit_code = 14


class SlotAhead(SourceError):
    """The slot was confirmed beyond our last cut: rows are gone."""

    exit_code = 15


class SlotInvalid(SourceError):
    """The server invalidated the slot (max_slot_wal_keep_size, conflict)."""

    exit_code = 16


class SlotMismatch(SourceError):
    """The slot belongs to another database or plugin."""

    exit_code = 17


class SourceSwitched(SourceError):
    """Other system identifier or timeline than the last cut's."""

    exit_code = 18


class HistoryDiffers(SourceError):
    """What the source sends again is not what was delivered: it was restored, or replaced."""

    exit_code = 19


class Unsupported(SourceError):
    """A shape or type that would be lost or changed on the way."""

    exit_code = 20


class RowTooLarge(SourceError):
    """A row is larger than `kafka.max-row-bytes`."""

    exit_code = 21


class OptionRefused(SourceError):
    """A decoding option is unknown, out of range, or against a rule."""

    exit_code = 22


class SlotOrphaned(SourceError):
    """The slot's database was dropped: the slot is unusable."""

    exit_code = 23


class CsnOrderBroken(SourceError):
    """A slot in the order of CSNs sent a CSN that is not above the one before it."""

    exit_code = 25


class DecodersBusy(SourceError):
    """The server is at its limit of active decoders or of slots."""

    exit_code = 24


class KafkaError(CdcError):
    """The broker refused, or the topics are not as we need them."""

    exit_code = 30


class BrokerDown(KafkaError):
    """No broker answers."""

    verdict = Verdict.RETRY


class Fenced(KafkaError):
    """Another producer of this prefix took over."""

    exit_code = 31


class KafkaNotPermitted(KafkaError):
    """The principal lacks an ACL that we need."""

    exit_code = 36


class TakenOver(KafkaError):
    """Another producer's START counts for readers, and our later records do not: start again."""

    verdict = Verdict.RETRY


class TopicUnfit(KafkaError):
    """A topic exists without the settings we need, or Kafka takes its name for another one's."""

    exit_code = 32


class TopicReplaced(KafkaError):
    """A topic was deleted or recreated, or the cluster is another one."""

    exit_code = 33


class TopicHeld(KafkaError):
    """Another transactional producer holds the cuts topic open."""

    exit_code = 34


class GroupUnusable(KafkaError):
    """An acknowledgement without an offset, or a failed send: start again from the last cut."""

    verdict = Verdict.RETRY


class CutsBroken(KafkaError):
    """The cuts topic has a gap, a duplicate, or no beginning."""

    exit_code = 35


class RegistryError(CdcError):
    """The schema registry refused."""

    exit_code = 40


class RegistryDown(RegistryError):
    """The schema registry does not answer."""

    verdict = Verdict.RETRY


class SchemaRefused(RegistryError):
    """The registry refuses the new schema as incompatible."""

    exit_code = 41


class ContentChanged(CdcError):
    """What decides which rows exist differs from the last run (the fingerprint)."""

    exit_code = 50


class DiskFull(CdcError):
    """The spill file of a held transaction cannot be written."""

    exit_code = 51
