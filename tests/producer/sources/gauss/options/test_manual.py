"""The option table against the manual, and against what a live server refused.

`MANUAL` was written from the manual's chapter "Logical Decoding Options", line by
line, in its order: name, kind, range, default, and where it says the option has
no effect or is not to be set.
"""

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from producer.errors import OptionRefused
from producer.sources.gauss.options import (
    BY_NAME,
    OPTIONS,
    Decoding,
    Terms,
    Use,
    Vendor,
    effective,
    problems,
)

GOLDEN = Path(__file__).parents[4] / "golden" / "opengauss"
SERIAL, PARALLEL, SQL = Decoding.SERIAL, Decoding.PARALLEL, Decoding.SQL


class Line(NamedTuple):
    """What the manual says about one option."""

    name: str
    kind: str
    low: int | None = None
    high: int | None = None
    default: str = ""
    idle: tuple[Decoding, ...] = ()  # "no effect"
    refused: tuple[Decoding, ...] = ()  # "only to be set for ..."
    group: str = "general"


MANUAL = [
    # general options
    Line("include-xids", "bool", default="true"),
    Line("skip-empty-xacts", "bool", default="false"),
    Line("include-timestamp", "bool", default="false only in parallel decoding"),
    Line("only-local", "bool", default="true"),
    Line("white-table-list", "list"),
    Line("max-txn-in-memory", "int", 0, 100, default="0"),
    Line("max-reorderbuffer-in-memory", "int", 0, 100, default="0"),
    Line("desc-memory-limit", "int", 10, 1024, default="100"),
    Line("include-user", "bool", default="false"),
    Line("exclude-userids", "list"),
    Line("exclude-users", "list"),
    Line("dynamic-resolution", "bool", default="true"),
    Line("standby-connection", "bool", default="false", refused=(SQL,)),
    Line("sender-timeout", "int", 0, 2147483647, refused=(SQL,)),
    Line("change-log-max-len", "int", 1, 65535, default="4096", idle=(SERIAL, SQL)),
    Line("max-decode-to-sender-cache-num", "int", 1, 65535, default="4096", idle=(SERIAL, SQL)),
    Line("enable-heartbeat", "bool", default="false", refused=(SQL,)),
    Line("parallel-decode-num", "int", 1, 20, default="1", idle=(SQL,)),
    Line("output-order", "int", 0, 1, default="0", idle=(SQL,)),
    Line("auto-advance", "bool", default="false", refused=(SQL,)),
    Line("skip-generated-columns", "bool", default="false"),
    Line("enable-ddl-decoding", "bool", default="false"),
    Line("enable-ddl-json-format", "bool", default="false"),
    Line("timezone-is-utc", "bool", default="false", idle=(SQL,)),
    Line("decode-sequence", "bool", default="false"),
    # distributed decoding
    Line("logical-receiver-num", "int", 1, 20, "1", idle=(SQL,), group="distributed"),
    Line("slice-id", "int", 0, 8192, "-1", refused=(SQL,), group="distributed"),
    Line("start-position", "list", refused=(SQL,), group="distributed"),
    # serial decoding
    Line("force-binary", "bool", default="false", idle=(SERIAL,), refused=(PARALLEL,)),
    # parallel decoding
    Line("decode-style", "list", refused=(SERIAL, SQL), group="parallel"),
    Line("sending-batch", "int", 0, 1, "0", refused=(SERIAL, SQL), group="parallel"),
    Line("parallel-queue-size", "int", 2, 1024, "128", refused=(SERIAL, SQL), group="parallel"),
]
IDS = [line.name for line in MANUAL]
INTEGERS = [line for line in MANUAL if line.kind == "int"]
BOOLEANS = [line for line in MANUAL if line.kind == "bool"]

# A good value for each, where its kind alone does not give one.
GOOD = {
    "white-table-list": "public.t1,public.t2,*.t3,my_schema.*",
    "exclude-userids": "10,16384",
    "exclude-users": "u1,u2",
    "start-position": "2357/217976896",
    "decode-style": "b",
    "sender-timeout": "60s",
    "desc-memory-limit": "100",
    "parallel-queue-size": "64",
    "auto-advance": "false",
    "decode-sequence": "false",
    "force-binary": "false",
}


def terms(mode: Decoding = PARALLEL, **more: object) -> Terms:
    given: dict[str, object] = {
        "product": Vendor.GAUSSDB,
        "plugin": "mppdb_decoding",
        "interface": "sql" if mode is SQL else "stream",
        **more,
    }
    return Terms(**given)  # type: ignore[arg-type]


def around(name: str, value: str, mode: Decoding = PARALLEL) -> dict[str, str]:
    """The option, with what must stand beside it."""
    out = {"parallel-decode-num": "4"} if mode is PARALLEL else {}
    if BY_NAME[name].group == "distributed":
        out["output-order"] = "1"
    return out | {name: value}


def said(options: dict[str, str], on: Terms) -> list[str]:
    return [str(problem) for problem in problems(options, on)]


# ---------------------------------------------------------------- the manual
def test_the_manuals_options_are_the_tables() -> None:
    assert len(MANUAL) == 32
    assert {option.name for option in OPTIONS} == {*IDS, "include-originid"}  # openGauss' own


@pytest.mark.parametrize("line", MANUAL, ids=IDS)
@pytest.mark.parametrize("mode", Decoding)
def test_where_an_option_is_taken(line: Line, mode: Decoding) -> None:
    use = BY_NAME[line.name].use(Vendor.GAUSSDB, mode)

    if mode in line.refused:
        assert use is Use.REFUSED
    elif mode in line.idle:
        assert use is Use.IDLE
    else:
        assert use is Use.TAKEN


@pytest.mark.parametrize("line", [ln for ln in MANUAL if ln.kind in ("int", "bool")])
def test_the_manuals_defaults(line: Line) -> None:
    option = BY_NAME[line.name]
    if line.name == "include-timestamp":
        assert [option.server_default(mode) for mode in Decoding] == ["true", "false", "true"]
    elif line.name == "sender-timeout":
        assert option.server_default(SERIAL) == "logical_sender_timeout"
    elif line.name.startswith("max-") and line.name.endswith("in-memory"):
        assert [option.server_default(mode)[:1] for mode in Decoding] == ["0", "0", "0"]
        assert "max_process_memory" in option.server_default(PARALLEL)
    else:
        taken = [mode for mode in Decoding if mode not in line.refused]
        assert {option.server_default(mode) for mode in taken} == {line.default}


@pytest.mark.parametrize("line", INTEGERS, ids=[ln.name for ln in INTEGERS])
def test_ranges_end_where_the_manual_says(line: Line) -> None:
    assert line.low is not None
    assert line.high is not None
    # In parallel decoding these two end at a share of the server's memory.
    mode = SERIAL if line.name.endswith("in-memory") else PARALLEL
    on = terms(status_seconds=0)
    for value in (line.low - 1, line.high + 1):
        (reported,) = said(around(line.name, str(value), mode), on)
        assert f"option={line.name}" in reported
        assert f"value={value}" in reported
        assert re.search(r"outside|32 bits", reported)
        if "outside" in reported:
            between = "or" if line.high == 1 else "to"
            assert f"range={line.low} {between} {line.high}" in reported
    for value in (line.low, line.high):
        if (line.name, value) == ("parallel-decode-num", 1):
            mode = SERIAL
        assert said(around(line.name, str(value), mode), on) == []


@pytest.mark.parametrize("line", BOOLEANS, ids=[ln.name for ln in BOOLEANS])
def test_booleans_are_read_as_the_server_reads_them(line: Line) -> None:
    mode = SQL if line.name == "force-binary" else PARALLEL
    for text in ("maybe", "", "2", "o"):
        (reported,) = said(around(line.name, text, mode), terms(mode))
        assert f"option={line.name}" in reported
        assert "write true or false" in reported


@pytest.mark.parametrize("line", MANUAL, ids=IDS)
@pytest.mark.parametrize("mode", Decoding)
def test_a_good_value_passes_only_where_it_may_stand(line: Line, mode: Decoding) -> None:
    ours = {
        "include-xids": "true",
        "include-timestamp": "true",
        "skip-empty-xacts": "true" if mode is SERIAL else "false",
        "standby-connection": "false",
    }
    value = {**GOOD, **ours}.get(line.name, "1")
    if line.name == "parallel-decode-num":
        value = "4" if mode is PARALLEL else "1"

    reported = said(around(line.name, value, mode), terms(mode))

    if mode in line.refused:
        assert len(reported) == 1
        assert f"option={line.name}, value={value}" in reported[0]
    else:
        assert reported == []


# ---------------------------------------------------------------- the manual's cross rules
@pytest.mark.parametrize("name", ["decode-style", "sending-batch", "parallel-queue-size"])
@pytest.mark.parametrize("threads", [{}, {"parallel-decode-num": "1"}])
def test_options_of_parallel_decoding_need_two_threads(name: str, threads: dict[str, str]) -> None:
    value = GOOD.get(name, "1")
    (reported,) = said({**threads, name: value}, terms())

    assert "only with parallel-decode-num of 2 and more" in reported
    assert said({"parallel-decode-num": "2", name: value}, terms()) == []


@pytest.mark.parametrize("name", ["logical-receiver-num", "slice-id", "start-position"])
@pytest.mark.parametrize("order", [{}, {"output-order": "0"}])
def test_options_of_distributed_decoding_need_csn_order(name: str, order: dict[str, str]) -> None:
    value = GOOD.get(name, "1")
    (reported,) = said({**order, name: value}, terms())

    assert "only with output-order = 1" in reported
    assert said({"output-order": "1", name: value}, terms()) == []


@pytest.mark.parametrize("size", [2, 4, 8, 16, 32, 64, 128, 256, 512, 1024])
def test_a_queue_is_a_power_of_two(size: int) -> None:
    assert said(around("parallel-queue-size", str(size)), terms()) == []
    if size > 2:
        (reported,) = said(around("parallel-queue-size", str(size - 1)), terms())
        assert "power of two" in reported


def test_only_false_is_a_value_of_decode_sequence() -> None:
    (reported,) = said({"decode-sequence": "true"}, terms())
    assert "the server accepts only false" in reported


def test_text_functions_give_no_binary() -> None:
    (reported,) = said({"force-binary": "true"}, terms(SQL))

    assert "cannot return binary output" in reported
    assert said({"force-binary": "true"}, terms(SQL, binary=True)) == []


def test_a_blank_in_the_white_list_is_refused() -> None:
    (reported,) = said({"white-table-list": "public.t1, public.t2"}, terms())
    assert "the list must not contain blanks" in reported


def test_sql_decoding_has_no_ddl_as_json() -> None:
    options = {"enable-ddl-decoding": "true", "enable-ddl-json-format": "true"}
    (reported,) = said(options, terms(SERIAL, plugin="sql_decoding"))

    assert "sql_decoding does not send DDL as JSON" in reported
    assert said(options, terms(SERIAL)) == []


@pytest.mark.parametrize(
    ("plugin", "style"),
    [
        ("mppdb_decoding", "b"),
        ("sql_decoding", "b"),
        ("parallel_binary_decoding", "b"),
        ("parallel_json_decoding", "j"),
        ("parallel_text_decoding", "t"),
    ],
)
def test_the_plugin_decides_the_style_without_an_option(plugin: str, style: str) -> None:
    on = terms(plugin=plugin)
    assert effective({"parallel-decode-num": "4"}, on).format.style == style
    assert effective(around("decode-style", "t"), on).format.style == "t"


# ---------------------------------------------------------------- the live server
def starts() -> Iterator[tuple[str, str, str, str]]:
    """Each error case of the recorded session: name, plugin, command, and the server's words."""
    case = command = ""
    with gzip.open(GOLDEN / "session_errors.jsonl.gz", "rt") as lines:
        for line in lines:
            event = json.loads(line)
            if event.get("note", "").startswith("CASE: "):
                case, command = event["note"][6:], ""
            elif event.get("what", "").startswith("START_REPLICATION"):
                command = event["what"]
            elif event.get("dir") == "S" and event["hex"].startswith("45") and command:
                fields = bytes.fromhex(event["hex"])[5:].split(b"\0")
                message = next(field[1:].decode() for field in fields if field[:1] == b"M")
                yield case, "mppdb_decoding", command, message


def listed(command: str) -> dict[str, str]:
    return dict(re.findall(r'"([^"]+)" \'([^\']*)\'', command.partition("LOGICAL")[2]))


REFUSED = [
    (case, listed(command), message)
    for case, _, command, message in starts()
    if message.startswith(("option ", "could not parse value"))
]


def test_the_recording_holds_the_refusals() -> None:
    assert len(REFUSED) == 12


@pytest.mark.parametrize(("case", "options", "message"), REFUSED, ids=[r[0] for r in REFUSED])
def test_what_a_live_opengauss_refused_is_refused_before(
    case: str, options: dict[str, str], message: str
) -> None:
    named = re.findall(r'(?:option "?|parameter ")([\w-]+)', message)[0]

    with pytest.raises(OptionRefused) as caught:
        effective(options, Terms(product=Vendor.OPENGAUSS, plugin="mppdb_decoding"))

    assert caught.value.where["option"] == named


def header_of(path: Path) -> dict[str, object]:
    with gzip.open(path, "rt") as lines:
        header: dict[str, object] = json.loads(lines.readline())
    return header


HEADERS = [header_of(path) for path in sorted(GOLDEN.glob("capture_txns_*.jsonl.gz"))]


@pytest.mark.parametrize("header", HEADERS, ids=[h["slot"] for h in HEADERS])
def test_what_a_live_opengauss_took_is_taken(header: dict[str, object]) -> None:
    options: dict[str, str] = dict(header["options"])  # type: ignore[call-overload]
    ours = {"include-xids", "include-timestamp", "skip-empty-xacts"}
    yours = {name: value for name, value in options.items() if name not in ours}
    plugin = str(header["plugin"])

    decided = effective(yours, Terms(product=Vendor.OPENGAUSS, plugin=plugin))

    assert dict(decided.options).items() >= yours.items()
    assert decided.mode is (PARALLEL if header["mode"] == "parallel" else SERIAL)
    assert decided.format.style == yours.get("decode-style", "")
    assert decided.format.batch is (yours.get("sending-batch") == "1")
