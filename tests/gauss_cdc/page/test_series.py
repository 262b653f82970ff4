"""Charts: what counts up as rates, what is not known as nothing."""

from dataclasses import replace

from prometheus_client.samples import Sample

from gauss_cdc.inspect.places import CutsStanding, ReplicationStatus
from gauss_cdc.page.series import NAMES, Series
from spark_consumers.model import Ledger


def standing(seq: int, applied: int, epoch: int = 1) -> ReplicationStatus:
    cuts = CutsStanding(epoch, seq, seq, 0, 1, "w", {}, written_at=1)
    return ReplicationStatus(None, cuts, Ledger("bank", epoch=1, seq=applied))


def rows(total: float, seconds: float = 0.0, often: float = 0.0) -> list[Sample]:
    return [
        Sample("gauss_cdc_read_rows_total", {}, total),
        Sample("gauss_cdc_commit_to_kafka_seconds_sum", {}, seconds),
        Sample("gauss_cdc_commit_to_kafka_seconds_count", {}, often),
    ]


def test_rates_are_between_two_looks() -> None:
    series = Series()
    series.add(100.0, standing(10, 5), rows(1000, 2.0, 10))
    series.add(102.0, standing(30, 25), rows(1500, 2.5, 20))
    series.add(104.0, standing(30, 30), rows(1500, 2.5, 20))

    found = series.as_json()

    assert found["at"] == [100.0, 102.0, 104.0]
    assert found["captured"] == [None, 10.0, 0.0]
    assert found["applied"] == [None, 10.0, 2.5]
    assert found["captured_rows"] == [None, 250.0, 0.0]
    assert found["to_kafka"] == [None, 0.05, None], "no commit, no mean"
    assert found["lag_commits"] == [5, 5, 0]
    assert found["applied_rows"] == [None] * 3, "nobody told it"
    assert set(found) == {"at", *NAMES}


def test_what_is_counted_anew_has_no_rate() -> None:
    """A program that was started again, an epoch that the target has not reached."""
    series = Series()
    series.add(100.0, standing(10, 5), rows(1000))
    series.add(102.0, standing(1, 5, epoch=2), rows(3))

    found = series.as_json()

    assert (found["captured"][1], found["applied"][1], found["captured_rows"][1]) == (None,) * 3


def test_each_of_several_targets_has_its_own_lag_and_rate() -> None:
    series = Series()
    for at, first, second in ((100.0, 10, 4), (102.0, 20, 6)):
        both = replace(
            standing(20, first), name="copy", others=(replace(standing(20, second), name="lake"),)
        )
        series.add(at, both, [])

    found = series.as_json()

    assert (found["lag_commits:copy"], found["lag_commits:lake"]) == ([10, 0], [16, 14])
    assert (found["applied:copy"], found["applied:lake"]) == ([None, 5.0], [None, 1.0])
    assert found["lag_commits"] == [None, None], "of which?"
