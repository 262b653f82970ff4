"""What raises an alarm."""

from gauss_cdc.serve.alarms import ALARMS
from gauss_cdc.serve.table import METRICS


def test_a_condition_of_now_is_judged_by_one_value() -> None:
    assert METRICS["slot_lost"].is_alarming(1)
    assert METRICS["lag_seconds"].is_alarming(301)
    assert not METRICS["epoch"].is_alarming(1)


def test_a_slot_without_a_client_is_none_while_a_table_is_loaded() -> None:
    assert METRICS["slot_active"].is_alarming(0)
    assert METRICS["slot_active"].is_alarming(0, {"epoch": 7})
    assert not METRICS["slot_active"].is_alarming(0, {"load_rows": 7})


def test_what_kafka_keeps_for_a_day_or_less_is_not_near_its_end_while_half_of_it_is_left() -> None:
    left = METRICS["retention_left_seconds"]

    assert left.is_alarming(86_399, {"lag_seconds": 600_000})
    assert not left.is_alarming(86_400, {"lag_seconds": 600_000})
    assert left.is_alarming(35_999, {"lag_seconds": 36_001})  # of twenty hours
    assert not left.is_alarming(71_999, {"lag_seconds": 1})
    assert not left.is_alarming(36_000, {"lag_seconds": 36_000})


def test_one_value_of_what_counts_up_says_nothing() -> None:
    assert METRICS["retries_total"].alarm == "increase({}[15m]) > 0"
    assert not METRICS["retries_total"].is_alarming(7)


def test_each_condition_raises_an_alarm_of_the_table() -> None:
    raised = {one.raises for one in METRICS.values() if one.alarm}

    assert {one.name for one in METRICS.values() if bool(one.alarm) != bool(one.raises)} == set()
    assert raised < set(ALARMS)
