"""Records of the event triggers, at their place among rows."""

import json
from dataclasses import replace
from typing import Any

import pytest

from producer.core.changes import (
    Begin,
    Insert,
    Logical,
    Message,
    Relation,
    RelationColumn,
    SentAgain,
    Truncate,
)
from producer.core.events import Happened
from producer.errors import DecodeError, SchemaRefused
from producer.sources.postgres import stream
from producer.sources.postgres.stream import PgoutputStream
from producer.sources.postgres.triggers import records
from producer.sources.postgres.triggers.records import Trust
from schemas.control import Hole, Origin
from schemas.positions import CommitKey, Lsn
from schemas.tables import Column, ReplicaIdentity, TableId, TableSchema
from tests.producer.core.assembling import (
    ACCOUNT,
    ACCOUNTS,
    COLUMNS,
    ID,
    OTHERS,
    RESUME,
    Play,
    begin,
    commit,
    described,
    insert,
    kinds,
    positions,
)

PUBLICATION = "ours"


def shape(table: TableSchema, **more: Any) -> dict[str, Any]:
    """What gauss_cdc.ddl_look() says of a table."""
    numbers = {c.name: c.number or at for at, c in enumerate(table.columns, 1)}
    columns = [
        [c.name, c.type_oid, c.type_mod, c.type_name, c.nullable, "", "", c.missing,
         c.has_default, numbers[c.name], None, None]
        for c in table.columns
    ]  # fmt: skip
    key = ["account_pkey", [numbers[name] for name in table.key], True, True, False]
    return {
        "oid": table.oid or ACCOUNTS,
        "schema": table.id.schema,
        "name": table.id.name,
        "persistence": "p",
        "is_partition": False,
        "identity": table.replica_identity.value,
        "publications": [PUBLICATION],
        "columns": columns,
        "indexes": [key] if table.key else [],
        "types": [],
        **more,
    }


CHANNEL = 16999


def recorded(content: bytes, channel: int = CHANNEL) -> Insert:
    return Insert(channel, [b"1", content])


def ended(tag: str, *shapes: dict[str, Any], sql: str | None = None, **more: Any) -> Insert:
    raw = {"version": 1, "event": "end", "tag": tag, "sql": sql, "tables": shapes, **more}
    is_plain = sql is not None and "using" not in sql.lower()
    return recorded(json.dumps({"top": True, "plain": is_plain} | raw).encode())


def channel(oid: int = CHANNEL) -> Relation:
    columns = tuple(RelationColumn(name, 25, -1, name == "id") for name in records.COLUMNS)
    return Relation(oid, "gauss_cdc", records.CHANNEL, ReplicaIdentity.DEFAULT, columns)


def altered(*columns: Column, **more: Any) -> TableSchema:
    return TableSchema(ID, (*COLUMNS, *columns), ("id",), (), ReplicaIdentity.DEFAULT, ("id",))


NOTE = Column("note", 25, -1, "text", missing="it's")


def test_columns_of_an_index_are_recorded_by_number_or_as_before_by_name() -> None:
    by_number = shape(ACCOUNT)
    by_name = by_number | {"indexes": [["account_pkey", ["id"], True, True, False]]}

    assert by_number["indexes"][0][1] == [1]
    assert records.shape(by_name) == records.shape(by_number)
    assert records.shape(by_name).table.key == ("id",)


def anywhere(_table: TableId) -> bool:
    return True


class WithTriggers(Play):
    """A play whose source has the triggers."""

    def __init__(self, **more: Any) -> None:
        known = {ID: records.shape(shape(ACCOUNT)).table}
        self.trust = more.pop("trust", Trust.OURS)
        self.wanted = more.pop("wanted", lambda table: table == ID)
        super().__init__(known=more.pop("known", known), **more)

    def __post_init__(self) -> None:
        self.stream = PgoutputStream(
            lambda message: message,  # type: ignore[arg-type, return-value]  it is decoded
            self.known,
            wanted=self.wanted,
            publication=PUBLICATION,
            judge=lambda _: self.trust,
            resume=RESUME,
            has_triggers=True,
        )
        super().__post_init__()
        self.relations._wanted = self.wanted
        self.relations.describe_statements(is_on=True)
        self.feed(channel())

    def feed(self, *messages: Message, lsn: int = 1000) -> list[Happened]:
        received: Any = [(lsn, lsn, message) for message in messages]
        return self.assembler.feed(self.stream.messages(received))


def test_a_recorded_change_precedes_the_rows_of_the_new_shape_and_is_not_inferred_again() -> None:
    play = WithTriggers(catalog=None)
    new = altered(NOTE)

    happened = play.transaction(
        insert(1),
        ended("ALTER TABLE", shape(new), sql="alter table account add note text"),
        described(*new.columns),
        Insert(ACCOUNTS, [b"2", b"Bob", b"x"]),
    )

    assert positions(happened) == [CommitKey(2, 41, n) for n in range(3)]
    (change,) = play.changes
    assert (change.ordinal, change.origin, change.tag) == (1, Origin.TRIGGER, "ALTER TABLE")
    assert (change.before.names(), change.after.names()) == (
        ("id", "owner"),
        ("id", "owner", "note"),
    )
    assert change.sql == "alter table account add note text"
    assert change.canonical == 'ALTER TABLE "public"."account" ADD COLUMN "note" text'
    assert happened[-1].ddl_ordinals == (1,)
    assert play.published[-1].names() == ("id", "owner", "note")


def test_a_schema_is_registered_when_its_change_is_recorded_without_a_row() -> None:
    play = WithTriggers()

    happened = play.transaction(ended("ALTER TABLE", shape(altered(NOTE))))

    assert [t.names() for t in play.published] == [("id", "owner", "note")]
    assert happened[-1].rows == 1


def test_a_rename_is_known_by_number() -> None:
    play = WithTriggers()
    renamed = TableSchema(ID, (COLUMNS[0], Column("holder", 25, -1, "text")), ("id",))

    play.transaction(ended("ALTER TABLE", shape(renamed)))

    assert play.changes[0].renamed == {"owner": "holder"}
    assert play.changes[0].values == {}


def test_a_column_dropped_and_made_again_is_a_new_one() -> None:
    play = WithTriggers()
    again = TableSchema(ID, (COLUMNS[0], Column("owner", 25, -1, "text", number=3)), ("id",))

    play.transaction(ended("ALTER TABLE", shape(again)))

    assert (play.changes[0].renamed, play.changes[0].values) == ({}, {"owner": "new"})


@pytest.mark.parametrize(
    ("sql", "values", "is_lost"),
    [
        ("ALTER TABLE account ALTER owner TYPE integer", {}, False),
        ("ALTER TABLE account ALTER owner TYPE int USING owner::int", {"owner": "explicit"}, False),
        ("ALTER TABLE account ALTER owner TYPE int USING length(owner)", {"owner": "lost"}, True),
        ("ALTER TABLE account ALTER owner TYPE int USING/**/owner::int", {"owner": "lost"}, True),
        ("BEGIN; ALTER TABLE public.account ALTER owner TYPE integer; COMMIT", {}, False),
    ],
)
def test_values_that_the_source_computed_are_a_detected_gap(sql, values, is_lost) -> None:
    play = WithTriggers()
    number = TableSchema(ID, (COLUMNS[0], Column("owner", 23, -1, "integer")), ("id",))

    happened = play.transaction(
        ended("ALTER TABLE", shape(number), sql=sql, rewritten=[f"{ACCOUNTS}:4"])
    )

    assert play.changes[0].values == values
    assert [(h.table, h.kind) for h in happened[-1].holes] == (
        [("public.account", "seen")] if is_lost else []
    )


@pytest.mark.parametrize("sql", ["SELECT alter_it()", "DO 'BEGIN ALTER TABLE account …; END'"])
def test_values_that_a_function_converted_are_a_gap_whatever_the_text_says(sql) -> None:
    play = WithTriggers()
    number = TableSchema(ID, (COLUMNS[0], Column("owner", 23, -1, "integer")), ("id",))

    happened = play.transaction(
        ended(
            "ALTER TABLE", shape(number), sql=sql, rewritten=[f"{ACCOUNTS}:4"],
            top=False, plain=False,
        )
    )  # fmt: skip

    assert play.changes[0].values == {"owner": "lost"}
    assert [(h.table, h.kind) for h in happened[-1].holes] == [("public.account", "seen")]


def test_a_cast_that_users_made_is_not_repeated() -> None:
    play = WithTriggers()
    number = TableSchema(ID, (COLUMNS[0], Column("owner", 23, -1, "integer")), ("id",))
    sql = "ALTER TABLE account ALTER owner TYPE integer"

    happened = play.transaction(
        ended("ALTER TABLE", shape(number), sql=sql, rewritten=[f"{ACCOUNTS}:4"], casts=[[25, 23]])
    )

    assert play.changes[0].values == {"owner": "lost"}
    assert len(happened[-1].holes) == 1


def test_a_volatile_default_is_a_gap_and_a_constant_is_not() -> None:
    computed = Column("n", 701, -1, "double precision", has_default=True)
    for column, rewritten, holes in ((computed, ["1:2"], 1), (NOTE, [], 0)):
        play = WithTriggers()
        happened = play.transaction(
            ended("ALTER TABLE", shape(altered(column)), rewritten=rewritten)
        )
        assert len(happened[-1].holes) == holes


# ---------------------------------------------------------------- rows that come first
def test_rows_of_a_table_that_is_not_recorded_yet_wait_for_its_record() -> None:
    play = WithTriggers(known={}, catalog=None)

    happened = play.feed(begin(), described(*COLUMNS), insert(1), insert(2))
    assert happened == []
    command = ["CREATE TABLE AS", "table", "public", "public.account", ACCOUNTS, None]
    happened = play.feed(
        ended("CREATE TABLE AS", shape(ACCOUNT), commands=[command]), insert(3), commit()
    )

    assert [c.origin for c in play.changes] == [Origin.TRIGGER]
    assert play.changes[0].ordinal == 0
    assert positions(happened) == [CommitKey(2, 41, n) for n in range(4)]
    assert happened[-1].holes == ()


@pytest.mark.parametrize("count", [18, 19, 20, 21, 70])
def test_too_many_rows_do_not_wait_and_none_is_lost(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CREATE TABLE AS of many rows: the first are described by themselves, the message follows."""
    play = WithTriggers(known={})
    monkeypatch.setattr(stream, "WAITING_MESSAGES", 20)
    rows = [insert(number) for number in range(count)]
    command = ["CREATE TABLE AS", "table", "public", "public.account", ACCOUNTS, None]

    happened = play.transaction(*rows, ended("CREATE TABLE AS", shape(ACCOUNT), commands=[command]))

    first = play.changes[0]
    assert (first.ordinal, first.origin) == (0, Origin.TRIGGER if count < 20 else Origin.INFERRED)
    assert positions(happened) == [
        CommitKey(2, 41, n) for n in range(len(rows) + len(play.changes))
    ]
    assert happened[-1].holes == ()


def test_rows_without_a_record_are_sent_at_the_commit_with_their_described_shape() -> None:
    play = WithTriggers(known={})

    happened = play.transaction(insert(1), insert(2))

    assert [c.origin for c in play.changes] == [Origin.INFERRED]
    assert happened[-1].rows == 3


def test_a_table_that_is_made_by_a_statement_has_no_older_rows() -> None:
    play = WithTriggers(known={})
    command = ["CREATE TABLE", "table", "public", "public.account", ACCOUNTS, None]
    made = play.transaction(ended("CREATE TABLE", shape(ACCOUNT), commands=[command]))
    play = WithTriggers(known={})
    joined = play.transaction(ended("ALTER TABLE", shape(ACCOUNT), commands=[]))

    assert made[-1].holes == ()
    assert [h.kind for h in joined[-1].holes] == ["seen"]


# ---------------------------------------------------------------- partitions, other objects
def test_a_root_that_is_renamed_is_not_described_again_and_its_rows_follow() -> None:
    play = WithTriggers(catalog=None, wanted=anywhere)
    moved = TableSchema(TableId("other", "konto"), COLUMNS, ("id",))

    play.transaction(insert(1), ended("ALTER TABLE", shape(moved)), insert(2))

    assert play.published[-1].id == TableId("other", "konto")
    assert [c.origin for c in play.changes] == [Origin.TRIGGER]


def test_an_object_that_is_not_a_table_is_recorded_with_its_definition() -> None:
    play = WithTriggers(wanted=anywhere)
    command = ["CREATE VIEW", "view", "public", "public.v", 7, "CREATE OR REPLACE VIEW …"]

    happened = play.transaction(ended("CREATE VIEW", commands=[command]))

    (change,) = play.changes
    assert (change.before, change.after, change.kind) == (None, None, "view")
    assert (change.identity, change.canonical) == ("public.v", "CREATE OR REPLACE VIEW …")
    assert happened[-1].ddl_ordinals == (0,)


@pytest.mark.parametrize(
    ("tag", "kind", "identity", "sql", "moved"),
    [
        ("ALTER INDEX", "index", "public.j", "SELECT 1; alter index i rename to j",
         'ALTER INDEX "public"."i" RENAME TO "j"'),
        ("ALTER TABLE", "view", "public.w", "ALTER TABLE v RENAME TO w",
         'ALTER VIEW "public"."v" RENAME TO "w"'),
        ("ALTER VIEW", "view", "public.v", "ALTER VIEW old.v SET SCHEMA public",
         'ALTER VIEW "old"."v" SET SCHEMA "public"'),
        ("ALTER FUNCTION", "function", "public.g(integer,text)",
         "ALTER FUNCTION f(int, text) RENAME TO g",
         'ALTER FUNCTION "public"."f"(integer,text) RENAME TO "g"'),
        ("ALTER TRIGGER", "trigger", 'b on public."T"', 'ALTER TRIGGER a ON "T" RENAME TO b',
         'ALTER TRIGGER "a" ON public."T" RENAME TO "b"'),
        ("ALTER SEQUENCE", "sequence", "public.s", "ALTER SEQUENCE s MAXVALUE 9", "MADE"),
        ("ALTER INDEX", "index", "public.j", "DO $$ BEGIN ALTER INDEX i RENAME TO j; END $$",
         "MADE"),
        ("ALTER INDEX", "index", "public.j", "ALTER INDEX a RENAME TO b", "MADE"),
        ("ALTER VIEW", "view", "public.v", "ALTER VIEW v SET SCHEMA public", "MADE"),
    ],
)  # fmt: skip
def test_an_object_that_gets_another_name_is_not_made_twice(
    tag: str, kind: str, identity: str, sql: str, moved: str
) -> None:
    play = WithTriggers(wanted=anywhere)

    play.transaction(ended(tag, sql=sql, commands=[[tag, kind, "public", identity, 7, "MADE"]]))

    assert [change.canonical for change in play.changes] == [moved]


@pytest.mark.parametrize(
    ("kind", "is_valid", "is_lost"), [("p", False, True), ("p", True, False), ("r", False, False)]
)
def test_a_key_that_some_partition_lacks_is_a_gap(kind: str, is_valid: bool, is_lost: bool) -> None:
    keyless = replace(ACCOUNT, key=(), identity_columns=())
    play = WithTriggers(known={ID: records.shape(shape(keyless)).table})
    key = ["account_pkey", [1], True, is_valid, False]
    happened = play.transaction(ended("ALTER TABLE", shape(ACCOUNT, kind=kind, indexes=[key])))

    assert [hole.kind for hole in happened[-1].holes] == (["seen"] if is_lost else [])


def test_another_tables_statement_is_not_ours() -> None:
    play = WithTriggers()
    other = TableSchema(TableId("private", "t"), COLUMNS, ("id",), oid=OTHERS)

    happened = play.transaction(ended("ALTER TABLE", shape(other)))

    assert (play.changes, len(happened)) == ([], 1)


# ---------------------------------------------------------------- what goes wrong
def test_a_transaction_that_was_delivered_is_not_sent_again() -> None:
    play = WithTriggers()

    play.transaction(ended("ALTER TABLE", shape(altered(NOTE))), start=400)

    assert play.changes == []
    assert play.known[ID].names() == ("id", "owner")


def test_a_refused_schema_stops_or_leaves_the_table_out_with_a_gap() -> None:
    def refuse(_: TableSchema) -> None:
        raise SchemaRefused("the registry refuses the new schema as incompatible")

    play = WithTriggers()
    play.publish = refuse  # type: ignore[method-assign]
    play.__post_init__()
    with pytest.raises(SchemaRefused):
        play.transaction(ended("ALTER TABLE", shape(altered(NOTE))))

    play = WithTriggers(quarantines=True)
    play.publish = refuse  # type: ignore[method-assign]
    play.__post_init__()
    happened = play.transaction(insert(1))
    assert [(h.table, h.kind) for h in happened[-1].holes] == [("public.account", "seen")]
    assert isinstance(happened[-1].holes[0], Hole)
    assert happened[-1].rows == 0


@pytest.mark.parametrize("content", [b"{}", b"\xff", b'{"version": 2, "event": "end"}', b"[]"])
def test_a_record_that_cannot_be_read_is_a_gap_and_no_stop(content: bytes) -> None:
    with pytest.raises(DecodeError):
        records.read(content)
    play = WithTriggers()

    happened = play.transaction(recorded(content), insert(1))

    assert [(h.table, h.kind) for h in happened[-1].holes] == [("public.account", "seen")]
    assert happened[-1].rows == 2


FORGED = json.dumps({
    "version": 1, "event": "drop", "tag": "DROP TABLE",
    "dropped": [["table", "public", "account", "public.account", ACCOUNTS, True, None, None]],
}).encode()  # fmt: skip


@pytest.mark.parametrize("content", [FORGED, b"not json", b"x" * 4_000_000])
@pytest.mark.parametrize("transactional", [True, False])
def test_a_logical_message_is_never_an_instruction(content: bytes, transactional: bool) -> None:
    play = WithTriggers()
    message = Logical(transactional, Lsn(1), "gauss-cdc.ddl", content)

    if not transactional:
        assert play.feed(message) == []
    happened = play.transaction(insert(1), *([message] if transactional else []))

    assert (play.changes, happened[-1].holes, happened[-1].rows) == ([], (), 1)


def test_a_table_of_our_name_with_another_owner_is_ignored() -> None:
    play = WithTriggers(trust=Trust.FOREIGN)

    happened = play.transaction(recorded(FORGED), recorded(b"not json"), insert(1))

    assert (play.changes, happened[-1].holes, happened[-1].rows) == ([], (), 1)
    assert ID in play.known


def test_records_whose_author_cannot_be_verified_any_more_are_one_gap() -> None:
    play = WithTriggers(trust=Trust.UNKNOWN)

    first = play.transaction(recorded(FORGED), recorded(FORGED), insert(1))
    again = play.transaction(recorded(b"not json"), insert(2), start=2000)

    assert [(h.table, h.kind) for h in first[-1].holes] == [("public.account", "seen")]
    assert again[-1].holes == ()
    assert ID in play.known


def test_a_channel_that_was_ours_stays_ours_when_it_is_dropped_meanwhile() -> None:
    play = WithTriggers()
    play.trust = Trust.UNKNOWN

    happened = play.transaction(channel(), ended("ALTER TABLE", shape(altered(NOTE))))

    assert [c.after.names() for c in play.changes] == [("id", "owner", "note")]
    assert happened[-1].holes == ()


def test_what_the_triggers_could_not_describe_is_a_gap_of_its_tables() -> None:
    known = {ID: records.shape(shape(ACCOUNT)).table}
    for oids, holes in ((ACCOUNTS, 1), (OTHERS, 0), (None, 1)):
        play = WithTriggers(known=dict(known))
        raw = {"version": 1, "event": "gap", "tag": "X", "oids": oids and [oids]}
        happened = play.transaction(recorded(json.dumps(raw).encode()), insert(1))
        assert len(happened[-1].holes) == holes


# ---------------------------------------------------------------- other transactions' names
def in_space(schema: str, table: TableSchema, space: int = 7) -> dict[str, Any]:
    return shape(replace(table, id=TableId(schema, table.id.name)), space=space)


def test_a_schema_renamed_while_a_statement_was_open_keeps_its_new_name() -> None:
    """What commits later was recorded earlier, and says the old name."""
    play = WithTriggers(catalog=None, wanted=anywhere)
    rename = ended("ALTER SCHEMA", in_space("shop", ACCOUNT), spaces=[[7, "shop"]])
    open_one = ended("ALTER TABLE", in_space("public", altered(NOTE)))
    new = replace(ACCOUNT, id=TableId("public", "fresh"), oid=OTHERS)
    command = ["CREATE TABLE", "table", "public", "public.fresh", OTHERS, None]
    made = ended("CREATE TABLE", in_space("public", new), commands=[command])
    renamed_at = 3000

    play.feed(begin(start=renamed_at), rename, commit(start=renamed_at))
    play.feed(
        begin(start=4000),
        open_one,
        described(*altered(NOTE).columns),
        Insert(ACCOUNTS, [b"1", b"A", b"n"]),
        made,
        described(*COLUMNS, relation=OTHERS, table=TableId("public", "fresh")),
        Insert(OTHERS, [b"1", b"A"]),
        commit(start=4000),
        lsn=2000,  # before the other one committed
    )

    ids = [str(c.after.id) for c in play.changes]
    assert ids == ["shop.account", "shop.account", "shop.fresh"]
    assert {str(t) for t in play.known} == {"shop.account", "shop.fresh"}


def test_a_table_made_while_its_schema_is_renamed_follows_it() -> None:
    """It commits first, and the statement that renames the schema never saw it."""
    play = WithTriggers(catalog=None, wanted=anywhere)
    new = replace(ACCOUNT, id=TableId("public", "fresh"), oid=OTHERS)
    command = ["CREATE TABLE", "table", "public", "public.fresh", OTHERS, None]
    play.transaction(ended("CREATE TABLE", in_space("public", new), commands=[command]))

    play.transaction(
        ended("ALTER SCHEMA", in_space("shop", ACCOUNT), spaces=[[7, "shop"]]), start=2000
    )

    assert {str(t) for t in play.known} == {"shop.account", "shop.fresh"}


def test_kinds_of_events_stay_in_order() -> None:
    play = WithTriggers()
    names = [k.__name__ for k in kinds(play.transaction(insert(1)))]
    assert names == ["SchemaUsed", "RowsAssembled", "TransactionEnded"]


# ---------------------------------------------------------------- what was delivered before
def test_rows_that_are_sent_again_are_tables_as_they_were_called_there() -> None:
    """What was OTHERS is ACCOUNT by now: nobody had delivered its rows."""
    play = WithTriggers(known={ID: replace(ACCOUNT, oid=OTHERS)})
    former = TableId("public", "other")
    renamed = shape(ACCOUNT, oid=OTHERS)
    play.stream._follower._former[OTHERS].add(former)
    received: Any = [
        (1, 1, message)
        for message in (
            begin(RESUME - 10),
            described(*COLUMNS, relation=OTHERS, table=former),
            described(*COLUMNS),
            insert(1, relation=OTHERS),
            ended("ALTER TABLE", renamed),
            Truncate((OTHERS, ACCOUNTS), cascade=False, restart_identity=False),
            commit(RESUME - 10),
            begin(RESUME),
            insert(2, relation=OTHERS),
        )
    ]

    said = [message for _, message in play.stream.messages(received)]

    sent = [message for message in said if isinstance(message, SentAgain)]
    again = [list(message.tables) for message in sent]
    assert again == [[former], [TableId("gauss_cdc", records.CHANNEL)], [former, ID]]
    assert [list(sent[0].oids), list(sent[2].oids)] == [[OTHERS], [OTHERS, ACCOUNTS]]
    assert [type(message) for message in said[-2:]] == [Begin, Insert]
    described_as = [m.table for m in said if isinstance(m, Relation) and m.relation == OTHERS]
    assert described_as == [ID.name]
