"""Random histories of the whole pipeline: nothing lost, nothing twice, never half, always on.

`GAUSS_CDC_SIM_SECONDS` (15) is how long random schedules are tried, and 150 at least:
some of the first ones have a table that is made between the list of tables and the slot.
`GAUSS_CDC_SIM_SEED` replays one of them with its whole trace, `GAUSS_CDC_SIM_FROM` moves the
seeds that are tried.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from typing import Any

import pytest

from tests.sim.gauss import PGOUTPUT, STYLES
from tests.sim.mutations import COPIES
from tests.sim.schedule import Faults, Outcome, Simulation, simulate

SECONDS = float(os.environ.get("GAUSS_CDC_SIM_SECONDS", "15"))
FIRST = int(os.environ.get("GAUSS_CDC_SIM_FROM", "0"))
REPLAY = os.environ.get("GAUSS_CDC_SIM_SEED")
FEWEST = 150
TRACE_LINES = 150


def judge(outcome: Outcome) -> None:
    """Fail with what is needed to find out why."""
    unknown = outcome.unknown()
    if outcome.violation is None and not unknown:
        return
    lines = outcome.trace if REPLAY else outcome.trace[-TRACE_LINES:]
    what = str(outcome.violation) if outcome.violation else f"unknown: {unknown} never looked"
    pytest.fail(
        "\n".join(lines)
        + f"\n\nseed {outcome.seed}, {outcome.steps} steps: {what}\n"
        + f"replay: GAUSS_CDC_SIM_SEED={outcome.seed} pytest tests/sim/test_simulation.py",
        pytrace=False,
    )


def test_every_history_is_exact_and_ends(capsys):
    if REPLAY:
        outcome = simulate(int(REPLAY))
        with capsys.disabled():
            sys.stdout.write("\n".join(outcome.trace))
        judge(outcome)
        return
    looks: Counter[str] = Counter()
    events: Counter[str] = Counter()
    began, seed, steps = time.monotonic(), FIRST, 0
    while seed < FIRST + FEWEST or time.monotonic() - began < SECONDS:
        outcome = simulate(seed)
        judge(outcome)
        looks += outcome.looks
        events += outcome.events
        steps += outcome.steps
        seed += 1
    seconds = time.monotonic() - began
    with capsys.disabled():
        sys.stdout.write(
            f"\nsimulation: seeds {FIRST}..{seed - 1}, {(seed - FIRST) / seconds:.0f} histories/s, "
            f"{steps / seconds:.0f} steps/s\n  looked: {dict(looks.most_common())}"
            f"\n  ended: {dict(events.most_common())}\n"
        )


def test_the_same_seed_is_the_same_history():
    first, second = simulate(4711), simulate(4711)

    assert first.trace == second.trace


def test_without_faults_nothing_stops_and_everything_arrives():
    quiet: dict[str, Any] = {
        "producer_crashes": 0,
        "applier_crashes": 0,
        "second_producers": 0,
        "second_appliers": 0,
        "drops": 0,
    }
    for seed in range(10):
        outcome = Simulation(seed, Faults(**quiet)).run()
        judge(outcome)

        assert outcome.events == {"producer crash": 1, "applier crash": 1}  # ended by the test


def test_native_and_python_take_turns_at_any_row():
    long = {"transactions": 40, "steps": 800, "producer_crashes": 6}
    for seed in range(6):
        judge(Simulation(seed, overrides={**long, "use": "switching"}).run())
        judge(Simulation(seed, overrides={**long, "use": "all", "strange": True}).run())


def test_transactions_of_every_style_of_gaussdb_are_held_until_their_commit():
    long = {"transactions": 40, "steps": 800, "producer_crashes": 6, "use": "switching"}
    for seed, style in enumerate(STYLES):
        judge(Simulation(seed, overrides={**long, "style": style, "strange": seed % 2}).run())


def test_a_forced_switch_of_gaussdb_is_mended_by_a_new_slot_and_re_reads():
    forced = {"transactions": 25, "steps": 700, "losses": 2, "aliens": 0}
    for seed, style in enumerate(STYLES):
        judge(Simulation(seed, overrides={**forced, "style": style}).run())


def test_a_standby_that_is_read_is_promoted_and_sends_on():
    promoted = {"transactions": 25, "steps": 700, "standby": True, "promotions": 3, "aliens": 0}
    for seed in range(12):
        judge(Simulation(seed, overrides={**promoted, "style": PGOUTPUT}).run())


def test_an_older_copy_of_the_source_is_not_gone_on_with_once_it_has_other_commits():
    for seed in range(40):
        judge(Simulation(seed, overrides={**COPIES, "style": PGOUTPUT if seed % 2 else "b"}).run())


def test_a_load_survives_an_acknowledgement_without_an_offset():
    for seed in range(60):
        judge(Simulation(seed, overrides={"lost_offsets": 2}).run())


def test_a_table_that_is_made_again_before_its_load_is_loaded_as_the_new_one():
    renewed = {"renewals": 2, "adds": 1, "asks": 3, "producer_crashes": 9, "removals": 0}
    for seed in range(40):
        judge(Simulation(seed, overrides={**renewed, "style": PGOUTPUT}).run())
