"""What SQLSTATEs of a target become."""

import pytest

from schemas.errors import Verdict
from schemas.tables import TableId
from spark_consumers.errors import (
    MissingColumn,
    MissingTable,
    NotExpressible,
    TargetDown,
    TargetError,
    TargetLogin,
    TargetNotPermitted,
    TargetRefused,
)
from spark_consumers.sinks.postgres.driver import Refused
from spark_consumers.sinks.postgres.refusals import CLASSES, STATES, about, ours

PASSES = [
    *("08000", "08006", "40001", "40P01", "53100", "53200", "53300", "53400", "25P04", "55P03"),
    *("57014", "57P01", "57P02", "57P03", "57P05", "25006", "58030"),
]
STOPS = {
    "28P01": TargetLogin,
    "28000": TargetLogin,
    "3D000": TargetLogin,
    "42501": TargetNotPermitted,
    "42P01": MissingTable,
    "42703": MissingColumn,
    "42804": TargetRefused,
    "42601": TargetRefused,
    "22P02": TargetRefused,
    "22003": TargetRefused,
    "23505": TargetRefused,
    "23502": TargetRefused,
    "0A000": NotExpressible,
    "55000": TargetRefused,
    "55P04": TargetRefused,
    "57P04": TargetRefused,
    "54000": TargetRefused,
    "P0001": TargetRefused,
    "XX000": TargetRefused,
}


@pytest.mark.parametrize("code", [None, *PASSES])
def test_what_passes_is_tried_again(code: str | None) -> None:
    error = ours(Refused(code, message="the server's words"))

    assert type(error) is TargetDown
    assert error.verdict is Verdict.RETRY


@pytest.mark.parametrize(("code", "kind"), STOPS.items())
def test_what_no_retry_mends_stops(code: str, kind: type[TargetError]) -> None:
    error = ours(Refused(code))

    assert type(error) is kind
    assert error.verdict is Verdict.STOP
    assert error.exit_code >= 60
    assert f"sqlstate={code}" in str(error)
    assert error.hint


@pytest.mark.parametrize("code", [code for code in STOPS if code[:2] not in {"22", "P0", "XX"}])
def test_the_servers_words_are_repeated(code: str) -> None:
    said = "Spalte »x« existiert nicht"

    assert said in str(ours(Refused(code, message=said)))


@pytest.mark.parametrize("code", ["22P02", "22003", "P0001", "XX000", "ZZ001", "F0000"])
def test_words_that_may_hold_values_are_not(code: str) -> None:
    error = ours(Refused(code, message='invalid input syntax: "secret"'))

    assert "secret" not in str(error)
    assert str(error).startswith("the target refused: ")


def test_a_statement_says_its_table() -> None:
    with (
        pytest.raises(TargetRefused, match=r"table=public\.t") as caught,
        about(TableId("public", "t"), ("id",)),
    ):
        raise Refused("22P02")

    assert isinstance(caught.value.__cause__, Refused)


def test_no_way_out_is_given_twice() -> None:
    for code, meaning in {**STATES, **CLASSES}.items():
        assert meaning.error.__doc__
        assert len(code) in {2, 5}
    kept = ours(Refused("28P01", hint="check the password"))
    assert kept.hint == "check the password"
