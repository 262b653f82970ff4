"""Other choices of types for a prefix that runs: a new version of the schema, and nothing lost."""

from collections.abc import Callable
from dataclasses import replace

from gauss_cdc_lab.services import Addresses
from schemas.types import TypeOptions
from tests.e2e.path import Path, ask, content

ROW = """
INSERT INTO t VALUES (%s, 1.50, 'NaN', '1 mon -1 days', '\\xff00', '12:00:00.123456', 'infinity',
                      '0044-03-15 BC', '"a"=>NULL', 'sad', ARRAY[1.10, NULL])
"""


def test_a_prefix_goes_on_with_other_choices(
    addresses: Addresses, new_database: Callable[..., str], topic_prefix: str
) -> None:
    source, target = new_database(), new_database()
    ask(
        source,
        "CREATE EXTENSION hstore; CREATE TYPE mood AS ENUM ('sad');"
        "CREATE TABLE t (id int PRIMARY KEY, n numeric(9,2), m numeric, i interval, b bytea,"
        " c time, at timestamp, d date, h hstore, e mood, a numeric[])",
    )
    ask(source, ROW, 1)
    with Path(addresses, topic_prefix, source, target) as path:
        path.start()
        path.catch_up()
        ask(source, ROW, 2)
        path.catch_up()
        path.stop()
        choices = (
            TypeOptions("double", "string", "hex", "connect", "map"),
            TypeOptions("string", "numeric", "base64", "adaptive-time-microseconds", "json"),
        )
        for number, chosen in enumerate(choices, 3):
            path.options = replace(path.options, types=chosen)
            path.start()
            ask(source, ROW, number)
            ask(source, "UPDATE t SET m = m WHERE id = 1")
            path.catch_up()
            path.stop()

    assert content(target, "t") == content(source, "t")
    assert len(content(target, "t")) == 4
