"""Options of a decoding: the server's own table, its checks and its error texts.

openGauss' three tables (serial plugins, sql_decoding, parallel) are proved on a
live server; what GaussDB adds follows the manual, "逻辑解码选项", and its error
texts, which are not documented, are openGauss' for the same mistake.  This table
is the emulator's, on purpose not the producer's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.model import Mode

Given: TypeAlias = Sequence[tuple[str, str | None]]

UNKNOWN_STATE: Final = "22023"
_MODULE: Final = "LOGICAL_DECODE"
_UNITS: Final = {"": 1, "ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_MOST_MS: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """What the options say: the shape of the bytes, and how the walsender behaves."""

    mode: Mode
    standby_only: bool = False
    sender_timeout_ms: int | None = None  # None: the server's setting; 0: never
    auto_advance: bool = False  # taken, and without effect here
    timezone_is_utc: bool = False
    force_binary: bool = False
    output_order: int | None = None  # None: not asked for


@dataclass(frozen=True, slots=True)
class _Option:
    read: Callable[[str], Any]  # ValueError: could not parse
    target: str = ""  # a field of Mode, or of Asked if prefixed with "+"; "": checked only
    missing: Any = None  # what an option without value means; None: nothing


def parallel_decode_num(given: Given) -> int:
    """The one option that is looked at before anything else."""
    number = 1
    for name, text in given:
        if name == "parallel-decode-num" and text is not None:
            number = _checked(name, text, _integer(1, 20))
    return number


def read(
    given: Given, *, plugin: str, product: str, number: int, is_coordinator: bool = False
) -> StreamOptions:
    """All options, left to right, the last of each name counts; Refused at the first bad one."""
    table = _table(plugin, product, is_parallel=number > 1)
    style = {"decode_style": ""} if number > 1 else {}
    mode: dict[str, Any] = {"parallel_decode_num": number, **style}
    if number > 1:
        mode["include_timestamp"] = False
    more: dict[str, Any] = {}
    for name, text in given:
        option = table.get(name)
        if option is None:
            raise _unknown(name, text)
        value = option.missing if text is None else _checked(name, text, option.read)
        if is_coordinator and name in _OF_DATA_NODES and value is not False:
            raise _unknown(name, text)
        if value is None or not option.target:
            continue
        place, key = (more, option.target[1:]) if option.target[0] == "+" else (mode, option.target)
        place[key] = value
    if more.get("output_order") != 1:
        for name, text in given:
            if name in _DISTRIBUTED:
                raise _unknown(name, text)
    mode["output_order"] = more.get("output_order") or 0
    return StreamOptions(Mode(plugin=plugin, **mode), **more)


def in_callback(refused: ErrorResponse, slot: str, plugin: str) -> ErrorResponse:
    """The same, as serial decoding reports it: while the plugin starts."""
    context = f'slot "{slot}", output plugin "{plugin}", in the startup callback'
    return ErrorResponse(
        refused.message,
        refused.state,
        number=refused.number,
        module=refused.module,
        detail=refused.detail,
        hint=refused.hint,
        context=context,
    )


# ---------------------------------------------------------------- values
def _checked(name: str, text: str, parser: Callable[[str], Any]) -> Any:
    try:
        return parser(text)
    except _NotPowerOfTwo:
        raise ErrorResponse(
            f"option {name} should be a power of two", UNKNOWN_STATE, module=_MODULE, detail="N/A"
        ) from None
    except ValueError:
        raise ErrorResponse(
            f'could not parse value "{text}" for parameter "{name}"',
            UNKNOWN_STATE,
            module=_MODULE,
            detail="N/A",
        ) from None


def _unknown(name: str, text: str | None) -> ErrorResponse:
    shown = "(null)" if text is None else text
    return ErrorResponse(
        f'option "{name}" = "{shown}" is unknown', UNKNOWN_STATE, module=_MODULE, detail="N/A"
    )


class _NotPowerOfTwo(ValueError):
    pass


def _boolean(text: str) -> bool:
    """Any unique beginning of a word for yes or no, in any case."""
    low = text.lower()
    if low in {"1", "on"} or (low and ("true".startswith(low) or "yes".startswith(low))):
        return True
    if low in {"0", "off", "of"} or (low and ("false".startswith(low) or "no".startswith(low))):
        return False
    raise ValueError(text)


def _only_false(text: str) -> bool:
    if _boolean(text):
        raise ValueError(text)
    return False


def _integer(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        number = _strtol(text)
        if not low <= number <= high:
            raise ValueError(text)
        return number

    return parse


def _strtol(text: str) -> int:
    found = re.fullmatch(r"[ \t\n\v\f\r]*([+-]?)(0[xX][0-9A-Fa-f]+|0[0-7]*|[1-9][0-9]*)", text)
    if found is None:
        raise ValueError(text)
    digits = found[2].lower()
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    return int(digits, base) * (-1 if found[1] == "-" else 1)


def _switch(text: str) -> bool:
    return bool(_integer(0, 1)(text))


def _queue_size(text: str) -> int:
    size = _integer(2, 1024)(text)
    if size & (size - 1):
        raise _NotPowerOfTwo
    return size


def _style(text: str) -> str:
    if text[:1] not in {"j", "t", "b"}:
        raise ValueError(text)
    return text[0]


def _timeout(text: str) -> int:
    found = re.fullmatch(r"\s*([0-9]+)\s*(ms|s|min|h|d|)\s*", text)
    if found is None:
        raise ValueError(text)
    value = int(found[1]) * _UNITS[found[2]]
    if value > _MOST_MS:
        raise ValueError(text)
    return value


def _white_list(text: str) -> tuple[tuple[str, str], ...]:
    """`schema.table` items; blanks are tolerated around commas and at both ends only."""
    if not text.strip():
        return ()
    found = []
    for item in text.split(","):
        schema, dot, table = item.strip().partition(".")
        if not (dot and schema and table) or re.search(r"\s", item.strip()):
            raise ValueError(text)
        found.append((schema, table))
    return tuple(found)


def _names(text: str) -> frozenset[str]:
    return frozenset(part.strip() for part in text.split(",") if part.strip())


def _oids(text: str) -> frozenset[int]:
    return frozenset(int(part) for part in text.split(",") if part.strip())


def _csn_and_lsn(text: str) -> tuple[int, int]:
    csn, slash, lsn = text.partition("/")
    if not slash:
        raise ValueError(text)
    return int(csn), int(lsn)


# ---------------------------------------------------------------- tables
_SQL_DECODING: Final = {
    "include-xids": _Option(_boolean, "include_xids", missing=True),
    "include-timestamp": _Option(_boolean, "include_timestamp", missing=False),
    "skip-empty-xacts": _Option(_boolean, "skip_empty_xacts", missing=False),
    "only-local": _Option(_boolean, "only_local", missing=True),
}
_COMMON: Final = {
    **_SQL_DECODING,
    "white-table-list": _Option(_white_list, "white_table_list"),
    "standby-connection": _Option(_boolean, "+standby_only", missing=False),
    "max-txn-in-memory": _Option(_integer(0, 100)),
    "max-reorderbuffer-in-memory": _Option(_integer(0, 100)),
    "sender-timeout": _Option(_timeout, "+sender_timeout_ms"),
    "parallel-decode-num": _Option(_integer(1, 20)),
}
_ORIGIN: Final = {"include-originid": _Option(_boolean, "include_originid", missing=False)}
_SERIAL: Final = {**_COMMON, "force-binary": _Option(_boolean, "+force_binary")}
_PARALLEL: Final = {
    **_COMMON,
    "sending-batch": _Option(_switch, "sending_batch"),
    "decode-style": _Option(_style, "decode_style"),
    "parallel-queue-size": _Option(_queue_size),
}
# "max-…" are a share of max_process_memory there, in MB and GB, which we do not have: any size.
_ANY_SIZE: Final = _Option(_integer(0, _MOST_MS))
_GAUSSDB: Final = {
    "include-user": _Option(_boolean, "include_user", missing=False),
    "exclude-userids": _Option(_oids),
    "exclude-users": _Option(_names, "exclude_users"),
    "dynamic-resolution": _Option(_boolean, missing=True),
    "desc-memory-limit": _Option(_integer(10, 1024)),
    "enable-heartbeat": _Option(_boolean, "enable_heartbeat", missing=False),
    "output-order": _Option(_integer(0, 1), "+output_order"),
    "auto-advance": _Option(_boolean, "+auto_advance", missing=False),
    "skip-generated-columns": _Option(_boolean, "skip_generated_columns", missing=False),
    "enable-ddl-decoding": _Option(_boolean, "enable_ddl_decoding", missing=False),
    "enable-ddl-json-format": _Option(_boolean, "enable_ddl_json_format", missing=False),
    "timezone-is-utc": _Option(_boolean, "+timezone_is_utc", missing=False),
    "decode-sequence": _Option(_only_false, missing=False),
}
_GAUSSDB_PARALLEL: Final = {
    "change-log-max-len": _Option(_integer(1, 65_535)),
    "max-decode-to-sender-cache-num": _Option(_integer(1, 65_535)),
    "max-txn-in-memory": _ANY_SIZE,
    "max-reorderbuffer-in-memory": _ANY_SIZE,
}
_DISTRIBUTED: Final = {
    "logical-receiver-num": _Option(_integer(1, 20)),
    "slice-id": _Option(_integer(0, 8192)),
    "start-position": _Option(_csn_and_lsn),
}
# The manual: only for who is connected to a data node; a coordinator has no standby.
_OF_DATA_NODES: Final = frozenset(
    {"standby-connection", "exclude-userids", "slice-id", "start-position"}
)


def _table(plugin: str, product: str, *, is_parallel: bool) -> dict[str, _Option]:
    if plugin == "sql_decoding" and not is_parallel:
        return dict(_SQL_DECODING)
    table = dict(_PARALLEL if is_parallel else _SERIAL)
    if product in {"og5", "og6", "og7"}:
        table |= _ORIGIN
    if product == "gaussdb":
        table |= _GAUSSDB | _DISTRIBUTED
        if is_parallel:
            table |= _GAUSSDB_PARALLEL
    return table


# ---------------------------------------------------------------- SQL functions
def read_of_function(given: Given, *, plugin: str, product: str) -> StreamOptions:
    """The options of peek and get: serial; what only a stream knows is unknown to openGauss."""
    for name, text in given:
        if name == "standby-connection" and product != "gaussdb":
            raise _unknown(name, text)
    # Not even its range is checked there: 40 is accepted.
    kept = [pair for pair in given if pair[0] != "parallel-decode-num"]
    if product == "gaussdb":  # the manual: range-checked, but ignored
        streaming = _PARALLEL | _GAUSSDB_PARALLEL | _DISTRIBUTED
        serial = _table(plugin, product, is_parallel=False)
        for name, text in kept:
            if name not in serial and name in streaming and text is not None:
                _checked(name, text, streaming[name].read)
        kept = [pair for pair in kept if pair[0] in serial or pair[0] not in streaming]
    asked = read(kept, plugin=plugin, product=product, number=1)
    return replace(asked, mode=replace(asked.mode, enable_heartbeat=False))
