"""The server's own table of options: what it takes, what it makes of it, what it refuses."""

import pytest

from gauss_cdc_lab.emulator.frames import ErrorResponse
from gauss_cdc_lab.emulator.model import Mode
from gauss_cdc_lab.emulator.options import (
    in_callback,
    parallel_decode_num,
    read,
    read_of_function,
)


def asked(*given: tuple[str, str | None], number: int = 2, product: str = "og7", plugin: str = "mppdb_decoding"):  # noqa: E501  # fmt: skip
    return read(given, plugin=plugin, product=product, number=number)


def test_defaults_differ_between_serial_and_parallel() -> None:
    assert asked(number=1).mode == Mode()
    assert asked().mode == Mode(parallel_decode_num=2, include_timestamp=False)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *((text, True) for text in ("t", "TRUE", "y", "Yes", "on", "1", "tr")),
        *((text, False) for text in ("f", "FALSE", "n", "No", "off", "of", "0", "fal")),
    ],
)
def test_booleans_are_beginnings_of_words(text: str, value: bool) -> None:
    assert asked(("skip-empty-xacts", text)).mode.skip_empty_xacts is value


@pytest.mark.parametrize("text", ["", "o", "maybe", "truee", "2", " true"])
def test_other_words_are_no_booleans(text: str) -> None:
    with pytest.raises(ErrorResponse, match="could not parse value") as refused:
        asked(("include-xids", text))
    assert (refused.value.state, refused.value.detail) == ("22023", "N/A")


def test_a_word_without_value_means_what_the_server_makes_of_it() -> None:
    mode = asked(("include-timestamp", None), ("include-xids", None), number=1).mode

    assert (mode.include_timestamp, mode.include_xids) == (False, True)


def test_the_last_of_a_name_counts() -> None:
    assert asked(("sending-batch", "1"), ("sending-batch", "0")).mode.sending_batch is False


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("sending-batch", "2"),
        ("decode-style", "x"),
        ("decode-style", ""),
        ("max-txn-in-memory", "101"),
        ("max-reorderbuffer-in-memory", "-1"),
        ("white-table-list", "abc"),
        ("white-table-list", "public.t,"),
        ("white-table-list", "public. t"),
        ("sender-timeout", "1 year"),
        ("sender-timeout", "25d"),
        ("parallel-queue-size", "1"),
    ],
)
def test_values_out_of_range_are_named(name: str, text: str) -> None:
    with pytest.raises(ErrorResponse) as refused:
        asked((name, text))
    assert refused.value.message == f'could not parse value "{text}" for parameter "{name}"'


def test_a_queue_is_a_power_of_two() -> None:
    asked(("parallel-queue-size", "0x80"))

    with pytest.raises(
        ErrorResponse, match=r"^option parallel-queue-size should be a power of two$"
    ):
        asked(("parallel-queue-size", "100"))


@pytest.mark.parametrize("text", ["0", "21", "two", ""])
def test_the_number_of_decoders_is_looked_at_first(text: str) -> None:
    with pytest.raises(ErrorResponse, match="parallel-decode-num"):
        parallel_decode_num([("no-such-option", "1"), ("parallel-decode-num", text)])


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"number": 1}, "decode-style"),
        ({"number": 1}, "parallel-queue-size"),
        ({"number": 2}, "force-binary"),
        ({"number": 2}, "enable-heartbeat"),
        ({"number": 2, "product": "og3"}, "include-originid"),
        ({"number": 1, "plugin": "sql_decoding"}, "white-table-list"),
        ({"number": 2, "product": "gaussdb"}, "slice-id"),
        ({"number": 1, "product": "gaussdb"}, "change-log-max-len"),
        ({"number": 2}, "Include-Xids"),
    ],
)
def test_what_a_mode_or_product_has_not_is_unknown(given: dict, told: str) -> None:
    with pytest.raises(ErrorResponse, match=f'option "{told}" = "1" is unknown'):
        asked((told, "1"), **given)


def test_the_first_bad_one_is_reported() -> None:
    with pytest.raises(ErrorResponse, match='"b-b"'):
        asked(("sending-batch", "1"), ("b-b", None), ("include-xids", "maybe"))
    with pytest.raises(ErrorResponse, match=r'"b-b" = "\(null\)" is unknown'):
        asked(("b-b", None))


def test_serial_decoding_reports_where_it_noticed() -> None:
    told = in_callback(ErrorResponse("no", "22023", module="LOGICAL_DECODE"), "s", "mppdb_decoding")

    assert told.context == 'slot "s", output plugin "mppdb_decoding", in the startup callback'


def test_a_white_list_tolerates_blanks_around_its_commas_only() -> None:
    found = asked(("white-table-list", " public.t , *.u,s.a.b ")).mode.white_table_list

    assert found == (("public", "t"), ("*", "u"), ("s", "a.b"))
    assert asked(("white-table-list", "  ")).mode.white_table_list == ()


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("4000", 4000), ("4s", 4000), ("1min", 60_000), ("0", 0)]
)
def test_a_timeout_has_a_unit(text: str, milliseconds: int) -> None:
    assert asked(("sender-timeout", text)).sender_timeout_ms == milliseconds


def test_gaussdb_has_more(  # manual, options of logical decoding
) -> None:
    found = asked(
        ("include-user", "true"),
        ("enable-heartbeat", "on"),
        ("exclude-users", "ann, bob"),
        ("max-txn-in-memory", "3072"),
        ("auto-advance", "1"),
        product="gaussdb",
    )

    assert found.mode.include_user
    assert found.mode.enable_heartbeat
    assert found.mode.exclude_users == {"ann", "bob"}
    assert found.auto_advance
    with pytest.raises(
        ErrorResponse, match='could not parse value "true" for parameter "decode-seq'
    ):
        asked(("decode-sequence", "true"), product="gaussdb")


@pytest.mark.parametrize("number", [1, 2])
def test_a_coordinator_takes_what_decodes_of_several_nodes_and_nothing_of_one(number: int) -> None:
    """Manual: these are for who is connected to a data node, and receivers for CSNs alone."""

    def at_coordinator(*given: tuple[str, str]) -> None:
        read(given, plugin="mppdb_decoding", product="gaussdb", number=number, is_coordinator=True)

    by_csn = ("output-order", "1")
    at_coordinator(by_csn, ("logical-receiver-num", "2"), ("standby-connection", "false"))
    for name, value in (
        ("standby-connection", "true"), ("exclude-userids", "10"),
        ("slice-id", "0"), ("start-position", "1/2"),
    ):  # fmt: skip
        with pytest.raises(ErrorResponse, match=f'option "{name}"'):
            at_coordinator(by_csn, (name, value))
    with pytest.raises(ErrorResponse, match='option "logical-receiver-num"'):
        at_coordinator(("logical-receiver-num", "2"))


def test_functions_take_a_number_of_decoders_without_looking() -> None:
    given = [("parallel-decode-num", "40"), ("include-xids", "0")]

    found = read_of_function(given, plugin="mppdb_decoding", product="og7")
    assert found.mode == Mode(include_xids=False)
    with pytest.raises(ErrorResponse, match="unknown"):
        read_of_function([("sending-batch", "1")], plugin="mppdb_decoding", product="og7")
    read_of_function([("sending-batch", "1")], plugin="mppdb_decoding", product="gaussdb")
