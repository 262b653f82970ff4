from dataclasses import replace

import pytest

from gauss_cdc.sandbox.emulator.formats.support import PROVEN, UNPROVEN, support, support_rows
from gauss_cdc.sandbox.emulator.model import PROFILES, Mode
from tests.gauss_cdc.sandbox.emulator.formats.recordings import (
    MODES,
    SESSIONS,
    recording,
    session_recordings,
)

PARALLEL = Mode(parallel_decode_num=2)


def recorded_modes() -> set[Mode]:
    streams = [recording("txns", mode) for mode in MODES]
    streams += [each for name in SESSIONS for each in session_recordings(name)]
    modes = {stream.mode for stream in streams}
    return {replace(mode, parallel_decode_num=2) if mode.parallel else mode for mode in modes}


def test_proven_is_what_was_recorded_and_nothing_else() -> None:
    assert recorded_modes() == PROVEN


@pytest.mark.parametrize("mode", sorted(PROVEN, key=repr), ids=repr)
def test_a_recorded_mode_is_proven_for_the_recorded_product_only(mode: Mode) -> None:
    assert {product: support(product, mode)[:8] for product in PROFILES} == {
        product: "proven" if product == "og7" else "unproven" for product in PROFILES
    }


@pytest.mark.parametrize(
    "mode",
    [
        Mode(include_xids=False),
        Mode(plugin="sql_decoding", skip_empty_xacts=True),
        Mode(white_table_list=(("public", "*"),)),
        replace(PARALLEL, skip_empty_xacts=True),
        replace(PARALLEL, include_timestamp=False),
        replace(PARALLEL, plugin="test_decoding"),
        replace(PARALLEL, include_originid=True),
        replace(PARALLEL, only_local=False),
    ],
    ids=repr,
)
def test_one_more_option_is_not_proven(mode: Mode) -> None:
    assert support("og7", mode).startswith("unproven: ")


@pytest.mark.parametrize(
    ("mode", "word"),
    [
        (replace(PARALLEL, include_user=True), "user names"),
        (replace(PARALLEL, enable_heartbeat=True), "heartbeats"),
        (replace(PARALLEL, enable_ddl_decoding=True), "DDL in parallel"),
        (replace(PARALLEL, output_order=1), "CSN"),
    ],
)
def test_what_only_the_manual_knows_is_named(mode: Mode, word: str) -> None:
    assert word in support("gaussdb", mode)


def test_the_number_of_decoders_does_not_matter() -> None:
    assert support("og7", replace(PARALLEL, parallel_decode_num=20)) == "proven"


def test_every_gap_tells_its_source() -> None:
    assert all(gap.source for gap in UNPROVEN)
    assert all(source for _, _, source in support_rows())
