"""The loads of an epoch, as the source's own transactions change them: gaps, renames, drops.

What is noted here stands in a STATE of the same Kafka transaction as the gap or the rename
itself: no crash separates a table that is not exact from the note that it is to be read again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from producer.core.events import Fate
from producer.core.key_ranges import voided
from schemas.control import ANY, GAP, LEFT, PENDING, LoadPhase

# A table in one of these is read from its beginning in any case, but for a CHUNK: a load that has
# commits between goes on behind it.  So it becomes a BEGIN.
_OPEN: Final = frozenset({PENDING, LEFT, LoadPhase.BEGIN, LoadPhase.CHUNK})


def followed(
    loads: Mapping[str, str],
    fates: Iterable[Fate],
    lacking: Collection[str] = (),
    *,
    notes_loads: bool = True,
) -> dict[str, str]:
    """Return the phases after a transaction.

    `notes_loads`: the epoch did not begin without a load, which notes none.

    `lacking`: tables of its gaps, also of those that no reading mends; `*`: all.  A load of theirs
    does not go on where it was: its END would say that nothing is missing.
    """
    out = {
        table: LoadPhase.BEGIN.value
        if phase == LoadPhase.CHUNK and ({table, ANY} & {*lacking})
        else phase
        for table, phase in loads.items()
    }
    if not notes_loads:
        return out
    for table, now, is_of_rows in fates:
        if is_of_rows and now is not None:  # what is not known of them is not known of it
            if out.get(table) in {GAP, *_OPEN}:
                there = out.get(now, GAP)
                there = LoadPhase.BEGIN if there == LoadPhase.CHUNK else there
                out[now] = there if there in _OPEN else GAP
            continue
        if now == table and out.get(table) not in _OPEN:
            out[table] = GAP
        was = out.pop(table, None)
        was = LoadPhase.BEGIN if was == LoadPhase.CHUNK else was
        if now is not None:
            out.pop(now, None)  # of an older table that had this name
            if was is not None:
                # [tables] name it again: what came meanwhile is nowhere.
                out[now] = PENDING if was == LEFT and now != table else was
            # Targets mark by names: the gap may be of another table, which has one of the two.
            if {table, now} & {*lacking} and out.get(now) not in _OPEN:
                out[now] = GAP
    return out


def followed_for_one(
    targeted: Mapping[str, str], fates: Iterable[Fate], lacking: Collection[str] = ()
) -> dict[str, str]:
    """Return the loads for one target after a transaction: those that it met begin again."""
    out = {
        table: voided(text) if {table, ANY} & {*lacking} else text
        for table, text in targeted.items()
    }
    for table, now, is_of_rows in fates:
        if is_of_rows and now is not None:
            if table in out:
                out.setdefault(now, voided(out[table]))
            continue
        text = out.pop(table, None)
        if now is not None:
            out.pop(now, None)  # of an older table that had this name
            if text is not None:
                out[now] = voided(text)
    return out
