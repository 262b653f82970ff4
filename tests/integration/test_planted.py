"""Objects that somebody puts where ours are, so that her code runs with our rights.

Her function counts its calls in a sequence, which no rollback takes back.  Whatever she plants, we
name it, and it is never called.
"""

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Any

import psycopg2
import pytest

from gauss_cdc.gauss_dbapi import connect as connect_gauss
from producer.core.ports import Wish
from producer.errors import NotOurs, SourceError
from producer.sources import requests
from producer.sources.dial import ConnectionArguments, parse_dsn
from producer.sources.gauss import marks
from producer.sources.gauss.connection import GaussConnection
from producer.sources.postgres import catalog
from schemas.control import LoadPhase
from schemas.findings import Level
from schemas.ownership import MARKS, REQUESTS
from schemas.tables import Column, TableId, UserType
from spark_consumers.errors import MissingTable, TargetRefused
from spark_consumers.loop.job import Applier
from spark_consumers.sinks.base import Setup
from spark_consumers.sinks.postgres.checks import PostgresInspector
from spark_consumers.sinks.postgres.products import OPENGAUSS, POSTGRES
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.gauss_facade import PASSWORD, USER, facade
from tests.e2e.path import pause, until
from tests.services_fixtures import execute
from tests.spark_consumers.feed import Feed, insert, table

HERS = """
CREATE ROLE {her}; GRANT CREATE ON DATABASE {database} TO {her};
CREATE ROLE {role}; GRANT CREATE, TEMP ON DATABASE {database} TO {role};
SET ROLE {her};
CREATE SCHEMA hers; GRANT USAGE ON SCHEMA hers TO PUBLIC;
CREATE SEQUENCE hers.calls; GRANT USAGE ON SEQUENCE hers.calls TO PUBLIC;
CREATE FUNCTION hers.call(anything text DEFAULT '') RETURNS bool LANGUAGE plpgsql IMMUTABLE AS
    'BEGIN PERFORM pg_catalog.nextval(''hers.calls''); RETURN true; END';
CREATE FUNCTION hers.call_by_row() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM hers.call(); RETURN coalesce(NEW, OLD); END';
CREATE DOMAIN hers.text AS text CHECK (hers.call(VALUE));
RESET ROLE;
"""
# By name: what she does to one of our tables, and what we say of it.
_WRITTEN = "GRANT ALL ON gauss_cdc.{table} TO PUBLIC"
_MADE_BY_HER = (
    "CREATE TABLE hers.copy AS SELECT * FROM gauss_cdc.{table};"
    "DROP TABLE gauss_cdc.{table} CASCADE; GRANT ALL ON SCHEMA gauss_cdc TO {her};"
    "GRANT ALL ON hers.copy TO PUBLIC; SET ROLE {her};"
)
PLANTED = {
    "schema": (
        "ALTER SCHEMA gauss_cdc OWNER TO {her}; GRANT USAGE, CREATE ON SCHEMA gauss_cdc TO PUBLIC",
        "schema gauss_cdc is not ours: it belongs to {her}",
    ),
    "owner": (
        (
            "ALTER TABLE gauss_cdc.{table} OWNER TO {her}; CREATE TRIGGER t BEFORE INSERT OR UPDATE"
            " OR DELETE ON gauss_cdc.{table} FOR EACH ROW EXECUTE FUNCTION hers.call_by_row();"
            f"ALTER TABLE gauss_cdc.{{table}} ENABLE ALWAYS TRIGGER t; {_WRITTEN}"
        ),
        "it belongs to {her}",
    ),
    "view": (
        (
            f"{_MADE_BY_HER} CREATE VIEW gauss_cdc.{{table}} AS SELECT c.*, hers.call() AS x"
            f" FROM hers.copy c; {_WRITTEN}"
        ),
        "it belongs to {her}",
    ),
    "table": (
        (
            f"{_MADE_BY_HER} RESET ROLE; ALTER TABLE hers.copy RENAME TO {{table}};"
            "ALTER TABLE hers.{table} SET SCHEMA gauss_cdc;"
            "ALTER TABLE gauss_cdc.{table} OWNER TO {her}; SET ROLE {her};"
            "CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON gauss_cdc.{table}"
            " EXECUTE FUNCTION hers.call_by_row();"
            "ALTER TABLE gauss_cdc.{table} ENABLE ALWAYS TRIGGER t"
        ),
        "it belongs to {her}",
    ),
    "materialized view": (
        (
            f"{_MADE_BY_HER} CREATE MATERIALIZED VIEW gauss_cdc.{{table}} AS"
            f" SELECT * FROM hers.copy; {_WRITTEN}; RESET ROLE;"
            "ALTER MATERIALIZED VIEW gauss_cdc.{table} OWNER TO CURRENT_USER"
        ),
        "it is not an ordinary table",
    ),
    "partitions": (
        (
            f"{_MADE_BY_HER} RESET ROLE; CREATE TABLE gauss_cdc.{{table}} (LIKE hers.copy)"
            f" PARTITION BY RANGE (slot); {_WRITTEN}"
        ),
        "it is not an ordinary table",
    ),
    "trigger": (
        (
            "CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON gauss_cdc.{table}"
            " EXECUTE FUNCTION hers.call_by_row();"
            "ALTER TABLE gauss_cdc.{table} ENABLE ALWAYS TRIGGER t"
        ),
        "it has trigger t",
    ),
    "rule": (
        "CREATE RULE r AS ON DELETE TO gauss_cdc.{table} DO ALSO SELECT hers.call()",
        "it has rule r",
    ),
    "policy": (
        (
            "ALTER TABLE gauss_cdc.{table} ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;"
            "CREATE POLICY p ON gauss_cdc.{table} USING (hers.call())"
        ),
        "it has row security",
    ),
    "heir": (
        "CREATE TABLE hers.heir (CHECK (hers.call())) INHERITS (gauss_cdc.{table})",
        "hers.heir inherits from gauss_cdc.{table}",
    ),
    "default": (
        (
            "ALTER TABLE gauss_cdc.{table} ADD x bool; ALTER TABLE gauss_cdc.{table}"
            " ALTER x SET DEFAULT hers.call()"
        ),
        "column x has an expression",
    ),
    "the server's own function": (
        (
            "ALTER TABLE gauss_cdc.{table} ADD x xml; ALTER TABLE gauss_cdc.{table} ALTER x"
            " SET DEFAULT query_to_xml('SELECT hers.call()', true, true, '')"
        ),
        "column x has an expression",
    ),
    "generated": (
        "ALTER TABLE gauss_cdc.{table} ADD x bool GENERATED ALWAYS AS (hers.call()) STORED",
        "column x has an expression",
    ),
    "index": (
        "CREATE INDEX i ON gauss_cdc.{table} (hers.call(slot))",
        "index gauss_cdc.i has an expression",
    ),
    "partial index": (
        "CREATE INDEX i ON gauss_cdc.{table} (slot) WHERE hers.call(slot)",
        "index gauss_cdc.i has an expression",
    ),
    "check": (
        "ALTER TABLE gauss_cdc.{table} ADD CONSTRAINT c CHECK (hers.call())",
        "it has a constraint that is not ours, c",
    ),
    "reference": (
        (
            "CREATE TABLE hers.heap AS SELECT slot FROM gauss_cdc.{table};"
            "CREATE UNIQUE INDEX ON gauss_cdc.{table} (slot);"
            "CREATE TABLE hers.child (slot text REFERENCES gauss_cdc.{table} (slot)"
            " ON DELETE CASCADE ON UPDATE CASCADE); INSERT INTO hers.child SELECT * FROM hers.heap;"
            "CREATE TRIGGER t AFTER INSERT OR UPDATE OR DELETE ON hers.child"
            " FOR EACH ROW EXECUTE FUNCTION hers.call_by_row();"
            "ALTER TABLE hers.child OWNER TO {her}"
        ),
        "hers.child references it",
    ),
    "right to reference": (
        "GRANT USAGE ON SCHEMA gauss_cdc TO {her}; GRANT REFERENCES ON gauss_cdc.{table} TO {her}",
        '"{her}" may put code into it, by the right REFERENCES',
    ),
    "right to reference a column": (
        (
            "GRANT USAGE ON SCHEMA gauss_cdc TO {her};"
            "GRANT REFERENCES (slot) ON gauss_cdc.{table} TO {her}"
        ),
        '"{her}" may put code into it, by the right REFERENCES',
    ),
    "statistics": (
        "CREATE STATISTICS hers.s ON (slot || hers.call('')::text) FROM gauss_cdc.{table}",
        "it has statistics that are not ours",
    ),
    "domain": (
        "ALTER TABLE gauss_cdc.{table} ALTER slot TYPE hers.text",
        "column slot has a type that is not the server's",
    ),
    "right": (
        "GRANT USAGE ON SCHEMA gauss_cdc TO {her}; GRANT TRIGGER ON gauss_cdc.{table} TO {her}",
        '"{her}" may put code into it, by the right TRIGGER',
    ),
}


class Planted:
    """A database with her in it, and our sessions there."""

    def __init__(self, url: str, arguments: ConnectionArguments, kind: str) -> None:
        self.url, self.kind = url, kind
        self.her, self.role = (f"{who}_{uuid.uuid4().hex[:9]}" for who in ("her", "cdc"))
        self.arguments = replace(arguments, options=f"-c role={self.role}")
        self.database = url.rpartition("/")[2]

    def run(self, statement: str, **more: str) -> None:
        names = {"her": self.her, "role": self.role, "database": self.database, **more}
        execute(self.url, statement.format(**names))

    def plant(self, name: str, table: str) -> str:
        """Plant something; return what we are to say of it."""
        statement, words = PLANTED[name]
        column = "slot" if table.startswith("snapshot") else "source"
        self.run(statement.replace("slot", column), table=table)
        self.run("SELECT setval('hers.calls', 1, false)")
        return words.replace("slot", column).format(her=self.her, table=table)

    @property
    def is_called(self) -> bool:
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT is_called FROM hers.calls")
            return bool(cursor.fetchone()[0])

    def connect(self) -> Any:
        if self.kind == "postgres":
            return psycopg2.connect(**self.arguments.libpq())
        return connect_gauss(self.arguments)

    def sink(self, **options: object) -> PostgresSink:
        product = POSTGRES if self.kind == "postgres" else OPENGAUSS
        return PostgresSink(self.connect, "bank", product=product, **options)

    def inspector(self) -> PostgresInspector:
        product = POSTGRES if self.kind == "postgres" else OPENGAUSS
        return PostgresInspector(Setup("bank", connect=self.connect), product)

    @contextmanager
    def source(self) -> Iterator[Any]:
        if self.kind == "postgres":
            with closing(catalog.connect(self.arguments)) as connection:
                yield catalog.QueryingConnection(connection)
        else:
            with GaussConnection.open(self.arguments, replication=False) as session:
                yield session


@pytest.fixture(params=["postgres", "opengauss"])
def planted(request: pytest.FixtureRequest, postgres_url: str) -> Iterator[Planted]:
    if request.param == "postgres":
        one = Planted(postgres_url, parse_dsn(postgres_url), "postgres")
        yield from within(one)
        return
    with facade(postgres_url) as front:
        arguments = ConnectionArguments(
            host="127.0.0.1", port=front.emulator.port, dbname=front.database, user=USER,
            password=PASSWORD, sslmode="disable",
        )  # fmt: skip
        one = Planted(postgres_url, arguments, "opengauss")
        yield from within(one, "GRANT SELECT ON ALL TABLES IN SCHEMA gauss_compat TO PUBLIC")


def within(one: Planted, catalog: str = "") -> Iterator[Planted]:
    one.run(HERS + catalog)
    yield one
    for role in (one.her, one.role):
        execute(one.url, f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


def start(planted: Planted) -> None:
    with closing(planted.sink()) as sink:
        until(lambda: sink.start() is not None, "the end of the one before", pause)


# ---------------------------------------------------------------- at the target
def refused(planted: Planted, words: str) -> None:
    """Neither `apply` nor `status` uses it, and `check` says so."""
    with closing(planted.sink()) as sink, pytest.raises(TargetRefused) as caught:
        sink.start()
    with closing(planted.inspector()) as inspector:
        with pytest.raises(TargetRefused) as looked:
            inspector.ledger()
        with pytest.raises(TargetRefused):
            inspector.conflicts()
        found = [f for f in inspector.reach() if f.level is Level.ERROR]

    assert words in str(caught.value)
    assert words in str(looked.value)
    assert words in found[0].what
    assert (found[0].hint, caught.value.hint) == (looked.value.hint, looked.value.hint)
    assert not planted.is_called


@pytest.mark.parametrize("name", PLANTED)
def test_a_ledger_with_code_of_others_is_refused(planted: Planted, name: str) -> None:
    start(planted)

    refused(planted, planted.plant(name, "ledger"))


@pytest.mark.parametrize("table", ["tables", "loads", "shadows", "conflicts", "lease", "shapes"])
def test_so_is_each_other_table_of_ours(planted: Planted, table: str) -> None:
    start(planted)

    refused(planted, f"gauss_cdc.{table} is not ours: {planted.plant('owner', table)}")


@pytest.mark.parametrize("name", ["stage_12345678_1_2_3", "shadow_12345678_4"])
def test_so_are_tables_that_only_begin_like_ours(planted: Planted, name: str) -> None:
    start(planted)
    planted.run("CREATE TABLE gauss_cdc.{table} (source hers.text)", table=name)
    start(planted)  # a stage has types of the target's tables

    refused(planted, planted.plant("owner", name))


def test_a_schema_that_she_made_first_is_refused(planted: Planted) -> None:
    planted.run("SET ROLE {her}; CREATE SCHEMA gauss_cdc; GRANT ALL ON SCHEMA gauss_cdc TO PUBLIC")

    refused(planted, f"schema gauss_cdc is not ours: it belongs to {planted.her}")


@pytest.mark.parametrize(
    ("planted", "moment"),
    [("postgres", ""), ("postgres", "message made"), ("opengauss", "")],
    indirect=["planted"],
)
def test_what_is_put_in_the_ledgers_place_while_apply_runs_is_not_used(
    planted: Planted, moment: str
) -> None:
    """Somebody drops it, and she is there at once: between two passes, or in a step."""
    moments: set[str] = set()

    def at(step: str) -> None:
        if step in moments:
            moments.remove(step)
            planted.plant("table", "ledger")

    with closing(planted.sink(on_step=at)) as sink:
        planted.run("GRANT ALL ON SCHEMA public TO {role}")
        account, feed = table("account", "id integer, name text"), Feed("bank")
        feed.start()
        feed.load(account, LoadPhase.BEGIN)
        feed.load(account, LoadPhase.END)
        applier = Applier(feed.read_cuts, feed.read_rows, sink)
        feed.commits([insert(account, "0", "z")])  # from here on the table is known
        applier.drain()
        moments.add(moment)
        at("")
        feed.commits([insert(account, "1", "a")])
        for attempt in (applier.drain, sink.ledger):
            with pytest.raises(MissingTable, match=r"gauss_cdc\.ledger as it was"):
                attempt()

    assert not planted.is_called


@pytest.mark.parametrize(
    "owner", ["{role}", "CURRENT_USER", "the database's owner", "pg_database_owner"]
)
def test_whose_a_ledger_may_be(planted: Planted, owner: str) -> None:
    """Older releases let the role itself make it."""
    start(planted)
    if owner == "the database's owner":
        planted.run("ALTER DATABASE {database} OWNER TO {her}")
        owner = "{her}"
    for what in ("SCHEMA gauss_cdc", "TABLE gauss_cdc.ledger"):
        planted.run(f"ALTER {what} OWNER TO {owner}")
    planted.run("GRANT ALL ON SCHEMA gauss_cdc TO {role}; GRANT ALL ON gauss_cdc.ledger TO {role}")

    start(planted)

    planted.run("ALTER DATABASE {database} OWNER TO CURRENT_USER")


SHADOWS = (
    (
        "CREATE FUNCTION public.has_database_privilege(name, text) RETURNS bool LANGUAGE sql"
        " AS 'SELECT hers.call()'"
    ),
    (
        "CREATE FUNCTION public.pg_get_userbyid(oid) RETURNS name LANGUAGE sql"
        " AS 'SELECT hers.call()::text::name'"
    ),
    (
        "CREATE FUNCTION public.set_config(text, unknown, bool) RETURNS text LANGUAGE sql"
        " AS 'SELECT hers.call()::text'"
    ),
    (
        "CREATE FUNCTION public.same(name, text) RETURNS bool LANGUAGE sql AS 'SELECT hers.call()';"
        "CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = text, FUNCTION = public.same)"
    ),
    (
        "CREATE FUNCTION public.same(bigint, integer) RETURNS bool LANGUAGE sql"
        " AS 'SELECT hers.call()';"
        "CREATE OPERATOR public.>= (LEFTARG = bigint, RIGHTARG = integer, FUNCTION = public.same)"
    ),
    (
        "CREATE DOMAIN public.text AS pg_catalog.text CHECK (hers.call(VALUE));"
        "CREATE DOMAIN public.oid AS pg_catalog.oid CHECK (hers.call())"
    ),
)


def test_names_in_statements_of_ours_mean_the_servers_own(planted: Planted) -> None:
    """Whatever stands in `public`, and whatever the role or the database prefer to search."""
    for statement in SHADOWS[:2] + SHADOWS[3:]:
        planted.run(statement)
    planted.run("GRANT USAGE, CREATE ON SCHEMA public TO {role}")
    planted.run("ALTER DATABASE {database} SET search_path = public, pg_catalog")
    account = table("account", "id integer, name text, n bigint", unique="name")
    feed = Feed("bank")
    feed.start()
    feed.load(account, LoadPhase.BEGIN)
    feed.load(account, LoadPhase.CHUNK, ["1", "a", "5"])
    feed.load(account, LoadPhase.END)

    with closing(planted.sink()) as sink:
        ledger = Applier(feed.read_cuts, feed.read_rows, sink).drain()
    with closing(planted.inspector()) as inspector:
        found = [f for f in inspector.reach() if f.level is Level.ERROR]
        found += inspector.rights([account.id], has_ledger=True)
        assert inspector.ledger() is not None
    with planted.source() as session:
        requests.ask(session, "slot", [Wish(account.id)])
        assert requests.requests(session, "slot")

    assert (ledger.state, [f for f in found if f.level is Level.ERROR]) == ("EXACT", [])
    assert not planted.is_called


def load(planted: Planted, schema: Any) -> None:
    feed = Feed("bank")
    feed.start()
    feed.load(schema, LoadPhase.BEGIN)
    feed.load(schema, LoadPhase.CHUNK, ["1", "a"])
    feed.load(schema, LoadPhase.END)
    with closing(planted.sink()) as sink:
        Applier(feed.read_cuts, feed.read_rows, sink).drain()


def test_a_table_of_the_sources_that_she_made_first_is_refused(planted: Planted) -> None:
    planted.run(
        "GRANT ALL ON SCHEMA public TO {her}, {role}; SET ROLE {her};"
        "CREATE TABLE public.account (id int PRIMARY KEY, name text);"
        "CREATE TRIGGER t AFTER INSERT ON account FOR EACH ROW EXECUTE FUNCTION hers.call_by_row();"
        "ALTER TABLE account ENABLE ALWAYS TRIGGER t; GRANT ALL ON account TO {role}"
    )
    account = table("account", "id integer, name text")

    with pytest.raises(TargetRefused, match="belongs to another role") as caught:
        load(planted, account)
    with closing(planted.inspector()) as inspector:
        found = list(inspector.rights([account.id], has_ledger=False))

    assert caught.value.hint in [f.hint for f in found if f.level is Level.ERROR]
    assert not planted.is_called
    planted.run("DROP TABLE public.account")
    load(planted, account)


def test_a_table_that_she_put_in_the_place_of_a_loaded_one_is_refused(planted: Planted) -> None:
    """The owner of a schema may drop what is in it."""
    planted.run("CREATE SCHEMA app AUTHORIZATION {her}; GRANT ALL ON SCHEMA app TO {role}")
    plain = table("account", "id integer, name text")
    account, feed = replace(plain, id=TableId("app", "account")), Feed("bank")
    feed.start()
    feed.load(account, LoadPhase.BEGIN)
    feed.load(account, LoadPhase.END)
    with closing(planted.sink()) as sink:
        Applier(feed.read_cuts, feed.read_rows, sink).drain()
    planted.run(
        "SET ROLE {her}; DROP TABLE app.account; CREATE TABLE app.account (id int PRIMARY KEY,"
        " name text); CREATE TRIGGER t AFTER INSERT ON app.account FOR EACH ROW EXECUTE FUNCTION"
        " hers.call_by_row(); ALTER TABLE app.account ENABLE ALWAYS TRIGGER t;"
        "GRANT ALL ON app.account TO {role}"
    )
    feed.commits([insert(account, "1", "a")])

    with closing(planted.sink()) as sink:
        applier = Applier(feed.read_cuts, feed.read_rows, sink)
        with pytest.raises(TargetRefused, match="belongs to another role"):
            applier.drain()

    assert not planted.is_called


def test_a_type_of_the_sources_that_she_made_first_is_not_used(planted: Planted) -> None:
    planted.run("GRANT ALL ON SCHEMA public TO {her}, {role}; SET ROLE {her};"
                "CREATE DOMAIN public.price AS text CHECK (hers.call(VALUE))")  # fmt: skip
    price = UserType("d", "price", "text", 25, -1)
    account = table("account", "id integer, name text")
    of_hers = Column("name", 90003, -1, "public.price", user_type=price)

    load(planted, replace(account, columns=(account.columns[0], of_hers)))

    assert not planted.is_called


# ---------------------------------------------------------------- at the source
@pytest.mark.parametrize("name", PLANTED)
def test_requests_with_code_of_others_are_not_read(planted: Planted, name: str) -> None:
    one = TableId("public", "account")
    with planted.source() as session:
        requests.ask(session, "slot", [Wish(one)])
        words = planted.plant(name, "snapshot_requests")
        notes: list[str] = []
        for_run = requests.OpenRequests("slot")

        for attempt in (
            lambda: requests.requests(session, "slot"),
            lambda: requests.ask(session, "slot", [Wish(one)]),
            lambda: requests.forget(session, "slot", Wish(one)),
        ):
            with pytest.raises(NotOurs) as caught:
                attempt()
            assert words in str(caught.value)
        assert [for_run.newest(session, notes.append) for _ in range(2)] == [{}, {}]
        (found,) = [f for f in requests.check(session) if words in f.what]

    assert (len(notes), found.level) == (1, Level.WARNING)
    assert words in notes[0]
    assert not planted.is_called


def test_what_is_put_in_their_place_between_a_look_and_its_use_is_not_used(
    planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = TableId("public", "account")
    with planted.source() as session:
        requests.ask(session, "slot", [Wish(one)])
        look: Callable[..., str] = requests.own_guard

        def and_then(*asked: Any) -> str:
            found = look(*asked)
            planted.plant("view", REQUESTS.names[0])
            return found

        monkeypatch.setattr(requests, "own_guard", and_then)
        with pytest.raises(SourceError, match=r"gauss_cdc\.snapshot_requests as it was"):
            requests.requests(session, "slot")

    assert not planted.is_called


@pytest.mark.parametrize("name", [n for n in PLANTED if n != "partitions"])
def test_marks_with_code_of_others_are_not_written(planted: Planted, name: str) -> None:
    with planted.source() as session:
        marks.commit_mark(session, "slot", marks.prepare(session, "slot"))
        words = planted.plant(name, MARKS.names[0])

        with pytest.raises(NotOurs) as caught:
            marks.prepare(session, "slot")

    assert words in str(caught.value)
    assert not planted.is_called
