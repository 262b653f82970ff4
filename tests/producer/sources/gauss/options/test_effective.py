"""What START_REPLICATION is told, what is said about it, and what is refused as ours."""

import pytest

from producer.errors import OptionRefused
from producer.sources.decoders import Format
from producer.sources.gauss.options import (
    Decoding,
    Terms,
    Vendor,
    effective,
    problems,
    removing_text,
    why_not_full,
)

GAUSS = Terms(product=Vendor.GAUSSDB, plugin="mppdb_decoding")
OPEN = Terms(product=Vendor.OPENGAUSS, plugin="mppdb_decoding")


def refused(options: dict[str, str], terms: Terms) -> str:
    with pytest.raises(OptionRefused) as caught:
        effective(options, terms)
    return str(caught.value)


# ---------------------------------------------------------------- what is sent
def test_nothing_asked_for_is_serial_decoding_with_all_that_our_records_need() -> None:
    decided = effective({}, OPEN)

    assert decided.options == (
        ("parallel-decode-num", "1"),
        ("include-xids", "true"),
        ("include-timestamp", "true"),
        ("skip-empty-xacts", "true"),
        ("standby-connection", "false"),
        ("only-local", "false"),
    )
    assert decided.format == Format("mppdb_decoding")
    assert (decided.mode, decided.ordered_by, decided.warnings) == (Decoding.SERIAL, "lsn", ())


def test_parallel_decoding_keeps_empty_transactions_and_is_binary() -> None:
    decided = effective({"parallel-decode-num": "4"}, GAUSS, encoding="gbk")

    assert decided.options == (
        ("parallel-decode-num", "4"),
        ("decode-style", "b"),
        ("sending-batch", "0"),
        ("include-xids", "true"),
        ("include-timestamp", "true"),
        ("skip-empty-xacts", "false"),
        ("standby-connection", "false"),
        ("only-local", "false"),
    )
    assert decided.format == Format("mppdb_decoding", "b", batch=False, encoding="gbk")


def test_the_thread_count_comes_first_since_the_server_looks_for_it_first() -> None:
    options = {"sender-timeout": "60s", "sending-batch": "1", "parallel-decode-num": "0x2"}
    assert effective(options, GAUSS).options[0] == ("parallel-decode-num", "2")


def test_values_are_sent_in_one_spelling() -> None:
    decided = effective(
        {
            "parallel-decode-num": " 4",
            "decode-style": "json",
            "sending-batch": "0x1",
            "only-local": "T",
            "sender-timeout": "1min",
            "white-table-list": " a.b , *.c ",
        },
        OPEN,
    )

    assert dict(decided.options).items() >= {
        ("parallel-decode-num", "4"),
        ("decode-style", "j"),
        ("sending-batch", "1"),
        ("only-local", "true"),
        ("sender-timeout", "60000"),
        ("white-table-list", "a.b,*.c"),
    }
    assert decided.format == Format("mppdb_decoding", "j", batch=True)


def test_sql_functions_get_the_options_that_they_have() -> None:
    terms = Terms(product=Vendor.OPENGAUSS, plugin="mppdb_decoding", interface="sql")

    decided = effective({"parallel-decode-num": "4"}, terms)

    assert decided.options == (
        ("include-xids", "true"),
        ("include-timestamp", "true"),
        ("skip-empty-xacts", "false"),
        ("only-local", "false"),
    )
    assert [str(advice) for advice in decided.warnings] == [
        'parallel-decode-num = "4": has no effect in SQL functions'
    ]


def test_opengauss_sql_decoding_gets_four_options_only() -> None:
    terms = Terms(product=Vendor.OPENGAUSS, plugin="sql_decoding")

    assert [name for name, _ in effective({"parallel-decode-num": "1"}, terms).options] == [
        "include-xids",
        "include-timestamp",
        "skip-empty-xacts",
        "only-local",
    ]
    assert "sql_decoding of openGauss does not have it" in refused(
        {"white-table-list": "a.b"}, terms
    )
    assert effective({"parallel-decode-num": "2", "white-table-list": "a.b"}, terms).get(
        "white-table-list"
    )


def test_gaussdbs_sql_decoding_gets_no_defaults() -> None:
    terms = Terms(product=Vendor.GAUSSDB, plugin="sql_decoding")

    assert len(effective({"parallel-decode-num": "1"}, terms).options) == 4
    assert effective({"include-user": "true"}, terms).get("include-user") == "true"
    standby = Terms(product=Vendor.GAUSSDB, plugin="sql_decoding", role="standby")
    assert effective({}, standby).get("standby-connection") == "true"


def test_a_standby_is_asked_for_by_role_only() -> None:
    standby = Terms(product=Vendor.OPENGAUSS, plugin="mppdb_decoding", role="standby")

    assert effective({}, standby).get("standby-connection") == "true"
    assert "set by us to false" in refused({"standby-connection": "true"}, OPEN)
    assert "source] role" in refused({"standby-connection": "on"}, OPEN)


def test_opengauss_sql_decoding_does_not_know_standbys() -> None:
    standby = Terms(product=Vendor.OPENGAUSS, plugin="sql_decoding", role="standby")
    (advice,) = effective({}, standby).warnings
    assert "only we check the role" in str(advice)


def test_in_the_order_of_csns_empty_transactions_are_kept_in_every_mode() -> None:
    decided = effective({"output-order": "1"}, GAUSS)

    assert (decided.ordered_by, decided.get("skip-empty-xacts")) == ("csn", "false")
    assert decided.mode is Decoding.SERIAL


def test_a_plugin_for_parallel_decoding_gets_threads_of_its_own() -> None:
    terms = Terms(product=Vendor.GAUSSDB, plugin="parallel_json_decoding")

    decided = effective({}, terms)

    assert decided.get("parallel-decode-num") == "2"
    assert decided.format.style == "j"
    assert "for parallel decoding" in refused({"parallel-decode-num": "1"}, terms)


# ---------------------------------------------------------------- what is ours
@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"include-xids": "false"}, "set by us to true"),
        ({"include-timestamp": "0"}, "set by us to true"),
        ({"skip-empty-xacts": "off"}, "set by us to true"),
        ({"parallel-decode-num": "2", "skip-empty-xacts": "true"}, "set by us to false"),
        ({"auto-advance": "true"}, "past our last durable cut"),
    ],
)
def test_what_our_contract_needs_is_not_to_be_changed(options: dict[str, str], rule: str) -> None:
    assert rule in refused(options, GAUSS)


def test_saying_what_we_say_is_fine() -> None:
    options = {"include-xids": "1", "include-timestamp": "yes", "auto-advance": "off"}
    assert effective(options, GAUSS).get("include-xids") == "true"


def test_errors_name_option_value_range_and_rule() -> None:
    assert refused({"parallel-decode-num": "21"}, GAUSS) == (
        "decoding option refused: outside 1 to 20 "
        "(option=parallel-decode-num, value=21, range=1 to 20)"
    )


def test_every_bad_value_is_reported_at_once() -> None:
    options = {"sending-batch": "2", "nothing": "1", "only-local": "x", "include-xids": "true"}
    assert [p.where["option"] for p in problems(options, GAUSS)] == [
        "sending-batch",
        "nothing",
        "only-local",
    ]


def test_an_unknown_option_is_guessed() -> None:
    assert "write decode-style" in refused({"decode_style": "b"}, GAUSS)
    assert "write include-xids" in refused({"Include-Xids": "1"}, GAUSS)


def test_products_differ() -> None:
    for name, value in (("enable-heartbeat", "true"), ("output-order", "0"), ("slice-id", "1")):
        assert "opengauss does not have this option" in refused({name: value}, OPEN)
    assert "gaussdb does not have this option" in refused({"include-originid": "true"}, GAUSS)
    terms = Terms(product=Vendor.OPENGAUSS, plugin="parallel_json_decoding")
    assert "no such output plugin" in refused({}, terms)


# ---------------------------------------------------------------- how long the server waits
def test_a_sender_timeout_below_three_status_intervals_is_refused() -> None:
    for text in ("29999", "29s", "1"):
        assert "shorter than 3 status intervals of 10 s" in refused({"sender-timeout": text}, OPEN)
    for text in ("30000", "30s", "0"):
        assert effective({"sender-timeout": text}, OPEN).get("sender-timeout")
    quick = Terms(product=Vendor.OPENGAUSS, plugin="mppdb_decoding", status_seconds=1)
    assert effective({"sender-timeout": "3s"}, quick).get("sender-timeout") == "3000"


# ---------------------------------------------------------------- what is only said
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"parallel-decode-num": "2", "change-log-max-len": "1023"}, "allocated and freed"),
        ({"change-log-max-len": "4096"}, "has no effect in serial decoding"),
        ({"max-decode-to-sender-cache-num": "9"}, "has no effect in serial decoding"),
        ({"sender-timeout": "0"}, "never closes"),
        ({"white-table-list": "public.t*"}, "t* is taken literally"),
        ({"dynamic-resolution": "true"}, "has no effect without exclude-users"),
        ({"enable-ddl-json-format": "true"}, "has no effect without enable-ddl-decoding"),
        ({"parallel-decode-num": "2", "decode-style": "j"}, "zero byte"),
        ({"parallel-decode-num": "2", "enable-ddl-decoding": "true"}, "is not documented"),
        (
            {"parallel-decode-num": "2", "output-order": "1", "change-log-max-len": "4096"},
            "has no effect in the order of CSNs",
        ),
        ({"force-binary": "true"}, "has no effect in serial decoding"),
    ],
)
def test_discouraged_values_are_taken_with_a_word(options: dict[str, str], said: str) -> None:
    (advice,) = effective(options, GAUSS).warnings

    assert said in str(advice)


@pytest.mark.parametrize(
    "options",
    [
        {"parallel-decode-num": "2", "change-log-max-len": "1024"},
        {"white-table-list": "*.t3,my_schema.*"},
        {"exclude-users": "u1", "dynamic-resolution": "true"},
        {"sender-timeout": "60s"},
        {"parallel-decode-num": "2", "decode-style": "t", "enable-ddl-decoding": "true"},
    ],
)
def test_good_values_are_taken_without_a_word(options: dict[str, str]) -> None:
    assert effective(options, GAUSS).warnings == ()


def test_what_opengauss_loses_in_parallel_decoding_is_said() -> None:
    (advice,) = effective({"parallel-decode-num": "2"}, OPEN).warnings
    assert "after DDL or TRUNCATE in the same transaction" in str(advice)


# ---------------------------------------------------------------- what removes changes
def test_options_that_remove_changes_are_one_line_in_one_spelling() -> None:
    options = {
        "white-table-list": "public.b, public.a",
        "exclude-users": "etl,batch",
        "exclude-userids": "17,10",
        "only-local": "TRUE",
        "sender-timeout": "60s",
    }

    assert removing_text(options) == (
        "exclude-userids=10,17; exclude-users=batch,etl; only-local=true; "
        "white-table-list=public.a,public.b"
    )


def test_a_full_copy_has_no_reason_not_to_be_one() -> None:
    for options in ({}, {"only-local": "false"}, {"include-user": "true"}):
        assert removing_text(options) == why_not_full(options) == ""


def test_status_says_why_the_target_is_not_a_full_copy() -> None:
    assert why_not_full({"only-local": "1", "exclude-users": "etl"}) == (
        "the target is not a full copy because exclude-users = etl omits changes of these "
        "users, and only-local = true omits changes that reached the source by replication "
        "from elsewhere"
    )


def test_options_of_a_cluster_s_servers_are_taken_with_a_warning() -> None:
    options = {"output-order": "1", "slice-id": "0", "start-position": "1/1"}

    found = effective(options, GAUSS)

    warned = {advice.option for advice in found.warnings if "advises against" in str(advice)}
    assert warned == {"slice-id", "start-position"}
    assert "start-position = 1/1 omits changes" in why_not_full(options)
