"""Values that are accepted with a warning."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from producer.sources.gauss.options.model import Advice, Terms
from producer.sources.gauss.options.table import BY_NAME, Decoding, Use, Vendor

_SMALL_LOG: Final = 1024


def advice(
    given: Mapping[str, str], sent: Mapping[str, str], mode: Decoding, terms: Terms
) -> Iterator[Advice]:
    """Check the operator's options, and everything that is sent."""
    if terms.role == "standby" and mode is not Decoding.SQL and "standby-connection" not in sent:
        yield Advice(
            "standby-connection", "true", "sql_decoding does not have it: only we check the role"
        )
    for name, value in given.items():
        if BY_NAME[name].use(terms.product, mode) is Use.IDLE:
            yield Advice(name, value, f"has no effect in {_MODE_NAMES[mode]}")
        elif reason := _reason(name, value, sent, terms):
            yield Advice(name, value, reason)
    if sent.get("decode-style") == "j" and mode is Decoding.PARALLEL:
        yield Advice("decode-style", "j", "a value is truncated at a zero byte")
    if mode is Decoding.PARALLEL and terms.product == Vendor.OPENGAUSS:
        yield Advice(
            "parallel-decode-num",
            sent["parallel-decode-num"],
            "openGauss omits rows after DDL or TRUNCATE in the same transaction; "
            "serial decoding sends them",
        )


_MODE_NAMES: Final = {
    Decoding.SERIAL: "serial decoding",
    Decoding.PARALLEL: "parallel decoding",
    Decoding.SQL: "SQL functions",
}


def _reason(name: str, value: str, sent: Mapping[str, str], terms: Terms) -> str:
    """Return the warning about one value; "" = none."""
    by_csn = sent.get("output-order") == "1"
    match name:
        case "change-log-max-len" if int(value) < _SMALL_LOG:
            return "below 1024 memory is allocated and freed all the time"
        case "change-log-max-len" | "max-decode-to-sender-cache-num" if by_csn:
            return "has no effect in the order of CSNs"
        case "sender-timeout" if value == "0":
            return "the server never closes the connection of a dead client, nor releases its slot"
        case "white-table-list":
            return _literal_stars(value)
        case "dynamic-resolution" if "exclude-users" not in sent:
            return "has no effect without exclude-users"
        case "dynamic-resolution" if value == "false":
            return "decoding stops in log that is older than a user in exclude-users"
        case "enable-ddl-json-format" if sent.get("enable-ddl-decoding") != "true":
            return "has no effect without enable-ddl-decoding"
        case "enable-ddl-decoding" if value == "true" and sent.get("decode-style") == "b":
            if sent.get("enable-ddl-json-format") != "true":
                return "the form of DDL in the binary style is not documented"
        case "slice-id" | "start-position":
            return "the manual advises against reading a data node in this way"
        case "include-originid" if value == "true" and terms.product == Vendor.OPENGAUSS:
            return "openGauss 5.0 and later"
    return ""


def _literal_stars(value: str) -> str:
    parts = [part for item in value.split(",") for part in item.partition(".")[::2]]
    stars = [part for part in parts if "*" in part and part != "*"]
    if not stars:
        return ""
    return f"a star counts only as a whole part: {', '.join(stars)} is taken literally"
