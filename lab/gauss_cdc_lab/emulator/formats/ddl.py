"""TRUNCATE and DDL, as far as a product sends them.

openGauss prints what a publication with `ddl` logged (openGauss' public sources);
GaussDB one JSON object a statement (manual, "DDL in logical decoding").
"""

from __future__ import annotations

from gauss_cdc_lab.emulator.formats.names import Names
from gauss_cdc_lab.emulator.formats.rows import json_string
from gauss_cdc_lab.emulator.model import Ddl, Mode, Truncate


def truncate_line(item: Truncate, names: Names) -> bytes:
    """`table s.a, s.b: TRUNCATE: (no-flags)`, the same in every serial plugin."""
    tables = b", ".join(names.table(*table) for table in item.tables)
    flags = b" restart_seqs" * item.restart_identity + b" cascade" * item.cascade
    return b"table %b: TRUNCATE:%b" % (tables, flags or b" (no-flags)")


def deparse_lines(plugin: str, item: Ddl, end_lsn: int) -> bytes:
    """The message of openGauss; the second line is missing where the start of a DROP is logged."""
    content = item.content or b""
    owner = (item.owner or "none").encode()
    # The message is logged with its terminating NUL, which the size counts.
    size, command = len(content) + 1, item.command.encode()
    if plugin == "mppdb_decoding":
        first = b"prefix: deparse, lsn: %d, relid %d, cmdtype: %b, size: %d, content: %b" % (
            *(end_lsn, item.relation, command, size, content),
        )
        second = b"decode to: "
    else:
        first = b"message: prefix deparse, relid %d, cmdtype: %b, sz: %d content: %b" % (
            *(item.relation, command, size, content),
        )
        second = b"decode to : "
    if item.sql is None:
        return first
    return b"%b\n%b%b, [owner %b]" % (first, second, item.sql, owner)


def tagged(mode: Mode, item: Ddl) -> bytes | None:
    """GaussDB's `{"TDDL":…}` or `{"JDDL":…}`; None if nothing is sent.

    JDDL with enable-ddl-json-format, in whatever style; in style `j`, too, since the
    manual has it follow decode-style.  sql_decoding has no JSON form.
    """
    if not mode.enable_ddl_decoding:
        return None
    as_json = mode.enable_ddl_json_format or mode.style == "j"
    if as_json and mode.plugin != "sql_decoding":
        return None if item.content is None else b'{"JDDL":%b}' % item.content
    return None if item.sql is None else b'{"TDDL":%b}' % json_string(item.sql)
