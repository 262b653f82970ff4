"""A label that is renamed while rows are read."""

import pytest

from producer.errors import TableChanging
from producer.sources.labels import unrenamed
from schemas.tables import Column, TableId, UserType

MOOD = Column("v", 70_000, user_type=UserType("e", "mood"))


class Server:
    """Answers with the labels that it is given."""

    def __init__(self, **labels: str) -> None:
        self.labels = labels

    def query(self, _sql: str) -> list[list[str | None]]:
        return [[oid, label] for oid, label in self.labels.items()]


def test_rows_are_handed_on_until_a_label_has_another_name() -> None:
    now, came = Server(a="sad", b="ok"), []
    shown = Server(a="sad", b="ok")
    hand_on = unrenamed(TableId("s", "t"), [MOOD], shown, now, came.append)

    hand_on([[b"sad"]])
    now.labels = {"b": "ok", "c": "new"}  # no statement prints one that is gone
    hand_on([[b"ok"]])
    now.labels["b"] = "fine"
    with pytest.raises(TableChanging, match="renamed"):
        hand_on([[b"fine"]])

    assert came == [[[b"sad"]], [[b"ok"]]]
