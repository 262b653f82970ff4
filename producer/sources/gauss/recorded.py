"""Which decoding modes are proven by a recording of a real server.

Everything else follows a manual or public sources and says so, row by row.  The recorded
server is openGauss 7.0.0-RC2; a test compares `PROVEN` with the recordings.  The
documentation's table and the first line of `run` come from here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from producer.sources.gauss.decoders.formats import PLUGIN_STYLES
from producer.sources.gauss.options import Decoding, Effective
from producer.sources.gauss.options.values import boolean, integer, tables
from producer.sources.gauss.server import Product, Server

RECORDED_PRODUCT: Final = "openGauss 7"


@dataclass(frozen=True, slots=True)
class StreamForm:
    """What determines the bytes of a stream; defaults are serial decoding's."""

    plugin: str = "mppdb_decoding"
    style: str = ""  # b, j or t of parallel decoding; "": serial
    batch: bool = False
    xids: bool = True
    times: bool = True
    skip_empty: bool = False
    origin: bool = False
    white_tables: bool = False
    user: bool = False
    heartbeat: bool = False
    exclude_users: bool = False
    skip_generated: bool = False
    ddl: bool = False
    by_csn: bool = False

    @property
    def is_parallel(self) -> bool:
        """Whether decoder threads print, which know nothing of plugins."""
        return bool(self.style)

    def __str__(self) -> str:
        if self.is_parallel:
            words = [f"parallel, style {self.style}", "batched" if self.batch else "one by one"]
        else:
            words = [f"serial, {self.plugin}"]
        blocks = (self.xids, "xids"), (self.times, "times")
        if self.plugin != "sql_decoding":
            words += [word for is_on, word in blocks if is_on] or ["no xids, no times"]
        if self.skip_empty:
            words.append("without empty transactions")
        return ", ".join(words)


PROVEN: Final = frozenset(
    {
        StreamForm(),
        StreamForm(skip_empty=True, xids=False, times=False),
        StreamForm("sql_decoding"),
        StreamForm("test_decoding"),
        *(StreamForm(style=style, batch=batch) for style in "bjt" for batch in (False, True)),
        StreamForm(style="t", times=False),
    }
)


@dataclass(frozen=True, slots=True)
class Unrecorded:
    """Something that no recording shows."""

    what: str
    source: str
    applies: Callable[[str, StreamForm], bool]


def _never(_product: str, _form: StreamForm) -> bool:
    return False  # independent of options: content that recordings do not have


_MANUAL: Final = "manual, options"
_SOURCES: Final = "openGauss' sources"

UNPROVEN: Final = (
    # ---- products
    Unrecorded(
        "openGauss 3: BEGIN has commit_lsn and no xid",
        _SOURCES,
        lambda product, _: product == "openGauss 3",
    ),
    Unrecorded(
        "openGauss 5: BEGIN has no xid; include-originid exists",
        _SOURCES,
        lambda product, _: product == "openGauss 5",
    ),
    Unrecorded(
        "openGauss 6: printed like version 7, by its source",
        _SOURCES,
        lambda product, _: product == "openGauss 6",
    ),
    Unrecorded(
        "GaussDB: BEGIN without xid, COMMIT XID:, rows after DDL lost in every mode",
        f"{_MANUAL} and DDL",
        lambda product, _: product == Product.GAUSSDB,
    ),
    Unrecorded(
        "PostgreSQL's test_decoding: compared with a running server, not with a recording",
        "PostgreSQL's manual",
        lambda product, _: product == Product.POSTGRES,
    ),
    # ---- options of GaussDB
    Unrecorded(
        "user names: block N of a binary BEGIN; elsewhere their place is unknown: left out",
        _MANUAL,
        lambda _, form: form.user,
    ),
    Unrecorded(
        "heartbeats: a record h in style b; raw bytes in j and t; none in serial decoding,"
        " where their form is unknown; sent alone after what was buffered",
        _MANUAL,
        lambda _, form: form.heartbeat,
    ),
    Unrecorded(
        "TDDL and JDDL in serial decoding",
        "manual, DDL",
        lambda _, form: form.ddl and not form.is_parallel,
    ),
    Unrecorded(
        "DDL in parallel decoding: framed like a row; style b has L, not documented",
        f"{_MANUAL} and DDL",
        lambda _, form: form.ddl and form.is_parallel,
    ),
    Unrecorded(
        "CSN-ordered slots and coordinators: CSN in the headers, BEGIN and COMMIT alone",
        _MANUAL,
        lambda _, form: form.by_csn,
    ),
    Unrecorded(
        "skip-generated-columns: new rows only", _MANUAL, lambda _, form: form.skip_generated
    ),
    Unrecorded(
        "excluded users: their transactions have no rows",
        _MANUAL,
        lambda _, form: form.exclude_users,
    ),
    # ---- options of openGauss, not recorded in these modes
    Unrecorded(
        "white-table-list: after a delayed BEGIN in serial, before it in parallel decoding",
        f"{_MANUAL}; {_SOURCES}",
        lambda _, form: form.white_tables,
    ),
    Unrecorded("include-originid", _SOURCES, lambda _, form: form.origin),
    Unrecorded(  # changes no byte where nothing comes by replication
        "changes that came by replication (only-local = false)",
        f"{_MANUAL}; {_SOURCES}",
        _never,
    ),
    Unrecorded(
        "skip-empty-xacts in parallel decoding: BEGIN right before the first row",
        _SOURCES,
        lambda _, form: form.skip_empty and form.is_parallel,
    ),
    Unrecorded(
        "a slot of another plugin in parallel decoding: no difference",
        _SOURCES,
        lambda _, form: form.is_parallel and form.plugin != "mppdb_decoding",
    ),
    # ---- content
    Unrecorded("openGauss' lines for logged DDL", _SOURCES, _never),
    Unrecorded("TRUNCATE with CASCADE or RESTART IDENTITY", _SOURCES, _never),
    Unrecorded("sql_decoding's comma for a dropped last column", _SOURCES, _never),
    Unrecorded(
        "quotes around keywords: others than select, from, where, group, order, user, table",
        _SOURCES,
        _never,
    ),
    Unrecorded(
        "the exact byte at which a batch is full: 1048576, header included; recordings leave"
        " room of less than a record",
        f"{_MANUAL}; {_SOURCES}",
        _never,
    ),
)


def evidence(server: Server, decided: Effective) -> str:
    """`proven`, or `unproven: ` and what no recording shows, for the first line of `run`."""
    product, form = _product(server), form_of(decided)
    if product == RECORDED_PRODUCT and form in PROVEN:
        return "proven"
    reasons = [each.what for each in UNPROVEN if each.applies(product, form)]
    return "unproven: " + "; ".join(reasons or ["these options together were not recorded"])


def evidence_rows() -> Iterator[tuple[str, str, str]]:
    """The documentation's table: what, `proven` or `unproven`, where it comes from."""
    for form in sorted(map(str, PROVEN)):
        yield form, "proven", "recordings of openGauss 7.0.0-RC2"
    for each in UNPROVEN:
        yield each.what, "unproven", each.source


def form_of(decided: Effective) -> StreamForm:
    """The form of a stream with these options."""

    def is_on(name: str, *, default: bool) -> bool:
        text = decided.get(name)
        return default if text is None else boolean(text)

    is_parallel = decided.mode is Decoding.PARALLEL
    form = StreamForm(
        plugin=decided.plugin,
        xids=is_on("include-xids", default=True),
        times=is_on("include-timestamp", default=not is_parallel),
        skip_empty=is_on("skip-empty-xacts", default=False),
        origin=is_on("include-originid", default=False),
        white_tables=bool(list(tables(decided.get("white-table-list") or "", blanks=True))),
        user=is_on("include-user", default=False),
        heartbeat=is_on("enable-heartbeat", default=False),
        exclude_users=any((decided.get("exclude-users") or "").split(",")),
        skip_generated=is_on("skip-generated-columns", default=False),
        ddl=is_on("enable-ddl-decoding", default=False),
        by_csn=integer(decided.get("output-order") or "0") == 1,
    )
    if not is_parallel:
        return form
    style = decided.format.style[:1] or PLUGIN_STYLES.get(decided.plugin, "b")
    return replace(form, style=style, batch=decided.format.batch)


def _product(server: Server) -> str:
    """A product with its major version: only the one that was recorded is proven."""
    if server.product is not Product.OPENGAUSS:
        return server.product
    major = server.number[0] if server.number else 0
    return f"openGauss {major}"
