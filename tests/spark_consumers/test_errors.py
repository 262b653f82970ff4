"""Every error says what it is and what to do."""

import pytest

from schemas.errors import Verdict
from spark_consumers import errors
from spark_consumers.errors import ApplyError, MissingColumn

LEAVES = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, ApplyError)]


@pytest.mark.parametrize("error", LEAVES)
def test_every_error_has_a_verdict_and_a_sentence(error: type[ApplyError]) -> None:
    assert isinstance(error.verdict, Verdict)
    assert error.exit_code
    assert error.__doc__


def test_a_message_says_what_where_and_what_to_do() -> None:
    error = MissingColumn("a column is missing", table="public.a", hint="add it")

    assert str(error) == "a column is missing (table=public.a); add it"
    assert str(ApplyError("no")) == "no"
