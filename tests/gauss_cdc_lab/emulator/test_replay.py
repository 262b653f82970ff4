"""Recordings served again: byte by byte from the start, whole transactions from anywhere else."""

import asyncio
import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from gauss_cdc_lab.emulator import recording
from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.options import StreamOptions, parallel_decode_num
from gauss_cdc_lab.emulator.options import read as read_options
from gauss_cdc_lab.emulator.product import EmulatedSlot
from gauss_cdc_lab.emulator.recording import Recording
from gauss_cdc_lab.emulator.replay import Replay
from producer.sources.decoders import NAMING, Format
from producer.sources.gauss.decoders.messages import NamedChange, NamedTruncate, TxBegin
from tests.gauss_cdc_lab.emulator.transcript import GOLDEN

CAPTURES = sorted(GOLDEN.glob("capture_*.jsonl.gz"))
SMALL = [path for path in CAPTURES if "bulk" not in path.name and "toast" not in path.name]


def name(path: Path) -> str:
    return path.name.removesuffix(".jsonl.gz")


async def served(found: Recording, start: int, asked: StreamOptions | None = None) -> list[tuple]:
    backend = Replay(found)
    slot = EmulatedSlot("any", found.plugin, found.database, 0)
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


def reported(found: Recording, sent: list[tuple]) -> list[list[object]]:
    """Changes by transaction, by the producer's own decoder."""
    mode = found.mode
    style = Format(found.plugin, mode.style, mode.sending_batch, "latin-1")
    decoder = NAMING[style.plugin, style.style](style)
    transactions: list[list[object]] = []
    for start, payload in sent:
        for record in decoder.split(start, payload):
            match decoder.decode(*record):
                case TxBegin():
                    transactions.append([])
                case (NamedChange() | NamedTruncate()) as change:
                    transactions[-1].append(change)
    return transactions


@pytest.mark.parametrize("path", SMALL, ids=name)
def test_from_a_commit_on_it_is_the_rest(path: Path) -> None:
    found = recording.load(path)
    whole = reported(found, asyncio.run(served(found, 0)))
    ends = [int(transaction.end_lsn) for transaction in found.transactions]
    middle = len(ends) // 2

    rest = reported(found, asyncio.run(served(found, ends[middle])))
    # Confirming one byte less brings that commit again: its record begins before.
    again = reported(found, asyncio.run(served(found, int(found.transactions[middle].commit_lsn))))

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

    with pytest.raises(ErrorResponse, match=f"the recording was made with {message}"):
        asyncio.run(served(found, 0, asked))


@pytest.mark.parametrize("mode", ["par_t_batch0", "par_b_batch1", "ser_mppdb"])
def test_empty_transactions_can_be_left_out(mode: str) -> None:
    found = recording.load(GOLDEN / f"capture_txns_{mode}.jsonl.gz")
    given = [*((n, v) for n, v in found.header["options"]), ("skip-empty-xacts", "true")]
    number = parallel_decode_num(given)
    asked = read_options(given, plugin=found.plugin, product="og7", number=number)

    whole = reported(found, asyncio.run(served(found, 0)))
    full = reported(found, asyncio.run(served(found, 0, asked)))

    assert [] in whole
    assert full == [changes for changes in whole if changes]


def test_empty_transactions_that_were_left_out_may_be_asked_for(tmp_path: Path) -> None:
    lines = lines_of("par_b_batch0")
    lines[0]["options"].append(["skip-empty-xacts", "true"])
    found = loaded(tmp_path, lines)
    given = [(n, v) for n, v in found.header["options"] if n != "skip-empty-xacts"]
    asked = read_options(given, plugin=found.plugin, product="og7", number=3)

    sent = asyncio.run(served(found, 0, asked))

    assert sent == [message.sent for message in found.messages]


# ---------------------------------------------------------------- damage and ends
MODES = ["par_b_batch0", "par_b_batch1", "par_t_batch0", "par_t_batch1", "ser_mppdb", "ser_sql"]


def lines_of(mode: str) -> list[dict[str, Any]]:
    with gzip.open(GOLDEN / f"capture_txns_{mode}.jsonl.gz", "rt") as file:
        return [json.loads(line) for line in file]


def loaded(folder: Path, lines: list[dict[str, Any]]) -> Recording:
    file = folder / "capture.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return recording.load(file)


def data(lines: list[dict[str, Any]]) -> list[int]:
    return [number for number, line in enumerate(lines) if line.get("sub") == "w"]


GONE = b"SFATAL\0c0\0Mterminating connection due to administrator command\0C57P01\0\0"


async def told_by(backend: Replay, found: Recording, start: int) -> tuple[list[tuple], bytes | str]:
    """What a client is sent from `start` on, and how it ends: "waits", an error, or b""."""
    slot = EmulatedSlot("any", found.plugin, found.database, 0)
    stream = await backend.stream(slot, start, found.asked, None)
    sent: list[tuple] = []
    while stream.is_behind():
        sent += list(await stream.more())
    sent += list(stream.idle())
    try:
        async with asyncio.timeout(0.01):
            await stream.more()
    except TimeoutError:
        return sent, "waits"
    except ErrorResponse as refused:
        return sent, refused.frame("FATAL")
    except ConnectionError:
        return sent, b""
    raise AssertionError("more after all")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("error", [GONE, b""], ids=["error", "lost"])
def test_a_stream_that_was_broken_off_ends_so_once_and_goes_on_for_who_comes_back(
    mode: str, error: bytes, tmp_path: Path
) -> None:
    lines = lines_of(mode)
    whole = loaded(tmp_path, lines)
    frames = data(lines)
    cut = frames[len(frames) // 2]  # with one batch: before it
    ended = {"type": "E" if error else "EOF", "ms": 9, "hex": error.hex()}
    found = loaded(tmp_path, [*lines[:cut], ended, *lines[1:]])  # a second stream has it all
    backend = Replay(found)

    async def play() -> list[tuple[list[tuple], bytes | str]]:
        first = found.transactions[: found.parts[0].transactions]
        resume = int(first[-1].end_lsn) if first else 0
        return [await told_by(backend, found, start) for start in (0, resume, resume)]

    (before, how), (after, how_then), (again, how_again) = asyncio.run(play())

    assert before == [message.sent for message in whole.messages][: frames.index(cut)]
    assert how == (b"E" + (len(error) + 4).to_bytes(4, "big") + error if error else b"")
    assert (how_then, how_again) == ("waits", "waits")
    assert after == again
    every = reported(whole, [message.sent for message in whole.messages])
    assert reported(found, after) == every[found.parts[0].transactions :]
    assert len(found.transactions) == len(whole.transactions)


@pytest.mark.parametrize("mode", MODES)
def test_undecodable_messages_are_sent_at_their_position(mode: str, tmp_path: Path) -> None:
    lines = lines_of(mode)
    frames = data(lines)
    at = frames[len(frames) // 2]
    body = bytes.fromhex(lines[at]["hex"])
    noise = bytes([0x7F, 0xFF]) * 20
    lines[at] = {**lines[at], "hex": (body[:25] + noise).hex()}
    found = loaded(tmp_path, lines)

    sent = asyncio.run(served(found, 0))
    resume = int(found.transactions[0].end_lsn) if found.transactions else 0
    again = asyncio.run(served(found, resume))

    assert [payload for _, payload in sent].index(noise) == frames.index(at)
    assert [payload for _, payload in again].count(noise) == 1


def test_a_stream_that_begins_within_a_transaction_is_served_as_it_is(tmp_path: Path) -> None:
    lines = lines_of("par_b_batch0")
    frames = data(lines)
    found = loaded(tmp_path, [lines[0], *lines[frames[1] :]])  # without the first BEGIN

    sent = asyncio.run(served(found, 0))

    assert sent[0][1] == bytes.fromhex(lines[frames[1]]["hex"])[25:]


def test_a_header_may_list_its_options_as_an_object_and_lines_may_have_less(
    tmp_path: Path,
) -> None:
    header, *lines = lines_of("par_b_batch0")
    options = dict(header["options"])
    short = [{"type": line["type"], "hex": line.get("hex", "")} for line in lines]

    found = loaded(tmp_path, [{**header, "options": options}, *short])

    assert len(found.messages) == len(data(lines))


@pytest.mark.parametrize("header", [{}, {"kind": "header"}, {"kind": "header", "plugin": 1}])
def test_what_is_not_a_recording_is_refused(header: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(recording.DamagedRecording, match="header"):
        loaded(tmp_path, [header] if header else [])
