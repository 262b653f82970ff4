"""Recordings served again: byte by byte from the start, whole transactions from anywhere else."""

import asyncio
from pathlib import Path

import pytest

from gauss_cdc.emulator import recording
from gauss_cdc.emulator.frames import Refused
from gauss_cdc.emulator.options import Asked, parallel_decode_num
from gauss_cdc.emulator.options import read as read_options
from gauss_cdc.emulator.product import Slot
from gauss_cdc.emulator.recording import Recording
from gauss_cdc.emulator.replay import Replay
from producer.decoders import NAMING, Format
from producer.decoders.messages import Begun, Change, Emptied
from tests.gauss_cdc.emulator.transcript import GOLDEN

CAPTURES = sorted(GOLDEN.glob("capture_*.jsonl.gz"))
SMALL = [path for path in CAPTURES if "bulk" not in path.name and "toast" not in path.name]


def name(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


async def served(found: Recording, start: int, asked: Asked | None = None) -> list[tuple]:
    backend = Replay(found)
    slot = Slot("any", found.plugin, found.database, 0)
    stream = await backend.stream(slot, start, asked or found.asked, None)
    sent: list[tuple] = []
    while stream.is_behind():
        sent += list(await stream.more())
    return [*sent, *stream.idle()]


@pytest.mark.parametrize("path", CAPTURES, ids=name)
def test_from_its_start_it_is_what_was_received(path: Path) -> None:
    found = recording.load(path)

    sent = asyncio.run(served(found, 0))

    assert sent == [message.sent for message in found.messages]
    assert found.transactions


def told(found: Recording, sent: list[tuple]) -> list[list[object]]:
    """Changes by transaction, by the producer's own decoder."""
    mode = found.mode
    style = Format(found.plugin, mode.style, mode.sending_batch, "latin-1")
    decoder = NAMING[style.plugin, style.style](style)
    transactions: list[list[object]] = []
    for start, payload in sent:
        for record in decoder.split(start, payload):
            match decoder.decode(*record):
                case Begun():
                    transactions.append([])
                case (Change() | Emptied()) as change:
                    transactions[-1].append(change)
    return transactions


@pytest.mark.parametrize("path", SMALL, ids=name)
def test_from_a_commit_on_it_is_the_rest(path: Path) -> None:
    found = recording.load(path)
    whole = told(found, asyncio.run(served(found, 0)))
    ends = [int(transaction.end_lsn) for transaction in found.transactions]
    middle = len(ends) // 2

    rest = told(found, asyncio.run(served(found, ends[middle])))
    # Confirming one byte less brings that commit again: its record begins before.
    again = told(found, asyncio.run(served(found, int(found.transactions[middle].commit_lsn))))

    assert rest == whole[middle + 1 :]
    assert again == whole[middle:]


@pytest.mark.parametrize(
    ("capture", "options", "message"),
    [
        ("txns_par_b_batch1", {"decode-style": "j", "sending-batch": "1"}, "decode-style"),
        ("txns_par_b_batch1", {"decode-style": "b"}, "sending-batch"),
        ("txns_ser_mppdb", {"include-xids": "false"}, "include-xids"),
        ("txns_ser_mppdb", {"white-table-list": "a.b"}, "white-table-list"),
        ("txns_ser_mppdb_skip", {}, "include-xids"),
    ],
)
def test_what_was_not_recorded_is_refused(
    capture: str, options: dict[str, str], message: str
) -> None:
    found = recording.load(GOLDEN / f"capture_{capture}.jsonl.gz")
    given = list(options.items())
    if found.mode.parallel:
        given += [("parallel-decode-num", "2"), ("include-timestamp", "true")]
    number = parallel_decode_num(given)
    asked = read_options(given, plugin=found.plugin, product="og7", number=number)

    with pytest.raises(Refused, match=f"the recording was made with {message}"):
        asyncio.run(served(found, 0, asked))


@pytest.mark.parametrize("mode", ["par_t_batch0", "par_b_batch1", "ser_mppdb"])
def test_empty_transactions_can_be_left_out(mode: str) -> None:
    found = recording.load(GOLDEN / f"capture_txns_{mode}.jsonl.gz")
    given = [*((n, v) for n, v in found.header["options"]), ("skip-empty-xacts", "true")]
    number = parallel_decode_num(given)
    asked = read_options(given, plugin=found.plugin, product="og7", number=number)

    whole = told(found, asyncio.run(served(found, 0)))
    full = told(found, asyncio.run(served(found, 0, asked)))

    assert [] in whole
    assert full == [changes for changes in whole if changes]
