"""DDL that GaussDB tells, applied as barriers: the target ends equal, column by column.

The source is the facade over a real PostgreSQL.
"""

from dataclasses import replace

import pytest

from tests.e2e.path import Path, ask, until
from tests.e2e.test_gauss_modes import caught_up, gauss, is_streaming, source_of

__all__ = ["gauss"]

MODES = {
    "serial": {"enable-ddl-decoding": "true"},
    "parallel t": {
        "enable-ddl-decoding": "true",
        "parallel-decode-num": "3",
        "decode-style": "t",
    },
    "parallel b": {
        "enable-ddl-decoding": "true",
        "parallel-decode-num": "3",
        "sending-batch": "1",
    },
}
ROWS = "INSERT INTO {} SELECT g, 'v' || g{} FROM generate_series({}, {}) g"
# DDL is typed as the deparser words it: the facade tells what was typed.
WORK = (
    ROWS.format("t", "", 100, 200),
    "ALTER TABLE  public.t ADD COLUMN n pg_catalog.int4 DEFAULT 5",
    ROWS.format("t", ", g", 300, 400),
    "ALTER TABLE public.t RENAME COLUMN v TO w",
    "UPDATE t SET w = w || '!' WHERE id % 3 = 0",
    "ALTER TABLE  public.t ALTER COLUMN n SET DATA TYPE pg_catalog.text USING (n)::text",
    'ALTER TABLE  public.t DROP COLUMN w, ADD COLUMN w pg_catalog."numeric"(10,2)',
    "UPDATE t SET w = id / 3.0 WHERE id % 2 = 0",
    "ALTER TABLE  public.t RENAME TO t2",
    "DELETE FROM t2 WHERE id % 7 = 0",
)


@pytest.mark.parametrize("gauss", ["gaussdb"], indirect=True)
@pytest.mark.parametrize("mode", MODES)
def test_statements_between_rows_are_barriers(
    mode, addresses, topic_prefix, new_database, gauss
) -> None:
    source, target = new_database(), new_database()
    ask(
        source,
        "CREATE TABLE t (id int PRIMARY KEY, v text); ALTER TABLE t REPLICA IDENTITY FULL;"
        "INSERT INTO t SELECT g, 'old ' || g FROM generate_series(1, 50) g",
    )
    with Path(
        addresses,
        topic_prefix,
        source,
        target,
        kind="gaussdb",
        plugin="mppdb_decoding",
        plugin_options=MODES[mode],
    ) as path:
        path.options = replace(path.options, source=source_of(gauss, source))
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        for statement in WORK:
            ask(source, statement)
        caught_up(path, "t2")

        assert ask(target, "SELECT to_regclass('t') IS NULL") == [(True,)]
        assert path.applier.drain().inexact == {}
        assert any("only a comparison can tell" in note for note in path.notes)
