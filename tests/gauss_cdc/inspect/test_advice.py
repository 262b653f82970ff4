"""What `status` and `wait` say of tables that are not exact."""

from pathlib import Path

from gauss_cdc.config import load
from gauss_cdc.inspect.advice import captured, way_out
from spark_consumers.model import Ledger

TOML = """
[source]
dsn = "postgresql://cdc@source/bank"
slot = "s"
[tables]
include = ["public.a", "public.b"]
[kafka]
prefix = "bank"
[kafka.client]
"bootstrap.servers" = "kafka:9092"
[registry]
url = "http://registry:8081"
"""


def test_a_table_that_left_tables_is_not_said_to_be_read_by_itself(tmp_path: Path) -> None:
    (tmp_path / "gauss-cdc.toml").write_text(TOML)
    config = load(tmp_path / "gauss-cdc.toml")
    gone, gap = {"public.c": "seen: it left [tables]"}, {"public.b": "seen: a gap"}

    left = way_out(config, Ledger("bank", inexact=gone))
    both = way_out(config, Ledger("bank", inexact={**gone, **gap}))

    assert left.startswith("not in [tables] any more: public.c; the target keeps the rows")
    assert "by itself" not in left
    assert both.endswith("`gauss-cdc snapshot --table public.b` asks for it")
    assert way_out(config, Ledger("bank")) == ""
    # And `wait` counts only what `[tables]` names.
    assert captured(config, {**gone, **gap}) == ["public.b"]
