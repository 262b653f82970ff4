"""Generated edits: what is made of a text, and what is left alone."""

import ast

import pytest

from tests.mutations.edits import edits
from tests.mutations.generated import all_edits, equivalent

TEXT = """
def f(self, low, position, resume, end_lsn, segment, upto, rows, at):
    self.waiting.appendleft(low)
    end = max(resume, end_lsn)
    is_between = False
    if self.at < self.due_at:
        return None
    inside = low <= position
    place = replace(segment.upto, fence=1)
    rows = bisect_right(rows, at)
    marks = {**segment.inexact, **upto.inexact}
    self.note("said")
    rest = [*sorted(marks), *rows.strip().partition("-")]
    rest.append(any(rest))
    return True
"""


def said(text: str, *, is_fine: bool) -> list[str]:
    return [e.says for e in edits("f.py", ast.parse(text)) if e.is_fine is is_fine]


def test_what_nobody_noticed_once_is_tried() -> None:
    assert {
        "append for self.waiting.appendleft(low)",
        "end_lsn for max(resume, end_lsn)",
        "True for False in is_between = False",
        "if not (self.at < self.due_at)",
        "self.at <= self.due_at for self.at < self.due_at",
        "low < position for low <= position",
        "left out of replace: fence=1",
        "bisect_left for bisect_right(rows, at)",
        "left out of a dictionary: segment.inexact",
        "False for True in return True",
        "left out: self.waiting.appendleft(low)",
    } <= set(said(TEXT, is_fine=False))


def test_what_is_only_said_is_left_alone() -> None:
    assert not [edit for edit in said(TEXT, is_fine=False) if "said" in edit]


def test_finer_edits_are_told_apart() -> None:
    assert "if True for self.at < self.due_at" in said(TEXT, is_fine=True)


def test_an_edit_changes_the_tree() -> None:
    tree = ast.parse("def f(a):\n    return a < 1\n")
    (edit,) = (e for e in edits("f.py", tree) if e.says == "a <= 1 for a < 1")

    edit.apply()

    assert ast.unparse(tree) == "def f(a):\n    return a <= 1"


@pytest.mark.parametrize("name", [edit.name for edit in edits("f.py", ast.parse(TEXT))])
def test_an_edited_text_compiles(name: str) -> None:
    """Or whoever plays it fails, and no test has noticed anything."""
    tree = ast.parse(TEXT)

    next(edit for edit in edits("f.py", tree) if edit.name == name).apply()

    compile(ast.fix_missing_locations(tree), "f.py", "exec")


def test_edits_that_are_excused_are_still_made() -> None:
    assert equivalent().keys() <= {edit.name for edit in all_edits()[0]}
