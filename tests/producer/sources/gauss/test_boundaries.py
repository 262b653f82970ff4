"""BEGIN and COMMIT alternate, and tell one transaction together."""

import pytest

from producer.core.changes import Logical
from producer.errors import DecodeError
from producer.sources.gauss.boundaries import Boundaries, Place, together
from producer.sources.gauss.decoders.messages import Ddl, ServerHeartbeat, TxBegin, TxCommit
from schemas.positions import Lsn

BEGUN, ENDED = TxBegin(xid=7), TxCommit(xid=7, end_lsn=Lsn(0x20))
DDL = Ddl("TDDL", "DROP TABLE t")


def test_what_stands_between_begin_and_commit_is_within() -> None:
    stream = Boundaries()

    assert [stream.step(message) for message in (BEGUN, DDL, ServerHeartbeat(1, 1, 1))] == [
        Place.BEGINS,
        Place.WITHIN,
        Place.OUTSIDE,
    ]
    assert stream.is_open
    assert stream.step(ENDED) == (BEGUN, ENDED)
    assert not stream.is_open


@pytest.mark.parametrize(
    ("before", "message"), [([], ENDED), ([], DDL), ([BEGUN], BEGUN), ([BEGUN, ENDED], ENDED)]
)
def test_a_message_that_is_not_allowed_there_is_stray_and_changes_nothing(before, message) -> None:
    stream = Boundaries()
    for each in before:
        stream.step(each)
    was = stream.is_open

    assert stream.step(message) is Place.STRAY
    assert stream.is_open is was


def test_a_message_outside_of_transactions_is_separate() -> None:
    assert Boundaries().step(Logical(False, Lsn(1), "p", b"")) is Place.OUTSIDE


def test_either_end_may_have_the_data() -> None:
    assert together(TxBegin(csn=5), TxCommit(xid=7, committed_at="t")) == (7, 5, "t")


@pytest.mark.parametrize(
    ("begun", "ended"), [(TxBegin(xid=1), TxCommit(xid=2)), (TxBegin(csn=1), TxCommit(csn=2))]
)
def test_ends_of_two_transactions_are_refused(begun: TxBegin, ended: TxCommit) -> None:
    with pytest.raises(DecodeError, match="BEGIN and COMMIT differ"):
        together(begun, ended)
