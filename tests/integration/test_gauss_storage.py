"""Which tables may have lost rows, by the storage files that a catalog names."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from producer.core.catalog.look import Before
from producer.errors import SourceError
from producer.sources.gauss import catalog as gauss_catalog
from producer.sources.gauss.storage import Part, StorageWatch, StoredTable, StreamTells, stored
from producer.sources.postgres.connection import ReplicationConnection, parse_dsn
from producer.sources.session import Asks
from schemas.tables import TableId, TableSchema

T, PARTED, OTHER = (TableId("public", name) for name in ("it's full", "parted", "other"))
NAME = '"it\'s full"'
START = f"""
CREATE TABLE {NAME} (id int PRIMARY KEY, v text);
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (10) PARTITION BY RANGE (id);
CREATE TABLE parted_0_0 PARTITION OF parted_0 FOR VALUES FROM (0) TO (5);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (10) TO (20);
INSERT INTO {NAME} SELECT g, 'v' FROM generate_series(1, 3) g;
INSERT INTO parted VALUES (1), (11); INSERT INTO other VALUES (15)
"""
INSERT = f"INSERT INTO {NAME} VALUES (7, 'new')"
DETACH = "ALTER TABLE parted DETACH PARTITION parted_1"


RENAMED = "has, or had, another name: not all its rows were sent under this one"
RESIZED = "has a column of another length or precision: targets may have rounded its values"
ALTERED = "has another key, or a column made again: its older rows may be others"
RETYPED = "has a type whose labels or attributes were altered: values may be others"
CAME = "has rows from before it was seen first: they were not sent"
KINDS = {
    "nothing told": StreamTells(truncate=False, statements=False),
    "DDL told": StreamTells(truncate=False, statements=True),
    "TRUNCATE told": StreamTells(truncate=True, statements=False),
    "TRUNCATE told, without positions": StreamTells(
        truncate=True, statements=False, positions=False
    ),
}


class Watched:
    """Looks, each judged before the next."""

    def __init__(self, session: ReplicationConnection, told: str = "nothing told") -> None:
        self.session: Asks = session
        self.told = KINDS[told]
        self.notes: list[str] = []
        self.before: Before | None = None
        self.shapes: dict[TableId, TableSchema] = {}  # as the stream has described them
        self.begin()

    def begin(self) -> None:
        """Another run."""
        self._watch = StorageWatch(self.told, lambda table: table.schema in {"public", "app"})

    def look(self, *known: TableId) -> tuple[set[TableId], dict[TableId, str]]:
        found = self._watch.look(
            self.session, self.before, self.notes.append, known=self.shapes or known
        )
        now = Before.of_files(found.open_from, (), found.versions, parts=found.parts)
        self.before = Before.of(now.looked())
        self.dropped = {*found.dropped}
        return {*found.emptied}, dict(found.suspected)

    def emptied(self) -> set[TableId]:
        return self.look()[0]


@pytest.fixture
def session(postgres_url: str) -> Iterator[ReplicationConnection]:
    do(postgres_url, START)
    with ReplicationConnection.open(parse_dsn(postgres_url), replication=False) as connection:
        yield connection


def described(session: ReplicationConnection, table: TableId) -> TableSchema:
    (found,) = gauss_catalog.table_schemas(session, [table])
    return found


def do(url: str, *statements: str) -> None:
    """Run each in a transaction of its own."""
    with closing(psycopg2.connect(url)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


@pytest.mark.parametrize("begins_anew", [False, True], ids=["one run", "another run"])
@pytest.mark.parametrize(
    ("statements", "suspected", "cleared"),
    [
        ([INSERT, f"DELETE FROM {NAME} WHERE id < 3", f"ANALYZE {NAME}"], set(), set()),
        ([f"TRUNCATE {NAME}"], {T}, set()),
        ([f"TRUNCATE {NAME}", INSERT], {T}, set()),
        ([f"BEGIN; TRUNCATE {NAME}; {INSERT}; COMMIT"], {T}, set()),
        # What is written anew with the rows that it had lost none of them.
        ([f"VACUUM FULL {NAME}"], set(), {T}),
        ([INSERT, f'CLUSTER {NAME} USING {NAME[:-1]}_pkey"'], set(), {T}),
        # A row of now proves nothing, and no row proves nothing.
        ([f"TRUNCATE {NAME}", INSERT, f"VACUUM FULL {NAME}"], {T}, set()),
        ([f"DELETE FROM {NAME}", f"VACUUM FULL {NAME}"], {T}, set()),
        ([f"UPDATE {NAME} SET v = 'w'", f"VACUUM FULL {NAME}"], {T}, set()),
        # Partitions: one that came has rows of the stream, one that went has taken its rows along.
        (["CREATE TABLE p_2 PARTITION OF parted FOR VALUES FROM (20) TO (30)"], set(), set()),
        (["CREATE TABLE p_2 PARTITION OF parted FOR VALUES FROM (20) TO (30)",
          "INSERT INTO parted VALUES (25)", "TRUNCATE p_2"], {PARTED}, set()),
        (["TRUNCATE parted_0"], {PARTED}, set()),
        (["TRUNCATE parted"], {PARTED}, set()),
        (["DROP TABLE parted_1"], {PARTED}, set()),
        ([f"{DETACH}; ALTER TABLE parted ATTACH PARTITION other FOR VALUES FROM (10) TO (20)"],
         {PARTED}, set()),
        # Rows of any age may have come from a partition.
        (["TRUNCATE parted_1", f"VACUUM FULL {NAME}"], {T, PARTED}, set()),
        ([f"ALTER TABLE {NAME} RENAME TO t"], set(), set()),
        # Its name in the stream may be either.
        ([f"ALTER TABLE {NAME} RENAME TO t", "TRUNCATE t"], {T, TableId("public", "t")}, set()),
        # A statement that is sent wrote it anew; one and its opposite are none of the columns'.
        ([f"ALTER TABLE {NAME} ALTER id TYPE bigint"], set(), set()),
        ([f"ALTER TABLE {NAME} ALTER id TYPE int USING id + 1"], {T}, set()),
        ([f"DROP TABLE {NAME}"], set(), set()),
    ],
)  # fmt: skip
def test_a_table_is_suspected_unless_a_row_from_before_is_there(
    statements: list[str],
    suspected: set[TableId],
    cleared: set[TableId],
    begins_anew: bool,
    postgres_url: str,
    session: ReplicationConnection,
) -> None:
    watched = Watched(session, "DDL told")
    assert watched.look() == (set(), {})
    if begins_anew:
        watched.begin()

    do(postgres_url, *statements)

    emptied, others = watched.look()
    assert emptied == suspected
    assert others.keys() <= {TableId("public", "parted_1")}, "which is no partition any more"
    assert {note.partition(" has ")[0] for note in watched.notes} == {str(t) for t in cleared}
    assert watched.look() == (set(), {}), "it is suspected once"


@pytest.mark.parametrize(
    ("told", "emptied"),
    [
        ("nothing told", {T, OTHER, PARTED}),
        ("DDL told", {OTHER, PARTED}),
        # The TRUNCATE that the stream tells explains this look, where it waits for the stream.
        ("TRUNCATE told", {T, OTHER, PARTED}),
        ("TRUNCATE told, without positions", {PARTED}),
    ],
)
def test_what_the_stream_tells_is_not_suspected(
    told: str, emptied: set[TableId], postgres_url: str, session: ReplicationConnection
) -> None:
    watched = Watched(session, told)
    watched.look()

    do(postgres_url, f"ALTER TABLE {NAME} ALTER id TYPE bigint", "TRUNCATE other, parted")

    assert watched.emptied() == emptied


@pytest.mark.parametrize(
    ("statements", "is_other"),
    [
        (["ALTER TABLE other ADD COLUMN n int"], False),
        (["ALTER TABLE other ADD COLUMN n int", "ALTER TABLE other DROP COLUMN n"], True),
        (["ALTER TABLE other DROP COLUMN v"], False),
        (["ALTER TABLE other DROP COLUMN v, ADD COLUMN v int"], True),
        (["ALTER TABLE other DROP CONSTRAINT other_pkey"], True),
        (["ALTER TABLE other DROP CONSTRAINT other_pkey, ADD PRIMARY KEY (v)"], True),
        (["CREATE UNIQUE INDEX ON other (v)", "REINDEX TABLE other"], False),
    ],
)
@pytest.mark.parametrize("told", KINDS)
def test_another_key_and_a_column_made_again_are_seen_where_no_statement_is_sent(
    statements: list[str],
    is_other: bool,
    told: str,
    postgres_url: str,
    session: ReplicationConnection,
) -> None:
    do(postgres_url, "ALTER TABLE other ADD COLUMN v int DEFAULT 1")
    watched = Watched(session, told)
    watched.look()

    do(postgres_url, *statements)

    _, suspected = watched.look()
    assert suspected.keys() == ({OTHER} if is_other and not watched.told.statements else set())
    assert watched.look()[1] == {}


@pytest.mark.parametrize(
    ("statement", "is_resized"),
    [
        ("ALTER TABLE other ALTER at TYPE timestamp", True),
        ("ALTER TABLE other ALTER n TYPE numeric", True),
        ("ALTER TABLE other ALTER v TYPE varchar(10)", True),
        # A row shows the half of these.
        ("ALTER TABLE other ADD w int, ALTER v TYPE varchar(10)", True),
        ("ALTER TABLE other DROP n, ALTER at TYPE timestamp", True),
        ("ALTER TABLE other RENAME n TO m; ALTER TABLE other ALTER m TYPE numeric(12,2)", True),
        # A row shows these.
        ("ALTER TABLE other RENAME n TO m", False),
        ("ALTER TABLE other DROP n", False),
        ("ALTER TABLE other ADD w varchar(5)", False),
        ("ALTER TABLE other ALTER n SET STATISTICS 5", False),
    ],
)
@pytest.mark.parametrize("told", KINDS)
@pytest.mark.parametrize("begins_anew", [False, True], ids=["one run", "another run"])
def test_a_finer_column_is_seen_where_no_statement_is_sent(
    statement: str,
    is_resized: bool,
    told: str,
    begins_anew: bool,
    postgres_url: str,
    session: ReplicationConnection,
) -> None:
    """It writes no storage file, and rows of the stream name types without a modifier."""
    do(
        postgres_url,
        "ALTER TABLE other ADD at timestamp(0), ADD n numeric(10,2), ADD v varchar(5)",
    )
    watched = Watched(session, told)
    watched.look()
    if begins_anew:
        watched.begin()

    do(postgres_url, statement)

    is_seen = is_resized and not watched.told.statements
    assert watched.look() == (set(), {OTHER: RESIZED} if is_seen else {})
    assert watched.look() == (set(), {}), "it is suspected once"


@pytest.mark.parametrize("noted", ["", ":0a1b2c3d"], ids=["nothing", "a digest"])
def test_sizes_that_an_earlier_release_did_not_note_are_no_others(
    postgres_url: str, session: ReplicationConnection, noted: str
) -> None:
    watched = Watched(session)
    watched.look()
    assert watched.before is not None
    versions = {
        oid: version._replace(last=":".join(version.last.split(":")[:3]) + noted)
        for oid, version in watched.before.versions.items()
    }
    watched.before = replace(watched.before, versions=versions)
    watched.begin()

    assert watched.look() == (set(), {})

    do(postgres_url, f"ALTER TABLE {NAME} ALTER v TYPE varchar(9)")
    watched.look()
    do(postgres_url, f"ALTER TABLE {NAME} ALTER v TYPE varchar(10)")
    assert watched.look() == (set(), {T: RESIZED})


def test_a_finer_column_of_very_many_is_seen(
    postgres_url: str, session: ReplicationConnection
) -> None:
    do(postgres_url, "ALTER TABLE other " + ", ".join(f"ADD c{n} varchar(5)" for n in range(200)))
    watched = Watched(session)
    watched.look()

    do(postgres_url, "ALTER TABLE other ALTER c150 TYPE varchar(6)")

    assert watched.look() == (set(), {OTHER: RESIZED})


AWAY = ("ALTER TABLE {0} SET SCHEMA away", "INSERT INTO away.{0} VALUES (1)",
        "ALTER TABLE away.{0} SET SCHEMA public")  # fmt: skip


@pytest.mark.parametrize("begins_anew", [False, True], ids=["one run", "another run"])
@pytest.mark.parametrize(
    ("statements", "emptied", "suspected"),
    [
        ([step.format("other") for step in AWAY], set(), {OTHER: RENAMED}),
        (["ALTER SCHEMA app RENAME TO x", "INSERT INTO x.t VALUES (1)",
          "ALTER SCHEMA x RENAME TO app"], set(), {TableId("app", "t"): RENAMED}),
        (["GRANT USAGE ON SCHEMA app TO public"], set(), {}),
        # As EXCHANGE PARTITION, and EXCHANGE PARTITION again.
        ([DETACH, "INSERT INTO parted_1 VALUES (12)",
          "ALTER TABLE parted ATTACH PARTITION parted_1 FOR VALUES FROM (10) TO (20)"],
         {PARTED}, {}),
        (["VACUUM parted", "ANALYZE parted", "COMMENT ON TABLE parted_1 IS 'x'"], set(), {}),
        (["ALTER TYPE pair ADD ATTRIBUTE c int"], set(), {OTHER: RETYPED}),
        (["ALTER TYPE pair DROP ATTRIBUTE b", "ALTER TYPE pair ADD ATTRIBUTE b int"],
         set(), {OTHER: RETYPED}),
        (["ALTER TYPE mood RENAME VALUE 'sad' TO 'low'"], set(), {OTHER: RETYPED}),
        (["ALTER TYPE mood RENAME VALUE 'sad' TO 'low'",
          "ALTER TYPE mood RENAME VALUE 'low' TO 'sad'"], set(), {OTHER: RETYPED}),
        # Values that are there have none of these.
        (["ALTER TYPE mood ADD VALUE 'low' BEFORE 'sad'", "ALTER TYPE unused ADD ATTRIBUTE b int"],
         set(), {}),
    ],
)  # fmt: skip
def test_what_is_undone_before_anybody_looks_is_seen_where_no_statement_is_sent(
    statements: list[str],
    emptied: set[TableId],
    suspected: dict[TableId, str],
    begins_anew: bool,
    postgres_url: str,
    session: ReplicationConnection,
) -> None:
    do(
        postgres_url,
        "CREATE SCHEMA away; CREATE SCHEMA app; CREATE TABLE app.t (id int)",
        "CREATE TYPE pair AS (a int, b int); CREATE TYPE unused AS (a int)",
        "CREATE TYPE mood AS ENUM ('sad'); CREATE DOMAIN moods AS mood",
        "ALTER TABLE other ADD p pair[], ADD m moods",
    )
    told, untold = Watched(session, "DDL told"), Watched(session)
    for watched in (told, untold):
        watched.look()
        if begins_anew:
            watched.begin()

    do(postgres_url, *statements)

    assert untold.look() == (emptied, suspected)
    by_type = {table: why for table, why in suspected.items() if why == RETYPED}
    assert told.look() == (emptied, by_type)
    for watched in (told, untold):
        assert watched.look() == (set(), {}), "it is suspected once"


def test_a_new_table_whose_type_was_altered_or_schema_renamed_since_is_seen(
    postgres_url: str, session: ReplicationConnection
) -> None:
    do(postgres_url, "CREATE TYPE old AS (a int); CREATE SCHEMA was")
    told, untold = Watched(session, "DDL told"), Watched(session)
    told.look()
    untold.look()

    do(
        postgres_url,
        "CREATE TYPE pair AS (a int)",
        "CREATE TABLE paired (p pair)",
        "INSERT INTO paired VALUES (row(1))",
        "ALTER TYPE pair ADD ATTRIBUTE b int",
        "CREATE TABLE plain (p old)",
        "CREATE TABLE was.t (id int)",
        "INSERT INTO was.t VALUES (1)",
        "ALTER SCHEMA was RENAME TO app",
        "CREATE SCHEMA away; CREATE TABLE away.keyed (id int)",
        "INSERT INTO away.keyed VALUES (1)",
        "ALTER TABLE away.keyed ADD PRIMARY KEY (id), ALTER id SET STATISTICS 5;"
        "ALTER TABLE away.keyed SET SCHEMA public",
    )

    seen = {TableId("public", "paired"): RETYPED, TableId("app", "t"): CAME}
    assert told.look() == (set(), seen), "the statement about the table came"
    assert untold.look() == (set(), seen | {TableId("public", "keyed"): CAME})


def test_a_column_that_is_dropped_at_one_look_and_made_again_at_the_next_is_seen(
    postgres_url: str, session: ReplicationConnection
) -> None:
    do(postgres_url, "ALTER TABLE other ADD v int, ADD w varchar(5)")
    untold, follows = Watched(session), Watched(session)
    untold.look()
    follows.look()

    do(postgres_url, "ALTER TABLE other DROP v")
    assert untold.look() == follows.look() == (set(), {})
    do(postgres_url, "ALTER TABLE other ALTER w TYPE varchar(6)")
    assert untold.look() == (set(), {OTHER: RESIZED})
    follows.shapes = {OTHER: described(session, OTHER)}  # a row came
    assert follows.look() == (set(), {OTHER: RESIZED})
    do(postgres_url, "ALTER TABLE other ADD v int")

    assert untold.look() == (set(), {OTHER: ALTERED})
    assert follows.look() == (set(), {}), "targets have dropped it"


def test_a_type_whose_values_are_stored_alike_is_seen(
    postgres_url: str, session: ReplicationConnection
) -> None:
    """No file is written, and a row of the stream may never come."""
    do(postgres_url, "ALTER TABLE other ADD v int DEFAULT -1")
    watched = Watched(session)
    watched.look()

    do(postgres_url, "ALTER TABLE other ALTER v DROP DEFAULT, ALTER v TYPE oid")

    assert watched.look() == (set(), {OTHER: ALTERED})


class CutOff:
    """A session whose answer is an error where tables are asked for that are not there."""

    def __init__(self, session: ReplicationConnection) -> None:
        self._session = session

    def query(self, sql: str) -> list[list[str | None]]:
        if "(n.nspname, c.relname) IN" in sql:
            raise SourceError("canceling statement due to statement timeout", sqlstate="57014")
        return self._session.query(sql)


def test_a_look_that_failed_makes_no_row_one_from_before(
    postgres_url: str, session: ReplicationConnection
) -> None:
    watched = Watched(session)
    watched.look()

    do(postgres_url, f"TRUNCATE {NAME}", INSERT, "DROP TABLE other")
    watched.session = CutOff(session)
    assert watched.look() == (set(), {})
    watched.session = session

    assert watched.emptied() == {T}


def test_a_table_that_was_never_seen_is_suspected_if_it_had_rows(
    postgres_url: str, session: ReplicationConnection
) -> None:
    old = "CREATE SCHEMA {0}; CREATE TABLE {0}.{1} (id int); INSERT INTO {0}.{1} VALUES (1)"
    do(postgres_url, old.format("away", "old"), old.format("hidden", "older"))
    watched = Watched(session)
    watched.look()

    do(
        postgres_url,
        "ALTER TABLE away.old SET SCHEMA public",  # it was there before
        "CREATE TABLE filled AS SELECT 1 AS id",
        *("CREATE TABLE emptied AS SELECT 1 AS id", "TRUNCATE emptied"),
    )

    assert watched.look() == (
        {TableId("public", "emptied")},
        {TableId("public", "old"): CAME},
    )

    do(postgres_url, "ALTER SCHEMA hidden RENAME TO app")

    assert watched.look() == (set(), {TableId("app", "older"): CAME})


def test_a_table_that_was_made_under_another_name_is_suspected(
    postgres_url: str, session: ReplicationConnection
) -> None:
    """Its rows are as young as it is; what was sent of them was not captured."""
    told, untold = Watched(session, "DDL told"), Watched(session)
    told.look()
    untold.look()

    do(
        postgres_url,
        "CREATE SCHEMA away; CREATE TABLE away.fresh (id int PRIMARY KEY, v int)",
        "INSERT INTO away.fresh VALUES (1)",
        "ALTER TABLE away.fresh SET SCHEMA public",
        "CREATE TABLE public.whole (id int, v int)",
        "ALTER TABLE whole ADD PRIMARY KEY (id)",
    )

    assert told.look() == (set(), {}), "the statement came"
    assert untold.look() == (set(), {TableId("public", "fresh"): CAME})


def test_a_table_with_a_captured_name_that_cannot_be_searched_is_suspected(
    postgres_url: str, session: ReplicationConnection
) -> None:
    do(postgres_url, "CREATE SCHEMA away; CREATE TABLE away.old (id int)")
    watched = Watched(session, "DDL told")
    watched.look()
    do(postgres_url, "ALTER TABLE away.old SET SCHEMA public")

    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("LOCK TABLE old")

        assert watched.look() == (set(), {TableId("public", "old"): CAME})


def test_a_partition_that_came_with_the_file_of_another_table_is_suspected() -> None:
    """ADD PARTITION and EXCHANGE: the catalog names that table's file."""
    before = StoredTable(PARTED, 16385, 16385, parts=(Part(16390, 16390),)).version.files

    def has_files(*parts: tuple[int, int]) -> bool:
        now = StoredTable(PARTED, 16385, 16385, parts=tuple(Part(*part) for part in parts))
        return now.has_files_of(before)

    assert has_files((16390, 16390))
    assert has_files((16390, 16390), (16400, 16400))
    assert not has_files((16390, 16390), (16400, 16377))
    assert not has_files((16400, 16400))


def test_a_table_that_was_dropped_and_made_again_is_seen_where_no_statement_is_sent(
    postgres_url: str, session: ReplicationConnection
) -> None:
    told, untold = Watched(session, "DDL told"), Watched(session)
    told.look()
    untold.look()

    do(postgres_url, "DROP TABLE other; CREATE TABLE other (id int PRIMARY KEY)")

    assert told.look() == (set(), {})
    assert untold.look() == (
        set(),
        {OTHER: "was dropped and made again: its older rows are still at targets"},
    )


def test_a_table_that_went_or_got_another_name_is_seen_where_no_statement_is_sent(
    postgres_url: str, session: ReplicationConnection
) -> None:
    told, untold = Watched(session, "DDL told"), Watched(session)
    told.look()
    untold.look()

    do(postgres_url, f"DROP TABLE other; ALTER TABLE {NAME} RENAME TO u")

    assert told.look() == (set(), {})
    assert told.dropped == set()
    assert untold.look() == (set(), {TableId("public", "u"): RENAMED})
    assert untold.dropped == {OTHER, T}
    assert untold.look() == (set(), {})
    assert untold.dropped == set()


def test_a_table_that_got_a_name_which_is_not_captured_is_there_still(
    postgres_url: str, session: ReplicationConnection
) -> None:
    watched = Watched(session)
    watched.look()

    do(postgres_url, "CREATE SCHEMA away; ALTER TABLE other SET SCHEMA away")

    assert watched.look() == (set(), {OTHER: "is not captured any more: it has another name"})
    assert watched.dropped == set()


def test_a_table_that_takes_the_place_of_another_is_another_one(
    postgres_url: str, session: ReplicationConnection
) -> None:
    watched = Watched(session)
    watched.look()

    do(postgres_url, "ALTER TABLE other RENAME TO old", "CREATE TABLE other (id int PRIMARY KEY)")

    assert watched.look() == (
        set(),
        {
            TableId("public", "old"): RENAMED,
            OTHER: "was dropped and made again: its older rows are still at targets",
        },
    )


@pytest.mark.parametrize("is_late", [False, True])
def test_a_name_that_only_the_stream_has_seen_was_that_of_a_table_that_was_altered(
    is_late: bool, postgres_url: str, session: ReplicationConnection
) -> None:
    told, untold = Watched(session, "DDL told"), Watched(session)
    for watched in (told, untold):
        watched.look(T, OTHER, PARTED)
    before = TableId("public", "before")

    do(postgres_url, f"ALTER TABLE {NAME} RENAME TO before", f"ALTER TABLE before RENAME TO {NAME}")

    known = (T, OTHER, PARTED, before)
    assert told.look(*known) == (set(), {})
    if is_late:  # the stream brings it behind the look
        assert untold.look(*known[:-1]) == (set(), {T: RENAMED})
        assert untold.dropped == set()
    assert untold.look(*known) == (set(), {} if is_late else {T: RENAMED})
    assert untold.dropped == {before}
    do(postgres_url, f"GRANT SELECT ON {NAME}, other TO public")
    assert untold.look(*known[:-1]) == (set(), {}), "it was judged, and is not known any more"


def test_a_table_that_was_read_again_is_not_suspected_for_what_was_before(
    postgres_url: str, session: ReplicationConnection
) -> None:
    watched = Watched(session)
    watched.look()

    do(postgres_url, f"TRUNCATE {NAME}", "TRUNCATE other")
    read = stored(session, lambda table: table == T)
    assert watched.before is not None
    at = Before.of_files(0, (), {oid: table.version for oid, table in read.items()})
    watched.before = watched.before.with_tables(at)

    assert watched.emptied() == {OTHER}


def test_a_catalog_that_cannot_be_read_is_told_once_and_changes_nothing(
    session: ReplicationConnection, postgres_url: str
) -> None:
    watched = Watched(session)
    watched.look()
    before = watched.before
    session.query("SET search_path = away, pg_catalog")
    do(postgres_url, "CREATE SCHEMA away; CREATE FUNCTION away.concat(bigint, text, numeric, text,"
       " numeric) RETURNS text LANGUAGE plpgsql AS 'BEGIN RAISE division_by_zero; END'",
       "TRUNCATE other")  # fmt: skip

    assert watched.look() == watched.look() == (set(), {})
    assert watched.before == before
    assert len(watched.notes) == 1
    assert "were not looked for" in watched.notes[0]
    with pytest.raises(
        SourceError, match="sqlstate=22012"
    ):  # `wait` must not take it for "as before"
        StorageWatch(watched.told, {T, OTHER}.__contains__).compare(
            session, before, watched.notes.append, ()
        )
    session.query("RESET search_path")
    assert watched.emptied() == {OTHER}
