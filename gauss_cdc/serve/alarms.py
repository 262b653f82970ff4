"""Every alarm once, the most urgent first: what a person sees, and which errors mean it.

`doctor` reports these names, the rules of Prometheus raise them, and docs/operations.md has a
paragraph under each one's symptom.  The conditions stand with the metrics (`table`).
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from schemas.findings import Level

PAGE: Final = "docs/operations.md"


class Alarm(NamedTuple):
    """One alarm; where no metric raises it, only `doctor` knows it."""

    name: str
    level: Level
    symptom: str  # the heading of its paragraph
    errors: tuple[str, ...] = ()  # classes of errors by which `doctor` recognizes it

    @property
    def paragraph(self) -> str:
        """Where it is explained, in the repository."""
        anchor = re.sub(r"[^\w\- ]", "", self.symptom.lower()).replace(" ", "-")
        return f"{PAGE}#{anchor}"


_ALL: Final = (
    Alarm(
        *("CdcSlotLost", Level.ERROR, "The source gave our slot up"),
        errors=("SlotAhead", "SlotInvalid", "SlotMissing", "SlotOrphaned"),
    ),
    Alarm("CdcSlotEndsSoon", Level.ERROR, "The source will give our slot up"),
    Alarm(
        *("CdcRetentionNear", Level.ERROR, "Kafka deletes what the target lacks"),
        errors=("CutsGap", "Incomplete", "RangeExpired"),
    ),
    Alarm(
        *("CdcSourceDiffers", Level.ERROR, "The source is not the one that was delivered"),
        errors=("HistoryDiffers", "SourceSwitched"),
    ),
    Alarm(
        *("CdcPlaceDown", Level.ERROR, "A place does not answer"),
        errors=(
            *("BrokerDown", "ConnectionLost", "KafkaDown", "RegistryDown", "RoleDiffers"),
            *("TargetDown", "TargetFailed"),
        ),
    ),
    Alarm("CdcProgramGone", Level.ERROR, "A program is not there"),
    Alarm(
        *("CdcRightsMissing", Level.ERROR, "A login or a right is missing"),
        errors=(
            *("KafkaNotPermitted", "LoginRefused", "NotPermitted", "TargetLogin"),
            *("TargetNotPermitted", "WrongPort"),
        ),
    ),
    Alarm(
        *("CdcForeignCuts", Level.ERROR, "Somebody else writes to our topics"),
        errors=("CutsBroken", "TopicHeld"),
    ),
    Alarm("CdcLoopStuck", Level.ERROR, "A loop does not turn"),
    Alarm("CdcStartBarred", Level.ERROR, "The next start would end with an error"),
    Alarm("CdcNotReady", Level.WARNING, "A program is not ready"),
    Alarm("CdcCaptureBehind", Level.WARNING, "Kafka is behind the source"),
    Alarm("CdcTargetBehind", Level.WARNING, "The target is behind Kafka"),
    Alarm(
        *("CdcTableRefused", Level.WARNING, "A table is refused"),
        errors=(
            *("MissingColumn", "MissingTable", "NotExpressible", "RowTooLarge", "SchemaRefused"),
            *("TargetNotEmpty", "TargetRefused"),
        ),
    ),
    Alarm("CdcTableInexact", Level.WARNING, "A table is not exact"),
    Alarm("CdcRowsOfOthers", Level.WARNING, "Rows that others change at the target"),
    Alarm("CdcClocksDiffer", Level.WARNING, "Clocks differ"),
    Alarm("CdcRetrying", Level.NOTE, "Temporary errors"),
    Alarm("CdcDoubtful", Level.NOTE, "What check warns of"),
)
ALARMS: Final = {one.name: one for one in _ALL}
BY_ERROR: Final = {error: one for one in _ALL for error in one.errors}
