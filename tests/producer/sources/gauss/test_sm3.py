import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from producer.sources.gauss import sm3

# GB/T 32905-2016, appendix A.
EXAMPLES = {
    b"abc": "66c7f0f462eeedd9d1f2d46bdc10e4e24167c4875cf2f7a2297da02b8f4ba8e0",
    b"abcd" * 16: "debe9ff92275b8a138604889c18e5a4d6fdb70e5387e5765293dcba39c0c5732",
}


@pytest.mark.parametrize("message", EXAMPLES)
def test_the_examples_of_the_standard(message: bytes) -> None:
    assert sm3.digest(message).hex() == EXAMPLES[message]


@given(st.binary(max_size=300))
def test_it_is_what_openssl_computes(message: bytes) -> None:
    if "sm3" in hashlib.algorithms_available:  # else the standard's own examples must do
        assert sm3.digest(message) == hashlib.new("sm3", message).digest()
