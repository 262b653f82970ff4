"""What Java says; all else of the module needs one, and is tested with what uses it."""

from pyspark.errors import AnalysisException

from spark_consumers.spark.jvm import kind_of, reason


def test_a_stack_is_recognised_by_its_first_line() -> None:
    assert reason(ValueError("first\n\tat second")) == "first"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 1000))) == 300


def test_the_kind_of_an_error_repeats_nothing_of_its_message() -> None:
    known = AnalysisException(
        errorClass="CANNOT_PARSE_DATATYPE", messageParameters={"msg": "a secret"}
    )

    assert kind_of(known) == "CANNOT_PARSE_DATATYPE"
    assert kind_of(ValueError("a secret")) == "ValueError"
