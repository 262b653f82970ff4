import pytest

from producer.errors import (
    CdcError,
    ConnectionLost,
    LoginRefused,
    NotPermitted,
    OptionRefused,
    RoleDiffers,
    SlotInvalid,
    SlotMissing,
    SlotTaken,
    SourceError,
    WrongPort,
)
from producer.sources.gauss.sqlstate import is_ambiguous, refusal
from producer.wire.protocol import ServerError
from producer.wire.sqlstate import Asked
from schemas.errors import Verdict
from tests.producer.wire.transcripts import Conversation, conversations

OPTION = (Asked.START, OptionRefused)

# Case of the recording -> what was asked, what the refusal is for us.
CASES: dict[str, tuple[Asked, type[CdcError]]] = {
    "bad password": (Asked.REPLICATION_LOGIN, LoginRefused),
    "unknown user": (Asked.REPLICATION_LOGIN, LoginRefused),
    "protocol 3.2 requested": (Asked.REPLICATION_LOGIN, LoginRefused),
    "unknown database": (Asked.REPLICATION_LOGIN, LoginRefused),
    # The code is the wrong port's; we never ask for such a value.
    "bad replication value": (Asked.REPLICATION_LOGIN, WrongPort),
    "logical replication on the ordinary port while the thread pool is on": (
        Asked.REPLICATION_LOGIN,
        WrongPort,
    ),
    "ordinary client on the HA port": (Asked.LOGIN, ConnectionLost),
    "unknown slot, serial": (Asked.START, SlotMissing),
    "unknown slot, parallel": (Asked.START, SlotMissing),
    "unknown option, serial": OPTION,
    "unknown option, parallel": OPTION,
    "bad boolean, serial": OPTION,
    "bad boolean, parallel": OPTION,
    "decode-style x, parallel": OPTION,
    "sending-batch 2, parallel": OPTION,
    "decode-style given in serial mode": OPTION,
    "parallel-decode-num 21": OPTION,
    "parallel-decode-num 0": OPTION,
    "parallel-queue-size 100": OPTION,
    "standby-connection on a primary": (Asked.START, RoleDiffers),
    "white-table-list without schema": OPTION,
    "GaussDB-only option enable-heartbeat": OPTION,
    "empty option list": OPTION,
    "garbage command": OPTION,
    "unterminated string": OPTION,
    "slot name already exists": (Asked.CREATE_SLOT, SourceError),
    "bad slot name": (Asked.CREATE_SLOT, SourceError),
    "slot name of 64 characters": (Asked.CREATE_SLOT, SourceError),
    "unknown plugin": (Asked.CREATE_SLOT, SourceError),
    "drop unknown slot": (Asked.DROP_SLOT, SlotMissing),
    "slot of another database": (Asked.START, SourceError),  # and ambiguous, see below
    "failing plain SQL": (Asked.QUERY, SourceError),
    "slot in use, second START_REPLICATION": (Asked.START, SlotTaken),
    "slot in use, DROP_REPLICATION_SLOT": (Asked.DROP_SLOT, SlotTaken),
    "PostgreSQL-shaped status update": (Asked.STREAM, SourceError),
}
WITHOUT_ERROR = {
    "extended query message Sync",
    "slot in use - this connection holds the slot",
}


def error_of(talk: Conversation) -> ServerError:
    (body,) = (message[5:] for message in talk.server if message[:1] == b"E")
    return ServerError.parse(body)


@pytest.mark.parametrize("case", CASES)
def test_every_recorded_refusal_has_its_meaning(case: str) -> None:
    (talk,) = (t for t in conversations("session_errors") if t.case == case)
    asked, kind = CASES[case]
    error = error_of(talk)

    became = refusal(error, asked)
    assert type(became) is kind
    quotes_values = error.sqlstate == "22012"  # a data exception
    assert (error.message in str(became)) is not quotes_values
    assert f"sqlstate={error.sqlstate}" in str(became)
    # A slot that is busy, a role that moves, a server that starts pass; nothing else does.
    passes = kind in {SlotTaken, RoleDiffers, ConnectionLost}
    assert (became.verdict is Verdict.RETRY) == passes


def test_no_recorded_case_is_left_out() -> None:
    recorded = {talk.case for talk in conversations("session_errors")}

    assert recorded - WITHOUT_ERROR == set(CASES)


def test_recorded_errors_name_the_part_of_the_server_that_raised_them() -> None:
    errors = {
        talk.case: error_of(talk)
        for talk in conversations("session_errors")
        if talk.case not in WITHOUT_ERROR
    }

    assert errors["unknown slot, serial"].number == "18645"
    assert {error.module for error in errors.values()} == {"BACKEND", "LOGICAL_DECODE"}


@pytest.mark.parametrize(
    ("asked", "sqlstate", "kind"),
    [
        (Asked.LOGIN, "28000", LoginRefused),
        (Asked.LOGIN, "22023", SourceError),  # a setting: there is no replication to send away
        (Asked.LOGIN, "53300", ConnectionLost),
        (Asked.QUERY, "25006", RoleDiffers),
        (Asked.QUERY, "42501", NotPermitted),
        (Asked.QUERY, "57P01", ConnectionLost),
        (Asked.STREAM, "58P01", SlotInvalid),
        (Asked.STREAM, "57P01", ConnectionLost),
        (Asked.STREAM, "42809", RoleDiffers),
    ],
)
def test_other_refusals_go_by_code_and_question(
    asked: Asked, sqlstate: str, kind: type[CdcError]
) -> None:
    assert type(refusal(ServerError(sqlstate=sqlstate), asked)) is kind


def test_a_type_that_the_plugin_cannot_print_has_a_way_out() -> None:
    said = ServerError(sqlstate="22P02", message="invalid input syntax for type json")

    assert "use mppdb_decoding" in refusal(said, Asked.STREAM).hint


def test_the_initial_user_learns_why_it_may_not_log_in_from_elsewhere() -> None:
    said = ServerError(
        sqlstate="28000", message="Forbid remote connection with initial user.", severity="FATAL"
    )

    assert "make a user of your own" in refusal(said, Asked.REPLICATION_LOGIN).hint


@pytest.mark.parametrize(
    ("asked", "error", "expected"),
    [
        (Asked.START, ServerError(sqlstate="55000"), True),
        (Asked.START, ServerError(sqlstate="DB010", module="LOGICAL_DECODE"), True),
        (Asked.START, ServerError(sqlstate="XX999", module="LOGICAL_DECODE"), True),
        (Asked.START, ServerError(sqlstate="XX999", module="BACKEND"), False),
        (Asked.START, ServerError(sqlstate="22023", module="LOGICAL_DECODE"), False),
        (Asked.START, ServerError(sqlstate="55006", module="LOGICAL_DECODE"), False),
        (Asked.STREAM, ServerError(sqlstate="55000"), False),
    ],
)
def test_only_the_catalog_knows_what_some_refusals_mean(
    asked: Asked, error: ServerError, expected: bool
) -> None:
    assert is_ambiguous(error, asked) is expected
