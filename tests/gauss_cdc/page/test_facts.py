"""Facts of the page: what is known of each table, from cuts, target and programs."""

from dataclasses import replace

import pytest

from gauss_cdc.doctor import Answers
from gauss_cdc.inspect.places import CutsStanding, ReplicationStatus
from gauss_cdc.page.facts import tables
from gauss_cdc.serve.answers import ProgramAnswer
from spark_consumers.model import Ledger

METRICS = """\
# TYPE gauss_cdc_table_records counter
gauss_cdc_table_records_total{source="bank",table="public.a"} 7
# TYPE gauss_cdc_table_applied counter
gauss_cdc_table_applied_total{source="bank",table="public.a",way="driver"} 4
gauss_cdc_table_applied_total{source="bank",table="public.a",way="tasks"} 3
gauss_cdc_table_applied_total{source="bank",table="other",way="tasks"} 2
# EOF
"""


def test_a_table_is_what_cuts_and_target_say_together() -> None:
    loads = {"public.a": "END", "public.b": "CHUNK", "public.c": "END", "public.d": "GAP"}
    cuts = CutsStanding(1, 1, 1, 0, 1, "w", loads, written_at=1)
    ledger = Ledger("bank", epoch=1, inexact={"public.c": "why", "public.b": "loads"})
    told = ProgramAnswer("127.0.0.1:1", metrics=METRICS)

    found = tables(Answers(ReplicationStatus(None, cuts, ledger), [], [told]))

    assert found == [
        {"table": "other", "state": "", "tasks": 2},
        {"table": "public.a", "state": "exact", "why": "", "records": 7, "driver": 4, "tasks": 3},
        {"table": "public.b", "state": "loading", "why": "loads"},
        {"table": "public.c", "state": "not exact", "why": "why"},
        {"table": "public.d", "state": "gap", "why": ""},
    ]


@pytest.mark.parametrize(
    ("marks", "state"),
    [
        (["loading"], "loading"),
        (["loading; readers see commit 1/42", "not loaded"], "loading"),
        (["loading", "an UPDATE is missing"], "not exact"),
    ],
)
def test_a_table_whose_load_is_in_kafka_loads_until_the_targets_have_it(
    marks: list[str], state: str
) -> None:
    cuts = CutsStanding(1, 9, 0, 0, 1, "w", {"public.a": "END"}, written_at=1)
    held = [
        ReplicationStatus(None, cuts, Ledger("bank", epoch=1, inexact={"public.a": why}), name=why)
        for why in marks
    ]

    (found,) = tables(Answers(replace(held[0], others=tuple(held[1:])), [], []))

    assert found["state"] == state


@pytest.mark.parametrize(
    ("ledger", "state"),
    [
        (None, "not known"),  # nothing was applied, or the target does not answer
        (Ledger("bank", epoch=1, n=9), "not known"),  # its rows are of the epoch before
        (Ledger("bank", epoch=2, n=1), "exact"),
    ],
)
def test_a_table_is_exact_only_where_the_target_holds_the_epoch_of_the_cuts(
    ledger: Ledger | None, state: str
) -> None:
    cuts = CutsStanding(2, 20, 0, 0, 1, "w", {"public.a": "END"}, written_at=1)
    held = ReplicationStatus(None, cuts, Ledger("bank", epoch=2), name="copy")
    other = ReplicationStatus(None, cuts, ledger, name="lake")

    (alone,) = tables(Answers(other, [], []))
    (both,) = tables(Answers(replace(held, others=(other,)), [], []))

    assert (alone["state"], both["state"]) == (state, state)


def test_of_several_targets_each_is_named() -> None:
    copy = ReplicationStatus(None, None, Ledger("bank", inexact={"public.a": "why"}), name="copy")
    lake = ReplicationStatus(None, None, Ledger("bank", inexact={"public.a": "loads"}), name="lake")
    told = [ProgramAnswer(at, metrics=METRICS) for at in ("127.0.0.1:1", "127.0.0.1:2")]

    found = tables(Answers(replace(copy, others=(lake,)), [], told))

    assert found[1]["why"] == "copy: why; lake: loads"
    assert (found[1]["driver"], found[1]["tasks"]) == (8, 6)
