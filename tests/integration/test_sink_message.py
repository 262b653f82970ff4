"""Small steps as one message: what it holds, what refuses it, and that nothing else differs."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from schemas.control import LoadPhase
from schemas.tables import Column
from spark_consumers.cuts.ledger import LACKS_ROW
from spark_consumers.errors import Fenced, TargetRefused
from spark_consumers.loop.job import Applier, PassOptions
from tests.integration.postgres_target import ACCOUNT, Target, load, rows
from tests.spark_consumers.feed import Row, delete, insert, table, truncate, update

LOG = table("log", "a integer, b text", key="")
PAIR = table("pair", "a integer, b text, v numeric", key="a b")
ODD = replace(
    table("odd", "id integer"),
    columns=(
        Column("id", 23, -1, "integer", nullable=False),
        Column('100% "x"', 25, -1, "text"),
        Column("t", 25, -1, "text"),
    ),
)


class Watched(Target):
    """A target that notes which steps were messages."""

    def __init__(self, url: str, **options: object) -> None:
        self.steps: list[str] = []
        super().__init__(url, "postgres", on_step=self.steps.append, **options)

    def ways(self) -> list[str]:
        """How each step since the last call was applied."""
        names = {"message made": "message", "ledger locked": "usual"}
        found = [names[step] for step in self.steps if step in names]
        self.steps.clear()
        return found


@pytest.fixture
def watched(new_database: Callable[[], str]):
    one = Watched(new_database())
    for schema in (ACCOUNT, LOG, PAIR, ODD):
        load(one, schema)
    one.apply(  # a table that is not known yet is read by the usual way
        *[insert(s, *["0"] * len(s.columns)) for s in (ACCOUNT, LOG, PAIR, ODD)],
        *[delete(s, *["0"] * len(s.key)) for s in (ACCOUNT, PAIR, ODD)],
        Row(LOG, "d", ["0", "0"]),
    )
    one.ways()
    yield one
    one.sink.close()


def test_what_small_commits_usually_hold_is_one_message(watched: Watched) -> None:
    text = "it's \\ 100 % \t\n\r%s €"
    watched.apply(
        insert(ACCOUNT, "1", "a", text), insert(ACCOUNT, "2", "b", None), insert(LOG, "1", "x")
    )
    watched.apply(
        insert(PAIR, "1", "x", "1.50"), insert(PAIR, "1", "y", "2"), insert(ODD, "1", text, "t")
    )
    watched.apply(
        update(ACCOUNT, "1", "A", ...), update(ACCOUNT, "2", None, "n"), delete(PAIR, "1", "y")
    )
    watched.apply(update(ACCOUNT, "3", "A", text, old="1"), update(ODD, "1", ..., "T"))
    watched.apply(insert(LOG, "1", "x"), delete(ACCOUNT, "2"), insert(ACCOUNT, "2", "again", None))

    assert watched.ways() == ["message"] * 5
    assert rows(watched, "account") == [(2, "again", None), (3, "A", text)]
    assert rows(watched, "log") == [(1, "x"), (1, "x")]
    assert [(a, b, str(v)) for a, b, v in rows(watched, "pair")] == [(1, "x", "1.50")]
    assert rows(watched, "odd") == [(1, text, "T")]


def test_what_a_message_cannot_say_goes_the_usual_way(watched: Watched) -> None:
    watched.apply(insert(ACCOUNT, "1", "a", "x"), insert(LOG, "1", "x"))
    assert watched.ways() == ["message"]
    watched.apply(truncate(ACCOUNT), insert(ACCOUNT, "2", "b", "y"))
    watched.apply(Row(LOG, "d", ["1", "x"]))
    watched.apply(update(ACCOUNT, "3", "b", ..., old="2"))
    watched.apply(*[insert(ACCOUNT, str(at), "m", "z") for at in range(100, 200)])

    assert watched.ways() == ["usual"] * 4
    assert rows(watched, "account")[:2] == [(3, "b", "y"), (100, "m", "z")]
    assert rows(watched, "log") == []


def test_a_message_that_is_refused_changes_nothing_and_the_usual_way_says_why(
    watched: Watched,
) -> None:
    watched.feed.commits([insert(ACCOUNT, "2", "b", "y"), insert(ACCOUNT, "x", "a", "x")])

    with pytest.raises(TargetRefused) as raised:
        watched.drain()

    assert watched.ways()[:2] == ["message", "usual"]
    assert str(raised.value.where["table"]) == "public.account"
    assert raised.value.where.get("column") == "id"
    assert rows(watched, "account") == []


@pytest.mark.parametrize("are_many", [False, True])
def test_a_zero_byte_is_refused_by_name(watched: Watched, are_many: bool) -> None:
    """The driver sends no such text, and the server names no column; GaussDB's style b has some."""
    watched.apply(insert(ACCOUNT, "1", "a", "x"))
    more = [insert(ACCOUNT, str(at), "m", "z") for at in range(100, 200)]
    watched.feed.commits([insert(ACCOUNT, "2", "a\0b", "y"), *(more if are_many else [])])

    with pytest.raises(TargetRefused) as raised:
        watched.drain()

    assert str(raised.value.where["table"]) == "public.account"
    assert raised.value.where.get("column") == "name"
    assert rows(watched, "account") == [(1, "a", "x")]


def test_a_message_that_misses_a_row_is_sent_again_with_a_mark(watched: Watched) -> None:
    ledger = watched.apply(insert(ACCOUNT, "2", "b", "y"), update(ACCOUNT, "7", "A", ...))

    assert watched.ways() == ["message", "usual", "usual"]
    assert rows(watched, "account") == [(2, "b", "y")]
    assert ledger.inexact == {"public.account": LACKS_ROW}


@pytest.mark.parametrize("field", ["fence", "epoch", "n", "seq"])
def test_a_message_moves_only_the_ledger_that_it_was_made_for(watched: Watched, field: str) -> None:
    """Who came in between is found by the server; the usual way then says what it was."""
    (segment,) = _commit(watched, insert(LOG, "1", "late"))
    watched.run(f"UPDATE gauss_cdc.ledger SET {field} = {field} + 7")

    with pytest.raises(Exception, match=r"another applier|the ledger moved") as raised:
        watched.sink.step(segment, watched.sink.stage(segment, watched.feed.read_rows(segment)))

    assert watched.ways()[0] == "message"
    assert isinstance(raised.value, Fenced) is (field == "fence")
    assert rows(watched, "log") == []


def _commit(target: Target, *changes: Row):
    target.feed.commits(list(changes))
    return target.feed.segments(target.sink.ledger())


class _Model:
    """Tables as a source would have them, and random transactions on them."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.rows: dict[str, list[list[str | None]]] = {"account": [], "log": [], "pair": []}

    def transaction(self) -> list[Row]:
        return [self.change() for _ in range(self.rng.randrange(1, 8))]

    def change(self) -> Row:
        rng, (schema, width) = self.rng, self.rng.choice(((ACCOUNT, 1), (LOG, 0), (PAIR, 2)))
        rows = self.rows[schema.id.name]
        of = rng.randrange(len(rows)) if rows else None
        if rng.random() < 0.02:
            rows.clear()
            return truncate(schema)
        if of is None or rng.random() < 0.4:
            cells = [str(rng.randrange(1_000_000)), *(self.text(schema, at) for at in (1, 2))]
            rows.append(cells[: len(schema.columns)])
            return insert(schema, *rows[-1])
        was = rows[of]
        if rng.random() < 0.3 or not width:
            rows.pop(of)
            return delete(schema, *was[:width]) if width else Row(schema, "d", list(was))
        rows[of] = now = list(was)
        sent: list[object] = list(now)
        for at in range(width, len(now)):
            if rng.random() < 0.5:
                sent[at] = now[at] = self.text(schema, at)
            elif rng.random() < 0.5:
                sent[at] = ...  # not sent
        if width == 1 and rng.random() < 0.2:
            sent[0] = now[0] = str(rng.randrange(1_000_000))
            return update(schema, *sent, old=was[0])
        return update(schema, *sent)

    def text(self, schema, at: int) -> str | None:
        if schema is PAIR and at == 2:
            return self.rng.choice(("1.50", "-7", "0.001"))
        is_null = schema is ACCOUNT and self.rng.random() < 0.2
        return None if is_null else self.rng.choice(("it's", "100 %s", "a\\b\t", "", "€"))

    def check(self, target: Target) -> None:
        for schema in (ACCOUNT, LOG, PAIR):
            texts = ", ".join(f"{name}::text" for name in schema.names())
            found = target.query(f"SELECT {texts} FROM {schema.id.name}")
            mine = [tuple(row) for row in self.rows[schema.id.name]]
            assert sorted(found, key=repr) == sorted(mine, key=repr), schema.id


def test_however_the_steps_are_made_the_target_is_the_same(new_database: Callable[[], str]) -> None:
    """Random commits: one by one in messages, one by one without, and grouped."""
    rng = random.Random(15)
    strict = PassOptions(strict=True)
    ways = [
        Watched(new_database()),
        Watched(new_database(), message_rows=-1),
        Watched(new_database()),
    ]
    targets = dict(zip(("messages", "strict", "grouped"), ways, strict=True))
    feed = targets["messages"].feed
    for name, target in targets.items():
        options = PassOptions() if name == "grouped" else strict
        target.feed = feed
        target.applier = Applier(feed.read_cuts, feed.read_rows, target.sink, options)
    for schema in (ACCOUNT, LOG, PAIR):
        feed.load(schema, LoadPhase.BEGIN)
        feed.load(schema, LoadPhase.END)
    model = _Model(rng)
    for _ in range(40):
        feed.commits(*[model.transaction() for _ in range(rng.randrange(1, 6))])
        for target in targets.values():
            target.drain()

    for target in targets.values():
        model.check(target)
    assert targets["messages"].steps.count("message made") > 30
    assert "message made" not in targets["strict"].steps
    for target in targets.values():
        target.sink.close()
