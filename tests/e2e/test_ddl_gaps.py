"""What a PostgreSQL source with event triggers does not send: each has its class in the cut."""

import time

import pytest

from producer.sources.postgres.gaps import GAPS
from schemas.control import Looked
from spark_consumers.loop import job
from tests.e2e.path import Path, ask, until
from tests.e2e.tables import differences
from tests.e2e.test_ddl import install

START = """
CREATE TABLE t (id int PRIMARY KEY, v text);
CREATE TABLE h (id int PRIMARY KEY) PARTITION BY HASH (id);
CREATE TABLE h_0 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE h_1 PARTITION OF h FOR VALUES WITH (MODULUS 2, REMAINDER 1);
CREATE TABLE r (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE r_0 PARTITION OF r FOR VALUES FROM (0) TO (10);
CREATE TABLE r_1 PARTITION OF r FOR VALUES FROM (10) TO (20);
CREATE SCHEMA hidden; CREATE TABLE hidden.x (id int PRIMARY KEY); INSERT INTO hidden.x VALUES (25);
CREATE TABLE hidden.y (id int PRIMARY KEY); INSERT INTO hidden.y VALUES (1);
INSERT INTO t VALUES (1, 'one'), (2, 'two');
INSERT INTO h SELECT generate_series(1, 20); INSERT INTO r SELECT generate_series(1, 19);
CREATE TYPE pair AS (a int, b int);
CREATE FUNCTION f() RETURNS void LANGUAGE sql AS 'ALTER TABLE t ALTER v TYPE varchar(3)';
"""
SEEN = {
    "ADD COLUMN with a volatile default: values of older rows": (
        "public.t",
        "ALTER TABLE t ADD COLUMN r float8 DEFAULT random()",
    ),
    "ALTER TYPE … USING, computed": (
        "public.t",
        "ALTER TABLE t ALTER v TYPE int USING length(v)",
    ),
    "ALTER TYPE of xml, regclass and its like": (
        "public.t",
        "ALTER TABLE t ADD COLUMN p regclass; UPDATE t SET p = 't'; ALTER TABLE t ALTER p TYPE oid",
    ),
    "rename of what a regclass value names": (
        "public.t",
        "ALTER TABLE t ADD p regclass; UPDATE t SET p = 'h'; ALTER TABLE h RENAME TO i;"  # noqa: ISC004
        "ALTER TABLE t DROP p",
    ),
    "ALTER TYPE within a function": ("public.t", "SELECT f()"),
    "a table becomes captured later: its older rows": (
        "public.y",
        "ALTER TABLE hidden.y SET SCHEMA public",
    ),
    "SET UNLOGGED, or a name outside of [tables]: later rows": (
        "public.t",
        "ALTER TABLE t SET SCHEMA hidden; INSERT INTO hidden.t VALUES (3, 'x')",
    ),
    "DETACH or DROP of a partition whose bounds only the source computes": (
        "public.h",
        "DROP TABLE h_0",
    ),
    "TRUNCATE of a partition whose bounds only the source computes": (
        "public.h",
        "TRUNCATE h_0",
    ),
    "attributes of a composite type: values of older rows": (
        "public.t",
        "ALTER TABLE t ADD COLUMN p pair; UPDATE t SET p = (1, 2);ALTER TYPE pair DROP ATTRIBUTE b",
    ),
    "ATTACH of a table that was not captured": (
        "public.r",
        "ALTER TABLE r ATTACH PARTITION hidden.x FOR VALUES FROM (20) TO (30)",
    ),
}
INVISIBLE = {
    "rows that pg_surgery kills, or that damage takes": (
        "CREATE EXTENSION pg_surgery; SELECT heap_force_kill('t', ARRAY['(0,1)']::tid[])"
    ),
}
EXACT = {
    "ADD COLUMN with a constant or stable default": (
        "ALTER TABLE t ADD COLUMN a int DEFAULT 5, ADD COLUMN b timestamptz DEFAULT now()"
    ),
    "ALTER TYPE by assignment or a plain cast": (
        "ALTER TABLE t ALTER v TYPE varchar(9) USING v::varchar(9), ALTER id TYPE bigint"
    ),
    "a primary key dropped, or made later": "ALTER TABLE t REPLICA IDENTITY FULL;"
    "ALTER TABLE t DROP CONSTRAINT t_pkey; UPDATE t SET id = id + 1; ALTER TABLE t ADD PRIMARY KEY"
    " (id)",
    "rename of a column, unless its number identifies it": "ALTER TABLE t RENAME v TO w",
    "rename of a table, SET SCHEMA": "ALTER TABLE t RENAME TO u",
    "CREATE TABLE AS, SELECT INTO into a schema that is published": (
        "CREATE TABLE c AS SELECT * FROM t"
    ),
    "DROP TABLE": "DROP TABLE t",
    "DETACH or DROP of a partition by range or list": "DROP TABLE r_0; "
    "ALTER TABLE r DETACH PARTITION r_1",
    "TRUNCATE of a partition by range or list, of a published root": "TRUNCATE r_0;"
    "INSERT INTO r VALUES (3); TRUNCATE r_1; INSERT INTO r VALUES (15);"
    "INSERT INTO h VALUES (30); TRUNCATE h; INSERT INTO h VALUES (31)",
    "ATTACH of a table that was captured": "CREATE TABLE n (id int PRIMARY KEY);"
    "INSERT INTO n VALUES (22); ALTER TABLE r ATTACH PARTITION n FOR VALUES FROM (20) TO (30)",
}


class Watched(Path):
    """A path that keeps the holes of the cuts it read, and what the catalog was then."""

    def watch(self) -> None:
        self.holes: set[tuple[str, str]] = set()
        self.looked: Looked | None = None

        def read(ledger):
            for offset, cut in self.cuts(ledger):
                for entry in getattr(cut, "commits", ()):
                    self.holes |= {(hole.table, hole.kind) for hole in entry.holes}
                self.looked = getattr(cut, "looked", None) or self.looked
                yield offset, cut

        self.applier = job.Applier(read, self.rows, self.sink)

    def look(self) -> None:
        """Wait until a look at the catalog was compared that shows the triggers.

        A later one is compared with a look when statements were not described, else: a table that
        is emptied and filled in one transaction is suspected.
        """

        def looked() -> bool:
            self.catch_up()
            return self.looked is not None and self.looked.triggers != ""

        until(looked, "a look", time.sleep)


@pytest.fixture
def path(addresses, topic_prefix, new_database):
    source, target = new_database(), new_database()
    ask(source, START)
    include = ("public.*",)
    with Watched(addresses, topic_prefix, source, target, include=include) as path:
        path.watch()
        path.start()
        path.catch_up()
        install(source, topic_prefix, include)
        path.catch_up()
        assert path.holes == set()
        yield path


def reported(case: str) -> str:
    return next(row.with_triggers for row in GAPS if row.case == case)


@pytest.mark.parametrize("case", INVISIBLE)
def test_what_only_a_comparison_shows_is_called_so(path, case) -> None:
    assert reported(case) == "invisible"

    ask(path.source, INVISIBLE[case])

    assert path.catch_up().inexact == {}
    assert differences(path.source, path.target, set()) != []


@pytest.mark.parametrize("case", SEEN)
def test_a_gap_is_in_the_cut_and_its_table_is_marked(path, case) -> None:
    table, statement = SEEN[case]
    ask(path.source, statement)
    ledger = path.catch_up()

    assert (table, reported(case)) in path.holes
    assert table in ledger.inexact
    assert ledger.state == "LOADING"
    differing = differences(path.source, path.target, set(ledger.inexact))
    assert [text for text in differing if not text.startswith("hidden.")] == []


SCHEMAS = "schemas in publications"


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.since(15, SCHEMAS) if "into a schema" in case else ())
        for case in EXACT
    ],
)
def test_what_is_not_a_gap_leaves_an_equal_target(path, case) -> None:
    path.look()
    ask(path.source, EXACT[case])
    ledger = path.catch_up()

    assert reported(case) == ""
    assert (dict(ledger.inexact), path.holes) == ({}, set())
    differing = differences(path.source, path.target)
    assert [text for text in differing if not text.startswith("hidden.")] == []


def test_a_partition_that_is_truncated_as_a_replica_is_suspected(path) -> None:
    """No trigger sees it and nothing is sent; the partition's file is another one, and empty."""
    ask(path.source, "SET session_replication_role = replica; TRUNCATE r_0")
    until(lambda: "public.r" in path.catch_up().inexact, "a mark", time.sleep)

    assert (
        reported("TRUNCATE of a partition under session_replication_role = replica") == "suspected"
    )
    assert ("public.r", "suspected") in path.holes
    assert any("public.r: rows differ" in d for d in differences(path.source, path.target))


def test_a_key_that_went_while_a_trigger_was_off_is_none_of_later_rows(path) -> None:
    ask(path.source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end DISABLE")
    ask(path.source, "ALTER TABLE t DROP CONSTRAINT t_pkey")
    ask(path.source, "ALTER EVENT TRIGGER gauss_cdc_ddl_end ENABLE ALWAYS")
    ask(path.source, "INSERT INTO t SELECT * FROM t")

    ledger = path.catch_up()

    differing = differences(path.source, path.target, set(ledger.inexact))
    assert [text for text in differing if not text.startswith("hidden.")] == []
