"""Names in Kafka: table <-> topic <-> subject, and the control topics.

Kafka allows `[a-zA-Z0-9._-]` and 249 characters.  A character outside
`[a-zA-Z0-9_-]` in a schema or table name becomes `_uXXXX` (UTF-16 code units,
as Debezium's `avro_unicode` does for fields), and so does an underscore that
would read as the start of such an escape: names survive the way back.

Kafka refuses a topic whose name differs from another's by `.` and `_` only (`app.a_b`, `app_a.b`):
its metrics take them for one.  A table whose topic it refuses has another one, whose name ends
in its hash; whoever looks for a table's topic takes that one where it is there (`Topics.of`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemas.tables import TableId

MAX_TOPIC = 249
_ESCAPE = re.compile(r"_u([0-9a-f]{4})")
_HASHED = re.compile(r"-[0-9a-f]{16}\Z")  # the end of a name that was shortened, or set apart
_APART = " apart"  # is hashed with a name: it has two hashes
_PREFIX = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_-]{0,63}")


def escape(name: str) -> str:
    """Spell `name` with the letters that Kafka and Avro allow, reversibly.

    >>> escape("ledger"), escape("a.b"), escape("_u0041")
    ('ledger', 'a_u002eb', '_u005fu0041')
    """
    out = []
    for at, char in enumerate(name):
        plain = char.isascii() and (char.isalnum() or char in "_-")
        if plain and not (char == "_" and _ESCAPE.match(name, at)):
            out.append(char)
            continue
        units = char.encode("utf-16-be")
        out += [f"_u{units[i] << 8 | units[i + 1]:04x}" for i in range(0, len(units), 2)]
    return "".join(out)


def unescape(text: str) -> str:
    """Undo `escape`.

    >>> unescape("a_u002eb")
    'a.b'
    """
    units = bytearray()
    at = 0
    while at < len(text):
        if match := _ESCAPE.match(text, at):
            units += bytes.fromhex(match[1])
            at = match.end()
        else:
            units += text[at].encode("utf-16-be")
            at += 1
    return units.decode("utf-16-be")


def unified(topic: str) -> str:
    """Return what Kafka takes a topic's name for.

    >>> unified("bank.app.a_b") == unified("bank.app_a.b")
    True
    """
    return topic.replace(".", "_")


def _hashed(name: str, salt: str = "") -> str:
    digest = hashlib.sha256((name + salt).encode()).hexdigest()[:16]
    return f"{name[: MAX_TOPIC - 17]}-{digest}"


def _looks_hashed(name: str) -> bool:
    return name in (_hashed(name[:-17]), _hashed(name[:-17], _APART))


def below(prefix: str) -> str:
    """What the names of all topics and subjects of a source begin with.

    >>> below("bank")
    'bank.'
    """
    return f"{prefix}."


@dataclass(frozen=True, slots=True)
class Topics:
    """All topic names of one source; the prefix is the source's name."""

    prefix: str

    def __post_init__(self) -> None:
        if _PREFIX.fullmatch(self.prefix) is None:
            raise ValueError(
                f"kafka.prefix {self.prefix!r}: use letters, digits, _ and -, at most 64"
            )

    @property
    def cuts(self) -> str:
        """The one topic that says what is durable."""
        return f"{self.prefix}.cuts"

    @property
    def ddl(self) -> str:
        """`SchemaChange`s in commit order."""
        return f"{self.prefix}.ddl"

    @property
    def transaction(self) -> str:
        """Debezium's BEGIN and END records, opt-in."""
        return f"{self.prefix}.transaction"

    @property
    def message(self) -> str:
        """Logical messages of the source as Debezium's `m` records, opt-in."""
        return f"{self.prefix}.message"

    @property
    def quarantine(self) -> str:
        """What could not be decoded, with its bytes and position."""
        return f"{self.prefix}.quarantine"

    @property
    def control(self) -> frozenset[str]:
        """All that are no table's."""
        return frozenset({self.cuts, self.ddl, self.transaction, self.message, self.quarantine})

    def table(self, table: TableId) -> str:
        """Topic of a table; a name above Kafka's limit is cut and ends in its hash."""
        name = self._whole(table)
        # A name that only looks shortened is shortened as well: no two tables share a topic.
        is_plain = len(name) < MAX_TOPIC and not _looks_hashed(name)
        if is_plain or (len(name) == MAX_TOPIC and not _HASHED.search(name)):
            return name
        return _hashed(name)

    def apart(self, table: TableId) -> str:
        """Topic of a table whose usual name Kafka takes for another topic's: it ends in a hash."""
        return _hashed(self._whole(table), _APART)

    def of(self, table: TableId, there: Container[str]) -> str:
        """Topic of a table among those that are there, or the one to be made."""
        apart = self.apart(table)
        return apart if apart in there else self.table(table)

    def names(self, table: TableId) -> tuple[str, str]:
        """Both topics that a table may have; a set-apart one, which comes first, is the one."""
        return self.apart(table), self.table(table)

    def _whole(self, table: TableId) -> str:
        return f"{self.prefix}.{escape(table.schema)}.{escape(table.name)}"

    def table_of(self, topic: str) -> TableId | None:
        """Table of a topic; None for control and foreign topics, and for names that were cut."""
        for name in (topic, *([topic[:-17]] if _HASHED.search(topic) else ())):
            head, _, rest = name.partition(".")
            schema, _, ending = rest.partition(".")
            if head != self.prefix or not schema or not ending:
                continue
            try:
                table = TableId(unescape(schema), unescape(ending))
            except UnicodeDecodeError:  # half a character: not a table's name
                continue
            if topic in self.names(table):
                return table
        return None

    def table_by(self, topic: str, schema: Mapping[str, Any]) -> TableId | None:
        """Table of a topic whose values have this schema, also where the name was cut.

        None: it is no table's.
        """
        if (table := self.table_of(topic)) is not None:
            return table
        table = table_in(schema)
        return table if table is not None and topic in self.names(table) else None

    def is_data(self, topic: str) -> bool:
        """Say whether a topic holds rows of a table, judged by its name."""
        is_cut = len(topic) == MAX_TOPIC and topic.startswith(f"{self.prefix}.")
        return (is_cut and bool(_HASHED.search(topic))) or self.table_of(topic) is not None


def table_text(topic: str) -> str:
    """Write the table of a topic, which is named without its prefix; one of ours has no dot.

    >>> table_text("public.account"), table_text("public.a_u002eb"), table_text("ddl")
    ('public.account', 'public."a.b"', 'ddl')
    """
    schema, dot, name = topic.partition(".")
    return str(TableId(unescape(schema), unescape(name))) if dot else topic


def tables_of(topics: Iterable[str]) -> Iterator[TableId]:
    """Yield the tables of topics, of whatever prefix.

    >>> [str(table) for table in tables_of(["bank.public.a", "bank.ddl"])]
    ['public.a']
    """
    for topic in topics:
        if (table := Topics(topic.partition(".")[0]).table_of(topic)) is not None:
            yield table


def rewritten(text: str, topics: Collection[str]) -> str:
    """Write the text of a table as it is written now; one of these topics stays what it is.

    An earlier build wrote no quotes: which table it meant, the topics beside the text show.

    >>> rewritten("a.b.c", ["bank.a_u002eb.c"]), rewritten("a.b.c", [])
    ('"a.b".c', 'a."b.c"')
    """
    now = TableId.rewritten(text)
    if now == text or text in topics:
        return text
    meant = {str(t) for t in tables_of(topics) if f"{t.schema}.{t.name}" == text}
    return meant.pop() if len(meant) == 1 else now


def table_in(schema: Mapping[str, Any]) -> TableId | None:
    """Table that the schema of a value names; None: it names none.

    >>> table_in({"namespace": "bank.public.a_u002eb"})
    TableId(schema='public', name='a.b')
    """
    head, _, rest = str(schema.get("namespace")).partition(".")
    # Avro's escape is Kafka's with fewer plain letters: the way back is the same.
    try:
        table = TableId(*map(unescape, rest.partition(".")[::2]))
    except UnicodeDecodeError:
        return None
    return table if head and table.name else None


def value_subject(topic: str) -> str:
    """Registry subject of a topic's values (TopicNameStrategy)."""
    return f"{topic}-value"


def key_subject(topic: str) -> str:
    """Registry subject of a topic's keys (TopicNameStrategy)."""
    return f"{topic}-key"
