"""A look at a real catalog while others alter it."""

import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import psycopg2
import pytest

from producer.core.catalog.catalog_differences import differences
from producer.core.catalog.look import Before, Cause, Look, Rewritten, Unchanged
from producer.options import Options
from producer.sources.dial import parse_dsn
from producer.sources.patterns import chooser
from producer.sources.postgres import catalog
from producer.sources.postgres.catalog_look import baseline, look
from producer.sources.postgres.publications import mark_ours
from schemas.tables import TableId
from tests.e2e.path import ask
from tests.services_fixtures import execute
from tests.versions import need

T = TableId("public", "t")


@pytest.fixture
def options(postgres_url: str) -> Options:
    execute(postgres_url, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    execute(postgres_url, "CREATE PUBLICATION p FOR ALL TABLES")
    return Options(
        source=parse_dsn(postgres_url), slot="s", publication="p", prefix="x", client={},
        registry_url="",
    )  # fmt: skip


@pytest.fixture
def session(options: Options) -> Iterator:
    with closing(catalog.connect(options.source)) as connection:
        yield connection


def test_a_look_finds_what_a_reading_found_before(options: Options, session) -> None:
    known = {T: catalog.table_schemas(session, [T])[0]}
    seen = look(session, options, known, unless="")

    assert seen is not None
    wanted = chooser(options.include, options.exclude)
    assert not [*differences(known, seen, wanted=wanted, publication="p")]
    assert isinstance(look(session, options, known, unless=seen.signature), Unchanged)
    assert session.info.transaction_status == psycopg2.extensions.TRANSACTION_STATUS_IDLE


def test_a_table_that_is_being_altered_is_looked_at_later(
    options: Options, session, postgres_url: str
) -> None:
    known = {T: catalog.table_schemas(session, [T])[0]}
    with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
        cursor.execute("CREATE TABLE root (id int) PARTITION BY LIST (id)")
        cursor.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        look(session, options, known, unless="")  # ends, whether it needs the lock or not
        cursor.execute("DROP TABLE t")
        other.commit()

    seen = look(session, options, known, unless="")
    assert seen is not None
    found = [
        *differences(known, seen, wanted=chooser(options.include, options.exclude), publication="p")
    ]
    assert [str(finding) for finding in found] == ["public.t was dropped"]


def test_tables_that_come_and_go_meanwhile_stop_nothing(
    options: Options, session, postgres_url: str
) -> None:
    done = threading.Event()

    def churn() -> None:
        with closing(psycopg2.connect(postgres_url)) as other, other.cursor() as cursor:
            other.autocommit = True
            while not done.is_set():
                cursor.execute("CREATE TABLE passing (id int PRIMARY KEY, v text)")
                cursor.execute("DROP TABLE passing")

    thread = threading.Thread(target=churn)
    thread.start()
    try:
        seen = [look(session, options, {}, unless="") for _ in range(200)]
    finally:
        done.set()
        thread.join()

    assert any(seen)


SETUP = """
CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE SCHEMA aside;
CREATE TABLE m (id int PRIMARY KEY, v int, mood mood);
CREATE TABLE r (id int, v int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE r_1 PARTITION OF r FOR VALUES FROM (0) TO (10);
CREATE TABLE r_2 PARTITION OF r FOR VALUES FROM (10) TO (20);
CREATE TABLE loose (id int PRIMARY KEY, v int);
INSERT INTO m SELECT n, n, 'ok' FROM generate_series(1, 9) n;
INSERT INTO r SELECT n, n FROM generate_series(1, 19) n;
INSERT INTO loose VALUES (21, 21);
DROP PUBLICATION p
"""
ALL, LISTED, SPACES = "FOR ALL TABLES", "FOR TABLE m, r", "FOR TABLES IN SCHEMA public"
UNLOGGED = "ALTER TABLE {0} SET UNLOGGED; UPDATE {0} SET v = v + 1; ALTER TABLE {0} SET LOGGED"


class Looks:
    """Looks at the tables m and r, one after the other."""

    def __init__(self, options: Options, session, url: str, publication: str) -> None:
        self.options, self.session, self.url = options, session, url
        execute(url, SETUP)
        execute(url, f"CREATE PUBLICATION p {publication} WITH (publish_via_partition_root)")
        self.known = {
            table: catalog.table_schemas(session, [table])[0]
            for table in (TableId("public", "m"), TableId("public", "r"))
        }
        self.before = baseline(session, options, list(self.known))

    def look(self) -> Look:
        found = look(self.session, self.options, self.known, unless="", before=self.before)
        assert isinstance(found, Look)
        return found

    def rewritten(self, table: str) -> list[Rewritten]:
        """Return what the next look finds of a table's files."""
        (seen,) = (seen for seen in self.look().tables.values() if seen.id.name == table)
        return [each for doubt in seen.doubts for each in doubt.rewritten]

    def doubted(self, statements: str, *, together: bool = False) -> set[tuple[str, Cause]]:
        """Run statements, `together`: in one transaction; return what the next look doubts."""
        for statement in [statements] if together else statements.split(";"):
            execute(self.url, statement)
        found = self.look()
        assert found.publication == self.before.publication
        return {(seen.id.name, doubt.cause) for seen in found.tables.values()
                for doubt in seen.doubts}  # fmt: skip


@pytest.fixture(autouse=True)
def _is_taken(request: pytest.FixtureRequest, session) -> None:
    if any(word in request.node.nodeid for word in ("IN SCHEMA", "WHERE", "m (id")):
        need(session.server_version, 15, "schemas, WHERE and columns in publications")


@pytest.fixture
def looks(options: Options, session, postgres_url: str):
    return lambda publication: Looks(options, session, postgres_url, publication)


@pytest.mark.parametrize(
    "statements",
    [
        "VACUUM FULL m; VACUUM FULL r; CLUSTER m USING m_pkey",
        "VACUUM FULL pg_publication; VACUUM FULL pg_publication_rel; VACUUM FULL pg_enum",
        "VACUUM FREEZE pg_publication; VACUUM FREEZE pg_class; VACUUM FREEZE m; VACUUM FULL m",
        "REINDEX TABLE m; ANALYZE m; ALTER TABLE m SET (fillfactor = 50)",
        "ALTER TABLE m ADD c int DEFAULT 5; ALTER TABLE m DROP c",
        "ALTER TYPE mood ADD VALUE 'glad'; ALTER TYPE mood ADD VALUE 'so so' BEFORE 'ok'",
        "CREATE TABLE r_3 PARTITION OF r FOR VALUES FROM (20) TO (30); INSERT INTO r VALUES (25)",
        "CREATE TABLE other (id int); CREATE PUBLICATION q FOR TABLE other; DROP PUBLICATION q",
        "GRANT SELECT ON m TO PUBLIC; CREATE INDEX ON m (v); COMMENT ON TABLE m IS 'm'",
    ],
)
@pytest.mark.parametrize("publication", [ALL, LISTED, SPACES])
def test_what_hides_nothing_is_no_doubt(looks, statements: str, publication: str) -> None:
    assert looks(publication).doubted(statements) == set()


@pytest.mark.parametrize(
    ("publication", "exclude", "doubts"),
    [(ALL, (), set()), (ALL, ("aside.*",), {"n"}), (LISTED, ("aside.*",), set()),
     (SPACES, (), {"n"})],
)  # fmt: skip
def test_a_new_table_of_another_owner_is_in_doubt_where_it_may_have_been_left_out_before(
    looks, publication: str, exclude: tuple[str, ...], doubts: set[str]
) -> None:
    """As `pg_restore` makes each of them; the catalog shows a rename in the same way."""
    subject = looks(publication)
    subject.options = replace(subject.options, exclude=exclude)
    made = "CREATE TABLE n (id int PRIMARY KEY); ALTER TABLE n OWNER TO pg_monitor"
    expected = {(table, Cause.NAME) for table in doubts}
    assert subject.doubted(made) == expected


@pytest.mark.parametrize(
    ("publication", "statements", "doubts"),
    [
        (LISTED, "ALTER PUBLICATION p SET TABLE m, r", set()),
        (LISTED, "ALTER PUBLICATION p ADD TABLE loose", set()),
        (LISTED, "ALTER PUBLICATION p DROP TABLE m; ALTER PUBLICATION p ADD TABLE m",
         {("m", Cause.ENTRIES)}),
        (LISTED, ("ALTER PUBLICATION p SET TABLE m WHERE (id > 5), r;"
         " ALTER PUBLICATION p SET TABLE m, r"), {("m", Cause.ENTRIES)}),
        (LISTED, "ALTER PUBLICATION p SET TABLE m (id), r; ALTER PUBLICATION p SET TABLE m, r",
         {("m", Cause.ENTRIES)}),
        (LISTED, "ALTER TABLE m RENAME TO n; ALTER TABLE n RENAME TO m", set()),
        (SPACES, ("ALTER PUBLICATION p DROP TABLES IN SCHEMA public;"
         " ALTER PUBLICATION p ADD TABLES IN SCHEMA public"),
         {("m", Cause.ENTRIES), ("r", Cause.ENTRIES)}),
        (SPACES, "ALTER TABLE m SET SCHEMA aside; ALTER TABLE aside.m SET SCHEMA public",
         {("m", Cause.NAME)}),
        (ALL, "ALTER TYPE mood RENAME VALUE 'ok' TO 'x'; ALTER TYPE mood RENAME VALUE 'x' TO 'ok'",
         {("m", Cause.LABELS)}),
        (ALL, UNLOGGED.format("m"), {("m", Cause.FILES)}),
        (ALL, UNLOGGED.format("r_1"), {("r", Cause.FILES)}),
        (ALL, "ALTER TABLE m ALTER v TYPE int USING v + 1000", {("m", Cause.FILES)}),
        (ALL, ("ALTER TABLE m ALTER v TYPE text USING v + 1;"
         " ALTER TABLE m ALTER v TYPE int USING v::int + 1; INSERT INTO m VALUES (99)"),
         {("m", Cause.FILES)}),
        (ALL, "TRUNCATE m; INSERT INTO m VALUES (1)", {("m", Cause.FILES)}),
        (ALL, "TRUNCATE r_1", {("r", Cause.FILES)}),
        (ALL, ("ALTER TABLE r DETACH PARTITION r_1; INSERT INTO r_1 VALUES (0);"
         " ALTER TABLE r ATTACH PARTITION r_1 FOR VALUES FROM (0) TO (10)"),
         {("r", Cause.PARTS)}),
        (ALL, "ALTER TABLE r ATTACH PARTITION loose FOR VALUES FROM (20) TO (30)",
         {("r", Cause.PARTS)}),
        (ALL, "DROP TABLE r_2", {("r", Cause.PARTS)}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("together", [True, False])
def test_what_was_there_and_back_between_two_looks_is_doubted(
    looks, publication: str, statements: str, doubts: set[tuple[str, Cause]], together: bool
) -> None:
    first = looks(publication)
    assert first.doubted(statements, together=together) == doubts

    again = first.look()  # by what a record of cuts says, as after a restart
    first.before = Before.of(first.before.looked())
    assert {(seen.id, seen.doubts) for seen in first.look().tables.values()} == {
        (seen.id, seen.doubts) for seen in again.tables.values()
    }
    asked = (seen for seen in again.tables.values() if seen.shape is not None)
    first.before = Before.at(again.horizon, again.publication, asked)
    assert first.doubted("SELECT") == set()


@pytest.mark.parametrize(
    ("statement", "opposite"),
    [
        ("SET (publish = 'insert')", "SET (publish = 'insert, update, delete, truncate')"),
        ("OWNER TO other", "OWNER TO CURRENT_USER"),
        ("RENAME TO q", "RENAME TO p"),
        ("SET (publish_via_partition_root = false)", "SET (publish_via_partition_root)"),
    ],
)
def test_an_altered_publication_has_another_version(looks, statement: str, opposite: str) -> None:
    first = looks(ALL)
    execute(first.url, "DO 'BEGIN CREATE ROLE other SUPERUSER; EXCEPTION WHEN others THEN END'")
    execute(
        first.url,
        f"BEGIN; ALTER PUBLICATION p {statement};"
        f" ALTER PUBLICATION {'q' if 'RENAME' in statement else 'p'} {opposite}; COMMIT",
    )
    assert first.look().publication != first.before.publication


def behind_the_snapshot(monkeypatch, url: str, statements: list[str]) -> None:
    """Run each statement behind one look's snapshot, before the look reads rows."""
    log_end = catalog.log_end

    def then_one(connection):
        end = log_end(connection)
        if statements:
            execute(url, statements.pop(0))
        return end

    monkeypatch.setattr(catalog, "log_end", then_one)


def test_a_row_that_comes_behind_a_look_does_not_fill_its_table(looks, monkeypatch) -> None:
    first = looks(ALL)
    execute(first.url, "TRUNCATE m; ALTER TABLE m ALTER v TYPE int USING v + 1")
    behind_the_snapshot(monkeypatch, first.url, ["INSERT INTO m VALUES (1, 1)"])

    assert [each.is_void for each in first.rewritten("m")] == [True]
    assert [each.is_void for each in first.rewritten("m")] == [False]


def test_a_table_that_is_rewritten_while_it_is_looked_at_is_looked_at_again(
    looks, monkeypatch
) -> None:
    first = looks(ALL)
    execute(first.url, "TRUNCATE m")
    altered = "ALTER TABLE m ALTER v TYPE int USING v + 1"
    behind_the_snapshot(monkeypatch, first.url, [altered])
    assert [(each.is_void, each.is_gone) for each in first.rewritten("m")] == [(True, False)]

    all_the_time = ["TRUNCATE m"] * 9
    behind_the_snapshot(monkeypatch, first.url, all_the_time)
    assert [(each.is_void, each.is_gone) for each in first.rewritten("m")] == [(False, True)]
    assert len(all_the_time) == 6


def test_rows_of_a_table_that_has_the_name_by_now_clear_nothing(looks, monkeypatch) -> None:
    """Its rows are older than the look before, and tell nothing of the one that was rewritten."""
    first = looks(ALL)
    execute(first.url, "ALTER TABLE m ALTER v TYPE int USING v + 1")
    swap = "ALTER TABLE m RENAME TO away; ALTER TABLE loose RENAME TO m"
    behind_the_snapshot(monkeypatch, first.url, [swap])

    seen = first.look().tables[first.known[TableId("public", "m")].oid]
    assert [doubt.cause for doubt in seen.doubts] == [Cause.FILES]


def test_rows_of_one_transaction_tell_a_truncate_from_what_follows_it(looks) -> None:
    first = looks(ALL)

    def rewritten(statements: str) -> list[tuple[bool, ...]]:
        execute(first.url, f"BEGIN; {statements}; COMMIT")
        found = first.look()
        (seen,) = (seen for seen in found.tables.values() if seen.id.name == "m")
        (xid,) = ask(first.url, "SELECT xmin::text::int FROM pg_class WHERE oid = 'm'::regclass")[0]
        first.before = Before.at(found.horizon, found.publication, [seen])
        return [
            (each.xid == xid, each.is_emptied, each.is_void)
            for doubt in seen.doubts
            for each in doubt.rewritten
        ]

    assert rewritten("TRUNCATE m; INSERT INTO m VALUES (1, 1)") == [(True, True, False)]
    assert rewritten("TRUNCATE m") == [(True, True, True)]
    altered = "TRUNCATE m; ALTER TABLE m ALTER v TYPE int USING v + 1"
    assert rewritten(altered) == [(True, False, True)]
    assert rewritten(f"{altered}; INSERT INTO m VALUES (1, 1)") == [(True, False, False)]
    assert rewritten(
        "TRUNCATE m; INSERT INTO m VALUES (1, 1); ALTER TABLE m ALTER v TYPE int USING v + 1"
    ) == [(True, False, False)]


@pytest.mark.parametrize(
    ("statement", "partly"),
    [
        ("SET (publish = 'insert, update')", "publishes only insert, update"),
        ("SET TABLE m WHERE (id > 5), r", "has a WHERE for it"),
        ("SET TABLE m (id, v), r", "has a column list for it"),
    ],
)
def test_a_table_that_is_published_partly_is_not_captured(
    looks, statement: str, partly: str
) -> None:
    first = looks(LISTED)
    execute(first.url, f"ALTER PUBLICATION p {statement}")
    found = first.look()
    seen = {seen.id.name: seen for seen in found.tables.values()}["m"]
    assert (seen.is_published, seen.partly) == (False, partly)
    assert seen.id not in found.missing
    findings = [*differences(first.known, found, wanted={seen.id}.__contains__, publication="p")]
    assert [str(each) for each in findings] == [
        (
            f"public.m is not published whole: publication p {partly}; it is read again once"
            " that is taken back"
        )
    ]


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t OWNER TO pg_read_all_stats",  # of which pg_monitor is a member
        "COMMENT ON PUBLICATION p IS 'ours'",
        "REVOKE USAGE ON SCHEMA public FROM PUBLIC",
    ],
)
def test_a_right_that_decides_who_may_publish_a_table_is_looked_at(
    options: Options, session, postgres_url: str, statement: str
) -> None:
    """A table that could not be published is tried again: no other row of a catalog changes."""
    with session.cursor() as cursor:
        cursor.execute("SET ROLE pg_monitor")
    seen = look(session, options, {}, unless="")
    assert isinstance(seen, Look)
    assert isinstance(look(session, options, {}, unless=seen.signature), Unchanged)

    execute(postgres_url, statement)

    assert isinstance(look(session, options, {}, unless=seen.signature), Look)


def test_a_publication_is_ours_where_we_may_alter_it(
    options: Options, session, postgres_url: str
) -> None:
    """Its comment says that we made it; its owner may be another one by now."""
    mark_ours(session, "p")
    for role, is_ours in (("RESET ROLE", True), ("SET ROLE pg_monitor", False)):
        with session.cursor() as cursor:
            cursor.execute(role)
        seen = look(session, options, {}, unless="")
        assert isinstance(seen, Look)
        assert seen.is_ours is is_ours


def test_a_partition_of_a_root_that_nobody_wants_stands_for_itself(looks) -> None:
    """As at a start: else it comes with its next row only, or with the next start."""
    root, one, two = (TableId("public", name) for name in ("r", "r_1", "r_2"))
    first = looks("FOR TABLE m")
    assert {root, one, two} & {*first.look().missing} == {root}

    first.options = replace(first.options, exclude=("public.r",))
    assert {root, one, two} & {*first.look().missing} == {one, two}
    execute(first.url, "ALTER PUBLICATION p ADD TABLE r_1")
    found = first.look()
    assert found.arrived == (one,)
    assert {root, one, two} & {*found.missing} == {two}
    execute(first.url, "ALTER PUBLICATION p ADD TABLE r")
    found = first.look()
    assert (found.arrived, {root, one, two} & {*found.missing}) == ((), set())
