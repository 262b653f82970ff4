"""Which modes are proven: their recordings come out of the encoders byte by byte.

Everything else follows a manual or a specification and says so, row by row, with its
source: chapter or section, and the line (l.) of the text as we have it.  `PROVEN` may
hold no mode that is not recorded: a test compares it with the recordings.  The recorded
server is openGauss 7.0.0-RC2.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from gauss_cdc.sandbox.emulator.model import Mode

RECORDED_PRODUCT: Final = "og7"

_PARALLEL: Final = Mode(parallel_decode_num=2)

PROVEN: Final = frozenset(
    {
        Mode(),
        Mode(skip_empty_xacts=True, include_xids=False, include_timestamp=False),
        Mode(plugin="sql_decoding"),
        Mode(plugin="test_decoding"),
        *(
            replace(_PARALLEL, decode_style=style, sending_batch=batch)
            for style in "bjt"
            for batch in (False, True)
        ),
        replace(_PARALLEL, decode_style="t", include_timestamp=False),
    }
)


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that no recording shows."""

    what: str
    source: str
    applies: Callable[[str, Mode], bool]


def _never(_product: str, _mode: Mode) -> bool:
    return False  # not a matter of the mode: content that recordings do not have


UNPROVEN: Final = (
    # ---- products
    Gap(
        "openGauss 3: BEGIN says commit_lsn, and has no xid",
        "specification 5.4 l. 714, 10 l. 954, 12 l. 993",
        lambda product, _: product == "og3",
    ),
    Gap(
        "openGauss 5: BEGIN has no xid; include-originid exists",
        "specification 2.9 l. 285, 5.1 l. 604-607, 12 l. 993",
        lambda product, _: product == "og5",
    ),
    Gap(
        "openGauss 6: printed like version 7, by its source",
        "specification 5.1 l. 604, 5.4 l. 711-714, 12 l. 993",
        lambda product, _: product == "og6",
    ),
    Gap(
        "GaussDB: BEGIN without xid, COMMIT XID:, rows behind DDL lost in every mode",
        "manual, options l. 275-301, DDL l. 227;"
        " specification 5.4 l. 711, 6.5 l. 886, 10 l. 953-954",
        lambda product, _: product == "gaussdb",
    ),
    Gap(
        "PostgreSQL's test_decoding: compared with a running server, not with a recording",
        "PostgreSQL manual, appendix test_decoding",
        lambda product, _: product == "postgres",
    ),
    # ---- options of GaussDB
    Gap(
        "user names: block N of a binary BEGIN; elsewhere their place is unknown: left out",
        "manual, options l. 71-78, 296; specification 10 l. 953",
        lambda _, mode: mode.include_user,
    ),
    Gap(
        "heartbeats: a record h in style b; raw bytes in j and t; none in serial decoding,"
        " where their form is unknown; sent alone behind what was buffered",
        "manual, options l. 128-135; specification 5.8 l. 733-741",
        lambda _, mode: mode.enable_heartbeat,
    ),
    Gap(
        "TDDL and JDDL in serial decoding",
        "manual, DDL l. 310, 339, 347-348, 440; specification 6.2 l. 776-785",
        lambda _, mode: mode.enable_ddl_decoding and not mode.parallel,
    ),
    Gap(
        "DDL in parallel decoding: framed like a row; style b has a letter of our own (L)",
        "manual, options l. 258, DDL l. 461; specification 6.4 l. 881-883",
        lambda _, mode: mode.enable_ddl_decoding and mode.parallel,
    ),
    Gap(
        "CSN-ordered slots and coordinators: CSN in the headers, BEGIN and COMMIT alone",
        "manual, options l. 147-156; specification 3.8 l. 500-503",
        lambda _, mode: mode.output_order == 1,
    ),
    Gap(
        "skip-generated-columns: new rows only",
        "manual, options l. 165-174",
        lambda _, mode: mode.skip_generated_columns,
    ),
    Gap(
        "excluded users: their transactions have no rows",
        "manual, options l. 79-97",
        lambda _, mode: bool(mode.exclude_users),
    ),
    # ---- options of openGauss, not recorded in these modes
    Gap(
        "white-table-list: behind a delayed BEGIN in serial, before it in parallel decoding",
        "manual, options l. 42-48; specification 2.12 l. 324-335",
        lambda _, mode: bool(mode.white_table_list),
    ),
    Gap(
        "include-originid",
        "specification 2.9 l. 285, 4.1 l. 515, 5.1 l. 607, 5.4 l. 711",
        lambda _, mode: mode.include_originid,
    ),
    Gap(
        "changes that came by replication (only-local = false)",
        "manual, options l. 34-41; specification 2.9 l. 278",
        lambda _, mode: not mode.only_local,
    ),
    Gap(
        "skip-empty-xacts in parallel decoding: BEGIN right before the first row",
        "specification 3.2 l. 398-402, 5.7 l. 728",
        lambda _, mode: mode.skip_empty_xacts and mode.parallel,
    ),
    Gap(
        "a slot of another plugin in parallel decoding, which makes no difference",
        "specification 2.10 l. 294-316",
        lambda _, mode: mode.parallel and mode.plugin != "mppdb_decoding",
    ),
    # ---- content
    Gap("openGauss' lines for logged DDL", "specification 6.1 l. 765-775", _never),
    Gap("TRUNCATE with CASCADE or RESTART IDENTITY", "specification 4.1 l. 552", _never),
    Gap("sql_decoding's comma for a dropped last column", "specification 4.3 l. 573", _never),
    Gap(
        "quotes around keywords other than select, from, where, group, order, user, table",
        "keyword table of openGauss' public sources; specification 4.1 l. 531",
        _never,
    ),
    Gap(
        "the exact byte at which a batch is full (1048576, header included): recordings leave"
        " room of less than a record",
        "manual, options l. 316-323; specification 5.2 l. 626, 12 l. 991",
        _never,
    ),
)


def support(product: str, mode: Mode) -> str:
    """`proven`, or `unproven: ` and why, for the line that `run` starts with.

    >>> support("og7", Mode())
    'proven'
    >>> support("og7", Mode(include_xids=False))
    'unproven: these options together were not recorded'
    """
    if product == RECORDED_PRODUCT and _known(mode) in PROVEN:
        return "proven"
    reasons = [gap.what for gap in UNPROVEN if gap.applies(product, mode)]
    return "unproven: " + "; ".join(reasons or ["these options together were not recorded"])


def support_rows() -> Iterator[tuple[str, str, str]]:
    """The documentation's table: what, `proven` or `unproven`, where it comes from."""
    for mode in sorted(PROVEN, key=described):
        yield described(mode), "proven", "recordings of openGauss 7.0.0-RC2"
    for gap in UNPROVEN:
        yield gap.what, "unproven", gap.source


def described(mode: Mode) -> str:
    """A mode in a few words.

    >>> described(Mode(parallel_decode_num=4, decode_style="j", sending_batch=True))
    'parallel, style j, batched, xids, times'
    """
    if mode.parallel:
        batched = "batched" if mode.sending_batch else "one by one"
        words = [f"parallel, style {mode.style}", batched]
    else:
        words = [f"serial, {mode.plugin}"]
    told = (mode.include_xids, "xids"), (mode.include_timestamp, "times")
    if mode.plugin != "sql_decoding":
        words += [word for is_told, word in told if is_told] or ["no xids, no times"]
    if mode.skip_empty_xacts:
        words.append("without empty transactions")
    return ", ".join(words)


def _known(mode: Mode) -> Mode:
    """The mode without what makes no difference: how many decoders, how the style was said."""
    if not mode.parallel:
        return mode
    return replace(mode, parallel_decode_num=2, decode_style=mode.style)
