"""What executors are told, and what they write, without any of them."""

import pickle
from functools import partial

from schemas.tables import UNCHANGED
from spark_consumers.lanes import _Job, copy_rows
from spark_consumers.model import Change
from spark_consumers.sinks.postgres.loader import CopyLoader, copy_line


def test_a_staged_line_tells_null_unsent_and_text_apart() -> None:
    change = Change(3, 4, "u", ("a", "b"), ["\\N", UNCHANGED], [None, "x\ty\nz\r"])

    assert copy_line(9, change) == ("9\t3\t4\tu\t\\N\t0\t\\\\N\t\\N\t\\N\tx\\ty\\nz\\r\n")
    assert copy_line(9, Change(3, 4, "t", ("a",), None, None)) == (
        "9\t3\t4\tt\t\\N\t\\N\t\\N\t\\N\n"
    )


def test_a_task_holds_the_target_s_secret_only_and_prints_none() -> None:
    job = _Job(CopyLoader({"host": "db", "password": "of-the-target"}), ["stage"], {}, {}, {})

    travels = pickle.dumps(partial(copy_rows, job))

    assert b"of-the-target" in travels
    assert "of-the-target" not in repr(job)
    assert set(job.__slots__) == {"loader", "stages", "places", "schemas", "ranges"}
