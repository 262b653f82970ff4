"""Alarms are named by errors that exist."""

from gauss_cdc.serve.alarms import ALARMS, BY_ERROR
from producer import errors as producer_errors
from spark_consumers import errors as consumer_errors


def test_each_error_exists_and_means_one_alarm() -> None:
    known = {*vars(producer_errors), *vars(consumer_errors)}

    assert {error for error in BY_ERROR if error not in known} == set()
    assert len(BY_ERROR) == sum(len(one.errors) for one in ALARMS.values())


def test_the_most_urgent_come_first() -> None:
    levels = [one.level for one in ALARMS.values()]

    assert sorted(levels, key=["error", "warning", "note"].index) == levels
