"""The openGauss driver against recorded sessions of a real server, replayed over a socket."""

import contextlib
import itertools
import re
import struct
from dataclasses import replace

import pytest

from producer.errors import (
    CdcError,
    ConnectionLost,
    DecodeError,
    LoginRefused,
    OptionRefused,
    RoleDiffers,
    SlotInvalid,
    SlotMismatch,
    SlotMissing,
    SlotOrphaned,
    SlotTaken,
    SourceError,
    WrongPort,
)
from producer.sources import session_settings
from producer.sources.gauss.connection import GaussConnection, Unexplained
from producer.wire import protocol
from producer.wire.replication import WalMessage
from schemas.positions import Lsn
from tests.producer.sources.recorded_server import RecordedServer, recorded_server
from tests.producer.wire import server_side
from tests.producer.wire.transcripts import Conversation, conversations


def case(name: str) -> Conversation:
    (talk,) = (talk for talk in conversations("session_errors") if talk.case == name)
    return talk


def logged_in() -> Conversation:
    """A recorded login for replication, up to the first ReadyForQuery."""
    talk = conversations("session_serial")[0]
    ready = next(i for i, (who, m) in enumerate(talk.said) if who == "S" and m[:1] == b"Z")
    return replace(talk, said=talk.said[: ready + 1])


def answering(*rows: tuple[str | None, ...]) -> Conversation:
    """A login, then one question answered with these rows."""
    frames = [("C", b"Q")]
    for row in rows:
        cells = b"".join(
            struct.pack(">i", -1) if cell is None else struct.pack(">i", len(cell)) + cell.encode()
            for cell in row
        )
        frames.append(("S", protocol.frame(b"D", struct.pack(">H", len(row)) + cells)))
    frames += [("S", protocol.frame(b"C", b"SELECT\0")), ("S", protocol.frame(b"Z", b"I"))]
    talk = logged_in()
    return replace(talk, said=[*talk.said, *frames])


def receive(connection: GaussConnection, count: int) -> list[WalMessage]:
    messages: list[WalMessage] = []
    while len(messages) < count:
        messages += connection.receive(10).messages
    return messages


def payloads(talk: Conversation) -> list[bytes]:
    return [message[30:] for message in talk.server if message[:1] == b"d" and message[5:6] == b"w"]


def options_of(talk: Conversation) -> dict[str, str]:
    (said,) = (message for message in talk.client if b"START_REPLICATION" in message)
    return dict(re.findall(r"\"([a-z-]+)\" '([^']*)'", said[5:].decode()))


SESSIONS = {
    "session_serial": ("sess_slot_serial", "mppdb_decoding"),
    "session_parallel_b_batch1": ("sess_slot_parallel", "mppdb_decoding"),
    "session_parallel_t_batch0": ("sess_slot_par_t", "mppdb_decoding"),
    "session_sql": ("sess_slot_sql", "sql_decoding"),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_recorded_session_goes_through_from_login_to_drop(name: str) -> None:
    talk, dropping = conversations(name)
    created = next(m for m in talk.client if b"CREATE_REPLICATION_SLOT" in m)
    slot, plugin = re.findall(r'SLOT "([a-z_]+)" LOGICAL ([a-z_]+)', created[5:].decode())[0]
    questions = [m[5:-1].decode() for m in talk.client if m[:1] == b"Q"]
    statuses = sum(message[:1] == b"d" for message in talk.client)

    with recorded_server([talk, dropping]) as server:
        with GaussConnection.open(server.arguments()) as connection:
            said = connection.identify()
            made = connection.create_slot(slot, plugin)
            for question in questions[2:-1]:
                connection.query(question)
            connection.start(slot, options_of(talk))
            expected = payloads(talk)
            before = next(i for i, m in enumerate(talk.said) if m[0] == "C" and m[1][:1] in b"dc")
            first = payloads(replace(talk, said=talk.said[:before]))
            got = receive(connection, len(first))
            for _ in range(statuses):
                connection.send_status(Lsn(got[-1][0]))
            got += receive(connection, len(expected) - len(got))
        with GaussConnection.open(server.arguments()) as connection:
            connection.drop_slot(slot)

    assert said.system_id == "215046882207031935"
    assert (made.name, made.plugin) == (slot, plugin)
    assert re.fullmatch(r"[0-9A-F]{8}-[0-9A-F]{8}-1", made.snapshot)
    assert [payload for _, _, payload in got] == expected
    # What we said is what the recording client said, but for its times and unquoted plugin.
    theirs = [q.replace(f"LOGICAL {plugin}", f'LOGICAL "{plugin}"') for q in questions]
    assert server.statements(0) == theirs
    assert [len(m) for m in server.heard[0] if m[:1] == b"d"] == [70] * statuses
    assert server.heard[0][-1] == b"c\0\0\0\4"


def test_the_login_asks_for_3_51_and_for_our_settings() -> None:
    with recorded_server([logged_in()]) as server, GaussConnection.open(server.arguments()) as one:
        assert one.parameters["server_encoding"] == "UTF8"
        assert one.backend_pid == 0  # a walsender names none
        assert one.timeline_history(7) == ()

    startup = server.heard[0][0]
    assert startup[4:8] == b"\0\3\0\x33"
    pairs = startup[8:-2].split(b"\0")
    said = dict(zip(pairs[::2], pairs[1::2], strict=True))
    assert said[b"replication"] == b"database"
    ours = {name.encode(): value.encode() for name, value in session_settings.GAUSS.items()}
    assert ours.items() <= said.items()


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("bad password", LoginRefused),
        ("unknown user", LoginRefused),
        ("unknown database", LoginRefused),
        ("protocol 3.2 requested", LoginRefused),
    ],
)
def test_a_refused_login_is_reported(name: str, kind: type[CdcError]) -> None:
    with (
        recorded_server([case(name)]) as server,
        pytest.raises(kind, match="user=cdc_user") as caught,
    ):
        GaussConnection.open(server.arguments())
    assert type(caught.value) is kind


def test_a_database_that_is_gone_leaves_a_slot_to_drop() -> None:
    with (
        recorded_server([case("unknown database")]) as server,
        pytest.raises(LoginRefused, match="drop it from another database"),
    ):
        GaussConnection.open(server.arguments())


def test_an_ordinary_session_at_the_ha_port_may_be_tried_again() -> None:
    with (
        recorded_server([case("ordinary client on the HA port")]) as server,
        pytest.raises(ConnectionLost, match="HA port"),
    ):
        GaussConnection.open(server.arguments(), replication=False)


WRONG_PORT = "logical replication on the ordinary port while the thread pool is on"


def test_replication_finds_the_ha_port_next_to_the_main_one() -> None:
    with contextlib.ExitStack() as stack:
        main = neighbours(stack)
        with GaussConnection.open(main.arguments()) as connection:
            assert connection.arguments.port == main.port + 1


def neighbours(stack: contextlib.ExitStack) -> RecordedServer:
    """A server that sends replication away, and one at the next port that takes it."""
    while True:
        main = stack.enter_context(recorded_server([case(WRONG_PORT)]))
        with contextlib.suppress(OSError):  # the next port is somebody else's
            stack.enter_context(recorded_server([logged_in()], port=main.port + 1))
            return main


def test_the_ha_port_may_be_named_for_all_hosts() -> None:
    with recorded_server([logged_in()]) as server:
        arguments = server.arguments(port=1)
        with GaussConnection.open(
            arguments, hosts=["127.0.0.1:1"], replication_port=server.port
        ) as connection:
            assert connection.arguments.port == server.port


def test_where_no_ha_port_is_found_the_hint_names_it() -> None:
    with (
        recorded_server([case(WRONG_PORT)]) as server,
        pytest.raises(WrongPort, match="enable_thread_pool"),
    ):
        GaussConnection.open(server.arguments())


COMMANDS = {
    "slot name already exists": SourceError,
    "unknown plugin": SourceError,
    "drop unknown slot": SlotMissing,
    "slot in use, DROP_REPLICATION_SLOT": SlotTaken,
    "failing plain SQL": SourceError,
}


def run(connection: GaussConnection, statement: str) -> None:
    if made := re.findall(r'CREATE\w+ "(\w+)" LOGICAL (\w+)', statement):
        connection.create_slot(*made[0])
    elif dropped := re.findall(r'DROP\w+ "(\w+)"', statement):
        connection.drop_slot(dropped[0])
    else:
        connection.query(statement)


@pytest.mark.parametrize("name", COMMANDS)
def test_a_refused_command_ends_the_session(name: str) -> None:
    talk = case(name)
    (statement,) = (m[5:-1].decode() for m in talk.client if m[:1] == b"Q")
    with recorded_server([talk]) as server, GaussConnection.open(server.arguments()) as one:
        with pytest.raises(COMMANDS[name]) as caught:
            run(one, statement)

        assert type(caught.value) is COMMANDS[name]
        with pytest.raises(ConnectionLost, match="session is over"):
            one.query("SELECT 1")


STARTS = {
    "unknown slot, serial": SlotMissing,
    "unknown option, serial": OptionRefused,  # told after the turn to streaming
    "unknown option, parallel": OptionRefused,
    "bad boolean, serial": OptionRefused,
    "sending-batch 2, parallel": OptionRefused,
    "standby-connection on a primary": RoleDiffers,
    "GaussDB-only option enable-heartbeat": OptionRefused,
    "slot in use, second START_REPLICATION": SlotTaken,
}


@pytest.mark.parametrize("name", STARTS)
def test_start_reports_what_is_wrong_in_either_mode(name: str) -> None:
    talk = case(name)
    with recorded_server([talk]) as server, GaussConnection.open(server.arguments()) as one:
        with pytest.raises(STARTS[name], match="stream refused") as caught:
            one.start("s", options_of(talk))
        assert type(caught.value) is STARTS[name]


SLOT = "sess_slot_err"
EXPLAINED = {
    "missing": ((("other", "logical", "shop", "0/1", "shop"),), SlotMissing),
    "physical": (((SLOT, "physical", None, "0/1", "shop"),), SlotMismatch),
    "of another database": (((SLOT, "logical", "postgres", "0/1", "shop"),), SlotMismatch),
    "of a dropped database": (((SLOT, "logical", None, "0/1", "shop"),), SlotOrphaned),
    "invalid": (((SLOT, "logical", "shop", "FFFFFFFF/FFFFFFFF", "shop"),), SlotInvalid),
}


@pytest.mark.parametrize("what", EXPLAINED)
def test_the_catalog_is_asked_what_a_code_of_many_meanings_meant(what: str) -> None:
    rows, kind = EXPLAINED[what]
    talks = [case("slot of another database"), answering(*rows)]
    with recorded_server(talks) as server, GaussConnection.open(server.arguments()) as one:
        with pytest.raises(kind) as caught:
            one.start(SLOT, {})
        assert type(caught.value) is kind
        assert caught.value.where["slot"] == SLOT


def test_a_parallel_start_that_finds_its_slot_after_all_is_tried_again() -> None:
    usable = answering(("no_such_slot", "logical", "shop", "0/1", "shop"))
    talks = [case("unknown slot, parallel"), usable]
    with (
        recorded_server(talks) as server,
        GaussConnection.open(server.arguments()) as one,
        pytest.raises(Unexplained, match="decoders"),
    ):
        one.start("no_such_slot", {"parallel-decode-num": "2"})


def test_without_a_second_connection_the_servers_own_words_must_do() -> None:
    talks = [case("slot of another database")]
    with (
        recorded_server(talks) as server,
        GaussConnection.open(server.arguments()) as one,
        pytest.raises(SourceError, match="was not created in this database"),
    ):
        one.start(SLOT, {})


def test_a_stream_that_the_server_ends_says_why_after_its_last_message() -> None:
    talk = case("PostgreSQL-shaped status update")
    with recorded_server([talk]) as server, GaussConnection.open(server.arguments()) as one:
        one.start(SLOT, {})
        assert one.receive(10).keepalive_end > Lsn(0)
        one.send_status(Lsn(0))
        with pytest.raises(SourceError, match="insufficient data left in message"):
            receive(one, 1)


GONE = protocol.frame(
    b"E",
    b"SFATAL\0C58P01\0Mrequested WAL segment 000000010000000000000001 has already been removed\0\0",
)


def started(*more: bytes) -> Conversation:
    """A stream that begins with a message, and how it goes on before the server hangs up."""
    talk = logged_in()
    data = protocol.copy_data(server_side.xlog_data(Lsn(5), Lsn(5), b"BEGIN 1"))
    reported = [("S", frame) for frame in (protocol.frame(b"W", b"\0\0\0"), data, *more)]
    return replace(talk, said=[*talk.said, ("C", b"Q"), *reported])


def go_on(one: GaussConnection, *, reading: bool = False) -> None:
    """Say that we live until the kernel knows that nobody listens."""
    while True:
        one.send_status(Lsn(0))
        if reading:
            one.receive(0)


def test_a_status_for_a_server_that_has_left_does_not_hide_what_it_said() -> None:
    with (
        recorded_server([started(GONE)]) as server,
        GaussConnection.open(server.arguments()) as one,
    ):
        one.start(SLOT, {})
        if not one.receive(10).messages:
            receive(one, 1)
        with pytest.raises(SlotInvalid, match="has already been removed"):
            go_on(one, reading=True)


def test_a_status_that_cannot_be_sent_raises_the_servers_error() -> None:
    with (
        recorded_server([started(GONE)]) as server,
        GaussConnection.open(server.arguments()) as one,
    ):
        one.start(SLOT, {})
        with pytest.raises(SlotInvalid, match="has already been removed"):
            go_on(one)


def test_a_server_that_left_without_a_word_is_a_lost_connection() -> None:
    with recorded_server([started()]) as server, GaussConnection.open(server.arguments()) as one:
        one.start(SLOT, {})
        with pytest.raises(ConnectionLost):
            go_on(one)


def test_roles_are_looked_up_and_hosts_tried_in_order() -> None:
    with (
        recorded_server([answering(("t",))]) as standby,
        recorded_server([answering(("f",))]) as primary,
    ):
        hosts = ["127.0.0.1:1", f"127.0.0.1:{standby.port}", f"127.0.0.1:{primary.port}"]
        with GaussConnection.open(standby.arguments(), hosts=hosts, role="primary") as one:
            assert one.arguments.port == primary.port


def test_a_role_that_no_host_has_is_reported() -> None:
    with (
        recorded_server([answering(("f",))]) as server,
        pytest.raises(RoleDiffers, match=r"is a primary \(asked_for=standby"),
    ):
        GaussConnection.open(server.arguments(), role="standby")


def endless(talk: Conversation, frame: bytes) -> Conversation:
    """A server that goes on with one frame until the client has had enough."""
    return replace(talk, said=itertools.chain(talk.said, itertools.repeat(("S", frame))))


NOTICE = protocol.frame(b"N", b"SNOTICE\0C00000\0Mhello\0\0")


def test_a_peer_that_never_stops_sending_is_left() -> None:
    other_client = endless(Conversation({}, said=[("C", b"")]), NOTICE * 100)
    with (
        recorded_server([other_client]) as server,
        pytest.raises(ConnectionLost, match="login takes too long"),
    ):
        GaussConnection.open(server.arguments(connect_timeout=0.3))


def test_notices_do_not_keep_a_stream_from_starting() -> None:
    talk = logged_in()
    started = [*talk.said, ("C", b"Q"), ("S", protocol.frame(b"W", b"\0\0\0"))]
    talk = endless(replace(talk, said=started), NOTICE * 100)
    with recorded_server([talk]) as server, GaussConnection.open(server.arguments()) as one:
        one.start("s", {})
        assert one.receive(1).messages == []


def test_what_is_no_database_is_refused() -> None:
    other_client = Conversation({}, said=[("C", b""), ("S", b"HTTP/1.1 400 Bad Request\r\n\r\n")])
    with recorded_server([other_client]) as server, pytest.raises(DecodeError):
        GaussConnection.open(server.arguments())


def test_a_slot_is_released_when_the_catalog_says_so() -> None:
    busy, free = answering(("s",)), answering(("other",))
    talk = replace(busy, said=[*busy.said, *free.said[len(logged_in().said) :]])
    with recorded_server([talk]) as server, GaussConnection.open(server.arguments()) as one:
        assert one.wait_released("s", 60)
        assert len(server.statements()) == 2


def test_a_slot_that_stays_busy_is_reported() -> None:
    talks = [answering(("s",))]
    with recorded_server(talks) as server, GaussConnection.open(server.arguments()) as one:
        assert not one.wait_released("s", 0)


def test_only_a_stream_gives_messages() -> None:
    with (
        recorded_server([logged_in()]) as server,
        GaussConnection.open(server.arguments()) as one,
        pytest.raises(SourceError, match="not streaming"),
    ):
        one.receive(0)
