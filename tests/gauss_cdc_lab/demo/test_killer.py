"""Who is killed, and what the figures say of it."""

from random import Random

from gauss_cdc_lab.demo.killer import Kill, by_step, victims
from gauss_cdc_lab.demo.report import quantile


def test_run_and_apply_die_twice_for_each_death_of_the_broker():
    order = victims(50, Random(7))

    assert {name: order.count(name) for name in set(order)} == {
        "run": 20,
        "apply": 20,
        "broker": 10,
    }


def test_three_kills_are_one_of_each():
    assert sorted(victims(3, Random(1))) == ["apply", "broker", "run"]
    assert victims(0, Random(1)) == []


def test_a_seed_gives_the_same_order():
    assert victims(17, Random("5/kills")) == victims(17, Random("5/kills"))


def test_a_kill_is_reported_with_its_step():
    kill = Kill(1, "run", "run: cut written, not committed", 3.0, 40)

    assert str(kill) == "killed run in step 'run: cut written, not committed'"


def test_kills_are_counted_by_step():
    kills = [
        Kill(1, "run", "run: rows sent", 0, 0),
        Kill(2, "apply", "ledger moved", 0, 0),
        Kill(3, "run", "run: rows sent", 0, 0),
        Kill(4, "broker", "run was in 'run: read', apply in 'stage'", 0, 0),
    ]

    assert by_step(kills) == {"apply: ledger moved": 1, "broker": 1, "run: rows sent": 2}


def test_quantiles():
    assert quantile([], 0.5) == 0.0
    assert quantile([5, 1, 3], 0.5) == 3
    assert quantile([5, 1, 3], 0.99) == 5
