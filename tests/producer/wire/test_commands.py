import pytest

from producer.errors import DecodeError
from producer.wire import commands
from producer.wire.commands import SlotCreated, Snapshot, SystemIdentity, TimelineSwitch
from producer.wire.protocol import Answer, Frame
from schemas.positions import Lsn, parse_lsn
from tests.producer.wire.transcripts import all_conversations


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


def test_answers_are_read() -> None:
    assert commands.parse_identity([["77", "2", "0/1A", "bank"]]) == SystemIdentity(
        "77", 2, Lsn(0x1A), "bank"
    )
    assert commands.parse_slot_created([["s", "0/1A", None, "pgoutput"]]) == SlotCreated(
        "s", Lsn(0x1A), "", "pgoutput"
    )


def test_a_timeline_history_lists_where_each_ended() -> None:
    content = "1\t0/3000000\tno recovery target specified\n\n# by hand\n2\t0/5000060\t\n"

    assert commands.timeline_history(3) == "TIMELINE_HISTORY 3"
    assert commands.parse_timeline_history([["00000003.history", content]]) == (
        TimelineSwitch(1, parse_lsn("0/3000000")),
        TimelineSwitch(2, parse_lsn("0/5000060")),
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


# ---- openGauss, as recorded


def recorded_answers(command: str) -> list[Answer]:
    """What an openGauss server answered to every recorded `command`."""
    found = []
    for talk in all_conversations():
        answer: Answer | None = None
        for who, message in talk.said:
            if who == "C":
                answer = Answer() if message[:1] == b"Q" and command.encode() in message else None
            elif answer is not None and answer.take(Frame(chr(message[0]), message[5:])):
                found.append(answer)
                answer = None
    return found


def test_openGauss_says_who_it_is_in_four_columns() -> None:  # noqa: N802  a name
    answers = recorded_answers("IDENTIFY_SYSTEM")

    said = [commands.parse_identity(answer.rows) for answer in answers]
    assert {(one.system_id, one.timeline, one.dbname) for one in said} == {
        ("215046882207031935", 1, "shop")
    }
    assert all(one.xlogpos > Lsn(0) for one in said)


def test_openGauss_exports_the_snapshot_of_a_new_slot() -> None:  # noqa: N802
    answers = [a for a in recorded_answers("CREATE_REPLICATION_SLOT") if a.error is None]

    made = {(m := commands.parse_slot_created(answer.rows)).name: m for answer in answers}
    assert made["sess_slot_serial"] == SlotCreated(
        "sess_slot_serial", parse_lsn("0/3BD1D28"), "0000001C-00000004-1", "mppdb_decoding"
    )


def test_openGauss_completes_a_drop_twice() -> None:  # noqa: N802
    answers = [a for a in recorded_answers("DROP_REPLICATION_SLOT") if a.error is None]

    assert answers
    assert {answer.command for answer in answers} == {"SELECT"}


def test_start_is_written_as_openGauss_took_it() -> None:  # noqa: N802
    said = {
        message[5:-1].decode()
        for talk in all_conversations()
        for message in talk.client
        if b"START_REPLICATION" in message
    }

    options = {
        "parallel-decode-num": "2",
        "decode-style": "b",
        "sending-batch": "1",
        "include-xids": "true",
        "include-timestamp": "true",
    }
    assert commands.start("sess_slot_parallel", options, Lsn(0)) in said
    assert commands.start("sess_slot_sql", {}, Lsn(0)) in said


def test_an_option_may_have_no_value() -> None:
    assert commands.start("s", {"include-xids": None, "b": "1"}, Lsn(0)) == (
        """START_REPLICATION SLOT "s" LOGICAL 0/0 ("include-xids", "b" '1')"""
    )
