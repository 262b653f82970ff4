import pytest

from producer.errors import (
    CdcError,
    ConnectionLost,
    LoginRefused,
    NotPermitted,
    SlotMissing,
    SlotTaken,
    SourceError,
)
from producer.wire.protocol import ServerError
from producer.wire.sqlstate import Asked, refusal
from schemas.errors import Verdict


@pytest.mark.parametrize(
    ("asked", "sqlstate", "error"),
    [
        (Asked.LOGIN, "28P01", LoginRefused),
        (Asked.LOGIN, "28000", LoginRefused),
        (Asked.LOGIN, "42501", NotPermitted),
        (Asked.LOGIN, "53300", ConnectionLost),
        (Asked.LOGIN, "57P03", ConnectionLost),
        (Asked.QUERY, "42501", NotPermitted),
        (Asked.QUERY, "42601", SourceError),
        (Asked.DROP_SLOT, "42704", SlotMissing),
        (Asked.START, "42704", SlotMissing),
        (Asked.START, "55006", SlotTaken),
        (Asked.STREAM, "42704", SourceError),  # a publication
        (Asked.STREAM, "57P01", ConnectionLost),
        (Asked.QUERY, "40P01", ConnectionLost),
        (Asked.QUERY, "55P03", ConnectionLost),
        (Asked.QUERY, "57014", ConnectionLost),
        (Asked.STREAM, "08006", ConnectionLost),
        (Asked.STREAM, "22P05", SourceError),
        (Asked.QUERY, "25P04", ConnectionLost),
    ],
)
def test_the_sqlstate_and_the_question_decide(
    asked: Asked, sqlstate: str, error: type[CdcError]
) -> None:
    assert type(refusal(ServerError(sqlstate=sqlstate), asked)) is error


def test_a_login_that_lacks_a_right_is_told_the_statements_that_give_it() -> None:
    """A target's role was told to be given REPLICATION, and `ALTER ROLE the user` is no SQL."""
    said = ServerError(sqlstate="42501", message="permission denied for database")
    connects = 'GRANT CONNECT ON DATABASE "bank" TO "Cdc"'
    at = {"user": "Cdc", "dbname": "bank"}

    assert refusal(said, Asked.LOGIN, **at).hint == connects
    both = f'ALTER ROLE "Cdc" WITH REPLICATION; {connects}'
    assert refusal(said, Asked.REPLICATION_LOGIN, **at).hint == both


def test_what_may_pass_by_itself_is_tried_again() -> None:
    assert refusal(ServerError(sqlstate="53300"), Asked.LOGIN).verdict is Verdict.RETRY
    assert refusal(ServerError(sqlstate="28P01"), Asked.LOGIN).verdict is Verdict.STOP


def test_the_error_says_where_and_what_to_do_but_not_the_detail() -> None:
    said = ServerError(sqlstate="55006", message="slot is active", detail="Key (id)=(7)")

    text = str(refusal(said, Asked.START, slot="bank"))

    assert text.startswith("stream refused: slot is active (sqlstate=55006, slot=bank); another")
    assert "(id)" not in text


@pytest.mark.parametrize("state", ["22P02", "22003", "P0001"])
def test_a_message_that_may_quote_a_value_is_not_repeated(state: str) -> None:
    said = ServerError(sqlstate=state, message='invalid input syntax for type integer: "4111"')

    text = str(refusal(said, Asked.QUERY, table="public.card"))

    assert "4111" not in text
    assert f"sqlstate={state}" in text
    assert "server's log" in text


@pytest.mark.parametrize("state", ["XX000", "54000", "58P01"])
def test_a_stream_that_the_server_cannot_send_has_a_way_out(state: str) -> None:
    """Each start begins with the same transaction."""
    said = ServerError(sqlstate=state, message="invalid memory alloc request size 1200000003")

    assert "--accept-gap" in refusal(said, Asked.STREAM).hint
    assert not refusal(said, Asked.QUERY).hint


def test_a_message_about_a_setting_is_repeated() -> None:
    said = ServerError(sqlstate="22023", message="unrecognized pgoutput option: proto")

    assert "proto" in str(refusal(said, Asked.START))


def test_a_character_without_a_counterpart_has_a_way_out() -> None:
    assert "--accept-gap" in refusal(ServerError(sqlstate="22P05"), Asked.STREAM).hint


def test_the_servers_hint_stands_in_where_we_have_none() -> None:
    assert refusal(ServerError(sqlstate="XX000", hint="try this"), Asked.QUERY).hint == "try this"
