"""How long the source's log may grow."""

from gauss_cdc.serve.standing import WalLeft


def test_the_time_left_is_by_the_rate_of_the_last_minutes() -> None:
    left = WalLeft()

    assert left.seconds(1_000, 0) is None  # no rate yet
    assert left.seconds(900, 10) == 90
    assert left.seconds(800, 20) == 80
    assert left.seconds(700, 320) == 1_050 * 2 / 3 * 3  # 100 in 300 s
    assert left.seconds(-5, 330) == 0


def test_there_is_none_where_nothing_limits_it_or_it_becomes_more() -> None:
    left = WalLeft()
    left.seconds(1_000, 0)

    assert left.seconds(1_000, 10) is None
    assert left.seconds(2_000, 20) is None
    assert left.seconds(None, 30) is None
    assert left.seconds(10, 40) is None  # what was before is forgotten
