"""What a rule finds wrong is a line of `check`."""

from schemas.errors import Explained
from schemas.findings import Finding, Level, refused


def test_an_error_is_a_line_with_its_places_and_its_way_out() -> None:
    error = Explained("it is held", hint="end it", topic="cuts", offset=7)

    assert refused("cuts", error) == Finding(
        Level.ERROR, "cuts", "it is held (topic=cuts, offset=7)", "end it", "Explained"
    )
    assert refused("cuts", Explained("it is held"), Level.WARNING) == Finding(
        Level.WARNING, "cuts", "it is held", error="Explained"
    )
