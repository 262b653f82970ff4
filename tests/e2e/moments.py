"""Statements of owners and administrators that are undone again, with rows in between.

Each moment is a statement, rows, and the opposite statement; it is played within one transaction,
in several, or with a look in between, among the statements and rows of `ddl_play`.
"""

# ruff: noqa: E501  a statement stands on one line

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress

import psycopg2
from psycopg2.extensions import connection as Connection  # noqa: N812  it is a class

from tests.e2e.ddl_play import Play

MORE = """
CREATE EXTENSION citext; CREATE EXTENSION hstore;
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN small AS int CHECK (VALUE < 100000);
CREATE TYPE pair AS (m mood, n int);
CREATE TABLE e (id int PRIMARY KEY, m mood, d small, p pair, ms mood[]);
CREATE TABLE u (id int NOT NULL, code text NOT NULL, v text); CREATE UNIQUE INDEX u_code ON u (code);
ALTER TABLE u REPLICA IDENTITY USING INDEX u_code;
CREATE TABLE h (id int PRIMARY KEY, v text) PARTITION BY HASH (id);
CREATE TABLE h_0 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE h_1 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE up (id int PRIMARY KEY, v text); CREATE TABLE down (w int, PRIMARY KEY (id)) INHERITS (up);
CREATE TABLE one.k (id int PRIMARY KEY, v text, long text); CREATE TABLE two.k (LIKE one.k INCLUDING ALL);
ALTER TABLE one.k ALTER long SET STORAGE EXTERNAL;
CREATE TABLE g (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (v + 1) STORED);
INSERT INTO e SELECT n, 'ok', n, ROW('sad'::mood, n)::pair, '{sad,ok}' FROM generate_series(1, 30) n;
INSERT INTO u SELECT n, 'c' || n, 'v' FROM generate_series(1, 30) n;
INSERT INTO h SELECT n, 'h' FROM generate_series(1, 60) n;
INSERT INTO up SELECT n, 'u' FROM generate_series(1, 20) n;
INSERT INTO down (id, v, w) SELECT n, 'd', n FROM generate_series(100, 120) n;
INSERT INTO one.k SELECT n, 'one', repeat('long ' || n, 500) FROM generate_series(1, 70) n;
INSERT INTO two.k SELECT n, 'two' FROM generate_series(10, 90) n;
INSERT INTO g (id, v) SELECT n, n FROM generate_series(1, 20) n;
CREATE TABLE rt (a int PRIMARY KEY, b text);
CREATE TABLE hr (id int PRIMARY KEY, r rt, rs rt[], v text);
CREATE DOMAIN drt AS rt; CREATE TABLE hd (id int PRIMARY KEY, r drt);
CREATE TABLE heir (v text, extra int, id int PRIMARY KEY);
CREATE FUNCTION gf(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1';
CREATE TABLE gg (id int PRIMARY KEY, v int, w int GENERATED ALWAYS AS (gf(v)) STORED, z int);
CREATE TABLE odd (junk int, v text, id int PRIMARY KEY); ALTER TABLE odd DROP junk;
CREATE TABLE ext (id int PRIMARY KEY, c citext, h hstore, t text);
INSERT INTO rt SELECT n, 'b' || n FROM generate_series(1, 40) n;
INSERT INTO hr SELECT n, ROW(n, 'x' || n)::rt, ARRAY[ROW(n, NULL)::rt], 'v' FROM generate_series(1, 80) n;
INSERT INTO hd SELECT n, ROW(n, 'x' || n)::rt FROM generate_series(1, 40) n;
INSERT INTO heir SELECT 'h' || n, n, n FROM generate_series(1000, 1060) n;
INSERT INTO gg (id, v, z) SELECT n, n, n FROM generate_series(1, 80) n;
INSERT INTO odd (v, id) SELECT 'o' || n, n FROM generate_series(700, 760) n;
INSERT INTO ext SELECT n, 'C' || n, hstore('a', n::text), 't' FROM generate_series(1, 60) n;
"""
_ALL = "insert, update, delete, truncate"
_DEEP = """
CREATE OR REPLACE FUNCTION deep(n int, what text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN IF n > 0 THEN PERFORM deep(n - 1, what); ELSE EXECUTE what; END IF; END $$
"""

Pair = tuple[list[str], list[str]]  # statements, and those that undo them
# A find of one kind comes sooner where only that kind is played.
KINDS = os.environ.get(
    "GAUSS_CDC_MOMENTS_KINDS",
    "publication table table column column type partition attached row_type block heir computed"
    " extension harmless dump trigger schema key long space storage",
).split()
# How often somebody else's transaction is open meanwhile: looks and loads behave otherwise then.
HELD = float(os.environ.get("GAUSS_CDC_MOMENTS_HELD", "0.2"))


_AS_IT_WAS = ("--clean", "--if-exists", "--no-publications", "--lock-wait-timeout=2s")  # pg_dump


class Moments(Play):
    """A play whose statements are undone again; `publication` is altered, too."""

    publication = ""
    has_triggers = False
    _held: tuple[Connection, ...] = ()

    def hold(self) -> None:
        """Open a transaction for which slots and loads wait; it goes on between statements."""
        session = psycopg2.connect(self.url)
        self._held += (session,)
        with session.cursor() as cursor:
            cursor.execute("SET lock_timeout = '200ms'; SELECT txid_current()")
        self.done.append("held: BEGIN")
        if self.random.random() < 0.5:
            self._rows_of(session)

    def release(self) -> None:
        """Commit what is held."""
        for session in self._held:
            self._commit(session, "held")
            session.close()
        self._held = ()

    def _go_on(self) -> None:
        for session in self._held:
            what = self.random.choices(("rows", "commit", "nothing"), (4, 2, 4))[0]
            if what == "rows":
                self._rows_of(session)
            elif what == "commit":
                self._commit(session, "held")  # it may begin another one

    def _rows_of(self, session: Connection) -> None:
        self.done.append("held:")
        try:
            self._rows(session)
        except psycopg2.Error as error:
            self.done.append(f"held: -- {error.pgcode}")
            with suppress(psycopg2.Error):
                session.rollback()

    def moment(self, between: Callable[[], object]) -> None:
        """Play one; `between` may look at the target while the statements hold."""
        try:
            if self.random.random() < HELD:
                self.hold()
            self._moment(between)
        finally:
            self.release()

    def _moment(self, between: Callable[[], object]) -> None:
        with psycopg2.connect(self.url) as connection, connection.cursor() as cursor:
            found = self._pair(cursor)
        connection.close()
        if found is None:
            return
        before, after = found
        how = self.random.choices(("together", "apart", "looked at"), (3, 5, 2))[0]
        session = psycopg2.connect(self.url)
        try:
            with session, session.cursor() as cursor:
                cursor.execute("SET lock_timeout = '2s'; SET client_min_messages = error")
            session.autocommit = how != "together"
            self._run(session, before, how)
            if how == "looked at":
                self.release()
                between()
            self._run(session, after, how)
            if how == "together":
                self._commit(session, how)
        finally:
            session.close()
        if self.random.random() < 0.6:
            self._rows_apart()

    def _run(self, session: Connection, statements: list[str], how: str) -> None:
        for statement in statements:
            self._go_on()
            self.done.append(f"{how}: {statement}")
            try:
                if statement == "ROWS":
                    if how == "together":
                        self._rows(session)
                    else:
                        self._rows_apart()
                elif statement.startswith("DUMP "):
                    self._restore(statement.removeprefix("DUMP "))
                else:
                    with session.cursor() as cursor:
                        if how == "together":
                            cursor.execute("SAVEPOINT moment")
                        cursor.execute(statement)
            except psycopg2.Error as error:
                self.done.append(f"{how}: -- {error.pgcode} {str(error).splitlines()[0]}")
                if how == "together":
                    with session.cursor() as cursor:
                        cursor.execute("ROLLBACK TO SAVEPOINT moment")

    def _commit(self, session: Connection, how: str) -> None:
        self.done.append(f"{how}: COMMIT")
        with suppress(psycopg2.Error):
            session.commit()

    def _rows_apart(self) -> None:
        session = psycopg2.connect(self.url)
        try:
            with session, session.cursor() as cursor:
                cursor.execute("SET lock_timeout = '200ms'")
                self._rows(session)
        except psycopg2.Error as error:
            self.done.append(f"rows: -- {error.pgcode}")
        finally:
            session.close()

    def _rows(self, session: Connection) -> None:
        """Insert, update and delete in some tables."""
        with session.cursor() as cursor:
            for _ in range(self.random.randint(1, 4)):
                kind = self.random.choice(("_insert", "_update", "_update", "_delete", "_move"))
                for statement in list(getattr(self, kind)(cursor)):
                    cursor.execute("SAVEPOINT rows")
                    try:
                        self.done.append(f"rows: {statement}")
                        cursor.execute(statement)
                    except psycopg2.Error as error:
                        self.done.append(f"rows: -- {error.pgcode}")
                        cursor.execute("ROLLBACK TO SAVEPOINT rows")

    def _insert(self, cursor) -> Iterator[str]:
        """Rows for tables whose types the play does not know, too."""
        yield from super()._insert(cursor)
        table = self.random.choice(self._tables(cursor))
        named = {name: kind for name, kind, _ in self._columns(cursor, table)}
        at = self.random.randint(1, 5000)
        if {"m", "d"} <= named.keys():
            yield f"INSERT INTO {table} (id, m, d) VALUES ({at}, (SELECT min(v) FROM unnest(enum_range(NULL::mood)) v), 7) ON CONFLICT DO NOTHING"
        elif "code" in named:
            yield f"INSERT INTO {table} (id, code) VALUES ({at}, 'c{at}') ON CONFLICT DO NOTHING"

    def _move(self, cursor) -> Iterator[str]:
        """Rows that come to another key, also without their long values."""
        table = self.random.choice(self._tables(cursor))
        keys = [(name, kind) for name, kind, is_key in self._columns(cursor, table) if is_key]
        if keys:
            name, kind = self.random.choice(keys)
            if kind in {"integer", "bigint"}:
                by = self.random.choice((1, 37, -50, 500, 3000))
                yield f"UPDATE {table} SET {name} = {name} + {by} WHERE {self._some()}"

    # ------------------------------------------------------------ moments
    def _pair(self, cursor) -> Pair | None:
        tables = self._tables(cursor)
        if not tables:
            return None
        kind = self.random.choice(KINDS)
        found: Pair | None = getattr(self, f"_of_{kind}")(cursor, self.random.choice(tables))
        if found is None or (setting := self._setting()) is None:
            return found
        name, value = setting
        before, after = found
        return [f"SET {name} = {value}", *before, f"RESET {name}"], after

    def _setting(self) -> tuple[str, str] | None:
        """Let some statements be cancelled, within our triggers too, or be a replica's."""
        return self.random.choices(
            (
                None,
                ("statement_timeout", f"'{self.random.randint(2, 40)}ms'"),
                ("session_replication_role", "replica"),
            ),
            (16, 2, 1),
        )[0]

    def _of_publication(self, cursor, table: str) -> Pair | None:
        name = f'"{self.publication}"'
        cursor.execute(
            "SELECT puballtables, pubviaroot FROM pg_publication WHERE pubname = %s",
            [self.publication],
        )
        if (row := cursor.fetchone()) is None:
            return None
        is_all, via_root = row
        pairs = [
            ([f"ALTER PUBLICATION {name} SET (publish = '{some}')"],
             [f"ALTER PUBLICATION {name} SET (publish = '{_ALL}')"])
            for some in ("insert", "update, delete", "insert, update, delete", "")
        ]  # fmt: skip
        pairs.append((
            [f"ALTER PUBLICATION {name} SET (publish_via_partition_root = {str(not via_root).lower()})"],
            [f"ALTER PUBLICATION {name} SET (publish_via_partition_root = {str(via_root).lower()})"],
        ))  # fmt: skip
        cursor.execute(
            "SELECT prrelid::regclass::text FROM pg_publication_rel r JOIN pg_publication p"
            " ON p.oid = prpubid WHERE pubname = %s ORDER BY 1",
            [self.publication],
        )
        members = [member for (member,) in cursor.fetchall()]
        cursor.execute(
            "SELECT nspname FROM pg_publication_namespace s JOIN pg_publication p ON p.oid = pnpubid"
            " JOIN pg_namespace n ON n.oid = pnnspid WHERE pubname = %s ORDER BY 1",
            [self.publication],
        )
        spaces = [space for (space,) in cursor.fetchall()]
        if members and not is_all:
            member = self.random.choice(members)
            columns = self._columns(cursor, member)
            keys = ", ".join(n for n, _, is_key in columns if is_key) or "id"
            drop = f"ALTER PUBLICATION {name} DROP TABLE {member}"
            add = f"ALTER PUBLICATION {name} ADD TABLE {member}"
            pairs += [
                ([drop], [add]),
                ([drop, f"{add} WHERE (id % 2 = 0)"], [drop, add]),
                ([drop, f"{add} ({keys})"], [drop, add]),
            ] * 2
        if spaces and not is_all:
            space = self.random.choice(spaces)
            whole = f"TABLES IN SCHEMA {space}"
            pairs += [
                (
                    [f"ALTER PUBLICATION {name} DROP {whole}"],
                    [f"ALTER PUBLICATION {name} ADD {whole}"],
                )
            ] * 3
        pairs.append((
            [f"ALTER PUBLICATION {name} OWNER TO moments_super"],
            [f"ALTER PUBLICATION {name} OWNER TO CURRENT_USER"],
        ))  # fmt: skip
        before, after = self.random.choice(pairs)
        return [*before, "ROWS"], [*after]

    def _of_table(self, cursor, table: str) -> Pair | None:
        schema, _, bare = table.rpartition(".")
        schema = schema or "public"
        new = self._name("z")
        full = f"{schema}.{bare}"
        return self.random.choice([
            ([f"ALTER TABLE {full} SET UNLOGGED", "ROWS"], [f"ALTER TABLE {full} SET LOGGED"]),
            ([f"ALTER TABLE {full} SET UNLOGGED", f"DELETE FROM {full}"], [f"ALTER TABLE {full} SET LOGGED"]),
            ([f"ALTER TABLE {full} RENAME TO {new}", "ROWS"], [f"ALTER TABLE {schema}.{new} RENAME TO {bare}"]),
            ([f"ALTER TABLE {full} SET SCHEMA hidden", "ROWS"], [f"ALTER TABLE hidden.{bare} SET SCHEMA {schema}"]),
            ([f"ALTER TABLE {full} REPLICA IDENTITY FULL", "ROWS"], [f"ALTER TABLE {full} REPLICA IDENTITY DEFAULT"]),
            ([f"ALTER TABLE {full} REPLICA IDENTITY NOTHING", "ROWS"], [f"ALTER TABLE {full} REPLICA IDENTITY FULL"]),
            ([f"CREATE TABLE {schema}.{new} (id int, v int)", f"ALTER TABLE {schema}.{new} REPLICA IDENTITY FULL", f"INSERT INTO {schema}.{new} VALUES (1, 1), (1, 2)", f"DELETE FROM {schema}.{new} WHERE v = 1", f"ALTER TABLE {schema}.{new} ADD PRIMARY KEY (id)"], ["ROWS", f"DROP TABLE {schema}.{new}"]),
            ([f"CREATE TABLE hidden.{new} (id int PRIMARY KEY)", f"INSERT INTO hidden.{new} VALUES (1)", f"ALTER TABLE hidden.{new} SET SCHEMA {schema}", f"INSERT INTO {schema}.{new} VALUES (2)"], ["ROWS", f"DROP TABLE {schema}.{new}"]),
            ([f"CREATE RULE {new} AS ON INSERT TO {full} DO INSTEAD NOTHING", "ROWS"], [f"DROP RULE {new} ON {full}"]),
            ([f"ALTER TABLE {full} ENABLE ROW LEVEL SECURITY", "ROWS"], [f"ALTER TABLE {full} DISABLE ROW LEVEL SECURITY"]),
            ([f"TRUNCATE {full}", "ROWS"], []),
            ([f"CREATE TABLE {schema}.{new} AS TABLE {full}", f"TRUNCATE {full}", f"INSERT INTO {full} SELECT * FROM {schema}.{new}"], [f"DROP TABLE {schema}.{new}"]),
            ([f"DROP TABLE {full} CASCADE", f"CREATE TABLE {full} (id int PRIMARY KEY, v text)", f"INSERT INTO {full} VALUES (1, 'again')"], []),
            ([f"ALTER TABLE {full} OWNER TO moments", "ROWS"], [f"ALTER TABLE {full} OWNER TO CURRENT_USER"]),
            (["ALTER TABLE down NO INHERIT up", "ROWS"], ["ALTER TABLE down INHERIT up"]),
            ([f"CREATE TABLE {schema}.{new} () INHERITS ({full})", f"INSERT INTO {schema}.{new} SELECT * FROM ONLY {full} LIMIT 3", f"UPDATE {full} SET id = id + 7000"], [f"DROP TABLE {schema}.{new}"]),
            ([f"ALTER TABLE {full} SET TABLESPACE moments", "ROWS"], [f"ALTER TABLE {full} SET TABLESPACE pg_default"]),
            ([f"ALTER TABLE {full} SET UNLOGGED, SET TABLESPACE moments", "ROWS"], [f"ALTER TABLE {full} SET LOGGED"]),
            ([f"CREATE POLICY {new} ON {full} USING (id % 2 = 0)", f"ALTER TABLE {full} FORCE ROW LEVEL SECURITY, ENABLE ROW LEVEL SECURITY", "ROWS"], [f"DROP POLICY {new} ON {full}", f"ALTER TABLE {full} NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY"]),
            ([f"ALTER TABLE {full} OWNER TO moments", "ROWS"], ["REASSIGN OWNED BY moments TO CURRENT_USER"]),
            ([f"CREATE TABLE {schema}.{new} (id int REFERENCES {full} ON DELETE CASCADE)", f"TRUNCATE {full} CASCADE", "ROWS"], [f"DROP TABLE {schema}.{new}"]),
            ([f"CREATE TEMP TABLE {bare} AS TABLE {full}", f"DELETE FROM {full} WHERE id % 3 = 0", f"UPDATE pg_temp.{bare} SET id = 0"], [f"DROP TABLE pg_temp.{bare}"]),
            ([f"CREATE TABLE {schema}.{new} (LIKE {full} INCLUDING ALL)", f"INSERT INTO {schema}.{new} SELECT * FROM {full} WHERE id % 2 = 0", f"DROP TABLE {full} CASCADE"], [f"ALTER TABLE {schema}.{new} RENAME TO {bare}"]),
            ([f"CREATE TABLE {schema}.{new} (LIKE {full} INCLUDING ALL)", f"ALTER TABLE {full} RENAME TO {new}_1", f"ALTER TABLE {schema}.{new} RENAME TO {bare}", "ROWS"], [f"DROP TABLE {full}", f"ALTER TABLE {schema}.{new}_1 RENAME TO {bare}"]),
            ([f"CREATE UNIQUE INDEX {new} ON {full} (id)", f"ALTER TABLE {full} REPLICA IDENTITY USING INDEX {new}", "ROWS"], [f"DROP INDEX {schema}.{new}", "ROWS", f"ALTER TABLE {full} REPLICA IDENTITY DEFAULT"]),
            ([f"CREATE MATERIALIZED VIEW {new} AS TABLE {full}", "ROWS"], [f"REFRESH MATERIALIZED VIEW {new}", f"DROP MATERIALIZED VIEW {new}"]),
            ([f"CREATE OR REPLACE RULE {new} AS ON DELETE TO {full} DO ALSO UPDATE a SET id = id WHERE id = OLD.id", f"DELETE FROM {full} WHERE id % 5 = 0"], [f"DROP RULE {new} ON {full}"]),
            ([f"ALTER SCHEMA {schema} RENAME TO {new}", "ROWS"], [f"ALTER SCHEMA {new} RENAME TO {schema}"]) if schema != "public" else (["ROWS"], []),
        ])  # fmt: skip

    def _of_column(self, cursor, table: str) -> Pair | None:
        columns = [(n, k) for n, k, is_key in self._columns(cursor, table) if not is_key]
        if not columns:
            return None
        name, kind = self.random.choice(columns)
        new = self._name("y")
        changed = {"integer": f"{name} + 1000", "text": f"{name} || '!'", "numeric(20,4)": f"{name} * 2",
                   "bigint": f"{name} - 5"}.get(kind, name)  # fmt: skip
        return self.random.choice([
            ([f"ALTER TABLE {table} ALTER {name} TYPE {kind} USING {changed}"], ["ROWS"]),
            ([f"ALTER TABLE {table} ALTER {name} TYPE text USING upper({name}::text)", "ROWS"],
             [f"ALTER TABLE {table} ALTER {name} TYPE {kind} USING NULL"]),
            ([f"ALTER TABLE {table} RENAME {name} TO {new}", "ROWS"], [f"ALTER TABLE {table} RENAME {new} TO {name}"]),
            ([f"ALTER TABLE {table} DROP {name} CASCADE", "ROWS"], [f"ALTER TABLE {table} ADD {name} {kind}"]),
            ([f"ALTER TABLE {table} ADD {new} float8 DEFAULT random()", "ROWS"], [f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} ADD {new} int DEFAULT 5", "ROWS"], [f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} ADD {new} int DEFAULT 5", "ROWS", f"ALTER TABLE {table} DROP {new}"], [f"ALTER TABLE {table} ADD {new} int DEFAULT 6", "ROWS", f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} ADD {new} pair", f"UPDATE {table} SET {new} = ROW(NULL, 1)::pair", f"ALTER TYPE pair ADD ATTRIBUTE {new} int CASCADE", "ROWS"], [f"ALTER TYPE pair DROP ATTRIBUTE {new} CASCADE", f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} ADD {new} int GENERATED BY DEFAULT AS IDENTITY", "ROWS"], [f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} ADD {new} text GENERATED ALWAYS AS (id::text) STORED", "ROWS"], [f"ALTER TABLE {table} ALTER {new} DROP EXPRESSION", "ROWS", f"ALTER TABLE {table} DROP {new}"]),
            ([f'ALTER TABLE {table} ALTER {name} TYPE {kind} COLLATE "C"', "ROWS"], [f"ALTER TABLE {table} ALTER {name} TYPE {kind}"]),
            ([f"ALTER TABLE {table} ALTER {name} SET DEFAULT NULL, ALTER {name} SET STATISTICS 7", "ROWS"], [f"ALTER TABLE {table} ALTER {name} DROP DEFAULT"]),
            ([f"ALTER TABLE {table} ADD {new} small DEFAULT 9", "ROWS"], [f"ALTER TABLE {table} ALTER {new} TYPE bigint", "ROWS", f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} ADD CONSTRAINT {new} CHECK (id < 1000000) NOT VALID", "ROWS"], [f"ALTER TABLE {table} VALIDATE CONSTRAINT {new}", f"ALTER TABLE {table} DROP CONSTRAINT {new}"]),
            ([f"ALTER TABLE {table} ALTER id TYPE bigint", "ROWS"], [f"ALTER TABLE {table} ALTER id TYPE int"]),
            ([f"ALTER TABLE {table} ALTER id TYPE int USING id + 20000", "ROWS"], [f"ALTER TABLE {table} ALTER id TYPE int USING id - 20000"]),
            ([f"ALTER TABLE {table} ALTER {name} SET STORAGE EXTERNAL", "ROWS"], [f"ALTER TABLE {table} ALTER {name} SET STORAGE PLAIN"]),
            ([_DEEP, f"SELECT deep({self.random.choice((300, 700, 718, 730, 760))}, $q$ALTER TABLE {table} ALTER {name} TYPE {kind} USING {changed}$q$)"], ["ROWS"]),
        ])  # fmt: skip

    def _of_type(self, cursor, table: str) -> Pair | None:
        cursor.execute(
            "SELECT quote_literal(enumlabel) FROM pg_enum WHERE enumtypid = 'mood'::regtype"
        )
        label = self.random.choice([one for (one,) in cursor.fetchall()])
        new = self._name("label")
        return self.random.choice([
            ([f"ALTER TYPE mood RENAME VALUE {label} TO '{new}'", "INSERT INTO e (id, m) SELECT max(id) + 1, min(m) FROM e", "ROWS"],
             [f"ALTER TYPE mood RENAME VALUE '{new}' TO {label}"]),
            ([f"ALTER TYPE mood RENAME VALUE {label} TO '{new}'", "ROWS"], []),
            ([f"ALTER TYPE mood ADD VALUE '{new}'"], ["ROWS"]),
            ([f"ALTER DOMAIN small ADD CONSTRAINT {new} CHECK (VALUE > -5)", "ROWS"], [f"ALTER DOMAIN small DROP CONSTRAINT {new}"]),
            ([f"ALTER TYPE mood RENAME TO {new}", "ROWS"], [f"ALTER TYPE {new} RENAME TO mood"]),
            ([f"ALTER TYPE pair RENAME ATTRIBUTE n TO {new}", "ROWS"], [f"ALTER TYPE pair RENAME ATTRIBUTE {new} TO n"]),
            (["ALTER TABLE g ALTER w DROP EXPRESSION", "ROWS"], []),
            ([f"ALTER TYPE pair ADD ATTRIBUTE {new} int CASCADE", "ROWS"], [f"ALTER TYPE pair DROP ATTRIBUTE {new} CASCADE"]),
            (["ALTER TYPE pair ALTER ATTRIBUTE n TYPE bigint CASCADE", "ROWS"], ["ALTER TYPE pair ALTER ATTRIBUTE n TYPE int CASCADE"]),
            ([f"ALTER DOMAIN small RENAME TO {new}", "ROWS"], [f"ALTER DOMAIN {new} RENAME TO small"]),
            (["ALTER DOMAIN small SET DEFAULT 3", "ROWS"], ["ALTER DOMAIN small DROP DEFAULT"]),
            (["ALTER TYPE mood SET SCHEMA one", "ROWS"], ["ALTER TYPE one.mood SET SCHEMA public"]),
            ([f"CREATE TYPE {new} AS ENUM ('sad', 'ok')", f"ALTER TABLE e ALTER m TYPE {new} USING CASE m::text WHEN 'ok' THEN 'sad' ELSE 'ok' END::{new}", "ROWS"], ["ALTER TABLE e ALTER m TYPE mood USING 'ok'"]),
        ])  # fmt: skip

    def _of_partition(self, cursor, table: str) -> Pair | None:
        cursor.execute(
            "SELECT i.inhparent::regclass::text, i.inhrelid::regclass::text,"
            " pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits i JOIN pg_class c"
            " ON c.oid = i.inhrelid WHERE c.relispartition AND c.relkind = 'r' ORDER BY 1, 2"
        )
        if not (parts := cursor.fetchall()):
            return None
        root, part, bound = self.random.choice(parts)
        new = self._name("q")
        attach = f"ALTER TABLE {root} ATTACH PARTITION {part} {bound}"
        return self.random.choice([
            ([f"ALTER TABLE {root} DETACH PARTITION {part}", f"DELETE FROM {part} WHERE id % 2 = 0"], [attach]),
            ([f"ALTER TABLE {root} DETACH PARTITION {part}", f"UPDATE {part} SET v = 'detached'"], [attach]),
            ([f"ALTER TABLE {root} DETACH PARTITION {part}", f"CREATE TABLE {new} (LIKE {part} INCLUDING ALL)", f"INSERT INTO {new} SELECT * FROM {part} WHERE id % 2 = 0", f"ALTER TABLE {root} ATTACH PARTITION {new} {bound}", "ROWS"], [f"ALTER TABLE {root} DETACH PARTITION {new}", f"DROP TABLE {new}", attach]),
            ([f"ALTER TABLE {root} DETACH PARTITION {part}", f"ALTER TABLE {part} RENAME TO {new}", f"INSERT INTO {new} SELECT * FROM {new} LIMIT 0"], [f"ALTER TABLE {new} RENAME TO {part}", attach]),
            ([f"ALTER TABLE {part} SET TABLESPACE moments", "ROWS"], [f"ALTER TABLE {part} SET TABLESPACE pg_default"]),
            ([f"TRUNCATE {part}", "ROWS"], []),
            ([f"ALTER TABLE {part} SET UNLOGGED", f"UPDATE {part} SET v = 'unlogged'"], [f"ALTER TABLE {part} SET LOGGED"]),
            ([f"SET session_replication_role = replica; TRUNCATE {part}; RESET session_replication_role"], ["ROWS"]),
        ])  # fmt: skip

    def _of_attached(self, cursor, table: str) -> Pair | None:
        """A captured table that is a partition for a moment."""
        new = self._name("pt")
        attach = "ALTER TABLE p ATTACH PARTITION odd FOR VALUES FROM (700) TO (800)"
        detach = "ALTER TABLE p DETACH PARTITION odd"
        return self.random.choice([
            ([attach, "UPDATE p SET v = 'both' WHERE id % 5 = 0", "ROWS"], [detach]),
            ([attach, "UPDATE odd SET v = 'odd' WHERE id % 3 = 0", "ROWS"], [detach]),
            ([attach, "ALTER TABLE p ALTER v TYPE text USING v || '~'", "ROWS"], [detach]),
            ([attach, f"ALTER TABLE p ADD {new} int DEFAULT 2", "ROWS"], [f"ALTER TABLE p DROP {new}", detach]),
            ([attach, f"ALTER TABLE p RENAME v TO {new}", "ROWS"], [f"ALTER TABLE p RENAME {new} TO v", detach]),
            ([attach, "UPDATE p SET id = id + 200 WHERE id BETWEEN 500 AND 540", "ROWS"], [detach]),
            (["ALTER TABLE odd SET UNLOGGED", attach, "ROWS"], [detach, "ALTER TABLE odd SET LOGGED"]),
            ([attach, f"ALTER TABLE odd RENAME TO {new}", "ROWS"], [f"ALTER TABLE {new} RENAME TO odd", detach]),
            ([attach, "TRUNCATE p", "INSERT INTO p SELECT n, 'again' FROM generate_series(700, 730) n"], [detach]),
        ])  # fmt: skip

    def _of_row_type(self, cursor, table: str) -> Pair | None:
        """Columns whose type is the row of a captured table."""
        new = self._name("r")
        at = self.random.randint(1, 9999)
        insert = f"INSERT INTO hr (id, r, rs) SELECT {at}, (SELECT x FROM rt x LIMIT 1), ARRAY(SELECT x FROM rt x LIMIT 2) ON CONFLICT DO NOTHING"
        update = f"UPDATE hr SET r = rs[1] WHERE id % 5 = {at % 5}"
        return self.random.choice([
            ([f"ALTER TABLE rt ADD {new} int", insert, update, "ROWS"], [f"ALTER TABLE rt DROP {new}"]),
            ([f"ALTER TABLE rt ADD {new} int", f"UPDATE hr SET r.{new} = 5 WHERE id % 2 = 0", "ROWS"], []),
            ([f"ALTER TABLE rt RENAME b TO {new}", insert], [f"ALTER TABLE rt RENAME {new} TO b", update]),
            (["ALTER TABLE rt DROP b CASCADE", insert], ["ALTER TABLE rt ADD b text", update]),
            ([f"ALTER TABLE rt RENAME TO {new}", "ROWS"], [f"ALTER TABLE {new} RENAME TO rt"]),
            (["ALTER TABLE rt SET SCHEMA one", "ROWS"], ["ALTER TABLE one.rt SET SCHEMA public"]),
            (["ALTER TABLE rt SET SCHEMA hidden", insert, "ROWS"], ["ALTER TABLE hidden.rt SET SCHEMA public"]),
            (["DROP TABLE rt CASCADE", "CREATE TABLE rt (a int PRIMARY KEY, b text)", "ALTER TABLE hr ADD r rt, ADD rs rt[]", "INSERT INTO rt VALUES (1, 'new')", insert], [update]),
            (["ALTER TABLE hr DROP r", "ALTER TABLE rt ALTER a TYPE bigint", "ALTER TABLE hr ADD r rt", insert], ["ROWS"]),
            ([f"CREATE TABLE {new} (LIKE rt)", f"ALTER TABLE hr ALTER r TYPE {new} USING ROW((r).a + 1, 'u')::{new}", "ROWS"], ["ALTER TABLE hr ALTER r TYPE rt USING ROW((r).a, 'back')::rt", f"DROP TABLE {new}"]),
            ([f"CREATE VIEW {new} AS SELECT 1 AS a, 'x'::text AS b", f"ALTER TABLE hr ADD {new}_c {new}", f"UPDATE hr SET {new}_c = ROW(2, 'y')::{new} WHERE id % 2 = 0", f"ALTER VIEW {new} RENAME b TO bb", "ROWS"], [f"ALTER TABLE hr DROP {new}_c", f"DROP VIEW {new}"]),
            (["TRUNCATE rt", "INSERT INTO rt VALUES (5, 'five')", insert], ["ROWS"]),
        ])  # fmt: skip

    def _of_block(self, cursor, table: str) -> Pair | None:
        """Statements of one query: the log has them without a look in between."""
        new, other = self._name("d"), self._name("d")
        columns = [(n, k) for n, k, is_key in self._columns(cursor, table) if not is_key]
        name, kind = self.random.choice(columns) if columns else ("id", "integer")
        schema, _, bare = table.rpartition(".")
        full, aside = f"{schema or 'public'}.{bare}", f"{schema or 'public'}.{new}"
        blocks = [
            (f"ALTER TABLE {table} ADD {new} int DEFAULT 5; UPDATE {table} SET {new} = 6 WHERE id % 2 = 0; ALTER TABLE {table} RENAME {new} TO {other}; ALTER TABLE {table} ALTER {other} TYPE text; DELETE FROM {table} WHERE id % 11 = 0; ALTER TABLE {table} ALTER {other} TYPE int USING length({other}) + 40;", [f"ALTER TABLE {table} DROP {other}"]),
            (f"ALTER TABLE {table} ADD {new} int DEFAULT 5; BEGIN ALTER TABLE {table} ADD {other} int DEFAULT 7; UPDATE {table} SET {other} = 8; RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN UPDATE {table} SET {new} = 9 WHERE id % 3 = 0; END; ALTER TABLE {table} ADD {other} text DEFAULT 'm';", [f"ALTER TABLE {table} DROP {new}, DROP {other}"]),
            (f"DROP TABLE {full} CASCADE; CREATE TABLE {full} (id int PRIMARY KEY, v text); INSERT INTO {full} SELECT n, 'one' FROM generate_series(1, 30) n; DROP TABLE {full}; CREATE TABLE {full} (v text, id int PRIMARY KEY, x int DEFAULT 3); INSERT INTO {full} (id, v) SELECT n, 'two' FROM generate_series(1, 60) n;", []),
            (f"DROP TABLE {full} CASCADE; CREATE TABLE {full} (id int PRIMARY KEY, v text); BEGIN INSERT INTO {full} VALUES (1, 'in'); DROP TABLE {full}; CREATE TABLE {full} (id bigint PRIMARY KEY); RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN INSERT INTO {full} VALUES (2, 'kept'); END;", []),
            (f"CREATE TABLE {aside} AS TABLE {table}; DROP TABLE {full} CASCADE; ALTER TABLE {aside} RENAME TO {bare}; ALTER TABLE {full} ADD PRIMARY KEY (id); UPDATE {full} SET id = id + 5;", []),
            (f"ALTER TABLE {table} DROP {name} CASCADE; ALTER TABLE {table} ADD {name} {kind}; UPDATE {table} SET id = id WHERE id % 2 = 0; ALTER TABLE {table} DROP {name}; ALTER TABLE {table} ADD {name} {kind};", []),
            (f"FOR i IN 1..5 LOOP EXECUTE format('ALTER TABLE {table} ADD {new}_%s int DEFAULT %s', i, i); EXECUTE format('UPDATE {table} SET {new}_%s = 0 WHERE id %% 4 = 1', i); END LOOP; FOR i IN 1..5 LOOP EXECUTE format('ALTER TABLE {table} DROP {new}_%s', i); END LOOP;", []),
            (f"TRUNCATE {table} CASCADE; INSERT INTO {table} (id) VALUES (77); ALTER TABLE {table} ADD {new} int; TRUNCATE {table} CASCADE; INSERT INTO {table} (id) VALUES (78);", [f"ALTER TABLE {table} DROP {new}"]),
            (f"ALTER TABLE {table} RENAME TO {new}; CREATE TABLE {full} (LIKE {aside} INCLUDING ALL); INSERT INTO {full} SELECT * FROM {aside} WHERE id % 2 = 0; DROP TABLE {aside} CASCADE;", []),
            (f"ALTER TABLE {table} ADD {new} int; COMMIT; UPDATE {table} SET {new} = 4 WHERE id % 2 = 1; COMMIT; ALTER TABLE {table} DROP {new}; ROLLBACK; ALTER TABLE {table} RENAME {new} TO {other}; COMMIT; UPDATE {table} SET {other} = 5; ROLLBACK;", [f"ALTER TABLE {table} DROP {other}"]),
            ("ALTER TABLE p DETACH PARTITION p_1; UPDATE p_1 SET v = v || '.'; ALTER TABLE p ATTACH PARTITION p_1 FOR VALUES FROM (200) TO (600); DELETE FROM p WHERE id % 13 = 0; ALTER TABLE p DETACH PARTITION p_1; INSERT INTO p_1 VALUES (599, 'in') ON CONFLICT DO NOTHING; ALTER TABLE p ATTACH PARTITION p_1 FOR VALUES FROM (200) TO (600);", []),
            ("ALTER TABLE p ATTACH PARTITION odd FOR VALUES FROM (700) TO (800); UPDATE p SET v = v || ';' WHERE id % 3 = 0; ALTER TABLE p DETACH PARTITION odd; UPDATE odd SET v = v || ',' WHERE id % 2 = 0;", []),
        ]  # fmt: skip
        block, after = self.random.choice(blocks)
        return [f"DO $$ BEGIN {block} END $$"], ["ROWS", *after]

    def _of_heir(self, cursor, table: str) -> Pair | None:
        """A captured table that inherits from another one for a moment."""
        new = self._name("h")
        start, end = "ALTER TABLE heir INHERIT up", "ALTER TABLE heir NO INHERIT up"
        drop = f"ALTER TABLE heir DROP IF EXISTS {new}"
        return self.random.choice([
            ([start, "UPDATE up SET v = 'both' WHERE id % 3 = 0", "ROWS"], [end]),
            ([start, f"ALTER TABLE up ADD {new} int DEFAULT 4", "UPDATE up SET v = 'x' WHERE id % 7 = 0", "ROWS"], [f"ALTER TABLE up DROP {new}", end, drop]),
            ([start, f"ALTER TABLE up RENAME v TO {new}", "ROWS"], [f"ALTER TABLE up RENAME {new} TO v", end]),
            ([start, "ALTER TABLE up ALTER v TYPE text USING upper(v) || '?'", "ROWS"], [end]),
            ([start, "ALTER TABLE up ALTER v TYPE varchar(90)", "ROWS"], ["ALTER TABLE up ALTER v TYPE text", end]),
            ([start, f"ALTER TABLE up ADD {new} float8 DEFAULT random()", "ROWS"], [f"ALTER TABLE up DROP {new}", end, drop]),
            ([start, "TRUNCATE up", "INSERT INTO up SELECT n, 'again' FROM generate_series(1, 30) n", "ROWS"], [end]),
            ([start, "ALTER TABLE up DROP v", "ROWS"], [end, "ALTER TABLE up ADD v text", "ALTER TABLE heir ADD COLUMN IF NOT EXISTS v text"]),
            (["ALTER TABLE down NO INHERIT up", f"ALTER TABLE up ADD {new} int DEFAULT 5", f"ALTER TABLE down ADD {new} int DEFAULT 6", "ALTER TABLE down INHERIT up", "ROWS"], [f"ALTER TABLE up DROP {new}", f"ALTER TABLE down DROP IF EXISTS {new}"]),
            (["DO $$ BEGIN ALTER TABLE heir INHERIT up; ALTER TABLE up ALTER v TYPE text USING v || '+'; ALTER TABLE heir NO INHERIT up; END $$"], ["ROWS"]),
            ([start, "ALTER TABLE up ALTER id TYPE bigint", "ROWS"], ["ALTER TABLE up ALTER id TYPE int", end]),
        ])  # fmt: skip

    def _of_computed(self, cursor, table: str) -> Pair | None:
        """Columns that the source computes, with functions that change."""
        new = self._name("gn")
        return self.random.choice([
            (["CREATE OR REPLACE FUNCTION gf(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 100'", "UPDATE gg SET z = z + 1", "ROWS"], ["CREATE OR REPLACE FUNCTION gf(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1'"]),
            ([f"ALTER TABLE gg ADD {new} int GENERATED ALWAYS AS (gf(v) * 2) STORED", f"ALTER TABLE gg ALTER {new} DROP EXPRESSION", "UPDATE gg SET z = 1 WHERE id % 2 = 0", "ROWS"], [f"ALTER TABLE gg DROP {new}"]),
            ([f"DO $$ BEGIN ALTER TABLE gg ADD {new} int GENERATED ALWAYS AS (gf(v) * 2) STORED; ALTER TABLE gg ALTER {new} DROP EXPRESSION; END $$"], ["ROWS", f"ALTER TABLE gg DROP {new}"]),
            (["DROP FUNCTION gf(int) CASCADE", "CREATE FUNCTION gf(int) RETURNS int IMMUTABLE LANGUAGE sql AS 'SELECT $1 + 1'", "ALTER TABLE gg ADD w int GENERATED ALWAYS AS (gf(v)) STORED", "ROWS"], []),
            (["ALTER TABLE gg ALTER v TYPE bigint USING 1", "ROWS"], []),
            (["ALTER TABLE gg ALTER z TYPE int USING gf(z)", "ROWS"], []),
            ([f"ALTER TABLE gg ADD {new} int DEFAULT gf(3)", "ROWS"], [f"ALTER TABLE gg DROP {new}"]),
            ([f"ALTER TABLE gg ADD {new} int GENERATED ALWAYS AS (v + z) STORED, ALTER z TYPE bigint", "ROWS"], [f"ALTER TABLE gg DROP {new}", "ALTER TABLE gg ALTER z TYPE int"]),
            ([f"CREATE DOMAIN {new} AS int DEFAULT gf(6)", f"ALTER TABLE gg ADD {new}c {new}", "ROWS"], [f"ALTER TABLE gg DROP {new}c", f"DROP DOMAIN {new}"]),
        ])  # fmt: skip

    def _of_extension(self, cursor, table: str) -> Pair | None:
        new = self._name("ex")
        return self.random.choice([
            (["DROP EXTENSION citext CASCADE", "ROWS"], ["CREATE EXTENSION citext", "ALTER TABLE ext ADD c citext"]),
            (["DROP EXTENSION hstore CASCADE", "CREATE EXTENSION hstore", "ALTER TABLE ext ADD h hstore", "UPDATE ext SET h = hstore('b', id::text) WHERE id % 2 = 0"], ["ROWS"]),
            (["ALTER EXTENSION citext SET SCHEMA hidden", "ROWS"], ["ALTER EXTENSION citext SET SCHEMA public"]),
            (["ALTER TABLE ext ALTER c TYPE text", "UPDATE ext SET c = upper(c)", "ROWS"], ["ALTER TABLE ext ALTER c TYPE citext"]),
            (["ALTER TABLE ext ALTER h TYPE text USING h::text", "ROWS"], ["ALTER TABLE ext ALTER h TYPE hstore USING h::hstore"]),
            ([f"ALTER TABLE ext ADD {new} uuid DEFAULT gen_random_uuid()", "ROWS"], [f"ALTER TABLE ext DROP {new}"]),
        ])  # fmt: skip

    def _of_schema(self, cursor, table: str) -> Pair | None:
        """Schemas with tables of one name; locks of these do not hold their schemas."""
        cursor.execute(
            "SELECT name FROM unnest('{one,two}'::name[]) name WHERE to_regnamespace(name) IS NULL AND to_regnamespace('away') IS NOT NULL"
        )
        if missing := cursor.fetchone():  # a statement in the midst was cancelled
            return [f"ALTER SCHEMA away RENAME TO {missing[0]}"], ["ROWS"]
        steps = (("one", "away"), ("two", "one"), ("away", "two"))
        swap = [f"ALTER SCHEMA {was} RENAME TO {now}" for was, now in steps]
        return self.random.choice([
            (swap, ["ROWS"]),
            ([*swap, "ROWS"], swap),
            (["ALTER SCHEMA one RENAME TO away", "ROWS"], ["ALTER SCHEMA away RENAME TO one"]),
        ])  # fmt: skip

    def _of_key(self, cursor, table: str) -> Pair | None:
        """Keys that change, come by an index, or are given up for a moment."""
        cursor.execute(
            "SELECT quote_ident(conname), pg_get_constraintdef(oid) FROM pg_constraint"
            " WHERE conrelid = %s::regclass AND contype = 'p' AND conparentid = 0",
            [table],
        )
        if (found := cursor.fetchone()) is None:
            return None
        name, key = found
        new = self._name("key")
        drop, add = f"DROP CONSTRAINT {name} CASCADE", f"ADD CONSTRAINT {name} {key}"
        columns = [n for n, _, is_key in self._columns(cursor, table) if not is_key]
        other = self.random.choice(columns or ["id"])
        return self.random.choice([
            ([f"ALTER TABLE {table} {drop}", "ROWS"], [f"ALTER TABLE {table} {add}"]),
            ([f"ALTER TABLE {table} {drop}, REPLICA IDENTITY FULL", "ROWS"], [f"ALTER TABLE {table} {add}, REPLICA IDENTITY DEFAULT"]),
            ([f"ALTER TABLE {table} {drop}, {add} DEFERRABLE", "ROWS"], [f"ALTER TABLE {table} {drop}, {add}"]),
            ([f"CREATE UNIQUE INDEX {new} ON {table} (id)", f"ALTER TABLE {table} {drop}, ADD CONSTRAINT {name} PRIMARY KEY USING INDEX {new}", "ROWS"], []),
            ([f"ALTER TABLE {table} ADD {new} int", f"UPDATE {table} SET {new} = id + 1", f"ALTER TABLE {table} ALTER {new} SET NOT NULL, {drop}, ADD CONSTRAINT {name} PRIMARY KEY ({new})", f"DELETE FROM {table} WHERE {new} % 4 = 0", f"UPDATE {table} SET id = id + 1, {new} = {new} + 4000"], [f"ALTER TABLE {table} {drop}, {add}", f"ALTER TABLE {table} DROP {new}"]),
            ([f"ALTER TABLE {table} {drop}, ADD CONSTRAINT {name} PRIMARY KEY (id, {other})", "ROWS"], [f"ALTER TABLE {table} {drop}, {add}, ALTER {other} DROP NOT NULL"]),
            ([f"ALTER TABLE {table} RENAME id TO {new}", f"DELETE FROM {table} WHERE {new} % 6 = 0"], [f"ALTER TABLE {table} RENAME {new} TO id"]),
            ([f"ALTER TABLE {table} {drop}", f"INSERT INTO {table} SELECT * FROM {table} LIMIT 3", f"DELETE FROM {table} x WHERE EXISTS (SELECT FROM {table} y WHERE y.id = x.id AND y.ctid < x.ctid)"], [f"ALTER TABLE {table} {add}"]),
            ([f"ALTER TABLE {table} RENAME CONSTRAINT {name} TO {new}", "ROWS"], [f"ALTER TABLE {table} RENAME CONSTRAINT {new} TO {name}"]),
            ([f"ALTER TABLE {table} {drop}, DROP id CASCADE", f"ALTER TABLE {table} ADD id int GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY", "ROWS"], []),
        ])  # fmt: skip

    def _of_long(self, cursor, table: str) -> Pair | None:
        """Values that stand apart from their rows: an update that leaves them does not send them."""
        names = [
            n for n, kind, is_key in self._columns(cursor, table) if kind == "text" and not is_key
        ]
        if not names:
            return None
        name, new = self.random.choice(names), self._name("long")
        fill = f"UPDATE {table} SET {name} = (SELECT string_agg(md5(n::text || id), '') FROM generate_series(1, 300) n) WHERE id % 3 = 0"
        move = f"UPDATE {table} SET id = id + 9000 WHERE id % 6 = 0"
        return self.random.choice([
            ([fill, move], ["ROWS"]),
            ([fill, f"ALTER TABLE {table} RENAME {name} TO {new}", move], [f"ALTER TABLE {table} RENAME {new} TO {name}", "ROWS"]),
            ([fill, f"ALTER TABLE {table} ADD {new} int DEFAULT 3", move, "ROWS"], [f"ALTER TABLE {table} DROP {new}"]),
            ([fill, f"ALTER TABLE {table} REPLICA IDENTITY FULL", move], [f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT", "ROWS"]),
            ([fill, f"ALTER TABLE {table} ALTER {name} SET STORAGE EXTERNAL", f"UPDATE {table} SET {name} = {name} || '' WHERE id % 2 = 0", move], [f"ALTER TABLE {table} ALTER {name} SET STORAGE EXTENDED"]),
            ([fill, f"ALTER TABLE {table} ALTER {name} TYPE varchar(90000)", move], [f"ALTER TABLE {table} ALTER {name} TYPE text", "ROWS"]),
            ([fill, f"VACUUM FULL {table}", move], [f"UPDATE {table} SET {name} = NULL WHERE id % 9 = 0"]),
        ])  # fmt: skip

    def _of_space(self, cursor, table: str) -> Pair | None:
        """Schemas that go with all they have, and tables that pass through others."""
        schema, _, bare = table.rpartition(".")
        new, there = self._name("s"), schema or "public"
        other = {"public": "one", "one": "two", "two": "public"}.get(there, "public")
        return self.random.choice([
            ([f"ALTER TABLE {table} SET SCHEMA {other}", "ROWS"], [f"ALTER TABLE {other}.{bare} SET SCHEMA {there}"]),
            (["DROP SCHEMA two CASCADE", "CREATE SCHEMA two CREATE TABLE k (id int PRIMARY KEY, v text, long text)", "INSERT INTO two.k SELECT n, 'again' FROM generate_series(1, 40) n"], ["ROWS"]),
            ([f"CREATE SCHEMA {new}", f"CREATE TABLE {new}.{bare} AS TABLE {table}", f"ALTER TABLE {table} SET SCHEMA {new}_x"], [f"DROP SCHEMA {new} CASCADE"]),
            ([f"CREATE SCHEMA {new}", f"CREATE TABLE {new}.{bare} (LIKE {table} INCLUDING ALL)", f"INSERT INTO {new}.{bare} SELECT * FROM {table} WHERE id % 2 = 0", f"DROP TABLE {there}.{bare} CASCADE", f"ALTER TABLE {new}.{bare} SET SCHEMA {there}", f"DROP SCHEMA {new}"], ["ROWS"]),
            ([f"ALTER TABLE {table} SET SCHEMA hidden", f"CREATE TABLE {there}.{bare} (LIKE hidden.{bare} INCLUDING ALL)", f"INSERT INTO {there}.{bare} SELECT * FROM hidden.{bare} LIMIT 5", "ROWS"], [f"DROP TABLE {there}.{bare}", f"ALTER TABLE hidden.{bare} SET SCHEMA {there}"]),
            ([f"CREATE TABLE hidden.{new} (LIKE {table} INCLUDING ALL)", f"ALTER TABLE hidden.{new} SET SCHEMA {other}", f"INSERT INTO {other}.{new} SELECT * FROM {table} LIMIT 9"], [f"ALTER TABLE {other}.{new} SET SCHEMA hidden", f"DROP TABLE hidden.{new}"]),
        ])  # fmt: skip

    def _of_harmless(self, cursor, table: str) -> Pair | None:
        new = self._name("i")
        return self.random.choice([
            ([f"VACUUM FULL {table}"], ["ROWS"]),
            ([f"VACUUM (FREEZE) {table}", "VACUUM FULL pg_publication", "VACUUM FULL pg_publication_rel"], []),
            ([f"CREATE INDEX {new} ON {table} (id)", f"CLUSTER {table} USING {new}"], [f"DROP INDEX {new}"]),
            (["REINDEX TABLE a", "ANALYZE"], ["ROWS"]),
            ([f"ALTER TABLE {table} SET TABLESPACE moments"], ["ROWS", f"ALTER TABLE {table} SET TABLESPACE pg_default"]),
            ([f"ALTER TABLE {table} SET (fillfactor = 50)", "ROWS"], [f"ALTER TABLE {table} RESET (fillfactor)"]),
            (["CREATE ROLE moments_x; GRANT moments TO moments_x; ALTER ROLE moments_x RENAME TO moments_y", "ROWS"], ["DROP ROLE moments_y"]),
            ([f"SELECT pg_logical_emit_message(true, 'moments', '{new}')", "ROWS"], []),
            ([f"LOCK TABLE {table} IN ACCESS EXCLUSIVE MODE", "ROWS"], []),
            ([f"GRANT SELECT ON {table} TO PUBLIC"], [f"REVOKE SELECT ON {table} FROM PUBLIC"]),
        ])  # fmt: skip

    def _of_storage(self, cursor, table: str) -> Pair | None:
        """Rows and indexes are written anew, frozen or locked, or by subtransactions that end."""
        schema, _, bare = table.rpartition(".")
        new, there = self._name("f"), schema or "public"
        kept, file = f"{there}.{new}", f"/tmp/moments_{self.publication}_{new}"
        again = f"TRUNCATE {table} CASCADE; COPY {table} FROM '{file}'"
        undone = "RAISE EXCEPTION 'x'; EXCEPTION WHEN raise_exception THEN NULL; END"
        return self.random.choice([
            ([f"COPY {table} TO '{file}'", f"{again} WITH (FREEZE)", "ROWS"], []),
            ([f"COPY {table} TO '{file}'", again, f"VACUUM (FULL, FREEZE) {table}"], ["ROWS"]),
            ([f"REINDEX TABLE CONCURRENTLY {table}", "ROWS"], []),
            ([f"CREATE UNIQUE INDEX CONCURRENTLY {new} ON {table} (id)", f"ALTER TABLE {table} REPLICA IDENTITY USING INDEX {new}", "ROWS", f"REINDEX INDEX CONCURRENTLY {kept}", "ROWS"], [f"ALTER TABLE {table} REPLICA IDENTITY DEFAULT", f"DROP INDEX {kept}"]),
            ([f"CREATE UNIQUE INDEX {new} ON {table} (id)", f"ALTER TABLE {table} DROP CONSTRAINT {bare}_pkey CASCADE, ADD CONSTRAINT {new}_k PRIMARY KEY USING INDEX {new}", "ROWS"], [f"ALTER TABLE {table} RENAME CONSTRAINT {new}_k TO {bare}_pkey"]),
            ([f"SELECT count(*) FROM (SELECT FROM {table} FOR UPDATE) x", f"SELECT count(*) FROM (SELECT FROM {table} FOR KEY SHARE) x", "ROWS"], [f"VACUUM (FREEZE) {table}"]),
            ([f"MERGE INTO {table} t USING (SELECT id + 3 AS id FROM {table} WHERE id % 5 = 0) s ON t.id = s.id WHEN MATCHED AND s.id % 2 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET id = -s.id"], ["ROWS"]),
            ([f"DO $$ BEGIN FOR i IN 1..90 LOOP BEGIN UPDATE {table} SET id = id WHERE id = i; DELETE FROM {table} WHERE id = i + 100; IF i % 3 = 0 THEN RAISE EXCEPTION 'x'; END IF; EXCEPTION WHEN raise_exception THEN NULL; END; END LOOP; END $$"], ["ROWS"]),
            ([f"DO $$ BEGIN BEGIN ALTER TABLE {table} ADD {new} int DEFAULT 4; UPDATE {table} SET {new} = id; {undone}; UPDATE {table} SET id = id WHERE id % 5 = 0; END $$"], ["ROWS"]),
            ([f"DO $$ BEGIN BEGIN TRUNCATE {table} CASCADE; {undone}; DELETE FROM {table} WHERE id % 8 = 0; END $$", f"DO $$ BEGIN BEGIN ALTER TABLE {table} RENAME TO {new}; UPDATE {kept} SET id = id; {undone}; UPDATE {table} SET id = id WHERE id % 5 = 1; END $$"], ["ROWS"]),
            ([f"DO $$ BEGIN BEGIN ALTER TABLE {table} ALTER id TYPE bigint; {undone}; ALTER TABLE {table} ADD {new} int DEFAULT 5; END $$", "ROWS"], [f"ALTER TABLE {table} DROP {new}"]),
        ])  # fmt: skip

    def _of_trigger(self, cursor, table: str) -> Pair | None:
        if not self.has_triggers:
            return self._of_column(cursor, table)
        which = self.random.choice(("end", "drop", "rewrite"))
        off = f"ALTER EVENT TRIGGER gauss_cdc_ddl_{which} DISABLE"
        on = f"ALTER EVENT TRIGGER gauss_cdc_ddl_{which} ENABLE ALWAYS"
        kind = self.random.choice(
            ("column", "table", "type", "partition", "attached", "row_type", "block", "heir")
        )
        inner = getattr(self, f"_of_{kind}")(cursor, table) or (["ROWS"], [])
        return [off, *inner[0]], [*inner[1], on]

    def _of_dump(self, cursor, table: str) -> Pair | None:
        return [f"DUMP {table}"], ["ROWS"]

    def _restore(self, table: str) -> None:
        """Drop a table and bring it back from a dump, as `pg_dump | psql` does."""
        program = shutil.which("pg_dump")
        assert program is not None
        dump = subprocess.run(
            [program, "-t", table, *_AS_IT_WAS, self.url],
            capture_output=True, text=True, check=False, env={**os.environ, "PGOPTIONS": ""},
        )  # fmt: skip
        if dump.returncode:
            self.done.append(f"dump: -- {dump.stderr.splitlines()[:1]}")
            return
        subprocess.run(
            [shutil.which("psql") or "psql", "-q", "-X", "-v", "ON_ERROR_STOP=0", self.url],
            # Who holds the table may be ourselves.
            input=dump.stdout.replace("SET lock_timeout = 0;", "SET lock_timeout = '2s';"),
            capture_output=True, text=True, check=False,
        )  # fmt: skip
