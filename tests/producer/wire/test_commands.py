import pytest

from producer.errors import DecodeError
from producer.wire import commands
from producer.wire.commands import Identity, SlotCreated, Snapshot, TimelineSwitch
from schemas.positions import Lsn


def test_a_slot_is_made_with_its_snapshot_exported() -> None:
    assert commands.create_slot("bank", "pgoutput") == (
        'CREATE_REPLICATION_SLOT "bank" LOGICAL "pgoutput" EXPORT_SNAPSHOT'
    )


def test_a_temporary_slot_may_do_without_a_snapshot() -> None:
    assert commands.create_slot("t", "p", temporary=True, snapshot=Snapshot.NONE) == (
        'CREATE_REPLICATION_SLOT "t" TEMPORARY LOGICAL "p" NOEXPORT_SNAPSHOT'
    )


def test_dropping_may_wait() -> None:
    assert commands.drop_slot("bank") == 'DROP_REPLICATION_SLOT "bank"'
    assert commands.drop_slot("bank", wait=True) == 'DROP_REPLICATION_SLOT "bank" WAIT'


def test_options_are_quoted() -> None:
    names = commands.name_list(["a", 'b"c', "d'e"])

    assert commands.start("bank", {"publication_names": names}, Lsn(0x1_0000_0020)) == (
        'START_REPLICATION SLOT "bank" LOGICAL 1/20 '
        """("publication_names" '"a","b""c","d''e"')"""
    )


def test_no_options_need_no_parentheses() -> None:
    assert commands.start("bank", {}, Lsn(0)) == 'START_REPLICATION SLOT "bank" LOGICAL 0/0'


@pytest.mark.parametrize("name", ["", "Bank", 'a"b', "a b", "x" * 64, "a\0"])
def test_a_name_that_no_slot_can_have_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="slot name"):
        commands.drop_slot(name)


def test_zero_bytes_are_refused() -> None:
    with pytest.raises(ValueError, match="zero byte"):
        commands.literal("a\0")
    with pytest.raises(ValueError, match="identifier"):
        commands.identifier("")


def test_answers_are_read() -> None:
    assert commands.parse_identity([["77", "2", "0/1A", "bank"]]) == Identity(
        "77", 2, Lsn(0x1A), "bank"
    )
    assert commands.parse_slot_created([["s", "0/1A", None, "pgoutput"]]) == SlotCreated(
        "s", Lsn(0x1A), "", "pgoutput"
    )


def test_a_timeline_history_lists_where_each_ended() -> None:
    content = "1\t0/3000000\tno recovery target specified\n\n# by hand\n2\t0/5000060\t\n"

    assert commands.timeline_history(3) == "TIMELINE_HISTORY 3"
    assert commands.parse_timeline_history([["00000003.history", content]]) == (
        TimelineSwitch(1, Lsn.parse("0/3000000")),
        TimelineSwitch(2, Lsn.parse("0/5000060")),
    )


@pytest.mark.parametrize(
    "rows",
    [[], [["77", "2", "0/1A"]], [[None, "2", "0/1A", "b"]], [["7", "x", "0/1A", "b"]],
     [["7", "2", "1A", "b"]], [["7", "1", "0/1", "b"], ["7", "1", "0/1", "b"]]],
)  # fmt: skip
def test_answers_of_another_shape_are_refused(rows: list[list[str | None]]) -> None:
    with pytest.raises(DecodeError):
        commands.parse_identity(rows)


def test_a_history_line_without_a_position_is_refused() -> None:
    with pytest.raises(DecodeError):
        commands.parse_timeline_history([["f", "1\n"]])
