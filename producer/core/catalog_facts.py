"""What a catalog says of one table beside its shape, and what that tells of the look before.

See `core/look` for the idea, and what each part is there for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b

from producer.core.look import Cause, Doubt, Rewritten, TableVersion


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that has rows: an ordinary table, or a partition below a root."""

    file: int  # pg_class.relfilenode
    is_new: bool = False  # it joined its root behind the look before
    is_young: bool = False  # or by a transaction that may have ended behind this one's horizon
    is_born: bool = True  # made as a partition, so empty then; False: attached
    joined: str = ""  # ids of the transactions that put it below its root


@dataclass(slots=True)
class Facts:
    """The rows of the catalog about one table that the publication has."""

    table: int  # oid
    is_root: bool  # of partitions
    entries: str = ""  # `oid:xid` of each entry of the publication; "": it has all tables
    name: str = ""  # where it is published with its schema alone: xid that named it last
    is_renamed: bool = False  # and made it not
    labels: dict[int, tuple[str, ...]] = field(default_factory=dict)  # enum -> `oid:xid`, by oid
    is_relabelled: bool = False  # behind the look before, and not when the enum was made
    leaves: dict[int, Leaf] = field(default_factory=dict)  # by oid; an ordinary table: itself

    @property
    def files(self) -> Mapping[int, int]:
        """The storage file of each leaf."""
        return {oid: leaf.file for oid, leaf in self.leaves.items()}

    def version(self) -> TableVersion:
        """Return what the next look is compared with."""
        leaves = {oid: leaf for oid, leaf in self.leaves.items() if not leaf.is_young}
        return TableVersion(
            self.entries,
            self.name,
            ",".join(f"{t}:{len(rows)}:{_digest(rows)}" for t, rows in sorted(self.labels.items())),
            self._parts(leaves),
            self._files(leaves),
        )

    def doubts(self, was: TableVersion | None, files: Mapping[int, int]) -> Iterator[Doubt]:
        """Compare with the look before; of a new table (None), with how it was made.

        `files`: those of the look before, as far as they are known.  Which of the suspected ones
        have older rows is still to be found out.
        """
        if was is None:
            if self.name and self.is_renamed:
                yield Doubt(Cause.NAME)
            if self.is_relabelled:
                yield Doubt(Cause.LABELS)
        else:
            if was.entries != self.entries and not _shared(was.entries, self.entries):
                yield Doubt(Cause.ENTRIES)
            if was.name and self.name and was.name != self.name:
                yield Doubt(Cause.NAME)
            if self._has_renamed(was.labels):
                yield Doubt(Cause.LABELS)
        old = {oid: leaf for oid, leaf in self.leaves.items() if not leaf.is_new}
        if was is not None and was.parts and was.parts != self._parts(old):
            yield Doubt(Cause.PARTS, is_certain=len(old) < int(was.parts.partition(":")[0]))
        elif self.is_root and any(x.is_new and not x.is_born for x in self.leaves.values()):
            yield Doubt(Cause.PARTS)
        is_same = was is not None and was.files == self._files(old)
        suspected = [
            Rewritten(oid, leaf.file)
            for oid, leaf in self.leaves.items()
            if leaf.file != files.get(oid)
            # A new one is compared with the file that it was made with.
            and (leaf.file != oid if was is None or leaf.is_new else not is_same)
        ]
        if suspected:
            yield Doubt(Cause.FILES, rewritten=tuple(suspected))

    def _parts(self, leaves: Mapping[int, Leaf]) -> str:
        if not self.is_root:
            return ""
        return f"{len(leaves)}:{_digest(sorted((oid, x.joined) for oid, x in leaves.items()))}"

    def _files(self, leaves: Mapping[int, Leaf]) -> str:
        if self.is_root:
            return _digest(sorted((oid, leaf.file) for oid, leaf in leaves.items()))
        file = leaves[self.table].file if leaves else 0
        return "" if file == self.table else str(file)

    def _has_renamed(self, was: str) -> bool:
        """Say whether a label that was there is another row now; an added one has a greater oid."""
        for text in filter(None, was.split(",")):
            enum, count, before = text.split(":")
            rows = self.labels.get(int(enum))
            if rows is not None and _digest(rows[: int(count)]) != before:
                return True
        return False


def _shared(was: str, now: str) -> bool:
    """Say whether a table was published all the time, by one entry at least."""
    return bool({*was.split(",")} & {*now.split(",")})


def _digest(items: Iterable[object]) -> str:
    """Return a short text that differs where the items do."""
    return blake2b(" ".join(map(str, items)).encode(), digest_size=6).hexdigest()
