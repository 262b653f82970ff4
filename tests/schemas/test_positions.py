import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.positions import CommitKey, Lsn, lsn_text, parse_lsn

NUMBERS = st.integers(0, 2**64 - 1)


@given(NUMBERS)
def test_an_lsn_survives_its_text(number: int) -> None:
    assert parse_lsn(lsn_text(Lsn(number))) == number


@pytest.mark.parametrize(
    ("text", "lsn"), [("0/0", 0), ("1/CFE5E68", 0x1_0CFE_5E68), ("F/A", 15 << 32 | 10)]
)
def test_positions_are_upper_case_without_zeros(text: str, lsn: int) -> None:
    assert (lsn_text(Lsn(lsn)), parse_lsn(text)) == (text, lsn)


@pytest.mark.parametrize(
    "text", ["", "0", "/", "0/", "/0", "0/123456789", "g/0", "0/0 ", " 0/0", "-1/0", "+1/0"]
)
def test_what_is_not_an_lsn(text: str) -> None:
    with pytest.raises(ValueError, match="not an LSN"):
        parse_lsn(text)


@given(NUMBERS, NUMBERS, NUMBERS)
def test_a_commit_key_survives_its_text(epoch: int, seq: int, ordinal: int) -> None:
    key = CommitKey(epoch, seq, ordinal)
    assert CommitKey.parse(str(key)) == key


@pytest.mark.parametrize("text", ["", "1/2", "1/2/3/4", "1/2/x", "1/-2/3", "1//3", "1/2/٣"])
def test_what_is_not_a_position(text: str) -> None:
    with pytest.raises(ValueError, match="not a position"):
        CommitKey.parse(text)


def test_commit_keys_order_by_epoch_then_seq_then_ordinal() -> None:
    keys = [CommitKey(2, 1, 0), CommitKey(1, 10, 0), CommitKey(1, 9, 5), CommitKey(1, 9, 10)]
    assert sorted(keys) == [keys[2], keys[3], keys[1], keys[0]]
