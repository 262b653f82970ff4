import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.encodings import BYTES_OR_UTF8, exact_bytes, from_exact, is_text, of_cells


@given(st.binary())
def test_any_bytes_come_back(data: bytes) -> None:
    text = from_exact(exact_bytes(data))

    assert text.encode(BYTES_OR_UTF8) == data
    assert data.decode(BYTES_OR_UTF8) == text
    assert is_text(text) == (text.encode("utf-8", "replace") == data)


@pytest.mark.parametrize("text", ["NaN", "", "{{1,2}}", "infinity", '"a"=>"1"'])
def test_other_exact_texts_are_themselves(text: str) -> None:
    assert from_exact(text) == text


def test_an_unknown_encoding_is_an_error() -> None:
    assert of_cells("sql_ascii") == of_cells("utf8") == of_cells("ASCII") == "utf-8"
    with pytest.raises(LookupError):
        of_cells("MULE_INTERNAL")
