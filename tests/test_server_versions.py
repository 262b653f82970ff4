"""The page of PostgreSQL's versions has what `make test-versions` plays."""

from pathlib import Path

import pytest

from tests.versions import (
    AREAS,
    DEMO,
    PAGE,
    ROOT,
    VERSIONS,
    Area,
    Counts,
    column,
    filled,
    full_name,
)

EMPTY = "<!-- begin versions -->\n| area |\n| --- |\n{}<!-- end versions -->"


def test_the_page_has_each_area() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]

    assert cells[0][1:]
    assert {*cells[0]} <= {"area", *map(full_name, VERSIONS)}
    assert [row[0] for row in cells[2:]] == [area.what for area in (*AREAS, DEMO)]


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.what)
def test_each_area_has_its_files(area: Area) -> None:
    assert all(Path(ROOT, "tests", f"{file}.py").is_file() for file in area.files)


def test_a_version_replaces_its_own_column() -> None:
    areas = (*AREAS, DEMO)
    page = EMPTY.format("".join(f"| {area.what} |\n" for area in areas))

    page = filled(page, column("18", {area.what: Counts(passed=3) for area in areas}))
    page = filled(page, column("14", {area.what: Counts(1, 1) for area in areas}))
    page = filled(page, column("14", {area.what: Counts(2, 0, 1) for area in areas}))

    assert "| area | 14.20 | 18.4 |\n| --- | --- | --- |\n" in page
    assert "| types | 2, 1 not there | 3 |\n" in page
    assert "| promotion | from 17 on | 3 |\n" in page
