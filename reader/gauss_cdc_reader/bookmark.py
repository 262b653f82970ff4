"""Where a reader stands: behind a commit, a step of a load, or a change of one."""

from __future__ import annotations

import re
from typing import Final, NamedTuple, Self

from spark_consumers.cuts.versions import Version
from spark_consumers.kafka.history import Standing

_TEXT: Final = re.compile(
    r"(\d+)/(\d+)@(\d+)\.(\d+)\.([^.+]*)(?:\+(\d+) of (\d+)/(\d+)@(\d+))?", re.ASCII
)


class Bookmark(NamedTuple):
    """A place to go on from; store its text together with your effects."""

    epoch: int
    seq: int  # of the last whole commit
    cut: int  # offset in `<prefix>.cuts` of the first record that is not wholly behind it
    state: int  # offset of a START or STATE at or before it
    instance: str  # of its writer: another topic has another one there
    # Of `Reader.changes`: how many changes were seen of those between this place and another one.
    taken: int = 0
    until: tuple[int, int, int] = (0, 0, 0)  # epoch, seq and cut of that

    @property
    def standing(self) -> Standing:
        """The place as the history of cuts knows it."""
        return Standing(Version(self.epoch, self.seq), self.cut, self.state, self.instance)

    @property
    def end(self) -> Standing:
        """The other place, where `taken` is not 0."""
        return Standing(Version(*self.until[:2]), self.until[2])

    @classmethod
    def of(cls, place: Standing) -> Self:
        """Undo `standing`."""
        return cls(*place.version, place.cut, place.state, place.instance)

    def within(self, taken: int, end: Standing) -> Self:
        """Return the place behind so many of the changes up to another place."""
        return self._replace(taken=taken, until=(*end.version, end.cut))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the text form; raise ValueError for anything else.

        >>> str(Bookmark.parse("1/5001@812.840.3f2a+7 of 1/5010@851"))
        '1/5001@812.840.3f2a+7 of 1/5010@851'
        """
        if (match := _TEXT.fullmatch(text)) is None:
            raise ValueError(f"not a position of a reader: {text!r}")
        epoch, seq, state, cut, instance, *rest = match.groups()
        taken, *until = (int(number or 0) for number in rest)
        return cls(
            int(epoch), int(seq), int(cut), int(state), instance, taken,
            (until[0], until[1], until[2]),
        )  # fmt: skip

    def __str__(self) -> str:
        place = f"{self.epoch}/{self.seq}@{self.state}.{self.cut}.{self.instance}"
        epoch, seq, cut = self.until
        return f"{place}+{self.taken} of {epoch}/{seq}@{cut}" if self.taken else place
