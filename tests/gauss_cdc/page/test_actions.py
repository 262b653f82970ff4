"""What the page may ask for."""

import threading

import pytest

from gauss_cdc.page import actions
from tests.gauss_cdc.verify.test_rounds import configured


@pytest.mark.parametrize("error", [RuntimeError("a cell"), ValueError("why")])
def test_a_comparison_that_fails_in_whatever_way_ends(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise error

    monkeypatch.setattr(actions, "verify", fails)
    config = configured("postgres", "postgresql://cdc@127.0.0.1:1/copy")
    page = actions.Actions(config, "token")

    page.do("verify", [])
    for thread in threading.enumerate():
        if thread.name == "verify":
            thread.join(30)

    found = page.facts()["verified"]
    assert not found["is_running"]
    assert "a cell" not in found["failed"]
    assert ("RuntimeError" in found["failed"]) == isinstance(error, RuntimeError)
    page.do("verify", [])  # and another one may begin
