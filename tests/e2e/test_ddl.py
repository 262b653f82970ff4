"""Statements between rows: told by event triggers, applied as barriers, compared at each."""

import pytest
from confluent_kafka import Consumer, TopicPartition

from producer.core.ports import Tuning
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog
from producer.sources.postgres.triggers import install as ddl_triggers
from spark_consumers.loop import job
from spark_consumers.sinks.postgres.sink import PostgresSink
from tests.e2e.path import Path, ask
from tests.e2e.tables import differences

START = """
CREATE TABLE account (id int PRIMARY KEY, owner text, balance numeric(12,2));
INSERT INTO account SELECT g, 'owner ' || g, g * 10 FROM generate_series(1, 20) g;
CREATE TABLE plain (a int, b text);
ALTER TABLE plain REPLICA IDENTITY FULL;
INSERT INTO plain VALUES (1, 'one'), (2, 'two');
CREATE TABLE part (id int, day date, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (100);
CREATE TABLE part_2 PARTITION OF part FOR VALUES FROM (100) TO (200);
INSERT INTO part SELECT g, date '2024-01-01' + g, 'v' FROM generate_series(1, 199, 7) g;
"""
# Each is one transaction; the target is compared when it is applied.
STEPS = (
    """ALTER TABLE account ADD COLUMN note text DEFAULT 'it''s', ADD COLUMN n int""",
    """UPDATE account SET n = id WHERE id % 2 = 0""",
    """
    ALTER TABLE account RENAME COLUMN owner TO holder;
    UPDATE account SET holder = 'x' WHERE id=3
    """,
    """
    ALTER TABLE account DROP COLUMN n;
    ALTER TABLE account ADD COLUMN n text;
    INSERT INTO account VALUES (100, 'new', 5, 'a', 'b')
    """,
    """ALTER TABLE account ALTER balance TYPE text; INSERT INTO account VALUES (101, 'c', 'd')""",
    """
    ALTER TABLE account ALTER id TYPE bigint;
    UPDATE account SET id = id + 5000000000 WHERE id = 7
    """,
    """
    ALTER TABLE account RENAME TO konto;
    UPDATE konto SET note = 'k' WHERE id < 5;
    CREATE TABLE account (id int PRIMARY KEY);
    INSERT INTO account VALUES (1)
    """,
    """
    ALTER TABLE konto DROP CONSTRAINT account_pkey;
    ALTER TABLE konto ADD PRIMARY KEY (id, holder)
    """,
    """CREATE UNIQUE INDEX one_note ON account (id)""",
    """DROP INDEX one_note""",
    """
    CREATE SCHEMA shop;
    CREATE TABLE shop.item (id serial PRIMARY KEY, name varchar(10) UNIQUE);
    INSERT INTO shop.item (name) VALUES ('a'), ('b')
    """,
    """ALTER TABLE shop.item ALTER name TYPE varchar(20)""",
    """ALTER TABLE shop.item SET SCHEMA public; INSERT INTO item (name) VALUES ('c')""",
    """ALTER SCHEMA shop RENAME TO store""",
    """CREATE TABLE copied AS SELECT * FROM konto""",
    """SELECT id, holder INTO copied_2 FROM konto WHERE id < 4""",
    """ALTER TABLE copied ADD PRIMARY KEY (id); UPDATE copied SET note = 'copied' WHERE id = 2""",
    """CREATE TABLE IF NOT EXISTS copied (x int); CREATE TEMP TABLE nothing (a int)""",
    """DROP TABLE copied_2""",
    """
    CREATE TABLE part_3 PARTITION OF part FOR VALUES FROM (200) TO (300);
    INSERT INTO part VALUES (200, '2024-02-02', 'w')
    """,
    """ALTER TABLE part DETACH PARTITION part_1; INSERT INTO part_1 VALUES (-1, NULL, 'alone')""",
    """
    DELETE FROM part_1 WHERE id = -1;
    ALTER TABLE part ATTACH PARTITION part_1 FOR VALUES FROM (0) TO (100)
    """,
    """DROP TABLE part_2""",
    """ALTER TABLE part ADD COLUMN extra int DEFAULT 5; UPDATE part SET extra = 6 WHERE id = 8""",
    """
    DO $$ BEGIN CREATE TABLE made (a int PRIMARY KEY);
    INSERT INTO made VALUES (1);
    ALTER TABLE made ADD COLUMN b int DEFAULT 3;
    INSERT INTO made VALUES (2, 4);
    DO 'BEGIN ALTER TABLE made RENAME b TO c;
    END';
    UPDATE made SET c = 9;
    END $$
    """,
    """CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'ALTER TABLE made ADD COLUMN d text'""",
    """SELECT f(); INSERT INTO made VALUES (3, 5, 'd')""",
    """
    CREATE TYPE mood AS ENUM ('sad');
    CREATE DOMAIN positive AS int CHECK (VALUE > 0);
    CREATE TABLE felt (id positive PRIMARY KEY, m mood);
    INSERT INTO felt VALUES (1, 'sad')
    """,
    """ALTER TYPE mood ADD VALUE 'ok'""",
    """INSERT INTO felt VALUES (2, 'ok'); ALTER TYPE mood RENAME VALUE 'sad' TO 'low'""",
    """TRUNCATE copied; INSERT INTO copied (id, holder) VALUES (5, 'five')""",
    # Not TRUNCATE, which only leads to a known file where a look lies before the ALTER below.
    """DELETE FROM plain; INSERT INTO plain VALUES (5, 'five')""",
    """ALTER TABLE plain ADD COLUMN c timestamptz; ALTER TABLE plain ADD PRIMARY KEY (a)""",
    """
    SET LOCAL TimeZone = 'Asia/Shanghai';
    UPDATE plain SET c = '2024-05-05 12:00';
    ALTER TABLE plain ALTER c TYPE timestamp;
    ALTER TABLE plain ALTER c TYPE text USING c::text
    """,
    """
    CREATE TABLE parent (id int PRIMARY KEY, v int);
    CREATE TABLE child (w int) INHERITS (parent);
    ALTER TABLE parent ADD COLUMN x int DEFAULT 1;
    INSERT INTO child VALUES (1, 2, 3, 4)
    """,
    """
    COMMENT ON TABLE konto IS 'hello';
    CREATE VIEW seen AS SELECT id FROM konto;
    CREATE INDEX ON konto (note);
    ANALYZE konto
    """,
    """ALTER TABLE konto REPLICA IDENTITY FULL; UPDATE konto SET holder = 'full' WHERE id = 3""",
    """
    ALTER TABLE konto ALTER note SET NOT NULL;
    ALTER TABLE konto ALTER note SET DEFAULT 'z';
    INSERT INTO konto (id, holder) VALUES (300, 'defaulted')
    """,
    """
    ALTER TABLE konto RENAME TO swapped;
    ALTER TABLE plain RENAME TO konto;
    ALTER TABLE swapped RENAME TO plain;
    UPDATE plain SET holder = 'swapped' WHERE id = 3
    """,
    """
    ALTER SCHEMA store RENAME TO closed;
    ALTER SCHEMA closed RENAME TO storage;
    CREATE TABLE storage.shelf (id int PRIMARY KEY);
    INSERT INTO storage.shelf VALUES (1)
    """,
    """
    ALTER TYPE mood RENAME VALUE 'low' TO 'down';
    ALTER TYPE mood RENAME VALUE 'down' TO 'blue';
    INSERT INTO felt VALUES (3, 'blue')
    """,
    """DROP SCHEMA storage CASCADE; DROP TABLE made, felt""",
)


def install(url: str, prefix: str, include=("*.*",), exclude=()) -> None:
    connection = catalog.connect(parse_dsn(url))
    try:
        ddl_triggers.install(connection, prefix, include, exclude)
    finally:
        connection.close()


@pytest.fixture
def path(addresses, topic_prefix, new_database):
    source, target = new_database(), new_database()
    ask(source, START)
    often = {"look_seconds": 0.2, "tuning": Tuning(rest_seconds=0.1)}  # at the catalog
    with Path(addresses, topic_prefix, source, target, **often) as path:
        path.start()
        path.catch_up()
        install(source, topic_prefix)
        yield path


@pytest.mark.since(15, "CREATE TABLE AS into a schema that is published whole")
def test_each_statement_is_a_barrier_at_which_the_target_is_equal(path) -> None:
    for step in STEPS:
        ask(path.source, step)
        ledger = path.catch_up()
        # SET SCHEMA: another entry of the publication has it now; it is read again.
        again = {t for t, why in ledger.inexact.items() if "left publication" in why}
        assert again <= {"public.item"}, step
        # A label that was renamed: a row of an open transaction may still come.
        marked = {t for t, why in ledger.inexact.items() if "values of a type as it was: m" in why}
        assert marked <= {"public.felt"}, step
        assert ledger.inexact.keys() == again | marked, step
        assert differences(path.source, path.target, again) == [], step


def names(url: str, kind: str) -> list[str]:
    question = "SELECT relname FROM pg_class WHERE relkind = %s AND relnamespace = %s::regnamespace"
    return sorted(name for (name,) in ask(url, question, kind, "public"))


def test_everything_is_applied_where_the_configuration_says_so(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    ask(source, START)
    with Path(addresses, topic_prefix, source, target, ddl_text=True) as path:
        notes: list[str] = []
        path.sink = PostgresSink(target, topic_prefix, ddl="all", code=True, on_note=notes.append)
        path.applier = job.Applier(path.cuts, path.rows, path.sink)
        path.start()
        path.catch_up()
        install(source, topic_prefix)
        ask(
            source,
            "CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN positive AS int CHECK (VALUE > 0);"
            "CREATE TABLE felt (id serial PRIMARY KEY, m mood, p positive, at date DEFAULT now());"
            "CREATE INDEX felt_at ON felt (at DESC) WHERE p > 3; COMMENT ON TABLE felt IS 'hello';"
            "CREATE VIEW seen AS SELECT m, p FROM felt;"
            "CREATE FUNCTION twice(x int) RETURNS int LANGUAGE sql AS 'SELECT x * 2';"
            "ALTER TABLE felt ALTER m SET NOT NULL; CREATE SCHEMA empty_one; CREATE SCHEMA inside",
        )
        ask(source, "ALTER TYPE mood ADD VALUE 'ok'")
        ask(source, "INSERT INTO felt (m, p) VALUES ('ok', 5)")
        ask(source, "ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'; DROP SCHEMA empty_one")
        # Both are in a view's way, and in that of a table made later.
        ask(source, 'ALTER DOMAIN positive RENAME TO "Above 0"; ALTER TYPE mood RENAME TO feeling')
        ask(source, "ALTER TYPE feeling SET SCHEMA inside; CREATE TABLE later (m inside.feeling[])")
        ask(source, "ALTER VIEW seen RENAME TO looked; ALTER INDEX felt_at RENAME TO felt_when")
        ask(source, "ALTER FUNCTION twice(int) RENAME TO doubled")
        # A target need not have all that a source has: it is told, and nothing stops.
        ask(source, "CREATE EXTENSION IF NOT EXISTS plpgsql; CREATE TABLE parted (id int)")
        ledger = path.catch_up()

        assert ledger.inexact == {
            "public.felt": "open transactions may have values of a type as it was: m"
        }
        assert differences(source, target) == []
        for kind in "vS":
            assert names(target, kind) == names(source, kind)
        assert {"felt_at", "felt_when"} & set(names(target, "i")) == {"felt_when"}
        assert ask(target, "SELECT to_regproc('twice') IS NULL") == [(True,)]
        assert ask(target, "SELECT doubled(4), obj_description('felt'::regclass)") == [(8, "hello")]
        assert ask(target, "SELECT m::text FROM felt") == [("fine",)]
        reported = ask(
            target,
            "SELECT attnotnull, format_type(atttypid, -1), pg_get_expr(adbin, adrelid)"
            " FROM pg_attribute a LEFT JOIN pg_attrdef d ON (adrelid, adnum) = (attrelid, attnum)"
            " WHERE attrelid = 'felt'::regclass AND attnum > 0 ORDER BY attnum",
        )
        assert reported == [
            (True, "integer", "nextval('felt_id_seq'::regclass)"),
            (True, "inside.feeling", None),
            (False, '"Above 0"', None),
            (False, "date", "now()"),
        ]


def test_none_leaves_the_target_alone(path) -> None:
    path.sink.close()
    path.sink = PostgresSink(path.target, path.prefix, ddl="none")
    path.applier = job.Applier(path.cuts, path.rows, path.sink)
    ask(path.source, "ALTER TABLE account ADD COLUMN extra int; CREATE TABLE later (id int)")
    path.catch_up()

    columns = "SELECT attname FROM pg_attribute WHERE attrelid = 'account'::regclass AND attnum > 0"
    assert ("extra",) not in ask(path.target, columns)
    assert ask(path.target, "SELECT to_regclass('later') IS NULL") == [(True,)]


def test_a_restarted_run_knows_what_was_recorded(path) -> None:
    ask(path.source, "ALTER TABLE account RENAME owner TO holder; ALTER TABLE account ADD n int")
    path.catch_up()
    path.stop()
    ask(path.source, "UPDATE account SET n = 1; ALTER TABLE account RENAME TO konto")
    ask(path.source, "INSERT INTO konto (id) VALUES (77); ALTER TABLE konto RENAME holder TO h")
    ask(path.source, "CREATE TABLE made (id int PRIMARY KEY); INSERT INTO made VALUES (1)")
    ask(path.source, "ALTER TABLE made RENAME TO remade; INSERT INTO remade VALUES (2)")
    path.start()
    ledger = path.catch_up()

    assert dict(ledger.inexact) == {}
    assert differences(path.source, path.target) == []


HUSHED = (
    # The client's text holds rows of a table that is not captured, and a password.
    "INSERT INTO hidden VALUES ('hush 1'); ALTER TABLE account ADD extra int",
    "ALTER TABLE account ADD more int; CREATE ROLE {role} PASSWORD 'hush 2'; DROP ROLE {role}",
    "ALTER TABLE account ALTER owner SET DEFAULT 'hush 3'",
    "CREATE FUNCTION f() RETURNS text LANGUAGE sql AS $$SELECT 'hush 4'$$",
    "CREATE VIEW v AS SELECT id FROM account WHERE owner = 'hush 5'",
    "CREATE INDEX ON account (id) WHERE owner = 'hush 6'",
    "COMMENT ON TABLE account IS 'hush 7'; COMMENT ON TABLE hidden IS 'hush 8'",
    "CREATE TABLE hidden_2 AS SELECT 'hush 9'::text AS a",
    "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w OPTIONS (h 'hush 10')",
    "CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (password 'hush 11')",
    "CREATE SUBSCRIPTION {role} CONNECTION 'host=hush-12' PUBLICATION p WITH (connect = false)",
    "ALTER SUBSCRIPTION {role} SET (slot_name = NONE); DROP SUBSCRIPTION {role}",
    "CREATE DOMAIN d AS text CHECK (VALUE <> 'hush 13')",
)


def raw(path: Path) -> list[bytes]:
    """All records of the topics that tell of tables and commits: keys, values."""
    found = []
    for topic in (path.options.topics.ddl, path.options.topics.cuts):
        consumer = Consumer({**path.options.client, "group.id": path.prefix})
        _, end = consumer.get_watermark_offsets(TopicPartition(topic, 0))
        consumer.assign([TopicPartition(topic, 0, 0)])
        while consumer.position([TopicPartition(topic, 0)])[0].offset < end:
            if (message := consumer.poll(1.0)) is not None and message.error() is None:
                found.append(message.key() + message.value())
        consumer.close()
    return found


def test_the_topic_contains_no_text_of_users(addresses, topic_prefix, new_database) -> None:
    source, target = new_database(), new_database()
    ask(source, f"{START}; CREATE TABLE hidden (a text)")
    hidden = ("public.hidden", "public.hidden_2")
    with Path(addresses, topic_prefix, source, target, exclude=hidden) as path:
        path.start()
        path.catch_up()
        install(source, topic_prefix, exclude=hidden)
        for statement in HUSHED:
            ask(source, statement.format(role=f'"{topic_prefix}"'))
        ledger = path.catch_up()
        reported = raw(path)

    assert dict(ledger.inexact) == {}
    assert len(reported) > 8
    assert [text for text in reported if b"hush" in text] == []


# Ours, and what is no object of theirs.
REQUEST = "slot text, table_schema text, table_name text, asked_at timestamptz"
OURS = (
    "CREATE SCHEMA IF NOT EXISTS gauss_cdc",
    # `run` may read it meanwhile.
    f"CREATE TABLE gauss_cdc.snapshot_requests (number bigserial PRIMARY KEY, {REQUEST})",
    "COMMENT ON PUBLICATION {publication} IS 'ours'; GRANT USAGE ON SCHEMA gauss_cdc TO PUBLIC",
    "CREATE TABLE part_4 PARTITION OF part FOR VALUES FROM (400) TO (500)",  # a trigger of ours
    "CREATE PUBLICATION another; DROP PUBLICATION another",
    "CREATE INDEX i ON gauss_cdc.snapshot_requests (slot)",
    "DROP INDEX gauss_cdc.i; DROP TABLE gauss_cdc.snapshot_requests",
)
THEIRS = (
    "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
    "CREATE TRIGGER t AFTER INSERT ON {table} EXECUTE FUNCTION public.f()",
    "CREATE RULE r AS ON INSERT TO {table} DO ALSO NOTHING",
    "CREATE POLICY p ON {table} USING (true)",
    "ALTER TRIGGER t ON {table} RENAME TO t2; ALTER RULE r ON {table} RENAME TO r2",
    "ALTER POLICY p ON {table} USING (false)",
    "DROP TRIGGER t2 ON {table}; DROP RULE r2 ON {table}; DROP POLICY p ON {table}",
)


def test_triggers_rules_and_policies_are_in_the_topic_and_our_own_objects_are_not(
    addresses, topic_prefix, new_database
) -> None:
    source, target = new_database(), new_database()
    ask(source, f"{START}; CREATE TABLE hidden (a text)")
    wanted = {"include": ("public.*",), "exclude": ("public.hidden",)}
    with Path(addresses, topic_prefix, source, target, **wanted) as path:
        told: list[tuple[str, str | None]] = []

        def read(segment):
            found = path.rows(segment)
            told.extend((c.tag, c.identity) for c in found.ddl if c.after is None)
            return found

        path.applier = job.Applier(path.cuts, read, path.sink)
        path.start()
        path.catch_up()
        install(source, topic_prefix, **wanted)
        for statement in OURS:
            ask(source, statement.format(publication=topic_prefix))
        install(source, topic_prefix, **wanted)
        for statement in THEIRS:
            for table in ("account", "hidden") if "{table}" in statement else [""]:
                ask(source, statement.format(table=table))
        path.catch_up()

    things = {"TRIGGER": "t", "RULE": "r", "POLICY": "p"}
    assert told == [
        ("CREATE TABLE", "public.part_4"),
        ("CREATE FUNCTION", "public.f()"),
        *((f"CREATE {kind}", f"{name} on public.account") for kind, name in things.items()),
        ("ALTER TRIGGER", "t2 on public.account"),
        ("ALTER RULE", "r2 on public.account"),
        ("ALTER POLICY", "p on public.account"),
        *(
            (f"DROP {kind}", f"{name} on public.account")
            for kind, name in {**things, "TRIGGER": "t2", "RULE": "r2"}.items()
        ),
    ]
