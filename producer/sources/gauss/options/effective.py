"""From the operator's options to those of START_REPLICATION.

Everything that can be known without a server is decided here; what needs one is
named in `Effective.needs_server` and decided by `server.check_server_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from producer.errors import OptionRefused
from producer.sources.decoders import Format
from producer.sources.gauss.decoders.formats import PLUGIN_STYLES
from producer.sources.gauss.options import values
from producer.sources.gauss.options.advice import advice
from producer.sources.gauss.options.model import Effective, Terms
from producer.sources.gauss.options.server import sentences
from producer.sources.gauss.options.table import (
    BY_NAME,
    OPTIONS,
    PLUGINS,
    SQL_DECODING,
    Decoding,
    Option,
    OptionGroup,
    OptionKind,
    Treatment,
    Use,
    Vendor,
)

_TIMEOUT_INTERVALS: Final = 3
_DEFAULT_THREADS: Final = 2  # of a plugin that exists for parallel decoding only


def effective(options: Mapping[str, str], terms: Terms, *, encoding: str = "utf-8") -> Effective:
    """Decide what is sent; raise OptionRefused for the first invalid option."""
    for refused in problems(options, terms):
        raise refused
    given = {name: _canonical(BY_NAME[name], text, terms) for name, text in options.items()}
    mode = mode_of(options, terms)
    wanted = _defaults(mode, terms, given) | given
    sent = {
        option.name: wanted[option.name]
        for option in OPTIONS
        if option.name in wanted and _is_sent(option, wanted[option.name], mode, terms)
    }
    decided = Effective(
        options=tuple(sent.items()),
        format=Format(
            terms.plugin, sent.get("decode-style", ""), sent.get("sending-batch") == "1", encoding
        ),
        mode=mode,
        product=terms.product,
        plugin=terms.plugin,
        interface=terms.interface,
        ordered_by="csn" if wanted.get("output-order") == "1" else "lsn",
        status_seconds=terms.status_seconds,
        warnings=tuple(advice(given, sent, mode, terms)),
    )
    return replace(decided, needs_server=sentences(decided))


def problems(options: Mapping[str, str], terms: Terms) -> Iterator[OptionRefused]:
    """Find the errors in the operator's options, option by option.

    Each error's `where["option"]` is the option's name.
    """
    if terms.plugin not in PLUGINS[terms.product]:
        yield OptionRefused(
            "this product has no such output plugin",
            plugin=terms.plugin,
            product=terms.product,
            hint=f"one of {', '.join(PLUGINS[terms.product])}",
        )
        return
    found = False
    for name, text in options.items():
        if (refused := _value_problem(name, text, options, terms)) is not None:
            found = True
            yield refused
    if found:  # rules across options need values
        return
    mode = mode_of(options, terms)
    yield from _mode_problems(options, mode, terms)


def mode_of(options: Mapping[str, str], terms: Terms) -> Decoding:
    """Say how changes are decoded; options must be readable."""
    if terms.interface == "sql":
        return Decoding.SQL
    default = str(_DEFAULT_THREADS) if terms.plugin in PLUGIN_STYLES else "1"
    threads = values.integer(options.get("parallel-decode-num", default))
    return Decoding.SERIAL if threads == 1 else Decoding.PARALLEL


# ---- one option


def _value_problem(
    name: str, text: str, options: Mapping[str, str], terms: Terms
) -> OptionRefused | None:
    """Check one option alone."""
    option = BY_NAME.get(name)
    if option is None:
        return OptionRefused("unknown decoding option", option=name, value=text, hint=_near(name))
    if all(option.use(terms.product, mode) is Use.REFUSED for mode in Decoding):
        return _refused(option, text, f"{terms.product} does not have this option")
    try:
        canonical = _canonical(option, text, terms)
    except ValueError as exc:
        return _refused(option, text, str(exc))
    if option.kind in (OptionKind.INTEGER, OptionKind.TIME):
        high = values.INT32_MAX if _is_share(option, options, terms) else option.high
        if not option.low <= int(canonical) <= high:
            return _refused(option, text, f"outside {option.range}")
    if name == "parallel-queue-size" and int(canonical).bit_count() != 1:
        return _refused(option, text, "it must be a power of two")
    if name == "decode-sequence" and canonical == "true":
        return _refused(option, text, "the server accepts only false")
    if option.treatment is Treatment.REFUSED and canonical != "false":
        return _refused(option, text, option.why)
    return None


def _is_share(option: Option, options: Mapping[str, str], terms: Terms) -> bool:
    """Is the upper bound a share of the server's memory, which is asked for after login?"""
    if not option.share or terms.product != Vendor.GAUSSDB:
        return False
    try:
        return mode_of(options, terms) is Decoding.PARALLEL
    except ValueError:  # parallel-decode-num has an error of its own
        return False


def _canonical(option: Option, text: str, terms: Terms) -> str:
    """Give the value in one spelling, or raise ValueError."""
    match option.kind:
        case OptionKind.BOOLEAN:
            return "true" if values.boolean(text) else "false"
        case OptionKind.INTEGER:
            return str(values.integer(text))
        case OptionKind.TIME:
            return str(values.milliseconds(text))
        case OptionKind.STYLE:
            return values.style(text)
        case OptionKind.TABLES:
            tables = values.tables(text, blanks=terms.product == Vendor.OPENGAUSS)
            return ",".join(f"{schema}.{table}" for schema, table in tables)
        case OptionKind.NAMES:
            return ",".join(values.names(text))
        case OptionKind.OIDS:
            return ",".join(str(oid) for oid in values.oids(text))
        case OptionKind.POSITION:
            csn, lsn = values.csn_and_lsn(text)
            return f"{csn}/{lsn}"


def _refused(option: Option, text: str, rule: str) -> OptionRefused:
    return OptionRefused(
        f"decoding option refused: {rule}", option=option.name, value=text, range=option.range
    )


def _near(name: str) -> str:
    """Suggest a name: underscores are the usual mistake, even in the manual."""
    meant = name.strip().lower().replace("_", "-")
    return (
        f"write {meant}"
        if meant in BY_NAME
        else "docs/reference/decoding-options.md has all of them"
    )


# ---- rules across options


def _mode_problems(
    options: Mapping[str, str], mode: Decoding, terms: Terms
) -> Iterator[OptionRefused]:
    given = {name: _canonical(BY_NAME[name], text, terms) for name, text in options.items()}
    ours = _defaults(mode, terms, given)
    if terms.plugin in PLUGIN_STYLES and mode is not Decoding.PARALLEL:
        yield OptionRefused(
            f"{terms.plugin} is for parallel decoding; its output otherwise is not documented",
            option="parallel-decode-num",
            value=given.get("parallel-decode-num", ""),
            hint="set parallel-decode-num to 2..20, or use mppdb_decoding",
        )
    for name, text in options.items():
        option, value = BY_NAME[name], given[name]
        if option.use(terms.product, mode) is Use.REFUSED:
            yield _refused(option, text, _why_not_here(option, mode))
        elif _is_unknown_to_sql_decoding(name, mode, terms) and not _is_default(name, value):
            yield _refused(option, text, "sql_decoding of openGauss does not have it")
        elif option.treatment is Treatment.OURS and value != ours[name]:
            rule = f"set by us to {ours[name]}: {option.why}"
            yield _refused(option, text, rule)
        elif (
            option.group is OptionGroup.DISTRIBUTED
            and mode is not Decoding.SQL
            and given.get("output-order", "0") == "0"
        ):
            yield _refused(option, text, "only with output-order = 1")
        elif (
            name == "force-binary" and value == "true" and mode is Decoding.SQL and not terms.binary
        ):
            yield _refused(option, text, "the text functions cannot return binary output")
        elif name == "enable-ddl-json-format" and value == "true" and _is_sql(terms):
            yield _refused(option, text, "sql_decoding does not send DDL as JSON")
        elif name == "sender-timeout" and 0 < int(value) < _shortest_timeout(terms):
            rule = (
                f"shorter than {_TIMEOUT_INTERVALS} status intervals of "
                f"{terms.status_seconds:g} s: one late message would end the connection"
            )
            yield _refused(option, text, rule)


def _why_not_here(option: Option, mode: Decoding) -> str:
    if mode is Decoding.SQL:
        return "only for streaming, not for SQL functions"
    if option.group is OptionGroup.PARALLEL:
        return "only with parallel-decode-num of 2 and more"
    return f"not in {mode} decoding"


def _is_default(name: str, value: str) -> bool:
    """Is the value the default, so that it can be omitted?"""
    return (name, value) in {("parallel-decode-num", "1"), ("standby-connection", "false")}


def _is_unknown_to_sql_decoding(name: str, mode: Decoding, terms: Terms) -> bool:
    return (
        terms.product == Vendor.OPENGAUSS
        and _is_sql(terms)
        and mode is not Decoding.PARALLEL
        and name not in SQL_DECODING
    )


def _is_sql(terms: Terms) -> bool:
    return terms.plugin == "sql_decoding"


def _shortest_timeout(terms: Terms) -> float:
    return _TIMEOUT_INTERVALS * terms.status_seconds * 1000


def _is_sent(option: Option, value: str, mode: Decoding, terms: Terms) -> bool:
    """Omit what the server would refuse or ignore.

    sql_decoding reads its own options.  It is unknown which of GaussDB's it has, so
    defaults are omitted there.
    """
    if option.use(terms.product, mode) is not Use.TAKEN:
        return False
    if not _is_sql(terms) or mode is Decoding.PARALLEL or option.name in SQL_DECODING:
        return True
    return terms.product == Vendor.GAUSSDB and not _is_default(option.name, value)


def _defaults(mode: Decoding, terms: Terms, given: Mapping[str, str]) -> dict[str, str]:
    """Values that we send where the operator sets none."""
    by_csn = given.get("output-order") == "1"
    out = {
        "include-xids": "true",
        "include-timestamp": "true",
        "skip-empty-xacts": "true" if mode is Decoding.SERIAL and not by_csn else "false",
        "only-local": "false",
        "parallel-decode-num": str(_DEFAULT_THREADS) if terms.plugin in PLUGIN_STYLES else "1",
        "standby-connection": "true" if terms.role == "standby" else "false",
    }
    if mode is Decoding.PARALLEL:
        out["decode-style"] = PLUGIN_STYLES.get(terms.plugin, "b")
        out["sending-batch"] = "0"
    return out
