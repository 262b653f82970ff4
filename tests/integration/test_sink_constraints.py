"""Foreign keys and unique values of the target: rows pass each other, and none is lost."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from schemas.control import LoadPhase
from schemas.tables import Column, TableSchema
from spark_consumers.errors import (
    NotExpressible,
)
from spark_consumers.loop.job import Applier
from tests.integration.postgres_target import Target, load, only_postgresql, rows
from tests.spark_consumers.feed import (
    alter,
    delete,
    insert,
    table,
    truncate,
    update,
)


@pytest.fixture(params=[True, False], ids=["replica", "enforced"])
def strict_target(new_database: Callable[[], str], kind: str, request) -> Iterator[Target]:
    one = Target(new_database(), kind, replica_role=request.param)
    yield one
    one.sink.close()


PARENT = table("parent", "id integer, code text")


CHILD = table("child", "id integer, parent integer, note text")


def family(target: Target, action: str = "", code: str = "UNIQUE") -> None:
    load(target, PARENT)
    load(target, CHILD)
    target.run(
        f"ALTER TABLE parent ADD CONSTRAINT code_key {code} (code);"
        f"ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent {action}"
        if code
        else f"ALTER TABLE child ADD FOREIGN KEY (parent) REFERENCES parent {action}"
    )
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)
    target.sink.close()
    target.apply(
        insert(PARENT, "1", "a"),
        insert(PARENT, "2", "b"),
        insert(CHILD, "10", "1", "long"),
        insert(CHILD, "20", "2", "long"),
    )


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_a_parent_is_not_emptied_for_a_load_when_its_loaded_children_would_go_too(
    strict_target: Target, action: str
) -> None:
    target = strict_target
    family(target, f"ON DELETE {action}")
    target.feed.load_again(PARENT, CHILD)
    target.drain()
    # What the parents of before let pass: children first.
    load(target, CHILD, ["10", "1", "new"])
    target.feed.load(PARENT, LoadPhase.BEGIN)

    if target.sink._wants_replica:
        target.drain()
        assert target.query("SELECT * FROM parent") == []
    else:
        with pytest.raises(NotExpressible, match="session_replication_role") as refused:
            target.drain()
        assert (refused.value.where["table"], refused.value.where["other"]) == (PARENT.id, CHILD.id)
    assert target.query("SELECT * FROM child") == [(10, 1, "new")]


def test_nor_when_they_were_loaded_in_the_same_step(strict_target: Target) -> None:
    target = strict_target
    family(target, "ON DELETE CASCADE")
    target.feed.load_again(PARENT, CHILD)
    target.drain()
    target.feed.load(CHILD, LoadPhase.BEGIN)
    target.feed.load(CHILD, LoadPhase.CHUNK, ["10", "1", "new"])
    target.feed.load(CHILD, LoadPhase.END)
    target.feed.load(PARENT, LoadPhase.BEGIN)
    steps = target.applier.steps

    if target.sink._wants_replica:
        target.drain()
        assert target.query("SELECT * FROM child") == [(10, 1, "new")]
        assert target.applier.steps == steps + 1
    else:
        with pytest.raises(NotExpressible, match="session_replication_role"):
            target.drain()
        assert len(target.query("SELECT * FROM child")) == 2


def test_a_parent_takes_children_along_that_are_loaded_after_it(strict_target: Target) -> None:
    target = strict_target
    family(target, "ON DELETE CASCADE")
    target.feed.load_again(PARENT, CHILD)
    load(target, PARENT, ["1", "a"])
    load(target, CHILD, ["10", "1", "new"])

    assert target.query("SELECT * FROM child") == [(10, 1, "new")]
    assert target.drain().state == "EXACT"


@pytest.mark.parametrize("action", ["", "ON DELETE CASCADE", "ON DELETE RESTRICT"])
@pytest.mark.parametrize("code", ["", "UNIQUE"])
def test_parents_are_written_without_losing_children(
    strict_target: Target, action: str, code: str
) -> None:
    target = strict_target
    family(target, action, code)

    target.apply(update(PARENT, "1", "A"))
    assert rows(target, "child") == [(10, 1, "long"), (20, 2, "long")]

    target.apply(  # the child moves away, its parent goes; a parent changes its key
        update(CHILD, "10", "2", ...),
        delete(PARENT, "1"),
        insert(PARENT, "3", "c"),
        update(PARENT, "4", "b", old="2"),
        update(CHILD, "10", "4", ...),
        update(CHILD, "20", "4", ...),
    )
    assert rows(target, "parent") == [(3, "c"), (4, "b")]
    assert rows(target, "child") == [(10, 4, "long"), (20, 4, "long")]

    target.apply(delete(CHILD, "10"), delete(CHILD, "20"), delete(PARENT, "4"), delete(PARENT, "3"))
    assert rows(target, "child") == rows(target, "parent") == []


def test_unique_values_are_swapped_under_foreign_keys(strict_target: Target) -> None:
    target = strict_target
    family(target)

    target.apply(
        update(PARENT, "1", None), update(PARENT, "2", "a"), update(PARENT, "1", "b"),
        insert(PARENT, "3", "c"), update(PARENT, "3", "d"), insert(PARENT, "4", "c"),
    )  # fmt: skip

    assert rows(target, "parent") == [(1, "b"), (2, "a"), (3, "d"), (4, "c")]
    assert len(rows(target, "child")) == 2


def test_unique_values_without_references_are_swapped(strict_target: Target) -> None:
    target = strict_target
    plain = table("plain", "id integer, code text, pair integer", unique="code pair")
    load(target, plain, ["1", "a", "1"], ["2", "b", "2"], ["3", "c", "3"])
    target.run("ALTER TABLE plain ALTER code SET NOT NULL")

    target.apply(
        update(plain, "1", "x", "1"), update(plain, "2", "a", ...), update(plain, "1", "b", "1"),
        delete(plain, "3"), insert(plain, "4", "c", "3"),
    )  # fmt: skip

    assert rows(target, "plain") == [(1, "b", 1), (2, "a", 2), (4, "c", 3)]


def test_a_table_that_points_at_itself(strict_target: Target) -> None:
    target = strict_target
    tree = table("tree", "id integer, up integer")
    load(target, tree, ["1", None])
    target.run("ALTER TABLE tree ADD FOREIGN KEY (up) REFERENCES tree ON DELETE CASCADE")

    target.apply(insert(tree, "2", "1"), insert(tree, "3", "2"))
    target.apply(update(tree, "3", "1"), delete(tree, "2"))
    assert rows(target, "tree") == [(1, None), (3, 1)]

    target.apply(truncate(tree), insert(tree, "5", None))
    assert rows(target, "tree") == [(5, None)]


def test_truncated_parents_and_children(strict_target: Target) -> None:
    target = strict_target
    family(target)

    target.apply(truncate(PARENT), truncate(CHILD), insert(PARENT, "7", "z"))

    assert (rows(target, "parent"), rows(target, "child")) == ([(7, "z")], [])


def test_new_rows_take_unique_values_that_others_leave(strict_target: Target) -> None:
    target = strict_target
    family(target)

    target.apply(
        update(PARENT, "1", "c"),
        insert(PARENT, "3", "a"),
        insert(PARENT, "4", "x"),
        delete(PARENT, "4"),
        update(CHILD, "10", "3", ...),
        insert(CHILD, "30", "3", "new"),
    )

    assert rows(target, "parent") == [(1, "c"), (2, "b"), (3, "a")]
    assert rows(target, "child") == [(10, 3, "long"), (20, 2, "long"), (30, 3, "new")]


@only_postgresql
def test_a_row_may_point_at_a_new_row_of_its_own_table(strict_target: Target) -> None:
    target = strict_target
    tree = table("tree", "id integer, above integer")
    load(target, tree, ["1", None])
    target.run("ALTER TABLE tree ADD FOREIGN KEY (above) REFERENCES tree")
    target.sink.close()

    target.apply(insert(tree, "2", None), update(tree, "1", "2"))

    assert target.query("SELECT * FROM tree ORDER BY 1") == [(1, 2), (2, None)]


def test_a_row_of_somebody_else_gives_way_to_the_source_s(strict_target: Target) -> None:
    target = strict_target
    family(target)
    target.run("INSERT INTO child VALUES (30, 1, 'mine'), (31, 1, 'mine')")

    for key in ("30", "31"):
        target.apply(insert(CHILD, key, "2", "new"), insert(CHILD, key + "0", "2", "new"))

    assert rows(target, "child")[2:] == [(n, 2, "new") for n in (30, 31, 300, 310)]


ABOVE, BELOW = table("above", "id integer, code text"), table("below", "id integer, above integer")


def deferred_family(target: Target, *more: TableSchema) -> None:
    """Load tables of which one refers to another, whose rows may come later in a commit."""
    for one in (ABOVE, BELOW, *more):
        load(target, one)
    target.sink.close()
    target.applier = Applier(target.feed.read_cuts, target.read_rows, target.sink)
    target.run(
        "ALTER TABLE below ADD FOREIGN KEY (above) REFERENCES above DEFERRABLE INITIALLY DEFERRED"
    )


@only_postgresql
def test_rows_and_a_schema_change_of_one_commit_under_a_deferrable_foreign_key(
    strict_target: Target,
) -> None:
    """The source's was checked at once, as behind SET CONSTRAINTS ALL IMMEDIATE."""
    target = strict_target
    deferred_family(target)
    more = replace(BELOW, columns=(*BELOW.columns, Column("more", 23, -1, "integer")))
    target.apply(insert(ABOVE, "1", "a"))

    target.apply(insert(BELOW, "10", "1"), alter(BELOW, more), insert(more, "11", "1", "7"))

    assert target.query("SELECT id, more FROM below ORDER BY 1") == [(10, None), (11, 7)]


@only_postgresql
def test_a_schema_change_while_a_deferred_foreign_key_waits_for_its_parent(
    strict_target: Target,
) -> None:
    """The table that is altered has no rows that wait: the source takes it, too."""
    target, other = strict_target, table("other", "id integer, v text")
    deferred_family(target, other)
    more = replace(other, columns=(*other.columns, Column("more", 23, -1, "integer")))

    target.apply(
        insert(BELOW, "10", "1"),
        alter(other, more),
        insert(more, "1", "x", "7"),
        insert(ABOVE, "1", "a"),
    )

    assert target.query("SELECT id, above FROM below") == [(10, 1)]
    assert target.query("SELECT id, more FROM other") == [(1, 7)]
