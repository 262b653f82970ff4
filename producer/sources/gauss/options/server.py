"""Rules that only a server can decide, between login and START_REPLICATION."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from producer.errors import OptionRefused
from producer.sources.gauss.options import values
from producer.sources.gauss.options.model import Advice, Effective
from producer.sources.gauss.options.table import BY_NAME, Decoding, Vendor

_TIMEOUT_INTERVALS: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """Facts about a server; None: not read, or the server does not have it."""

    version: tuple[int, ...] | None = None  # (7, 0, 0); of openGauss or GaussDB Kernel
    is_standby: bool | None = None
    node: str = ""  # "CN" or "DN" of a distributed GaussDB; "" centralized, or not known
    shards: int | None = None
    max_process_memory_kb: int | None = None
    sender_timeout_ms: int | None = None  # logical_sender_timeout; 0 = never
    default_options: str | None = None  # logical_decode_options_default
    has_slot: bool | None = None
    confirmed_csn: int | None = None  # of our slot; 0 where it is ordered by LSN
    ddl_is_logged: bool | None = None  # enable_logical_replication_ddl


Judged: TypeAlias = Iterator[OptionRefused | Advice]


@dataclass(frozen=True, slots=True)
class _Rule:
    sentence: str
    applies: Callable[[Effective], bool]
    judge: Callable[[Effective, ServerFacts], Judged]


def sentences(decided: Effective) -> tuple[str, ...]:
    """Name the rules that wait for a server."""
    return tuple(rule.sentence for rule in _RULES if rule.applies(decided))


def judge(decided: Effective, facts: ServerFacts) -> Judged:
    """Decide all of them: refusals and warnings."""
    for rule in _RULES:
        if rule.applies(decided):
            yield from rule.judge(decided, facts)


def check_server_rules(decided: Effective, facts: ServerFacts) -> tuple[Advice, ...]:
    """Raise the first refusal; return the warnings.

    Call it after login and before START_REPLICATION, whose own errors are shorter,
    come after CopyBothResponse in serial mode, and end the session.
    """
    advice = []
    for found in judge(decided, facts):
        if isinstance(found, OptionRefused):
            raise found
        advice.append(found)
    return tuple(advice)


def default_options(text: str) -> dict[str, str]:
    """Read logical_decode_options_default.

    >>> default_options("parallel-decode-num=4, exclude-users=etl")
    {'parallel-decode-num': '4', 'exclude-users': 'etl'}
    """
    pairs = (item.partition("=") for item in text.split(",") if item.strip())
    return {name.strip(): value.strip() for name, _, value in pairs}


# ---- the rules


def _refused(decided: Effective, name: str, rule: str, *, range_: str = "") -> OptionRefused:
    return OptionRefused(
        f"decoding option refused for this server: {rule}",
        option=name,
        value=decided.get(name) or "",
        range=range_ or BY_NAME[name].range,
    )


def _order(decided: Effective, facts: ServerFacts) -> Judged:
    if facts.confirmed_csn is None:
        if decided.ordered_by == "csn" and facts.has_slot:
            rule = "this server has no slots in the order of CSNs (no confirmed_csn)"
            yield _refused(decided, "output-order", rule)
        return
    if not facts.has_slot:
        return
    if decided.ordered_by == "csn" and facts.confirmed_csn == 0:
        rule = "1 needs a slot whose confirmed_csn is not 0, and ours is ordered by LSN"
        yield _refused(decided, "output-order", rule)
    if decided.ordered_by == "lsn" and facts.confirmed_csn != 0:
        rule = "0 needs a slot whose confirmed_csn is 0, and ours is ordered by CSN"
        yield _refused(decided, "output-order", rule)


# kB of max_process_memory in one unit of the option
_KILOBYTES: Final[Mapping[str, int]] = {"MB": 1 << 10, "GB": 1 << 20}


def _memory(decided: Effective, facts: ServerFacts) -> Judged:
    for name, text in decided.options:
        option = BY_NAME[name]
        if not option.share:
            continue
        if facts.max_process_memory_kb is None:
            yield Advice(name, text, f"not compared with {option.share} % of max_process_memory")
            continue
        share = facts.max_process_memory_kb * option.share // 100
        most = share // _KILOBYTES[option.unit]
        if int(text) > most:
            yield _refused(
                decided,
                name,
                f"more than {option.share} % of max_process_memory",
                range_=f"0 to {most} {option.unit}",
            )


def _role(decided: Effective, facts: ServerFacts) -> Judged:
    if facts.is_standby is False:
        rule = "the server is a primary, and source.role requires a standby"
        yield _refused(decided, "standby-connection", rule)


def _node(decided: Effective, facts: ServerFacts) -> Judged:
    if facts.node != "CN":
        return
    for name, value in decided.options:
        option = BY_NAME[name]
        if option.dn_only and value != "false":
            yield _refused(decided, name, "only data nodes accept it, not a coordinator")
        elif option.dn_effect:
            yield Advice(name, value, "has no effect at a coordinator")


def _coordinator(decided: Effective, facts: ServerFacts) -> Judged:
    """The manual, "distributed strongly consistent decoding": what it merges is ordered by CSN."""
    if facts.node == "CN":
        yield OptionRefused(
            "a coordinator's stream is in the order of CSNs",
            option="output-order",
            value=decided.get("output-order") or "0, the default",
            range="1",
            hint='output-order = "1" in [source.options], with interface = "stream" and a new slot',
        )


def _slice(_: Effective, facts: ServerFacts) -> Judged:
    """The manual, slice-id: with the default a data node stops at a replicated table."""
    if facts.node == "DN":
        reason = (
            "a data node that is read in the order of CSNs stops at the first change of a "
            "replicated table (slice-id is not set); read a coordinator instead"
        )
        yield Advice("output-order", "1", reason)


def _receivers(decided: Effective, facts: ServerFacts) -> Judged:
    text = decided.get("logical-receiver-num") or ""
    if facts.shards is not None and int(text) > facts.shards:
        reason = f"more than the number of shards: the server uses {facts.shards}"
        yield Advice("logical-receiver-num", text, reason)
    if facts.node == "DN":
        yield Advice("logical-receiver-num", text, "has no effect at a data node")


def _timeout(decided: Effective, facts: ServerFacts) -> Judged:
    shortest = _TIMEOUT_INTERVALS * decided.status_seconds * 1000
    if facts.sender_timeout_ms is not None and 0 < facts.sender_timeout_ms < shortest:
        yield OptionRefused(
            "the server's logical_sender_timeout is shorter than three status intervals",
            option="sender-timeout",
            value=f"{facts.sender_timeout_ms} ms, the server's",
            range=f"{shortest:g} ms and more, or 0",
            hint="set sender-timeout in [source.options], or a shorter source.status-interval",
        )


def _server_defaults(decided: Effective, facts: ServerFacts) -> Judged:
    """The server's own defaults must not make a stream parallel, or omit rows."""
    for name, value in default_options(facts.default_options or "").items():
        if decided.get(name) is not None or (option := BY_NAME.get(name)) is None:
            continue
        if name == "parallel-decode-num" and decided.mode is Decoding.SERIAL:
            try:
                is_serial = values.integer(value) == 1
            except ValueError:
                is_serial = False
            if not is_serial:
                yield OptionRefused(
                    "the server makes every stream parallel (logical_decode_options_default), "
                    f"and {decided.plugin} has no option against it",
                    option=name,
                    value=value,
                    range="1",
                    hint="use mppdb_decoding, or change the setting",
                )
        elif option.removes:
            yield OptionRefused(
                f"the server omits {option.removes} (logical_decode_options_default)",
                option=name,
                value=value,
                range=option.range,
                hint="set the same in [source.options], so that the omission is visible",
            )


def _version(decided: Effective, facts: ServerFacts) -> Judged:
    for name, _ in decided.options:
        since = BY_NAME[name].opengauss_since
        if not since or decided.product != Vendor.OPENGAUSS or facts.version is None:
            continue
        if facts.version < tuple(int(part) for part in since.split(".")):
            yield _refused(decided, name, f"openGauss has it since {since}")


def _ddl(_: Effective, facts: ServerFacts) -> Judged:
    if facts.ddl_is_logged is False:
        reason = "has no effect while enable_logical_replication_ddl is off at the server"
        yield Advice("enable-ddl-decoding", "true", reason)


def _streams(decided: Effective) -> bool:
    return decided.interface == "stream"


_RULES: Final = (
    _Rule(
        "output-order must match the slot (confirmed_csn)",
        lambda d: d.product == Vendor.GAUSSDB,
        _order,
    ),
    _Rule(
        "a coordinator is read in the order of CSNs",
        lambda d: d.product == Vendor.GAUSSDB and (d.ordered_by == "lsn" or not _streams(d)),
        _coordinator,
    ),
    _Rule(
        "memory limits of parallel decoding are shares of max_process_memory",
        lambda d: (
            d.product == Vendor.GAUSSDB
            and d.mode is Decoding.PARALLEL
            and any(BY_NAME[name].share for name, _ in d.options)
        ),
        _memory,
    ),
    _Rule(
        "the server must be a standby",
        lambda d: d.get("standby-connection") == "true",
        _role,
    ),
    _Rule(
        "options of data nodes are not for a coordinator",
        lambda d: any(
            (BY_NAME[name].dn_only and value != "false") or BY_NAME[name].dn_effect
            for name, value in d.options
        ),
        _node,
    ),
    _Rule(
        "a data node read in the order of CSNs needs slice-id for replicated tables",
        lambda d: d.ordered_by == "csn" and _streams(d) and d.get("slice-id") is None,
        _slice,
    ),
    _Rule(
        "logical-receiver-num is cut to the number of shards",
        lambda d: d.get("logical-receiver-num") is not None,
        _receivers,
    ),
    _Rule(
        "logical_sender_timeout must be three status intervals or more",
        lambda d: _streams(d) and d.get("sender-timeout") is None,
        _timeout,
    ),
    _Rule(
        "logical_decode_options_default must not add what changes the stream",
        lambda d: True,  # noqa: ARG005
        _server_defaults,
    ),
    _Rule(
        "options that came with a version",
        lambda d: any(BY_NAME[name].opengauss_since for name, _ in d.options),
        _version,
    ),
    _Rule(
        "DDL must be logged (enable_logical_replication_ddl)",
        lambda d: d.get("enable-ddl-decoding") == "true",
        _ddl,
    ),
)
