"""Random statements between random rows: several sessions, savepoints, all from one seed."""

# ruff: noqa: E501  a statement stands on one line

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import psycopg2

_TYPES = ("int", "bigint", "text", "varchar(40)", "numeric(20,4)", "date", "timestamptz", "boolean",
          "float8", "uuid", "jsonb", "int[]")  # fmt: skip
_VALUES = {
    "int": "(random() * 1000)::int",
    "bigint": "(random() * 1e12)::bigint",
    "text": "md5(random()::text)",
    "varchar(40)": "md5(random()::text)",
    "numeric(20,4)": "(random() * 1e6)::numeric(20,4)",
    "date": "date '2020-01-01' + (random() * 1000)::int",
    "timestamptz": "timestamptz '2020-01-01 00:00Z' + random() * interval '900 days'",
    "boolean": "random() < 0.5",
    "float8": "random()",
    "uuid": "md5(random()::text)::uuid",
    "jsonb": "jsonb_build_object('k', (random() * 9)::int)",
    "int[]": "ARRAY[(random() * 9)::int, NULL]",
}
# What keeps, converts or prints every value, without USING.
_CONVERSIONS = {
    "integer": ("bigint", "numeric", "text", "float8", "numeric(12,2)"),
    "bigint": ("numeric", "text"),
    "character varying(40)": ("text", "varchar(80)"),
    "numeric(20,4)": ("numeric(25,5)", "text", "numeric(20,1)"),
    "date": ("timestamp", "timestamptz", "text"),
    "timestamp with time zone": ("timestamp", "text", "date"),
    "boolean": ("text",),
    "double precision": ("text",),
    "uuid": ("text",),
    "jsonb": ("text",),
}
_ZONES = ("UTC", "Asia/Shanghai", "America/New_York")


@dataclass
class Play:
    """A source under work; `lossy`: also what only the source can compute."""

    url: str
    seed: int
    lossy: bool = False
    sessions: int = 3
    done: list[str] = field(default_factory=list)  # what was run, to be read after a failure

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.connections = [psycopg2.connect(self.url) for _ in range(self.sessions)]
        self.names = 0
        for connection in self.connections:
            with connection, connection.cursor() as cursor:
                cursor.execute("SET lock_timeout = '40ms'; SET client_min_messages = error")
                cursor.execute("SELECT setseed(%s)", [(self.seed % 1000) / 1000])

    def close(self) -> None:
        for connection in self.connections:
            connection.close()

    def some(self, actions: int) -> None:
        """Do so many things; at the end no transaction is open."""
        for _ in range(actions):
            at = self.random.randrange(self.sessions)
            self._act(at)
            if self.random.random() < 0.35:
                self._end(at)
        for at in range(self.sessions):
            self._end(at)

    def _end(self, at: int) -> None:
        if self.random.random() < 0.1:
            self.done.append(f"{at}: ROLLBACK")
            self.connections[at].rollback()
            return
        self.done.append(f"{at}: COMMIT")
        try:
            self.connections[at].commit()
        except psycopg2.Error:
            self.connections[at].rollback()

    def _act(self, at: int) -> None:
        """A few statements under a savepoint, which may be rolled back."""
        with self.connections[at].cursor() as cursor:
            cursor.execute("SAVEPOINT here")
            undone = self.random.random() < 0.15
            try:
                for _ in range(self.random.randint(1, 3)):
                    for statement in self._statements(cursor):
                        self.done.append(f"{at}: {statement}")
                        cursor.execute(statement)
            except psycopg2.Error as error:
                self.done.append(f"{at}: -- {error.pgcode}")
                undone = True
            if undone:
                self.done.append(f"{at}: ROLLBACK TO here")
                cursor.execute("ROLLBACK TO SAVEPOINT here")

    def _statements(self, cursor: object) -> Iterator[str]:
        kind = self.random.choices(
            ("insert", "update", "delete", "truncate", "table", "column", "rest", "lossy"),
            (30, 25, 10, 1, 10, 16, 8, 4 if self.lossy else 0),
        )[0]
        return iter(list(getattr(self, f"_{kind}")(cursor)))

    # ------------------------------------------------------------ what there is
    def _tables(self, cursor, kinds="rp") -> list[str]:
        cursor.execute(
            "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_namespace n"
            " ON n.oid = c.relnamespace WHERE relkind = ANY (%s) AND NOT relispartition"
            " AND relpersistence = 'p' AND nspname !~ '^(pg_|information|gauss_cdc)'"
            " AND relname <> 'marker' ORDER BY 1",
            [list(kinds)],
        )
        return [name for (name,) in cursor.fetchall()]

    def _columns(self, cursor, table: str) -> list[tuple[str, str, bool]]:
        cursor.execute(
            "SELECT quote_ident(attname), format_type(atttypid, atttypmod), EXISTS (SELECT FROM"
            " pg_index WHERE indrelid = attrelid AND indisprimary AND attnum = ANY (indkey))"
            " FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum",
            [table],
        )
        return cursor.fetchall()

    def _name(self, head: str) -> str:
        self.names += 1
        return f"{head}{self.names}"

    def _value(self, type_name: str) -> str:
        same = {"integer": "int", "character varying(40)": "varchar(40)", "double precision":
                "float8", "timestamp with time zone": "timestamptz", "integer[]": "int[]"}  # fmt: skip
        value = _VALUES.get(same.get(type_name, type_name), "NULL")
        if type_name.startswith(("numeric", "character varying", "timestamp without")):
            value = {"n": "(random() * 99)::int", "c": "md5(random()::text)", "t": "now()"}[
                type_name[0]
            ]
        return value if self.random.random() < 0.9 else "NULL"

    # ------------------------------------------------------------ rows
    def _insert(self, cursor) -> Iterator[str]:
        for table in self.random.choices(self._tables(cursor) or [""], k=1):
            columns = self._columns(cursor, table)
            keys = [c for c in columns if c[2]]
            rest = [c for c in columns if not c[2] and self.random.random() < 0.8]
            first = self.random.randint(1, 400)
            count = self.random.choice((1, 1, 3, 20))
            values = [
                f"{'g' if n == 0 else 'g % 7'}::{t}" if t in ("integer", "bigint", "numeric", "text")
                else self._value(t) for n, (_, t, _) in enumerate(keys)
            ] + [self._value(t) for _, t, _ in rest]  # fmt: skip
            names = ", ".join(name for name, _, _ in keys + rest)
            yield (
                f"INSERT INTO {table} ({names}) SELECT {', '.join(values)}"
                f" FROM generate_series({first}, {first + count}) g ON CONFLICT DO NOTHING"
                if names
                else f"INSERT INTO {table} DEFAULT VALUES"
            )

    def _update(self, cursor) -> Iterator[str]:
        for table in self.random.choices(self._tables(cursor) or [""], k=1):
            columns = [c for c in self._columns(cursor, table) if not c[2]]
            if not columns:
                return
            name, type_name, _ = self.random.choice(columns)
            yield f"UPDATE {table} SET {name} = {self._value(type_name)} WHERE {self._some()}"

    def _delete(self, cursor) -> Iterator[str]:
        for table in self.random.choices(self._tables(cursor) or [""], k=1):
            yield f"DELETE FROM {table} WHERE {self._some()}"

    def _truncate(self, cursor) -> Iterator[str]:
        yield f"TRUNCATE {self.random.choice(self._tables(cursor))}"

    def _some(self) -> str:
        return f"abs(hashtext(ctid::text)) % 7 = {self.random.randrange(7)}"

    # ------------------------------------------------------------ schema changes
    def _table(self, cursor) -> Iterator[str]:
        tables = self._tables(cursor)
        table = self.random.choice(tables)
        new = self._name("t")
        match self.random.randrange(10):
            case 0 | 1 | 2:
                columns = [
                    f"c{n} {self.random.choice(_TYPES)}" for n in range(self.random.randint(0, 5))
                ]
                columns += [self.random.choice(("", "u int UNIQUE"))]
                yield f"CREATE TABLE {new} (id int PRIMARY KEY, {', '.join(filter(None, columns))})".replace(
                    ", )", ")"
                )
            case 3:
                yield f"CREATE TABLE {new} AS SELECT * FROM {table} LIMIT 50"
                yield f"ALTER TABLE {new} REPLICA IDENTITY FULL"
            case 4:
                if len(tables) > 6:
                    yield f"DROP TABLE {table} CASCADE"
            case 5:
                yield f"ALTER TABLE {table} RENAME TO {new}"
            case 6:
                yield f"ALTER TABLE {table} SET SCHEMA {self.random.choice(('public', 'one', 'two'))}"
            case 7:
                yield f"CREATE TABLE {new} (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)"
                for n in range(3):
                    yield f"CREATE TABLE {new}_{n} PARTITION OF {new} FOR VALUES FROM ({n * 150}) TO ({n * 150 + 150})"
            case 8:
                yield from self._partition(cursor)
            case 9:
                yield f"CREATE TABLE {new} (LIKE {table} INCLUDING ALL)"

    def _partition(self, cursor) -> Iterator[str]:
        cursor.execute(
            "SELECT i.inhparent::regclass::text, i.inhrelid::regclass::text,"
            " pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c"
            " ON c.oid = i.inhrelid WHERE c.relispartition ORDER BY 1, 2"
        )
        if not (parts := cursor.fetchall()):
            return
        root, part, bound = self.random.choice(parts)
        if self.random.random() < 0.2:
            yield f"TRUNCATE {part}"
            return
        yield f"ALTER TABLE {root} DETACH PARTITION {part}"
        match self.random.randrange(4):
            case 0:
                yield f"INSERT INTO {part} (id) SELECT g FROM generate_series(1, 440) g ON CONFLICT DO NOTHING"
                yield f"DELETE FROM {part} WHERE id % 3 = 0"
            case 1:
                yield f"ALTER TABLE {root} ATTACH PARTITION {part} {bound}"
            case 2:
                yield f"UPDATE {part} SET id = id WHERE id % 2 = 0"
                yield f"ALTER TABLE {root} ATTACH PARTITION {part} {bound}"
            case 3:
                yield f"DROP TABLE {part}"

    def _column(self, cursor) -> Iterator[str]:
        table = self.random.choice(self._tables(cursor))
        columns = self._columns(cursor, table)
        name, type_name, in_key = self.random.choice(columns)
        new, kind = self._name("n"), self.random.choice(_TYPES)
        match self.random.randrange(9):
            case 0 | 1:
                constant = {"int": "5", "text": "'it''s, {x}'", "numeric(20,4)": "1.5", "boolean":
                            "true", "jsonb": "'{\"a\": 1}'", "int[]": "'{1,2}'", "timestamptz":
                            "now()", "date": "'2020-02-02'", "bigint": "9"}.get(kind)  # fmt: skip
                default = f" DEFAULT {constant}" if constant and self.random.random() < 0.6 else ""
                yield f"ALTER TABLE {table} ADD COLUMN {new} {kind}{default}"
            case 2:
                if len(columns) > 2 and not in_key:
                    yield f"ALTER TABLE {table} DROP COLUMN {name} CASCADE"
            case 3 | 4:
                yield f"ALTER TABLE {table} RENAME COLUMN {name} TO {new}"
            case 5 | 6:
                if kinds := _CONVERSIONS.get(type_name):
                    yield f"SET LOCAL TimeZone = '{self.random.choice(_ZONES)}'"
                    yield f"ALTER TABLE {table} ALTER {name} TYPE {self.random.choice(kinds)}"
            case 7:
                if not in_key and len(columns) > 1:
                    yield f"ALTER TABLE {table} DROP COLUMN {name} CASCADE, ADD COLUMN {name} {kind}"
            case 8:
                yield f"ALTER TABLE {table} RENAME COLUMN {name} TO {new}"
                yield f"ALTER TABLE {table} ADD COLUMN {name} {kind}"

    def _rest(self, cursor) -> Iterator[str]:
        table = self.random.choice(self._tables(cursor))
        columns = self._columns(cursor, table)
        name = self.random.choice(columns)[0]
        new = self._name("x")
        match self.random.randrange(9):
            case 0:
                yield f"CREATE UNIQUE INDEX {new} ON {table} ({name})"
            case 1:
                yield f"CREATE INDEX {new} ON {table} ({name})"
            case 2:
                yield f"COMMENT ON TABLE {table} IS '{new}'"
            case 3:
                yield f"ALTER TABLE {table} REPLICA IDENTITY FULL"
            case 4:
                yield f"DO $$ BEGIN ALTER TABLE {table} ADD COLUMN {new} int; UPDATE {table} SET {new} = 3; END $$"
            case 5:
                with suppress(IndexError):
                    cursor.execute(
                        "SELECT conname FROM pg_constraint WHERE contype = 'p' AND conrelid ="
                        " %s::regclass",
                        [table],
                    )
                    key = cursor.fetchall()[0][0]
                    yield f'ALTER TABLE {table} DROP CONSTRAINT "{key}", REPLICA IDENTITY FULL'
                    yield f"ALTER TABLE {table} ADD PRIMARY KEY ({name})"
            case 6:
                yield f"ALTER TABLE {table} ALTER {name} SET NOT NULL"
            case 7:
                yield f"CREATE VIEW {new} AS SELECT {name} FROM {table}"
            case 8:
                cursor.execute(
                    "SELECT indexrelid::regclass::text FROM pg_index i JOIN pg_class c"
                    " ON c.oid = indexrelid WHERE NOT indisprimary AND relname ~ '^x' ORDER BY 1"
                )
                if found := cursor.fetchall():
                    yield f"DROP INDEX {self.random.choice(found)[0]}"

    def _lossy(self, cursor) -> Iterator[str]:
        table = self.random.choice(self._tables(cursor))
        name = self.random.choice(self._columns(cursor, table))[0]
        new = self._name("l")
        yield self.random.choice(
            (
                f"ALTER TABLE {table} ADD COLUMN {new} float8 DEFAULT random()",
                f"ALTER TABLE {table} ADD COLUMN {new} serial",
                f"ALTER TABLE {table} ALTER {name} TYPE text USING md5({name}::text)",
                f"SELECT * FROM (SELECT 1) a; ALTER TABLE {table} SET UNLOGGED",
            )
        )


START = """
CREATE SCHEMA one; CREATE SCHEMA two; CREATE TABLE marker (id int PRIMARY KEY);
CREATE TABLE a (id int PRIMARY KEY, v text, w numeric(20,4));
CREATE TABLE b (id int, k int, v varchar(40), d timestamptz, PRIMARY KEY (id, k));
CREATE TABLE one.c (id int, v text); ALTER TABLE one.c REPLICA IDENTITY FULL;
CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id);
CREATE TABLE p_0 PARTITION OF p FOR VALUES FROM (0) TO (200);
CREATE TABLE p_1 PARTITION OF p FOR VALUES FROM (200) TO (600);
INSERT INTO a SELECT g, 'v' || g, g FROM generate_series(1, 100) g;
INSERT INTO p SELECT g, 'p' || g FROM generate_series(1, 400, 3) g;
INSERT INTO one.c SELECT g % 5, 'c' FROM generate_series(1, 20) g;
"""
