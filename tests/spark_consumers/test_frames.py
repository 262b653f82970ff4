"""Options of exact reads; the reads themselves run in tests/integration."""

import json

from schemas.control import Range
from spark_consumers.frames import range_options

CLIENT = {"bootstrap.servers": "b:9092"}


def test_ranges_of_a_partition_are_read_as_one_span() -> None:
    options = range_options(
        CLIENT, [Range("t", 0, 5, 7), Range("t", 0, 9, 12), Range("t", 1, 3, 4)], tasks=2
    )

    assert json.loads(options["assign"]) == {"t": [0, 1]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5, "1": 3}}
    assert json.loads(options["endingOffsets"]) == {"t": {"0": 12, "1": 4}}
    assert options["minPartitions"] == "2"


def test_other_options_have_another_group() -> None:
    one, same = (range_options(CLIENT, [Range("t", 0, 0, n)]) for n in (1, 2))
    other = range_options(CLIENT, [Range("t", 0, 0, 1)], is_committed=False)

    assert one["kafka.group.id"] == same["kafka.group.id"] != other["kafka.group.id"]
    assert other["kafka.isolation.level"] == "read_uncommitted"
