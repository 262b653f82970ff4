"""Tables of random types and shapes, and random transactions over them; all from a seed.

A `Case` is text only: statements that anybody can run again, with or without some
of them.  Statements may fail (a key that is there already): each stands in a
savepoint of its own, and a failed one is as if it were not there.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemas import quoting
from schemas.quoting import identifier
from schemas.types import TypeOptions
from tests.schemas.types.values import SAMPLES

# Types of users, made at the source always and at the target sometimes.
MADE = """
CREATE TYPE mood AS ENUM ('sad', 'so so', 'it''s "ok"');
CREATE DOMAIN price AS numeric(10,2);
CREATE DOMAIN cheap AS price;
CREATE DOMAIN days AS date[];
CREATE TYPE pair AS (a int, "b B" text, c mood);
CREATE TYPE span AS RANGE (subtype = mood);
CREATE EXTENSION IF NOT EXISTS hstore;
CREATE EXTENSION IF NOT EXISTS citext;
CREATE EXTENSION IF NOT EXISTS ltree;
"""
OF_USERS = {
    "mood": ("sad", "so so", 'it\'s "ok"'),
    "mood[]": ('{sad,NULL,"so so"}', "{}", "{{sad},{sad}}"),
    "price": ("1.50", "NaN", "-99999999.99"),
    "price[]": ("{1.50,NULL}", "{}"),
    "cheap": ("0.00",),
    "days": ("{2024-05-01,NULL}", "{infinity}"),
    "pair": ('(1,"a b","so so")', "(,,)"),
    "pair[]": ('{"(1,a,sad)",NULL}',),
    "span": ('[sad,"so so")', "empty"),
    "hstore": ('"a"=>"1", "b"=>NULL', "", '"金"=>"x, =>"'),
    "citext": ("MiXed", ""),
    "ltree": ("Top.Science",),
}
_KEYS = {
    "integer", "bigint", "smallint", "text", "character varying(20)", "uuid", "numeric",
    "numeric(12,2)", "date", "timestamp with time zone", "timestamp without time zone", "bytea",
    "boolean", "character(5)", "inet", "real", "interval", "mood", "price", "bit(11)", "oid",
    "time with time zone", "integer[]", "citext",
}  # fmt: skip
NAMES = ("id", "v", "Mixed Case", "金额", 'quo"te', "per%cent", "dot.ted", "select", "_u0041", "$1")


def literal(text: str, type_name: str) -> str:
    return f"{quoting.literal(text)}::{type_name}"


def _numbers(low: int, high: int, scale: int = 0) -> Callable[[random.Random], str]:
    def number(rng: random.Random) -> str:
        n = rng.choice((rng.randint(low, high), rng.randint(-9, 9), low, high))
        digits = f"{abs(n):0{scale + 1}d}"
        sign = "-" if n < 0 else ""
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"

    return number


def _words(size: int) -> Callable[[random.Random], str]:
    letters = "abcdefghij xyz'\"\\{},\t\n金额é🐘()%_$-:;"

    def words(rng: random.Random) -> str:
        return "".join(rng.choice(letters) for _ in range(rng.randint(0, size)))

    return words


def _stamp(rng: random.Random) -> str:
    year = rng.choice((rng.randint(1, 9999), rng.randint(1900, 2100)))
    text = f"{year:04d}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    text += f" {rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}:{rng.randint(0, 59):02d}"
    return text + rng.choice(("", ".5", ".123", ".123456", ".000001"))


def _long(rng: random.Random) -> str:
    """Some kilobytes that do not compress: they are stored outside of the row."""
    return "".join(rng.choices("0123456789abcdefghijklmnopqrstuvwxyz", k=rng.randint(3000, 9000)))


RANDOM: dict[str, Callable[[random.Random], str]] = {
    "smallint": _numbers(-(2**15), 2**15 - 1),
    "integer": _numbers(-(2**31), 2**31 - 1),
    "bigint": _numbers(-(2**63), 2**63 - 1),
    "numeric": lambda rng: _numbers(-(10**30), 10**30, rng.randint(0, 25))(rng),
    "numeric(12,2)": _numbers(-(10**12) + 1, 10**12 - 1, 2),
    "double precision": lambda rng: repr(rng.uniform(-1, 1) * 10 ** rng.randint(-300, 300)),
    "real": lambda rng: repr(rng.uniform(-1, 1) * 10 ** rng.randint(-36, 36)),
    "boolean": lambda rng: rng.choice("tf"),
    "text": lambda rng: _long(rng) if rng.random() < 0.2 else _words(40)(rng),
    "character varying(20)": _words(20),
    "character(5)": _words(5),
    "bytea": lambda rng: "\\x" + (
        _long(rng).encode().hex() if rng.random() < 0.2 else rng.randbytes(rng.randint(0, 20)).hex()
    ),
    "uuid": lambda rng: rng.randbytes(16).hex(),
    "date": lambda rng: _stamp(rng)[:10],
    "timestamp without time zone": _stamp,
    "timestamp with time zone": lambda rng: _stamp(rng) + rng.choice(("+00", "-07:30", "+14")),
    "time without time zone": lambda rng: _stamp(rng)[11:],
    "time with time zone": lambda rng: _stamp(rng)[11:] + rng.choice(("+00", "+05:30", "-08")),
    "interval": lambda rng: (
        f"{rng.randint(-50, 50)} months {rng.randint(-90, 90)} days"
        f" {rng.randint(-(10**12), 10**12)} us"
    ),
    "jsonb": lambda rng: json.dumps(
        {"a": [rng.randint(-99, 99), _long(rng) if rng.random() < 0.2 else "x"]}
    ),
    "integer[]": lambda rng: "{" + ",".join(
        rng.choice(("NULL", str(rng.randint(-99, 99)))) for _ in range(rng.randint(0, 4))
    ) + "}",
    "text[]": lambda rng: "{" + ",".join(
        rng.choice(("NULL", '"' + re.sub(r'(["\\])', r"\\\1", _words(9)(rng)) + '"'))
        for _ in range(rng.randint(0, 4))
    ) + "}",
    "point": lambda rng: f"({rng.uniform(-1e9, 1e9)!r},{rng.uniform(-1, 1)!r})",
    "bit varying": lambda rng: "".join(rng.choices("01", k=rng.randint(0, 40))),
}  # fmt: skip
POOL: dict[str, tuple[str, ...]] = {
    **{s.type_name: tuple(t for t in s.texts if len(t) < 20_000) for s in SAMPLES},
    **OF_USERS,
}


def value(rng: random.Random, type_name: str) -> str:
    """SQL of one value; a sample of the type, or a random one."""
    if type_name in RANDOM and (type_name not in POOL or rng.random() < 0.6):
        return literal(RANDOM[type_name](rng), type_name)
    return literal(rng.choice(POOL[type_name]), type_name)


@dataclass(frozen=True)
class Table:
    """A table's definition, and what its statements need to know."""

    name: str  # quoted
    create: str
    types: dict[str, str]  # quoted column -> type, those that may be written
    required: frozenset[str]
    key: tuple[str, ...] = ()


@dataclass
class Case:
    """Tables; transactions of before the load and of after it, each some statements."""

    seed: int
    tables: list[Table]
    before: list[list[str]]
    after: list[list[str]]
    options: TypeOptions = field(default_factory=TypeOptions)
    target_has_types: bool = False
    changes: dict[str, Any] = field(default_factory=dict)  # of the producer's options
    target: str = "postgres"  # as what the sink takes the server


def _table(rng: random.Random, number: int) -> Table:
    name = identifier(rng.choice((f"t{number}", f"T {number} 表", f't"{number}', f"t.{number}")))
    width = rng.choice((1, 2, 3, 5, 8, 8, 40))
    names = [*NAMES, *(f"c{n}" for n in range(width))]
    names = names[: max(1, width)] if rng.random() < 0.5 else rng.sample(names, width)
    types = {identifier(n): rng.choice(sorted({*POOL, *RANDOM})) for n in names}
    key: tuple[str, ...] = ()
    kind = rng.random()
    if kind < 0.75:
        size = 2 if width > 2 and rng.random() < 0.3 else 1
        key = tuple(rng.sample(sorted(types), size))
        for column in key:
            types[column] = rng.choice(("integer", "integer", rng.choice(sorted(_KEYS))))
    required = {*key}
    lines, tail = [], []
    for column, kind_of in types.items():
        line = f"{column} {kind_of}"
        if column in key or rng.random() < 0.2:
            line += " NOT NULL"
            required.add(column)
        elif rng.random() < 0.2:
            line += f" DEFAULT {value(rng, kind_of)}"
        lines.append(line)
    writable = dict(types)
    if rng.random() < 0.2:
        lines.append('"made" int GENERATED ALWAYS AS (1 + 1) STORED')
    if rng.random() < 0.2:
        lines.append(f'"nr" int GENERATED {rng.choice(("ALWAYS", "BY DEFAULT"))} AS IDENTITY')
    if rng.random() < 0.2:
        lines.insert(0, '"gone" int')
        tail.append(f"ALTER TABLE {name} DROP COLUMN gone;")
    if key:
        lines.append(f"PRIMARY KEY ({', '.join(key)})")
    plain = [c for c in types if types[c] in _KEYS and c not in key]
    if plain and rng.random() < 0.3:
        lines.append(f"UNIQUE ({rng.choice(plain)})")
    create = f"CREATE TABLE {name} ({', '.join(lines)});{' '.join(tail)}"
    if not key or rng.random() < 0.25:
        create += f" ALTER TABLE {name} REPLICA IDENTITY FULL;"
    return Table(name, create, writable, frozenset(required), key)


def _cell(rng: random.Random, table: Table, column: str) -> str:
    if column not in table.required and rng.random() < 0.15:
        return rng.choice(("NULL", "DEFAULT"))
    return value(rng, table.types[column])


def _some_row(rng: random.Random, table: Table) -> str:
    """One row that is there: the n-th, whatever it holds."""
    nth = rng.randint(0, 15)
    return (
        f'ctid = (SELECT ctid FROM {table.name} t ORDER BY t::text COLLATE "C", ctid'
        f" OFFSET {nth} % (1 + (SELECT count(*) FROM {table.name})) LIMIT 1)"
    )


def _statement(rng: random.Random, table: Table) -> str:
    columns = list(table.types)
    dice = rng.random()
    if dice < 0.5:
        rows = ", ".join(
            "(" + ", ".join(_cell(rng, table, c) for c in columns) + ")"
            for _ in range(rng.choice((1, 1, 2, 5)))
        )
        upsert = ""
        if table.key and len(columns) > len(table.key) and rng.random() < 0.3:
            other = rng.choice([c for c in columns if c not in table.key])
            upsert = f" ON CONFLICT ({', '.join(table.key)}) DO UPDATE SET {other} ="
            upsert += f" excluded.{other}"
        return f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES {rows}{upsert}"
    if dice < 0.8:
        some = rng.sample(columns, rng.randint(1, min(3, len(columns))))
        if rng.random() < 0.7 and set(columns) - set(table.key):
            some = [c for c in some if c not in table.key] or some
        sets = ", ".join(f"{c} = {_cell(rng, table, c)}" for c in some)
        where = f" WHERE {_some_row(rng, table)}" if rng.random() < 0.8 else ""
        return f"UPDATE {table.name} SET {sets}{where}"
    if dice < 0.98:
        return f"DELETE FROM {table.name} WHERE {_some_row(rng, table)}"
    return f"TRUNCATE {table.name}"


def _transaction(rng: random.Random, tables: Sequence[Table]) -> list[str]:
    statements = [_statement(rng, rng.choice(tables)) for _ in range(rng.choice((1, 1, 2, 4, 8)))]
    if len(statements) > 2 and rng.random() < 0.4:
        at = rng.randint(0, len(statements) - 2)
        end = rng.randint(at + 1, len(statements))
        last = rng.choice(("ROLLBACK TO s", "ROLLBACK TO s", "RELEASE s"))
        statements[at:end] = ["SAVEPOINT s", *statements[at:end], last]
    if rng.random() < 0.1:
        statements.append("ROLLBACK")
    return statements


def make(seed: int, *, tables: int = 6, transactions: int = 60) -> Case:
    """The case of a seed."""
    rng = random.Random(seed)
    made = [_table(rng, number) for number in range(tables)]
    options = TypeOptions(
        rng.choice(("precise", "precise", "string", "double")),
        rng.choice(("numeric", "string")),
        rng.choice(("bytes", "bytes", "base64", "base64-url-safe", "hex")),
        rng.choice(("adaptive", "adaptive-time-microseconds", "connect")),
        rng.choice(("json", "map")),
    )
    changes: dict[str, Any] = {}
    if rng.random() < 0.3:
        changes["exactly_once"] = False
    return Case(
        seed,
        made,
        [_transaction(rng, made) for _ in range(transactions // 3)],
        [_transaction(rng, made) for _ in range(transactions)],
        options,
        rng.random() < 0.5,
        changes,
        rng.choice(("postgres", "opengauss")),
    )
