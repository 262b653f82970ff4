"""What a comparison says, and with which exit code."""

import pytest

from gauss_cdc.verify.report import (
    DIFFERENT,
    EQUAL,
    UNDECIDED,
    RowDifference,
    RowKind,
    TableReport,
    exit_code,
)


def report(kind: RowKind | None = None, why: str = "") -> TableReport:
    out = TableReport("public.t", ("id",), undecided=why)
    if kind is not None:
        for key in ("7", "8"):
            out.add(RowDifference(kind, (key,), ("v",)), limit=1)
    return out


@pytest.mark.parametrize(
    ("reports", "code"),
    [
        ([], EQUAL),
        ([report(), report()], EQUAL),
        ([report(), report(why="it was emptied meanwhile")], UNDECIDED),
        ([report(RowKind.EXTRA), report(why="it was emptied meanwhile")], DIFFERENT),
    ],
)
def test_a_difference_counts_more_than_what_is_not_decided(reports, code) -> None:
    assert exit_code(reports) == code


def test_keys_are_values_and_come_only_when_asked_for() -> None:
    found = report(RowKind.CHANGED)

    silent, shown = found.as_json(show_keys=False), found.as_json(show_keys=True)

    assert silent["differences"] == {"missing": 0, "extra": 0, "changed": 2}
    assert "7" not in str(silent)
    assert shown["keys"] == [{"kind": "changed", "key": {"id": "7"}, "columns": ["v"]}]


def test_an_equal_table_with_two_counts_says_why() -> None:
    report = TableReport("public.t", source_rows=8788, target_rows=8915, settled=127)

    (said,) = report.remarks()
    assert said.startswith("was counted at two commits; the 127 rows that changed between them")
    assert list(TableReport("public.t", source_rows=5, target_rows=5).remarks()) == []
