"""Random histories of the whole pipeline: nothing lost, nothing twice, never half, always on.

150 schedules are tried, by tens so that few need to run where a line is edited (`make mutate`),
and more for `GAUSS_CDC_SIM_SECONDS` (1).  `GAUSS_CDC_SIM_SEED` replays one of them with its whole
trace, `GAUSS_CDC_SIM_FROM` moves the seeds that are tried.
"""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.sim.gauss import PGOUTPUT, STYLES
from tests.sim.mutations import COPIES
from tests.sim.schedule import Faults, Outcome, Simulation, simulate
from tests.sim.tasks import DID

SECONDS = float(os.environ.get("GAUSS_CDC_SIM_SECONDS", "1"))
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


@dataclass
class Played:
    """What all histories came to."""

    histories: int = 0
    steps: int = 0
    seconds: float = 0.0
    looks: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)

    def play(self, seed: int) -> None:
        """Play a history, judge and count it."""
        began = time.monotonic()
        outcome = simulate(seed)
        judge(outcome)
        self.histories += 1
        self.steps += outcome.steps
        self.seconds += time.monotonic() - began
        self.looks += outcome.looks
        self.events += outcome.events


PLAYED = Played()


@pytest.mark.parametrize("first", range(FIRST, FIRST if REPLAY else FIRST + FEWEST, 10))
def test_histories_are_exact_and_end(first):
    for seed in range(first, first + 10):
        PLAYED.play(seed)


@pytest.mark.parametrize("seed", [51196, 52660])
def test_what_was_sent_again_is_confirmed_where_keepalives_tell_nothing(seed):
    """A restart behind the newest commit: the walker took its COMMIT, and nobody was told."""
    PLAYED.play(seed)


def test_more_histories_are_exact_and_end(capsys):
    if REPLAY:
        outcome = simulate(int(REPLAY))
        with capsys.disabled():
            sys.stdout.write("\n".join(outcome.trace))
        judge(outcome)
        return
    until, seed = PLAYED.seconds + SECONDS, FIRST + FEWEST
    while PLAYED.seconds <= until:
        PLAYED.play(seed)
        seed += 1
    with capsys.disabled():
        sys.stdout.write(
            f"\nsimulation: {PLAYED.histories} seeds to {seed - 1}, "
            f"{PLAYED.histories / PLAYED.seconds:.0f} histories/s, "
            f"{PLAYED.steps / PLAYED.seconds:.0f} steps/s\n"
            f"  looked: {dict(PLAYED.looks.most_common())}\n"
            f"  ended: {dict(PLAYED.events.most_common())}\n"
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


def test_a_table_that_was_dropped_before_a_promotion_without_its_slot_is_not_marked_for_ever():
    promoted = {
        "pair": True, "ranges": True, "asks": 12, "transactions": 25, "steps": 600, "late": False,
        "expiries": 0, "promotions": 4, "losses": 2, "producer_crashes": 6,
    }  # fmt: skip
    judge(Simulation(167, overrides=promoted).run())


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


def test_tasks_read_segments_and_parts_of_commits_and_fail():
    before = DID.copy()
    long = {"lake": False, "transactions": 25, "steps": 700}
    for seed in range(16):
        judge(Simulation(seed, overrides=long).run())

    seen = {"segment", "part", "job failed", "task failed", "too large", "no batch"}
    assert set(DID - before) == seen
