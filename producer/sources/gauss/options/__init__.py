"""Decoding options of GaussDB and openGauss: one table, its rules, and what is sent."""

from producer.sources.gauss.options.effective import effective, mode_of, problems
from producer.sources.gauss.options.model import Advice, Effective, Interface, Role, Terms
from producer.sources.gauss.options.removing import removing, removing_text, why_not_full
from producer.sources.gauss.options.server import ServerFacts, check_server_rules, judge
from producer.sources.gauss.options.table import (
    BY_NAME,
    DEFAULT_PLUGIN,
    OPTIONS,
    PLUGINS,
    Decoding,
    Option,
    Treatment,
    Use,
    Vendor,
)

__all__ = [
    "BY_NAME",
    "DEFAULT_PLUGIN",
    "OPTIONS",
    "PLUGINS",
    "Advice",
    "Decoding",
    "Effective",
    "Interface",
    "Option",
    "Role",
    "ServerFacts",
    "Terms",
    "Treatment",
    "Use",
    "Vendor",
    "check_server_rules",
    "effective",
    "judge",
    "mode_of",
    "problems",
    "removing",
    "removing_text",
    "why_not_full",
]
