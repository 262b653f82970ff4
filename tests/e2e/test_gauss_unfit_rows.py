"""Rows of GaussDB's wire that cannot be delivered: a gap, and everything else flows."""

from dataclasses import replace

import pytest

from producer.core.events import Limits
from producer.core.stream.unfit import WHY
from tests.e2e.path import Path, ask, until
from tests.e2e.test_gauss_modes import gauss, is_streaming, source_of

__all__ = ["gauss"]
KB = 1 << 10
MODES = {
    "mppdb serial": {},
    "parallel b": {"parallel-decode-num": "3", "sending-batch": "1"},
}
# So long that its value stands outside of its row, and does not get smaller there.
LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 5000) i)"
TABLES = """
CREATE TABLE big (id int PRIMARY KEY, t text, n int);
CREATE TABLE whole (id int, t text);
CREATE TABLE other (id int PRIMARY KEY);
ALTER TABLE whole REPLICA IDENTITY FULL;
"""
WORK = (
    "INSERT INTO other VALUES (1)",
    (
        f"INSERT INTO big VALUES (4, {LARGE}, 1); INSERT INTO other VALUES (2); "
        f"INSERT INTO big VALUES (5, 'small', 1), (6, {LARGE}, 1)"
    ),
    "UPDATE big SET n = 2",  # of what was put aside, too; the large values are not sent again
    "UPDATE big SET id = 40 WHERE id = 4",
    "UPDATE big SET t = 'small' WHERE id = 3",
    "DELETE FROM big WHERE id = 2",
    f"INSERT INTO whole VALUES (1, {LARGE}), (2, 'small')",
    "UPDATE whole SET id = 10 WHERE id = 1; UPDATE whole SET t = 'other' WHERE id = 2",
    "DELETE FROM whole WHERE id = 10",
    # Thousands of rows, some of them unfit: in parts, where parts are as short as below.
    (
        f"INSERT INTO big SELECT g, CASE WHEN g % 500 = 0 THEN {LARGE} END, g"
        " FROM generate_series(1001, 31000) g"
    ),
    "INSERT INTO other VALUES (3)",
)


def ids(url: str, table: str) -> list[int]:
    return [row[0] for row in ask(url, f"SELECT id FROM {table} ORDER BY id")]


@pytest.mark.parametrize("mode", MODES)
def test_unfit_rows_are_put_aside_and_everything_else_flows(
    mode, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    ask(source, TABLES)
    ask(source, f"INSERT INTO big VALUES (1, 'small', 1), (2, {LARGE}, 1), (3, 'small', 1)")
    with Path(
        addresses,
        topic_prefix,
        source,
        target,
        kind="opengauss",
        plugin="mppdb_decoding",
        plugin_options=MODES[mode],
        max_row_bytes=100 * KB,
        unfit_row="quarantine",
        limits=Limits(heartbeat_seconds=0.5, transaction_timeout=3),
    ) as path:
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        for statements in WORK:
            ask(source, statements)

        def has_all() -> bool:
            assert path.failure is None
            path.applier.drain()
            return ids(target, "other") == [1, 2, 3]

        until(has_all, "the last transaction", path._stop.wait)

        assert path.applier.drain().inexact == {
            "public.big": f"seen: {WHY}",
            "public.whole": f"seen: {WHY}",
        }
        fit = {g for g in range(1001, 31001) if g % 500}
        assert {1, 3, 5} | fit <= set(ids(target, "big"))
        assert ask(target, "SELECT t, n FROM big WHERE id = 5") == [("small", 2)]
        assert ask(target, "SELECT id, t FROM whole") == [(2, "other")]
