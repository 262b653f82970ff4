"""What a PostgreSQL without triggers does not tell, and its catalog shows: as far as the cut."""

import json
import time
from pathlib import Path as File

import pytest

from spark_consumers.model import Ledger
from tests.e2e.commands import command, configured
from tests.e2e.path import Path, ask, content, until


@pytest.fixture
def path(addresses, topic_prefix, new_database) -> Path:
    source, target = new_database(), new_database()
    with Path(addresses, topic_prefix, source, target, look_seconds=0.2) as made:
        yield made


def applied(path: Path, is_so) -> Ledger:
    """Apply until the ledger is so."""
    seen: list[Ledger] = []

    def looks() -> bool:
        if path.failure is not None:
            raise path.failure
        seen[:] = [path.applier.drain()]
        return is_so(seen[0])

    until(looks, "what the catalog shows", time.sleep)
    return seen[0]


def rows(path: Path, table: str) -> list[str]:
    """Rows at the target; none while the table was dropped, and is not made again there."""
    is_there = ask(path.target, "SELECT to_regclass(%s) IS NOT NULL", table) == [(True,)]
    return content(path.target, table) if is_there else []


def test_what_the_stream_does_not_report_is_seen_in_the_catalog(path: Path) -> None:
    ask(
        path.source,
        "CREATE TYPE mood AS ENUM ('sad', 'ok'); CREATE TYPE size AS ENUM ('s', 'm');"
        "CREATE TYPE pair AS (a int, b int);"
        "CREATE TABLE again (id int PRIMARY KEY); CREATE TABLE gone (id int PRIMARY KEY);"
        "CREATE TABLE labels (id int PRIMARY KEY, m mood); CREATE TABLE more (id int, s size);"
        "CREATE TABLE pairs (id int PRIMARY KEY, p pair);"
        "CREATE TABLE loose (id int PRIMARY KEY); CREATE TABLE left_out (id int PRIMARY KEY);"
        "CREATE TABLE wide (id int PRIMARY KEY, v text); CREATE TABLE calm (id int PRIMARY KEY);"
        "CREATE TABLE root (id int) PARTITION BY LIST (id);"
        "CREATE TABLE part_a PARTITION OF root FOR VALUES IN (0);"
        "CREATE TABLE day (d int, v int) PARTITION BY LIST (d);"
        "CREATE TABLE day_1 PARTITION OF day FOR VALUES IN (1);"
        "CREATE TABLE emptied (d int) PARTITION BY LIST (d);"
        "CREATE TABLE emptied_1 PARTITION OF emptied FOR VALUES IN (1);"
        "INSERT INTO again VALUES (1); INSERT INTO labels VALUES (1, 'sad');"
        "INSERT INTO more VALUES (1, 's'); INSERT INTO pairs VALUES (1, '(1,2)');"
        "INSERT INTO loose VALUES (1); INSERT INTO left_out VALUES (1);"
        "INSERT INTO gone VALUES (1);"
        "INSERT INTO emptied VALUES (1); INSERT INTO day VALUES (1, 1)",
    )
    path.start()
    assert path.catch_up().inexact == {}
    ask(path.source, "CREATE TABLE newer (id int); CREATE TABLE part_b AS SELECT 1 AS id")
    noted = "new: table public.newer matches [tables] and is not captured: it has no key"
    applied(path, lambda _: any(note.startswith(noted) for note in path.notes))

    ask(
        path.source,
        "DROP TABLE again; CREATE TABLE again (id int PRIMARY KEY); INSERT INTO again VALUES (2);"
        "DROP TABLE gone;"
        "ALTER TYPE mood RENAME VALUE 'sad' TO 'glad';"
        "ALTER TYPE pair ADD ATTRIBUTE c int;"
        f'ALTER PUBLICATION "{path.prefix}" DROP TABLE left_out, loose;'
        "ALTER TABLE loose SET UNLOGGED;"
        "ALTER TABLE wide ADD COLUMN more int;"
        "ALTER TABLE root ATTACH PARTITION part_b FOR VALUES IN (1);"
        "CREATE TABLE day_2 PARTITION OF day FOR VALUES IN (2);"
        "TRUNCATE emptied_1",
    )
    ask(path.source, "ALTER TYPE size ADD VALUE 'l'")
    names = ("labels", "pairs", "loose", "left_out", "root", "emptied")
    marked = {f"public.{name}" for name in names}
    ledger = applied(path, lambda at: marked <= at.inexact.keys())

    assert ledger.state == "LOADING"
    assert "ADD TABLE" in ledger.inexact["public.left_out"]
    applied(path, lambda at: rows(path, "again") == ["(2)"] and set(at.inexact) == marked)
    assert ask(path.target, "SELECT to_regclass('gone')") == [(None,)]
    columns = "SELECT 1 FROM information_schema.columns WHERE column_name = 'more'"
    applied(path, lambda _: ask(path.target, columns) == [(1,)])
    ask(path.source, "INSERT INTO calm VALUES (1); INSERT INTO day VALUES (2, 2)")
    path.catch_up()
    assert content(path.source, "day") == content(path.target, "day")
    path.stop()


def test_wait_does_not_take_a_table_made_again_for_the_old_one(
    path: Path, addresses, tmp_path: File
) -> None:
    file = configured(tmp_path, addresses, path.prefix, path.source, path.target)
    ask(path.source, "CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)")
    path.start()
    path.catch_up()
    assert command(file, "wait", "--timeout", "60s").stdout == "1/0\n"
    path.stop()
    ask(path.source, f'COMMENT ON PUBLICATION "{path.prefix}" IS NULL')  # it is not ours any more
    ask(path.source, "DROP TABLE t; CREATE TABLE t (id int PRIMARY KEY); CREATE TABLE u (id int)")

    early = command(file, "wait", "--lsn", "0/1", "--timeout", "1s")
    assert (early.exception.code, early.stdout) == (4, "")
    notes = json.loads(command(file, "status", "--json").stdout)["notes"]
    assert [note.split(" matches")[0] for note in notes] == ["table public.t", "table public.u"]
    path.start()
    applied(path, lambda at: "public.t" in at.inexact)
    reported = command(file, "wait", "--timeout", "60s")

    assert reported.exception.code == 6
    status = json.loads(command(file, "status", "--json").stdout)
    assert "made again" in status["target"]["inexact"]["public.t"]
    path.stop()
