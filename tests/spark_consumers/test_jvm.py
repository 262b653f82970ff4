"""What Java says; all else of the module needs one, and is tested with what uses it."""

from spark_consumers.jvm import reason


def test_a_stack_is_recognised_by_its_first_line() -> None:
    assert reason(ValueError("first\n\tat second")) == "first"
    assert reason(ValueError()) == "ValueError"
    assert len(reason(ValueError("x" * 1000))) == 300
