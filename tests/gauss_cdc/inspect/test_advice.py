"""What `status` and `wait` say of tables that are not exact."""

import shlex
from pathlib import Path

import click
import pytest

from gauss_cdc.commands.base import tables_of
from gauss_cdc.config import load
from gauss_cdc.inspect.advice import captured, late, way_out
from schemas.control import GAP, LoadPhase
from schemas.tables import TableId
from spark_consumers.cuts.ledger import ALTERED, LACKS_ROW, LATE
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

    loads = {"public.b": GAP}
    left = way_out(config, Ledger("bank", inexact=gone), {})
    both = way_out(config, Ledger("bank", inexact={**gone, **gap}), loads)

    assert left.startswith("not in [tables] any more: public.c; the target keeps the rows")
    assert "by itself" not in left
    assert both.endswith("`gauss-cdc snapshot --table public.b` asks for it")
    assert way_out(config, Ledger("bank"), {}) == ""
    # And `wait` counts only what `[tables]` names.
    assert captured(config, {**gone, **gap}) == ["public.b"]


@pytest.mark.parametrize(
    ("why", "phase", "way"),
    [
        (LACKS_ROW, LoadPhase.END, "makes it equal"),
        (LACKS_ROW, GAP, "by itself"),  # `run` saw a gap, too
        (LACKS_ROW, LoadPhase.BEGIN, "by itself"),
        ("seen: rows came from a table that is not loaded here", None, "makes it equal"),
        ("seen: a row in quarantine", LoadPhase.END, "makes it equal"),
        (ALTERED, LoadPhase.END, "others altered public.b: alter it back, then"),
        (ALTERED, GAP, "others altered public.b: alter it back, then"),
    ],
)
def test_only_a_gap_that_run_knows_is_said_to_be_read_by_itself(
    why: str, phase: str | None, way: str, tmp_path: Path
) -> None:
    (tmp_path / "gauss-cdc.toml").write_text(TOML)
    config = load(tmp_path / "gauss-cdc.toml")
    loads = {} if phase is None else {"public.b": phase}

    said = way_out(config, Ledger("bank", inexact={"public.b": why}), loads)

    assert way in said
    assert ("by itself" in said) == (way == "by itself")
    behind = way_out(config, Ledger("bank", 1, 5, inexact={"public.b": why}), loads, newest=(1, 6))
    assert ("a load may be on its way; if it stays so" in behind) == (way == "makes it equal")
    assert "`gauss-cdc snapshot --table public.b`" in said


@pytest.mark.parametrize("odd", [TableId("app.v2", "t"), TableId("public", 'x."y')])
def test_a_table_with_dots_is_found_in_tables_and_what_is_printed_can_be_typed(
    odd: TableId, tmp_path: Path
) -> None:
    include = """'"app.v2".*', 'public."x.""y"'"""
    text = TOML.replace('"public.a", "public.b"', include)
    (tmp_path / "gauss-cdc.toml").write_text(text)
    config, gap = load(tmp_path / "gauss-cdc.toml"), {str(odd): "seen: a gap"}

    said = way_out(config, Ledger("bank", inexact=gap), {})

    assert captured(config, gap) == [str(odd)]
    (typed,) = shlex.split(said.partition("gauss-cdc snapshot --table ")[2].partition("`")[0])
    assert tables_of([typed]) == [odd]
    assert late(Ledger("bank", inexact={str(odd): LATE})) == [str(odd)]


def test_a_request_for_a_name_that_may_be_two_tables_is_refused() -> None:
    with pytest.raises(click.UsageError, match=r'app\.v2\.t .* as "a\.b"\.c'):
        tables_of(["app.v2.t"])


@pytest.mark.parametrize("include", ['"public.a"', '"*.*"'])
def test_a_mark_of_any_table_counts_and_only_an_epoch_with_loads_ends_it(
    include: str, tmp_path: Path
) -> None:
    text = TOML.replace('"public.a", "public.b"', include)
    (tmp_path / "gauss-cdc.toml").write_text(text)
    config, gap = load(tmp_path / "gauss-cdc.toml"), {"*": "seen: a message"}

    said = way_out(config, Ledger("bank", inexact=gap), {})

    assert captured(config, gap) == ["*"]
    assert "--accept-gap" in said
    assert "[tables]" not in said
    assert "snapshot" not in said
