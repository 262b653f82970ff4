"""The checkers are worth something: each rule taken away is noticed, within bounded seeds."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack

import pytest

from tests.sim.gauss import PGOUTPUT
from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.schedule import Outcome, Simulation

SEEDS = 400  # at most, until a checker notices
QUIET_SEEDS = 25  # of a second line of defence, which nobody may notice


def run_mutated(mutation: Mutation, seed: int) -> Outcome:
    with ExitStack() as stack:
        mutation.apply(stack)
        return run(mutation, seed)


def run(mutation: Mutation, seed: int) -> Outcome:
    """Run a history of the mutation's schedules."""
    return Simulation(
        seed, overrides={"style": PGOUTPUT, "ranges": False, "pair": False, **mutation.faults}
    ).run()


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if not m.reason], ids=lambda m: m.name)
def test_a_rule_taken_away_is_noticed(mutation, capsys):
    began = time.monotonic()
    for seed in range(mutation.first_seed, mutation.first_seed + SEEDS):
        outcome = run_mutated(mutation, seed)
        if outcome.violation is not None:
            # Else it is a fault of the product, and the mutation may never have been applied.
            assert run(mutation, seed).violation is None, f"seed {seed} fails with the rule, too"
            with capsys.disabled():
                sys.stdout.write(
                    f"\n  {mutation.name:28} {outcome.violation.checker:12} seed {seed:3} "
                    f"{time.monotonic() - began:5.1f} s  {mutation.rule}"
                )
            return
    pytest.fail(f"nobody noticed within {SEEDS} seeds: {mutation.rule}", pytrace=False)


@pytest.mark.parametrize("mutation", [m for m in MUTATIONS if m.reason], ids=lambda m: m.name)
def test_a_second_line_of_defence_is_not_needed_alone(mutation):
    for seed in range(QUIET_SEEDS):
        outcome = run_mutated(mutation, seed)

        assert outcome.violation is None, f"seed {seed}: {mutation.reason} is not true"
