"""The rules of a load in chunks: none is wrong with all of them, and each one is needed.

GAUSS_CDC_CHUNK_HISTORIES=100000 pytest tests/sim/test_chunk_load.py
"""

import os
from dataclasses import fields, replace

import pytest

from tests.sim.chunk_load import Rules, Wrong, play

HISTORIES = int(os.environ.get("GAUSS_CDC_CHUNK_HISTORIES", "3000"))
ALL = Rules()
# rule -> a history that ends wrong without it
NEEDED = {
    "sees_delivered": 115,
    "insert_position": 1,
    "drops_on_break": 1,
    "owes": 184,
    "owes_chains": 811,
    "owes_in_flight": 402,
    "owes_anew": 21065,
    "owed_is_durable": 956,
    "ends_without_owed": 956,
    "seen_is_logged": 92,
    "resumes_at_place": 1923,
    "locks_first": 15339,
    "truncate_drops": 605,
    "notes_until_placed": 20,
    "notes_old_keys": 20,
    "completes": 45,
    "last_is_open": 769,
    "places_behind_high": 1,
}


def test_no_history_ends_wrong_or_never() -> None:
    ends = {play(seed, ALL) for seed in range(HISTORIES)}

    assert ends == {"exact", "stale", "hidden"}


@pytest.mark.parametrize("rule", [one.name for one in fields(Rules)])
def test_each_rule_is_needed(rule: str) -> None:
    with pytest.raises(Wrong):
        play(NEEDED[rule], replace(ALL, **{rule: False}))
