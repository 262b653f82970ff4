"""What the rules look at."""

from __future__ import annotations

from dataclasses import dataclass

from producer.drivers.gauss_readings import Readings
from producer.gauss_options import Effective, Product
from producer.options import Options


@dataclass(frozen=True, slots=True)
class Case:
    """A source as it is, and what is asked of it."""

    readings: Readings
    options: Options
    decided: Effective

    @property
    def has_slot(self) -> bool:
        """Is our slot there?"""
        return self.readings.slot(self.options.slot) is not None

    @property
    def is_gaussdb(self) -> bool:
        """Does the manual hold, not openGauss' source?"""
        return self.decided.product == Product.GAUSSDB
