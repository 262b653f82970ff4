"""The encoders print what a real server sent, byte by byte, positions included.

Two ways lead there.  From the truth: transactions built from what was done, without
any decoder.  And from the recordings: decoded by the producer and encoded again.
Only the time of a message (sendTime) is not compared.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import pytest

from gauss_cdc_lab.emulator.formats import encoder
from gauss_cdc_lab.emulator.model import PROFILES, Field, Item, Row, Sent, Transaction, Truncate
from schemas.tables import TableId
from tests.gauss_cdc_lab.emulator.formats.recordings import (
    MODES,
    SESSIONS,
    WORKLOADS,
    Recording,
    recording,
    session_recordings,
)
from tests.gauss_cdc_lab.emulator.formats.reread import reread
from tests.gauss_cdc_lab.emulator.formats.truth import transactions


def encoded(recorded: Recording, fed: Iterable[tuple[Transaction, bool]]) -> list[Sent]:
    """What the encoder sends; a True lets it notice that nothing was sent for a second."""
    stream = encoder(recorded.mode, PROFILES["og7"], recorded.encoding)
    sent: list[Sent] = []
    for transaction, paused in fed:
        sent += stream.feed(transaction)
        if paused:
            sent += stream.idle()
    return sent


def assert_same(ours: list[Sent], recorded: Recording) -> None:
    for number, (our, their) in enumerate(zip(ours, recorded.sent, strict=False)):
        assert our == their, number
    assert len(ours) == len(recorded.sent)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_done_becomes_what_was_sent(workload: str, mode: str) -> None:
    recorded, done = recording(workload, mode), transactions(workload)

    # A batch is cut by its size, or by a pause: these recordings pause at their end only.
    ours = encoded(recorded, ((each, each is done[-1]) for each in done))

    assert_same(ours, recorded)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_decoded_becomes_what_was_sent(workload: str, mode: str) -> None:
    recorded = recording(workload, mode)
    rows = shapes(recording(workload, "ser_mppdb")) if mode == "ser_sql" else ()

    assert_same(encoded(recorded, reread(recorded, rows)), recorded)


# Other names and values, of the same length since formats tell lengths.
RENAMED = {
    "cust_lines": "road_signs",
    "audit_log": "night_owl",
    "part_range": "hill_tower",
    "ident_nothing": "edition_three",
    "ust_nokey": "new_order",
    "bulk_rows": "gold_fish",
    "bulk_side": "milk_tide",
    "made_in_txn": "other_thing",
    "extra": "bonus",
    "alpha": "omega",
    "padding": "filling",
    "kept": "held",
    "before": "during",
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("workload", ["identity", "bulk", "txns"])
def test_nothing_hangs_on_names_and_values_of_the_recordings(workload: str, mode: str) -> None:
    recorded, done = recording(workload, mode), transactions(workload)
    sent = tuple(Sent(start, renamed(payload)) for start, payload in recorded.sent)
    assert sent != recorded.sent

    ours = encoded(recorded, ((with_other_names(each), each is done[-1]) for each in done))

    assert_same(ours, replace(recorded, sent=sent))


def renamed(text: bytes) -> bytes:
    for old, new in RENAMED.items():
        text = text.replace(old.encode(), new.encode())
    return text


def with_other_names(done: Transaction) -> Transaction:
    def name(old: str) -> str:
        return renamed(old.encode()).decode()

    def fields(old: Sequence[Field] | None) -> list[Field] | None:
        return old and [
            each._replace(name=name(each.name), value=each.value and renamed(each.value))
            for each in old
        ]

    def item(old: Item) -> Item:
        match old:
            case Row():
                new = fields(old.new)
                return old._replace(table=name(old.table), new=new, old=fields(old.old))
            case Truncate(tables=tables):
                ids = tuple(TableId(schema, name(table)) for schema, table in tables)
                return replace(old, tables=ids)
        return old

    return replace(done, items=[item(each) for each in done.items])


@pytest.mark.parametrize("name", SESSIONS)
def test_sessions_and_restarts_are_sent_again(name: str) -> None:
    # A session with sql_decoding has a twin with mppdb_decoding, which tells the types.
    twins = {"restart_serial_sql": "restart_serial_mppdb", "session_sql": "session_serial"}
    twin = session_recordings(twins.get(name, name))
    recordings = session_recordings(name)

    assert recordings
    for recorded, other in zip(recordings, twin, strict=True):
        rows = shapes(other) if name in twins else ()
        assert_same(encoded(recorded, reread(recorded, rows)), recorded)


def shapes(recorded: Recording) -> list[Row]:
    return [
        item
        for transaction, _ in reread(recorded)
        for item in transaction.items
        if isinstance(item, Row)
    ]
