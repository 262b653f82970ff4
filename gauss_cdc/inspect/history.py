"""Whether the source still is the one whose commits are in cuts: what `wait` asks last.

A source that was restored, or another server at its address, ends before the position that a
target holds: it has no commit that the target lacks, and the target has some that it lacks.
"""

from __future__ import annotations

from collections.abc import Callable

from producer.errors import SourceSwitched
from producer.options import Options
from producer.sources.base import ServerNow
from producer.sources.kinds import SOURCES
from schemas.control import Identity
from schemas.positions import Lsn, lsn_text


def doubt(
    options: Options,
    was: Identity,
    now: ServerNow,
    resume: Lsn,
    has_left: Callable[[int, int], bool],
) -> str:
    """Say for what to wait until the source is that of the cuts, which reach to `resume`.

    "": it is.  Raises SourceSwitched where it is another one, or lacks what was delivered.
    `has_left` is asked where the timeline is another one.
    """
    if (was.system_id, was.timeline) != (now.system_id, now.timeline):
        if was.system_id == now.system_id and has_left(was.timeline, now.timeline):
            return f"the source was promoted, and `run` has not followed it to {now.timeline}"
        raise SourceSwitched(
            "the source is another server than the one whose commits the target holds, or was"
            " restored",
            was=f"{was.system_id}/{was.timeline}",
            now=f"{now.system_id}/{now.timeline}",
            hint=_hint(options),
        )
    if SOURCES[options.kind].ordered_by(options) == "csn" or now.end >= resume:
        return ""
    if now.is_standby:
        return "the standby has not replayed what the target holds"
    raise SourceSwitched(
        "the source's log ends before what the target holds: it was restored",
        log_end=lsn_text(now.end),
        delivered=lsn_text(resume),
        hint=_hint(options),
    )


def _hint(options: Options) -> str:
    return f"is it the right one? {SOURCES[options.kind].way_out}"
