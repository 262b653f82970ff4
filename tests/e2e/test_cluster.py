"""`apply` on a standalone Spark cluster of a master and two workers, killed in the middle."""

import re
from contextlib import closing
from pathlib import Path

import pytest

from gauss_cdc_lab.services import Addresses
from gauss_cdc_lab.services.cluster import SparkCluster

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
ROWS = 300_000


def test_a_large_commit_goes_through_executors_and_survives_theirs_and_the_driver_s_death(
    addresses: Addresses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First by `gauss-cdc apply`, then by `spark-submit`; `busy` samples the target throughout."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    from cluster import SECRETS, play
    from rig import Rig

    (tmp_path / "spark").mkdir()
    with (
        SparkCluster(tmp_path / "spark", addresses) as spark,
        closing(Rig(addresses, tmp_path, {}, None)) as at,
    ):
        out = play(at, spark, ROWS, submit=True)

    assert out.kills == ["a driver during its job", "an executor during a job"]
    assert out.samples > 20
    assert out.torn == []
    assert out.is_equal
    assert out.by_executors >= out.large == ROWS - 2, out
    assert len(out.jobs) < 20
    job_of = re.compile(r": commit(s \d+\.\.\d+| \d+), [\d,]+ rows")
    assert all(job_of.search(job) for job in out.jobs)
    said = [*tmp_path.glob("*.log"), *(p for p in (tmp_path / "spark").rglob("*") if p.is_file())]
    sent = [path for path in said if re.fullmatch(r"secrets-\w+\.json", path.name)]
    assert len(said) > 10
    for name, secret in SECRETS.items():
        found = [path for path in said if secret.encode() in path.read_bytes()]
        assert found in ([], sent)
        assert name != "target" or found == []  # tasks log in at Kafka only
