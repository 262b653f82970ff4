"""The event triggers on a real server: what they leave behind, and what they refuse."""

import os
import subprocess
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from producer.errors import NotPermitted, SourceError
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.postgres import catalog, publications
from producer.sources.postgres.checks import check_source
from producer.sources.postgres.snapshot import stream_shapes
from producer.sources.postgres.triggers import install as ddl_triggers
from producer.sources.postgres.triggers.follow import Follower
from producer.sources.postgres.triggers.records import read
from schemas.findings import Level
from schemas.tables import TableId
from tests.services_fixtures import execute
from tests.versions import need


@pytest.fixture
def source(postgres_url):
    connection = catalog.connect(parse_dsn(postgres_url))
    with connection.cursor() as cursor:
        cursor.execute("SET search_path TO public")
        cursor.execute(
            "CREATE SCHEMA other; CREATE TABLE item (id int PRIMARY KEY, name text);"
            "CREATE TABLE part (id int) PARTITION BY LIST (id);"
            "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);"
            "CREATE PUBLICATION ours FOR TABLE item WITH (publish_via_partition_root = true)"
        )
    yield connection
    connection.close()


def dump(url: str) -> str:
    """The whole database's schema, as pg_dump writes it; one that is older refuses a server."""
    said = subprocess.run(["pg_dump", "--version"], check=True, capture_output=True, text=True)
    major = int(said.stdout.rpartition(") ")[2].partition(".")[0])
    with closing(psycopg2.connect(url)) as connection:
        if connection.server_version // 10_000 > major:
            pytest.skip(f"pg_dump is {major}")
    command = ["pg_dump", "--schema-only", "--dbname", url]
    done = subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ)
    # Newer ones begin and end with a key that is random.
    return "\n".join(line for line in done.stdout.splitlines() if "restrict" not in line)


@pytest.mark.since(15, "schemas in publications")
def test_uninstall_leaves_nothing_behind(source, postgres_url) -> None:
    before = dump(postgres_url)

    made = ddl_triggers.install(source, "ours", ["*.*"], [])
    again = ddl_triggers.install(source, "ours", ["*.*"], ["other.secret"])
    between = dump(postgres_url)
    assert ddl_triggers.uninstall(source)

    assert (made.enabled, made.schemas) == (True, ("other", "public"))
    assert (again.schemas, again.exclude) == (("public",), ("other.secret",))
    assert "gauss_cdc" in between
    assert dump(postgres_url) == before
    assert not ddl_triggers.uninstall(source)


def test_a_table_that_was_made_meanwhile_stays_captured(source) -> None:
    ddl_triggers.install(source, "ours", ["public.*"], [])
    with source.cursor() as cursor:
        cursor.execute("CREATE TABLE public.since (id int PRIMARY KEY)")
    ddl_triggers.uninstall(source)

    found = publications.publication(source, "ours")
    assert found.tables == (TableId("public", "item"), TableId("public", "since"))


def test_only_a_superuser_may_install(source, postgres_url) -> None:
    execute(postgres_url, "CREATE ROLE plain_one LOGIN")
    try:
        plain = catalog.connect(parse_dsn(postgres_url.replace("postgres@", "plain_one@")))
        try:
            with pytest.raises(NotPermitted, match="superusers"):
                ddl_triggers.install(plain, "ours", ["*.*"], [])
            assert ddl_triggers.state(plain).version == 0
        finally:
            plain.close()
    finally:
        execute(postgres_url, "DROP ROLE plain_one")


def test_a_publication_must_be_there(source) -> None:
    with pytest.raises(SourceError, match="publication"):
        ddl_triggers.install(source, "nobody's", ["*.*"], [])
    assert ddl_triggers.state(source).version == 0


def test_people_without_rights_of_ours_make_tables_all_the_same(source, postgres_url) -> None:
    execute(postgres_url, "CREATE ROLE maker LOGIN; GRANT CREATE ON SCHEMA public TO maker")
    try:
        ddl_triggers.install(source, "ours", ["public.*"], [])
        maker = psycopg2.connect(postgres_url.replace("postgres@", "maker@"))
        with maker, maker.cursor() as cursor:
            cursor.execute("CREATE TABLE of_maker (id int PRIMARY KEY)")
        maker.close()
        assert TableId("public", "of_maker") in publications.publication(source, "ours").tables
    finally:
        execute(postgres_url, "DROP OWNED BY maker CASCADE; DROP ROLE maker")


def test_check_says_how_schema_changes_are_learned(source, postgres_url) -> None:
    options = Options(parse_dsn(postgres_url), "slot", "ours", "prefix", {}, "")

    def said(options: Options) -> list[tuple[str, str]]:
        found = check_source(options, source, fix=False)
        return [(f.level.value, f.what) for f in found if f.subject == "schema changes"]

    ((without, what),) = said(options)
    ddl_triggers.install(source, "ours", ["*.*"], [])
    reported = said(options)
    for_others = said(replace(options, include=("public.*",)))
    for_another = said(replace(options, publication="another"))
    with source.cursor() as cursor:
        cursor.execute("BEGIN; DELETE FROM gauss_cdc.ddl_publication")  # a copy of the schema alone
        ((level_alone, why_alone),) = said(options)
        cursor.execute("ROLLBACK")
        cursor.execute("COMMENT ON EVENT TRIGGER gauss_cdc_ddl_end IS NULL")  # the first release
        of_before = said(options)
        cursor.execute("ALTER EVENT TRIGGER gauss_cdc_ddl_drop DISABLE")
    ((off, why_off),) = said(options)

    assert (without, what.split(":")[0]) == (
        "note",
        "are inferred at the first row of a new shape",
    )
    ok = ("ok", "captured by event triggers")
    assert reported == [ok]
    assert for_others == [ok, ("warning", "the triggers were installed for other [tables]")]
    assert for_another == [ok, ("warning", "new tables join publication ours, not another")]
    assert (level_alone, why_alone) == (
        "error",
        "are inferred: the triggers do not know which publication is theirs",
    )
    ((level_before, why_before),) = of_before
    assert (level_before, "earlier release, whose messages any role" in why_before) == (
        "error",
        True,
    )
    assert (off, why_off) == (
        "warning",
        "are inferred: some event triggers of ours are off or gone",
    )


SHAPES = """
CREATE TABLE wide (
    id bigint GENERATED ALWAYS AS IDENTITY, s serial, "odd "" name" varchar(7) NOT NULL,
    n numeric(10,3) DEFAULT 1.5, a int[] DEFAULT '{1,2}', m mood, p positive, j jsonb,
    t timestamptz DEFAULT now(), g int GENERATED ALWAYS AS (s * 2) STORED, b box,
    PRIMARY KEY (id, s), UNIQUE (n), UNIQUE (a, j));
ALTER TABLE wide ADD COLUMN added text DEFAULT 'it''s, "quoted"';
ALTER TABLE wide ADD COLUMN boxed box DEFAULT '(1,1),(0,0)';
ALTER TABLE wide ADD COLUMN list text[] DEFAULT '{a,"b c"}';
"""


@pytest.mark.parametrize("identity", ["DEFAULT", "FULL", "NOTHING", "USING INDEX wide_name"])
def test_a_trigger_records_the_shape_that_the_catalog_shows(source, identity) -> None:
    """Two ways to one table: the function inside the server, and our own reading of it."""
    with source.cursor() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE DOMAIN positive AS int")
        ddl_triggers.install(source, "ours", ["*.*"], [])
        cursor.execute("SET gauss_cdc.plan = 'on'")
        cursor.execute(SHAPES)
        cursor.execute('CREATE UNIQUE INDEX wide_name ON wide ("odd "" name")')
        source.notices.clear()
        cursor.execute(f"ALTER TABLE wide REPLICA IDENTITY {identity}")
        ((_, _, record),) = (n.partition("\n")[0].partition("ddl ") for n in source.notices)
        reported = read(record.encode())
        cursor.execute("SET search_path TO pg_catalog")  # as sessions of ours have it
    (read_table,) = stream_shapes(catalog.table_schemas(source, [TableId("public", "wide")]))
    (shape,) = reported.tables

    assert list(shape.table.columns) == list(read_table.columns)
    assert shape.table == read_table
    assert shape.table.oid == read_table.oid
    assert [c.number for c in shape.table.columns] == [c.number for c in read_table.columns]


def messages(source, slot: str) -> list:
    with source.cursor() as cursor:
        cursor.execute(
            "SELECT data FROM pg_logical_slot_get_changes(%s, NULL, NULL) WHERE data LIKE %s",
            [slot, "table gauss_cdc.ddl_log: INSERT: %"],
        )
        bodies = [data.split(" body[text]:'", 1)[1][:-1] for (data,) in cursor.fetchall()]
    return [read(body.replace("''", "'").encode()) for body in bodies]


@pytest.fixture
def slot(source, topic_prefix):
    with source.cursor() as cursor:
        cursor.execute(
            "SELECT pg_create_logical_replication_slot(%s, 'test_decoding')", [topic_prefix]
        )
        yield topic_prefix
        cursor.execute("SELECT pg_drop_replication_slot(%s)", [topic_prefix])


def test_what_is_rolled_back_is_never_recorded(source, slot) -> None:
    ddl_triggers.install(source, "ours", ["*.*"], [])
    messages(source, slot)
    with source.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("ALTER TABLE item ADD COLUMN kept int")
        cursor.execute("SAVEPOINT a")
        cursor.execute("ALTER TABLE item ADD COLUMN gone int, ALTER id TYPE bigint")
        cursor.execute("ROLLBACK TO a")
        cursor.execute("ALTER TABLE item ADD COLUMN kept_too int")
        cursor.execute("COMMIT")
        cursor.execute("BEGIN")
        cursor.execute("DROP TABLE item")
        cursor.execute("ROLLBACK")

    reported = messages(source, slot)

    names = [[c.name for c in one.tables[0].table.columns] for one in reported]
    assert names == [["id", "name", "kept"], ["id", "name", "kept", "kept_too"]]
    assert [one.rewritten for one in reported] == [0, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE IF NOT EXISTS item (x int)",
        "CREATE TEMP TABLE gone (a int); ALTER TABLE gone ADD b int; DROP TABLE gone",
        "GRANT SELECT ON item TO PUBLIC",
        "INSERT INTO item VALUES (1, 'x')",
        "DROP TABLE IF EXISTS nothing",
        "ANALYZE item",
    ],
)
def test_what_changes_no_object_is_not_recorded(source, slot, statement) -> None:
    ddl_triggers.install(source, "ours", ["*.*"], [])
    messages(source, slot)
    with source.cursor() as cursor:
        cursor.execute(statement)

    assert messages(source, slot) == []


def follow(source, slot: str, statements: str, hidden: frozenset[TableId] = frozenset()) -> list:
    """What changed by these statements, with triggers that knew the tables before.

    The first load of `hidden` tables is to come.
    """
    ddl_triggers.install(source, "ours", ["*.*"], [])
    with source.cursor() as cursor:
        cursor.execute("SET search_path TO pg_catalog")  # as sessions of ours have it
        wanted = catalog.expand(source, ["*.*"])
        shapes = stream_shapes(catalog.table_schemas(source, wanted))
        known = {t.id: t for t in shapes if t.id not in hidden}
        follower = Follower(known, lambda _: True, "ours", lambda *_: pytest.fail("inferred"))
        follower.hidden.update(hidden)
        messages(source, slot)
        cursor.execute("SET search_path TO public")
        cursor.execute(statements)
    return [change for reported in messages(source, slot) for change in follower.follow(reported)]


@pytest.mark.parametrize("column", ["pair", "pair[]", "outer_one", "of_pair"])
def test_attributes_of_a_composite_are_values_of_older_rows(source, slot, column) -> None:
    """`(1,x)` reads `(1)` from then on, in rows that nobody wrote."""
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TYPE pair AS (x int, y text); CREATE TYPE outer_one AS (a int, p pair);"
            f"CREATE DOMAIN of_pair AS pair; ALTER TABLE item ADD COLUMN c {column};"
            "INSERT INTO item VALUES (1)"
        )

    changes = follow(
        source,
        slot,
        "ALTER TYPE pair RENAME ATTRIBUTE x TO z; ALTER TYPE pair DROP ATTRIBUTE y",
    )

    of_item = [c for c in changes if c.after is not None]
    assert [(c.after.id.name, c.holes[0].kind) for c in of_item] == [("item", "seen")]
    assert of_item[0].lossy.endswith(": c")


def test_a_label_in_a_composite_is_a_value_of_older_rows(source, slot) -> None:
    """A new label is nobody's value yet."""
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE felt AS (at int, m mood[]);"
            "ALTER TABLE item ADD COLUMN c felt; INSERT INTO item VALUES (1)"
        )
    changes = follow(
        source, slot, "ALTER TYPE mood ADD VALUE 'low'; ALTER TYPE mood RENAME VALUE 'ok' TO 'fine'"
    )

    of_item = [c for c in changes if c.after is not None]
    assert [bool(c.holes) for c in of_item] == [False, True]


def test_a_constant_is_known_where_the_same_statement_rewrites_the_table(source, slot) -> None:
    """Without a conversion the catalog keeps it; with one, nobody does."""
    with source.cursor() as cursor:
        cursor.execute("INSERT INTO item VALUES (1, 'x')")
    added = {
        "a": ("int DEFAULT 5", "5"),
        "b": ("bigint DEFAULT -7", "-7"),
        "c": ("text DEFAULT 'it''s'", "it's"),
        "d": ("varchar(3) NOT NULL DEFAULT ''", ""),
        "e": ("boolean DEFAULT true", "t"),
        "f": ("smallint DEFAULT '-3'", "-3"),
    }
    actions = ", ".join(f"ADD COLUMN {name} {said}" for name, (said, _) in added.items())

    (change,) = follow(source, slot, f"ALTER TABLE item ALTER id TYPE bigint, {actions}")

    assert change.lossy is None
    assert {c.name: c.missing for c in change.after.columns if c.name in added} == {
        name: value for name, (_, value) in added.items()
    }


@pytest.mark.parametrize(
    "action",
    [
        "ADD COLUMN c float DEFAULT random()",
        "ADD COLUMN c text DEFAULT upper('x'), ALTER id TYPE bigint",
        "ADD COLUMN c date DEFAULT '2020-01-02', ALTER id TYPE bigint",
        "ADD COLUMN c serial",
        "ALTER id TYPE bigint USING id * 2",
    ],
)
@pytest.mark.parametrize("rows", [0, 1])
def test_an_empty_table_has_no_values_to_lose(source, slot, action, rows) -> None:
    with source.cursor() as cursor:
        cursor.execute("INSERT INTO item SELECT n FROM generate_series(1, %s) n", [rows])

    changes = follow(source, slot, f"ALTER TABLE item {action}")

    (change,) = (c for c in changes if c.after is not None)
    assert bool(change.holes) == bool(rows)


# A table with partitions of its own, before it was one.
SUB = (
    "CREATE TABLE sub (id int) PARTITION BY LIST (id);"
    "CREATE TABLE sub_5 PARTITION OF sub FOR VALUES IN (5);"
    "ALTER TABLE part ATTACH PARTITION sub FOR VALUES IN (5);"
)
FIVE = "(id IS NOT NULL) AND (id = 5)"


@pytest.mark.parametrize(
    ("statements", "emptied"),
    [
        ("TRUNCATE part_1", ["public.part ((id IS NOT NULL) AND (id = 1))"]),
        ("TRUNCATE part_1, item", ["public.part ((id IS NOT NULL) AND (id = 1))"]),
        ("TRUNCATE part", []),  # the stream says it
        ("TRUNCATE part, part_1", []),
        ("TRUNCATE part; TRUNCATE part_1", ["public.part ((id IS NOT NULL) AND (id = 1))"]),
        ("BEGIN; TRUNCATE part_1; ROLLBACK", []),
        ("BEGIN; SAVEPOINT a; TRUNCATE part; ROLLBACK TO a; TRUNCATE part_1; COMMIT",
         ["public.part ((id IS NOT NULL) AND (id = 1))"]),
        ("CREATE TABLE part_2 PARTITION OF part FOR VALUES IN (2); TRUNCATE part_2",
         ["public.part ((id IS NOT NULL) AND (id = 2))"]),
        ("ALTER TABLE part RENAME id TO key; TRUNCATE part_1",
         ["public.part ((key IS NOT NULL) AND (key = 1))"]),
        (f"{SUB} TRUNCATE sub", [f"public.part ({FIVE} AND {FIVE})"]),
        (f"{SUB} TRUNCATE part; TRUNCATE sub_5", [f"public.part ({FIVE} AND {FIVE})"]),
        (f"{SUB} CREATE TABLE part_9 PARTITION OF part FOR VALUES IN (9); TRUNCATE part", []),
        (f"{SUB} ALTER TABLE part DETACH PARTITION sub; TRUNCATE sub", []),
        ("TRUNCATE h0", ["public.h seen"]),
        ("TRUNCATE h", []),
    ],
)  # fmt: skip
def test_a_partition_is_emptied_by_its_bounds(source, slot, statements, emptied) -> None:
    """TRUNCATE has no event trigger, and pgoutput sends nothing where the root is published."""
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE h (id int) PARTITION BY HASH (id);"
            "CREATE TABLE h0 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 0)"
        )
        if source.server_version < 150_000:  # which publishes no schema whole
            cursor.execute("ALTER PUBLICATION ours ADD TABLE part, h")

    changes = follow(source, slot, statements)

    found = [c for c in changes if c.tag == "TRUNCATE TABLE"]
    assert [
        f"{c.after.id} {c.moved.where if c.moved else c.holes[0].kind}" for c in found
    ] == emptied


def test_a_partition_that_left_is_a_table_like_any_other(source, slot) -> None:
    changes = follow(source, slot, "ALTER TABLE part DETACH PARTITION part_1; TRUNCATE part_1")
    assert [c.tag for c in changes] == ["ALTER TABLE"]


def test_a_partition_with_partitions_leaves_with_them(source, slot) -> None:
    """They were attached to it all the time: their rows are among those that moved."""
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE tree (id int, k int) PARTITION BY RANGE (id);"
            "CREATE TABLE branch PARTITION OF tree FOR VALUES FROM (0) TO (9)"
            " PARTITION BY LIST (k);"
            "CREATE TABLE leaf PARTITION OF branch FOR VALUES IN (1);"
            "INSERT INTO tree VALUES (1, 1)"
        )

    changes = follow(
        source,
        slot,
        "ALTER TABLE tree DETACH PARTITION branch; ALTER TABLE branch ADD v int; TRUNCATE leaf;"
        "ALTER TABLE branch DROP v;"
        "ALTER TABLE tree ATTACH PARTITION branch FOR VALUES FROM (0) TO (9)",
    )

    assert [c for c in changes if c.holes] == []
    assert [(str(c.moved.table), c.moved.op, c.moved.where) for c in changes if c.moved] == [
        ("public.tree", "move", "((id IS NOT NULL) AND (id >= 0) AND (id < 9))"),
        ("public.branch", "delete", "((k IS NOT NULL) AND (k = 1))"),
        ("public.branch", "move", None),
    ]


def test_a_table_that_joins_a_root_goes_where_the_root_is_yet_to_be_loaded(source, slot) -> None:
    """The load reads its rows as the root's: a mark of its own table would stay for ever."""
    with source.cursor() as cursor:
        cursor.execute("CREATE TABLE apart (id int); ALTER PUBLICATION ours ADD TABLE apart, part")

    statement = "ALTER TABLE part ATTACH PARTITION apart FOR VALUES IN (2)"
    changes = follow(source, slot, statement, frozenset({TableId("public", "part")}))

    assert [(str(c.before.id), c.after, c.holes) for c in changes if c.before] == [
        ("public.apart", None, ())
    ]


def test_a_partition_that_comes_with_its_schema_may_be_emptied(source, slot) -> None:
    changes = follow(
        source,
        slot,
        "CREATE SCHEMA fresh CREATE TABLE r (a int) PARTITION BY LIST (a)"
        " CREATE TABLE r1 PARTITION OF r FOR VALUES IN (1);"
        "INSERT INTO fresh.r VALUES (1); TRUNCATE fresh.r1; ALTER TABLE fresh.r ADD b int",
    )

    assert [c for c in changes if c.holes] == []
    assert [(str(c.moved.table), c.moved.op) for c in changes if c.moved] == [("fresh.r", "delete")]


def test_a_new_partition_says_nothing_of_its_siblings(source, slot) -> None:
    """With a thousand of them, each told a thousand times is a million."""
    ddl_triggers.install(source, "ours", ["*.*"], [])
    with source.cursor() as cursor:
        for via_root, parts in (("true", [2, 3]), ("false", [4, 5])):
            cursor.execute(f"ALTER PUBLICATION ours SET (publish_via_partition_root = {via_root})")
            messages(source, slot)
            for n in parts:
                cursor.execute(f"CREATE TABLE part_{n} PARTITION OF part FOR VALUES IN ({n})")
            reported = messages(source, slot)
            shown = [[shape.table.id.name for shape in one.tables] for one in reported]
            if via_root == "true":
                assert shown == [["part"], ["part"]]
            else:
                assert shown == [["part_4"], ["part_5"]]


def known_and_shown(source, slot: str, statements: str) -> tuple[list, dict, dict]:
    """Changes, the tables as followed, and as the server shows them; leaves as themselves."""
    with source.cursor() as cursor:
        cursor.execute("ALTER PUBLICATION ours SET (publish_via_partition_root = false)")
    ddl_triggers.install(source, "ours", ["*.*"], [])

    def shown() -> dict:
        with source.cursor() as cursor:
            cursor.execute("SET search_path TO pg_catalog")  # as sessions of ours have it
        tables = publications.publication(source, "ours").tables
        return {t.id: t for t in stream_shapes(catalog.table_schemas(source, tables))}

    follower = Follower(shown(), lambda _: True, "ours", lambda *_: pytest.fail("inferred"))
    messages(source, slot)
    with source.cursor() as cursor:
        cursor.execute(f"SET search_path TO public; {statements}")
    changes = [c for reported in messages(source, slot) for c in follower.follow(reported)]
    return changes, dict(follower.known), shown()


@pytest.mark.since(15, "schemas in publications")
def test_a_leaf_that_loses_a_column_with_its_type_stays_captured(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute("CREATE TYPE mood AS ENUM ('ok'); ALTER TABLE part ADD felt mood")

    changes, known, shown = known_and_shown(source, slot, "DROP TYPE mood CASCADE")

    assert known == shown
    assert [c for c in changes if c.holes] == []
    assert [c.after.id.name for c in changes if c.after is not None] == ["part_1"]


@pytest.mark.parametrize(
    "statements",
    [
        "ALTER TYPE pair ADD ATTRIBUTE z int CASCADE",
        "ALTER TYPE pair RENAME ATTRIBUTE y TO w CASCADE",
        "ALTER TYPE pair ALTER ATTRIBUTE x TYPE bigint CASCADE",
        "ALTER TYPE pair DROP ATTRIBUTE y CASCADE",
        "ALTER FOREIGN TABLE far ADD COLUMN b int",
        "ALTER TABLE far RENAME a TO b",
        "ALTER TABLE top RENAME a TO b",
        "ALTER TABLE top ADD b int DEFAULT 7, ADD c text",
        "DROP TYPE mood CASCADE",
    ],
)
def test_tables_that_follow_a_type_or_a_foreign_table_are_recorded(
    source, slot, statements
) -> None:
    """Tables of a type, and heirs: also where a foreign table stands between."""
    if not statements.startswith("ALTER TYPE"):
        need(source.server_version, 15, "these tables are published with their schema")
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TYPE pair AS (x int, y text); CREATE TABLE typed OF pair (PRIMARY KEY (x));"
            "CREATE TYPE mood AS ENUM ('ok'); CREATE TABLE top (a int, m mood);"
            "CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w;"
            "CREATE FOREIGN TABLE far () INHERITS (top) SERVER s;"
            "CREATE TABLE below () INHERITS (far)"
        )
        if statements.startswith(("ALTER FOREIGN", "ALTER TABLE far")):
            cursor.execute("ALTER FOREIGN TABLE far NO INHERIT top")

    changes, known, shown = known_and_shown(source, slot, statements)

    assert known == shown
    assert [c for c in changes if c.after is not None] != []


def test_money_is_converted_by_a_locale_that_a_target_may_not_have(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute("ALTER TABLE item ADD COLUMN m money; INSERT INTO item VALUES (1, 'x', 2)")
    changes = follow(source, slot, "ALTER TABLE item ALTER m TYPE text, ALTER id TYPE bigint")
    assert [(c.values, bool(c.holes)) for c in changes] == [({"m": "lost"}, True)]


@pytest.mark.parametrize(
    ("was", "now"),
    [("regclass", "text"), ("regclass", "oid"), ("oid", "regtype"), ("regclass[]", "text"),
     ("xml", "text"), ("named", "bigint")],
)  # fmt: skip
def test_what_is_only_printed_is_converted_by_the_source_alone(source, slot, was, now) -> None:
    """Names depend on what the session searches, and no text of xml says its encoding."""
    with source.cursor() as cursor:
        cursor.execute("CREATE DOMAIN named AS regclass")
        cursor.execute(f"ALTER TABLE item ADD p {was}; INSERT INTO item VALUES (1)")

    changes = follow(source, slot, f"ALTER TABLE item ALTER p TYPE {now}")

    assert [(c.values, bool(c.holes)) for c in changes] == [({"p": "lost"}, True)]


def test_a_hash_partition_without_rows_may_leave(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE h (id int) PARTITION BY HASH (id);"
            "CREATE TABLE h0 PARTITION OF h FOR VALUES WITH (MODULUS 1, REMAINDER 0)"
        )
        ddl_triggers.install(source, "ours", ["*.*"], [])
    (change,) = follow(source, slot, "ALTER TABLE h DETACH PARTITION h0")
    assert (change.moved.where, change.holes) == ("false", ())


def test_a_default_partition_that_is_alone_has_every_row(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE rest PARTITION OF part DEFAULT; INSERT INTO part VALUES (1), (2);"
            "DROP TABLE part_1"
        )
    (change,) = follow(source, slot, "ALTER TABLE part DETACH PARTITION rest")
    assert (change.moved.where, change.holes) == ("true", ())


def test_values_are_recorded_alike_whatever_the_session_has_set(source, slot) -> None:
    added = {
        "a": ("date DEFAULT DATE '2016-02-06'", "2016-02-06"),
        "b": ("timestamptz DEFAULT '2016-02-06 12:00+00'", "2016-02-06 12:00:00+00"),
        "c": ("interval DEFAULT '-1 day -02:03'", "-1 days -02:03:00"),
        "d": ("float8 DEFAULT 0.1::float8 + 0.2", "0.30000000000000004"),
        "e": ("bytea DEFAULT '\\x00ff'", "\\x00ff"),
        "f": ("date[] DEFAULT '{2016-02-06}'", "{2016-02-06}"),
        "g": ("regclass DEFAULT 'pg_class'", "pg_class"),
    }
    with source.cursor() as cursor:
        cursor.execute(
            "INSERT INTO item VALUES (1);"
            "CREATE TABLE days (d date) PARTITION BY RANGE (d);"
            "CREATE TABLE days_1 PARTITION OF days"
            " FOR VALUES FROM ('2016-02-06') TO ('2016-02-07');"
            "INSERT INTO days VALUES ('2016-02-06')"
        )
        cursor.execute(
            "SET datestyle TO 'SQL, DMY'; SET intervalstyle TO sql_standard;"
            "SET timezone TO 'Asia/Shanghai'; SET extra_float_digits TO -10;"
            "SET bytea_output TO escape"
        )
    actions = ", ".join(f"ADD COLUMN {name} {said}" for name, (said, _) in added.items())

    altered, *left = follow(
        source,
        slot,
        f"SET quote_all_identifiers TO on; ALTER TABLE item {actions};"
        "ALTER TABLE days DETACH PARTITION days_1; RESET quote_all_identifiers",
    )

    assert {c.name: c.missing for c in altered.after.columns if c.name in added} == {
        name: value for name, (_, value) in added.items()
    }
    assert [c.moved.where for c in left if c.moved is not None] == [
        "((d IS NOT NULL) AND (d >= '2016-02-06'::date) AND (d < '2016-02-07'::date))"
    ]


def test_a_type_that_changes_is_told_whatever_the_session_quotes(source, slot) -> None:
    """Triggers ask the server for names of its catalogs, which it may put in quotes."""
    with source.cursor() as cursor:
        cursor.execute("CREATE TYPE feels AS ENUM ('sad', 'ok'); ALTER TABLE item ADD f feels")
    quoted = "SET quote_all_identifiers TO on; {}; RESET quote_all_identifiers"

    changes = follow(source, slot, quoted.format("ALTER TYPE feels RENAME VALUE 'sad' TO 'bad'"))

    (item,) = [change.after for change in changes if change.after is not None]
    assert item.columns[-1].user_type.labels == ("bad", "ok")


def test_a_table_that_leaves_the_log_is_a_gap_and_is_found_again(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute("INSERT INTO item VALUES (1, 'x')")
        cursor.execute("ALTER PUBLICATION ours DROP TABLE item")  # it has the schema: nobody minds

    changes = follow(
        source,
        slot,
        "ALTER TABLE item SET UNLOGGED; INSERT INTO item VALUES (2, 'y');"
        "ALTER TABLE item SET LOGGED; CREATE UNLOGGED TABLE loose (id int)",
    )

    of_item = [c for c in changes if c.after is not None]
    assert [(c.before and c.before.id.name, c.after.id.name) for c in of_item] == [
        ("item", "item"),
        (None, "item"),
    ]
    assert [[hole.kind for hole in c.holes] for c in of_item] == [["seen"], ["seen"]]


@pytest.mark.parametrize("others_first", [True, False])
@pytest.mark.parametrize("own", ["ALTER TABLE item ADD x int", "DROP DOMAIN small CASCADE"])
def test_what_is_altered_under_an_older_snapshot_is_a_gap(
    source, slot, postgres_url, own, others_first
) -> None:
    """The catalog is read in a trigger as it was then; a statement alters it as it is."""
    execute(postgres_url, "CREATE DOMAIN small AS int")
    execute(postgres_url, "ALTER TABLE item ADD s small")
    ddl_triggers.install(source, "ours", ["*.*"], [])
    with closing(psycopg2.connect(postgres_url)) as older, older.cursor() as cursor:
        cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        cursor.execute("SELECT FROM pg_class")
        if others_first:
            execute(postgres_url, "ALTER TABLE item ADD other int")
        messages(source, slot)
        cursor.execute(own)
        older.commit()

    events = [told.event for told in messages(source, slot)]

    assert ("gap" in events) == others_first


def test_a_file_of_a_table_that_was_not_logged_is_told_as_one_that_hides_rows(source, slot) -> None:
    """Alone, and where a conversion is part of the same statement."""
    with source.cursor() as cursor:
        cursor.execute("INSERT INTO item VALUES (1, 'x')")
        cursor.execute("ALTER PUBLICATION ours DROP TABLE item")
    ddl_triggers.install(source, "ours", ["*.*"], [])
    with source.cursor() as cursor:
        for statement in ("SET UNLOGGED", "SET LOGGED, ALTER id TYPE bigint", "ALTER id TYPE int"):
            cursor.execute(f"ALTER TABLE item {statement}")
        cursor.execute("SELECT relfilenode::bigint FROM pg_class WHERE relname = 'item'")
        ((now,),) = cursor.fetchall()

    told = [file for message in messages(source, slot) for file in message.files]

    assert [after for _, _, after in told] == [0, 0, now]


def test_what_was_generated_was_never_sent(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute(
            "ALTER TABLE item ADD twice int GENERATED ALWAYS AS (id * 2) STORED;"
            "INSERT INTO item VALUES (1)"
        )

    (change,) = follow(source, slot, "ALTER TABLE item ALTER twice DROP EXPRESSION")

    assert [hole.kind for hole in change.holes] == ["seen"]
    assert change.lossy.endswith(": twice")


def test_partitions_that_are_published_by_themselves_are_tables_of_their_own(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute(
            "ALTER PUBLICATION ours SET (publish_via_partition_root = false);"
            "ALTER PUBLICATION ours ADD TABLE part"
        )
    leaf = TableId("public", "part_1")
    known = {t.id: t for t in stream_shapes(catalog.table_schemas(source, [leaf]))}
    follower = Follower(known, lambda _: True, "ours", lambda *_: pytest.fail("inferred"))
    ddl_triggers.install(source, "ours", ["*.part_1", "*.part_2"], [])
    assert [c for reported in messages(source, slot) for c in follower.follow(reported)] == []

    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE part_2 (id int);"
            "ALTER TABLE part ATTACH PARTITION part_2 FOR VALUES IN (2)"
        )
        cursor.execute("ALTER TABLE part ADD v int; ALTER TABLE part DETACH PARTITION part_1")
    changes = [c for reported in messages(source, slot) for c in follower.follow(reported)]

    seen = [(c.before and c.before.id.name, c.after and c.after.id.name) for c in changes]
    tables = {(None, "part_2"), ("part_1", "part_1"), ("part_2", "part_2")}
    assert set(seen) - {(None, None)} == tables
    assert [c for c in changes if c.holes or c.moved] == []
    assert {table.name for table in known} == {"part_1", "part_2"}


def test_a_temporary_table_that_is_rewritten_says_nothing_of_the_next_one(source, slot) -> None:
    changes = follow(
        source,
        slot,
        "CREATE TEMP TABLE passing (a int); "
        "BEGIN; ALTER TABLE passing ALTER a TYPE text, ADD b float DEFAULT random();"
        "ALTER TABLE item ADD c timestamptz DEFAULT now(); COMMIT",
    )

    assert [c.lossy for c in changes] == [None]


def test_a_statement_inside_others_is_recorded_once_each(source, slot) -> None:
    ddl_triggers.install(source, "ours", ["*.*"], [])
    messages(source, slot)
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE FUNCTION inner_one() RETURNS void LANGUAGE plpgsql AS"
            " 'BEGIN ALTER TABLE item ADD COLUMN a int; EXECUTE ''DROP TABLE part''; END'"
        )
        cursor.execute(
            "DO $$ BEGIN PERFORM inner_one(); DO 'BEGIN ALTER TABLE item DROP a; END'; END $$"
        )

    reported = messages(source, slot)

    assert [(one.event, one.tag) for one in reported] == [
        ("end", "CREATE FUNCTION"),
        ("end", "ALTER TABLE"),
        ("drop", "DROP TABLE"),
        ("end", "ALTER TABLE"),
    ]


@pytest.mark.parametrize("conforming", ["on", "off"])  # what a backslash in our own texts means
def test_passwords_do_not_travel(source, slot, conforming: str) -> None:
    with source.cursor() as cursor:
        cursor.execute(f"SET standard_conforming_strings = {conforming}")
    ddl_triggers.install(source, "ours", ["*.*"], [])
    messages(source, slot)
    with source.cursor() as cursor:
        cursor.execute("CREATE FOREIGN DATA WRAPPER w; CREATE SERVER s FOREIGN DATA WRAPPER w")
        cursor.execute("CREATE USER MAPPING FOR CURRENT_USER SERVER s OPTIONS (password 'hush')")
        for option in (
            "SET password U&'hush 2'" if conforming == "on" else "SET password E'hush 2'",
            "SET \"password\" 'hush 3'",
            "SET password/* its */'hush 4'",
            "ADD sslpassword 'hush 5'",
        ):
            cursor.execute(f"ALTER USER MAPPING FOR CURRENT_USER SERVER s OPTIONS ({option})")
        cursor.execute("CREATE TABLE known (id int PRIMARY KEY, password text DEFAULT '')")

    told = messages(source, slot)
    assert all("hush" not in (one.sql or "") for one in told)
    assert told[-1].sql is not None


def test_hundreds_of_statements_lead_where_the_catalog_is(source, slot) -> None:
    """The follower's tables after each statement are those that the server shows."""
    ddl_triggers.install(source, "ours", ["*.*"], [])
    wanted = catalog.expand(source, ["*.*"])
    known = {t.id: t for t in stream_shapes(catalog.table_schemas(source, wanted))}
    follower = Follower(known, lambda _: True, "ours", lambda *_: pytest.fail("inferred"))
    messages(source, slot)
    statements = [
        "ALTER TABLE item ADD COLUMN c{n} int DEFAULT {n}",
        "ALTER TABLE item RENAME c{n} TO d{n}",
        "ALTER TABLE item RENAME TO item_{n}",
        "ALTER TABLE item_{n} SET SCHEMA other",
        "ALTER TABLE other.item_{n} ADD CONSTRAINT u{n} UNIQUE (name, d{n})",
        "ALTER TABLE other.item_{n} ALTER d{n} TYPE bigint, ALTER name SET NOT NULL",
        "ALTER TABLE other.item_{n} DROP CONSTRAINT u{n}, DROP COLUMN d{n}, ADD COLUMN d{n} text",
        "ALTER SCHEMA other RENAME TO moved",
        "ALTER TABLE moved.item_{n} SET SCHEMA public",
        "ALTER SCHEMA moved RENAME TO other",
        "ALTER TABLE item_{n} RENAME TO item",
        "CREATE TABLE fresh_{n} (LIKE item INCLUDING ALL)",
        "ALTER TABLE fresh_{n} DROP CONSTRAINT fresh_{n}_pkey, ADD PRIMARY KEY (name)",
        "CREATE TABLE part_{n}x PARTITION OF part FOR VALUES IN ({n}00)",
        "ALTER TABLE part DETACH PARTITION part_{n}x",
        "ALTER TABLE part ADD COLUMN p{n} date",
        "ALTER TABLE part_{n}x ADD COLUMN p{n} date",
        "ALTER TABLE part ATTACH PARTITION part_{n}x FOR VALUES IN ({n}00)",
        "DROP TABLE fresh_{n}",
        "ALTER TABLE item ALTER name DROP NOT NULL",
    ]
    with source.cursor() as cursor:
        for n in range(2, 8):
            for statement in statements:
                cursor.execute(statement.format(n=n))
                for reported in messages(source, slot):
                    follower.follow(reported)
                there = catalog.expand(source, ["*.*"])
                shown = {t.id: t for t in stream_shapes(catalog.table_schemas(source, there))}
                assert follower.known == shown, statement


# ---------------------------------------------------------------- a schema that others have, too
@pytest.fixture
def her(postgres_url, topic_prefix):
    name = f"her_{topic_prefix}"
    database = postgres_url.rpartition("/")[2]
    execute(postgres_url, f"CREATE ROLE {name}; GRANT CREATE ON DATABASE {database} TO {name}")
    yield name
    execute(postgres_url, f"DROP OWNED BY {name} CASCADE; DROP ROLE {name}")


def test_an_installation_takes_the_schema_and_leaves_what_else_is_in_it(
    source, postgres_url, her
) -> None:
    execute(
        postgres_url,
        f"CREATE SCHEMA gauss_cdc AUTHORIZATION {her}; CREATE ROLE reader_of_{her};"
        f"SET ROLE {her}; CREATE TABLE gauss_cdc.snapshot_requests (number int);"
        f"GRANT SELECT ON gauss_cdc.snapshot_requests TO reader_of_{her}",
    )

    for _ in range(2):
        ddl_triggers.install(source, "ours", ["public.*"], [], role=her)

        with source.cursor() as cursor:
            cursor.execute(
                "SELECT n.nspowner::regrole::text, has_schema_privilege(%s, n.oid, 'USAGE'),"
                " has_schema_privilege(%s, n.oid, 'CREATE'), c.relowner::regrole::text,"
                " has_table_privilege(%s, c.oid, 'SELECT')"
                " FROM pg_namespace n JOIN pg_class c ON c.relnamespace = n.oid"
                " WHERE c.oid = 'gauss_cdc.snapshot_requests'::regclass",
                [her, her, f"reader_of_{her}"],
            )
            assert cursor.fetchall() == [("postgres", True, False, her, True)]
    assert ddl_triggers.uninstall(source)
    execute(postgres_url, f"DROP TABLE gauss_cdc.snapshot_requests; DROP ROLE reader_of_{her}")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("CREATE VIEW gauss_cdc.ddl_tables AS SELECT 1", "gauss_cdc.ddl_tables is not ours"),
        ("CREATE TABLE gauss_cdc.ddl_log (id int, body text)", "gauss_cdc.ddl_log is not ours"),
        (
            "CREATE FUNCTION gauss_cdc.f() RETURNS int LANGUAGE sql AS 'SELECT 1'",
            "others may execute its functions",
        ),
    ],
)
def test_what_is_not_ours_in_it_is_refused(source, postgres_url, her, statement, words) -> None:
    execute(postgres_url, f"SET ROLE {her}; CREATE SCHEMA gauss_cdc; {statement}")

    with pytest.raises(SourceError, match=words):
        ddl_triggers.install(source, "ours", ["public.*"], [], role=her)

    assert ddl_triggers.state(source).version == 0


def test_a_schema_that_somebody_else_made_is_not_taken(source, postgres_url, her) -> None:
    """She was first; what is typed for the role of `run` then changes nothing."""
    execute(postgres_url, f"SET ROLE {her}; CREATE SCHEMA gauss_cdc")
    execute(postgres_url, f"CREATE ROLE run_of_{her}")
    try:
        execute(postgres_url, f"CREATE SCHEMA IF NOT EXISTS gauss_cdc AUTHORIZATION run_of_{her}")

        with pytest.raises(SourceError, match=f"gauss_cdc is not ours: .* {her}") as caught:
            ddl_triggers.install(source, "ours", ["public.*"], [], role=f"run_of_{her}")
    finally:
        execute(postgres_url, f"DROP ROLE run_of_{her}")

    assert caught.value.hint.startswith('ALTER SCHEMA gauss_cdc OWNER TO "postgres" if')
    assert ddl_triggers.state(source).version == 0
    options = Options(parse_dsn(postgres_url), "s", "ours", "p", {}, "", include=("public.*",))
    (found,) = (f for f in check_source(options, source, fix=False) if "not ours" in f.what)
    assert (found.level, found.hint) == (Level.WARNING, caught.value.hint)
    execute(postgres_url, 'ALTER SCHEMA gauss_cdc OWNER TO "postgres"')
    ddl_triggers.install(source, "ours", ["public.*"], [])
    with source.cursor() as cursor:
        cursor.execute("SELECT has_schema_privilege(%s, 'gauss_cdc', 'USAGE')", [her])
        assert cursor.fetchone() == (False,)


def test_whatever_is_named_like_ours_goes_with_an_installation(source, postgres_url, her) -> None:
    execute(
        postgres_url,
        f"CREATE SCHEMA gauss_cdc AUTHORIZATION {her}; SET ROLE {her}; SET search_path = gauss_cdc;"
        "CREATE PROCEDURE ddl_p() LANGUAGE sql AS 'SELECT 1';"
        "CREATE AGGREGATE ddl_a(int) (sfunc = int4pl, stype = int);"
        "CREATE AGGREGATE ddl_b(*) (sfunc = int8inc, stype = bigint, initcond = 0);"
        "CREATE TABLE ddl_x (a int); CREATE TABLE ddl_y () INHERITS (ddl_x)",
    )

    ddl_triggers.install(source, "ours", ["public.*"], [], role=her)

    assert ddl_triggers.state(source).reports_ddl
    with source.cursor() as cursor:
        cursor.execute(
            "SELECT proname::text FROM pg_proc WHERE proname IN ('ddl_p', 'ddl_a', 'ddl_b')"
            " UNION ALL SELECT relname::text FROM pg_class WHERE relname IN ('ddl_x', 'ddl_y')"
        )
        assert cursor.fetchall() == []


def test_check_names_no_table_that_is_not_logged_and_not_meant(source, postgres_url) -> None:
    """Ours are not meant either: `ddl install` makes two of them."""
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE UNLOGGED TABLE loose (id int); CREATE UNLOGGED TABLE scratch (a int)"
        )
    ddl_triggers.install(source, "ours", ["*.*"], ["public.scratch"])
    at = parse_dsn(postgres_url)
    options = Options(at, "s", "ours", "p", {}, "", include=("*.*",), exclude=("public.scratch",))

    found = check_source(options, source, fix=False)

    assert [f.subject for f in found if "is unlogged" in f.what] == ["table public.loose"]


def test_the_schema_of_the_databases_owner_is_taken(source, postgres_url, her) -> None:
    database = source.info.dbname
    execute(
        postgres_url,
        f"CREATE SCHEMA gauss_cdc AUTHORIZATION {her}; ALTER DATABASE {database} OWNER TO {her}",
    )

    ddl_triggers.install(source, "ours", ["public.*"], [])

    assert ddl_triggers.state(source).reports_ddl
    execute(postgres_url, f"ALTER DATABASE {database} OWNER TO CURRENT_USER")


def test_a_database_that_is_a_target_too_keeps_its_schema(source, postgres_url, her) -> None:
    """Its role needs CREATE in the schema, with which records could not be trusted."""
    execute(
        postgres_url,
        f"CREATE SCHEMA gauss_cdc AUTHORIZATION {her}; SET ROLE {her};"
        "CREATE TABLE gauss_cdc.ledger (source text)",
    )

    with pytest.raises(SourceError, match="is a target, too"):
        ddl_triggers.install(source, "ours", ["public.*"], [])

    with source.cursor() as cursor:
        cursor.execute("SELECT has_schema_privilege(%s, 'gauss_cdc', 'CREATE')", [her])
        assert cursor.fetchone() == (True,)


OVERLOADS = """
SET ROLE {her}; CREATE SEQUENCE gauss_cdc.calls;
CREATE FUNCTION gauss_cdc.ddl_gap(text, text, text) RETURNS void LANGUAGE sql
    AS $$ SELECT nextval('gauss_cdc.calls') $$;
CREATE FUNCTION gauss_cdc.ddl_emit(json, text, VARIADIC int[] DEFAULT '{{}}') RETURNS void
    LANGUAGE sql AS $$ SELECT nextval('gauss_cdc.calls') $$;
CREATE FUNCTION gauss_cdc.ddl_matches(name, name) RETURNS boolean LANGUAGE sql
    AS $$ SELECT nextval('gauss_cdc.calls') > 0 $$;
CREATE FUNCTION gauss_cdc.ddl_is_published(regclass, text) RETURNS boolean LANGUAGE sql
    AS $$ SELECT nextval('gauss_cdc.calls') > 0 $$;
CREATE FUNCTION gauss_cdc.ddl_definition(oid, oid, varchar) RETURNS text LANGUAGE sql
    AS $$ SELECT nextval('gauss_cdc.calls')::text $$;
"""


def test_no_function_of_the_same_name_is_preferred_to_ours(source, postgres_url, her) -> None:
    """She was given the right to create objects in the schema: the triggers run as a superuser."""
    ddl_triggers.install(source, "ours", ["public.*"], [])
    execute(postgres_url, f"GRANT ALL ON SCHEMA gauss_cdc TO {her}")
    execute(postgres_url, OVERLOADS.format(her=her))
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE more (id int PRIMARY KEY); CREATE DOMAIN small AS int CHECK (VALUE < 9);"
            "COMMENT ON TABLE more IS 'x'; ALTER PUBLICATION ours SET (publish = 'insert');"
            "ALTER PUBLICATION ours DROP TABLE gauss_cdc.ddl_log; DROP TABLE more;"
            "TRUNCATE part_1; ALTER TABLE part DETACH PARTITION part_1"
        )
        cursor.execute("SELECT is_called FROM gauss_cdc.calls")
        assert cursor.fetchone() == (False,)


# What an owner puts into a table is evaluated where a query is planned, or a key read.
HERS = """
GRANT CREATE ON SCHEMA public TO {her}; SET ROLE {her};
CREATE SCHEMA hers; CREATE TABLE hers.calls (by name);
CREATE FUNCTION hers.note() RETURNS int LANGUAGE sql VOLATILE
    AS $$ INSERT INTO hers.calls VALUES (current_user) RETURNING 1 $$;
CREATE FUNCTION hers.one(text) RETURNS int LANGUAGE plpgsql IMMUTABLE
    AS $$ BEGIN RETURN hers.note(); END $$;
"""


@pytest.mark.parametrize(
    "statements",
    [
        (
            "CREATE TABLE hers.wanted (id int PRIMARY KEY)",
            "CREATE INDEX ON hers.wanted ((id + hers.one('an index')))",
            "ALTER TABLE hers.wanted SET SCHEMA public",
        ),
        (
            "CREATE TABLE hers.wanted (id int PRIMARY KEY)",
            "CREATE STATISTICS hers.s ON (id + hers.one('statistics')) FROM hers.wanted",
            "ALTER TABLE hers.wanted SET SCHEMA public",
        ),
        (
            "CREATE TABLE public.wanted (id int) PARTITION BY LIST ((id + hers.one('a key')))",
            "CREATE TABLE public.wanted_2 PARTITION OF public.wanted FOR VALUES IN (2)",
            "ALTER TABLE public.wanted DETACH PARTITION public.wanted_2",
        ),
    ],
    ids=["index", "statistics", "key"],
)
def test_no_function_in_a_table_of_others_runs_as_a_superuser(
    source, postgres_url, her, statements
) -> None:
    need(source.server_version, 14, "statistics over expressions")
    ddl_triggers.install(source, "ours", ["public.item", "public.wanted"], [])
    execute(postgres_url, HERS.format(her=her))
    for statement in statements:  # a session each: none knows what an earlier one evaluated
        execute(postgres_url, f"SET ROLE {her}; {statement}")
    ddl_triggers.install(source, "ours", ["public.item", "public.wanted"], [])

    with source.cursor() as cursor:
        cursor.execute("SELECT DISTINCT by::text FROM hers.calls WHERE by <> %s", [her])
        assert cursor.fetchall() == []


def test_a_partition_by_an_expression_leaves_as_a_gap(source, slot) -> None:
    with source.cursor() as cursor:
        cursor.execute(
            "CREATE TABLE e (id int) PARTITION BY LIST ((id + 1));"
            "CREATE TABLE e2 PARTITION OF e FOR VALUES IN (2); INSERT INTO e VALUES (1)"
        )
        ddl_triggers.install(source, "ours", ["*.*"], [])
    (change,) = (c for c in follow(source, slot, "DROP TABLE e2") if c.holes)
    assert (change.after.id.name, [h.kind for h in change.holes]) == ("e", ["seen"])
