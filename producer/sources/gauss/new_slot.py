"""A slot in the making, until START is durable: before that, it is dropped again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from producer.core.takeover.takeover import MadeSlot
from producer.errors import CdcError, SlotMismatch, SlotMissing, SlotTaken
from producer.options import Options
from producer.sources.gauss import point as gauss_point
from producer.sources.gauss import slots as gauss_slots
from producer.sources.gauss.connection import GaussConnection
from producer.sources.gauss.options import Effective
from schemas.positions import parse_lsn

_MAKE_WAIT: Final = 0.5  # seconds for a new slot before control returns to the caller


class NewSlot:
    """The slot that a turn makes, if it makes one."""

    def __init__(
        self,
        options: Options,
        decided: Effective,
        asking: GaussConnection,
        *,
        replication: Callable[[], GaussConnection],
        session: Callable[[], GaussConnection],
        note: Callable[[str], None],
    ) -> None:
        """`replication` and `session` open what makes it: with a snapshot, or by SQL."""
        self._options, self._decided, self._asking = options, decided, asking
        self._replication, self._session, self._note = replication, session, note
        self._making: gauss_slots.Making[MadeSlot] | None = None  # waits for open transactions
        self._is_made = False  # and no START is durable yet

    def make(self, database: str, check: Callable[[], None]) -> MadeSlot | None:
        """Drop an old slot of ours, create a new one; None while it is in use.

        `check` raises where that is to be left alone.
        """
        options = self._options
        if self._making is not None:
            return self._made()
        found = gauss_slots.find(self._asking, options.slot)
        if found is not None:
            is_ours = (found.plugin, found.database) == (options.plugin, database)
            if not is_ours and not found.is_orphaned:  # an orphaned slot is useless
                raise SlotMismatch(
                    "a slot of this name belongs to another client",
                    slot=options.slot,
                    plugin=found.plugin,
                    database=found.database,
                    hint="choose another name in [source] slot",
                )
            if found.is_active:
                return None
        check()
        if found is not None:
            try:
                gauss_slots.drop(self._asking, options.slot)
            except SlotTaken:
                return None
            except SlotMissing:
                pass
        self._making = self._begin()
        return self._made()

    def _begin(self) -> gauss_slots.Making[MadeSlot]:
        """Create the slot in a session of its own, which waits for open transactions."""
        options, name, order = self._options, self._options.slot, self._decided.ordered_by
        exports = gauss_point.exports_snapshot(options)
        maker = self._replication() if exports else self._session()

        def make() -> MadeSlot:
            if not exports:
                point = gauss_slots.create_by_sql(maker, name, options.plugin, ordered_by=order)
                return MadeSlot(parse_lsn(point), "")
            made = maker.create_slot(name, options.plugin)
            return MadeSlot(made.consistent_point, made.snapshot or "")

        def note_blockers(found: list[gauss_slots.OpenTransaction]) -> None:
            for blocker in found:
                self._note(f"the new slot waits for {blocker}")

        return gauss_slots.Making(
            make,
            slot=name,
            maker=maker.query("SELECT pg_backend_pid()")[0][0] or "",
            asker=self._asking,
            on_blocked=note_blockers,
        )

    def _made(self) -> MadeSlot | None:
        """Return the slot that is being created; None while it waits."""
        assert self._making is not None
        made = self._making.result(_MAKE_WAIT)
        if made is not None:
            self._making, self._is_made = None, True
        return made

    def discard(self, note: Callable[[str], None]) -> None:
        """Drop the slot that is not used: it would keep log."""
        if not self._is_made:
            return
        slot = self._options.slot
        try:
            gauss_slots.drop(self._asking, slot)
            note(f"slot {slot} dropped again: it was not used")
        except CdcError as error:
            note(
                f"slot {slot} was created, remains, and keeps log ({error.what}); to drop it: "
                "gauss-cdc slot drop --yes"
            )

    def give_up(self) -> None:
        """Drop a slot that is still being created."""
        if self._making is not None:
            with suppress(CdcError):  # the first error counts
                self._making.give_up()
