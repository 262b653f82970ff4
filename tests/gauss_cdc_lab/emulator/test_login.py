"""The server's side of logging in, against vectors worked out by hand."""

import pytest

from gauss_cdc_lab.emulator.login import Account, Gate, Line, StoredPassword

# Cross-checked there by the JDBC driver's own class.
PASSWORD, SALT, TOKEN = "Gauss@123", bytes.fromhex("4d5a" * 16), bytes.fromhex("01020304")
PROOFS = {
    10_000: b"ebc77958e1906dab08381b67bd5aa8919f62911c4cbe3a7db847a44c06bff5a5",
    2_048: b"17278b75f74ab0094c8f478dcafe89bf7f7ccfab54982ad5969353f6205188eb",
}
SIGNATURES = {
    10_000: b"5dfa712356714a5c2c6e652d84ec2e2921584df371ab3293dd98197f743a6a8d",
    2_048: b"9d99fa37764e4f12588b3167afbb26350b18ca6cb9121cd4ed9c77d64cb72bb9",
}


def gate(random: bytes = TOKEN, **more: object) -> Gate:
    account = Account("cdc", PASSWORD, salt=SALT, **more)
    return Gate([account], random=lambda count: random[:count])


@pytest.mark.parametrize("rounds", PROOFS)
def test_the_known_proof_is_right_and_one_bit_more_is_wrong(rounds: int) -> None:
    judge = gate(rounds=rounds).challenge("cdc", 51).judge
    assert judge is not None

    assert judge(PROOFS[rounds])
    assert not judge(PROOFS[rounds][:-1] + b"6")
    assert not judge(PROOFS[rounds][:-2])
    assert not judge(b"no hexadecimal digits")
    assert not judge(b"")


@pytest.mark.parametrize("rounds", SIGNATURES)
@pytest.mark.parametrize(("minor", "length"), [(51, 88), (50, 84), (0, 148)])
def test_each_minor_version_has_its_shape(minor: int, length: int, rounds: int) -> None:
    frame = gate(rounds=rounds).challenge("cdc", minor).frame
    head = b"R" + length.to_bytes(4, "big") + b"\0\0\0\x0a\0\0\0\2" + SALT.hex().encode()

    tail = {51: rounds.to_bytes(4, "big"), 50: b"", 0: SIGNATURES[rounds]}[minor]
    assert frame == head + b"01020304" + tail


@pytest.mark.parametrize(
    ("stored", "line", "codes"),
    [  # of protocols 3.51, 3.50, 3.0, as a live server answered
        (StoredPassword.SHA256, Line.SHA256, (10, 10, 10)),
        (StoredPassword.COMBINED, Line.SHA256, (10, 10, 5)),
        (StoredPassword.MD5, Line.SHA256, (5, 5, 5)),
        (StoredPassword.SM3, Line.SM3, (13, 13, 13)),
        (StoredPassword.SHA256, Line.MD5, (11, 11, 11)),
        (StoredPassword.COMBINED, Line.MD5, (5, 5, 5)),
        (StoredPassword.MD5, Line.MD5, (5, 5, 5)),
        (StoredPassword.SHA256, Line.PASSWORD, (3, 3, 3)),
    ],
)
def test_what_is_stored_and_the_line_decide_the_method(
    stored: StoredPassword, line: Line, codes: tuple[int, ...]
) -> None:
    asked = gate(stored=stored, line=line)

    found = tuple(asked.challenge("cdc", minor).frame[8] for minor in (51, 50, 0))
    assert found == codes


def test_the_known_answer_to_md5_sha256_is_right() -> None:
    asked = gate(bytes.fromhex("0a0b0c0d"), line=Line.MD5, rounds=2_048).challenge("cdc", 51)
    assert asked.judge is not None

    assert len(asked.frame) == 1 + 76
    assert asked.judge(b"md5cf8b69b26711fdf66ae7850e955f7afc")
    assert not asked.judge(b"md5cf8b69b26711fdf66ae7850e955f7afd")


def test_a_user_that_does_not_exist_keeps_its_salt_and_is_never_right() -> None:
    asked = gate()
    first, second, other = (asked.challenge(name, 51) for name in ("ann", "ann", "bob"))

    assert first.frame == second.frame
    assert first.frame[13:77] != other.frame[13:77]
    assert first.judge is not None
    assert not first.judge(PROOFS[10_000])
