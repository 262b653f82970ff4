"""Requests and answers, byte by byte; a broker reads and writes them in test_delivery."""

import pytest

from producer.errors import DecodeError, Unsupported
from producer.kafka.direct import requests
from producer.kafka.direct.requests import BrokerRequest, Producing, framed
from producer.kafka.direct.wire import Response


def test_a_request_begins_with_its_size_and_header() -> None:
    parts = framed(requests.metadata(["t"]), 7, "me")

    assert b"".join(parts).hex(" ") == (
        "00 00 00 15 00 03 00 09 00 00 00 07 00 02 6d 65 00 02 02 74 00 00 00 00 00"
    )


def test_the_end_of_a_transaction_is_asked_for_by_the_version_of_the_cluster() -> None:
    made = [
        requests.end_txn("id", Producing(3, 1), commit=True, transaction_version=version)
        for version in (1, 2)
    ]

    assert [one.version for one in made] == [3, 5]
    assert made[0].body == made[1].body
    assert made[0].body[0].hex(" ") == "03 69 64 00 00 00 00 00 00 00 03 00 01 01 00"


def versions(*ranges: tuple[int, int, int], level: int = 0) -> Response:
    known = b"".join(
        key.to_bytes(2, "big") + low.to_bytes(2, "big") + high.to_bytes(2, "big") + b"\0"
        for key, low, high in ranges
    )
    name = b"transaction.version"
    feature = bytes([2, len(name) + 1]) + name + level.to_bytes(2, "big") * 2 + b"\0"
    tags = bytes([1, 2, len(feature)]) + feature
    return Response(bytes([0, 0, len(ranges) + 1]) + known + bytes(4) + tags)


OLD = [(0, 0, 9), (3, 0, 9), (10, 0, 4), (22, 0, 4), (24, 0, 3), (26, 0, 3)]
NEW = [(0, 3, 13), (3, 0, 13), (10, 0, 6), (22, 0, 6), (24, 0, 5), (26, 0, 5)]


def test_transactions_are_of_the_version_that_the_cluster_has_finalized() -> None:
    def version(ranges: list[tuple[int, int, int]], level: int) -> int:
        return requests.read_api_versions(versions(*ranges, level=level)).transaction_version

    assert version(NEW, 2) == 2
    assert version(NEW, 1) == version(NEW, 0) == version(OLD, 2) == 1


@pytest.mark.parametrize(
    "answer", [versions(*OLD[1:]), versions(*OLD[:-1], (26, 0, 2)), Response(b"\0\x23\0")]
)
def test_a_broker_that_is_too_old_is_refused(answer: Response) -> None:
    with pytest.raises(Unsupported):
        requests.read_api_versions(answer)


def test_no_prefix_of_an_answer_is_an_answer() -> None:
    whole = bytes.fromhex(
        "02 02 74 02 00 00 00 05 00 00 00 00 00 00 00 00 00 09 ff ff ff ff ff ff ff ff"
        "00 00 00 00 00 00 00 00 01 00 00 00 00 00 00 00 00"
    )
    (stored,) = requests.read_produced(Response(whole))
    assert (stored.place, stored.error, stored.offset) == (("t", 5), 0, 9)

    for size in range(len(whole) - 5):  # behind it: how long the client is asked to wait
        with pytest.raises(DecodeError):
            requests.read_produced(Response(whole[:size]))


def test_one_request_carries_batches_of_several_partitions() -> None:
    batches: list[tuple[tuple[str, int], list[bytes]]] = [
        (("t", 0), [b"ab", b"c"]), (("u", 0), [b"d"]), (("t", 1), [b"e"]),
    ]  # fmt: skip
    made = requests.produce("id", batches, timeout_ms=5, transaction_version=2)

    assert isinstance(made, BrokerRequest)
    assert made.version == 12
    assert b"".join(made.body).hex(" ") == (
        "03 69 64 ff ff 00 00 00 05 03"
        " 02 74 03 00 00 00 00 04 61 62 63 00 00 00 00 01 02 65 00 00"
        " 02 75 02 00 00 00 00 02 64 00 00 00"
    )
