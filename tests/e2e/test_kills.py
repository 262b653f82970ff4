"""`run`, `apply` and the broker are killed under load; the target must not notice."""

from collections import Counter

from rich.console import Console

from gauss_cdc_lab.demo import DemoPlan, play
from gauss_cdc_lab.demo.scene import set_up
from gauss_cdc_lab.demo.view import View


def play_here(plan, services, new_killable_database, topic_prefix, tmp_path):
    place = set_up(
        services,
        tmp_path,
        source=new_killable_database(),
        target=new_killable_database(),
        prefix=topic_prefix,
        exactly_once=plan.exactly_once,
    )
    with View(Console(stderr=True)) as view:
        return play(plan, place, view)


def test_no_kill_of_run_apply_or_broker_leaves_a_trace(
    services, new_killable_database, topic_prefix, tmp_path
):
    plan = DemoPlan("bank", seconds=10, kills=3, seed=3, workers=4, rate=60)

    report = play_here(plan, services, new_killable_database, topic_prefix, tmp_path)

    assert report.differences == []
    assert report.is_equal
    assert len(report.kills) == 3
    assert Counter(kill.split()[1] for kill in report.kills) == {"run": 1, "apply": 1, "the": 1}
    # How many depends on the machine: a broker that is away for 30 s makes `run` begin anew.
    assert report.samples > 20
    assert report.seq > 100
    assert report.takeovers >= 2


def test_tpcb_with_eight_clients_survives_kills_in_the_first_load_without_exactly_once(
    services, new_killable_database, topic_prefix, tmp_path
):
    plan = DemoPlan(
        "tpcb",
        seconds=4,
        kills=1,
        seed=2,
        workers=8,
        rate=100,
        kills_in_load=True,
        exactly_once=False,
    )

    report = play_here(plan, services, new_killable_database, topic_prefix, tmp_path)

    assert report.differences == []
    assert report.is_equal
    assert len(report.kills) == 3
    assert report.epochs == 1  # a load that broke off is finished
