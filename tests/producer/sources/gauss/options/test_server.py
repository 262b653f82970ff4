"""Rules that wait for a server, on literal readings."""

import pytest

from producer.errors import OptionRefused
from producer.sources.gauss.options import (
    Effective,
    ServerFacts,
    Terms,
    Vendor,
    check_server_rules,
    effective,
)
from producer.sources.gauss.options.server import default_options


def decided(options: dict[str, str], product: Vendor = Vendor.GAUSSDB, **more: str) -> Effective:
    given = {"plugin": "mppdb_decoding", **more}
    return effective(
        options,
        Terms(product=product, **given),  # type: ignore[arg-type]
    )


def refused(found: Effective, facts: ServerFacts) -> str:
    with pytest.raises(OptionRefused) as caught:
        check_server_rules(found, facts)
    return str(caught.value)


# ---------------------------------------------------------------- order
def test_a_slot_in_the_order_of_lsns_is_read_so() -> None:
    by_lsn, by_csn = decided({}), decided({"output-order": "1"})
    lsn_slot = ServerFacts(has_slot=True, confirmed_csn=0)
    csn_slot = ServerFacts(has_slot=True, confirmed_csn=2357)

    assert check_server_rules(by_lsn, lsn_slot) == ()
    assert check_server_rules(by_csn, csn_slot) == ()
    assert "whose confirmed_csn is 0, and ours is ordered by CSN" in refused(by_lsn, csn_slot)
    assert "whose confirmed_csn is not 0" in refused(by_csn, lsn_slot)


def test_a_server_without_csn_slots_refuses_their_order() -> None:
    facts = ServerFacts(has_slot=True, confirmed_csn=None)

    assert "no slots in the order of CSNs" in refused(decided({"output-order": "1"}), facts)
    assert check_server_rules(decided({}), facts) == ()


def test_a_slot_that_is_not_there_yet_has_no_order() -> None:
    facts = ServerFacts(has_slot=False, confirmed_csn=0)
    assert check_server_rules(decided({"output-order": "1"}), facts) == ()


# ---------------------------------------------------------------- memory
def test_parallel_memory_limits_are_shares_of_the_process() -> None:
    facts = ServerFacts(max_process_memory_kb=200 * 1024)  # 200 MB
    good = decided({"parallel-decode-num": "2", "max-txn-in-memory": "50"})
    large = decided({"parallel-decode-num": "2", "max-txn-in-memory": "51"})

    assert check_server_rules(good, facts) == ()
    said = refused(large, facts)
    assert "more than 25 % of max_process_memory" in said
    assert "value=51, range=0 to 50 MB" in said


def test_a_share_may_be_more_than_a_hundred() -> None:
    facts = ServerFacts(max_process_memory_kb=12 << 20)  # 12 GB, a quarter is 3072 MB
    options = {"parallel-decode-num": "2", "max-txn-in-memory": "3072"}

    assert check_server_rules(decided(options), facts) == ()
    assert "range=0 to 3072 MB" in refused(decided(options | {"max-txn-in-memory": "3073"}), facts)
    for terms in ({"parallel-decode-num": "1"}, {}):
        with pytest.raises(OptionRefused, match="outside 0 to 100 MB"):
            decided({**terms, "max-txn-in-memory": "101"})
    with pytest.raises(OptionRefused, match="outside 0 to 100 MB"):
        decided({"parallel-decode-num": "2", "max-txn-in-memory": "101"}, Vendor.OPENGAUSS)


def test_the_reorder_buffer_may_take_half() -> None:
    facts = ServerFacts(max_process_memory_kb=12 << 20)  # 12 GB
    for text, fits in (("6", True), ("7", False)):
        found = decided({"parallel-decode-num": "2", "max-reorderbuffer-in-memory": text})
        if fits:
            assert check_server_rules(found, facts) == ()
        else:
            assert "more than 50 %" in refused(found, facts)


def test_what_is_not_known_is_said_not_refused() -> None:
    found = decided({"parallel-decode-num": "2", "max-txn-in-memory": "50"})
    (advice,) = check_server_rules(found, ServerFacts())
    assert "not compared" in str(advice)


def test_serial_and_opengauss_limits_are_numbers() -> None:
    facts = ServerFacts(max_process_memory_kb=1024)
    assert check_server_rules(decided({"max-txn-in-memory": "100"}), facts) == ()
    parallel = {"parallel-decode-num": "2", "max-txn-in-memory": "100"}
    assert check_server_rules(decided(parallel, Vendor.OPENGAUSS), facts) == ()


# ---------------------------------------------------------------- role and node
def test_a_standby_must_be_one() -> None:
    found = decided({}, role="standby")

    assert "is a primary" in refused(found, ServerFacts(is_standby=False))
    assert check_server_rules(found, ServerFacts(is_standby=True)) == ()
    assert check_server_rules(decided({}), ServerFacts(is_standby=True)) == ()


@pytest.mark.parametrize(
    "options",
    [
        {"output-order": "1", "exclude-userids": "10"},
        {"output-order": "1", "slice-id": "0"},
        {"output-order": "1", "start-position": "1/2"},
    ],
)
def test_a_coordinator_does_not_take_options_of_data_nodes(options: dict[str, str]) -> None:
    found = decided(options)

    assert "only data nodes accept it" in refused(found, ServerFacts(node="CN"))
    check_server_rules(found, ServerFacts(node="DN"))  # not refused


@pytest.mark.parametrize("name", ["change-log-max-len", "max-decode-to-sender-cache-num"])
def test_what_a_coordinator_only_ignores_is_said_not_refused(name: str) -> None:
    """The manual's options, lines 118, 124: effective only in parallel decoding of a data node."""
    found = decided({"parallel-decode-num": "2", "output-order": "1", name: "4096"})

    (advice,) = check_server_rules(found, ServerFacts(node="CN"))
    assert str(advice) == f'{name} = "4096": has no effect at a coordinator'
    at_node = decided({"parallel-decode-num": "2", name: "4096"})
    assert check_server_rules(at_node, ServerFacts(node="DN")) == ()


def test_a_data_node_in_the_order_of_csns_stops_at_replicated_tables() -> None:
    """The manual's options, lines 223 and 225: without slice-id such a table is an error."""
    found = decided({"output-order": "1"})

    (advice,) = check_server_rules(found, ServerFacts(node="DN"))
    assert "stops at the first change of a replicated table" in str(advice)
    assert check_server_rules(found, ServerFacts(node="CN")) == ()
    assert check_server_rules(found, ServerFacts()) == ()  # centralized: no such tables
    with_slice = decided({"output-order": "1", "slice-id": "0"})
    assert check_server_rules(with_slice, ServerFacts(node="DN")) == ()


def test_a_coordinator_has_no_standby() -> None:
    found = decided({"output-order": "1"}, role="standby")
    assert "only data nodes accept it" in refused(found, ServerFacts(node="CN"))


@pytest.mark.parametrize(
    ("options", "more"), [({}, {}), ({"output-order": "1"}, {"interface": "sql"})]
)
def test_a_coordinators_stream_is_in_the_order_of_csns(
    options: dict[str, str], more: dict[str, str]
) -> None:
    """The manual's options: what "distributed strongly consistent decoding" sends are CSNs."""
    assert "in the order of CSNs" in refused(decided(options, **more), ServerFacts(node="CN"))
    assert check_server_rules(decided(options, **more), ServerFacts(node="DN")) is not None
    assert check_server_rules(decided({"output-order": "1"}), ServerFacts(node="CN")) == ()


def test_receivers_are_cut_to_the_shards() -> None:
    found = decided({"output-order": "1", "logical-receiver-num": "8"})

    (advice,) = check_server_rules(found, ServerFacts(shards=3))
    assert "the server uses 3" in str(advice)
    assert check_server_rules(found, ServerFacts(shards=8)) == ()


# ---------------------------------------------------------------- settings of the server
def test_the_servers_own_timeout_counts_where_none_is_set() -> None:
    facts = ServerFacts(sender_timeout_ms=29_999)

    assert "shorter than three status intervals" in refused(decided({}), facts)
    assert check_server_rules(decided({"sender-timeout": "60s"}), facts) == ()
    for fine in (0, 30_000):
        assert check_server_rules(decided({}), ServerFacts(sender_timeout_ms=fine)) == ()
    assert check_server_rules(decided({}, interface="sql"), facts) == ()


def test_the_servers_defaults_are_read() -> None:
    assert default_options("") == {}
    assert default_options("parallel-decode-num=4,parallel-queue-size=128,exclude-users=a") == {
        "parallel-decode-num": "4",
        "parallel-queue-size": "128",
        "exclude-users": "a",
    }


def test_a_server_that_makes_streams_parallel_gets_an_option_against_it() -> None:
    facts = ServerFacts(default_options="parallel-decode-num=4")

    assert check_server_rules(decided({}, Vendor.OPENGAUSS), facts) == ()  # we say 1
    sql = decided({}, Vendor.OPENGAUSS, plugin="sql_decoding")  # which knows no such option
    assert "makes every stream parallel" in refused(sql, facts)
    assert check_server_rules(sql, ServerFacts(default_options="parallel-decode-num=1")) == ()


def test_a_server_that_leaves_users_out_is_not_followed_in_silence() -> None:
    facts = ServerFacts(default_options="exclude-users=etl")

    assert "omits changes of these users" in refused(decided({}), facts)
    assert check_server_rules(decided({"exclude-users": "etl"}), facts) == ()


def test_an_option_that_came_later() -> None:
    found = decided({"include-originid": "true"}, Vendor.OPENGAUSS)

    assert "since 5.0" in refused(found, ServerFacts(version=(3, 1, 0)))
    assert check_server_rules(found, ServerFacts(version=(5, 0, 0))) == ()


def test_ddl_that_is_not_logged_is_not_sent() -> None:
    found = decided({"enable-ddl-decoding": "true"})

    (advice,) = check_server_rules(found, ServerFacts(ddl_is_logged=False))
    assert "enable_logical_replication_ddl is off" in str(advice)
    assert check_server_rules(found, ServerFacts(ddl_is_logged=True)) == ()


def test_what_waits_for_a_server_is_named() -> None:
    waiting = decided({"parallel-decode-num": "2", "max-txn-in-memory": "1"}).needs_server
    assert any("max_process_memory" in sentence for sentence in waiting)
    assert any("confirmed_csn" in sentence for sentence in waiting)
    assert not any("confirmed_csn" in s for s in decided({}, Vendor.OPENGAUSS).needs_server)
