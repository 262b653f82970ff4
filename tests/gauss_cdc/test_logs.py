"""What stands on stderr: one format, no forged lines, nothing dozens of times a second."""

import json
import logging
import re
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from gauss_cdc import logs
from gauss_cdc.cli import cli
from producer.kafka.client import LOGGED
from schemas.positions import CommitKey
from schemas.tables import TableId

_log = logging.getLogger("gauss_cdc.run")
LINE = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (INFO|WARNING|ERROR) +gauss_cdc\.run: "
)


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    logs.reset()
    yield
    logs.reset()
    logs.set_up()


def test_a_service_logs_time_with_zone_level_area_and_context(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up()
    logs.of_service()
    logs.log(
        _log, logging.INFO, "streamed", rows=3, position=CommitKey(1, 5001, 0), why="two words"
    )
    _log.debug("not asked for")

    said = capsys.readouterr().err
    assert LINE.match(said)
    assert said.endswith(
        'INFO    gauss_cdc.run: streamed rows=3 position=1/5001/0 why="two words"\n'
    )


def test_one_of_several_targets_stands_in_each_line(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    logs.of_service("lake")
    logs.log(_log, logging.INFO, "applied", rows=3)
    logs.set_up(format="json")
    _log.error("ended")

    text, said = capsys.readouterr().err.splitlines()
    assert text.endswith("gauss_cdc.run: applied target=lake rows=3")
    assert logs.newest()[-2].endswith("applied target=lake rows=3")
    assert json.loads(said)["target"] == "lake"


def test_json_is_one_object_a_line_with_numbers_as_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up(format="json")
    logs.of_service()
    logs.log(
        _log,
        logging.INFO,
        "a\nb",
        rows=3,
        table=TableId("s", "t"),
        at=CommitKey(1, 2, 3),
        level="x",
    )
    _log.error("two\nlines", exc_info=ValueError("why"))

    first, second = map(json.loads, capsys.readouterr().err.splitlines())
    assert first["message"] == "a\nb"
    assert (first["level"], first["level_"], first["logger"]) == ("info", "x", "gauss_cdc.run")
    assert (first["rows"], first["table"], first["at"]) == (3, "s.t", "1/2/3")
    assert "ValueError: why" in second["traceback"]


def test_what_others_name_forges_no_line_and_steers_no_terminal(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.set_up()
    logs.of_service()
    forged = "2026-01-01T00:00:00.000+00:00 INFO    gauss_cdc.run: all is well"
    _log.info("table s.t\n%s\x1b[2J\r\u202eis gone", forged)
    logs.log(_log, logging.INFO, "loaded", table=f"x\n{forged}")

    said = capsys.readouterr().err
    assert len([line for line in said.splitlines() if LINE.match(line)]) == 2
    assert not {"\x1b", "\r", "\u202e"} & set(said)


def test_a_command_that_ends_soon_writes_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    logs.set_up()
    _log.info("not asked for")
    logs.log(_log, logging.ERROR, "the target is down", exit_code=60)

    assert capsys.readouterr().err == "gauss-cdc: the target is down\n"


def test_a_line_that_repeats_is_written_once_in_a_window_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    logger = logging.getLogger("test.limited")
    logger.addFilter(logs.Limit(30, clock=lambda: now))
    for number in range(50):
        now = number * 0.5
        logger.warning(
            "FAIL [rdkafka#producer-%d] [thrd:b:1]: b:1: refused (after %dms in state UP)",
            number,
            number,
        )
        logger.warning("another")
    now = 31.0
    logger.warning("FAIL [rdkafka#producer-7] [thrd:b:1]: b:1: refused (after 1ms in state UP)")

    assert caplog.messages == [
        "FAIL b:1: refused",
        "another",
        "FAIL b:1: refused (50 times in 31 s)",
    ]


def test_librdkafkas_lines_come_through_our_log_and_not_by_the_dozen(
    capfd: pytest.CaptureFixture[str],
) -> None:
    logs.set_up(format="json")
    logs.of_service()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and no server listens
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        client = AdminClient({**LOGGED, "bootstrap.servers": address})
        with pytest.raises(KafkaException):
            client.list_topics(timeout=1)
        assert client.poll(0) > 0

    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert {one["logger"] for one in said} == {"librdkafka"}
    assert len(said) < 12  # it tries every 100 ms, and says so in two or three texts
    assert f"{address}" in said[0]["message"]
    assert "Connection refused" in said[0]["message"]


@pytest.mark.parametrize(
    "words",
    [
        ("--log-format", "json", "--log-level", "error", "run"),
        ("run", "--log-format", "json", "--log-level", "error"),
        ("--log-format", "text", "run", "--log-format", "json"),
    ],
)
def test_options_may_stand_before_and_after_the_command(
    words: tuple[str, ...], tmp_path: Path
) -> None:
    CliRunner().invoke(cli, [*words, "--config", str(tmp_path / "none.toml")])

    assert logs.is_json()
