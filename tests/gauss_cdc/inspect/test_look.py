"""What people read: `check` at 80 columns."""

import io
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from gauss_cdc.inspect.look import cut_line, findings_table, standing_table
from gauss_cdc.inspect.places import CutsStanding, ReplicationStatus
from producer.errors import CdcError
from schemas.accept import Foreign
from schemas.findings import Finding, Level
from schemas.positions import Lsn
from schemas.quoting import qualified
from schemas.tables import TableId
from spark_consumers.model import Ledger

CUTS = CutsStanding(1, 1, 1, Lsn(0), 1, "w", {}, 0)
FINDINGS = [
    Finding(
        Level.ERROR,
        "table public.a_rather_long_name",
        "has " + "no identity " * 9,
        "ALTER it\nor not",
    ),
    Finding(Level.OK, "max_replication_slots", "1 of 60 used"),
    Finding(Level.OK, "registry", "http://127.0.0.1:20660/apis/ccompat/v7"),
]


def rendered(*, is_terminal: bool, encoding: str = "utf-8") -> list[str]:
    out = io.TextIOWrapper(io.BytesIO(), encoding)
    console = Console(
        file=out, width=80, force_terminal=is_terminal, no_color=True, legacy_windows=False
    )
    console.print(findings_table(FINDINGS), highlight=False)
    out.seek(0)
    return [line.rstrip() for line in out.read().splitlines()]


@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_check_at_80_columns_is_grouped_with_hints_below_and_nothing_cut(encoding: str) -> None:
    lines = rendered(is_terminal=False, encoding=encoding)

    assert lines[:4] == [
        "ok     max_replication_slots: 1 of 60 used",
        "ok     registry: http://127.0.0.1:20660/apis/ccompat/v7",
        "",
        "error  table public.a_rather_long_name: has no identity no identity no identity",
    ]
    hints = ["       -> ALTER it", "          or not"]
    assert lines[-4:] == [*hints, "", "total  2 ok, 1 error"]
    assert max(map(len, lines)) <= 80


def test_names_and_marks_of_a_target_steer_no_terminal() -> None:
    ledger = Ledger("bank", epoch=1, inexact={"public.a\x1b[2J": "seen: \x1b]0;x\x07"})
    cuts = replace(CUTS, alarms=1, alarm="kind \x1b[2J")
    standing = ReplicationStatus(None, cuts, ledger, notes=("public.b\x1b[2J is not captured",))
    out = io.StringIO()

    Console(file=out, force_terminal=True, width=200).print(standing_table(standing))

    assert "\x1b[2J" not in out.getvalue()
    assert "\x1b]0;" not in out.getvalue()
    assert out.getvalue().count("\\x1b[2J") == 3
    foreign = cut_line(7, Foreign("kind \x1b[2J"), as_json=False)
    assert foreign.endswith("FOREIGN    kind \\x1b[2J")


@pytest.mark.parametrize(
    ("cuts", "down", "says"),
    [
        (None, {}, "no slot: `gauss-cdc run` makes it"),
        (None, {"kafka": CdcError("no answer")}, "no slot"),
        (CUTS, {}, "no slot, but cuts exist: `gauss-cdc run` stops, and names the way out"),
    ],
    ids=["a first start", "kafka is down", "a slot that was lost"],
)
def test_status_says_that_run_makes_the_slot_of_a_first_start_only(
    cuts: CutsStanding | None, down: dict[str, CdcError], says: str
) -> None:
    out = io.StringIO()
    standing = ReplicationStatus(None, cuts, None, down=down)

    Console(file=out, width=120, color_system=None).print(standing_table(standing))

    cells = [[cell.strip() for cell in line.split("│")] for line in out.getvalue().splitlines()]
    assert [cell[2] for cell in cells if cell[1:2] == ["source"]] == [says]


def test_what_others_name_steers_no_terminal(tmp_path: Path) -> None:
    console = Console(file=(tmp_path / "out").open("w"), width=80, force_terminal=True)
    console.print(findings_table([Finding(Level.ERROR, "table a\x1b[2Jb", "[red]x[/] \x9b", "")]))
    console.file.close()

    said = (tmp_path / "out").read_text()
    assert "\x1b[2J" not in said
    assert "\\x1b" in said
    assert "[red]x[/]" in said


def test_the_longest_names_are_not_cut_in_80_columns() -> None:
    """Two tables may differ in their last letter, and statements name them."""
    table = TableId("s" * 63, "t" * 63)
    standing = ReplicationStatus(None, None, Ledger("bank", inexact={str(table): "has a gap"}))
    out = io.StringIO()
    Console(file=out, width=80, color_system=None).print(standing_table(standing))

    cells = [line.split("│")[2].strip() for line in out.getvalue().splitlines() if "│" in line]
    assert f"{table} is" in "".join(cells)


def test_a_name_begins_no_line_of_a_hint() -> None:
    """It would read as a statement of ours."""
    table = TableId("public", "a\nDROP TABLE b; --")
    hint = f"ALTER TABLE {qualified(table)} REPLICA IDENTITY FULL"
    out = io.StringIO()
    console = Console(file=out, width=120, color_system=None)
    console.print(findings_table([Finding(Level.ERROR, "table", "has no key", hint)]))

    (line,) = [line for line in out.getvalue().splitlines() if "DROP" in line]
    assert line.strip() == f"-> {hint}".replace("\n", "\\n")


def test_status_says_who_read_the_records_of_the_tables_that_have_most() -> None:
    ways = {f"public.t{n}": {"driver": 1000 + n} for n in range(11)} | {"b": {"tasks": 2_000}}
    out = io.StringIO()
    console = Console(file=out, width=80, color_system=None)
    console.print(standing_table(ReplicationStatus(None, None, None), ways), highlight=False)

    lines = [" ".join(line.split("│")).split() for line in out.getvalue().splitlines()]
    said = [" ".join(line) for line in lines if "driver," in line]
    assert said[0] == "records read b: 0 by the driver, 2,000 by tasks"
    assert said[1] == "public.t10: 1,010 by the driver, 0 by tasks"
    assert len(said) == 10
    assert "and of 2 more tables: `status --json`" in out.getvalue()
