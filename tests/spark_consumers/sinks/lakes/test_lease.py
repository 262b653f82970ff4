"""Leases that stand in a file: by the looker's clock, and by the fence."""

from dataclasses import dataclass, field

import pytest

from spark_consumers.errors import TargetDown
from spark_consumers.sinks.lakes.lease import OBJECTION, SILENCE, FileLease
from spark_consumers.sinks.lease import RENEW


@dataclass
class Lake:
    """A file that several appliers write, the fence, and one clock."""

    text: str | None = "\n"
    fence: int | None = 0
    now: float = 100.0
    is_down: bool = False
    notes: list[str] = field(default_factory=list)

    def read(self) -> str | None:
        return self.text

    def write(self, text: str) -> None:
        if self.is_down:
            raise TargetDown("no")
        if self.text is not None:
            self.text = text

    def lease(self) -> FileLease:
        return FileLease(
            self, "bank", lambda: self.fence, on_wait=self.notes.append, clock=lambda: self.now
        )

    def claimed(self, lease: FileLease) -> bool:
        """It claims the lease, and has it if nobody objects; then it takes the fence."""
        assert not lease.take()
        self.now += OBJECTION
        if not lease.take():
            return False
        self.fence = lease.fence = (self.fence or 0) + 1
        return True

    def held(self) -> FileLease:
        lease = self.lease()
        assert self.claimed(lease)
        return lease


def test_a_claim_counts_once_nobody_has_objected() -> None:
    lake = Lake()
    first, second = lake.lease(), lake.lease()

    assert not first.take()
    lake.now += OBJECTION - 1
    assert not first.take()
    lake.write(f"{second.name}\n1")  # it looked when the first one did
    lake.now += 1

    assert not first.take()


def test_a_claim_of_somebody_else_that_came_with_the_fence_is_left_alone() -> None:
    lake = Lake()
    first = lake.lease()
    assert not first.take()
    lake.now += OBJECTION
    looked = lake.read

    def read() -> str | None:  # stopped between two lines: another one came and went on
        text, lake.text, lake.fence = looked(), "another\n1", 7
        return text

    lake.read = read  # type: ignore[method-assign]
    assert not first.take()


def test_who_finds_it_renewed_waits_for_ever() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()

    for _ in range(9):
        assert not second.take()
        lake.now += SILENCE - 1
        assert first.renew() == first.name

    said = f"another applier of bank holds the lake, {first.name}; waiting for it to end, or to be"
    assert lake.notes == [f"{said} silent for {SILENCE:g} s"] * 2


def test_one_that_is_silent_is_replaced_and_told_so() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()
    assert not second.take()
    lake.now += SILENCE

    assert lake.claimed(second)
    assert second.renew() == second.name
    assert first.renew() == second.name
    assert f"{first.name} is silent; this applier takes over" in lake.notes


def test_one_that_was_stopped_between_two_lines_does_not_take_it_from_the_new_one() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()
    second.take()
    lake.now += SILENCE
    assert lake.claimed(second)

    lake.write(f"{first.name}\n7")  # what it was about to write

    assert second.renew() == second.name
    assert first.renew() == second.name


def test_a_holder_that_was_silent_and_is_there_again_objects() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()
    second.take()
    lake.now += SILENCE
    assert not second.take()  # its claim
    lake.now += RENEW

    assert first.renew() == first.name
    lake.now += OBJECTION
    assert not second.take()


def test_who_has_begun_nothing_claims_anew() -> None:
    """Its own text says nothing once another one had the fence."""
    lake = Lake()
    first = lake.held()

    assert not first.take()
    lake.now += OBJECTION
    assert first.take()


def test_a_text_that_is_being_written_is_not_taken_for_nobodys() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()
    lake.write("")  # as a folder shows it meanwhile

    assert not second.take()
    assert lake.text == ""
    lake.write(f"{first.name}\n9")
    assert not second.take()
    assert first.renew() == first.name


def test_one_that_was_stopped_while_it_wrote_is_replaced() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()
    lake.write("")
    assert not second.take()
    lake.now += SILENCE

    assert lake.claimed(second)
    assert first.renew() == second.name


def test_one_that_looks_seldom_takes_nobody_for_silent_that_moved() -> None:
    lake = Lake()
    first, second = lake.held(), lake.lease()
    second.take()
    lake.now += 10 * SILENCE
    first.renew()

    assert not second.take()
    assert not second.take()
    assert first.renew() == first.name


def test_one_that_ends_is_not_waited_for() -> None:
    lake = Lake()
    first, second, third = lake.held(), lake.lease(), lake.lease()
    third.close()  # it never had it
    first.close()

    assert lake.claimed(second)
    first.close()
    assert second.renew() == second.name


def test_where_there_is_no_table_yet_nobody_is_waited_for() -> None:
    lake = Lake(text=None, fence=None)
    first = lake.lease()

    assert first.take()
    assert first.renew() == first.name


def test_a_lake_that_takes_no_file_is_followed_without_a_lease() -> None:
    lake = Lake(is_down=True)
    first = lake.lease()

    assert first.take()
    assert lake.notes[0].startswith("WARNING: a second applier would not wait for this one")
    with pytest.raises(TargetDown):
        first.renew()
