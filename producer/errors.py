"""Errors that say what to do next.

Raise the narrowest class: the class decides the verdict, `hint` says what the
operator can do, keyword context says where.  Never cell values or secrets.
"""

from __future__ import annotations

from schemas.errors import Explained, Verdict


class CdcError(Explained):
    """Base of everything the producer raises on purpose."""


class DecodeError(CdcError):
    """The source sent an undecodable message."""

    exit_code = 3


class DdlMalformed(DecodeError):
    """A statement that the source sent as JSON is malformed."""


class SourceError(CdcError):
    """The source refused, or is not as we need it."""

    exit_code = 10


class ConnectionLost(SourceError):
    """The source cannot be reached, or closed the connection."""

    verdict = Verdict.RETRY


class TableChanging(SourceError):
    """DDL met the load of its table, which starts over."""

    verdict = Verdict.RETRY


class SourceBusy(SourceError):
    """Other sessions must end first."""

    verdict = Verdict.RETRY


class LoginRefused(SourceError):
    """Wrong password, unknown user, or an unsupported method."""

    exit_code = 11


class WrongPort(LoginRefused):
    """The port is not the one for replication."""


class RoleDiffers(ConnectionLost):
    """The server is a standby where a primary is asked for, or the reverse."""


class NotPermitted(SourceError):
    """The role lacks a right: REPLICATION, ownership."""

    exit_code = 12


class NotOurs(NotPermitted):
    """Somebody else made an object in our schema, or put code there."""


class SlotMissing(SourceError):
    """The slot is gone, and there are cuts."""

    exit_code = 13


class SlotTaken(SourceError):
    """Another `run` streams from the slot; this one waits."""

    verdict = Verdict.RETRY
    exit_code = 14


class SlotAhead(SourceError):
    """The slot was moved beyond our last cut: rows are gone."""

    exit_code = 15


class SlotInvalid(SourceError):
    """The server invalidated the slot (max_slot_wal_keep_size, conflict)."""

    exit_code = 16


class SlotMismatch(SourceError):
    """The slot belongs to another database or plugin."""

    exit_code = 17


class SourceSwitched(SourceError):
    """Another server, or timeline, than that of the last cut."""

    exit_code = 18


class HistoryDiffers(SourceError):
    """The source was restored or replaced: it sends another history."""

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
    """The slot's database was dropped."""

    exit_code = 23


class CsnOrderBroken(SourceError):
    """CSNs of the slot do not rise."""

    exit_code = 25


class DecodersBusy(SourceError):
    """The server is at its limit of decoders or slots."""

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
    """The principal lacks an ACL."""

    exit_code = 36


class TakenOver(KafkaError):
    """Another producer's START counts for readers: start again."""

    verdict = Verdict.RETRY


class TopicUnfit(KafkaError):
    """A topic has other settings than we need, or a name that collides."""

    exit_code = 32


class TopicReplaced(KafkaError):
    """A topic was deleted or recreated, or the cluster is another one."""

    exit_code = 33


class TopicHeld(KafkaError):
    """Another transactional producer holds the cuts topic open."""

    exit_code = 34


class GroupUnusable(KafkaError):
    """A send failed: start again from the last cut."""

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
    """The registry refuses a new schema as incompatible."""

    exit_code = 41


class ContentChanged(CdcError):
    """A setting that decides which rows exist has changed."""

    exit_code = 50


class DiskFull(CdcError):
    """The spill file of a held transaction cannot be written."""

    exit_code = 51
