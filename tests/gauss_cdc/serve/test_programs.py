"""What a program counted, as metrics: bounded, however many tables there are."""

from collections import Counter

from gauss_cdc.config import Config
from gauss_cdc.serve.counts import ApplyCounts, Turns
from gauss_cdc.serve.programs import ApplyMetrics
from schemas.control import Commits, Head
from spark_consumers.loop.job import AppliedStep as Applied
from spark_consumers.model import Ledger, Segment, Ways

CONFIG = Config.model_validate(
    {
        "source": {"dsn": "postgresql://nobody@127.0.0.1:1/none"},
        "kafka": {"prefix": "bank", "client": {"bootstrap.servers": "127.0.0.1:1"}},
        "registry": {"url": "http://127.0.0.1:1"},
        "serve": {"tables": 100},
    }
)


def test_two_thousand_tables_are_a_hundred_and_a_sum() -> None:
    by_driver = Counter({f"bank.public.t{n}": n for n in range(2_000)})
    marks = {f"public.t{n}": "rows are missing" for n in range(2_000)}
    ledger = Ledger("bank", epoch=1, seq=7, state="INEXACT", inexact=marks)
    segment = Segment(Commits(Head(1, 1, 1, "i", 1, 0, 1), (), ()), ledger, ledger)
    ways = Ways(by_driver, Counter({"bank.public.t1999": 5}))
    counts = ApplyCounts(lambda _: None, Turns(1), ready_lag=1)
    counts.on_progress(Applied(segment, ledger, 1, 1, 1, ways))

    found = {one.name: one.samples for one in ApplyMetrics(CONFIG, counts).collect()}

    applied = {
        (one.labels["table"], one.labels["way"]): one.value
        for one in found["gauss_cdc_table_applied"]
    }
    assert len(applied) == 102
    assert sum(applied.values()) == by_driver.total() + 5
    assert applied["other", "tasks"] == 5
    assert len(found["gauss_cdc_table_inexact"]) == 101
    assert found["gauss_cdc_other_tables"][0].value == 1_900
