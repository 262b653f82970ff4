"""openGauss and GaussDB as kinds of sources."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from producer.core.takeover.comparison import SWITCH_ALL
from producer.options import Options
from producer.sources.base import REPLICATION, SQL, CatalogSession, OrderedBy, Rehearsed, SourceKind
from producer.sources.gauss import rehearsal
from producer.sources.gauss.inspector import GaussSourceInspector
from producer.sources.gauss.options import effective, why_not_full
from producer.sources.gauss.point import open_replication, rereads
from producer.sources.gauss.section import GaussSection
from producer.sources.gauss.source import GaussSource, open_session
from schemas.errors import LOAD_AGAIN


def _logins(options: Options) -> Mapping[str, Callable[[], CatalogSession]]:
    found: dict[str, Callable[[], CatalogSession]] = {SQL: partial(open_session, options)}
    if options.interface == "stream":
        found[REPLICATION] = partial(open_replication, options)
    return found


def _ordered_by(options: Options) -> OrderedBy:
    return effective(options.plugin_options, options.terms).ordered_by


def _rehearsed(options: Options, statement: str, _role: str) -> Rehearsed:
    with open_session(options) as session:
        return rehearsal.at_gauss(options, session, statement)


KIND: Final = SourceKind(
    section=GaussSection,
    open=GaussSource.open,
    inspector=GaussSourceInspector,
    logins=_logins,
    rereads=rereads,
    ordered_by=_ordered_by,
    why_not_full=why_not_full,
    way_out=f"{SWITCH_ALL}; {LOAD_AGAIN}",
    rehearse=_rehearsed,
)
