"""The input of the rules."""

from __future__ import annotations

from dataclasses import dataclass

from producer.options import Options
from producer.sources.gauss.options import Effective, Vendor
from producer.sources.gauss.readings import Readings


@dataclass(frozen=True, slots=True)
class Case:
    """The state of a source, and the configuration."""

    readings: Readings
    options: Options
    decided: Effective

    @property
    def has_slot(self) -> bool:
        """Is our slot there?"""
        return self.readings.slot(self.options.slot) is not None

    @property
    def is_gaussdb(self) -> bool:
        """Does GaussDB's manual apply, not openGauss' source?"""
        return self.decided.product == Vendor.GAUSSDB
