"""From what the operator wrote to what START_REPLICATION is told.

Everything that can be known without a server is decided here; what needs one is
named in `Effective.needs_server` and decided by `server.check_server_rules`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from producer.decoders import Format
from producer.errors import OptionRefused
from producer.gauss_options import values
from producer.gauss_options.model import Advice, Effective, Terms
from producer.gauss_options.server import sentences
from producer.gauss_options.table import (
    BY_NAME,
    OPTIONS,
    PLUGINS,
    SQL_DECODING,
    STYLES,
    Group,
    Kind,
    Mode,
    Option,
    Product,
    Treatment,
    Use,
)

_SMALL_LOG: Final = 1024
_TIMEOUT_INTERVALS: Final = 3
_DEFAULT_THREADS: Final = 2  # of a plugin that exists for parallel decoding only
_REMOVING: Final = tuple(option.name for option in OPTIONS if option.removes)


def effective(options: Mapping[str, str], terms: Terms, *, encoding: str = "utf-8") -> Effective:
    """Decide what is sent; raise OptionRefused for the first thing that cannot be."""
    for refused in problems(options, terms):
        raise refused
    given = {name: _canonical(BY_NAME[name], text, terms) for name, text in options.items()}
    mode = mode_of(options, terms)
    sent = _defaults(mode, terms, given) | given
    style = sent.get("decode-style", "") if mode is Mode.PARALLEL else ""
    decided = Effective(
        options=tuple(
            (option.name, sent[option.name])
            for option in OPTIONS
            if option.name in sent and _is_sent(option, sent[option.name], mode, terms)
        ),
        format=Format(terms.plugin, style, sent.get("sending-batch") == "1", encoding),
        mode=mode,
        product=terms.product,
        plugin=terms.plugin,
        interface=terms.interface,
        ordered_by="csn" if sent.get("output-order") == "1" else "lsn",
        status_seconds=terms.status_seconds,
        warnings=tuple(_advice(given, sent, mode, terms)),
    )
    return replace(decided, needs_server=sentences(decided))


def problems(options: Mapping[str, str], terms: Terms) -> Iterator[OptionRefused]:
    """Find everything that is wrong with what the operator wrote, option by option.

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


def mode_of(options: Mapping[str, str], terms: Terms) -> Mode:
    """Say how changes are decoded; options must be readable."""
    if terms.interface == "sql":
        return Mode.SQL
    default = str(_DEFAULT_THREADS) if terms.plugin in STYLES else "1"
    threads = values.integer(options.get("parallel-decode-num", default))
    return Mode.SERIAL if threads == 1 else Mode.PARALLEL


# ---- what removes changes


def removing(options: Mapping[str, str]) -> dict[str, str]:
    """Give the options by which changes never arrive, in one spelling, sorted.

    They belong into the epoch's fingerprint; nothing else among the options does.
    """
    out = {}
    for name in sorted(_REMOVING):
        text = options.get(name, "")
        if name == "only-local":
            if not text or not values.boolean(text):
                continue
            text = "true"
        elif name == "white-table-list":
            text = ",".join(sorted(f"{s}.{t}" for s, t in values.tables(text, blanks=True)))
        elif text:
            text = ",".join(sorted(set(text.split(","))))
        if text:
            out[name] = text
    return out


def removing_text(options: Mapping[str, str]) -> str:
    """Give them as one line; "" where nothing is removed.

    >>> removing_text({"only-local": "on", "exclude-users": "b,a", "sender-timeout": "60s"})
    'exclude-users=a,b; only-local=true'
    """
    return "; ".join(f"{name}={text}" for name, text in removing(options).items())


def why_not_full(options: Mapping[str, str]) -> str:
    """Give the sentence that `status` shows; "" where the target can be a full copy."""
    if not (found := removing(options)):
        return ""
    reasons = [
        f"{name} = {text} leaves out {BY_NAME[name].removes}" for name, text in found.items()
    ]
    return f"the target is not a full copy because {', and '.join(reasons)}"


# ---- one option


def _value_problem(
    name: str, text: str, options: Mapping[str, str], terms: Terms
) -> OptionRefused | None:
    """Look at one option alone."""
    option = BY_NAME.get(name)
    if option is None:
        return OptionRefused("unknown decoding option", option=name, value=text, hint=_near(name))
    if all(option.use(terms.product, mode) is Use.REFUSED for mode in Mode):
        return _refused(option, text, f"{terms.product} does not have this option")
    try:
        canonical = _canonical(option, text, terms)
    except ValueError as exc:
        return _refused(option, text, str(exc))
    if option.kind in (Kind.INTEGER, Kind.TIME):
        high = values.INT32_MAX if _is_share(option, options, terms) else option.high
        if not option.low <= int(canonical) <= high:
            return _refused(option, text, f"outside {option.range}")
    if name == "parallel-queue-size" and int(canonical).bit_count() != 1:
        return _refused(option, text, "it must be a power of two")
    if name == "decode-sequence" and canonical == "true":
        return _refused(option, text, "the server takes only false")
    if option.treatment is Treatment.REFUSED and canonical != "false":
        return _refused(option, text, option.why)
    if option.treatment is Treatment.INTERNAL and not terms.allow_internal:
        return _refused(
            option, text, f"{option.why}; source.allow-internal-options = true allows it"
        )
    return None


def _is_share(option: Option, options: Mapping[str, str], terms: Terms) -> bool:
    """Is the upper bound a share of the server's memory, which is asked for after login?"""
    if not option.share or terms.product != Product.GAUSSDB:
        return False
    try:
        return mode_of(options, terms) is Mode.PARALLEL
    except ValueError:  # parallel-decode-num has an error of its own
        return False


def _canonical(option: Option, text: str, terms: Terms) -> str:
    """Give the value in one spelling, or raise ValueError."""
    match option.kind:
        case Kind.BOOLEAN:
            return "true" if values.boolean(text) else "false"
        case Kind.INTEGER:
            return str(values.integer(text))
        case Kind.TIME:
            return str(values.milliseconds(text))
        case Kind.STYLE:
            return values.style(text)
        case Kind.TABLES:
            tables = values.tables(text, blanks=terms.product == Product.OPENGAUSS)
            return ",".join(f"{schema}.{table}" for schema, table in tables)
        case Kind.NAMES:
            return ",".join(values.names(text))
        case Kind.OIDS:
            return ",".join(str(oid) for oid in values.oids(text))
        case Kind.POSITION:
            csn, lsn = values.csn_and_lsn(text)
            return f"{csn}/{lsn}"


def _refused(option: Option, text: str, rule: str) -> OptionRefused:
    return OptionRefused(
        f"decoding option refused: {rule}", option=option.name, value=text, range=option.range
    )


def _near(name: str) -> str:
    """Guess what was meant: underscores are the usual slip, even in the manual."""
    meant = name.strip().lower().replace("_", "-")
    return f"write {meant}" if meant in BY_NAME else "the README's table has all of them"


# ---- rules across options


def _mode_problems(options: Mapping[str, str], mode: Mode, terms: Terms) -> Iterator[OptionRefused]:
    given = {name: _canonical(BY_NAME[name], text, terms) for name, text in options.items()}
    ours = _defaults(mode, terms, given)
    if terms.plugin in STYLES and mode is not Mode.PARALLEL:
        yield OptionRefused(
            f"{terms.plugin} is for parallel decoding; what it sends else is documented nowhere",
            option="parallel-decode-num",
            value=given.get("parallel-decode-num", ""),
            hint="set parallel-decode-num to 2..20, or take mppdb_decoding",
        )
    for name, text in options.items():
        option, value = BY_NAME[name], given[name]
        if option.use(terms.product, mode) is Use.REFUSED:
            yield _refused(option, text, _why_not_here(option, mode))
        elif _is_unknown_to_sql_decoding(name, mode, terms) and not _goes_unsaid(name, value):
            yield _refused(option, text, "sql_decoding of openGauss does not know it")
        elif option.treatment is Treatment.OURS and value != ours[name]:
            rule = f"set by us to {ours[name]}: {option.why}"
            yield _refused(option, text, rule)
        elif (
            option.group is Group.DISTRIBUTED
            and mode is not Mode.SQL
            and given.get("output-order", "0") == "0"
        ):
            yield _refused(option, text, "only with output-order = 1")
        elif name == "force-binary" and value == "true" and mode is Mode.SQL and not terms.binary:
            yield _refused(option, text, "the text functions cannot give binary output")
        elif name == "enable-ddl-json-format" and value == "true" and _is_sql(terms):
            yield _refused(option, text, "sql_decoding does not give DDL as JSON")
        elif name == "sender-timeout" and 0 < int(value) < _shortest_timeout(terms):
            rule = (
                f"shorter than {_TIMEOUT_INTERVALS} status intervals of "
                f"{terms.status_seconds:g} s: the server would leave us for one late message"
            )
            yield _refused(option, text, rule)


def _why_not_here(option: Option, mode: Mode) -> str:
    if mode is Mode.SQL:
        return "only for streaming, not for SQL functions"
    if option.group is Group.PARALLEL:
        return "only with parallel-decode-num of 2 and more"
    return f"not in {mode} decoding"


def _goes_unsaid(name: str, value: str) -> bool:
    """Is the value what happens anyway, so that leaving it out says the same?"""
    return (name, value) in {("parallel-decode-num", "1"), ("standby-connection", "false")}


def _is_unknown_to_sql_decoding(name: str, mode: Mode, terms: Terms) -> bool:
    return (
        terms.product == Product.OPENGAUSS
        and _is_sql(terms)
        and mode is not Mode.PARALLEL
        and name not in SQL_DECODING
    )


def _is_sql(terms: Terms) -> bool:
    return terms.plugin == "sql_decoding"


def _shortest_timeout(terms: Terms) -> float:
    return _TIMEOUT_INTERVALS * terms.status_seconds * 1000


def _is_sent(option: Option, value: str, mode: Mode, terms: Terms) -> bool:
    """Leave out what the server would refuse, or only check and forget.

    sql_decoding reads its own options.  What it knows of GaussDB's is not known, so
    nothing is said there that happens anyway.
    """
    if option.use(terms.product, mode) is not Use.TAKEN:
        return False
    if not _is_sql(terms) or mode is Mode.PARALLEL or option.name in SQL_DECODING:
        return True
    return terms.product == Product.GAUSSDB and not _goes_unsaid(option.name, value)


def _defaults(mode: Mode, terms: Terms, given: Mapping[str, str]) -> dict[str, str]:
    """Values that we send where the operator says nothing."""
    by_csn = given.get("output-order") == "1"
    out = {
        "include-xids": "true",
        "include-timestamp": "true",
        "skip-empty-xacts": "true" if mode is Mode.SERIAL and not by_csn else "false",
        "only-local": "false",
        "parallel-decode-num": str(_DEFAULT_THREADS) if terms.plugin in STYLES else "1",
        "standby-connection": "true" if terms.role == "standby" else "false",
    }
    if mode is Mode.PARALLEL:
        out["decode-style"] = STYLES.get(terms.plugin, "b")
        out["sending-batch"] = "0"
    return out


# ---- what is taken, with a word about it


def _advice(
    given: Mapping[str, str], sent: Mapping[str, str], mode: Mode, terms: Terms
) -> Iterator[Advice]:
    if terms.role == "standby" and _is_unknown_to_sql_decoding("standby-connection", mode, terms):
        yield Advice(
            "standby-connection", "true", "sql_decoding does not know it: only we look at the role"
        )
    for name, value in given.items():
        if BY_NAME[name].use(terms.product, mode) is Use.IDLE:
            yield Advice(name, value, f"has no effect in {_MODE_NAMES[mode]}")
        elif reason := _reason(name, value, sent, terms):
            yield Advice(name, value, reason)
    if sent.get("decode-style") == "j" and mode is Mode.PARALLEL:
        yield Advice("decode-style", "j", "a value that holds a zero byte is cut off there")
    if mode is Mode.PARALLEL and terms.product == Product.OPENGAUSS:
        yield Advice(
            "parallel-decode-num",
            sent["parallel-decode-num"],
            "openGauss leaves out rows behind DDL or TRUNCATE in the same transaction; "
            "serial decoding sends them",
        )


_MODE_NAMES: Final = {
    Mode.SERIAL: "serial decoding",
    Mode.PARALLEL: "parallel decoding",
    Mode.SQL: "SQL functions",
}


def _reason(name: str, value: str, sent: Mapping[str, str], terms: Terms) -> str:
    """Say what is to be said about one value; "" = nothing."""
    by_csn = sent.get("output-order") == "1"
    match name:
        case "change-log-max-len" if int(value) < _SMALL_LOG:
            return "below 1024 memory is asked for and given back all the time"
        case "change-log-max-len" | "max-decode-to-sender-cache-num" if by_csn:
            return "has no effect in the order of CSNs"
        case "sender-timeout" if value == "0":
            return "the server never lets go of a client that vanished, nor of its slot"
        case "white-table-list":
            return _literal_stars(value)
        case "dynamic-resolution" if "exclude-users" not in sent:
            return "has no effect without exclude-users"
        case "dynamic-resolution" if value == "false":
            return "decoding stops where the log is older than a user in exclude-users"
        case "enable-ddl-json-format" if sent.get("enable-ddl-decoding") != "true":
            return "has no effect without enable-ddl-decoding"
        case "enable-ddl-decoding" if value == "true" and sent.get("decode-style") == "b":
            if sent.get("enable-ddl-json-format") != "true":
                return "how DDL looks in the binary style is documented nowhere"
        case "slice-id" | "start-position":
            return "the manual advises against reading a data node by hand in this way"
        case "include-originid" if value == "true" and terms.product == Product.OPENGAUSS:
            return "openGauss 5.0 and later"
    return ""


def _literal_stars(value: str) -> str:
    parts = [part for item in value.split(",") for part in item.partition(".")[::2]]
    stars = [part for part in parts if "*" in part and part != "*"]
    if not stars:
        return ""
    return f"a star counts only as a whole part: {', '.join(stars)} is taken letter by letter"
