"""Whether a source is the one whose commits a target holds."""

from dataclasses import replace
from typing import Any

import pytest

from gauss_cdc.inspect import history
from producer.errors import SourceSwitched
from producer.options import Options
from producer.sources.base import ServerNow
from producer.sources.dial import parse_dsn
from producer.sources.gauss.inspector import GaussSourceInspector
from schemas.control import Identity

WAS = Identity("7000", 1, "bank", "slot", "pgoutput")
NOW = ServerNow("7000", 1, 500, is_standby=False)


def options(**more: Any) -> Options:
    return Options(
        source=parse_dsn("postgresql://cdc@127.0.0.1:1/bank"),
        slot="slot",
        publication="p",
        prefix="bank",
        client={},
        registry_url="",
        **more,
    )


def doubt(of: Options, now: ServerNow, resume: int) -> str:
    """Of a server whose timeline 2 came from timeline 1."""
    return history.doubt(of, WAS, now, resume, lambda was, now: (was, now) == (1, 2))


GAUSS = options(kind="gaussdb", plugin="mppdb_decoding")


@pytest.mark.parametrize("of", [options(), GAUSS])
def test_a_source_that_reaches_as_far_as_the_cuts_is_no_doubt(of: Options) -> None:
    assert doubt(of, NOW, 500) == ""


@pytest.mark.parametrize("of", [options(), GAUSS])
@pytest.mark.parametrize("at", [500, 501])
def test_another_server_stops_wherever_it_is(of: Options, at: int) -> None:
    with pytest.raises(SourceSwitched, match=r"another server .*was=7000/1, now=7001/1"):
        doubt(of, replace(NOW, system_id="7001"), at)


@pytest.mark.parametrize(
    ("of", "way_out"), [(options(), "--accept-gap"), (GAUSS, "--accept-switch")]
)
def test_one_that_ends_before_the_cuts_stops_and_a_standby_is_waited_for(
    of: Options, way_out: str
) -> None:
    with pytest.raises(SourceSwitched, match=r"was restored .*log_end=0/1F4, delivered=0/1F5") as e:
        doubt(of, NOW, 501)
    assert way_out in e.value.hint
    assert "standby has not replayed" in doubt(of, replace(NOW, is_standby=True), 501)


def test_positions_of_the_order_of_csns_are_not_compared_with_the_log() -> None:
    by_csn = options(
        kind="gaussdb",
        plugin="mppdb_decoding",
        plugin_options={"output-order": "1", "parallel-decode-num": "4", "decode-style": "b"},
    )

    assert doubt(by_csn, NOW, 501) == ""


def test_another_timeline_stops_where_no_history_leads_to_it() -> None:
    with pytest.raises(SourceSwitched, match="now=7000/3"):
        doubt(options(), replace(NOW, timeline=3), 500)


def test_a_promoted_server_is_waited_for() -> None:
    assert "has not followed it to 2" in doubt(options(), replace(NOW, timeline=2), 500)


def test_servers_that_tell_no_history_have_left_no_timeline() -> None:
    assert not GaussSourceInspector(GAUSS).has_left(1, 2)
