"""DDL that GaussDB tells, applied as barriers: the target ends equal, column by column.

The source is the facade over a real PostgreSQL, which words statements as GaussDB's
deparsing does.
"""

import json
from dataclasses import replace

import pytest

from schemas.control import Origin, SchemaChange
from spark_consumers.loop import job
from tests.e2e.path import Path, ask, until
from tests.e2e.test_gauss_gaps import differing
from tests.e2e.test_gauss_modes import caught_up, gauss, is_streaming, source_of

__all__ = ["gauss"]

MODES = {
    "serial": {"enable-ddl-decoding": "true"},
    "serial, JSON": {"enable-ddl-decoding": "true", "enable-ddl-json-format": "true"},
    "parallel t, JSON": {
        "enable-ddl-decoding": "true",
        "enable-ddl-json-format": "true",
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
WORK = (
    ROWS.format("t", "", 100, 200),
    "ALTER TABLE t ADD COLUMN n int DEFAULT 5, ADD q text DEFAULT 'it''s 100 %'",
    ROWS.format("t", ", g", 300, 400),
    "ALTER TABLE t RENAME v TO w",
    "UPDATE t SET w = w || '!' WHERE id % 3 = 0",
    "ALTER TABLE t ALTER n TYPE text USING n::text",
    "ALTER TABLE t DROP w, ADD w numeric(10,2)",
    "UPDATE t SET w = id / 3.0 WHERE id % 2 = 0",
    "ALTER TABLE t RENAME TO t2",
    'CREATE TABLE "Made 5 %" (id int PRIMARY KEY, at timestamp(3), n numeric(9,2)[])',
    "DELETE FROM t2 WHERE id % 7 = 0",
)
MADE = '"Made 5 %"'


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
        include=("public.*",),
        ddl_text="JSON" in mode,
    ) as path:
        path.options = replace(path.options, source=source_of(gauss, source))
        changes = kept(path)
        path.start()
        until(lambda: is_streaming(path), "streaming", path._stop.wait)
        for statement in WORK:
            ask(source, statement)
        caught_up(path, "t2")
        caught_up(path, MADE)
        ask(source, f"INSERT INTO {MADE} VALUES (1, '2026-01-02 03:04:05.678', '{{1.5,NULL}}')")
        caught_up(path, MADE)

        assert differing(source, target) == []
        assert {change.tag for change in changes} == {"ALTER TABLE", "CREATE TABLE"}
        assert all(change.canonical for change in changes)
        is_json = "enable-ddl-json-format" in MODES[mode]
        for change in changes:  # as text only where that is asked for
            said = change.jddl is not None and "fmt" in json.loads(change.jddl)
            assert (said, change.sql) == (is_json, None)
            assert is_json or "100 %" not in change.canonical
        assert ask(target, "SELECT to_regclass('t') IS NULL") == [(True,)]
        assert path.applier.drain().inexact == {}
        assert any("only a comparison shows it" in note for note in path.notes)


def kept(path: Path) -> list[SchemaChange]:
    """What the path reads of the DDL topic from here on, as the stream told it."""
    changes: list[SchemaChange] = []

    def read(segment):
        found = path.rows(segment)
        changes.extend(c for c in found.ddl if c.origin is Origin.DEPARSED)
        return found

    path.applier = job.Applier(path.cuts, read, path.sink)
    return changes
