"""What a catalog says of one table beside its shape, and what that tells of the look before.

See `core/catalog/look` for the idea, and what each part is there for.  Ids of transactions are as
rows of a catalog have them, with 32 bits; a horizon has more, and each id below it is of a
transaction that had ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from producer.core.catalog.look import CatalogVersion, Cause, Doubt, Rewritten

_FIRST_XID: Final = 3  # lower ones are of no transaction: rows that are older than any
_HALF: Final = 1 << 31


@dataclass(frozen=True, slots=True)
class Leaf:
    """A relation that has rows: an ordinary table, or a partition below a root."""

    file: int  # pg_class.relfilenode
    joined: tuple[int, ...] = ()  # ids of the transactions that put it below its root
    is_born: bool = True  # made as a partition, so empty then; False: attached


@dataclass(frozen=True, slots=True)
class UsedType:
    """An enum or a composite type in a table's columns, at any depth."""

    # Of a label its oid, and the id that wrote it; of an attribute its number, and 1 if it was
    # dropped, else 0.  By number.
    parts: tuple[tuple[int, int], ...]
    altered: tuple[int, ...] = ()  # ids of what wrote a part after the type was made


@dataclass(slots=True)
class Facts:
    """The rows of the catalog about one table that the publication has."""

    table: int  # oid
    is_root: bool  # of partitions
    entries: str = ""  # `oid:xid` of each entry of the publication; "": it has all tables
    name: str = ""  # where it is published with its schema alone: xid that named it last
    is_renamed: bool = False  # not by the statement that made it, or it has another owner since
    types: dict[int, UsedType] = field(default_factory=dict)  # by oid
    leaves: dict[int, Leaf] = field(default_factory=dict)  # by oid; an ordinary table: itself
    generated: frozenset[int] = frozenset()  # numbers of columns whose values are not sent
    ordinary: frozenset[int] = frozenset()  # and of the others
    # Of these: older rows have NULL, or what nobody keeps any more.
    without_missing: frozenset[int] = frozenset()
    # Oids: of the primary key, which REINDEX CONCURRENTLY keeps, and of another identity; 0: none.
    key: tuple[int, int] | None = None
    has_late_key: bool = False  # made after the table, perhaps
    gone: frozenset[int] = frozenset()  # numbers of columns that were dropped

    @property
    def files(self) -> Mapping[int, int]:
        """The storage file of each leaf."""
        return {oid: leaf.file for oid, leaf in self.leaves.items()}

    def version(self, horizon: int, was: CatalogVersion | None = None) -> CatalogVersion:
        """Return what the next look is compared with; `was` is kept where nothing came since."""
        parts = "" if was is None else was.parts
        if not parts or self._parts(self.leaves, *_since(parts)) != parts:
            young = self.leaves.keys() - self._older(horizon).keys()
            parts = self._parts(self.leaves, horizon, young)
        return CatalogVersion(
            self.entries,
            self.name,
            ",".join(
                f"{oid}:{len(used.parts)}:{_digest(used.parts)}"
                for oid, used in sorted(self.types.items())
            ),
            parts,
            self._files(self.leaves),
            ",".join(map(str, sorted(self.generated))),
            "" if self.key is None else f"{self.key[0]}:{self.key[1]}",
            str(max(self.ordinary | self.generated | self.gone, default="")),
        )

    def doubts(
        self, was: CatalogVersion | None, files: Mapping[int, int], horizon: int
    ) -> Iterator[Doubt]:
        """Compare with the look before; of a new table (None), with how it was made.

        `files`: those of the look before, as far as they are known.  Which of the suspected ones
        have older rows is still to be found out.
        """
        if was is None:
            # Rows under a name that is not captured, or of no key, came before it was known.
            if (self.name or not self.entries) and self.is_renamed:
                yield Doubt(Cause.NAME)
            if self.has_late_key:
                yield Doubt(Cause.LATE_KEY)
            if self._has_altered_types((), horizon):
                yield Doubt(Cause.LABELS)
        else:
            if was.entries != self.entries and not _shared(was.entries, self.entries):
                yield Doubt(Cause.ENTRIES)
            if was.name and self.name and was.name != self.name:
                yield Doubt(Cause.NAME)
            had = {int(text.partition(":")[0]) for text in _split(was.labels)}
            if self._has_other_parts(was.labels) or self._has_altered_types(had, horizon):
                yield Doubt(Cause.LABELS)
            if {int(number) for number in _split(was.generated)} & self.ordinary:
                yield Doubt(Cause.GENERATED, is_certain=True)
            if was.key and self._has_other_key(was.key):
                yield Doubt(Cause.KEY)
        if self._has_column_again(int(was.last or 0) if was is not None else 0):
            yield Doubt(Cause.AGAIN)
        since, young = (horizon, ()) if was is None or not was.parts else _since(was.parts)
        old = self._older(since, young)
        new = {oid: leaf for oid, leaf in self.leaves.items() if oid not in old}
        if was is not None and was.parts and was.parts != self._parts(old, since, young):
            yield Doubt(Cause.PARTS, is_certain=len(old) < int(was.parts.split(":")[1]))
        elif not all(leaf.is_born for leaf in new.values()):
            yield Doubt(Cause.PARTS)
        is_same = was is not None and was.files == self._files(old)
        # VACUUM FULL writes the value of ADD COLUMN … DEFAULT into the rows, and forgets it.
        if was is not None and was.last and not is_same and self._came_since(int(was.last)):
            yield Doubt(Cause.ADDED)
        suspected = [
            Rewritten(oid, leaf.file)
            for oid, leaf in self.leaves.items()
            if leaf.file != files.get(oid)
            # A new one is compared with the file that it was made with.
            and (leaf.file != oid if was is None or oid in new else not is_same)
        ]
        if suspected:
            yield Doubt(Cause.FILES, rewritten=tuple(suspected))

    def _older(self, horizon: int, young: Collection[int] = ()) -> Mapping[int, Leaf]:
        return {
            oid: leaf
            for oid, leaf in self.leaves.items()
            if oid in young or all(is_older(xid, horizon) for xid in leaf.joined)
        }

    def _parts(self, leaves: Mapping[int, Leaf], horizon: int, young: Collection[int]) -> str:
        """Write leaves so that a later look finds them again: those below a horizon, and `young`.

        A young one joined while another transaction was open, in any database of the server.
        """
        if not self.is_root:
            return ""
        found = sorted((oid, leaf.joined) for oid, leaf in leaves.items())
        named = "".join(f":{oid}" for oid in sorted(young))
        return f"{horizon}:{len(leaves)}:{_digest(found)}{named}"

    def _files(self, leaves: Mapping[int, Leaf]) -> str:
        if self.is_root:
            return _digest(sorted((oid, leaf.file) for oid, leaf in leaves.items()))
        file = leaves[self.table].file if leaves else 0
        return "" if file == self.table else str(file)

    def _has_column_again(self, last: int) -> bool:
        """Say whether columns came since, and one went that was there before another of them.

        If they had one name, the catalog cannot tell whose values were sent.
        """
        came = {number for number in self.gone if number > last}
        return bool(came) and max(self.ordinary | self.generated, default=0) > min(came)

    def _has_altered_types(self, had: Collection[int], horizon: int) -> bool:
        """Say whether a type that no column had at the look before was altered since."""
        came = [used for oid, used in self.types.items() if oid not in had]
        return not all(is_older(xid, horizon) for used in came for xid in used.altered)

    def _came_since(self, last: int) -> bool:
        return any(number > last for number in self.without_missing)

    def _has_other_key(self, was: str) -> bool:
        """Say whether rows may have been told apart by nothing meanwhile.

        Where the catalog is read late, the key that it shows is taken for that of rows before.
        Under an identity of all columns none is: one that came or went is no doubt.
        """
        primary, other = map(int, was.split(":"))
        now = self.key or (primary, other)
        return now[0] != primary or (now[1] != other and 0 not in {now[1], other})

    def _has_other_parts(self, was: str) -> bool:
        """Say whether values of a type may have had another text since: only labels may be added.

        A renamed label is another row.  A composite has an attribute more or less: rows since may
        have been sent before, with a shape that was read when they came, and has what is there now.
        """
        for text in _split(was):
            oid, count, before = text.split(":")
            if (used := self.types.get(int(oid))) is None:
                continue
            there, came = used.parts[: int(count)], used.parts[int(count) :]
            if _digest(there) != before or any(said < _FIRST_XID for _, said in came):
                return True
        return False


def is_older(xid: int, horizon: int) -> bool:
    """Say whether the transaction of an id in a catalog had ended at a horizon.

    >>> is_older(7, 8), is_older(8, 8), is_older(0xFFFFFFF0, (5 << 32) + 10), is_older(2, 0)
    (True, False, True, True)
    >>> is_older(3, 3), is_older(8 + (1 << 31), 8), is_older(7 + (1 << 31), 8)
    (False, True, False)
    """
    return xid < _FIRST_XID or (xid - horizon) & 0xFFFF_FFFF >= _HALF


def _since(parts: str) -> tuple[int, Collection[int]]:
    """Return the horizon of a version's partitions, and those that were younger."""
    horizon, _, _, *young = parts.split(":")
    return int(horizon), {*map(int, young)}


def _shared(was: str, now: str) -> bool:
    """Say whether a table was published all the time, by one entry at least."""
    return bool({*was.split(",")} & {*now.split(",")})


def _split(texts: str) -> Iterator[str]:
    return filter(None, texts.split(","))


def _digest(items: Iterable[object]) -> str:
    """Return a short text that differs where the items do."""
    return blake2b(" ".join(map(str, items)).encode(), digest_size=6).hexdigest()
