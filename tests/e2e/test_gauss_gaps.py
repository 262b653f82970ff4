"""What GaussDB does not send, done at the facade: each has its class in the cut."""

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import replace

import pytest

from gauss_cdc.config import load
from gauss_cdc.inspect.places import Endpoints
from producer.sources.gauss.gaps import BY_NAME, DecodingMode, Detectability
from producer.sources.gauss.options import Vendor
from tests.e2e.commands import configured
from tests.e2e.gauss_facade import PASSWORD
from tests.e2e.path import ask, until
from tests.e2e.tables import differences
from tests.e2e.test_ddl_gaps import Watched
from tests.e2e.test_gauss_modes import caught_up, gauss, is_streaming, source_of

__all__ = ["gauss"]

START = """
CREATE TABLE mixed (id int PRIMARY KEY, v text);
CREATE TABLE computed (id int PRIMARY KEY);
CREATE TABLE volatile (id int PRIMARY KEY);
CREATE TABLE wider (id int PRIMARY KEY);
CREATE TABLE keyless (id int);
CREATE TABLE nothing (id int PRIMARY KEY, v text);
CREATE TABLE exact (id int PRIMARY KEY);
CREATE TABLE parted (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE parted_0 PARTITION OF parted FOR VALUES FROM (0) TO (10);
CREATE TABLE parted_1 PARTITION OF parted FOR VALUES FROM (10) TO (20);
INSERT INTO parted VALUES (1), (11);
ALTER TABLE nothing REPLICA IDENTITY NOTHING;
INSERT INTO computed VALUES (1); INSERT INTO volatile VALUES (1); INSERT INTO wider VALUES (1);
INSERT INTO keyless VALUES (1); INSERT INTO nothing VALUES (1, 'x');
"""
# Of GaussDB, and of what it does not send but the catalog shows, or clears of suspicion.
MORE = """
CREATE TABLE kept (id int PRIMARY KEY); INSERT INTO kept VALUES (1);
CREATE TABLE emptied (id int PRIMARY KEY); INSERT INTO emptied VALUES (1);
CREATE TABLE swapped (id int PRIMARY KEY); INSERT INTO swapped VALUES (5);
CREATE TABLE r1 (id int PRIMARY KEY); CREATE TABLE r2 (id int PRIMARY KEY);
CREATE TABLE r3 (id int PRIMARY KEY); CREATE TABLE r4 (id int PRIMARY KEY);
CREATE TABLE r5 (id int PRIMARY KEY); CREATE TABLE r6 (id int PRIMARY KEY);
CREATE TABLE r7 (id int PRIMARY KEY); CREATE TABLE r8 (id int PRIMARY KEY);
"""
ONE = "INSERT INTO mixed VALUES (1)"
# The table that is told, and transactions at the source, by the case of the table of losses.
WHILE_READ = {
    "mixed": ("mixed", [f"{ONE}; ALTER TABLE mixed ADD n int; INSERT INTO mixed VALUES (2)"]),
    "ctas": ("filled", ["CREATE TABLE filled AS SELECT g AS id FROM generate_series(1, 3) g"]),
    "partition": ("parted", ["DROP TABLE parted_1"]),  # GaussDB: ALTER TABLE … DROP PARTITION
    "computed": ("computed", ["ALTER TABLE computed ADD n int DEFAULT length('a')"]),
    "volatile": ("volatile", ["ALTER TABLE volatile ADD r float8 DEFAULT random()",
                              "INSERT INTO volatile VALUES (2, 0.5)"]),
    "old-row": ("keyless", ["UPDATE keyless SET id = 2"]),
    "old-key": ("nothing", ["UPDATE nothing SET v = 'y'"]),
}  # fmt: skip
WHILE_NOT = {
    "ctas-late": (
        "late",
        ["CREATE TABLE late (id int PRIMARY KEY)", "INSERT INTO late VALUES (1)"],
    ),
}
NEW = "CREATE TABLE {} (id int PRIMARY KEY)"
TWO = "INSERT INTO {0} VALUES (111)", "INSERT INTO {0} VALUES (222)"
# GaussDB's manual, DDL in logical decoding: each example of a mixed transaction; what of it is
# suspected: new tables that are not empty, others, and what the catalog shows.
MANUAL = {
    "ddl, row, ddl": ([NEW.format("d1"), TWO[0].format("d1"), NEW.format("d2")], {"d1"}),
    "row, ddl, row": ([TWO[0].format("r1"), NEW.format("d3"), TWO[1].format("r1")], {"r1"}),
    "row, ddl, ddl": ([TWO[0].format("r2"), NEW.format("d4"), NEW.format("d5")], {"r2"}),
    "ddl, type, ddl": ([NEW.format("d6"), "CREATE TYPE t1 AS (n int)", NEW.format("d7")], set()),
    "rows": ([each.format("r3") for each in TWO], set()),
    "row, type, row": ([TWO[0].format("r4"), "CREATE TYPE t2 AS (n int)", TWO[1].format("r4")],
                       {"r4"}),
    "row, type, ddl": ([TWO[0].format("r5"), "CREATE TYPE t3 AS (n int)", NEW.format("d8")],
                       {"r5"}),
    "grant, row": (["GRANT SELECT ON r6 TO public", TWO[0].format("r6")], {"r6"}),
    # And what it does not have.
    "alter, row": (["ALTER TABLE r7 ADD n int", TWO[0].format("r7")], {"r7"}),
    "alter": (["ALTER TABLE r8 ADD n int"], set()),
}  # fmt: skip
EXCHANGE = "SELECT gauss_compat.exchange('parted', 'parted_0', 'swapped')"
LAST = "INSERT INTO exact VALUES (1)"
# openGauss without a publication that tells DDL.  A table written anew has no values for older
# rows in the catalog: ustore never has, nor has a default that was computed row by row.
AT_OPENGAUSS = {
    "ustore": ("wider", ["ALTER TABLE wider ADD n int DEFAULT 5; CLUSTER wider USING wider_pkey",
                         "INSERT INTO wider VALUES (2)"]),
    "computed": (
        "computed",
        [
            "ALTER TABLE computed ADD n int DEFAULT sign(2); CLUSTER computed USING computed_pkey",
            "INSERT INTO computed VALUES (2)",
        ],
    ),
    "volatile": WHILE_READ["volatile"],
    "old-row": WHILE_READ["old-row"],
    "old-key": WHILE_READ["old-key"],
}  # fmt: skip


@contextmanager
def streaming(addresses, prefix, databases, gauss, **how):
    """A path that reads a server of the family from the state above."""
    source, target = databases
    ask(source, START)
    with Watched(
        addresses, prefix, source, target,
        plugin="mppdb_decoding", without_identity="skip-and-record", include=("public.*",), **how,
    ) as path:  # fmt: skip
        path.watch()
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        yield path


def assert_reported(
    path: Watched,
    cases: Mapping[str, tuple[str, list[str]]],
    mode: DecodingMode,
    *,
    loaded: str = "",
) -> None:
    """Each case has its class in a cut, its table is marked, and nothing else differs.

    `loaded`: a table that came while nothing was read; its load mends it.
    """
    reported = {(f"public.{table}", BY_NAME[case].kind(mode)) for case, (table, _) in cases.items()}
    assert len(reported) == len(cases)
    assert path.holes == {(table, kind.value) for table, kind in reported if kind is not None}
    marked = {table for table, _ in reported} - {loaded}
    until(lambda: loaded not in path.applier.drain().inexact, "its load", path._stop.wait)
    inexact = dict(path.applier.drain().inexact)
    assert inexact.keys() == marked
    assert differing(path.source, path.target, set(inexact)) == []


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_gap_is_in_the_cut_and_its_table_is_marked(
    addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    with streaming(
        addresses, topic_prefix, (source, target), gauss,
        kind="gaussdb", plugin_options={"enable-ddl-decoding": "true"},
    ) as path:  # fmt: skip
        ask(source, "CREATE TABLE plain (id int PRIMARY KEY, v text)")
        caught_up(path, "plain")
        ask(source, "INSERT INTO plain VALUES (1, 'x')")
        caught_up(path, "plain")
        assert path.holes == set()

        for _, transactions in WHILE_READ.values():
            for transaction in transactions:
                ask(source, transaction)
        until(lambda: ("public.nothing", "suspected") in holes(path), "holes", path._stop.wait)
        path.stop()
        for _, transactions in WHILE_NOT.values():
            for transaction in transactions:
                ask(source, transaction)
        ask(source, LAST)
        path.start()
        caught_up(path, "exact")

        mode = DecodingMode(Vendor.GAUSSDB, decodes_ddl=True)
        assert {kind for _, kind in path.holes} == {Detectability.SEEN, Detectability.SUSPECTED}
        assert_reported(path, {**WHILE_READ, **WHILE_NOT}, mode, loaded="public.late")


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_what_one_run_had_no_time_to_look_for_the_next_one_does(
    addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    with streaming(
        addresses, topic_prefix, (source, target), gauss,
        kind="gaussdb", plugin_options={"enable-ddl-decoding": "true"}, look_seconds=3_600.0,
    ) as path:  # fmt: skip
        ask(source, LAST)
        caught_up(path, "exact")
        until(lambda: holes(path) == set() and path.looked is not None, "a look", path._stop.wait)

        ask(source, "GRANT SELECT ON wider TO public; INSERT INTO wider VALUES (2)")
        ask(source, "INSERT INTO exact VALUES (2)")
        caught_up(path, "exact")  # what came behind the lost row is delivered, and nobody looked
        path.stop()
        assert path.holes == set()
        path.options = replace(path.options, look_seconds=1.0)
        path.start()

        lost = ("public.wider", "suspected")
        until(lambda: lost in holes(path), "the lost row", path._stop.wait)
        assert path.holes == {lost}


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
def test_a_wait_ends_behind_the_look_that_finds_lost_rows(
    addresses, topic_prefix, new_database, gauss, tmp_path, monkeypatch
) -> None:
    source, target = new_database(), new_database()
    monkeypatch.setenv("GAUSS_CDC_SOURCE_PASSWORD", PASSWORD)
    dsn = f"{gauss}/{source.rsplit('/', 1)[1]}?sslmode=disable"
    how = {"kind": "gaussdb", "plugin": "mppdb_decoding"}
    file = configured(tmp_path, addresses, topic_prefix, dsn, target, **how)
    options = "[source.options]\nenable-ddl-decoding = true\n"
    file.write_text(file.read_text().replace("[kafka]\n", f"{options}[kafka]\n"))
    with (
        streaming(
            addresses, topic_prefix, (source, target), gauss,
            kind="gaussdb", plugin_options={"enable-ddl-decoding": "true"},
        ) as path,
        Endpoints(load(file)) as places,
    ):  # fmt: skip
        said: list[str] = []

        def pause(seconds: float) -> bool:
            path.applier.drain()
            return path._stop.wait(min(seconds, 0.1))

        def waited() -> AbstractSet[str]:
            standing = places.wait(places.source().goal(), pause, lambda _: None, said.append)
            assert standing is not None
            assert standing.target is not None
            return standing.target.inexact.keys()

        ask(source, LAST)
        assert waited() == set()
        marked = set[str]()
        for table in ("wider", "volatile", "computed", "keyless"):  # at any time between two looks
            ask(source, f"GRANT SELECT ON {table} TO public; INSERT INTO {table} VALUES (2)")
            marked.add(f"public.{table}")
            assert waited() == marked
        assert any("`run` has not reported yet" in note for note in said)


@pytest.mark.parametrize("gauss", ["og7"], indirect=True)
def test_a_gap_of_opengauss_is_in_the_cut(addresses, topic_prefix, new_database, gauss) -> None:
    source, target = new_database(), new_database()
    with streaming(addresses, topic_prefix, (source, target), gauss, kind="opengauss") as path:
        for _, transactions in AT_OPENGAUSS.values():
            for transaction in transactions:
                ask(source, transaction)
        ask(source, LAST)
        caught_up(path, "exact")
        assert_reported(path, AT_OPENGAUSS, DecodingMode(Vendor.OPENGAUSS))


def differing(source: str, target: str, inexact: AbstractSet[str] = frozenset()) -> list[str]:
    """What differs, without the facade's own tables."""
    found = differences(source, target, inexact)
    return [text for text in found if not text.startswith("gauss_compat.")]


def holes(path: Watched) -> set[tuple[str, str]]:
    path.applier.drain()
    return path.holes
