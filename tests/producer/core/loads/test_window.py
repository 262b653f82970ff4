"""A window is a place if the stream shows nothing of its table between the marks."""

from typing import Any

import pytest

from producer.core.changes import (
    Begin,
    Commit,
    Delete,
    Insert,
    Lost,
    Mark,
    Message,
    Relation,
    Truncate,
    Undecoded,
    Update,
)
from producer.core.loads.window import UNKNOWN, MarkTokens, NothingThere, QuietWindow
from producer.core.shape_change import StatementChanges
from schemas.control import Origin
from schemas.positions import Lsn
from schemas.tables import ReplicaIdentity, TableId

A, B = TableId("public", "a"), TableId("public", "b")
OURS, OTHER, NAMESAKE = 1, 2, 3
RELATIONS = {
    number: Relation(number, *table, ReplicaIdentity.DEFAULT, ())
    for number, table in ((OURS, A), (OTHER, B), (NAMESAKE, TableId("old", "a")))
}
STATEMENT = StatementChanges((), Origin.DEPARSED)


def seen(window: QuietWindow, at: int, *messages: Message) -> QuietWindow:
    """A transaction of the stream, by the place of its commit."""
    window.pass_by(Begin(Lsn(at), 0, 1))
    for message in (*messages, Commit(Lsn(at), Lsn(at + 1), 0)):
        window.watch(message, RELATIONS.__getitem__)
    return window


def by_positions() -> QuietWindow:
    return QuietWindow(A, NothingThere(), int, low=10, at=20)


def by_marks() -> QuietWindow:
    return QuietWindow(A, NothingThere(), int, marks=MarkTokens(71, 72))


@pytest.mark.parametrize(
    "message",
    [
        Insert(OURS, []),
        Update(OURS, "", None, []),
        Delete(OURS, "K", []),
        Truncate((OTHER, OURS), cascade=False, restart_identity=False),
        Lost("", "", "seen", "an undecodable message"),
        Lost("public", "a", "seen", "rows"),
        STATEMENT,
        Undecoded(b"", "why"),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_touches_the_table_between_the_marks_ends_the_quiet(message: Message) -> None:
    assert not seen(by_positions(), 15, message).is_quiet
    assert not seen(by_positions(), 15, message, Insert(OTHER, [])).is_quiet


@pytest.mark.parametrize(
    "message",
    [
        Insert(OTHER, []),
        Delete(NAMESAKE, "K", []),
        Truncate((OTHER,), cascade=False, restart_identity=False),
        Lost("public", "b", "seen", "rows"),
        Mark(71),
    ],
    ids=lambda message: type(message).__name__,
)
def test_what_happens_to_others_does_not(message: Message) -> None:
    assert seen(by_positions(), 15, message).is_quiet


@pytest.mark.parametrize(("at", "is_quiet"), [(9, True), (10, False), (19, False), (20, True)])
def test_a_commit_at_low_may_be_missing_in_the_snapshot_and_one_at_high_is_behind_the_place(
    at: int, is_quiet: bool
) -> None:
    assert seen(by_positions(), at, Insert(OURS, [])).is_quiet is is_quiet


def test_a_window_of_marks_is_what_stands_between_their_transactions() -> None:
    window = by_marks()
    assert window.awaited == "the low mark, 71"
    seen(window, 30, Insert(OURS, []))
    seen(window, 31, Mark(70), Mark(71))
    assert (window.low, window.awaited) == (31, "the high mark, 72")
    seen(window, 32, Insert(OTHER, []))
    seen(window, 33, Mark(72))

    assert (window.is_quiet, window.at, window.awaited, window.left_out) == (True, 34, "", "")
    assert window.passed == 4
    assert seen(window, 34, Insert(OURS, [])).is_quiet


def test_a_change_between_two_marks_is_noticed() -> None:
    window = seen(by_marks(), 31, Mark(71))

    assert not seen(window, 32, Insert(OURS, [])).is_quiet


def test_a_high_mark_without_a_low_one_says_which_is_missing() -> None:
    window = seen(by_marks(), 33, Mark(72))

    assert (window.left_out, window.at) == ("the low mark, 71", 34)


def test_the_rest_of_a_transaction_that_was_open_is_before_the_window() -> None:
    window = by_positions()
    window.watch(Insert(OURS, []), RELATIONS.__getitem__)

    assert window.is_quiet


def test_positions_await_no_mark() -> None:
    window = QuietWindow(A, NothingThere(), int, low=10)

    assert (window.at, window.awaited) == (UNKNOWN, "")


def test_the_snapshot_goes_with_the_window() -> None:
    closed: list[Any] = []
    QuietWindow(A, NothingThere(), lambda: closed.append(A)).close()

    assert closed == [A]


def test_a_table_that_is_gone_has_nothing() -> None:
    rows: list[Any] = []
    NothingThere().copy_rows(A, (), rows.append)

    assert (NothingThere().shapes([A]), NothingThere().estimated_rows(A), rows) == ([], 0, [])
