"""What executors are told, and what they write, without any of them."""

import json

from schemas.control import Range
from schemas.tables import UNCHANGED
from spark_consumers.lanes import SparkBulk, copy_line
from spark_consumers.model import Change


def bulk(*ranges: Range, is_committed: bool = True) -> SparkBulk:
    client = {"bootstrap.servers": "b:9092"}
    return SparkBulk(None, [], [], ranges, client, {}, {}, {}, is_committed=is_committed)


def test_ranges_of_a_partition_are_read_as_one_span() -> None:
    options = bulk(Range("t", 0, 5, 7), Range("t", 0, 9, 12), Range("t", 1, 3, 4)).options(2, 6)

    assert json.loads(options["assign"]) == {"t": [0, 1]}
    assert json.loads(options["startingOffsets"]) == {"t": {"0": 5, "1": 3}}
    assert json.loads(options["endingOffsets"]) == {"t": {"0": 12, "1": 4}}
    assert options["minPartitions"] == "2"


def test_other_options_have_another_group() -> None:
    one, same = (bulk(Range("t", 0, 0, n)).options(2, 1) for n in (1, 2))
    other = bulk(Range("t", 0, 0, 1), is_committed=False).options(2, 1)

    assert one["kafka.group.id"] == same["kafka.group.id"] != other["kafka.group.id"]
    assert other["kafka.isolation.level"] == "read_uncommitted"


def test_a_staged_line_tells_null_unsent_and_text_apart() -> None:
    change = Change(3, 4, "u", ("a", "b"), ["\\N", UNCHANGED], [None, "x\ty\nz\r"])

    assert copy_line(9, change) == ("9\t3\t4\tu\t\\N\t0\t\\\\N\t\\N\t\\N\tx\\ty\\nz\\r\n")
    assert copy_line(9, Change(3, 4, "t", ("a",), None, None)) == (
        "9\t3\t4\tt\t\\N\t\\N\t\\N\t\\N\n"
    )
