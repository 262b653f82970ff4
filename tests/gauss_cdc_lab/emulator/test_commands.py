"""The replication command language, as the recorded server took and refused it."""

import pytest

from gauss_cdc_lab.emulator.commands import (
    Advance,
    CreateSlot,
    DropSlot,
    Identify,
    SqlCommand,
    StartCommand,
    parse,
)
from gauss_cdc_lab.emulator.frames import ErrorResponse


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("IDENTIFY_SYSTEM", Identify("SYSTEM")),
        ("identify_system;", Identify("SYSTEM")),
        ("IDENTIFY_MODE", Identify("MODE")),
        ("CREATE_REPLICATION_SLOT S1 LOGICAL Mppdb_Decoding", CreateSlot("s1", "mppdb_decoding")),
        ('create_replication_slot "S1" logical "X"', CreateSlot("S1", "X")),
        (
            "CREATE_REPLICATION_SLOT s LOGICAL p USE_SNAPSHOT",
            CreateSlot("s", "p", use_snapshot=True),
        ),
        ("DROP_REPLICATION_SLOT s", DropSlot("s")),
        ('DROP_REPLICATION_SLOT "s" WAIT', DropSlot("s")),
        ("start_replication slot s logical 0/0", StartCommand("s", 0)),
        (
            "START_REPLICATION SLOT \"s\" LOGICAL 1/CFE5E68 (\"a-b\" 'it''s', c, d '')",
            StartCommand("s", 0x1_0CFE_5E68, (("a-b", "it's"), ("c", None), ("d", ""))),
        ),
        ("ADVANCE_REPLICATION SLOT s LOGICAL 0/1 0/2", Advance("s", 1, 2)),
        ("SELECT 1", SqlCommand("SELECT 1")),
        ("  show server_encoding", SqlCommand("  show server_encoding")),
        ("", SqlCommand("")),
    ],
)
def test_a_command_is_understood(text: str, command: object) -> None:
    assert parse(text) == command


@pytest.mark.parametrize(
    "text",
    [
        "START_REPLICATION NONSENSE",
        'START_REPLICATION SLOT "s" LOGICAL 0/0 ()',
        "START_REPLICATION SLOT s LOGICAL 0/0 ('v')",
        "START_REPLICATION SLOT s LOGICAL 0",
        "START_REPLICATION SLOT s LOGICAL 0/0 (a 'b',)",
        "CREATE_REPLICATION_SLOT s-1 LOGICAL p",
        "CREATE_REPLICATION_SLOT s LOGICAL",
        "CREATE_REPLICATION_SLOT s TEMPORARY LOGICAL p",
        "IDENTIFY_SYSTEM now",
        'DROP_REPLICATION_SLOT ""',
    ],
)
def test_the_grammar_refuses(text: str) -> None:
    with pytest.raises(ErrorResponse, match="replication command parser returned 1") as refused:
        parse(text)
    assert refused.value.state == "42601"


@pytest.mark.parametrize(
    "text",
    [
        "START_REPLICATION SLOT s LOGICAL 0/0 (a '1)",
        "START_REPLICATION SLOT s LOGICAL 0/0 (a '1'",
        "START_REPLICATION SLOT s LOGICAL 0/0 a '1')",
        'DROP_REPLICATION_SLOT "s',
        "START_REPLICATION SLOT s LOGICAL 0/0 " + "(" * 101 + ")" * 101,
    ],
)
def test_what_is_not_balanced_is_refused_before(text: str) -> None:
    with pytest.raises(ErrorResponse, match=r"replication command, syntax error\."):
        parse(text)


def test_a_name_of_64_bytes_is_too_long() -> None:
    assert parse(f"DROP_REPLICATION_SLOT {'s' * 63}") == DropSlot("s" * 63)

    with pytest.raises(ErrorResponse, match=r"should be shorter than 64\."):
        parse(f"DROP_REPLICATION_SLOT {'s' * 64}")
